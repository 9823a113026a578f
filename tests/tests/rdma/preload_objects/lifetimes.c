/* What can be made and when it can be destroyed; what is refused, and with which number. */
#include "common.h"

static struct ibv_context *context;

static void domains(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && pd->context == context);
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_td *td = ibv_alloc_td(context, &td_attr);
	CHECK(td);
	td_attr.comp_mask = 1;
	REFUSED(ibv_alloc_td(context, &td_attr), EINVAL);
	struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = td};
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
	CHECK(parent);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_dealloc_td(td) == EBUSY);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(parent, IBV_QPT_RC, cq, NULL);
	CHECK(qp->pd == parent);
	CHECK(ibv_dealloc_pd(parent) == EBUSY);
	CHECK(ibv_destroy_cq(cq) == EBUSY);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(parent) == 0);
	CHECK(ibv_dealloc_td(td) == 0);
	attr.comp_mask = 1 << 30;
	REFUSED(ibv_alloc_parent_domain(context, &attr), EOPNOTSUPP);
	attr.comp_mask = 0;
	attr.pd = NULL;
	REFUSED(ibv_alloc_parent_domain(context, &attr), EINVAL);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static void regions(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	static char memory[8192];
	REFUSED(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
	REFUSED(ibv_reg_mr(pd, memory, sizeof memory, 1 << 15), EINVAL);
	REFUSED(ibv_reg_mr(pd, memory, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);

	struct ibv_alloc_dm_attr dm_attr = {.length = 4096};
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
	CHECK(dm);
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->length == 4096 && mr->pd == pd && mr->lkey);
	CHECK(ibv_free_dm(dm) == EBUSY);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_memcpy_to_dm(dm, 8, "12345678", 8) == 0);
	char back[8];
	CHECK(ibv_memcpy_from_dm(back, dm, 8, 8) == 0 && memcmp(back, "12345678", 8) == 0);
	CHECK(ibv_memcpy_to_dm(dm, 4092, "12345678", 8) == EINVAL);
	/* Whole words only, as on hardware. */
	CHECK(ibv_memcpy_to_dm(dm, 2, "12345678", 4) == EINVAL && ibv_memcpy_from_dm(back, dm, 0, 5) == EINVAL);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_free_dm(dm) == 0);
	dm_attr.length = 0;
	REFUSED(ibv_alloc_dm(context, &dm_attr), EINVAL);

	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(mw && mw->pd == pd && mw->type == IBV_MW_TYPE_2);
	REFUSED(ibv_alloc_mw(pd, 3), EINVAL);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_dealloc_mw(mw) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static void completion_queues(void)
{
	struct ibv_device_attr device;
	CHECK(ibv_query_device(context, &device) == 0);
	REFUSED(ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(context, 8, NULL, NULL, context->num_comp_vectors), EINVAL);
	REFUSED(ibv_create_cq(context, 8, NULL, NULL, -1), EINVAL);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	int mine;
	struct ibv_cq *cq = ibv_create_cq(context, 5, &mine, channel, 0);
	CHECK(cq && cq->cqe >= 5 && cq->cq_context == &mine && cq->channel == channel);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(ibv_resize_cq(cq, 100) == 0 && cq->cqe >= 100);
	CHECK(ibv_resize_cq(cq, device.max_cqe + 1) == EINVAL);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);

	struct ibv_cq_init_attr_ex attr = {.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *extended = ibv_create_cq_ex(context, &attr);
	CHECK(extended && ibv_cq_ex_to_cq(extended)->cqe >= 8);
	struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE};
	CHECK(ibv_modify_cq(ibv_cq_ex_to_cq(extended), &moderate) == EOPNOTSUPP);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)) == 0);
	attr.wc_flags = IBV_WC_EX_WITH_TM_INFO;
	REFUSED(ibv_create_cq_ex(context, &attr), EOPNOTSUPP);
	attr.wc_flags = 0;
	attr.comp_mask = 1 << 20;
	REFUSED(ibv_create_cq_ex(context, &attr), EINVAL);
}

static void queue_pairs(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = plain(IBV_QPT_RC, cq);
	attr.cap = (struct ibv_qp_cap){.max_send_wr = 5, .max_recv_wr = 5, .max_send_sge = 3, .max_inline_data = 100};
	attr.sq_sig_all = 1;
	int mine;
	attr.qp_context = &mine;
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	CHECK(qp && qp->state == IBV_QPS_RESET && qp->qp_context == &mine && qp->pd == pd);
	CHECK(attr.cap.max_send_wr >= 5 && attr.cap.max_recv_wr >= 5 && attr.cap.max_send_sge >= 3);
	CHECK(attr.cap.max_recv_sge >= 1);
	/* Behind a head of 32 bytes, in three blocks of 64. */
	CHECK(attr.cap.max_inline_data == 160);
	CHECK(ibv_qp_to_qp_ex(qp) == NULL);
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr made;
	CHECK(ibv_query_qp(qp, &now, IBV_QP_STATE | IBV_QP_CAP, &made) == 0);
	CHECK(now.qp_state == IBV_QPS_RESET && made.sq_sig_all == 1 && made.send_cq == cq && made.qp_context == &mine);
	CHECK(memcmp(&made.cap, &attr.cap, sizeof made.cap) == 0 && memcmp(&now.cap, &attr.cap, sizeof now.cap) == 0);

	/* What fits beside the head into the one block that there is in any case. */
	struct ibv_qp_init_attr small = plain(IBV_QPT_RC, cq);
	small.cap = (struct ibv_qp_cap){.max_send_wr = 1, .max_send_sge = 1};
	struct ibv_qp *other = ibv_create_qp(pd, &small);
	CHECK(other && small.cap.max_inline_data == 32 && ibv_destroy_qp(other) == 0);

	/* From state to state. */
	CHECK(to_rts(qp) == EINVAL && qp->state == IBV_QPS_RESET);
	struct ibv_qp_attr wrong = {.qp_state = IBV_QPS_INIT, .port_num = 2};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(qp, &wrong, init) == EINVAL);
	wrong.port_num = 1;
	CHECK(ibv_modify_qp(qp, &wrong, init | IBV_QP_ALT_PATH) == EOPNOTSUPP);
	CHECK(ibv_modify_qp(qp, &wrong, init | 1 << 30) == EINVAL);
	CHECK(ibv_modify_qp(qp, &wrong, init & ~IBV_QP_PORT) == EINVAL);
	CHECK(to_init(qp) == 0 && qp->state == IBV_QPS_INIT);
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 1,
				  .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = address(context)};
	int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	rtr.ah_attr.is_global = 0;
	CHECK(ibv_modify_qp(qp, &rtr, rtr_mask) == EINVAL);
	rtr.ah_attr.is_global = 1;
	rtr.ah_attr.grh.sgid_index = 99;
	CHECK(ibv_modify_qp(qp, &rtr, rtr_mask) == EINVAL);
	CHECK(to_rtr(qp, qp->qp_num) == 0 && to_rts(qp) == 0);
	CHECK(ibv_query_qp(qp, &now, IBV_QP_STATE, &made) == 0);
	CHECK(now.qp_state == IBV_QPS_RTS && now.dest_qp_num == qp->qp_num && now.path_mtu == IBV_MTU_1024);
	CHECK(now.timeout == 14 && now.retry_cnt == 7 && now.rnr_retry == 7 && now.sq_psn == 7 && now.rq_psn == 7);
	struct ibv_ah_attr own = address(context);
	CHECK(now.ah_attr.is_global && memcmp(&now.ah_attr.grh.dgid, &own.grh.dgid, 16) == 0);
	CHECK(now.ah_attr.grh.sgid_index == GID && now.ah_attr.port_num == 1 && now.port_num == 1);
	struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1000000};
	CHECK(ibv_modify_qp_rate_limit(qp, &rate) == 0);
	rate.comp_mask = 1;
	CHECK(ibv_modify_qp_rate_limit(qp, &rate) == EINVAL);
	struct ibv_ece ece = {.vendor_id = 1};
	CHECK(ibv_query_ece(qp, &ece) == 0 && ece.vendor_id == 0 && ece.options == 0);
	ece = (struct ibv_ece){.vendor_id = 0x15b3, .options = 5};
	CHECK(ibv_set_ece(qp, &ece) == 0);
	ece = (struct ibv_ece){0};
	CHECK(ibv_query_ece(qp, &ece) == 0 && ece.vendor_id == 0x15b3 && ece.options == 5);
	ece.comp_mask = 1;
	CHECK(ibv_set_ece(qp, &ece) == EINVAL);
	union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 9}};
	CHECK(ibv_attach_mcast(qp, &group, 0) == EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);

	/* What there is not. */
	struct ibv_device_attr device;
	CHECK(ibv_query_device(context, &device) == 0);
	attr = plain(IBV_QPT_RC, cq);
	attr.cap.max_send_wr = device.max_qp_wr + 1;
	REFUSED(ibv_create_qp(pd, &attr), EINVAL);
	attr = plain(IBV_QPT_RC, cq);
	attr.cap.max_recv_sge = device.max_sge + 1;
	REFUSED(ibv_create_qp(pd, &attr), EINVAL);
	/* A queue pair that flows lead to stays. */
	attr = plain(IBV_QPT_RAW_PACKET, cq);
	struct ibv_qp *raw = ibv_create_qp(pd, &attr);
	CHECK(raw);
	struct ibv_flow_attr flow_attr = {.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(flow_attr), .port = 1};
	struct ibv_flow *flow = ibv_create_flow(raw, &flow_attr);
	CHECK(flow);
	CHECK(ibv_destroy_qp(raw) == EBUSY);
	flow_attr.port = 2;
	REFUSED(ibv_create_flow(raw, &flow_attr), EINVAL);
	flow_attr.port = 1;
	flow_attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	REFUSED(ibv_create_flow(raw, &flow_attr), EOPNOTSUPP);
	CHECK(!ibv_destroy_flow(flow));
	CHECK(!ibv_destroy_qp(raw));
	attr = plain(IBV_QPT_RC, NULL);
	REFUSED(ibv_create_qp(pd, &attr), EINVAL);

	struct ibv_qp_init_attr_ex ex = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .pd = pd,
					 .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
					 .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .send_ops_flags = IBV_QP_EX_WITH_SEND};
	struct ibv_qp *with = ibv_create_qp_ex(context, &ex);
	CHECK(with && ibv_qp_to_qp_ex(with) && ibv_qp_to_qp_ex(with)->wr_send);

	/* Multicast: a queue pair in a group stays. */
	CHECK(to_init(with) == 0);
	CHECK(ibv_attach_mcast(with, &group, 0) == 0);
	CHECK(ibv_attach_mcast(with, &group, 0) == 0);
	CHECK(ibv_destroy_qp(with) == EBUSY);
	CHECK(ibv_detach_mcast(with, &group, 0) == 0);
	CHECK(ibv_detach_mcast(with, &group, 0) == EINVAL);
	CHECK(ibv_destroy_qp(with) == 0);
	ex.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
	REFUSED(ibv_create_qp_ex(context, &ex), EOPNOTSUPP);
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ex.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
	REFUSED(ibv_create_qp_ex(context, &ex), EOPNOTSUPP);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static void shared_receive_queues(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_srq_init_attr attr = {.srq_context = &attr, .attr = {.max_wr = 5, .max_sge = 2}};
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);
	CHECK(srq && srq->srq_context == &attr && attr.attr.max_wr >= 5 && attr.attr.max_sge >= 2);
	struct ibv_qp *qp = make_qp(pd, IBV_QPT_RC, cq, srq);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	CHECK(ibv_destroy_qp(qp) == 0);
	struct ibv_srq_attr now = {.srq_limit = 3};
	CHECK(ibv_modify_srq(srq, &now, IBV_SRQ_LIMIT) == 0);
	CHECK(ibv_query_srq(srq, &now) == 0);
	CHECK(now.max_wr == attr.attr.max_wr && now.max_sge == attr.attr.max_sge && now.srq_limit == 3);
	now.srq_limit = 1000;
	CHECK(ibv_modify_srq(srq, &now, IBV_SRQ_LIMIT) == EINVAL);
	CHECK(ibv_modify_srq(srq, &now, 1 << 10) == EINVAL);
	CHECK(ibv_destroy_srq(srq) == 0);
	attr.attr.max_wr = 0;
	REFUSED(ibv_create_srq(pd, &attr), EINVAL);
	struct ibv_srq_init_attr_ex tm = {.attr = {.max_wr = 4, .max_sge = 1}, .pd = pd, .srq_type = IBV_SRQT_TM, .cq = cq,
					  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ};
	REFUSED(ibv_create_srq_ex(context, &tm), EOPNOTSUPP);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static struct ibv_xrcd *open_xrcd(int fd, int flags)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd,
					  .oflags = flags};
	return ibv_open_xrcd(context, &attr);
}

static void xrc(void)
{
	char name[] = "/tmp/preload-objects-XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0);
	int same = open(name, O_RDONLY);
	unlink(name);
	REFUSED(open_xrcd(fd, 0), EAGAIN);
	struct ibv_xrcd *one = open_xrcd(fd, O_CREAT);
	CHECK(one);
	REFUSED(open_xrcd(same, O_CREAT | O_EXCL), EINVAL);
	struct ibv_xrcd *other = open_xrcd(same, 0);
	CHECK(other);
	REFUSED(open_xrcd(12345, O_CREAT), EBADF);

	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_srq_init_attr_ex srq_attr = {
		.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = one, .cq = cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ};
	struct ibv_srq *srq = ibv_create_srq_ex(context, &srq_attr);
	CHECK(srq);
	uint32_t number = 0;
	CHECK(ibv_get_srq_num(srq, &number) == 0);
	CHECK(ibv_close_xrcd(one) == EBUSY && ibv_destroy_cq(cq) == EBUSY);
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_RECV, .xrcd = other, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct ibv_qp *target = ibv_create_qp_ex(context, &attr);
	CHECK(target);
	struct ibv_qp *sender = make_qp(pd, IBV_QPT_XRC_SEND, cq, NULL);
	connect_qps(sender, target);

	/* Under another name, by way of the other one who opened the domain. */
	struct ibv_qp_open_attr by = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
				      .qp_num = target->qp_num, .xrcd = one, .qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp *again = ibv_open_qp(context, &by);
	CHECK(again && again->qp_num == target->qp_num);
	by.qp_num++;
	REFUSED(ibv_open_qp(context, &by), EINVAL);
	CHECK(ibv_destroy_qp(target) == 0);
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr made;
	CHECK(ibv_query_qp(again, &now, IBV_QP_STATE, &made) == 0 && now.qp_state == IBV_QPS_RTS);

	/* It still receives. */
	struct ibv_recv_wr receive = {.wr_id = 77}, *bad_receive;
	CHECK(ibv_post_srq_recv(srq, &receive, &bad_receive) == 0);
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .qp_type.xrc.remote_srqn = number}, *bad_send;
	CHECK(ibv_post_send(sender, &send, &bad_send) == 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion(cq);
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
	CHECK(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(again) == 0);
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_xrcd(other) == 0 && ibv_close_xrcd(one) == 0);
	REFUSED(open_xrcd(fd, 0), EAGAIN);
	struct ibv_xrcd *private = open_xrcd(-1, O_CREAT);
	CHECK(private && ibv_close_xrcd(private) == 0);
	close(fd);
	close(same);
}

/* Who sends a datagram is found by the 40 bytes in front of it. */
static void answers(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(pd, IBV_QPT_UD, cq, NULL);
	CHECK(to_init(qp) == 0 && to_rtr(qp, 0) == 0 && to_rts(qp) == 0);
	struct ibv_ah_attr to = address(context);
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	CHECK(ah && ah->pd == pd && ibv_dealloc_pd(pd) == EBUSY);
	to.is_global = 0;
	REFUSED(ibv_create_ah(pd, &to), EINVAL);
	to.is_global = 1;
	to.port_num = 2;
	REFUSED(ibv_create_ah(pd, &to), EINVAL);
	struct ibv_alloc_dm_attr dm_attr = {.length = 4096};
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	struct ibv_sge sge = {.addr = 0, .length = 4096, .lkey = mr->lkey};
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
	CHECK(ibv_post_recv(qp, &receive, &bad_receive) == 0);
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .wr.ud = {.ah = ah, .remote_qpn = qp->qp_num,
								    .remote_qkey = 0x11111111}}, *bad_send;
	CHECK(ibv_post_send(qp, &send, &bad_send) == 0);
	struct ibv_wc wc = completion(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wc_flags & IBV_WC_GRH && wc.src_qp == qp->qp_num);
	struct ibv_grh grh;
	CHECK(ibv_memcpy_from_dm(&grh, dm, 0, 40) == 0);
	struct ibv_ah_attr back;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &back) == 0);
	CHECK(back.is_global && back.port_num == 1 && back.grh.sgid_index == GID);
	CHECK(memcmp(&back.grh.dgid, &to.grh.dgid, 16) == 0);
	struct ibv_ah *answer = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
	CHECK(answer && ibv_destroy_ah(answer) == 0);
	CHECK(ibv_init_ah_from_wc(context, 2, &wc, &grh, &back) == -1 && errno == EINVAL);
	CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_free_dm(dm) == 0 && ibv_dealloc_pd(pd) == 0);
}

int main(int argc, char **argv)
{
	static const struct subtest tests[] = {
		{"domains", domains},
		{"regions", regions},
		{"completion_queues", completion_queues},
		{"queue_pairs", queue_pairs},
		{"shared_receive_queues", shared_receive_queues},
		{"xrc", xrc},
		{"answers", answers},
		{0},
	};
	context = open_device();
	int status = run_tests(tests, argc, argv);
	CHECK(ibv_close_device(context) == 0);
	return status;
}

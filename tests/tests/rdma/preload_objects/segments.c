/* Frames that the device cuts into segments (IBV_WR_TSO). */
#include "common.h"

static char memory[65536];

/* Ethernet from 02:…:01 to 02:…:02, IPv4 and TCP without lengths and checksums; PSH and ACK. */
static const unsigned char headers[54] = {
	2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
	0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
	0x11, 0x22, 0, 80, 0, 0, 0x10, 0, 0, 0, 0, 7, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0,
};

static struct ibv_qp_init_attr_ex wanted(struct ibv_pd *pd, struct ibv_cq *cq, uint16_t header)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET, .pd = pd,
		.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER, .max_tso_header = header,
	};
}

static void ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
}

static void segments(void)
{
	struct ibv_context *context = open_device();
	struct ibv_device_attr_ex device;
	CHECK(ibv_query_device_ex(context, NULL, &device) == 0);
	CHECK(device.tso_caps.supported_qpts == 1 << IBV_QPT_RAW_PACKET && device.tso_caps.max_tso == 65279);

	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && mr && cq);
	struct ibv_qp_init_attr_ex attr = wanted(pd, cq, 257);
	REFUSED(ibv_create_qp_ex(context, &attr), EINVAL);
	attr = wanted(pd, cq, 54);
	attr.qp_type = IBV_QPT_UD;
	REFUSED(ibv_create_qp_ex(context, &attr), EOPNOTSUPP);
	attr = wanted(pd, cq, 54);
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
	CHECK(qp && attr.cap.max_send_sge == 2 && attr.cap.max_send_wr >= 4);
	struct ibv_qp_init_attr without_attr = plain(IBV_QPT_RAW_PACKET, cq);
	struct ibv_qp *without = ibv_create_qp(pd, &without_attr);
	CHECK(without);
	ready(qp);
	ready(without);

	for (unsigned i = 0; i < sizeof memory; i++)
		memory[i] = i * 7 + i / 251;
	struct ibv_sge pieces[2] = {
		{.addr = (uintptr_t)memory, .length = 1001, .lkey = mr->lkey},
		{.addr = (uintptr_t)memory + 1001, .length = 2999, .lkey = mr->lkey},
	};
	unsigned char own[54];
	struct ibv_send_wr wr = {.opcode = IBV_WR_TSO, .sg_list = pieces, .num_sge = 2, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM};
	struct ibv_send_wr *bad;
	wr.tso.hdr = own;
	wr.tso.mss = 1400;
	wr.tso.hdr_sz = sizeof own;
	memcpy(own, headers, sizeof own);
	CHECK(ibv_post_send(without, &wr, &bad) == EOPNOTSUPP && bad == &wr);
	for (int size = 0; size < 60; size += 55) {
		wr.tso.hdr_sz = size;
		CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	}
	wr.tso.hdr_sz = sizeof own;
	wr.tso.mss = 0;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL);
	wr.tso.mss = 1400;
	wr.send_flags |= IBV_SEND_INLINE;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL);
	wr.send_flags &= ~IBV_SEND_INLINE;

	/* More requests than the queue has room for at a time; the headers are the program's own again when the call returns. */
	int posted = 0, completed = 0;
	while (completed < 40) {
		memcpy(own, headers, sizeof own);
		own[37] = posted;
		wr.wr_id = posted;
		int error = posted < 40 ? ibv_post_send(qp, &wr, &bad) : ENOMEM;
		CHECK(error == 0 || error == ENOMEM);
		memset(own, 0xee, sizeof own);
		if (error == 0)
			posted++;
		struct ibv_wc wc;
		while (ibv_poll_cq(cq, 1, &wc) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)completed);
			completed++;
		}
	}
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(without) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
}

/* One frame of a batch, by its headers. */
static void build(struct ibv_qp_ex *qp, void *own, int size, int mss, struct ibv_sge *pieces)
{
	qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
	ibv_wr_send_tso(qp, own, size, mss);
	ibv_wr_set_sge_list(qp, 2, pieces);
}

/* The same, built call by call. */
static void calls(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex attr = wanted(pd, cq, 54);
	attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	struct ibv_qp *plain_qp = ibv_create_qp_ex(context, &attr);
	CHECK(plain_qp);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(plain_qp);
	CHECK(qp && qp->wr_send_tso);
	attr.qp_type = IBV_QPT_UD;
	attr.comp_mask &= ~IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	REFUSED(ibv_create_qp_ex(context, &attr), EOPNOTSUPP);
	attr = wanted(pd, cq, 0);
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_TSO;
	struct ibv_qp *without = ibv_create_qp_ex(context, &attr);
	CHECK(without);
	ready(plain_qp);
	ready(without);

	for (unsigned i = 0; i < sizeof memory; i++)
		memory[i] = i * 7 + i / 251;
	struct ibv_sge pieces[2] = {
		{.addr = (uintptr_t)memory, .length = 1001, .lkey = mr->lkey},
		{.addr = (uintptr_t)memory + 1001, .length = 2999, .lkey = mr->lkey},
	};
	unsigned char own[54];
	memcpy(own, headers, sizeof own);
	struct ibv_qp_ex *room_for_none = ibv_qp_to_qp_ex(without);
	ibv_wr_start(room_for_none);
	build(room_for_none, own, sizeof own, 1400, pieces);
	CHECK(ibv_wr_complete(room_for_none) == EOPNOTSUPP);

	for (int posted = 0, completed = 0; completed < 40;) {
		/* Of a batch with an error nothing is posted: no headers, too many, no size, inline bytes behind them. */
		for (int wrong = 0; wrong < 4; wrong++) {
			memset(own, 0xee, sizeof own);
			ibv_wr_start(qp);
			build(qp, own, sizeof own, 1400, pieces);
			build(qp, own, wrong == 0 ? 0 : wrong == 1 ? 55 : 54, wrong == 2 ? 0 : 1400, pieces);
			if (wrong == 3)
				ibv_wr_set_inline_data(qp, own, 10);
			int error = ibv_wr_complete(qp);
			CHECK(error == EINVAL || error == ENOMEM);
		}
		memcpy(own, headers, sizeof own);
		own[37] = posted;
		ibv_wr_start(qp);
		qp->wr_id = posted;
		build(qp, own, sizeof own, 1400, pieces);
		memset(own, 0xee, sizeof own);
		int error = ENOMEM;
		if (posted < 40)
			error = ibv_wr_complete(qp);
		else
			ibv_wr_abort(qp);
		CHECK(error == 0 || error == ENOMEM);
		if (error == 0)
			posted++;
		struct ibv_wc wc;
		while (ibv_poll_cq(cq, 1, &wc) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)completed);
			completed++;
		}
	}
	CHECK(ibv_destroy_qp(plain_qp) == 0 && ibv_destroy_qp(without) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
}

int main(int argc, char **argv)
{
	const struct subtest tests[] = {{"segments", segments}, {"calls", calls}, {NULL, NULL}};
	return run_tests(tests, argc, argv);
}

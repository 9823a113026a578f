/* Work queues, tables of them, and queue pairs that spread frames over them (RSS). */
#include "common.h"

static uint8_t key[40];
/* 128 receives. */
#define ROOM 512
static char memory[128 * ROOM];

struct all {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
};

static struct all begin(void)
{
	for (int i = 0; i < 40; i++)
		key[i] = i * 73 + 11;
	struct all all = {.context = open_device()};
	all.pd = ibv_alloc_pd(all.context);
	all.cq = ibv_create_cq(all.context, 64, NULL, NULL, 0);
	all.mr = ibv_reg_mr(all.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(all.pd && all.cq && all.mr);
	return all;
}

static void finish(struct all *all)
{
	CHECK(!ibv_dereg_mr(all->mr) && !ibv_destroy_cq(all->cq) && !ibv_dealloc_pd(all->pd));
	CHECK(!ibv_close_device(all->context));
}

static struct ibv_wq_init_attr queue(struct all *all)
{
	return (struct ibv_wq_init_attr){
		.wq_context = &key, .wq_type = IBV_WQT_RQ, .max_wr = 5, .max_sge = 1, .pd = all->pd, .cq = all->cq,
	};
}

static struct ibv_wq *make(struct all *all, int room)
{
	struct ibv_wq_init_attr attr = queue(all);
	attr.max_wr = room;
	struct ibv_wq *wq = ibv_create_wq(all->context, &attr);
	CHECK(wq && attr.max_wr == 64 && wq->wq_context == &key && wq->state == IBV_WQS_RESET);
	return wq;
}

static int to(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state};
	return ibv_modify_wq(wq, &attr);
}

static int receive(struct all *all, struct ibv_wq *wq, int id, int length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory + ROOM * id, .length = length, .lkey = all->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	return ibv_post_wq_recv(wq, &wr, &bad);
}

static struct ibv_rwq_ind_table *table(struct all *all, int log, struct ibv_wq **queues)
{
	struct ibv_rwq_ind_table_init_attr attr = {.log_ind_tbl_size = log, .ind_tbl = queues};
	return ibv_create_rwq_ind_table(all->context, &attr);
}

static struct ibv_qp_init_attr_ex hash(struct all *all, struct ibv_rwq_ind_table *table)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RAW_PACKET, .pd = all->pd, .rwq_ind_tbl = table,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ, .rx_hash_key_len = 40, .rx_hash_key = key,
				 .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 |
							IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP},
	};
}

static struct ibv_flow *everything(struct ibv_qp *qp)
{
	struct ibv_flow_attr attr = {.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof attr, .port = 1};
	return ibv_create_flow(qp, &attr);
}

/* What can be made, in which state it is, and what must be destroyed first. */
static void objects(void)
{
	struct all all = begin();
	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(all.context, NULL, &device));
	CHECK(device.rss_caps.supported_qpts == 1 << IBV_QPT_RAW_PACKET);
	CHECK(device.rss_caps.max_rwq_indirection_tables == 64 && device.rss_caps.max_rwq_indirection_table_size == 128);
	CHECK(device.rss_caps.rx_hash_function == IBV_RX_HASH_FUNC_TOEPLITZ);
	CHECK(device.rss_caps.rx_hash_fields_mask == (0xff | IBV_RX_HASH_INNER));
	CHECK(device.max_wq_type_rq > 0);

	struct ibv_wq_init_attr attr = queue(&all);
	attr.cq = NULL;
	REFUSED(ibv_create_wq(all.context, &attr), EINVAL);
	attr = queue(&all);
	attr.wq_type = 1;
	REFUSED(ibv_create_wq(all.context, &attr), EINVAL);
	attr = queue(&all);
	attr.max_sge = device.orig_attr.max_sge + 1;
	REFUSED(ibv_create_wq(all.context, &attr), EINVAL);
	attr = queue(&all);
	attr.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	attr.create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	REFUSED(ibv_create_wq(all.context, &attr), EOPNOTSUPP);
	attr.create_flags = 0;
	struct ibv_wq *queues[4] = {ibv_create_wq(all.context, &attr), make(&all, 33)};
	CHECK(queues[0] && attr.max_wr == 8);
	queues[2] = queues[3] = queues[1];

	CHECK(receive(&all, queues[0], 0, ROOM) == EINVAL);
	CHECK(to(queues[0], 3) == EINVAL);
	CHECK(!to(queues[0], IBV_WQS_RDY) && !to(queues[0], IBV_WQS_RDY) && queues[0]->state == IBV_WQS_RDY);
	struct ibv_wq_attr change = {.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, .wq_state = IBV_WQS_ERR,
				     .curr_wq_state = IBV_WQS_RESET};
	CHECK(ibv_modify_wq(queues[0], &change) == EINVAL);
	change.curr_wq_state = IBV_WQS_RDY;
	CHECK(!receive(&all, queues[0], 7, ROOM) && !ibv_modify_wq(queues[0], &change));
	struct ibv_wc wc;
	while (ibv_poll_cq(all.cq, 1, &wc) == 0)
		;
	CHECK(wc.wr_id == 7 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == queues[0]->wq_num);
	CHECK(to(queues[0], IBV_WQS_RDY) == EINVAL && !to(queues[0], IBV_WQS_RESET) && !to(queues[0], IBV_WQS_RDY));
	change = (struct ibv_wq_attr){.attr_mask = IBV_WQ_ATTR_FLAGS, .flags = IBV_WQ_FLAGS_CVLAN_STRIPPING,
				      .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING};
	CHECK(ibv_modify_wq(queues[0], &change) == EOPNOTSUPP);

	REFUSED(table(&all, 8, queues), EINVAL);
	REFUSED(table(&all, 40, queues), EINVAL);
	struct ibv_wq *gap[2] = {queues[0], NULL};
	REFUSED(table(&all, 1, gap), EINVAL);
	struct ibv_rwq_ind_table *spread = table(&all, 2, queues);
	CHECK(spread && ibv_destroy_wq(queues[0]) == EBUSY);

	struct ibv_qp_init_attr_ex wanted = hash(&all, spread);
	wanted.comp_mask &= ~IBV_QP_INIT_ATTR_RX_HASH;
	REFUSED(ibv_create_qp_ex(all.context, &wanted), EINVAL);
	wanted = hash(&all, spread);
	wanted.recv_cq = all.cq;
	REFUSED(ibv_create_qp_ex(all.context, &wanted), EINVAL);
	wanted = hash(&all, spread);
	wanted.qp_type = IBV_QPT_UD;
	REFUSED(ibv_create_qp_ex(all.context, &wanted), EINVAL);
	wanted = hash(&all, spread);
	wanted.rx_hash_conf.rx_hash_key_len = 39;
	REFUSED(ibv_create_qp_ex(all.context, &wanted), EINVAL);
	wanted = hash(&all, spread);
	wanted.rx_hash_conf.rx_hash_function = 2;
	REFUSED(ibv_create_qp_ex(all.context, &wanted), EOPNOTSUPP);
	wanted = hash(&all, spread);
	wanted.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4;
	REFUSED(ibv_create_qp_ex(all.context, &wanted), EOPNOTSUPP);
	wanted = hash(&all, spread);
	struct ibv_qp *qp = ibv_create_qp_ex(all.context, &wanted);
	CHECK(qp && wanted.cap.max_recv_wr == 0 && ibv_destroy_rwq_ind_table(spread) == EBUSY);

	struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_init_attr made;
	CHECK(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PORT) == EOPNOTSUPP);
	CHECK(ibv_query_qp(qp, &state, IBV_QP_STATE, &made) == EOPNOTSUPP);
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
	struct ibv_recv_wr recv = {.wr_id = 1}, *bad_recv;
	CHECK(ibv_post_send(qp, &send, &bad_send) && ibv_post_recv(qp, &recv, &bad_recv));
	struct ibv_flow *flow = everything(qp);
	CHECK(flow && ibv_destroy_qp(qp) == EBUSY && !ibv_destroy_flow(flow));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_rwq_ind_table(spread));
	CHECK(ibv_destroy_cq(all.cq) == EBUSY && ibv_dealloc_pd(all.pd) == EBUSY);
	CHECK(!ibv_destroy_wq(queues[0]) && !ibv_destroy_wq(queues[1]));
	finish(&all);
}

/* The hash as Microsoft describes it: for each bit of the input that is set the 32 bits of the key that begin at it. */
static uint32_t toeplitz(const uint8_t *input, int length)
{
	uint32_t sum = 0;
	for (int at = 0; at < 8 * length; at++) {
		if (!(input[at / 8] >> (7 - at % 8) & 1))
			continue;
		for (int bit = 0; bit < 32; bit++)
			sum ^= (uint32_t)(key[(at + bit) / 8] >> (7 - (at + bit) % 8) & 1) << (31 - bit);
	}
	return sum;
}

/* Somebody sends 64 frames of UDP over IPv4 when this is ready. */
static void frames(void)
{
	struct all all = begin();
	struct ibv_wq *wqs[2] = {make(&all, 64), make(&all, 64)};
	struct ibv_wq *order[4] = {wqs[1], wqs[0], wqs[0], wqs[1]};
	int used[2] = {0, 0};
	for (int i = 0; i < 128; i++) {
		if (i % 64 == 0)
			CHECK(!to(wqs[i / 64], IBV_WQS_RDY));
		CHECK(!receive(&all, wqs[i / 64], i, ROOM));
	}
	CHECK(receive(&all, wqs[0], 0, ROOM) == ENOMEM);
	struct ibv_rwq_ind_table *spread = table(&all, 2, order);
	struct ibv_qp_init_attr_ex wanted = hash(&all, spread);
	struct ibv_qp *qp = ibv_create_qp_ex(all.context, &wanted);
	CHECK(qp);
	struct ibv_flow *flow = everything(qp);
	CHECK(flow);
	printf("ready\n");
	fflush(stdout);
	for (int got = 0; got < 64;) {
		struct ibv_wc wc;
		if (ibv_poll_cq(all.cq, 1, &wc) == 0)
			continue;
		const uint8_t *frame = (uint8_t *)memory + ROOM * wc.wr_id;
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len >= 42);
		struct ibv_wq *owner = order[toeplitz(frame + 26, 12) % 4];
		CHECK(wc.qp_num == owner->wq_num && owner == wqs[wc.wr_id / 64]);
		used[wc.wr_id / 64]++;
		got++;
	}
	CHECK(used[0] > 0 && used[1] > 0);
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_qp(qp) && !ibv_destroy_rwq_ind_table(spread));
	CHECK(!ibv_destroy_wq(wqs[0]) && !ibv_destroy_wq(wqs[1]));
	finish(&all);
}

int main(int argc, char **argv)
{
	const struct subtest tests[] = {{"objects", objects}, {"frames", frames}, {NULL, NULL}};
	return run_tests(tests, argc, argv);
}

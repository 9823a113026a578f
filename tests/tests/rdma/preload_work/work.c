/* Work requests and completions through libibverbs' interface: lists, batches, fields, datagrams, windows, XRC. One
 * process on two devices. Each test ends with a line on standard output. */
#include "common.h"

static struct side sides[2];
#define A (&sides[0])
#define B (&sides[1])

static void make_pair(struct ibv_qp *qps[2], enum ibv_qp_type type, uint64_t operations)
{
	for (int i = 0; i < 2; i++)
		qps[i] = make_qp(&sides[i], type, operations);
	connect_both(sides, qps);
}

static void end_pair(struct ibv_qp *qps[2])
{
	for (int i = 0; i < 2; i++)
		SAME(ibv_destroy_qp(qps[i]), 0);
	quiet(A);
	quiet(B);
}

/* A list of writes of 8 bytes, each to its own place; the last is signaled. */
enum { LIST = 40 };

static void make_list(struct ibv_send_wr wrs[LIST], struct ibv_sge sges[LIST])
{
	memset(wrs, 0, LIST * sizeof *wrs);
	for (int i = 0; i < LIST; i++) {
		sges[i] = piece(A, 8 * i, 8);
		wrs[i].wr_id = i;
		wrs[i].next = i + 1 < LIST ? &wrs[i + 1] : NULL;
		wrs[i].sg_list = &sges[i];
		wrs[i].num_sge = 1;
		wrs[i].opcode = IBV_WR_RDMA_WRITE;
		wrs[i].send_flags = IBV_SEND_SIGNALED;
		wrs[i].wr.rdma.remote_addr = address(B->buffer + 8 * i);
		wrs[i].wr.rdma.rkey = B->mr->rkey;
	}
}

/* Of a list with an error all before it is posted, and nothing from there on. */
static void lists(void)
{
	struct ibv_qp *qps[2];
	make_pair(qps, IBV_QPT_RC, 0);
	static struct ibv_send_wr wrs[LIST], *bad;
	static struct ibv_sge sges[LIST];
	struct ibv_sge many[SGES * 16];
	for (size_t i = 0; i < sizeof many / sizeof *many; i++)
		many[i] = piece(A, 0, 8);
	SAME(ibv_post_send(qps[0], NULL, &bad), 0);
	for (int at = 0; at <= LIST; at++) {
		make_list(wrs, sges);
		memset(A->buffer, at + 1, 8 * LIST);
		memset(B->buffer, 0, 8 * LIST);
		int expected = EINVAL;
		if (at < LIST) {
			switch (at % 5) {
			case 0:
				wrs[at].num_sge = -1;
				break;
			case 1:
				wrs[at].sg_list = many;
				wrs[at].num_sge = sizeof many / sizeof *many;
				break;
			case 2:
				wrs[at].opcode = IBV_WR_TSO;
				expected = EOPNOTSUPP;
				break;
			case 3:
				wrs[at].send_flags |= 1 << 20;
				break;
			case 4:
				wrs[at].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
				wrs[at].num_sge = 0;
				break;
			}
		}
		bad = NULL;
		int error = ibv_post_send(qps[0], wrs, &bad);
		SAME(error, at < LIST ? expected : 0);
		CHECK(at == LIST || bad == &wrs[at]);
		for (int i = 0; i < at; i++)
			done(A, i);
		quiet(A);
		for (int i = 0; i < 8 * LIST; i++)
			SAME(B->buffer[i], i / 8 < at ? at + 1 : 0);
	}
	/* As many as there is room for. */
	int posted = 0;
	do {
		make_list(wrs, sges);
		bad = wrs;
		int error = ibv_post_send(qps[0], wrs, &bad);
		int count = error ? (int)(bad - wrs) : LIST;
		posted += count;
		if (error) {
			SAME(error, ENOMEM);
			break;
		}
		CHECK(posted < 100 * DEPTH);
	} while (1);
	CHECK(posted >= DEPTH);
	for (int i = 0; i < posted; i++)
		done(A, i % LIST);
	end_pair(qps);
	/* Before it is connected. */
	struct ibv_qp *alone = make_qp(A, IBV_QPT_RC, 0);
	make_list(wrs, sges);
	SAME(ibv_post_send(alone, wrs, &bad), EINVAL);
	CHECK(bad == wrs);
	struct ibv_recv_wr receives[3] = {{.wr_id = 1, .next = &receives[1]},
					  {.wr_id = 2, .next = &receives[2], .sg_list = many, .num_sge = SGES * 16},
					  {.wr_id = 3}},
			   *bad_receive;
	SAME(ibv_post_recv(alone, receives, &bad_receive), EINVAL);
	CHECK(bad_receive == receives);
	/* It takes receives from INIT on. */
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	SAME(ibv_modify_qp(alone, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	SAME(ibv_post_recv(alone, receives, &bad_receive), EINVAL);
	CHECK(bad_receive == &receives[1]);
	attr.qp_state = IBV_QPS_ERR;
	SAME(ibv_modify_qp(alone, &attr, IBV_QP_STATE), 0);
	struct ibv_wc wc = take(A);
	SAME(wc.status, IBV_WC_WR_FLUSH_ERR);
	SAME(wc.wr_id, 1);
	SAME(wc.opcode, IBV_WC_RECV);
	SAME(wc.qp_num, alone->qp_num);
	SAME(ibv_destroy_qp(alone), 0);
	puts("lists");
}

/* Every operation of a list, and what arrives. */
static void operations(enum ibv_qp_type type)
{
	struct ibv_qp *qps[2];
	make_pair(qps, type, 0);
	struct ibv_sge sges[3] = {piece(A, 100, 3), piece(A, 0, 0), piece(A, 200, 4)};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = sges, .num_sge = 3, .send_flags = IBV_SEND_SIGNALED}, *bad;
	memcpy(A->buffer + 100, "one", 3);
	memcpy(A->buffer + 200, "four", 4);
	char text[] = "of the stack", more[] = ", not registered";
	struct ibv_sge loose[3] = {{.addr = address(text), .length = sizeof text - 1},
				   {.addr = 0, .length = 0},
				   {.addr = address(more), .length = sizeof more}};
	wr.wr.rdma.remote_addr = address(B->buffer + 1000);
	wr.wr.rdma.rkey = B->mr->rkey;

	wr.opcode = IBV_WR_RDMA_WRITE;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	SAME(done(A, 1).opcode, IBV_WC_RDMA_WRITE);

	receive(qps[1], B, 2, 2000, 100);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = htonl(0x0a0b0c0d);
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	SAME(done(A, 1).opcode, IBV_WC_RDMA_WRITE);
	struct ibv_wc wc = done(B, 2);
	SAME(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	SAME(wc.wc_flags, IBV_WC_WITH_IMM);
	SAME(ntohl(wc.imm_data), 0x0a0b0c0d);
	SAME(wc.byte_len, 7);
	CHECK(!memcmp(B->buffer + 1000, "onefour", 7));

	/* Inline, of several pieces that are nobody's. */
	receive(qps[1], B, 3, 2000, 100);
	wr.opcode = IBV_WR_SEND;
	wr.send_flags |= IBV_SEND_INLINE | IBV_SEND_SOLICITED | IBV_SEND_FENCE;
	wr.sg_list = loose;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	SAME(done(A, 1).opcode, IBV_WC_SEND);
	wc = done(B, 3);
	SAME(wc.opcode, IBV_WC_RECV);
	SAME(wc.wc_flags, 0);
	SAME(wc.byte_len, sizeof text - 1 + sizeof more);
	CHECK(!strcmp((char *)B->buffer + 2000, "of the stack, not registered"));

	receive(qps[1], B, 4, 2000, 100);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.num_sge = 1;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	done(A, 1);
	wc = done(B, 4);
	SAME(wc.wc_flags, IBV_WC_WITH_IMM);
	SAME(ntohl(wc.imm_data), 0x0a0b0c0d);

	/* Too much of it: one piece, and several. */
	static char long_text[2 * INLINE + 5000];
	loose[0] = (struct ibv_sge){.addr = address(long_text), .length = 5000};
	SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);
	CHECK(bad == &wr);
	wr.num_sge = 3;
	SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);
	loose[0].length = loose[1].length = loose[2].length = ~0u;
	SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.sg_list = sges;
	wr.num_sge = 1;
	if (type == IBV_QPT_UC) {
		wr.opcode = IBV_WR_RDMA_READ;
		SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);
		wr.opcode = IBV_WR_SEND_WITH_INV;
		SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);
		end_pair(qps);
		puts("operations of UC");
		return;
	}

	wr.opcode = IBV_WR_RDMA_READ;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	wc = done(A, 1);
	SAME(wc.opcode, IBV_WC_RDMA_READ);
	SAME(wc.byte_len, 3);
	wr.send_flags |= IBV_SEND_INLINE;
	SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);
	wr.send_flags = IBV_SEND_SIGNALED;

	uint64_t *cell = (uint64_t *)(B->buffer + 4096), *answer = (uint64_t *)(A->buffer + 4096);
	*cell = 40;
	sges[0] = piece(A, 4096, 8);
	memset(&wr.wr, 0, sizeof wr.wr);
	wr.wr.atomic.remote_addr = address(cell);
	wr.wr.atomic.rkey = B->mr->rkey;
	wr.wr.atomic.compare_add = 2;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	SAME(done(A, 1).opcode, IBV_WC_FETCH_ADD);
	SAME(*answer, 40);
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	SAME(done(A, 1).opcode, IBV_WC_COMP_SWAP);
	SAME(*answer, 42);
	SAME(*cell, 7);
	sges[0].length = 4;
	SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);

	/* A key that is none: only what means something is said. */
	sges[0].length = 8;
	wr.wr.atomic.rkey = ~B->mr->rkey;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	wc = take(A);
	SAME(wc.status, IBV_WC_REM_ACCESS_ERR);
	SAME(wc.wr_id, 1);
	SAME(wc.qp_num, qps[0]->qp_num);
	SAME(wc.opcode & IBV_WC_RECV, 0);
	SAME(wc.wc_flags, 0);
	end_pair(qps);
	puts("operations of RC");
}

/* One completion by its fields, which must be of a success. */
static void start(struct side *side)
{
	struct ibv_poll_cq_attr attr = {0};
	time_t end = now() + PATIENCE;
	int error;
	while ((error = ibv_start_poll(side->cq, &attr)) == ENOENT) {
		if (now() > end)
			FAIL("no completion");
		let_others();
	}
	SAME(error, 0);
	SAME(side->cq->status, IBV_WC_SUCCESS);
}

static uint64_t expect(struct side *side, uint64_t id, enum ibv_wc_opcode opcode, uint64_t not_before)
{
	start(side);
	SAME(side->cq->wr_id, id);
	SAME(ibv_wc_read_opcode(side->cq), opcode);
	SAME(ibv_wc_read_slid(side->cq), 0);
	SAME(ibv_wc_read_dlid_path_bits(side->cq), 0);
	uint64_t at = ibv_wc_read_completion_ts(side->cq);
	CHECK(at >= not_before);
	/* In an hour around now: the same clock as everybody's, in the same unit. */
	long long wall = (long long)(ibv_wc_read_completion_wallclock_ns(side->cq) / 1000000000);
	CHECK(llabs(wall - (long long)time(NULL)) < 3600);
	ibv_end_poll(side->cq);
	return at;
}

/* Batches of every kind, read field by field, over and over. */
static void batches(enum ibv_qp_type type)
{
	struct ibv_qp *qps[2];
	struct ibv_qp_ex *qp;
	uint64_t operations = EVERY_OPERATION;
	if (type == IBV_QPT_UC)
		operations &= ~(uint64_t)(IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
					  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV);
	make_pair(qps, type, operations);
	CHECK(qp = ibv_qp_to_qp_ex(qps[0]));
	uint64_t *cell = (uint64_t *)(B->buffer + 4096), *answers = (uint64_t *)(A->buffer + 4096);
	uint64_t last = 0, last_received = 0;
	struct ibv_poll_cq_attr known = {0}, unknown = {.comp_mask = 1};
	SAME(ibv_start_poll(A->cq, &known), ENOENT);
	SAME(ibv_start_poll(A->cq, &unknown), EINVAL);
	*cell = 0;
	for (uint64_t round = 0; round < 300; round++) {
		uint32_t number = (uint32_t)(round * 2654435761u);
		memcpy(A->buffer + 16, &number, 4);
		receive(qps[1], B, 10 * round + 1, 0, 64);
		receive(qps[1], B, 10 * round + 2, 64, 64);

		ibv_wr_start(qp);
		qp->wr_id = 10 * round + 3;
		qp->wr_flags = 0;
		ibv_wr_rdma_write(qp, B->mr->rkey, address(B->buffer + 512));
		/* Number and flags are those of the moment of the builder. */
		qp->wr_id = 10 * round + 4;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_set_sge(qp, A->mr->lkey, address(A->buffer + 16), 4);
		ibv_wr_send_imm(qp, htonl(number));
		struct ibv_data_buf pieces[2] = {{.addr = &number, .length = 4}, {.addr = &round, .length = 8}};
		ibv_wr_set_inline_data_list(qp, 2, pieces);
		qp->wr_id = 10 * round + 5;
		ibv_wr_rdma_write_imm(qp, B->mr->rkey, address(B->buffer + 520), htonl(~number));
		struct ibv_sge list[2] = {piece(A, 16, 2), piece(A, 18, 2)};
		ibv_wr_set_sge_list(qp, 2, list);
		memset(list, 0xff, sizeof list);
		if (type != IBV_QPT_UC) {
			qp->wr_id = 10 * round + 6;
			ibv_wr_rdma_read(qp, B->mr->rkey, address(B->buffer + 512));
			ibv_wr_set_sge(qp, A->mr->lkey, address(A->buffer + 32), 4);
			qp->wr_id = 10 * round + 7;
			ibv_wr_atomic_fetch_add(qp, B->mr->rkey, address(cell), 3);
			ibv_wr_set_sge(qp, A->mr->lkey, address(&answers[0]), 8);
			qp->wr_id = 10 * round + 8;
			ibv_wr_atomic_cmp_swp(qp, B->mr->rkey, address(cell), 3 * round + 3, 3 * round + 3);
			ibv_wr_set_sge(qp, A->mr->lkey, address(&answers[1]), 8);
		}
		SAME(ibv_wr_complete(qp), 0);
		uint64_t changed = number;
		number = 0;

		last = expect(A, 10 * round + 4, IBV_WC_SEND, last);
		last = expect(A, 10 * round + 5, IBV_WC_RDMA_WRITE, last);
		if (type != IBV_QPT_UC) {
			last = expect(A, 10 * round + 6, IBV_WC_RDMA_READ, last);
			last = expect(A, 10 * round + 7, IBV_WC_FETCH_ADD, last);
			last = expect(A, 10 * round + 8, IBV_WC_COMP_SWAP, last);
			CHECK(!memcmp(A->buffer + 32, A->buffer + 16, 4));
			SAME(answers[0], 3 * round);
			SAME(answers[1], 3 * round + 3);
		}
		quiet(A);

		start(B);
		SAME(B->cq->wr_id, 10 * round + 1);
		SAME(ibv_wc_read_opcode(B->cq), IBV_WC_RECV);
		SAME(ibv_wc_read_byte_len(B->cq), 12);
		SAME(ibv_wc_read_wc_flags(B->cq), IBV_WC_WITH_IMM);
		SAME(ntohl(ibv_wc_read_imm_data(B->cq)), changed);
		SAME(ibv_wc_read_qp_num(B->cq), qps[1]->qp_num);
		SAME(ibv_wc_read_vendor_err(B->cq), 0);
		CHECK(ibv_wc_read_completion_ts(B->cq) >= last_received);
		last_received = ibv_wc_read_completion_ts(B->cq);
		int error;
		while ((error = ibv_next_poll(B->cq)) == ENOENT)
			;
		SAME(error, 0);
		SAME(B->cq->wr_id, 10 * round + 2);
		SAME(ibv_wc_read_opcode(B->cq), IBV_WC_RECV_RDMA_WITH_IMM);
		SAME(ntohl(ibv_wc_read_imm_data(B->cq)), (uint32_t)~changed);
		SAME(ibv_next_poll(B->cq), ENOENT);
		ibv_end_poll(B->cq);
		CHECK(!memcmp(B->buffer + 4, &round, 8));
		CHECK(!memcmp(B->buffer + 512, A->buffer + 16, 4) && !memcmp(B->buffer + 520, A->buffer + 16, 4));
	}
	end_pair(qps);
	printf("batches of %s\n", type == IBV_QPT_UC ? "UC" : "RC");
}

/* Of a batch with a mistake nothing is posted, wherever it is; nor of one that is aborted. */
static void mistakes(void)
{
	struct ibv_qp *qps[2];
	struct ibv_qp_ex *qp;
	make_pair(qps, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
	CHECK(qp = ibv_qp_to_qp_ex(qps[0]));
	CHECK(!qp->wr_send && !qp->wr_rdma_read && !qp->wr_set_ud_addr && !qp->wr_set_xrc_srqn);
	static char too_long[8192];
	memset(B->buffer, 0, 64);
	memset(A->buffer, 1, 64);
	for (int mistake = 0; mistake < 8; mistake++) {
		ibv_wr_start(qp);
		qp->wr_flags = IBV_SEND_SIGNALED;
		for (int i = 0; i < 3; i++) {
			qp->wr_id = i;
			if (mistake == 1 && i == 1)
				qp->wr_flags |= 1 << 20;
			ibv_wr_rdma_write(qp, B->mr->rkey, address(B->buffer));
			struct ibv_sge list[SGES * 16];
			for (size_t j = 0; j < sizeof list / sizeof *list; j++)
				list[j] = piece(A, 0, 8);
			ibv_wr_set_sge_list(qp, mistake == 2 && i == 1 ? SGES * 16 : 1, list);
			if (mistake == 3 && i == 1)
				ibv_wr_set_inline_data(qp, too_long, sizeof too_long);
			if (mistake == 4 && i == 1)
				ibv_wr_set_inline_data(qp, too_long, 4000);
			if (mistake == 5 && i == 1)
				ibv_wr_atomic_fetch_add(qp, B->mr->rkey, address(B->buffer), 1);
		}
		if (mistake == 0)
			ibv_wr_abort(qp);
		else if (mistake == 6)
			for (int i = 0; i < 100 * DEPTH; i++)
				ibv_wr_rdma_write(qp, B->mr->rkey, address(B->buffer));
		if (mistake == 7) {
			SAME(ibv_wr_complete(qp), 0);
			for (int i = 0; i < 3; i++)
				done(A, i);
			SAME(B->buffer[0], 1);
		} else {
			if (mistake > 0)
				SAME(ibv_wr_complete(qp), mistake == 6 ? ENOMEM : EINVAL);
			quiet(A);
			SAME(B->buffer[0], 0);
		}
	}
	/* One without a request. */
	ibv_wr_start(qp);
	ibv_wr_set_sge(qp, A->mr->lkey, address(A->buffer), 8);
	SAME(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	SAME(ibv_wr_complete(qp), 0);
	end_pair(qps);
	/* What there is not. */
	struct ibv_qp_init_attr_ex init = qp_init(A, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE);
	CHECK(!ibv_create_qp_ex(A->context, &init));
	SAME(errno, EOPNOTSUPP);
	puts("mistakes");
}

static void datagrams(void)
{
	struct ibv_qp *qps[2];
	struct ibv_qp_ex *qp;
	make_pair(qps, IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	CHECK(qp = ibv_qp_to_qp_ex(qps[0]));
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .sl = 3};
	attr.grh.dgid = B->gid;
	attr.grh.sgid_index = 1;
	attr.grh.hop_limit = 8;
	struct ibv_ah *ah = ibv_create_ah(A->pd, &attr);
	CHECK(ah);
	memcpy(A->buffer, "datagram", 8);
	for (int i = 0; i < 3; i++)
		receive(qps[1], B, i, 1000 * i, 500);
	struct ibv_sge sge = piece(A, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 5,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM,
				 .imm_data = htonl(77)},
			   *bad;
	SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);
	CHECK(bad == &wr);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 1 << 24;
	SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);
	wr.wr.ud.remote_qpn = qps[1]->qp_num;
	wr.wr.ud.remote_qkey = 0x11111111;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	done(A, 5);
	/* With the queue pair's own key. */
	wr.opcode = IBV_WR_SEND;
	wr.wr.ud.remote_qkey = 0x80000000;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	done(A, 5);
	ibv_wr_start(qp);
	qp->wr_id = 6;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htonl(78));
	char text[] = "datagram";
	ibv_wr_set_inline_data(qp, text, 8);
	ibv_wr_set_ud_addr(qp, ah, qps[1]->qp_num, 0x11111111);
	SAME(ibv_wr_complete(qp), 0);
	done(A, 6);
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc = done(B, i);
		SAME(wc.byte_len, 48);
		SAME(wc.src_qp, qps[0]->qp_num);
		SAME(wc.pkey_index, 0);
		SAME(wc.wc_flags, i == 1 ? IBV_WC_GRH : IBV_WC_GRH | IBV_WC_WITH_IMM);
		if (i != 1)
			SAME(ntohl(wc.imm_data), 77 + i / 2);
		CHECK(!memcmp(B->buffer + 1000 * i + 40, "datagram", 8));
	}
	/* Nowhere, in a batch. */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	SAME(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, NULL, 1, 2);
	SAME(ibv_wr_complete(qp), EINVAL);
	SAME(ibv_destroy_ah(ah), 0);
	end_pair(qps);
	puts("datagrams");
}

/* Posts a write of 8 bytes under a key, and says how it ended. */
static enum ibv_wc_status write_under(struct ibv_qp *qp, uint32_t rkey, uint64_t to)
{
	struct ibv_sge sge = piece(B, 0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	SAME(ibv_post_send(qp, &wr, &bad), 0);
	return take(B).status;
}

static void windows(void)
{
	struct ibv_qp *qps[2];
	struct ibv_qp_ex *qp;
	make_pair(qps, IBV_QPT_RC, EVERY_OPERATION);
	CHECK(qp = ibv_qp_to_qp_ex(qps[0]));
	struct ibv_mw *one = ibv_alloc_mw(A->pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(A->pd, IBV_MW_TYPE_2);
	CHECK(one && two);
	struct ibv_mw_bind bind = {.wr_id = 9, .send_flags = IBV_SEND_SIGNALED};
	bind.bind_info = (struct ibv_mw_bind_info){
		.mr = A->mr, .addr = address(A->buffer + 64), .length = 8, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	/* Type 1: the key changes with each bind, and what is posted says which it is. */
	for (int i = 0; i < 300; i++) {
		uint32_t before = one->rkey;
		SAME(ibv_bind_mw(qps[0], one, &bind), 0);
		SAME(one->rkey, ibv_inc_rkey(before));
		SAME(done(A, 9).opcode, IBV_WC_BIND_MW);
		SAME(write_under(qps[1], one->rkey, address(A->buffer + 64)), IBV_WC_SUCCESS);
	}
	struct ibv_mw_bind wrong = bind;
	wrong.bind_info.mr = NULL;
	uint32_t key = one->rkey;
	SAME(ibv_bind_mw(qps[0], one, &wrong), EINVAL);
	wrong = bind;
	wrong.bind_info.mw_access_flags = 1 << 15;
	SAME(ibv_bind_mw(qps[0], one, &wrong), EINVAL);
	SAME(one->rkey, key);
	/* Unbound by a length of 0. */
	struct ibv_mw_bind nothing = {.wr_id = 9, .send_flags = IBV_SEND_SIGNALED};
	SAME(ibv_bind_mw(qps[0], one, &nothing), 0);
	SAME(done(A, 9).opcode, IBV_WC_BIND_MW);

	/* Type 2: by a batch, with a key of the program's choice; taken back on the own side. */
	key = ibv_inc_rkey(ibv_inc_rkey(two->rkey));
	ibv_wr_start(qp);
	qp->wr_id = 10;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(qp, two, key, &bind.bind_info);
	SAME(ibv_wr_complete(qp), 0);
	SAME(done(A, 10).opcode, IBV_WC_BIND_MW);
	SAME(write_under(qps[1], key, address(A->buffer + 64)), IBV_WC_SUCCESS);
	ibv_wr_start(qp);
	qp->wr_id = 11;
	ibv_wr_local_inv(qp, key);
	SAME(ibv_wr_complete(qp), 0);
	SAME(done(A, 11).opcode, IBV_WC_LOCAL_INV);
	/* By a list; taken back by the peer. */
	key = ibv_inc_rkey(key);
	struct ibv_send_wr wr = {.wr_id = 12, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.bind_mw.mw = one;
	wr.bind_mw.rkey = key;
	wr.bind_mw.bind_info = bind.bind_info;
	SAME(ibv_post_send(qps[0], &wr, &bad), EINVAL);
	wr.bind_mw.mw = two;
	SAME(ibv_post_send(qps[0], &wr, &bad), 0);
	SAME(done(A, 12).opcode, IBV_WC_BIND_MW);
	SAME(write_under(qps[1], key, address(A->buffer + 64)), IBV_WC_SUCCESS);
	receive(qps[0], A, 13, 0, 8);
	wr = (struct ibv_send_wr){.wr_id = 14, .opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SIGNALED};
	wr.invalidate_rkey = key;
	SAME(ibv_post_send(qps[1], &wr, &bad), 0);
	done(B, 14);
	start(A);
	SAME(A->cq->wr_id, 13);
	SAME(ibv_wc_read_wc_flags(A->cq), IBV_WC_WITH_INV);
	SAME(ibv_wc_read_invalidated_rkey(A->cq), key);
	ibv_end_poll(A->cq);
	SAME(write_under(qps[1], key, address(A->buffer + 64)), IBV_WC_REM_ACCESS_ERR);
	/* The queue pair at the other end has failed, too: it is of no use any more. */
	SAME(ibv_dealloc_mw(one), 0);
	SAME(ibv_dealloc_mw(two), 0);
	end_pair(qps);
	puts("windows");
}

/* Many at once: lists and batches on one queue pair, two ways to take what completes. */
enum { THREADS = 4, EACH = 2000 };

static struct ibv_qp *shared;
static int received;
static uint64_t sum;

static void *post_many(void *argument)
{
	uintptr_t thread = (uintptr_t)argument;
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(shared);
	struct ibv_sge sge = piece(A, 8 * thread, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	wr.wr.rdma.remote_addr = address(B->buffer + 8 * thread);
	wr.wr.rdma.rkey = B->mr->rkey;
	for (int i = 0; i < EACH; i++) {
		uint64_t id = EACH * thread + i;
		int error;
		do {
			if (thread % 2) {
				wr.wr_id = id;
				error = ibv_post_send(shared, &wr, &bad);
			} else {
				ibv_wr_start(qp);
				qp->wr_id = id;
				qp->wr_flags = IBV_SEND_SIGNALED;
				ibv_wr_rdma_write(qp, B->mr->rkey, address(B->buffer + 8 * thread));
				ibv_wr_set_sge(qp, A->mr->lkey, sge.addr, 8);
				error = ibv_wr_complete(qp);
			}
			if (error) {
				SAME(error, ENOMEM);
				let_others();
			}
		} while (error);
	}
	return NULL;
}

static void *poll_many(void *argument)
{
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_wc wcs[3];
	time_t end = now() + PATIENCE;
	while (__atomic_load_n(&received, __ATOMIC_RELAXED) < THREADS * EACH) {
		CHECK(now() <= end);
		int count = 0;
		uint64_t ids = 0;
		if (argument) {
			count = ibv_poll_cq(ibv_cq_ex_to_cq(A->cq), 3, wcs);
			CHECK(count >= 0);
			for (int i = 0; i < count; i++) {
				SAME(wcs[i].status, IBV_WC_SUCCESS);
				ids += wcs[i].wr_id;
			}
		} else if (!ibv_start_poll(A->cq, &attr)) {
			do {
				SAME(A->cq->status, IBV_WC_SUCCESS);
				ids += A->cq->wr_id;
				count++;
			} while (!ibv_next_poll(A->cq));
			ibv_end_poll(A->cq);
		}
		__atomic_fetch_add(&sum, ids, __ATOMIC_RELAXED);
		__atomic_fetch_add(&received, count, __ATOMIC_RELAXED);
		if (!count)
			let_others();
	}
	return NULL;
}

static void threads(void)
{
	struct ibv_qp *qps[2];
	make_pair(qps, IBV_QPT_RC, EVERY_OPERATION);
	shared = qps[0];
	pthread_t all[THREADS + 3];
	for (uintptr_t i = 0; i < THREADS; i++)
		SAME(pthread_create(&all[i], NULL, post_many, (void *)i), 0);
	for (uintptr_t i = 0; i < 3; i++)
		SAME(pthread_create(&all[THREADS + i], NULL, poll_many, (void *)(i % 2)), 0);
	for (int i = 0; i < THREADS + 3; i++)
		pthread_join(all[i], NULL);
	uint64_t total = (uint64_t)THREADS * EACH;
	SAME(received, total);
	SAME(sum, total * (total - 1) / 2);
	end_pair(qps);
	puts("threads");
}

static void xrc(void)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(B->context, &domain);
	CHECK(xrcd);
	struct ibv_srq_init_attr_ex srq_init = {
		.attr = {.max_wr = DEPTH, .max_sge = SGES},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = xrcd,
		.cq = ibv_cq_ex_to_cq(B->cq),
		.pd = B->pd,
	};
	struct ibv_srq *srqs[2];
	uint32_t numbers[2];
	for (int i = 0; i < 2; i++) {
		CHECK(srqs[i] = ibv_create_srq_ex(B->context, &srq_init));
		SAME(ibv_get_srq_num(srqs[i], &numbers[i]), 0);
	}
	struct ibv_qp_init_attr_ex target_init = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
	struct ibv_qp *target = ibv_create_qp_ex(B->context, &target_init);
	CHECK(target);
	struct ibv_qp *sender = make_qp(A, IBV_QPT_XRC_SEND, EVERY_OPERATION);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(sender);
	bring_up(target, sender->qp_num, &A->gid, 0);
	bring_up(sender, target->qp_num, &B->gid, 1);
	struct ibv_recv_wr no_queue = {.wr_id = 1}, *bad_receive;
	SAME(ibv_post_recv(sender, &no_queue, &bad_receive), EINVAL);
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sges[2] = {piece(B, 100 * i, 3), piece(B, 100 * i + 50, 50)};
		struct ibv_recv_wr receives[2] = {{.wr_id = 10 + i, .next = &receives[1], .sg_list = sges, .num_sge = 2},
						  {.wr_id = 20 + i, .sg_list = sges, .num_sge = 2}};
		SAME(ibv_post_srq_recv(srqs[i], receives, &bad_receive), 0);
	}
	memcpy(A->buffer, "extended", 8);
	struct ibv_sge sge = piece(A, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	wr.qp_type.xrc.remote_srqn = numbers[1];
	SAME(ibv_post_send(sender, &wr, &bad), 0);
	done(A, 1);
	done(B, 11);
	CHECK(!memcmp(B->buffer + 100, "ext", 3) && !memcmp(B->buffer + 150, "ended", 5));
	ibv_wr_start(qp);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_xrc_srqn(qp, numbers[0]);
	ibv_wr_set_sge(qp, A->mr->lkey, address(A->buffer), 8);
	SAME(ibv_wr_complete(qp), 0);
	done(A, 2);
	done(B, 10);
	/* Keys are those of the domain of the queue that is named, also where it receives nothing. */
	uint64_t *cell = (uint64_t *)(B->buffer + 4096), *answer = (uint64_t *)(A->buffer + 4096);
	*cell = 5;
	sge = piece(A, 4096, 8);
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = address(cell);
	wr.wr.atomic.rkey = B->mr->rkey;
	wr.wr.atomic.compare_add = 6;
	SAME(ibv_post_send(sender, &wr, &bad), 0);
	SAME(done(A, 1).opcode, IBV_WC_FETCH_ADD);
	SAME(*answer, 5);
	ibv_wr_start(qp);
	qp->wr_id = 3;
	ibv_wr_atomic_cmp_swp(qp, B->mr->rkey, address(cell), 11, 12);
	ibv_wr_set_xrc_srqn(qp, numbers[0]);
	ibv_wr_set_sge(qp, A->mr->lkey, address(answer), 8);
	SAME(ibv_wr_complete(qp), 0);
	SAME(done(A, 3).opcode, IBV_WC_COMP_SWAP);
	SAME(*answer, 11);
	SAME(*cell, 12);
	/* A list in which one is refused. */
	struct ibv_sge many[SGES * 16];
	for (size_t i = 0; i < sizeof many / sizeof *many; i++)
		many[i] = piece(B, 0, 1);
	struct ibv_recv_wr receives[3] = {{.wr_id = 30, .next = &receives[1]},
					  {.wr_id = 31, .next = &receives[2], .sg_list = many, .num_sge = SGES * 16},
					  {.wr_id = 32}};
	SAME(ibv_post_srq_recv(srqs[0], receives, &bad_receive), EINVAL);
	CHECK(bad_receive == &receives[1]);
	SAME(ibv_destroy_qp(sender), 0);
	SAME(ibv_destroy_qp(target), 0);
	for (int i = 0; i < 2; i++)
		SAME(ibv_destroy_srq(srqs[i]), 0);
	SAME(ibv_close_xrcd(xrcd), 0);
	quiet(A);
	quiet(B);
	puts("xrc");
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_both(sides);
	lists();
	operations(IBV_QPT_RC);
	operations(IBV_QPT_UC);
	batches(IBV_QPT_RC);
	batches(IBV_QPT_UC);
	mistakes();
	datagrams();
	windows();
	threads();
	xrc();
	close_side(A);
	close_side(B);
	puts("all of it");
	return 0;
}

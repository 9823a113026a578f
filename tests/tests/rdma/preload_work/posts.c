/* Posts that fail by rules: those of the test that starts the program. */
#include "common.h"

static struct side sides[2];

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	*bad = NULL;
	return ibv_post_send(qp, wr, bad);
}

int main(void)
{
	struct side *a = &sides[0], *b = &sides[1];
	open_both(sides);
	struct ibv_qp *qps[2];
	for (int i = 0; i < 2; i++)
		qps[i] = make_qp(&sides[i], IBV_QPT_RC, 0);
	connect_both(sides, qps);
	/* Adapter a, sends, ENOMEM, --skip 2 --count 1: the third of all, here in the middle of a list of four. */
	struct ibv_sge from = piece(a, 0, 8);
	struct ibv_send_wr wrs[4], *bad;
	for (int i = 0; i < 4; i++) {
		wrs[i] = (struct ibv_send_wr){
			.wr_id = i,
			.sg_list = &from,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED | (i & 1 ? IBV_SEND_INLINE : 0),
			.next = i < 3 ? &wrs[i + 1] : NULL,
		};
		wrs[i].wr.rdma.remote_addr = address(b->buffer + 8 * i);
		wrs[i].wr.rdma.rkey = b->mr->rkey;
	}
	memset(a->buffer, 0x5a, 8);
	SAME(post(qps[0], wrs, &bad), ENOMEM);
	CHECK(bad == &wrs[2]);
	done(a, 0);
	done(a, 1);
	SAME(post(qps[0], bad, &bad), 0);
	done(a, 2);
	done(a, 3);
	for (int i = 0; i < 32; i++)
		SAME(b->buffer[i], 0x5a);
	/* Adapter b, receives, EIO, --skip 1: all but the first. */
	struct ibv_sge to = piece(b, 0, 64);
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad_receive = NULL;
	SAME(ibv_post_recv(qps[1], &receive, &bad_receive), 0);
	for (int i = 0; i < 2; i++) {
		bad_receive = NULL;
		SAME(ibv_post_recv(qps[1], &receive, &bad_receive), EIO);
		CHECK(bad_receive == &receive);
	}
	/* Shared receives are another thing. */
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(b->pd, &init);
	CHECK(srq);
	SAME(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
	SAME(ibv_destroy_srq(srq), 0);
	for (int i = 0; i < 2; i++)
		SAME(ibv_destroy_qp(qps[i]), 0);
	for (int i = 0; i < 2; i++)
		close_side(&sides[i]);
	puts("all of it");
	return 0;
}

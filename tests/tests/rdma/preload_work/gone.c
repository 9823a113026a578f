/* The daemon ends while a program waits: what it has posted is flushed, and it does not wait for ever. */
#include "common.h"

static struct side sides[2];
#define A (&sides[0])
#define B (&sides[1])

/* Posts a send that waits: the peer has no receive. */
static void send_late(struct ibv_qp *qp, uint64_t id, int opcode, uint32_t length, int flags)
{
	struct ibv_sge sge = piece(A, 0, length);
	struct ibv_send_wr wr = {.wr_id = id, .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = flags}, *bad;
	wr.wr.rdma.remote_addr = address(B->buffer);
	wr.wr.rdma.rkey = B->mr->rkey;
	SAME(ibv_post_send(qp, &wr, &bad), 0);
}

static void flushed(struct ibv_wc wc, struct ibv_qp *qp, uint64_t id, int receives)
{
	SAME(wc.status, IBV_WC_WR_FLUSH_ERR);
	SAME(wc.wr_id, id);
	SAME(wc.qp_num, qp->qp_num);
	SAME(wc.opcode & IBV_WC_RECV, receives ? IBV_WC_RECV : 0);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_both(sides);
	struct ibv_qp *qps[2];
	for (int i = 0; i < 2; i++)
		qps[i] = make_qp(&sides[i], IBV_QPT_RC, EVERY_OPERATION);
	connect_both(sides, qps);
	receive(qps[0], A, 1, 0, 64);
	receive(qps[0], A, 2, 0, 64);
	send_late(qps[0], 3, IBV_WR_SEND, 8, IBV_SEND_SIGNALED);
	/* Of several blocks, and one that would complete unseen. */
	send_late(qps[0], 4, IBV_WR_RDMA_WRITE, 100, IBV_SEND_INLINE);
	send_late(qps[0], 5, IBV_WR_RDMA_READ, 8, IBV_SEND_SIGNALED);
	puts("ready");
	flushed(take(A), qps[0], 3, 0);
	struct ibv_wc wcs[2];
	SAME(ibv_poll_cq(ibv_cq_ex_to_cq(A->cq), 2, wcs), 2);
	flushed(wcs[0], qps[0], 4, 0);
	flushed(wcs[1], qps[0], 5, 0);
	struct ibv_poll_cq_attr attr = {0};
	SAME(ibv_start_poll(A->cq, &attr), 0);
	SAME(A->cq->status, IBV_WC_WR_FLUSH_ERR);
	SAME(A->cq->wr_id, 1);
	SAME(ibv_next_poll(A->cq), 0);
	SAME(A->cq->wr_id, 2);
	SAME(ibv_wc_read_qp_num(A->cq), qps[0]->qp_num);
	SAME(ibv_next_poll(A->cq), ENOENT);
	ibv_end_poll(A->cq);
	/* Each has ended once, and then there is nothing, as often as one looks. */
	for (int i = 0; i < 3; i++) {
		quiet(A);
		quiet(B);
		SAME(ibv_start_poll(A->cq, &attr), ENOENT);
		SAME(ibv_start_poll(B->cq, &attr), ENOENT);
	}
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad = NULL;
	SAME(ibv_post_send(qps[0], &wr, &bad), EIO);
	CHECK(bad == &wr);
	struct ibv_recv_wr receive_wr = {.wr_id = 2}, *bad_receive = NULL;
	SAME(ibv_post_recv(qps[0], &receive_wr, &bad_receive), EIO);
	CHECK(bad_receive == &receive_wr);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(qps[0]);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	SAME(ibv_wr_complete(qp), EIO);
	/* What was refused is not flushed, too. */
	quiet(A);
	for (int i = 0; i < 2; i++) {
		SAME(ibv_destroy_qp(qps[i]), 0);
		close_side(&sides[i]);
	}
	puts("all of it");
	return 0;
}

/* The daemon ends while a program waits: it is told so by every call, and does not wait for ever. */
#include "common.h"

static struct side sides[2];
#define A (&sides[0])

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_both(sides);
	struct ibv_qp *qps[2];
	for (int i = 0; i < 2; i++)
		qps[i] = make_qp(&sides[i], IBV_QPT_RC, EVERY_OPERATION);
	connect_both(sides, qps);
	receive(qps[0], A, 1, 0, 64);
	puts("ready");
	time_t end = now() + PATIENCE;
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(ibv_cq_ex_to_cq(A->cq), 1, &wc)) == 0) {
		CHECK(now() <= end);
		let_others();
	}
	SAME(count, -1);
	SAME(errno, ENODEV);
	struct ibv_poll_cq_attr attr = {0};
	SAME(ibv_start_poll(A->cq, &attr), ENODEV);
	/* The latch is free again. */
	SAME(ibv_start_poll(A->cq, &attr), ENODEV);
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
	for (int i = 0; i < 2; i++) {
		SAME(ibv_destroy_qp(qps[i]), 0);
		close_side(&sides[i]);
	}
	puts("all of it");
	return 0;
}

/* Writes from a device to another, one after the other, and says how many were told to have failed: a program to be tested. */
#include "common.h"

int main(int argc, char **argv)
{
	struct side sides[2];
	struct ibv_qp *qps[2];
	int count = argc > 1 ? atoi(argv[1]) : 100, failed = 0;

	open_both(sides);
	for (int i = 0; i < 2; i++)
		qps[i] = make_qp(&sides[i], IBV_QPT_RC, EVERY_OPERATION);
	connect_both(sides, qps);
	for (int i = 0; i < count; i++) {
		struct ibv_sge sge = piece(&sides[0], 0, 3000);
		struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr.rdma.remote_addr = address(sides[1].buffer);
		wr.wr.rdma.rkey = sides[1].mr->rkey;
		SAME(ibv_post_send(qps[0], &wr, &bad), 0);
		failed += take(&sides[0]).status != IBV_WC_SUCCESS;
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
	printf("%d of %d failed\n", failed, count);
	return failed != 0;
}

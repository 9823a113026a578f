/* What the programs of this directory share: a device, checks, and a queue pair that is connected with another of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* GID 1 is RoCE v2, of the adapter's Ethernet address. */
#define GID 1

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			exit(1); \
		} \
	} while (0)

/* A call that gives NULL and sets errno. */
#define REFUSED(call, number) \
	do { \
		errno = 0; \
		CHECK((call) == NULL); \
		CHECK(errno == (number)); \
	} while (0)

static __attribute__((unused)) struct ibv_context *open_device(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count >= 1);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static struct ibv_qp_init_attr plain(enum ibv_qp_type type, struct ibv_cq *cq)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
	};
}

static __attribute__((unused)) struct ibv_qp *make_qp(struct ibv_pd *pd, enum ibv_qp_type type, struct ibv_cq *cq,
						      struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = plain(type, cq);
	attr.srq = srq;
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	CHECK(qp);
	return qp;
}

static __attribute__((unused)) struct ibv_ah_attr address(struct ibv_context *context)
{
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = GID, .hop_limit = 1}};
	CHECK(ibv_query_gid(context, 1, GID, &ah.grh.dgid) == 0);
	return ah;
}

static __attribute__((unused)) int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
}

static __attribute__((unused)) int to_rtr(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 7,
				   .max_dest_rd_atomic = 1, .min_rnr_timer = 12};
	int mask = IBV_QP_STATE;
	if (qp->qp_type != IBV_QPT_UD) {
		attr.ah_attr = address(qp->context);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static __attribute__((unused)) int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 7,
				   .max_rd_atomic = 1};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	if (qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_TIMEOUT;
	return ibv_modify_qp(qp, &attr, mask);
}

/* They may be the same. */
static __attribute__((unused)) void connect_qps(struct ibv_qp *one, struct ibv_qp *other)
{
	CHECK(to_init(one) == 0 && to_rtr(one, other->qp_num) == 0 && to_rts(one) == 0);
	if (one != other)
		CHECK(to_init(other) == 0 && to_rtr(other, one->qp_num) == 0 && to_rts(other) == 0);
}

/* A message of no bytes. */
static __attribute__((unused)) void send_nothing(struct ibv_qp *qp)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static __attribute__((unused)) void receive_nothing(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = {0}, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* Waits for a completion. */
static __attribute__((unused)) struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	return wc;
}

struct subtest {
	const char *name;
	void (*run)(void);
};

/* Runs the test that is named, or all. */
static int run_tests(const struct subtest *tests, int argc, char **argv)
{
	for (; tests->name; tests++) {
		if (argc > 1 && strcmp(argv[1], tests->name))
			continue;
		tests->run();
		printf("ok %s\n", tests->name);
		fflush(stdout);
	}
	return 0;
}

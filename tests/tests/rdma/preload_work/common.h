/* What the programs here have in common: two devices, queues on them, and checks that say where they failed. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define FAIL(...) \
	do { \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__); \
		fputc('\n', stderr); \
		exit(1); \
	} while (0)

#define CHECK(what) \
	do { \
		if (!(what)) \
			FAIL("%s (errno %d)", #what, errno); \
	} while (0)

/* Two numbers that must be the same. */
#define SAME(is, wanted) \
	do { \
		long long is_ = (long long)(is), wanted_ = (long long)(wanted); \
		if (is_ != wanted_) \
			FAIL("%s is %lld (%#llx), not %lld", #is, is_, is_, wanted_); \
	} while (0)

/* After so long something hangs; never a statement about speed. */
enum { PATIENCE = 600 };

enum { LEN = 1 << 16, DEPTH = 64, INLINE = 256, SGES = 4 };

#define EVERY_RIGHT \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_MW_BIND)

#define EVERY_OPERATION \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | \
	 IBV_QP_EX_WITH_SEND_WITH_INV)

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_mr *mr;
	uint8_t *buffer;
	union ibv_gid gid;
};

static inline uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static inline void open_side(struct side *side, struct ibv_device *device)
{
	CHECK(side->context = ibv_open_device(device));
	CHECK(side->pd = ibv_alloc_pd(side->context));
	/* A send queue with room for DEPTH of the longest requests takes eight times as many of the shortest. */
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16 * DEPTH,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	CHECK(side->cq = ibv_create_cq_ex(side->context, &init));
	side->buffer = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(side->buffer != MAP_FAILED);
	CHECK(side->mr = ibv_reg_mr(side->pd, side->buffer, LEN, EVERY_RIGHT));
	SAME(ibv_query_gid(side->context, 1, 1, &side->gid), 0);
}

/* The devices of ours are the first ones. */
static inline void open_both(struct side sides[2])
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count >= 2);
	for (int i = 0; i < 2; i++)
		open_side(&sides[i], list[i]);
	ibv_free_device_list(list);
}

static inline void close_side(struct side *side)
{
	SAME(ibv_dereg_mr(side->mr), 0);
	SAME(ibv_destroy_cq(ibv_cq_ex_to_cq(side->cq)), 0);
	SAME(ibv_dealloc_pd(side->pd), 0);
	SAME(ibv_close_device(side->context), 0);
	munmap(side->buffer, LEN);
}

static inline struct ibv_qp_init_attr_ex qp_init(struct side *side, enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(side->cq),
		.recv_cq = ibv_cq_ex_to_cq(side->cq),
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = SGES,
			.max_recv_sge = SGES,
			.max_inline_data = INLINE,
		},
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = side->pd,
		.send_ops_flags = operations,
	};
	return init;
}

static inline struct ibv_qp *make_qp(struct side *side, enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = qp_init(side, type, operations);
	struct ibv_qp *qp = ibv_create_qp_ex(side->context, &init);
	CHECK(qp);
	CHECK(init.cap.max_inline_data >= INLINE && init.cap.max_send_sge >= SGES);
	return qp;
}

/* To RTS, or of those that only receive to RTR. */
static inline void bring_up(struct ibv_qp *qp, uint32_t number, const union ibv_gid *gid, int sends)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111};
	int ud = qp->qp_type == IBV_QPT_UD;
	int reliable = !ud && qp->qp_type != IBV_QPT_UC;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (reliable)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	SAME(ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	     0);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = number;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 1;
	attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
	attr.ah_attr.grh.dgid = *gid;
	attr.ah_attr.grh.sgid_index = 1;
	attr.ah_attr.grh.hop_limit = 8;
	int mask = IBV_QP_STATE;
	if (!ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (reliable && qp->qp_type != IBV_QPT_XRC_SEND)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	SAME(ibv_modify_qp(qp, &attr, mask), 0);
	if (!sends)
		return;
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 20;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (reliable)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	SAME(ibv_modify_qp(qp, &attr, mask), 0);
}

static inline void connect_both(struct side sides[2], struct ibv_qp *qps[2])
{
	for (int i = 0; i < 2; i++)
		bring_up(qps[i], qps[1 - i]->qp_num, &sides[1 - i].gid, 1);
}

static inline struct ibv_sge piece(struct side *side, size_t offset, uint32_t length)
{
	struct ibv_sge sge = {.addr = address(side->buffer + offset), .length = length, .lkey = side->mr->lkey};
	return sge;
}

static inline time_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/*
 * Lets others run. On a busy machine sched_yield() is not enough: threads that yield to each other keep the one that they
 * wait for from its CPU.
 */
static inline void let_others(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* Takes one completion, of any status. */
static inline struct ibv_wc take(struct side *side)
{
	struct ibv_wc wc;
	time_t end = now() + PATIENCE;
	int count;
	while (!(count = ibv_poll_cq(ibv_cq_ex_to_cq(side->cq), 1, &wc))) {
		if (now() > end)
			FAIL("no completion");
		let_others();
	}
	SAME(count, 1);
	return wc;
}

static inline struct ibv_wc done(struct side *side, uint64_t id)
{
	struct ibv_wc wc = take(side);
	if (wc.status != IBV_WC_SUCCESS)
		FAIL("%s of request %lld", ibv_wc_status_str(wc.status), (long long)wc.wr_id);
	SAME(wc.wr_id, id);
	return wc;
}

static inline void quiet(struct side *side)
{
	struct ibv_wc wc;
	SAME(ibv_poll_cq(ibv_cq_ex_to_cq(side->cq), 1, &wc), 0);
}

static inline void receive(struct ibv_qp *qp, struct side *side, uint64_t id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = piece(side, offset, length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	SAME(ibv_post_recv(qp, &wr, &bad), 0);
}

#endif

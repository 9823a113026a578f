/* Work requests, their completions, and events; see rxe_peer.c. */
#include "rxe_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ITEMS 4096 /* completions that one poll takes */

/* ---- time ---- */

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Leaves the processor to the kernel's half of rdma_rxe. */
static void rest(void)
{
	struct timespec t = { 0, 100000 };

	nanosleep(&t, NULL);
}

/* ---- work requests ---- */

void do_post_recv(void)
{
	struct qp *q = qp_arg();
	struct places p;
	uint64_t id = number("wr_id", 0);

	if (!places_arg(&p))
		return;
	for (uint64_t j = 0; j < p.count; j++) {
		struct ibv_sge sge = { (uintptr_t)p.mr->mem + p.off + j * p.step, (uint32_t)p.len, p.mr->mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = id + j, .sg_list = &sge, .num_sge = p.len ? 1 : 0 }, *bad;
		int error = ibv_post_recv(q->qp, &wr, &bad);

		if (error)
			return fail("ibv_post_recv", error, "posted=%llu", (unsigned long long)j);
	}
	say("ok posted=%llu", (unsigned long long)p.count);
}

/* What post_send and burst send. */
struct plan {
	struct qp *q;
	struct places p;
	struct ibv_send_wr wr;
	struct ibv_sge sge[16];
	uint64_t rstep;
};

static bool sge_arg(struct plan *plan)
{
	const char *c = text_arg("sge", NULL);
	int n = 0;

	plan->wr.sg_list = plan->sge;
	if (!c) {
		plan->sge[0].lkey = plan->p.mr->mr->lkey;
		plan->sge[0].length = (uint32_t)plan->p.len;
		plan->wr.num_sge = plan->p.len ? 1 : 0;
		return true;
	}
	while (*c && n < 16) {
		unsigned long long off, len;
		unsigned int i;
		int used;

		if (sscanf(c, "%u.%llu.%llu%n", &i, &off, &len, &used) != 3 || i >= MANY || !mrs[i].mr ||
		    off > mrs[i].len || len > mrs[i].len - off) {
			bad_arg("sge");
			return false;
		}
		plan->sge[n].addr = (uintptr_t)mrs[i].mem + off;
		plan->sge[n].length = (uint32_t)len;
		plan->sge[n++].lkey = mrs[i].mr->lkey;
		c += used;
		c += *c == '+';
	}
	plan->wr.num_sge = n;
	return true;
}

static bool plan_arg(struct plan *plan)
{
	static const unsigned int flags[] = { IBV_SEND_INLINE, IBV_SEND_SOLICITED, IBV_SEND_FENCE, 1u << 30 };
	static const struct {
		const char *name;
		enum ibv_wr_opcode op;
	} ops[] = {
		{ "send", IBV_WR_SEND },		{ "send_imm", IBV_WR_SEND_WITH_IMM },
		{ "send_inv", IBV_WR_SEND_WITH_INV },	{ "write", IBV_WR_RDMA_WRITE },
		{ "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM }, { "read", IBV_WR_RDMA_READ },
		{ "cas", IBV_WR_ATOMIC_CMP_AND_SWP },	{ "faa", IBV_WR_ATOMIC_FETCH_AND_ADD },
		{ "bind_mw", IBV_WR_BIND_MW },		{ "local_inv", IBV_WR_LOCAL_INV },
	};
	const char *op = text_arg("op", "");
	struct ibv_send_wr *wr = &plan->wr;
	unsigned int f = letters_arg("flags", "", "isfu", flags);
	size_t k;

	memset(plan, 0, sizeof(*plan));
	plan->q = qp_arg();
	for (k = 0; k < sizeof(ops) / sizeof(ops[0]) && strcmp(ops[k].name, op) != 0; k++)
		;
	if (k == sizeof(ops) / sizeof(ops[0])) {
		bad_arg("op");
		return false;
	}
	if (!places_arg(&plan->p) || !sge_arg(plan))
		return false;
	wr->opcode = ops[k].op;
	wr->wr_id = number("wr_id", 0);
	wr->send_flags = (f & ~(1u << 30)) | (f & (1u << 30) ? 0 : IBV_SEND_SIGNALED);
	plan->rstep = number("rstep", plan->p.step);
	if (wr->opcode == IBV_WR_SEND_WITH_INV)
		wr->invalidate_rkey = (uint32_t)needed("inv");
	else if (wr->opcode == IBV_WR_LOCAL_INV)
		wr->invalidate_rkey = (uint32_t)needed("rkey");
	else
		wr->imm_data = htonl((uint32_t)number("imm", 0));
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		bool cas = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

		wr->wr.atomic.remote_addr = needed("raddr");
		wr->wr.atomic.rkey = (uint32_t)needed("rkey");
		wr->wr.atomic.compare_add = needed(cas ? "compare" : "add");
		wr->wr.atomic.swap = cas ? needed("swap") : 0;
	} else if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
		   wr->opcode == IBV_WR_RDMA_READ) {
		wr->wr.rdma.remote_addr = needed("raddr");
		wr->wr.rdma.rkey = (uint32_t)needed("rkey");
	} else if (wr->opcode == IBV_WR_BIND_MW) {
		uint64_t i = needed("mw");

		if (i >= MANY || !mws[i]) {
			bad_arg("mw");
			return false;
		}
		wr->num_sge = 0;
		wr->bind_mw.mw = mws[i];
		wr->bind_mw.rkey = ibv_inc_rkey(mws[i]->rkey);
		wr->bind_mw.bind_info.mr = plan->p.mr->mr;
		wr->bind_mw.bind_info.addr = (uintptr_t)plan->p.mr->mem + plan->p.off;
		wr->bind_mw.bind_info.length = plan->p.len;
		wr->bind_mw.bind_info.mw_access_flags = access_arg("wra");
	} else if (plan->q && plan->q->type == IBV_QPT_UD) {
		uint64_t i = needed("ah");

		if (i >= MANY || !ahs[i])
			bad_arg("ah");
		else
			wr->wr.ud.ah = ahs[i];
		wr->wr.ud.remote_qpn = (uint32_t)needed("rqpn");
		wr->wr.ud.remote_qkey = (uint32_t)number("rqkey", 0x11111111);
	}
	return !bad_args;
}

/* Posts request j of the plan. */
static int post_one(const struct plan *plan, uint64_t j)
{
	struct ibv_send_wr wr = plan->wr, *bad;
	struct ibv_sge sge = plan->sge[0];
	bool atomic = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	wr.wr_id += j;
	if (!text_arg("sge", NULL)) {
		sge.addr = (uintptr_t)plan->p.mr->mem + plan->p.off + j * plan->p.step;
		wr.sg_list = &sge;
	}
	if (atomic)
		wr.wr.atomic.remote_addr += j * plan->rstep;
	else if (wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr.opcode == IBV_WR_RDMA_READ)
		wr.wr.rdma.remote_addr += j * plan->rstep;
	return ibv_post_send(plan->q->qp, &wr, &bad);
}

void do_post_send(void)
{
	struct plan plan;

	if (!plan_arg(&plan))
		return;
	for (uint64_t j = 0; j < plan.p.count; j++) {
		int error = post_one(&plan, j);

		if (error)
			return fail("ibv_post_send", error, "posted=%llu", (unsigned long long)j);
	}
	say("ok posted=%llu", (unsigned long long)plan.p.count);
	if (plan.wr.opcode == IBV_WR_BIND_MW) {
		plan.wr.bind_mw.mw->rkey = plan.wr.bind_mw.rkey;
		say(" rkey=0x%x", plan.wr.bind_mw.rkey);
	}
}

void do_burst(void)
{
	struct plan plan;
	uint64_t window, end, posted = 0, done = 0, bad = 0, start = now_us();
	int status = IBV_WC_SUCCESS;

	if (!plan_arg(&plan))
		return;
	window = number("window", 16);
	if (window > plan.q->sq)
		window = plan.q->sq;
	end = start + 1000 * number("timeout", 60000);
	if (bad_args)
		return;
	while (done < plan.p.count && !bad && now_us() < end) {
		struct ibv_wc wc[16];
		int n, error;

		while (posted < plan.p.count && posted - done < window) {
			error = post_one(&plan, posted);
			if (error)
				return fail("ibv_post_send", error, "posted=%llu", (unsigned long long)posted);
			posted++;
		}
		n = ibv_poll_cq(plan.q->send, 16, wc);
		if (n < 0)
			return fail("ibv_poll_cq", -n, "%s", "");
		if (n == 0)
			rest();
		for (int i = 0; i < n; i++) {
			done++;
			if (wc[i].status != IBV_WC_SUCCESS && !bad++)
				status = wc[i].status;
		}
	}
	say("ok done=%llu bad=%llu status=%d us=%llu", (unsigned long long)done, (unsigned long long)bad, status,
	    (unsigned long long)(now_us() - start));
}

/* ---- completions and events ---- */

static struct ibv_cq *cq_arg(const struct qp *q, const char *otherwise)
{
	const char *name = text_arg("cq", otherwise);

	if (q && strcmp(name, "send") == 0)
		return q->send;
	if (q && strcmp(name, "recv") == 0)
		return q->recv;
	bad_arg("cq");
	return NULL;
}

void do_poll(void)
{
	static struct ibv_wc list[ITEMS];
	struct ibv_cq *cq = cq_arg(qp_arg(), "send");
	uint64_t wanted = number("n", 1), end = now_us() + 1000 * number("timeout", 60000);
	int n = 0, good = 0, status = IBV_WC_SUCCESS;
	uint64_t bytes = 0;

	if (wanted > ITEMS)
		bad_arg("n");
	if (bad_args)
		return;
	for (;;) {
		int more = ibv_poll_cq(cq, (int)wanted - n, list + n);

		if (more < 0)
			return fail("ibv_poll_cq", -more, "%s", "");
		n += more;
		if (n == (int)wanted || now_us() >= end)
			break;
		if (more == 0)
			rest();
	}
	for (int i = 0; i < n; i++) {
		if (list[i].status == IBV_WC_SUCCESS) {
			good++;
			bytes += list[i].byte_len;
		} else if (status == IBV_WC_SUCCESS) {
			status = list[i].status;
		}
	}
	say("ok n=%d", n);
	if (number("brief", 0)) {
		say(" good=%d bytes=%llu status=%d", good, (unsigned long long)bytes, status);
		return;
	}
	for (int i = 0; i < n; i++) {
		const struct ibv_wc *wc = &list[i];
		bool inv = wc->wc_flags & IBV_WC_WITH_INV;

		say(" wc=%llu,%d,%d,%u,0x%x,%s%s%s%s,%u", (unsigned long long)wc->wr_id, wc->status, wc->opcode,
		    wc->byte_len, inv ? wc->invalidated_rkey : ntohl(wc->imm_data), wc->wc_flags & IBV_WC_GRH ? "g" : "",
		    wc->wc_flags & IBV_WC_WITH_IMM ? "i" : "", inv ? "v" : "", wc->wc_flags ? "" : "-", wc->src_qp);
	}
}

void do_arm(void)
{
	struct ibv_cq *cq = cq_arg(qp_arg(), "recv");
	int error;

	if (bad_args)
		return;
	error = ibv_req_notify_cq(cq, number("solicited", 0) != 0);
	if (error)
		return fail("ibv_req_notify_cq", error, "%s", "");
	say("ok");
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) > 0;
}

void do_event(void)
{
	struct ibv_cq *cq;
	void *owner;

	if (!readable(channel->fd, (int)number("timeout", 0))) {
		say("ok n=0");
		return;
	}
	if (ibv_get_cq_event(channel, &cq, &owner))
		return fail("ibv_get_cq_event", errno, "%s", "");
	ibv_ack_cq_events(cq, 1);
	say("ok n=1 qp=%d cq=%s", (int)((struct qp *)owner - qps), cq == ((struct qp *)owner)->send ? "send" : "recv");
}

void do_async(void)
{
	int list[64][2], n = 0, timeout = (int)number("timeout", 0);

	while (n < 64 && readable(context->async_fd, n ? 0 : timeout)) {
		struct ibv_async_event event;

		if (ibv_get_async_event(context, &event))
			return fail("ibv_get_async_event", errno, "%s", "");
		list[n][0] = event.event_type;
		list[n][1] = -1;
		switch (event.event_type) {
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_COMM_EST:
		case IBV_EVENT_SQ_DRAINED:
		case IBV_EVENT_QP_LAST_WQE_REACHED:
			for (int i = 0; i < MANY; i++)
				if (qps[i].qp && qps[i].qp == event.element.qp)
					list[n][1] = i;
			break;
		default:
			break;
		}
		ibv_ack_async_event(&event);
		n++;
	}
	say("ok n=%d", n);
	for (int i = 0; i < n; i++)
		say(" event=%d,%d", list[i][0], list[i][1]);
}

/*
 * A verbs program that is driven line by line: the Linux kernel's side of interoperation tests.
 *
 * It runs in a guest of the lab on the kernel's Soft-RoCE (rdma_rxe) and knows libibverbs only. Each line of
 * standard input is a command, `verb key=value key=value ...`; each command is answered by exactly one line,
 *
 *     ok [key=value ...]
 *     error CALL ERRNO [TEXT]
 *
 * and nothing but `quit` or the end of the input ends the program. Numbers are decimal or 0x hexadecimal.
 * Objects are named by small numbers that the program gives: qp=0, mr=0, ah=0, mw=0.
 *
 *   open dev=rxe0                        ok dev= mtu= state= max_rd_atomic=
 *   gids                                 ok n= gid=INDEX,TYPE,ADDRESS ...        TYPE: ib, v1, v2
 *   mr len= [access=]                    ok mr= addr= lkey= rkey=
 *       access: any of l (local write), w (remote write), r (remote read), a (remote atomic), b (bind windows);
 *       `lwra` unless given, `-` for none
 *   fill|check mr= seed= [off=] [len=] [count=] [step=]
 *       the pattern below, into `count` places `step` bytes apart, with seed, seed + 1, ...
 *       check answers                    ok same=1     or     ok same=0 item= at= want= got=
 *   zero mr= [off=] [len=]               ok
 *   peek mr= off=                        ok value=                               64 bits, little-endian
 *   poke mr= off= value=                 ok
 *   hex mr= off= len=                    ok hex=
 *   qp type=rc|uc|ud [sq=] [rq=] [sge=] [inline=] [cqe=]       ok qp= qpn= inline=
 *   modify qp= state=init [access=] [qkey=]
 *   modify qp= state=rtr dest_qpn= dgid= [sgid=] [mtu=] [rq_psn=] [max_dest_rd_atomic=] [min_rnr_timer=]
 *          [hop=] [tclass=] [flow=]                            ok      (ud: nothing but the state)
 *   modify qp= state=rts [sq_psn=] [timeout=] [retry_cnt=] [rnr_retry=] [max_rd_atomic=]
 *   modify qp= state=reset|sqd|err
 *   query qp=                            ok state= sq_psn= rq_psn= mtu= dest_qpn= draining=
 *   ah dgid= [sgid=] [hop=] [tclass=] [flow=]                  ok ah=
 *   mw [type=1|2]                        ok mw= rkey=
 *   post_recv qp= mr= [off=] [len=] [count=] [step=] [wr_id=]  ok posted=
 *   post_send qp= op= mr= [off=] [len=] [count=] [step=] [raddr= rkey= rstep=] [imm=] [inv=] [compare= swap= add=]
 *          [ah= rqpn= rqkey=] [flags=] [wr_id=] [sge=MR.OFF.LEN+MR.OFF.LEN...] [mw= access=]
 *                                        ok posted=     (bind_mw: rkey= of the bound window)
 *       op: send send_imm send_inv write write_imm read cas faa bind_mw local_inv
 *       flags: any of i (inline), s (solicited), f (fence), u (unsignaled)
 *       bind_mw: window `mw` on `len` bytes at `off` of `mr`; local_inv: key `rkey`
 *   burst (as post_send) [window=] [timeout=]                  ok done= bad= status= us=
 *       posts `count` requests, at most `window` at a time, and takes their completions from the send CQ;
 *       stops at the first that is bad
 *   poll qp= [cq=send|recv] [n=] [timeout=] [brief=1]
 *                                        ok n= wc=WR_ID,STATUS,OPCODE,LEN,IMM,FLAGS,SRC_QP ...
 *       waits for n completions or `timeout` ms. STATUS and OPCODE are libibverbs' numbers, FLAGS any of g (GRH),
 *       i (immediate), v (invalidated key), or -. IMM is the immediate in host order or the key, in hexadecimal.
 *       brief:                           ok n= good= bytes= status=     (status of the first that is not good)
 *   arm qp= [cq=recv] [solicited=1]      ok
 *   event [timeout=]                     ok n=0     or     ok n=1 qp= cq=
 *   async [timeout=]                     ok n= event=NUMBER,QP ...               QP -1: not of a QP
 *   counters                             ok NAME=VALUE ...                       rdma_rxe's hw_counters
 *   sh COMMAND...                        ok exit=                                output is thrown away
 *   destroy qp=|mr=|ah=|mw=              ok
 *   quit                                 ok
 *
 * The pattern of a seed is the output of splitmix64 as bytes: with 64-bit arithmetic that wraps around, byte i is
 * byte i mod 8, least significant first, of f(seed + (i div 8 + 1) * 0x9e3779b97f4a7c15), where f(z) is
 *
 *     z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;  z ^ (z >> 31)
 *
 * and i counts from the first byte that is filled, not from the start of the memory region.
 */
#include "rxe_peer.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct ibv_context *context;
struct ibv_pd *pd;
struct ibv_comp_channel *channel;
struct qp qps[MANY];
struct mr mrs[MANY];
struct ibv_ah *ahs[MANY];
struct ibv_mw *mws[MANY];

static bool free_place(void *const *first, size_t stride, int *at)
{
	for (*at = 0; *at < MANY; (*at)++)
		if (!*(void *const *)((const char *)first + stride * (size_t)*at))
			return true;
	fail("too_many", ENOSPC, "%s", "");
	return false;
}

/* ---- device and memory ---- */

static void do_open(void)
{
	struct ibv_device **list, *device = NULL;
	const char *name = text_arg("dev", "rxe0");
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	int error;

	if (context)
		return fail("open", EBUSY, "%s", "");
	list = ibv_get_device_list(NULL);
	for (int i = 0; list && list[i]; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			device = list[i];
	if (!device)
		return fail("ibv_get_device_list", ENODEV, "%s", name);
	context = ibv_open_device(device);
	ibv_free_device_list(list);
	if (!context)
		return fail("ibv_open_device", errno, "%s", "");
	pd = ibv_alloc_pd(context);
	if (!pd)
		return fail("ibv_alloc_pd", errno, "%s", "");
	channel = ibv_create_comp_channel(context);
	if (!channel)
		return fail("ibv_create_comp_channel", errno, "%s", "");
	error = ibv_query_device(context, &attr);
	if (!error)
		error = ibv_query_port(context, 1, &port);
	if (error)
		return fail("ibv_query_device", error, "%s", "");
	say("ok dev=%s mtu=%d state=%d max_rd_atomic=%d", name, 128 << port.active_mtu, port.state, attr.max_qp_rd_atom);
}

static void do_gids(void)
{
	static const char *const types[] = { "ib", "v1", "v2" };
	struct ibv_gid_entry list[64];
	ssize_t n = ibv_query_gid_table(context, list, 64, 0);

	if (n < 0)
		return fail("ibv_query_gid_table", (int)-n, "%s", "");
	say("ok n=%zd", n);
	for (ssize_t i = 0; i < n; i++) {
		char text[INET6_ADDRSTRLEN];

		inet_ntop(AF_INET6, list[i].gid.raw, text, sizeof(text));
		say(" gid=%u,%s,%s", list[i].gid_index, list[i].gid_type < 3 ? types[list[i].gid_type] : "?", text);
	}
}

static void do_mr(void)
{
	uint64_t len = needed("len");
	unsigned int access = access_arg("lwra");
	void *mem;
	int i;

	if (bad_args || !free_place((void **)&mrs[0].mr, sizeof(mrs[0]), &i))
		return;
	mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (mem == MAP_FAILED)
		return fail("mmap", errno, "%s", "");
	mrs[i].mr = ibv_reg_mr(pd, mem, len, (int)access);
	if (!mrs[i].mr) {
		fail("ibv_reg_mr", errno, "%s", "");
		munmap(mem, len);
		return;
	}
	mrs[i].mem = mem;
	mrs[i].len = len;
	say("ok mr=%d addr=0x%llx lkey=0x%x rkey=0x%x", i, (unsigned long long)(uintptr_t)mem, mrs[i].mr->lkey,
	    mrs[i].mr->rkey);
}

static uint64_t pattern_word(uint64_t seed, uint64_t k)
{
	uint64_t z = seed + (k + 1) * 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static void do_pattern(bool check)
{
	struct places p;
	uint64_t seed = needed("seed");

	if (!places_arg(&p))
		return;
	for (uint64_t j = 0; j < p.count; j++) {
		uint8_t *mem = p.mr->mem + p.off + j * p.step;
		uint64_t word = 0;

		for (uint64_t i = 0; i < p.len; i++) {
			uint8_t byte;

			if (i % 8 == 0)
				word = pattern_word(seed + j, i / 8);
			byte = (uint8_t)(word >> (8 * (i % 8)));
			if (!check) {
				mem[i] = byte;
			} else if (mem[i] != byte) {
				say("ok same=0 item=%llu at=%llu want=%u got=%u", (unsigned long long)j,
				    (unsigned long long)i, byte, mem[i]);
				return;
			}
		}
	}
	say(check ? "ok same=1" : "ok");
}

static void do_zero(void)
{
	struct places p;

	if (!places_arg(&p))
		return;
	memset(p.mr->mem + p.off, 0, p.len);
	say("ok");
}

static void do_word(bool write)
{
	struct mr *mr = mr_arg();
	uint64_t off = needed("off"), value = write ? needed("value") : 0;

	if (!bad_args && (mr->len < 8 || off > mr->len - 8))
		bad_arg("off");
	if (bad_args)
		return;
	if (write) {
		memcpy(mr->mem + off, &value, 8);
		say("ok");
	} else {
		memcpy(&value, mr->mem + off, 8);
		say("ok value=%llu", (unsigned long long)value);
	}
}

static void do_hex(void)
{
	struct places p;

	if (!places_arg(&p))
		return;
	say("ok hex=");
	for (uint64_t i = 0; i < p.len && i < 4096; i++)
		say("%02x", p.mr->mem[p.off + i]);
}

/* ---- queue pairs ---- */

static void drop_qp(struct qp *q)
{
	if (q->qp)
		ibv_destroy_qp(q->qp);
	if (q->send)
		ibv_destroy_cq(q->send);
	if (q->recv)
		ibv_destroy_cq(q->recv);
	memset(q, 0, sizeof(*q));
}

static void do_qp(void)
{
	static const char *const names[] = { "rc", "uc", "ud" };
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	const char *type = text_arg("type", "rc");
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = (uint32_t)number("sq", 128), .max_recv_wr = (uint32_t)number("rq", 128),
			 .max_send_sge = (uint32_t)number("sge", 4), .max_recv_sge = (uint32_t)number("sge", 4),
			 .max_inline_data = (uint32_t)number("inline", 64) },
	};
	int cqe = (int)number("cqe", 2048), i, k;
	struct qp *q;

	for (k = 0; k < 3 && strcmp(names[k], type) != 0; k++)
		;
	if (k == 3)
		bad_arg("type");
	if (bad_args || !free_place((void **)&qps[0].qp, sizeof(qps[0]), &i))
		return;
	q = &qps[i];
	q->type = init.qp_type = types[k];
	q->sq = init.cap.max_send_wr;
	q->send = ibv_create_cq(context, cqe, q, channel, 0);
	q->recv = q->send ? ibv_create_cq(context, cqe, q, channel, 0) : NULL;
	if (!q->recv) {
		fail("ibv_create_cq", errno, "%s", "");
		return drop_qp(q);
	}
	init.send_cq = q->send;
	init.recv_cq = q->recv;
	q->qp = ibv_create_qp(pd, &init);
	if (!q->qp) {
		fail("ibv_create_qp", errno, "%s", "");
		return drop_qp(q);
	}
	say("ok qp=%d qpn=%u inline=%u", i, q->qp->qp_num, init.cap.max_inline_data);
}

static void route_arg(struct ibv_ah_attr *ah)
{
	gid_arg("dgid", &ah->grh.dgid);
	ah->is_global = 1;
	ah->port_num = 1;
	ah->grh.sgid_index = (uint8_t)number("sgid", 0);
	ah->grh.hop_limit = (uint8_t)number("hop", 64);
	ah->grh.traffic_class = (uint8_t)number("tclass", 0);
	ah->grh.flow_label = (uint32_t)number("flow", 0);
}

static int to_init(const struct qp *q, struct ibv_qp_attr *a)
{
	a->qp_state = IBV_QPS_INIT;
	a->port_num = 1;
	a->qp_access_flags = access_arg("lwra");
	a->qkey = (uint32_t)number("qkey", 0x11111111);
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	       (q->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(const struct qp *q, struct ibv_qp_attr *a)
{
	uint64_t mtu = number("mtu", 1024);

	a->qp_state = IBV_QPS_RTR;
	if (q->type == IBV_QPT_UD)
		return IBV_QP_STATE;
	for (a->path_mtu = IBV_MTU_256; a->path_mtu < IBV_MTU_4096 && (128u << a->path_mtu) < mtu; a->path_mtu++)
		;
	if ((128u << a->path_mtu) != mtu)
		bad_arg("mtu");
	a->dest_qp_num = (uint32_t)needed("dest_qpn");
	a->rq_psn = (uint32_t)number("rq_psn", 0);
	route_arg(&a->ah_attr);
	if (q->type == IBV_QPT_UC)
		return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	a->max_dest_rd_atomic = (uint8_t)number("max_dest_rd_atomic", 16);
	a->min_rnr_timer = (uint8_t)number("min_rnr_timer", 12);
	return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static int to_rts(const struct qp *q, struct ibv_qp_attr *a)
{
	a->qp_state = IBV_QPS_RTS;
	a->sq_psn = (uint32_t)number("sq_psn", 0);
	if (q->type != IBV_QPT_RC)
		return IBV_QP_STATE | IBV_QP_SQ_PSN;
	a->timeout = (uint8_t)number("timeout", 14);
	a->retry_cnt = (uint8_t)number("retry_cnt", 7);
	a->rnr_retry = (uint8_t)number("rnr_retry", 7);
	a->max_rd_atomic = (uint8_t)number("max_rd_atomic", 16);
	return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	       IBV_QP_MAX_QP_RD_ATOMIC;
}

static void do_modify(void)
{
	struct qp *q = qp_arg();
	const char *state = text_arg("state", "");
	struct ibv_qp_attr attr;
	int mask = IBV_QP_STATE, error;

	if (bad_args)
		return;
	memset(&attr, 0, sizeof(attr));
	if (strcmp(state, "init") == 0)
		mask = to_init(q, &attr);
	else if (strcmp(state, "rtr") == 0)
		mask = to_rtr(q, &attr);
	else if (strcmp(state, "rts") == 0)
		mask = to_rts(q, &attr);
	else if (strcmp(state, "reset") == 0)
		attr.qp_state = IBV_QPS_RESET;
	else if (strcmp(state, "sqd") == 0)
		attr.qp_state = IBV_QPS_SQD;
	else if (strcmp(state, "err") == 0)
		attr.qp_state = IBV_QPS_ERR;
	else
		bad_arg("state");
	if (bad_args)
		return;
	error = ibv_modify_qp(q->qp, &attr, mask);
	if (error)
		return fail("ibv_modify_qp", error, "%s", state);
	say("ok");
}

static void do_query(void)
{
	struct qp *q = qp_arg();
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	int error;

	if (bad_args)
		return;
	error = ibv_query_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN,
			     &init);
	if (error)
		return fail("ibv_query_qp", error, "%s", "");
	say("ok state=%d sq_psn=%u rq_psn=%u mtu=%d dest_qpn=%u draining=%d", a.qp_state, a.sq_psn, a.rq_psn,
	    128 << a.path_mtu, a.dest_qp_num, a.sq_draining);
}

static void do_ah(void)
{
	struct ibv_ah_attr attr;
	int i;

	memset(&attr, 0, sizeof(attr));
	route_arg(&attr);
	if (bad_args || !free_place((void **)ahs, sizeof(ahs[0]), &i))
		return;
	/* This finds the neighbour's address, so it needs the neighbour. */
	ahs[i] = ibv_create_ah(pd, &attr);
	if (!ahs[i])
		return fail("ibv_create_ah", errno, "%s", "");
	say("ok ah=%d", i);
}

static void do_mw(void)
{
	uint64_t type = number("type", 2);
	int i;

	if (bad_args || !free_place((void **)mws, sizeof(mws[0]), &i))
		return;
	mws[i] = ibv_alloc_mw(pd, type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	if (!mws[i])
		return fail("ibv_alloc_mw", errno, "%s", "");
	say("ok mw=%d rkey=0x%x", i, mws[i]->rkey);
}

/* ---- the rest ---- */

static void do_counters(void)
{
	char path[512], value[32];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters", ibv_get_device_name(context->device));
	dir = opendir(path);
	if (!dir)
		return fail("opendir", errno, "%s", path);
	say("ok");
	while ((entry = readdir(dir))) {
		char file[1024];
		FILE *f;

		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		f = *entry->d_name == '.' ? NULL : fopen(file, "r");
		if (!f)
			continue;
		if (fgets(value, sizeof(value), f))
			say(" %s=%.*s", entry->d_name, (int)strcspn(value, "\n"), value);
		fclose(f);
	}
	closedir(dir);
}

static void do_destroy(void)
{
	const char *const kinds[] = { "qp", "mr", "ah", "mw" };
	int k, error = 0;
	uint64_t i;

	for (k = 0; k < 3 && !text_arg(kinds[k], NULL); k++)
		;
	i = needed(kinds[k]);
	if (!bad_args && (i >= MANY || !(k == 0 ? (void *)qps[i].qp : k == 1 ? (void *)mrs[i].mr : k == 2 ? (void *)ahs[i] : (void *)mws[i])))
		bad_arg(kinds[k]);
	if (bad_args)
		return;
	switch (k) {
	case 0:
		drop_qp(&qps[i]);
		break;
	case 1:
		error = ibv_dereg_mr(mrs[i].mr);
		if (!error) {
			munmap(mrs[i].mem, mrs[i].len);
			memset(&mrs[i], 0, sizeof(mrs[i]));
		}
		break;
	case 2:
		error = ibv_destroy_ah(ahs[i]);
		ahs[i] = NULL;
		break;
	default:
		error = ibv_dealloc_mw(mws[i]);
		mws[i] = NULL;
		break;
	}
	if (error)
		return fail("destroy", error, "%s", kinds[k]);
	say("ok");
}

static void do_fill(void)
{
	do_pattern(false);
}

static void do_check(void)
{
	do_pattern(true);
}

static void do_peek(void)
{
	do_word(false);
}

static void do_poke(void)
{
	do_word(true);
}

static void do_sh(const char *command)
{
	char *quiet;
	int status;

	if (asprintf(&quiet, "{ %s; } >/dev/null 2>&1 </dev/null", command) < 0)
		return fail("asprintf", ENOMEM, "%s", "");
	status = system(quiet);
	free(quiet);
	say("ok exit=%d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static const struct {
	const char *verb;
	void (*run)(void);
} commands[] = {
	{ "gids", do_gids },	       { "mr", do_mr },		      { "fill", do_fill },	{ "check", do_check },
	{ "zero", do_zero },	       { "peek", do_peek },	      { "poke", do_poke },	{ "hex", do_hex },
	{ "qp", do_qp },	       { "modify", do_modify },	      { "query", do_query },	{ "ah", do_ah },
	{ "mw", do_mw },	       { "post_recv", do_post_recv }, { "post_send", do_post_send },
	{ "burst", do_burst },	       { "poll", do_poll },	      { "arm", do_arm },	{ "event", do_event },
	{ "async", do_async },	       { "counters", do_counters },   { "destroy", do_destroy },
};

static void run(const char *verb, const char *rest)
{
	if (strcmp(verb, "open") == 0)
		return do_open();
	if (strcmp(verb, "sh") == 0)
		return do_sh(rest);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].verb, verb) != 0)
			continue;
		if (!channel)
			return fail("no_device", EBADF, "%s", "");
		return commands[i].run();
	}
	fail("unknown_command", ENOSYS, "%s", verb);
}

int main(void)
{
	char *line = NULL, *verb, *rest;
	size_t room = 0;
	bool more = true;

	while (more && getline(&line, &room, stdin) > 0) {
		verb = take_line(line, &rest);
		if (verb) {
			more = strcmp(verb, "quit") != 0;
			if (more)
				run(verb, rest);
			else
				say("ok");
			give_answer();
		}
		free(rest);
	}
	return 0;
}

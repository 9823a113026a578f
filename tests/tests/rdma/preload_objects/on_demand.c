/* Regions whose pages are given on demand: the program unmaps, moves and maps anew what it likes, and peers reach what is there. */
#include "common.h"
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define LEN (1 << 20)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *peer;

/* Two queue pairs: the second obeys, and receives. */
static void begin(void)
{
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	qp = make_qp(pd, IBV_QPT_RC, cq, NULL);
	peer = make_qp(pd, IBV_QPT_RC, cq, NULL);
	connect_qps(qp, peer);
	struct ibv_qp_attr attr = {.qp_access_flags = ALL};
	CHECK(ibv_modify_qp(peer, &attr, IBV_QP_ACCESS_FLAGS) == 0);
}

static void end(void)
{
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(peer) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static char *map(void *at, size_t len, int flags)
{
	char *memory = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static struct ibv_mr *on_demand(void *memory, size_t len)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, len, ALL | IBV_ACCESS_ON_DEMAND);
	CHECK(mr);
	return mr;
}

static void post(enum ibv_wr_opcode opcode, const void *at, uint32_t lkey, uint32_t length, const void *peers, uint32_t rkey)
{
	struct ibv_sge sge = {.addr = (uintptr_t)at, .length = length, .lkey = lkey};
	struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1}, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)peers;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)peers;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

/* One request: how it ended. */
static enum ibv_wc_status ended(enum ibv_wr_opcode opcode, const void *at, uint32_t lkey, uint32_t length, const void *peers,
				uint32_t rkey)
{
	post(opcode, at, lkey, length, peers, rkey);
	return completion(cq).status;
}

#define FINE(...) \
	do { \
		enum ibv_wc_status status_ = ended(__VA_ARGS__); \
		if (status_ != IBV_WC_SUCCESS) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, ibv_wc_status_str(status_)); \
			exit(1); \
		} \
	} while (0)

static void fill(char *memory, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		memory[i] = (char)(i * 7 + i / 256 + seed);
}

/* What the device says that it can, it can (the other cases); of unreliable services it says nothing. */
static void capabilities(void)
{
	struct ibv_device_attr_ex attr;
	CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
	CHECK(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(attr.odp_caps.per_transport_caps.rc_odp_caps == 63 && attr.xrc_odp_caps == 63);
	CHECK(attr.odp_caps.per_transport_caps.uc_odp_caps == 0 && attr.odp_caps.per_transport_caps.ud_odp_caps == 0);
}

/* Every operation, on pages of which neither side has seen one. */
static void operations(void)
{
	begin();
	char *mine = map(NULL, LEN, 0), *theirs = map(NULL, LEN, 0);
	/* Not at the beginning of a page. */
	struct ibv_mr *a = on_demand(mine + 100, LEN - 200), *b = on_demand(theirs + 100, LEN - 200);
	fill(mine + 5000, 300000, 1);
	FINE(IBV_WR_RDMA_WRITE, mine + 5000, a->lkey, 300000, theirs + 7000, b->rkey);
	CHECK(memcmp(mine + 5000, theirs + 7000, 300000) == 0);
	fill(theirs + 600000, 100000, 2);
	FINE(IBV_WR_RDMA_READ, mine + 600100, a->lkey, 100000, theirs + 600000, b->rkey);
	CHECK(memcmp(mine + 600100, theirs + 600000, 100000) == 0);
	uint64_t *word = (uint64_t *)(theirs + 900000), *old = (uint64_t *)(mine + 900000);
	*word = 37;
	FINE(IBV_WR_ATOMIC_FETCH_AND_ADD, old, a->lkey, 8, word, b->rkey);
	CHECK(*old == 37 && *word == 42);
	struct ibv_sge sge = {.addr = (uintptr_t)theirs + 950000, .length = 20000, .lkey = b->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	CHECK(ibv_post_recv(peer, &wr, &bad) == 0);
	fill(mine + 950000, 20000, 3);
	post(IBV_WR_SEND, mine + 950000, a->lkey, 20000, NULL, 0);
	CHECK(completion(cq).status == IBV_WC_SUCCESS && completion(cq).status == IBV_WC_SUCCESS);
	CHECK(memcmp(mine + 950000, theirs + 950000, 20000) == 0);
	/* To the byte. */
	CHECK(ended(IBV_WR_RDMA_WRITE, mine + 5000, a->lkey, 8, theirs + LEN - 107, b->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(a) == 0 && ibv_dereg_mr(b) == 0);
	CHECK(munmap(mine, LEN) == 0 && munmap(theirs, LEN) == 0);
	end();
}

/* A shared receive queue, and XRC. */
static void shared_queues(void)
{
	begin();
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_qp *other = make_qp(pd, IBV_QPT_RC, cq, srq), *sender = make_qp(pd, IBV_QPT_RC, cq, NULL), *was = qp;
	connect_qps(sender, other);
	char *memory = map(NULL, LEN, 0);
	struct ibv_mr *mr = on_demand(memory, LEN);
	struct ibv_sge sge = {.addr = (uintptr_t)memory + 500000, .length = 9000, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	CHECK(srq && ibv_post_srq_recv(srq, &wr, &bad) == 0);
	fill(memory, 9000, 4);
	qp = sender;
	post(IBV_WR_SEND, memory, mr->lkey, 9000, NULL, 0);
	CHECK(completion(cq).status == IBV_WC_SUCCESS && completion(cq).status == IBV_WC_SUCCESS);
	CHECK(memcmp(memory, memory + 500000, 9000) == 0);
	qp = was;
	CHECK(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(other) == 0 && ibv_destroy_srq(srq) == 0 && ibv_dereg_mr(mr) == 0);
	end();
}

/* Memory is unmapped, mapped anew, moved, shrunk: the region is always what the program has there. */
static void mappings(void)
{
	begin();
	char *mine = map(NULL, LEN, 0), *theirs = map(NULL, LEN, 0);
	struct ibv_mr *a = on_demand(mine, LEN), *b = on_demand(theirs, LEN);
	for (int round = 0; round < 200; round++) {
		fill(mine, 50000, (unsigned)round);
		FINE(IBV_WR_RDMA_WRITE, mine, a->lkey, 50000, theirs + 1000, b->rkey);
		CHECK(memcmp(mine, theirs + 1000, 50000) == 0);
		/* Another one is there at once, or later; all of it, or some of it. */
		size_t from = round % 3 ? 4096 * (size_t)(round % 11) : 0, len = round % 3 ? 8192 : LEN;
		if (round % 2)
			CHECK(munmap(theirs + from, len) == 0);
		map(theirs + from, len, MAP_FIXED);
		for (size_t i = 0; i < len; i += 512)
			CHECK(theirs[from + i] == 0);
		FINE(IBV_WR_RDMA_WRITE, mine, a->lkey, 50000, theirs + 1000, b->rkey);
		CHECK(memcmp(mine, theirs + 1000, 50000) == 0);
		/* And the sender's. */
		map(mine, LEN, MAP_FIXED);
		FINE(IBV_WR_RDMA_WRITE, mine, a->lkey, 50000, theirs + 1000, b->rkey);
		for (size_t i = 0; i < 50000; i += 100)
			CHECK(theirs[1000 + i] == 0);
	}
	/* Pages that move take their content along; where they were there is nothing. (A range of several mappings does not move.) */
	map(theirs, LEN, MAP_FIXED);
	fill(theirs, 8192, 77);
	FINE(IBV_WR_RDMA_READ, mine, a->lkey, 8192, theirs, b->rkey);
	char *elsewhere = map(NULL, 8192, 0);
	CHECK(mremap(theirs, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
	map(theirs, 8192, MAP_FIXED);
	theirs[3] = 9;
	FINE(IBV_WR_RDMA_READ, mine, a->lkey, 8192, theirs, b->rkey);
	CHECK(mine[3] == 9 && mine[4] == 0 && (unsigned char)elsewhere[3] == (unsigned char)(3 * 7 + 77));
	struct ibv_mr *c = on_demand(elsewhere, 8192);
	FINE(IBV_WR_RDMA_READ, mine, a->lkey, 8192, elsewhere, c->rkey);
	CHECK(memcmp(mine, elsewhere, 8192) == 0);
	/* Memory that is gone for good: whoever writes there is refused. */
	CHECK(munmap(theirs, LEN) == 0);
	CHECK(ended(IBV_WR_RDMA_WRITE, mine, a->lkey, 8, theirs, b->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(a) == 0 && ibv_dereg_mr(b) == 0 && ibv_dereg_mr(c) == 0);
	end();
}

/* Memory that the program may not write is read, and not written; its own missing memory fails a request. */
static void rights(void)
{
	static const char constant[] = "these bytes may be read only";
	begin();
	struct ibv_mr *all = on_demand(NULL, SIZE_MAX);
	char *mine = map(NULL, LEN, 0);
	FINE(IBV_WR_RDMA_READ, mine, all->lkey, sizeof constant, constant, all->rkey);
	CHECK(memcmp(mine, constant, sizeof constant) == 0);
	CHECK(ended(IBV_WR_RDMA_WRITE, mine, all->lkey, 8, constant, all->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(strcmp(constant, "these bytes may be read only") == 0);
	CHECK(ibv_dereg_mr(all) == 0);
	end();
	begin();
	all = on_demand(NULL, SIZE_MAX);
	CHECK(munmap(mine, LEN) == 0);
	char *theirs = map(NULL, 4096, 0);
	CHECK(ended(IBV_WR_RDMA_WRITE, mine, all->lkey, 8, theirs, all->rkey) == IBV_WC_LOC_PROT_ERR);
	CHECK(ibv_dereg_mr(all) == 0);
	end();
}

/* All memory that the program has and will have: buffers of malloc that come and go, which the allocator unmaps and maps anew. */
static void everything(void)
{
	begin();
	struct ibv_mr *all = on_demand(NULL, SIZE_MAX);
	CHECK(all->addr == NULL && all->length == SIZE_MAX);
	for (int round = 0; round < 300; round++) {
		size_t len = (size_t)1 << (10 + round % 11);
		char *from = malloc(len), *to = calloc(1, len);
		CHECK(from && to);
		for (size_t i = 0; i < len; i += 64)
			CHECK(to[i] == 0);
		fill(from, len, (unsigned)round);
		enum ibv_wr_opcode opcode = round % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		if (round % 2)
			FINE(opcode, from, all->lkey, (uint32_t)len, to, all->rkey);
		else
			FINE(opcode, to, all->lkey, (uint32_t)len, from, all->rkey);
		CHECK(memcmp(from, to, len) == 0);
		free(from);
		free(to);
	}
	/* On the stack, too. */
	char here[1000], there[1000];
	fill(here, sizeof here, 5);
	FINE(IBV_WR_RDMA_WRITE, here, all->lkey, sizeof here, there, all->rkey);
	CHECK(memcmp(here, there, sizeof here) == 0);
	CHECK(ibv_dereg_mr(all) == 0);
	end();
}

static volatile int over;

/* Maps, writes and unmaps, and looks whether it has the memory to itself. */
static void *churn(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	while (!over) {
		size_t len = 4096 * (1 + rand_r(&seed) % 64);
		int mapped = rand_r(&seed) % 2;
		char *memory = mapped ? map(NULL, len, 0) : malloc(len), mark = (char)rand_r(&seed);
		CHECK(memory);
		memset(memory, mark, len);
		sched_yield();
		for (size_t i = 0; i < len; i += 97)
			CHECK(memory[i] == mark);
		if (mapped)
			CHECK(munmap(memory, len) == 0);
		else
			free(memory);
	}
	return NULL;
}

/* Threads that unmap without end beside traffic in a region of everything, and children that come and go. */
static void threads(void)
{
	begin();
	struct ibv_mr *all = on_demand(NULL, SIZE_MAX);
	pthread_t others[3];
	for (uintptr_t i = 0; i < 3; i++)
		CHECK(pthread_create(&others[i], NULL, churn, (void *)(i + 1)) == 0);
	for (int round = 0; round < 400; round++) {
		size_t len = 4096 * (size_t)(1 + round % 40);
		char *from = map(NULL, len, 0), *to = map(NULL, len, 0);
		fill(from, len, (unsigned)round);
		FINE(IBV_WR_RDMA_WRITE, from, all->lkey, (uint32_t)len, to, all->rkey);
		CHECK(memcmp(from, to, len) == 0);
		if (round % 40 == 7) {
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0) {
				/* The child's memory is its own. */
				CHECK(memcmp(from, to, len) == 0 && munmap(to, len) == 0);
				memset(from, 0, len);
				_exit(0);
			}
			int status;
			CHECK(waitpid(child, &status, 0) == child && status == 0);
			CHECK(memcmp(from, to, len) == 0);
		}
		CHECK(munmap(from, len) == 0 && munmap(to, len) == 0);
	}
	over = 1;
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(others[i], NULL) == 0);
	CHECK(ibv_dereg_mr(all) == 0);
	end();
}

static int advise(struct ibv_pd *domain, enum ibv_advise_mr_advice advice, uint32_t flags, const void *at, size_t len, uint32_t lkey)
{
	struct ibv_sge sge = {.addr = (uintptr_t)at, .length = (uint32_t)len, .lkey = lkey};
	return ibv_advise_mr(domain, advice, flags, &sge, 1);
}

/* Pages before somebody asks for them. */
static void advice(void)
{
	begin();
	char *memory = map(NULL, LEN, 0);
	struct ibv_mr *mr = on_demand(memory, LEN), *plain = ibv_reg_mr(pd, memory, LEN, ALL);
	struct ibv_mr *reading = ibv_reg_mr(pd, memory, LEN, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
	CHECK(plain && reading);
	const uint32_t now = IBV_ADVISE_MR_FLAG_FLUSH;
	CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, now, memory, LEN, mr->lkey) == 0);
	CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, memory + 77, 10000, reading->lkey) == 0);
	CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, now, memory + 77, 10000, reading->lkey) == 0);
	CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, now, memory, 1, reading->lkey) == EFAULT);
	CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, now, memory + LEN - 1, 2, mr->lkey) == EFAULT);
	CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, now, memory, 1, plain->lkey) == EFAULT);
	CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 6, memory, 1, mr->lkey) == EINVAL);
	CHECK(advise(pd, 77, now, memory, 1, mr->lkey) == EOPNOTSUPP);
	struct ibv_pd *other = ibv_alloc_pd(context);
	CHECK(advise(other, IBV_ADVISE_MR_ADVICE_PREFETCH, now, memory, 1, mr->lkey) == EPERM);
	CHECK(ibv_dealloc_pd(other) == 0);
	FINE(IBV_WR_RDMA_WRITE, memory, mr->lkey, 100000, memory + 500000, mr->rkey);
	CHECK(ibv_dereg_mr(plain) == 0 && ibv_dereg_mr(reading) == 0);
	CHECK(munmap(memory, LEN) == 0);
	CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, now, memory, 1, mr->lkey) == EFAULT);
	CHECK(ibv_dereg_mr(mr) == 0);
	end();
}

int main(int argc, char **argv)
{
	context = open_device();
	return run_tests((const struct subtest[]){
		{"capabilities", capabilities},
		{"operations", operations},
		{"shared_queues", shared_queues},
		{"mappings", mappings},
		{"rights", rights},
		{"everything", everything},
		{"threads", threads},
		{"advice", advice},
		{0},
	}, argc, argv);
}

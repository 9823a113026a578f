/* Processes that share an adapter: forked before they open it, or after, and one that is killed. */
#include "common.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define RANKS 10
#define VICTIM 3

/* What the ranks tell each other. */
struct board {
	int arrived[64];
	uint32_t out[RANKS], back[RANKS];
};

static struct board *board_for_all(void)
{
	void *memory = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static void meet(struct board *board, int where, int count)
{
	__atomic_add_fetch(&board->arrived[where], 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&board->arrived[where], __ATOMIC_SEQ_CST) < count)
		usleep(1000);
}

struct rank {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *sent, *received;
	struct ibv_qp *out, *back;
};

static struct rank rank_here(void)
{
	struct rank rank = {.context = open_device()};
	CHECK((rank.pd = ibv_alloc_pd(rank.context)));
	CHECK((rank.sent = ibv_create_cq(rank.context, 16, NULL, NULL, 0)));
	CHECK((rank.received = ibv_create_cq(rank.context, 16, NULL, NULL, 0)));
	rank.out = make_qp(rank.pd, IBV_QPT_RC, rank.sent, NULL);
	rank.back = make_qp(rank.pd, IBV_QPT_RC, rank.received, NULL);
	return rank;
}

static void one_up(struct ibv_qp *qp, uint32_t peer)
{
	CHECK(to_init(qp) == 0 && to_rtr(qp, peer) == 0 && to_rts(qp) == 0);
}

static void work(struct board *board, int i)
{
	struct rank rank = rank_here();
	board->out[i] = rank.out->qp_num;
	board->back[i] = rank.back->qp_num;
	meet(board, 0, RANKS);
	one_up(rank.out, board->back[(i + 1) % RANKS]);
	one_up(rank.back, board->out[(i + RANKS - 1) % RANKS]);
	receive_nothing(rank.back);
	meet(board, 1, RANKS);
	send_nothing(rank.out);
	CHECK(completion(rank.sent).status == IBV_WC_SUCCESS && completion(rank.received).status == IBV_WC_SUCCESS);
	meet(board, 2, RANKS);
	if (i == VICTIM)
		raise(SIGKILL);
	for (int n = 0; n < 50; n++) {
		/* Those beside the victim have one neighbour left. */
		int sends = i != VICTIM - 1, receives = i != VICTIM + 1;
		if (receives)
			receive_nothing(rank.back);
		meet(board, 3 + n, RANKS - 1);
		if (sends) {
			send_nothing(rank.out);
			CHECK(completion(rank.sent).status == IBV_WC_SUCCESS);
		}
		if (receives)
			CHECK(completion(rank.received).status == IBV_WC_SUCCESS);
	}
	CHECK(ibv_destroy_qp(rank.out) == 0 && ibv_destroy_qp(rank.back) == 0);
	CHECK(ibv_destroy_cq(rank.sent) == 0 && ibv_destroy_cq(rank.received) == 0);
	CHECK(ibv_dealloc_pd(rank.pd) == 0 && ibv_close_device(rank.context) == 0);
	exit(0);
}

static void ranks(void)
{
	struct board *board = board_for_all();
	pid_t all[RANKS];
	for (int i = 0; i < RANKS; i++) {
		CHECK((all[i] = fork()) >= 0);
		if (!all[i])
			work(board, i);
	}
	for (int i = 0; i < RANKS; i++) {
		int status;
		CHECK(waitpid(all[i], &status, 0) == all[i]);
		if (i == VICTIM)
			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

/* A child opens a device of its own and talks with its parent, whose device goes on. */
static void children_open(void)
{
	CHECK(ibv_fork_init() == 0);
	struct board *board = board_for_all();
	struct rank parent = rank_here();
	board->back[0] = parent.back->qp_num;
	CHECK(to_init(parent.back) == 0);
	receive_nothing(parent.back);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		/* What it has of its parent's is dead for it, and stays alive for the parent. */
		CHECK(ibv_alloc_pd(parent.context) == NULL);
		struct ibv_wc wc;
		errno = 0;
		CHECK(ibv_poll_cq(parent.received, 1, &wc) == -1 && errno == ENODEV);
		struct rank rank = rank_here();
		board->out[0] = rank.out->qp_num;
		CHECK(rank.out->qp_num != parent.out->qp_num);
		meet(board, 0, 2);
		one_up(rank.out, board->back[0]);
		meet(board, 1, 2);
		send_nothing(rank.out);
		CHECK(completion(rank.sent).status == IBV_WC_SUCCESS);
		_exit(0);
	}
	meet(board, 0, 2);
	CHECK(to_rtr(parent.back, board->out[0]) == 0 && to_rts(parent.back) == 0);
	meet(board, 1, 2);
	CHECK(completion(parent.received).status == IBV_WC_SUCCESS);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	/* And with itself, after the child has gone. */
	struct ibv_qp *one = make_qp(parent.pd, IBV_QPT_RC, parent.sent, NULL);
	connect_qps(one, parent.out);
	receive_nothing(one);
	send_nothing(parent.out);
	CHECK(completion(parent.sent).status == IBV_WC_SUCCESS && completion(parent.sent).status == IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	static const struct subtest tests[] = {
		{"ranks", ranks}, {"children_open", children_open}, {NULL, NULL},
	};
	return run_tests(tests, argc, argv);
}

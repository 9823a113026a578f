/* What the files of the verbs program share; see rxe_peer.c. */
#ifndef RXE_PEER_H
#define RXE_PEER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define MANY 1024 /* objects of a kind */

struct qp {
	struct ibv_qp *qp;
	struct ibv_cq *send, *recv;
	enum ibv_qp_type type;
	uint32_t sq;
};

struct mr {
	struct ibv_mr *mr;
	uint8_t *mem;
	uint64_t len;
};

extern struct ibv_context *context;
extern struct ibv_pd *pd;
extern struct ibv_comp_channel *channel;
extern struct qp qps[MANY];
extern struct mr mrs[MANY];
extern struct ibv_ah *ahs[MANY];
extern struct ibv_mw *mws[MANY];

/* rxe_text.c: one command, one answer. */

/* Takes a line apart; answers its verb, NULL for an empty line. `rest` is what follows the verb. */
char *take_line(char *line, char **rest);
/* Prints the answer, and begins an empty one. */
void give_answer(void);
/* Appends to the answer. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
/* Replaces whatever was said before by an error. A command that fails returns right after this. */
__attribute__((format(printf, 3, 4))) void fail(const char *call, int number, const char *format, ...);

/* Arguments. What makes no sense is answered by an error and remembered in bad_args; values are then of no use. */
extern bool bad_args;
void bad_arg(const char *key);
const char *text_arg(const char *key, const char *otherwise);
uint64_t number(const char *key, uint64_t otherwise);
uint64_t needed(const char *key);
/* The letters of an argument as bits: the k-th letter of `letters` is bits[k]. */
unsigned int letters_arg(const char *key, const char *otherwise, const char *letters, const unsigned int *bits);
unsigned int access_arg(const char *otherwise);
struct qp *qp_arg(void);
struct mr *mr_arg(void);
bool gid_arg(const char *key, union ibv_gid *gid);

/* off=, len=, count=, step= within a memory region: all places are inside it. */
struct places {
	struct mr *mr;
	uint64_t off, len, count, step;
};
bool places_arg(struct places *p);

/* rxe_work.c: work requests, completions, events. */
void do_post_recv(void);
void do_post_send(void);
void do_burst(void);
void do_poll(void);
void do_arm(void);
void do_event(void);
void do_async(void);

#endif

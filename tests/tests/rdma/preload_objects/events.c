/* Completion events and asynchronous events: who gets them, who waits, what must be acknowledged before what. */
#include "common.h"

static struct ibv_context *context;
static struct ibv_pd *pd;

static void block(int fd, int blocks)
{
	int flags = fcntl(fd, F_GETFL);
	CHECK(flags >= 0);
	CHECK(fcntl(fd, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) == 0);
}

static int readable(int fd)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};
	return poll(&one, 1, 0) == 1;
}

/* A queue pair that is connected with itself, with a channel. */
struct loop {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct loop make_loop(void)
{
	struct loop loop;
	loop.channel = ibv_create_comp_channel(context);
	CHECK(loop.channel);
	loop.cq = ibv_create_cq(context, 64, &loop, loop.channel, 0);
	CHECK(loop.cq);
	loop.qp = make_qp(pd, IBV_QPT_RC, loop.cq, NULL);
	connect_qps(loop.qp, loop.qp);
	return loop;
}

static void end_loop(struct loop *loop)
{
	CHECK(ibv_destroy_qp(loop->qp) == 0);
	CHECK(ibv_destroy_cq(loop->cq) == 0);
	CHECK(ibv_destroy_comp_channel(loop->channel) == 0);
}

static void exchange(struct loop *loop)
{
	receive_nothing(loop->qp);
	send_nothing(loop->qp);
}

static void take_two(struct loop *loop)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion(loop->cq);
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
}

static void channels(void)
{
	struct loop loop = make_loop();
	struct ibv_cq *cq;
	void *mine;
	CHECK(!(fcntl(loop.channel->fd, F_GETFL) & O_NONBLOCK));
	CHECK(!readable(loop.channel->fd));
	block(loop.channel->fd, 0);
	errno = 0;
	CHECK(ibv_get_cq_event(loop.channel, &cq, &mine) == -1 && errno == EAGAIN);
	block(loop.channel->fd, 1);
	for (int i = 0; i < 10; i++) {
		CHECK(ibv_req_notify_cq(loop.cq, 0) == 0);
		exchange(&loop);
		CHECK(ibv_get_cq_event(loop.channel, &cq, &mine) == 0);
		CHECK(cq == loop.cq && mine == loop.cq->cq_context);
		take_two(&loop);
	}
	CHECK(!readable(loop.channel->fd));
	ibv_ack_cq_events(loop.cq, 10);
	CHECK(loop.cq->comp_events_completed == 10);
	/* One that nobody takes: it is gone with its queue. */
	CHECK(ibv_req_notify_cq(loop.cq, 0) == 0);
	exchange(&loop);
	take_two(&loop);
	end_loop(&loop);
}

/* The next event that is not about GIDs, which change by themselves. */
static struct ibv_async_event event(void)
{
	struct ibv_async_event event;
	for (;;) {
		CHECK(ibv_get_async_event(context, &event) == 0);
		if (event.event_type != IBV_EVENT_GID_CHANGE)
			return event;
		ibv_ack_async_event(&event);
	}
}

/* A request is for completions that come after it: those that are there already raise no event. */
static void only_new_ones(void)
{
	struct loop loop = make_loop();
	exchange(&loop);
	/* When the send queue has drained, both completions are there. */
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	CHECK(ibv_modify_qp(loop.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
	struct ibv_async_event drained = event();
	CHECK(drained.event_type == IBV_EVENT_SQ_DRAINED && drained.element.qp == loop.qp);
	ibv_ack_async_event(&drained);
	CHECK(loop.qp->events_completed == 1);
	CHECK(ibv_req_notify_cq(loop.cq, 0) == 0);
	struct pollfd fd = {.fd = loop.channel->fd, .events = POLLIN};
	CHECK(poll(&fd, 1, 200) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(loop.qp, &attr, IBV_QP_STATE) == 0);
	exchange(&loop);
	struct ibv_cq *cq;
	void *mine;
	CHECK(ibv_get_cq_event(loop.channel, &cq, &mine) == 0 && cq == loop.cq);
	ibv_ack_cq_events(cq, 1);
	take_two(&loop);
	take_two(&loop);
	CHECK(!readable(loop.channel->fd));
	end_loop(&loop);
}

/* Several queues at one channel: each event is of its own queue. */
static void several(void)
{
	enum { COUNT = 4 };
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cqs[COUNT];
	struct ibv_qp *qps[COUNT];
	for (int i = 0; i < COUNT; i++) {
		cqs[i] = ibv_create_cq(context, 16, &qps[i], channel, 0);
		qps[i] = make_qp(pd, IBV_QPT_RC, cqs[i], NULL);
		connect_qps(qps[i], qps[i]);
		CHECK(ibv_req_notify_cq(cqs[i], 0) == 0);
	}
	for (int i = COUNT - 1; i >= 0; i--) {
		receive_nothing(qps[i]);
		send_nothing(qps[i]);
		struct ibv_cq *cq;
		void *mine;
		CHECK(ibv_get_cq_event(channel, &cq, &mine) == 0 && cq == cqs[i] && mine == &qps[i]);
		ibv_ack_cq_events(cq, 1);
	}
	/* Events of a queue that ends are nobody's; those of others come. */
	for (int i = 0; i < COUNT; i++) {
		for (int j = 0; j < 2; j++)
			CHECK(completion(cqs[i]).status == IBV_WC_SUCCESS);
		CHECK(ibv_req_notify_cq(cqs[i], 0) == 0);
		receive_nothing(qps[i]);
		send_nothing(qps[i]);
		for (int j = 0; j < 2; j++)
			CHECK(completion(cqs[i]).status == IBV_WC_SUCCESS);
	}
	for (int i = 0; i + 1 < COUNT; i++) {
		CHECK(ibv_destroy_qp(qps[i]) == 0);
		CHECK(ibv_destroy_cq(cqs[i]) == 0);
	}
	struct ibv_cq *cq;
	void *mine;
	CHECK(ibv_get_cq_event(channel, &cq, &mine) == 0 && cq == cqs[COUNT - 1]);
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_destroy_qp(qps[COUNT - 1]) == 0 && ibv_destroy_cq(cqs[COUNT - 1]) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static void *acknowledge_cq(void *cq)
{
	usleep(100000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void destroying_waits(void)
{
	struct loop loop = make_loop();
	struct ibv_cq *cq;
	void *mine;
	CHECK(ibv_req_notify_cq(loop.cq, 0) == 0);
	exchange(&loop);
	CHECK(ibv_get_cq_event(loop.channel, &cq, &mine) == 0);
	take_two(&loop);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge_cq, cq) == 0);
	end_loop(&loop);
	CHECK(pthread_join(thread, NULL) == 0);
}

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

static pthread_t main_thread;
static struct loop *sender;
static int stop;

/* Signals while the other thread waits; then, if it is to go on, what it waits for. */
static void *disturb(void *go_on)
{
	for (int i = 0; i < 3; i++) {
		usleep(50000);
		pthread_kill(main_thread, SIGUSR1);
	}
	if (go_on)
		exchange(sender);
	else
		/* It may not have waited yet. */
		while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
			usleep(10000);
			pthread_kill(main_thread, SIGUSR1);
		}
	return NULL;
}

static void signals_end_waiting(void)
{
	struct loop loop = make_loop();
	sender = &loop;
	main_thread = pthread_self();
	CHECK(ibv_req_notify_cq(loop.cq, 0) == 0);
	struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	struct ibv_cq *cq;
	void *mine;
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, disturb, &loop) == 0);
	CHECK(ibv_get_cq_event(loop.channel, &cq, &mine) == 0);
	ibv_ack_cq_events(cq, 1);
	CHECK(pthread_join(thread, NULL) == 0 && signals == 3);
	take_two(&loop);

	action.sa_flags = 0;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, disturb, NULL) == 0);
	errno = 0;
	CHECK(ibv_get_cq_event(loop.channel, &cq, &mine) == -1 && errno == EINTR);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	CHECK(pthread_join(thread, NULL) == 0);
	signal(SIGUSR1, SIG_DFL);
	end_loop(&loop);
}

static void *acknowledge_async(void *event)
{
	usleep(100000);
	ibv_ack_async_event(event);
	return NULL;
}

static void asynchronous(void)
{
	struct ibv_async_event got;
	block(context->async_fd, 0);
	while (ibv_get_async_event(context, &got) == 0)
		ibv_ack_async_event(&got);
	CHECK(errno == EAGAIN);
	block(context->async_fd, 1);

	/* A shared receive queue runs low. */
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	struct ibv_qp *qp = make_qp(pd, IBV_QPT_RC, cq, srq);
	connect_qps(qp, qp);
	struct ibv_recv_wr wr = {0}, *bad;
	for (int i = 0; i < 4; i++)
		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	struct ibv_srq_attr limit = {.srq_limit = 4};
	CHECK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
	send_nothing(qp);
	got = event();
	CHECK(got.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && got.element.srq == srq);
	ibv_ack_async_event(&got);

	/* The send queue has drained. */
	struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	CHECK(ibv_modify_qp(qp, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
	got = event();
	CHECK(got.event_type == IBV_EVENT_SQ_DRAINED && got.element.qp == qp);
	ibv_ack_async_event(&got);

	/* In error it takes no more: an event that is acknowledged while somebody waits to destroy it. */
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	CHECK(ibv_modify_qp(qp, &error, IBV_QP_STATE) == 0);
	got = event();
	CHECK(got.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && got.element.qp == qp);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge_async, &got) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(pthread_join(thread, NULL) == 0);

	/* One that nobody has taken is gone with its queue pair; the other one's comes. */
	struct ibv_qp *first = make_qp(pd, IBV_QPT_RC, cq, srq), *second = make_qp(pd, IBV_QPT_RC, cq, srq);
	connect_qps(first, second);
	CHECK(ibv_modify_qp(first, &error, IBV_QP_STATE) == 0);
	while (!readable(context->async_fd))
		;
	CHECK(ibv_destroy_qp(first) == 0);
	CHECK(ibv_modify_qp(second, &error, IBV_QP_STATE) == 0);
	got = event();
	CHECK(got.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && got.element.qp == second);
	ibv_ack_async_event(&got);
	CHECK(ibv_destroy_qp(second) == 0 && ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0);
}

/* A second context of the same device has its own events, and those of the port. */
static void contexts(void)
{
	struct ibv_context *other = open_device();
	CHECK(other != context && other->async_fd != context->async_fd);
	struct ibv_cq *cq = ibv_create_cq(other, 16, NULL, NULL, 0);
	struct ibv_pd *own = ibv_alloc_pd(other);
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(own, &srq_attr);
	struct ibv_qp *qp = make_qp(own, IBV_QPT_RC, cq, srq);
	connect_qps(qp, qp);
	block(context->async_fd, 0);
	struct ibv_async_event got;
	while (ibv_get_async_event(context, &got) == 0)
		ibv_ack_async_event(&got);
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	CHECK(ibv_modify_qp(qp, &error, IBV_QP_STATE) == 0);
	do {
		CHECK(ibv_get_async_event(other, &got) == 0);
		ibv_ack_async_event(&got);
	} while (got.event_type == IBV_EVENT_GID_CHANGE);
	CHECK(got.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && got.element.qp == qp);
	while (ibv_get_async_event(context, &got) == 0) {
		CHECK(got.event_type == IBV_EVENT_GID_CHANGE);
		ibv_ack_async_event(&got);
	}
	CHECK(errno == EAGAIN);
	block(context->async_fd, 1);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(own) == 0);
	CHECK(ibv_close_device(other) == 0);
}

/* Waits for an asynchronous event of this kind; GID_CHANGE may come before it. */
static void await(enum ibv_event_type type)
{
	struct ibv_async_event got;
	do {
		CHECK(ibv_get_async_event(context, &got) == 0);
		ibv_ack_async_event(&got);
		CHECK(got.event_type == type || got.event_type == IBV_EVENT_GID_CHANGE);
	} while (got.event_type != type);
}

static void say(const char *line)
{
	printf("%s\n", line);
	fflush(stdout);
}

/* An operator plays a scenario: the port goes down and comes back, says another MTU and speed, and the device fails. */
static void outages(void)
{
	struct ibv_port_attr port;
	CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
	say("ready");
	await(IBV_EVENT_PORT_ERR);
	CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_DOWN);
	CHECK(port.active_mtu == IBV_MTU_256);
	say("down");
	await(IBV_EVENT_PORT_ACTIVE);
	CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
	say("up");
	await(IBV_EVENT_GID_CHANGE);
	say("moved");
	await(IBV_EVENT_DEVICE_FATAL);
	REFUSED(ibv_alloc_pd(context), ENODEV);
}

/* The daemon ends: whoever waits hears of it, and nothing waits for ever. */
static void the_end(void)
{
	struct loop loop = make_loop();
	struct ibv_cq *cq;
	void *mine;
	CHECK(ibv_req_notify_cq(loop.cq, 0) == 0);
	printf("ready\n");
	fflush(stdout);
	errno = 0;
	CHECK(ibv_get_cq_event(loop.channel, &cq, &mine) == -1 && errno == EIO);
	struct ibv_async_event got;
	do
		got = event();
	while (got.event_type != IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&got);
	CHECK(ibv_get_async_event(context, &got) == -1 && errno == EIO);
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr made;
	CHECK(ibv_query_qp(loop.qp, &now, IBV_QP_STATE, &made) != 0);
	REFUSED(ibv_alloc_pd(context), ENODEV);
	end_loop(&loop);
}

int main(int argc, char **argv)
{
	static const struct subtest tests[] = {
		{"channels", channels},
		{"only_new_ones", only_new_ones},
		{"several", several},
		{"destroying_waits", destroying_waits},
		{"signals_end_waiting", signals_end_waiting},
		{"asynchronous", asynchronous},
		{"contexts", contexts},
		{"outages", outages},
		{"the_end", the_end},
		{0},
	};
	context = open_device();
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	int status = run_tests(tests, argc, argv);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return status;
}

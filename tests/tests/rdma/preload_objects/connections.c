/* Connections of a process with itself, on an adapter that has the GID of this address: calls, events, and what they say. */
#include "common.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define ADDRESS "10.9.0.1"
/* Room for private data, beside RDMA CM's header. */
#define IN_REQUEST 56
#define IN_REPLY 196
#define IN_REJECTION 148

/* A call that gives -1 and sets errno. */
#define FAILS(call, number) \
	do { \
		errno = 0; \
		CHECK((call) == -1); \
		CHECK(errno == (number)); \
	} while (0)

static struct rdma_event_channel *channel;

static struct sockaddr *at(const char *text, int port)
{
	static struct sockaddr_in all[4];
	static int next;
	struct sockaddr_in *in = &all[next++ % 4];
	*in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
	CHECK(inet_pton(AF_INET, text, &in->sin_addr) == 1);
	return (struct sockaddr *)in;
}

static struct rdma_cm_id *make(enum rdma_port_space space)
{
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(channel, &id, NULL, space) == 0);
	CHECK(id->channel == channel && id->ps == space);
	return id;
}

/* The next event, which must be this one. */
static struct rdma_cm_event *next(enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type || (id && event->id != id)) {
		fprintf(stderr, "%s, status %d, not %s\n", rdma_event_str(event->event), event->status, rdma_event_str(type));
		exit(1);
	}
	return event;
}

static void pass(enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
	struct rdma_cm_event *event = next(type, id);
	CHECK(event->status == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
}

static struct rdma_cm_id *listener(enum rdma_port_space space, const char *address)
{
	struct rdma_cm_id *id = make(space);
	CHECK(rdma_bind_addr(id, at(address, 0)) == 0);
	CHECK(rdma_listen(id, 8) == 0);
	CHECK(rdma_get_src_port(id) != 0);
	return id;
}

static in_addr_t ip(struct sockaddr *address)
{
	struct sockaddr_in *in = (struct sockaddr_in *)address;
	CHECK(in->sin_family == AF_INET && in->sin_port != 0);
	return in->sin_addr.s_addr;
}

static struct rdma_cm_id *resolved_to(enum rdma_port_space space, const char *peer, const char *own, int port)
{
	struct rdma_cm_id *id = make(space);
	CHECK(rdma_resolve_addr(id, NULL, at(peer, port), 2000) == 0);
	pass(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	CHECK(id->verbs && id->pd && id->port_num == 1);
	CHECK(ip(rdma_get_local_addr(id)) == inet_addr(own));
	CHECK(rdma_resolve_route(id, 2000) == 0);
	pass(RDMA_CM_EVENT_ROUTE_RESOLVED, id);
	CHECK(id->route.num_paths == 1 && memcmp(&id->route.path_rec->dgid, &id->route.addr.addr.ibaddr.dgid, 16) == 0);
	return id;
}

static struct rdma_cm_id *resolved(enum rdma_port_space space, int port)
{
	return resolved_to(space, ADDRESS, ADDRESS, port);
}

static void make_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = id->qp_type,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
	};
	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
	CHECK(id->qp && id->send_cq && id->recv_cq && id->send_cq_channel && attr.cap.max_send_wr >= 8);
	FAILS(rdma_create_qp(id, NULL, &attr), EINVAL);
}

static enum ibv_qp_state state(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

static void end(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
}

static void addresses(void)
{
	struct rdma_cm_id *one = make(RDMA_PS_TCP), *two = make(RDMA_PS_TCP), *other = make(RDMA_PS_UDP);
	CHECK(rdma_get_src_port(one) == 0 && rdma_get_dst_port(one) == 0);
	CHECK(one->qp_type == IBV_QPT_RC && other->qp_type == IBV_QPT_UD);
	FAILS(rdma_bind_addr(one, at("192.0.2.1", 0)), EADDRNOTAVAIL);
	CHECK(rdma_bind_addr(one, at(ADDRESS, 7001)) == 0);
	CHECK(one->verbs && rdma_get_src_port(one) == htons(7001));
	FAILS(rdma_bind_addr(one, at(ADDRESS, 7002)), EINVAL);
	FAILS(rdma_bind_addr(two, at("0.0.0.0", 7001)), EADDRINUSE);
	CHECK(rdma_bind_addr(two, at("0.0.0.0", 0)) == 0);
	CHECK(!two->verbs && ntohs(rdma_get_src_port(two)) >= 32768);
	CHECK(rdma_bind_addr(other, at(ADDRESS, 7001)) == 0);
	CHECK(rdma_destroy_id(one) == 0 && rdma_destroy_id(two) == 0 && rdma_destroy_id(other) == 0);

	int yes = 1;
	one = make(RDMA_PS_TCP);
	two = make(RDMA_PS_TCP);
	for (int i = 0; i < 2; i++)
		CHECK(rdma_set_option(i ? two : one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
	CHECK(rdma_bind_addr(one, at(ADDRESS, 7001)) == 0 && rdma_bind_addr(two, at(ADDRESS, 7001)) == 0);
	CHECK(rdma_destroy_id(one) == 0 && rdma_destroy_id(two) == 0);

	one = make(RDMA_PS_TCP);
	uint8_t class = 0x68;
	FAILS(rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &yes, sizeof yes), EINVAL);
	CHECK(rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &class, sizeof class) == 0);
	FAILS(rdma_set_option(one, RDMA_OPTION_ID, 99, &yes, sizeof yes), ENOSYS);
	struct sockaddr strange = {.sa_family = AF_UNIX};
	FAILS(rdma_bind_addr(one, &strange), EAFNOSUPPORT);
	FAILS(rdma_resolve_route(one, 1), EINVAL);
	FAILS(rdma_connect(one, NULL), EINVAL);
	FAILS(rdma_accept(one, NULL), EINVAL);
	FAILS(rdma_disconnect(one), EINVAL);
	CHECK(rdma_destroy_id(one) == 0);
	struct rdma_cm_id *none;
	FAILS(rdma_create_id(channel, &none, NULL, RDMA_PS_IPOIB), EPROTONOSUPPORT);

	int count = 0;
	struct ibv_context **devices = rdma_get_devices(&count);
	CHECK(devices && count >= 1 && devices[count] == NULL);
	rdma_free_devices(devices);
	struct rdma_addrinfo *found, hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP};
	CHECK(rdma_getaddrinfo(ADDRESS, "7001", &hints, &found) == 0);
	CHECK(found->ai_src_len == sizeof(struct sockaddr_in) && !found->ai_dst_addr && found->ai_qp_type == IBV_QPT_RC);
	rdma_freeaddrinfo(found);
	CHECK(rdma_getaddrinfo(ADDRESS, "7001", NULL, &found) == 0);
	CHECK(((struct sockaddr_in *)found->ai_dst_addr)->sin_port == htons(7001) && !found->ai_src_addr);
	rdma_freeaddrinfo(found);
	/* Without a name the addresses are those of the hints, as many as there are. */
	struct rdma_addrinfo own = {.ai_port_space = RDMA_PS_UDP, .ai_src_addr = at(ADDRESS, 7001), .ai_src_len = sizeof(struct sockaddr_in)};
	CHECK(rdma_getaddrinfo(NULL, NULL, &own, &found) == 0);
	CHECK(((struct sockaddr_in *)found->ai_src_addr)->sin_port == htons(7001) && !found->ai_dst_addr && !found->ai_dst_len);
	CHECK(found->ai_family == AF_INET && found->ai_qp_type == IBV_QPT_UD && found->ai_port_space == RDMA_PS_UDP);
	rdma_freeaddrinfo(found);
	FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &found), EINVAL);
}

/* Newer than Debian 12's header. */
int rdma_resolve_addrinfo(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *) __attribute__((weak));
int rdma_query_addrinfo(struct rdma_cm_id *, struct rdma_addrinfo **) __attribute__((weak));
int rdma_write_cm_event(struct rdma_cm_id *, unsigned, int, uint64_t) __attribute__((weak));

static void events_of_the_program(void)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);
	struct rdma_addrinfo *found, hints = {.ai_port_space = RDMA_PS_TCP};
	struct rdma_cm_event *event;
	FAILS(rdma_query_addrinfo(id, &found), ENOENT);
	for (int i = 0; i < 2; i++) {
		CHECK(rdma_resolve_addrinfo(id, ADDRESS, "7001", &hints) == 0);
		FAILS(rdma_resolve_addrinfo(id, ADDRESS, "7001", &hints), EBUSY);
		CHECK(rdma_get_cm_event(channel, &event) == 0 && event->event == 16 && event->status == 0 && event->id == id);
		CHECK(rdma_ack_cm_event(event) == 0);
		if (i)
			break;
		CHECK(rdma_query_addrinfo(id, &found) == 0);
		CHECK(((struct sockaddr_in *)found->ai_dst_addr)->sin_port == htons(7001));
		rdma_freeaddrinfo(found);
	}
	hints.ai_flags = RAI_NUMERICHOST;
	struct rdma_cm_id *other = make(RDMA_PS_TCP);
	CHECK(rdma_resolve_addrinfo(other, "nobody", NULL, &hints) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0 && event->event == 17 && event->status != 0 && event->id == other);
	CHECK(rdma_ack_cm_event(event) == 0);
	FAILS(rdma_query_addrinfo(other, &found), ENOENT);
	FAILS(rdma_write_cm_event(other, 3, 0, 0), EINVAL);
	CHECK(rdma_write_cm_event(other, 18, -5, 0x123456789abcdef0) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0 && event->event == 18 && event->status == -5 && event->id == other);
	CHECK(*(uint64_t *)&event->param == 0x123456789abcdef0);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_destroy_id(other) == 0);
	CHECK(rdma_destroy_id(id) == 0);
}

static void channels(void)
{
	struct rdma_cm_event *event;
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	CHECK(poll(&fd, 1, 0) == 0);
	int flags = fcntl(channel->fd, F_GETFL);
	CHECK(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
	struct rdma_cm_id *id = make(RDMA_PS_TCP);
	CHECK(rdma_resolve_addr(id, NULL, at(ADDRESS, 1), 2000) == 0);
	CHECK(poll(&fd, 1, 5000) == 1 && fd.revents == POLLIN);

	/* What waits goes along. */
	struct rdma_event_channel *second = rdma_create_event_channel();
	CHECK(second && rdma_migrate_id(id, second) == 0 && id->channel == second);
	CHECK(poll(&fd, 1, 0) == 0);
	fd.fd = second->fd;
	CHECK(poll(&fd, 1, 0) == 1);
	CHECK(rdma_get_cm_event(second, &event) == 0 && event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_resolve_route(id, 2000) == 0);

	/* What waits goes with its identifier. */
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(poll(&fd, 1, 0) == 0);
	rdma_destroy_event_channel(second);
	CHECK(fcntl(channel->fd, F_SETFL, flags) == 0);
}

static volatile int acknowledged;

static void *acknowledge_later(void *event)
{
	usleep(50000);
	acknowledged = 1;
	CHECK(rdma_ack_cm_event(event) == 0);
	return NULL;
}

static void destroying_waits(void)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);
	CHECK(rdma_resolve_addr(id, NULL, at(ADDRESS, 1), 2000) == 0);
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge_later, event) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(acknowledged);
	pthread_join(thread, NULL);
}

static void unreachable(void)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);
	CHECK(rdma_resolve_addr(id, at(ADDRESS, 0), at("10.9.0.77", 1), 100) == 0);
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_ADDR_ERROR, id);
	CHECK(event->status == -ETIMEDOUT);
	CHECK(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(id) == 0);
}

/* Sends a message that asks for nothing, and takes it. */
static void exchange(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	struct ibv_wc wc;
	CHECK(rdma_post_recvv(to, NULL, NULL, 0) == 0);
	CHECK(rdma_post_sendv(from, NULL, NULL, 0, IBV_SEND_SIGNALED) == 0);
	CHECK(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
}

/* The service level and the ACK timeout of a queue pair. */
static struct ibv_qp_attr way(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_PATH_MTU | IBV_QP_PKEY_INDEX, &init) == 0);
	return attr;
}

/* Connects with itself for each line of the input, PORT TOS, and says which path it was told, and what both queue pairs have of it. */
static void paths(void)
{
	int port, tos;
	while (scanf("%d %d", &port, &tos) == 2) {
		struct rdma_cm_id *listens = make(RDMA_PS_TCP);
		CHECK(rdma_bind_addr(listens, at("0.0.0.0", port)) == 0 && rdma_listen(listens, 1) == 0);
		struct rdma_cm_id *active = make(RDMA_PS_TCP);
		uint8_t class = tos;
		CHECK(rdma_set_option(active, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &class, sizeof class) == 0);
		CHECK(rdma_resolve_addr(active, NULL, at(ADDRESS, port), 2000) == 0);
		pass(RDMA_CM_EVENT_ADDR_RESOLVED, active);
		CHECK(rdma_resolve_route(active, 60000) == 0);
		struct rdma_cm_event *event;
		CHECK(rdma_get_cm_event(channel, &event) == 0 && event->id == active);
		int status = event->event == RDMA_CM_EVENT_ROUTE_RESOLVED ? 0 : event->status;
		CHECK(status == 0 || event->event == RDMA_CM_EVENT_ROUTE_ERROR);
		CHECK(rdma_ack_cm_event(event) == 0);
		if (status) {
			printf("no path: %s\n", strerror(-status));
			fflush(stdout);
			end(active);
			end(listens);
			continue;
		}
		struct ibv_sa_path_rec *told = active->route.path_rec;
		make_queue_pair(active);
		CHECK(rdma_connect(active, &(struct rdma_conn_param){.retry_count = 7}) == 0);
		event = next(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
		struct rdma_cm_id *passive = event->id;
		make_queue_pair(passive);
		CHECK(rdma_ack_cm_event(event) == 0);
		CHECK(rdma_accept(passive, &(struct rdma_conn_param){0}) == 0);
		pass(RDMA_CM_EVENT_ESTABLISHED, active);
		pass(RDMA_CM_EVENT_ESTABLISHED, passive);
		exchange(active, passive);
		struct ibv_qp_attr one = way(active), other = way(passive);
		CHECK(one.path_mtu == other.path_mtu && one.pkey_index == other.pkey_index);
		printf("told %d, 0x%04x, %d; ends %d %d, mtu %d, P_Key %d, timeout %d\n", told->sl, ntohs(told->pkey),
		       told->packet_life_time, one.ah_attr.sl, other.ah_attr.sl, 128 << one.path_mtu, one.pkey_index, one.timeout);
		fflush(stdout);
		CHECK(rdma_disconnect(active) == 0);
		pass(RDMA_CM_EVENT_DISCONNECTED, passive);
		CHECK(rdma_disconnect(passive) == 0);
		pass(RDMA_CM_EVENT_DISCONNECTED, active);
		end(active);
		end(passive);
		end(listens);
	}
}

static void connecting(void)
{
	struct rdma_cm_id *listens = listener(RDMA_PS_TCP, "0.0.0.0");
	int mark, port = ntohs(rdma_get_src_port(listens));
	listens->context = &mark;
	struct rdma_cm_id *active = resolved(RDMA_PS_TCP, port);
	make_queue_pair(active);
	CHECK(state(active) == IBV_QPS_INIT);
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5, .responder_resources = 3,
					.initiator_depth = 2, .retry_count = 6, .rnr_retry_count = 5};
	CHECK(rdma_connect(active, &param) == 0);

	struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	struct rdma_cm_id *passive = event->id;
	CHECK(event->listen_id == listens && passive->context == &mark && passive->verbs == active->verbs);
	struct rdma_conn_param *got = &event->param.conn;
	CHECK(got->private_data_len == IN_REQUEST && memcmp(got->private_data, "hello\0\0", 7) == 0);
	CHECK(got->responder_resources == 2 && got->initiator_depth == 3 && got->qp_num == active->qp->qp_num);
	CHECK(got->retry_count == 6 && got->rnr_retry_count == 5 && !got->srq);
	CHECK(rdma_get_dst_port(passive) == rdma_get_src_port(active) && rdma_get_src_port(passive) == htons(port));
	CHECK(ip(rdma_get_peer_addr(passive)) == inet_addr(ADDRESS));
	make_queue_pair(passive);
	CHECK(rdma_ack_cm_event(event) == 0);
	struct rdma_conn_param answer = {.private_data = "yes", .private_data_len = 3, .responder_resources = 2, .initiator_depth = 1};
	CHECK(rdma_accept(passive, &answer) == 0);

	event = next(RDMA_CM_EVENT_ESTABLISHED, active);
	got = &event->param.conn;
	CHECK(event->status == 0 && got->private_data_len == IN_REPLY && memcmp(got->private_data, "yes\0", 4) == 0);
	CHECK(got->qp_num == passive->qp->qp_num && got->responder_resources == 1 && got->initiator_depth == 2);
	CHECK(rdma_ack_cm_event(event) == 0);
	pass(RDMA_CM_EVENT_ESTABLISHED, passive);
	CHECK(state(active) == IBV_QPS_RTS && state(passive) == IBV_QPS_RTS);
	exchange(active, passive);
	exchange(passive, active);

	CHECK(rdma_disconnect(active) == 0);
	CHECK(state(active) == IBV_QPS_ERR);
	pass(RDMA_CM_EVENT_DISCONNECTED, passive);
	CHECK(rdma_disconnect(passive) == 0);
	pass(RDMA_CM_EVENT_DISCONNECTED, active);
	end(active);
	end(passive);
	end(listens);
}

static void rejecting(void)
{
	struct rdma_cm_id *listens = listener(RDMA_PS_TCP, ADDRESS);
	int port = ntohs(rdma_get_src_port(listens));
	struct rdma_cm_id *active = resolved(RDMA_PS_TCP, port);
	make_queue_pair(active);
	CHECK(rdma_connect(active, NULL) == 0);
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	struct rdma_cm_id *passive = event->id;
	CHECK(event->param.conn.responder_resources > 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_reject(passive, "no", 2) == 0);
	event = next(RDMA_CM_EVENT_REJECTED, active);
	CHECK(event->status == 28 && event->param.conn.private_data_len == IN_REJECTION);
	CHECK(memcmp(event->param.conn.private_data, "no\0", 3) == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(state(active) == IBV_QPS_ERR);
	end(passive);
	end(active);
	end(listens);

	/* Nobody listens any more. */
	active = resolved(RDMA_PS_TCP, port);
	make_queue_pair(active);
	CHECK(rdma_connect(active, NULL) == 0);
	event = next(RDMA_CM_EVENT_REJECTED, active);
	CHECK(event->status == 8);
	CHECK(rdma_ack_cm_event(event) == 0);
	end(active);
}

/* Connects, moves a message, and ends; or is rejected for this reason. */
static void meet(const char *listening, const char *peer, const char *own, int rejected)
{
	struct rdma_cm_id *listens = listener(RDMA_PS_TCP, listening);
	struct rdma_cm_id *active = resolved_to(RDMA_PS_TCP, peer, own, ntohs(rdma_get_src_port(listens)));
	make_queue_pair(active);
	CHECK(rdma_connect(active, NULL) == 0);
	struct rdma_cm_event *event;
	if (rejected) {
		event = next(RDMA_CM_EVENT_REJECTED, active);
		CHECK(event->status == rejected && rdma_ack_cm_event(event) == 0);
	} else {
		event = next(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
		struct rdma_cm_id *passive = event->id;
		CHECK(event->listen_id == listens && passive->verbs == active->verbs && rdma_ack_cm_event(event) == 0);
		CHECK(ip(rdma_get_local_addr(passive)) == inet_addr(peer) && ip(rdma_get_peer_addr(passive)) == inet_addr(own));
		CHECK(memcmp(&passive->route.addr.addr.ibaddr.sgid, &active->route.addr.addr.ibaddr.dgid, 16) == 0);
		make_queue_pair(passive);
		CHECK(rdma_accept(passive, NULL) == 0);
		pass(RDMA_CM_EVENT_ESTABLISHED, active);
		pass(RDMA_CM_EVENT_ESTABLISHED, passive);
		exchange(active, passive);
		CHECK(rdma_disconnect(active) == 0 && rdma_disconnect(passive) == 0);
		pass(RDMA_CM_EVENT_DISCONNECTED, NULL);
		pass(RDMA_CM_EVENT_DISCONNECTED, NULL);
		end(passive);
	}
	end(active);
	end(listens);
}

/* A loopback address names no interface: to listen there is to listen on all, and it is reached by the first device. */
static void loopback(void)
{
	struct rdma_cm_id *one = make(RDMA_PS_TCP), *two = make(RDMA_PS_TCP);
	CHECK(rdma_bind_addr(one, at("127.0.0.1", 7001)) == 0 && !one->verbs && rdma_get_src_port(one) == htons(7001));
	CHECK(ip(rdma_get_local_addr(one)) == inet_addr("127.0.0.1"));
	FAILS(rdma_bind_addr(two, at(ADDRESS, 7001)), EADDRINUSE);
	CHECK(rdma_bind_addr(two, at("127.0.0.1", 0)) == 0);
	CHECK(rdma_resolve_addr(two, NULL, at(ADDRESS, 7001), 2000) == 0);
	pass(RDMA_CM_EVENT_ADDR_RESOLVED, two);
	CHECK(two->verbs && ip(rdma_get_local_addr(two)) == inet_addr(ADDRESS));
	end(one);
	end(two);

	meet("127.0.0.1", ADDRESS, ADDRESS, 0);
	meet("127.0.0.1", "127.0.0.1", "127.0.0.1", 0);
	meet("0.0.0.0", "127.0.0.1", "127.0.0.1", 0);
	meet("0.0.0.0", "0.0.0.0", "127.0.0.1", 0);
	meet(ADDRESS, "127.0.0.1", "127.0.0.1", 8);
}

/* Without queue pairs of the library: the program moves its own. */
static void without_queue_pairs(void)
{
	struct rdma_cm_id *listens = listener(RDMA_PS_TCP, ADDRESS);
	struct rdma_cm_id *active = resolved(RDMA_PS_TCP, ntohs(rdma_get_src_port(listens)));
	struct ibv_cq *cq = ibv_create_cq(active->verbs, 16, NULL, NULL, 0);
	struct ibv_qp *one = make_qp(active->pd, IBV_QPT_RC, cq, NULL), *two = make_qp(active->pd, IBV_QPT_RC, cq, NULL);
	struct ibv_ece ece = {.vendor_id = 0x15b3, .options = 5};
	CHECK(rdma_set_local_ece(active, &ece) == 0);
	struct rdma_conn_param param = {.qp_num = one->qp_num, .responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	CHECK(rdma_connect(active, &param) == 0);
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	struct rdma_cm_id *passive = event->id;
	CHECK(event->param.conn.qp_num == one->qp_num);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_get_remote_ece(passive, &ece) == 0 && ece.vendor_id == 0x15b3 && ece.options == 5);

	struct ibv_qp_attr attr;
	int mask;
	for (int step = 0; step < 3; step++) {
		attr.qp_state = IBV_QPS_INIT + step;
		CHECK(rdma_init_qp_attr(passive, &attr, &mask) == 0 && attr.qp_state == (enum ibv_qp_state)(IBV_QPS_INIT + step));
		CHECK(ibv_modify_qp(two, &attr, mask) == 0);
	}
	param.qp_num = two->qp_num;
	CHECK(rdma_accept(passive, &param) == 0);
	event = next(RDMA_CM_EVENT_CONNECT_RESPONSE, active);
	CHECK(event->param.conn.qp_num == two->qp_num);
	CHECK(rdma_ack_cm_event(event) == 0);
	for (int step = 0; step < 3; step++) {
		attr.qp_state = IBV_QPS_INIT + step;
		CHECK(rdma_init_qp_attr(active, &attr, &mask) == 0);
		CHECK(ibv_modify_qp(one, &attr, mask) == 0);
	}
	CHECK(rdma_establish(active) == 0);
	pass(RDMA_CM_EVENT_ESTABLISHED, passive);
	receive_nothing(two);
	send_nothing(one);
	CHECK(completion(cq).status == IBV_WC_SUCCESS && completion(cq).status == IBV_WC_SUCCESS);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && ibv_destroy_cq(cq) == 0);
	end(active);
	end(passive);
	end(listens);
}

static struct rdma_cm_id *endpoint(int passive, int port, struct ibv_qp_init_attr *attr)
{
	char service[8];
	snprintf(service, sizeof service, "%d", port);
	struct rdma_addrinfo *found, hints = {.ai_flags = passive ? RAI_PASSIVE : 0, .ai_port_space = RDMA_PS_TCP};
	CHECK(rdma_getaddrinfo(ADDRESS, service, &hints, &found) == 0);
	struct rdma_cm_id *id;
	CHECK(rdma_create_ep(&id, found, NULL, attr) == 0);
	rdma_freeaddrinfo(found);
	return id;
}

static volatile int served;

static void *serve(void *listens)
{
	struct rdma_cm_id *id;
	CHECK(rdma_get_request(listens, &id) == 0);
	CHECK(id->qp && id->channel != ((struct rdma_cm_id *)listens)->channel);
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_accept(id, NULL) == 0);
	struct ibv_wc wc;
	CHECK(rdma_post_sendv(id, NULL, NULL, 0, IBV_SEND_SIGNALED) == 0);
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	served = 1;
	/* (Who disconnects waits for the other one.) */
	CHECK(rdma_disconnect(id) == 0);
	return id;
}

/* Calls that wait for their events. */
static void endpoints(void)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC}, own = attr;
	struct rdma_cm_id *listens = endpoint(1, 0, &attr);
	CHECK(rdma_listen(listens, 0) == 0);
	struct rdma_cm_id *active = endpoint(0, ntohs(rdma_get_src_port(listens)), &own);
	CHECK(active->qp && state(active) == IBV_QPS_INIT);
	CHECK(rdma_post_recvv(active, NULL, NULL, 0) == 0);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, serve, listens) == 0);
	CHECK(rdma_connect(active, NULL) == 0);
	CHECK(active->event && active->event->event == RDMA_CM_EVENT_ESTABLISHED);
	struct ibv_wc wc;
	CHECK(rdma_get_recv_comp(active, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	while (!served)
		usleep(1000);
	CHECK(rdma_disconnect(active) == 0);
	void *passive;
	CHECK(pthread_join(thread, &passive) == 0);
	rdma_destroy_ep(active);
	rdma_destroy_ep(passive);

	rdma_destroy_ep(listens);
	active = endpoint(0, 7001, &own);
	FAILS(rdma_connect(active, NULL), ECONNREFUSED);
	rdma_destroy_ep(active);
}

static void *serve_xrc(void *listens)
{
	struct rdma_cm_id *id;
	CHECK(rdma_get_request(listens, &id) == 0);
	CHECK(id->qp && id->qp_type == IBV_QPT_XRC_RECV && !id->send_cq);
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
	CHECK(rdma_create_srq(id, NULL, &attr) == 0);
	uint32_t number;
	CHECK(ibv_get_srq_num(id->srq, &number) == 0);
	CHECK(rdma_post_recvv(id, NULL, NULL, 0) == 0);
	struct rdma_conn_param param = {.private_data = &number, .private_data_len = sizeof number};
	CHECK(rdma_accept(id, &param) == 0);
	struct ibv_wc wc;
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	served = 1;
	CHECK(rdma_disconnect(id) == 0);
	return id;
}

/* Endpoints of XRC: what they need and the program does not bring is the library's. */
static void xrc_endpoints(void)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_recv_wr = 1, .max_recv_sge = 1}};
	struct ibv_qp_init_attr own = {.cap = {.max_send_wr = 1, .max_send_sge = 1}, .sq_sig_all = 1};
	struct rdma_addrinfo *found, hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_IB, .ai_qp_type = IBV_QPT_XRC_RECV};
	struct rdma_cm_id *listens, *active;
	CHECK(rdma_getaddrinfo(ADDRESS, "7002", &hints, &found) == 0 && rdma_create_ep(&listens, found, NULL, &attr) == 0);
	rdma_freeaddrinfo(found);
	CHECK(rdma_listen(listens, 0) == 0);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, serve_xrc, listens) == 0);
	hints.ai_flags = 0;
	hints.ai_qp_type = IBV_QPT_XRC_SEND;
	CHECK(rdma_getaddrinfo(ADDRESS, "7002", &hints, &found) == 0 && rdma_create_ep(&active, found, NULL, &own) == 0);
	rdma_freeaddrinfo(found);
	CHECK(rdma_connect(active, NULL) == 0);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	memcpy(&wr.qp_type.xrc.remote_srqn, active->event->param.conn.private_data, sizeof(uint32_t));
	CHECK(ibv_post_send(active->qp, &wr, &bad) == 0);
	struct ibv_wc wc;
	CHECK(rdma_get_send_comp(active, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	while (!served)
		usleep(1000);
	CHECK(rdma_disconnect(active) == 0);
	void *passive;
	CHECK(pthread_join(thread, &passive) == 0);
	rdma_destroy_ep(active);
	rdma_destroy_ep(passive);
	rdma_destroy_ep(listens);
}

static void datagrams(void)
{
	struct rdma_cm_id *listens = listener(RDMA_PS_UDP, ADDRESS);
	struct rdma_cm_id *active = resolved(RDMA_PS_UDP, ntohs(rdma_get_src_port(listens)));
	make_queue_pair(active);
	CHECK(state(active) == IBV_QPS_RTS);
	struct rdma_conn_param param = {.private_data = "who", .private_data_len = 3};
	CHECK(rdma_connect(active, &param) == 0);
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	struct rdma_cm_id *passive = event->id;
	CHECK(event->param.ud.private_data_len == 180 && memcmp(event->param.ud.private_data, "who\0", 4) == 0);
	make_queue_pair(passive);
	CHECK(rdma_ack_cm_event(event) == 0);
	param = (struct rdma_conn_param){.private_data = "me", .private_data_len = 2, .qp_num = passive->qp->qp_num};
	CHECK(rdma_accept(passive, &param) == 0);
	event = next(RDMA_CM_EVENT_ESTABLISHED, active);
	struct rdma_ud_param *got = &event->param.ud;
	CHECK(got->qp_num == passive->qp->qp_num && got->qkey == RDMA_UDP_QKEY && got->ah_attr.is_global);
	CHECK(got->private_data_len == 136 && memcmp(got->private_data, "me\0", 3) == 0);
	struct ibv_ah *ah = ibv_create_ah(active->pd, &got->ah_attr);
	CHECK(ah);
	static char memory[64];
	struct ibv_mr *mr = rdma_reg_msgs(passive, memory, sizeof memory);
	CHECK(mr && rdma_post_recv(passive, NULL, memory, sizeof memory, mr) == 0);
	CHECK(rdma_post_ud_send(active, NULL, memory, 0, NULL, IBV_SEND_SIGNALED, ah, got->qp_num) == 0);
	struct ibv_wc wc;
	CHECK(rdma_get_send_comp(active, &wc) == 1 && rdma_get_recv_comp(passive, &wc) == 1 && wc.src_qp == active->qp->qp_num);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(ibv_destroy_ah(ah) == 0 && rdma_dereg_mr(mr) == 0);
	end(active);
	end(passive);
	end(listens);
}

static struct rdma_cm_id *member(void)
{
	struct rdma_cm_id *id = make(RDMA_PS_UDP);
	CHECK(rdma_bind_addr(id, at(ADDRESS, 0)) == 0);
	CHECK(rdma_resolve_addr(id, NULL, at("239.1.2.3", 0), 2000) == 0);
	pass(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	make_queue_pair(id);
	return id;
}

static void groups(void)
{
	struct rdma_cm_id *receives = member(), *sends = member();
	CHECK(rdma_join_multicast(receives, at("239.1.2.3", 0), NULL) == 0);
	pass(RDMA_CM_EVENT_MULTICAST_JOIN, receives);
	int mark;
	struct rdma_cm_join_mc_attr_ex wanted = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = at("239.1.2.3", 0),
	};
	CHECK(rdma_join_multicast_ex(sends, &wanted, &mark) == 0);
	FAILS(rdma_join_multicast_ex(sends, &wanted, &mark), EADDRINUSE);
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_MULTICAST_JOIN, sends);
	struct rdma_ud_param *got = &event->param.ud;
	CHECK(got->private_data == &mark && got->qp_num == 0xffffff && got->qkey == RDMA_UDP_QKEY);
	struct ibv_ah *ah = ibv_create_ah(sends->pd, &got->ah_attr);
	CHECK(ah && rdma_ack_cm_event(event) == 0);
	CHECK(rdma_post_ud_send(sends, NULL, &mark, 0, NULL, IBV_SEND_SIGNALED, ah, 0xffffff) == 0);
	struct ibv_wc wc;
	CHECK(rdma_get_send_comp(sends, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_leave_multicast(receives, at("239.1.2.3", 0)) == 0);
	FAILS(rdma_leave_multicast(receives, at("239.1.2.3", 0)), EADDRNOTAVAIL);
	CHECK(ibv_destroy_ah(ah) == 0);
	end(sends);
	end(receives);
}

int main(int argc, char **argv)
{
	static const struct subtest tests[] = {
		{"addresses", addresses},
		{"events_of_the_program", events_of_the_program},
		{"channels", channels},
		{"destroying_waits", destroying_waits},
		{"unreachable", unreachable},
		{"paths", paths},
		{"connecting", connecting},
		{"rejecting", rejecting},
		{"loopback", loopback},
		{"without_queue_pairs", without_queue_pairs},
		{"endpoints", endpoints},
		{"xrc_endpoints", xrc_endpoints},
		{"datagrams", datagrams},
		{"groups", groups},
		{0},
	};
	channel = rdma_create_event_channel();
	CHECK(channel);
	int status = run_tests(tests, argc, argv);
	rdma_destroy_event_channel(channel);
	return status;
}

/* Devices and contexts: how often they are opened, by whom, and what they say of themselves. */
#include "common.h"
#include <endian.h>
#include <sys/wait.h>

static void queries(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && !strcmp(ibv_get_device_name(list[0]), "vnic0"));
	struct ibv_device *device = list[0];
	uint64_t guid = ibv_get_device_guid(device);
	CHECK(guid && guid == ibv_get_device_guid(device));
	struct ibv_context *context = ibv_open_device(device);
	ibv_free_device_list(list);
	CHECK(context && context->device == device && context->num_comp_vectors == 1);
	CHECK(fcntl(context->cmd_fd, F_GETFD) >= 0 && fcntl(context->async_fd, F_GETFD) >= 0);

	struct ibv_device_attr attr;
	CHECK(ibv_query_device(context, &attr) == 0);
	CHECK(attr.node_guid == guid && attr.phys_port_cnt == 1 && attr.max_qp > 1 && attr.fw_ver[0]);
	CHECK(attr.atomic_cap == IBV_ATOMIC_HCA && !(attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE));
	struct {
		struct ibv_device_attr_ex attr;
		char behind[16];
	} longer;
	memset(&longer, 0x55, sizeof longer);
	CHECK(ibv_query_device_ex(context, NULL, &longer.attr) == 0 && longer.behind[0] == 0x55);
	CHECK(longer.attr.completion_timestamp_mask && longer.attr.hca_core_clock == 1000000);
	CHECK(longer.attr.comp_mask == 0 && longer.attr.phys_port_cnt_ex == 1);
	CHECK(verbs_get_ctx(context)->query_device_ex(context, NULL, &longer.attr, sizeof attr - 1) == EINVAL);
	struct ibv_query_device_ex_input input = {.comp_mask = 1};
	CHECK(ibv_query_device_ex(context, &input, &longer.attr) == EINVAL);

	struct ibv_port_attr port;
	CHECK(ibv_query_port(context, 1, &port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET && port.gid_tbl_len > 2);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL && ibv_query_port(context, 0, &port) == EINVAL);
	/* Programs of long ago know less of it, and have no room for more. */
	memset(&port, 0x55, sizeof port);
	CHECK((ibv_query_port)(context, 1, (struct _compat_ibv_port_attr *)&port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE && port.port_cap_flags2 == 0x5555);

	struct ibv_gid_entry entries[8], entry;
	ssize_t count = ibv_query_gid_table(context, entries, 8, 0);
	CHECK(count > 1 && count <= 8);
	CHECK(ibv_query_gid_table(context, entries, count - 1, 0) == -EINVAL);
	CHECK(ibv_query_gid_table(context, entries, 8, 1) == -EOPNOTSUPP);
	for (int i = 0; i < count; i++) {
		CHECK(ibv_query_gid_ex(context, 1, entries[i].gid_index, &entry, 0) == 0);
		CHECK(!memcmp(&entry, &entries[i], sizeof entry) && entry.port_num == 1 && entry.ndev_ifindex);
	}
	CHECK(entries[1].gid_type == IBV_GID_TYPE_ROCE_V2);
	union ibv_gid gid, none = {{0}};
	uint32_t empty = entries[count - 1].gid_index + 1;
	CHECK(ibv_query_gid_ex(context, 1, empty, &entry, 0) == ENODATA);
	CHECK(ibv_query_gid(context, 1, empty, &gid) == 0 && !memcmp(&gid, &none, sizeof gid));
	CHECK(ibv_query_gid_ex(context, 1, port.gid_tbl_len, &entry, 0) == EINVAL);
	CHECK(ibv_query_gid_ex(context, 0, 0, &entry, 0) == EINVAL);
	CHECK(ibv_query_gid(context, 1, -1, &gid) == -1 && errno == EINVAL);

	__be16 pkey;
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
	CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1);
	CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0 && ibv_get_pkey_index(context, 1, 0x7fff) == -1);

	struct ibv_values_ex before = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK}, after = before;
	CHECK(ibv_query_rt_values_ex(context, &before) == 0 && ibv_query_rt_values_ex(context, &after) == 0);
	CHECK(before.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && before.raw_clock.tv_nsec <= after.raw_clock.tv_nsec);

	struct ibv_ah_attr peer = address(context);
	uint8_t mac[ETHERNET_LL_SIZE] = {0};
	uint16_t vlan = 0;
	CHECK(ibv_resolve_eth_l2_from_gid(context, &peer, mac, &vlan) == 0 && vlan == 0xffff);
	/* A GID of the adapter's address has it, but for the bit that says who gave it. */
	CHECK((mac[0] ^ 2) == peer.grh.dgid.raw[8] && mac[5] == peer.grh.dgid.raw[15]);

	REFUSED(ibv_create_counters(context, NULL), EOPNOTSUPP);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct ibv_parent_domain_init_attr parent = {.pd = pd, .comp_mask = 1 << 20};
	REFUSED(ibv_alloc_parent_domain(context, &parent), EOPNOTSUPP);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
}

/* All contexts of a process share the device; objects outlive the context that they were made in. */
static void closing(void)
{
	struct ibv_context *first = open_device(), *second = open_device();
	CHECK(first != second && first->device == second->device && first->async_fd != second->async_fd);
	struct ibv_pd *pd = ibv_alloc_pd(first);
	CHECK(pd && ibv_close_device(first) == 0);
	struct ibv_cq *cq = ibv_create_cq(second, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(pd, IBV_QPT_RC, cq, NULL);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_close_device(second) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	/* The device is free again, and there is no end of that. */
	for (int i = 0; i < 20; i++)
		CHECK(ibv_close_device(open_device()) == 0);
}

static void *open_and_close(void *unused)
{
	for (int i = 0; i < 50; i++) {
		struct ibv_context *context = open_device();
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd && ibv_dealloc_pd(pd) == 0);
		CHECK(ibv_close_device(context) == 0);
	}
	return unused;
}

static void threads(void)
{
	pthread_t all[4];
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&all[i], NULL, open_and_close, NULL) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
}

/* A child may close what it has of its parent's, which does no harm to the parent. */
static void children(void)
{
	CHECK(ibv_fork_init() == 0);
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child)
		_exit(ibv_close_device(context) == 0 ? 0 : 1);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	struct ibv_port_attr port;
	CHECK(ibv_query_port(context, 1, &port) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

int main(int argc, char **argv)
{
	static const struct subtest tests[] = {
		{"queries", queries}, {"closing", closing}, {"threads", threads}, {"children", children}, {NULL, NULL},
	};
	return run_tests(tests, argc, argv);
}

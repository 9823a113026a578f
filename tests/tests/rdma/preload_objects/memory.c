/* Memory of other kinds than the program's own. */
#include "common.h"
#include <dlfcn.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *peer;
static char buffer[16384] __attribute__((aligned(4096)));
static struct ibv_mr *plain_mr;

/* Two queue pairs: the second has nothing to do but to obey. */
static void begin(void)
{
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	qp = make_qp(pd, IBV_QPT_RC, cq, NULL);
	peer = make_qp(pd, IBV_QPT_RC, cq, NULL);
	connect_qps(qp, peer);
	struct ibv_qp_attr attr = {.qp_access_flags = ALL};
	CHECK(ibv_modify_qp(peer, &attr, IBV_QP_ACCESS_FLAGS) == 0);
	plain_mr = ibv_reg_mr(pd, buffer, sizeof buffer, ALL);
	CHECK(plain_mr);
}

static void end(void)
{
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(peer) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(plain_mr) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

/* One request: how it ended. */
static enum ibv_wc_status ended(enum ibv_wr_opcode opcode, uint64_t at, uint32_t lkey, uint32_t length, uint64_t peers, uint32_t rkey)
{
	struct ibv_sge sge = {.addr = at, .length = length, .lkey = lkey};
	struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1}, *bad;
	wr.wr.rdma.remote_addr = peers;
	wr.wr.rdma.rkey = rkey;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	return completion(cq).status;
}

/* Bytes go into the memory of a file by one key and come back by it, local and remote, and the file has them. */
static void there_and_back(struct ibv_mr *mr, int file, off_t offset, uint64_t iova)
{
	CHECK(mr && mr->length == 8192 && mr->addr == NULL && mr->pd == pd);
	for (int i = 0; i < 8192; i++)
		buffer[i] = (char)(i * 7 + i / 256);
	CHECK(ended(IBV_WR_RDMA_WRITE, (uint64_t)buffer, plain_mr->lkey, 8192, iova, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(pread(file, buffer + 8192, 8192, offset) == 8192);
	CHECK(memcmp(buffer, buffer + 8192, 8192) == 0);
	CHECK(pwrite(file, "0123456789abcdef", 16, offset + 4090) == 16);
	CHECK(ended(IBV_WR_RDMA_READ, (uint64_t)buffer, plain_mr->lkey, 16, iova + 4090, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(memcmp(buffer, "0123456789abcdef", 16) == 0);
	CHECK(ended(IBV_WR_RDMA_WRITE, iova + 4090, mr->lkey, 16, (uint64_t)buffer + 32, plain_mr->rkey) == IBV_WC_SUCCESS);
	CHECK(memcmp(buffer + 32, "0123456789abcdef", 16) == 0);
}

/* By ibv_reg_mr_ex of newer headers (rdma-core 59). */
static struct ibv_mr *register_newer(uint64_t offset, size_t length, int file)
{
	struct {
		size_t length;
		unsigned access;
		uint64_t comp_mask, iova;
		void *addr;
		int fd;
		uint64_t fd_offset;
		void *dmah, *buf;
	} attr = {.length = length, .access = ALL, .comp_mask = 4 | 8 | 1, .fd = file, .fd_offset = offset};
	struct ibv_mr *(*reg)(struct ibv_pd *, void *) = dlsym(RTLD_DEFAULT, "ibv_reg_mr_ex");
	CHECK(reg);
	struct ibv_mr *mr = reg(pd, &attr);
	static const uint64_t wrong[] = {4, 4 | 1, 8 | 1, 4 | 8, 4 | 8 | 2 | 1, 1};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		attr.comp_mask = wrong[i];
		REFUSED(reg(pd, &attr), EINVAL);
	}
	attr.comp_mask = 4 | 8 | 1 | 16;
	REFUSED(reg(pd, &attr), EOPNOTSUPP);
	return mr;
}

static void dmabufs(void)
{
	begin();
	int file = memfd_create("frames", MFD_ALLOW_SEALING);
	CHECK(file >= 0 && ftruncate(file, 65536) == 0);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, ALL), EBADF);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 1000, ALL), EBADF);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 65537, 0, file, ALL), EINVAL);
	REFUSED(ibv_reg_dmabuf_mr(pd, UINT64_MAX, 2, UINT64_MAX, file, ALL), EINVAL);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 0, 0, file, ALL), EINVAL);
	REFUSED(ibv_reg_dmabuf_mr(pd, 16, 4096, 0, file, ALL), EINVAL);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, file, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	int other = open("/dev/zero", O_RDWR);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, other, ALL), EINVAL);
	CHECK(close(other) == 0);
	char name[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", file);
	other = open(name, O_RDONLY);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, other, ALL), EACCES);
	CHECK(close(other) == 0);

	/* Not mapped here, and not even open any more. */
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 12288 + 100, 8192, 0x7000064, file, ALL);
	there_and_back(mr, file, 12288 + 100, 0x7000064);
	uint64_t last = 0x7000064 + 8191;
	CHECK(ended(IBV_WR_RDMA_WRITE, (uint64_t)buffer, plain_mr->lkey, 1, last, mr->rkey) == IBV_WC_SUCCESS);
	struct ibv_mr *again = register_newer(12288, 4096, file);
	other = dup(file);
	CHECK(close(file) == 0);
	CHECK(ended(IBV_WR_RDMA_READ, (uint64_t)buffer, plain_mr->lkey, 16, 100, again->rkey) == IBV_WC_SUCCESS);
	CHECK(ended(IBV_WR_RDMA_READ, (uint64_t)buffer, plain_mr->lkey, 2, last, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dereg_mr(again) == 0);
	CHECK(close(other) == 0);
	end();
}

/* A file of this program's that loses its memory costs this program its device, and nobody else anything. */
static void shrinking(void)
{
	begin();
	int file = memfd_create("frames", 0);
	CHECK(file >= 0 && ftruncate(file, 8192) == 0);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, 8192, 0, file, ALL);
	CHECK(mr && ftruncate(file, 0) == 0);
	struct ibv_sge sge = {.addr = (uint64_t)buffer, .length = 64, .lkey = plain_mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1}, *bad;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
}

/* A dma-buf of the kernel's exporter for programs, of a part of a file. */
static int export_part(int *file, off_t offset, size_t size)
{
	int driver = open("/dev/udmabuf", O_RDWR);
	*file = memfd_create("frames", MFD_ALLOW_SEALING);
	CHECK(driver >= 0 && *file >= 0 && ftruncate(*file, 65536) == 0 && fcntl(*file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	struct udmabuf_create create = {.memfd = *file, .flags = UDMABUF_FLAGS_CLOEXEC, .offset = offset, .size = size};
	int exported = ioctl(driver, UDMABUF_CREATE, &create);
	CHECK(exported >= 0 && close(driver) == 0);
	return exported;
}

static void udmabuf(void)
{
	begin();
	int file, exported = export_part(&file, 4096, 32768);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 32769, 0, exported, ALL), EINVAL);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 8192, 8192, 0x7000000, exported, ALL);
	there_and_back(mr, file, 4096 + 8192, 0x7000000);
	CHECK(ibv_dereg_mr(mr) == 0);
	end();
}

/* The adapter's settings forbid memory of drivers. */
static void forbidden(void)
{
	begin();
	int file, exported = export_part(&file, 0, 4096);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, exported, ALL), EOPNOTSUPP);
}

/* What is written there is gone, and what is read is zeros. */
static void null_regions(void)
{
	begin();
	struct ibv_mr *mr = ibv_alloc_null_mr(pd);
	CHECK(mr && mr->pd == pd && mr->addr == NULL && mr->length == SIZE_MAX);
	memset(buffer, 7, sizeof buffer);
	CHECK(ended(IBV_WR_RDMA_READ, 12345, mr->lkey, 10000, (uint64_t)buffer, plain_mr->rkey) == IBV_WC_SUCCESS);
	CHECK(buffer[0] == 7 && memcmp(buffer, buffer + 1, sizeof buffer - 1) == 0);
	CHECK(ended(IBV_WR_RDMA_WRITE, 0, mr->lkey, 10000, (uint64_t)buffer, plain_mr->rkey) == IBV_WC_SUCCESS);
	for (size_t i = 0; i < sizeof buffer; i++)
		CHECK(buffer[i] == (i < 10000 ? 0 : 7));
	/* A receive may throw away the middle of a message. */
	memset(buffer, 9, 100);
	struct ibv_sge parts[] = {{(uint64_t)buffer + 4096, 10, plain_mr->lkey}, {0, 80, mr->lkey}, {(uint64_t)buffer + 4106, 10, plain_mr->lkey}};
	struct ibv_qp_init_attr init = plain(IBV_QPT_RC, cq);
	init.cap.max_recv_sge = 3;
	struct ibv_qp *two[2] = {ibv_create_qp(pd, &init), ibv_create_qp(pd, &init)};
	connect_qps(two[0], two[1]);
	struct ibv_recv_wr receive = {.sg_list = parts, .num_sge = 3}, *bad_receive;
	CHECK(ibv_post_recv(two[1], &receive, &bad_receive) == 0);
	struct ibv_sge from = {(uint64_t)buffer, 100, plain_mr->lkey};
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &from, .num_sge = 1}, *bad;
	CHECK(ibv_post_send(two[0], &send, &bad) == 0);
	CHECK(completion(cq).status == IBV_WC_SUCCESS && completion(cq).status == IBV_WC_SUCCESS);
	for (int i = 4096; i < 4116; i++)
		CHECK(buffer[i] == 9);
	CHECK(buffer[4116] == 0);
	CHECK(ibv_destroy_qp(two[0]) == 0 && ibv_destroy_qp(two[1]) == 0);
	/* It is not for peers. */
	CHECK(ended(IBV_WR_RDMA_WRITE, (uint64_t)buffer, plain_mr->lkey, 8, 0, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
	end();
}

/* What this process has opened and made, under other pointers. */
static void imports(void)
{
	begin();
	int copy = dup(context->cmd_fd);
	struct ibv_context *other = ibv_import_device(copy);
	CHECK(other && other != context && other->device == context->device);
	struct ibv_pd *same = ibv_import_pd(other, pd->handle);
	CHECK(same && same != pd && same->handle == pd->handle && same->context == other);
	REFUSED(ibv_import_pd(other, pd->handle + 1000), ENOENT);
	struct ibv_mr *mr = ibv_import_mr(same, plain_mr->handle);
	CHECK(mr && mr->lkey == plain_mr->lkey && mr->rkey == plain_mr->rkey && mr->length == sizeof buffer && mr->addr == NULL);
	REFUSED(ibv_import_mr(same, plain_mr->handle + 1000), ENOENT);
	/* A queue pair in the imported domain uses the region. */
	struct ibv_cq *cq2 = ibv_create_cq(other, 16, NULL, NULL, 0);
	struct ibv_qp *qp2 = make_qp(same, IBV_QPT_RC, cq2, NULL);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	connect_qps(qp2, qp2);
	memset(buffer, 3, 8);
	struct ibv_sge sge = {(uint64_t)buffer, 8, mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1}, *bad;
	wr.wr.rdma.remote_addr = (uint64_t)buffer + 8;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(ibv_post_send(qp2, &wr, &bad) == 0);
	CHECK(completion(cq2).status == IBV_WC_SUCCESS && memcmp(buffer, buffer + 8, 8) == 0);
	CHECK(ibv_destroy_qp(qp2) == 0 && ibv_destroy_cq(cq2) == 0);
	/* Device memory, too. */
	struct ibv_alloc_dm_attr attr = {.length = 64};
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr), *dm2 = ibv_import_dm(other, dm->handle);
	CHECK(dm2 && ibv_memcpy_to_dm(dm, 0, "12345678", 8) == 0);
	char back[8];
	CHECK(ibv_memcpy_from_dm(back, dm2, 0, 8) == 0 && memcmp(back, "12345678", 8) == 0);
	REFUSED(ibv_import_dm(other, dm->handle + 1), ENOENT);
	/* The end of an import is nothing to the object itself, and an object that has ended is not found. */
	uint32_t was = dm->handle;
	ibv_unimport_dm(dm2);
	CHECK(ibv_memcpy_from_dm(back, dm, 0, 8) == 0);
	CHECK(ibv_free_dm(dm) == 0);
	REFUSED(ibv_import_dm(other, was), ENOENT);
	was = plain_mr->handle;
	ibv_unimport_mr(mr);
	CHECK(ended(IBV_WR_RDMA_WRITE, (uint64_t)buffer, plain_mr->lkey, 8, (uint64_t)buffer + 64, plain_mr->rkey) == IBV_WC_SUCCESS);
	ibv_unimport_pd(same);
	end();
	same = ibv_alloc_pd(other);
	REFUSED(ibv_import_mr(same, was), ENOENT);
	CHECK(ibv_dealloc_pd(same) == 0);
	CHECK(ibv_close_device(other) == 0);
	CHECK(fcntl(copy, F_GETFD) == -1 && errno == EBADF);
	/* A descriptor of no device. */
	copy = memfd_create("vnic-commands", 0);
	REFUSED(ibv_import_device(copy), EOPNOTSUPP);
	close(copy);
}

/* Pages of a region stay the device's, whatever the program does with its mapping; what is mapped there anew is not the region's. */
static void unmapped(void)
{
	begin();
	char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memset(memory, 5, 65536);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 65536, ALL);
	uint64_t at = (uint64_t)memory + 8192;
	CHECK(mr && madvise(memory, 65536, MADV_DONTNEED) == 0);
	CHECK(ended(IBV_WR_RDMA_READ, (uint64_t)buffer, plain_mr->lkey, 8, at, mr->rkey) == IBV_WC_SUCCESS && buffer[0] == 5);
	CHECK(munmap(memory, 65536) == 0);
	CHECK(ended(IBV_WR_RDMA_READ, (uint64_t)buffer, plain_mr->lkey, 8, at, mr->rkey) == IBV_WC_SUCCESS && buffer[7] == 5);
	CHECK(mmap(memory, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
	CHECK(ended(IBV_WR_RDMA_WRITE, (uint64_t)buffer, plain_mr->lkey, 8, at, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(memory[8192] == 0);
	struct ibv_mr *anew = ibv_reg_mr(pd, memory, 65536, ALL);
	CHECK(anew && ended(IBV_WR_RDMA_WRITE, (uint64_t)buffer, plain_mr->lkey, 8, at, anew->rkey) == IBV_WC_SUCCESS);
	CHECK(memory[8192] == 5 && memory[8199] == 5 && memory[8200] == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(anew) == 0);
	CHECK(munmap(memory, 65536) == 0);
	end();
}

int main(int argc, char **argv)
{
	context = open_device();
	return run_tests((const struct subtest[]){
		{"dmabufs", dmabufs},
		{"shrinking", shrinking},
		{"udmabuf", udmabuf},
		{"forbidden", forbidden},
		{"null_regions", null_regions},
		{"imports", imports},
		{"unmapped", unmapped},
		{0},
	}, argc, argv);
}

/* Memory of other kinds than the program's own. */
#include "common.h"
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
	struct ibv_mr *again = ibv_reg_dmabuf_mr(pd, 12288, 4096, 0, file, ALL);
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

/* A dma-buf of the kernel's own exporter for programs. Exit status 77: there is none here. */
static void udmabuf(void)
{
	int driver = open("/dev/udmabuf", O_RDWR);
	if (driver < 0) {
		printf("there is no /dev/udmabuf (%s)\n", strerror(errno));
		exit(77);
	}
	begin();
	int file = memfd_create("frames", MFD_ALLOW_SEALING);
	CHECK(file >= 0 && ftruncate(file, 65536) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	struct udmabuf_create create = {.memfd = file, .flags = UDMABUF_FLAGS_CLOEXEC, .offset = 4096, .size = 32768};
	int exported = ioctl(driver, UDMABUF_CREATE, &create);
	CHECK(exported >= 0);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 32769, 0, exported, ALL), EINVAL);
	there_and_back(ibv_reg_dmabuf_mr(pd, 8192, 8192, 0x7000000, exported, ALL), file, 4096 + 8192, 0x7000000);
}

int main(int argc, char **argv)
{
	context = open_device();
	return run_tests((const struct subtest[]){
		{"dmabufs", dmabufs},
		{"shrinking", shrinking},
		{"udmabuf", udmabuf},
		{0},
	}, argc, argv);
}

// Two agents of Linux's management datagrams, on Soft-RoCE devices rxe0 and rxe1 of the two ends of a veth: rxe0's asks rxe1's for a
// table of MCMemberRecords, which the kernel sends as an RMPP transfer. Prints the datagrams at the device v0: ASK those that leave,
// SA those that come. Usage: linux RECORDS
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <rdma/ib_user_mad.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAD = 256, HEADERS = 56, RECORD = 56, AT = 14 + 40 + 8 + 12 + 8 };

static void first_line(char *line, int size, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, size, file)) err(1, "%s", path);
    fclose(file);
    line[strcspn(line, "\n")] = 0;
}

// An agent of subnet administration at queue pair 1 of a device; a server takes SubnAdmGetTable.
static int agent(const char *device, int server, uint32_t *id) {
    for (int i = 0; i < 8; i++) {
        char path[128], name[64];
        snprintf(path, sizeof path, "/sys/class/infiniband_mad/umad%d/ibdev", i);
        if (access(path, R_OK)) continue;
        first_line(name, sizeof name, path);
        if (strcmp(name, device)) continue;
        snprintf(path, sizeof path, "/dev/infiniband/umad%d", i);
        int umad = open(path, O_RDWR);
        struct ib_user_mad_reg_req request = {.qpn = 1, .mgmt_class = 3, .mgmt_class_version = 2, .rmpp_version = 1};
        if (server) request.method_mask[0] = 1u << 0x12;
        if (umad < 0 || ioctl(umad, IB_USER_MAD_ENABLE_PKEY) || ioctl(umad, IB_USER_MAD_REGISTER_AGENT, &request)) err(1, "%s", path);
        *id = request.id;
        return umad;
    }
    errx(1, "no %s", device);
}

static void send_to(int umad, uint32_t id, const char *device, uint8_t *bytes, int length) {
    struct ib_user_mad_hdr *header = (void *)bytes;
    char path[128], gid[64];
    memset(header, 0, sizeof *header);
    header->id = id;
    header->retries = 3;
    header->qpn = htonl(1);
    header->qkey = htonl(0x80010000);
    header->grh_present = 1;
    header->hop_limit = 64;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/gids/0", device);
    first_line(gid, sizeof gid, path);
    // Whoever asks waits for an answer.
    if (!(bytes[sizeof *header + 3] & 0x80)) header->timeout_ms = 10000;
    if (inet_pton(AF_INET6, gid, header->gid) != 1 || write(umad, bytes, sizeof *header + length) < 0) err(1, "send");
}

static void capture(int from) {
    static uint8_t frame[2048];
    struct sockaddr_ll way;
    socklen_t size = sizeof way;
    for (ssize_t n; (n = recvfrom(from, frame, sizeof frame, 0, (void *)&way, &size)) >= 0; size = sizeof way) {
        // UDP over IPv6.
        if (n < AT + MAD || frame[12] != 0x86 || frame[20] != 17) continue;
        printf("%s ", way.sll_pkttype == PACKET_OUTGOING ? "ASK" : "SA");
        for (int i = 0; i < MAD; i++) printf("%02x", frame[AT + i]);
        printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    static uint8_t bytes[1 << 16];
    const int records = argc > 1 ? atoi(argv[1]) : 0, header = sizeof(struct ib_user_mad_hdr);
    uint8_t *mad = bytes + header;
    if (records < 1 || records > 255) errx(2, "usage: linux RECORDS   (1 to 255)");

    int wire = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct sockaddr_ll device = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex("v0")};
    if (bind(wire, (void *)&device, sizeof device)) err(1, "v0");
    pid_t child = fork();
    if (!child) capture(wire);

    uint32_t asks, answers;
    int asker = agent("rxe0", 0, &asks), server = agent("rxe1", 1, &answers);
    memcpy(mad, (uint8_t[]){1, 3, 2, 0x12}, 4);
    mad[15] = 7;
    mad[17] = 0x38;
    send_to(asker, asks, "rxe1", bytes, MAD);
    if (read(server, bytes, sizeof bytes) < 0) err(1, "question");
    mad[3] |= 0x80;
    // RMPP: version 1, DATA, active.
    memcpy(mad + 24, (uint8_t[]){1, 1, 1}, 3);
    mad[45] = RECORD / 8;
    for (int n = 0; n < records; n++) memset(mad + HEADERS + n * RECORD, n + 1, 52);
    send_to(server, answers, "rxe0", bytes, HEADERS + records * RECORD);
    if (read(asker, bytes, sizeof bytes) < 0) err(1, "answer");
    sleep(1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}

/*
 * The driver of a network device with data center bridging, for a program that is started with this library in LD_PRELOAD.
 *
 * Requests of rtnetlink for DCB (RTM_GETDCB and RTM_SETDCB, linux/dcbnl.h) that name the device VNIC_DCB_DEVICE are answered here, as the
 * kernel answers them for a driver that has all of DCB and leaves DCBX to a program of the host: eight traffic classes, all of which can
 * be paused. All else goes to the kernel. What the program sets is appended to the file VNIC_DCB_RECORD, a line a request:
 *
 *   dcbx MODE              flags of DCB_CAP_DCBX_*, hexadecimal
 *   state 0|1
 *   pfc MAP                paused priorities, a bit each, hexadecimal
 *   pfc_state 0|1
 *   tx|rx MAP:SHARE ...    for each of the eight classes: its priorities, a bit each, hexadecimal, and the share of the group of its number
 *   app IDTYPE ID MAP      0 EtherType, 1 port; both numbers hexadecimal
 *   all                    what was set acts from now on
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLASSES 8
#define FILES 1024

/* The answer that a socket has not read yet. */
static struct answer {
    int length;
    _Alignas(NLMSG_ALIGNTO) unsigned char bytes[512];
} *answers[FILES];

static unsigned char state, dcbx = DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_CEE | DCB_CAP_DCBX_VER_IEEE;

/* Attributes. */

static struct rtattr *add(struct answer *to, int type, const void *value, int length) {
    struct rtattr *attr = (void *)(to->bytes + to->length);
    attr->rta_type = type;
    attr->rta_len = RTA_LENGTH(length);
    if (length) memcpy(RTA_DATA(attr), value, length);
    to->length += RTA_SPACE(length);
    return attr;
}

static void add_byte(struct answer *to, int type, unsigned char value) { add(to, type, &value, 1); }

static void end(struct answer *to, struct rtattr *nest) { nest->rta_len = to->bytes + to->length - (unsigned char *)nest; }

/* The attribute of a type among those in some bytes. */
static struct rtattr *find(const void *bytes, int length, int type) {
    struct rtattr *attr = (void *)bytes;
    for (; RTA_OK(attr, length); attr = RTA_NEXT(attr, length))
        if ((attr->rta_type & NLA_TYPE_MASK) == type) return attr;
    return NULL;
}

static struct rtattr *within(struct rtattr *nest, int type) {
    return nest ? find(RTA_DATA(nest), RTA_PAYLOAD(nest), type) : NULL;
}

static unsigned number(struct rtattr *attr) {
    unsigned value = 0;
    if (attr) memcpy(&value, RTA_DATA(attr), RTA_PAYLOAD(attr) < sizeof value ? RTA_PAYLOAD(attr) : sizeof value);
    return value;
}

/* The record. */

static void record(const char *line) {
    int file = open(getenv("VNIC_DCB_RECORD"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || write(file, line, strlen(line)) < 0) abort();
    close(file);
}

static void record_groups(const char *name, struct rtattr *groups) {
    char line[128];
    int at = snprintf(line, sizeof line, "%s", name);
    for (int i = 0; i < CLASSES; i++) {
        struct rtattr *class = within(groups, DCB_PG_ATTR_TC_0 + i);
        at += snprintf(line + at, sizeof line - at, " %02x:%u", number(within(class, DCB_TC_ATTR_PARAM_UP_MAPPING)),
                       number(within(groups, DCB_PG_ATTR_BW_ID_0 + i)));
    }
    snprintf(line + at, sizeof line - at, "\n");
    record(line);
}

/* Answers. */

/* Does what a request wants. Returns 0, or why it cannot be done. */
static int serve(int cmd, struct rtattr *attrs, int length, struct answer *to) {
    char line[64] = "";
    struct rtattr *nest;
    switch (cmd) {
    case DCB_CMD_GSTATE:
        add_byte(to, DCB_ATTR_STATE, state);
        return 0;
    case DCB_CMD_SSTATE:
        state = number(find(attrs, length, DCB_ATTR_STATE));
        snprintf(line, sizeof line, "state %u\n", state);
        add_byte(to, DCB_ATTR_STATE, 0);
        break;
    case DCB_CMD_GDCBX:
        add_byte(to, DCB_ATTR_DCBX, dcbx);
        return 0;
    case DCB_CMD_SDCBX:
        dcbx = number(find(attrs, length, DCB_ATTR_DCBX));
        snprintf(line, sizeof line, "dcbx %x\n", dcbx);
        add_byte(to, DCB_ATTR_DCBX, 0);
        break;
    case DCB_CMD_GCAP:
        nest = add(to, DCB_ATTR_CAP, NULL, 0);
        add_byte(to, DCB_CAP_ATTR_PG, 1);
        add_byte(to, DCB_CAP_ATTR_PFC, 1);
        add_byte(to, DCB_CAP_ATTR_UP2TC, 1);
        add_byte(to, DCB_CAP_ATTR_PG_TCS, 1 << (CLASSES - 1));
        add_byte(to, DCB_CAP_ATTR_PFC_TCS, 1 << (CLASSES - 1));
        add_byte(to, DCB_CAP_ATTR_GSP, 1);
        add_byte(to, DCB_CAP_ATTR_DCBX, dcbx);
        end(to, nest);
        return 0;
    case DCB_CMD_GNUMTCS:
        nest = add(to, DCB_ATTR_NUMTCS, NULL, 0);
        add_byte(to, DCB_NUMTCS_ATTR_PG, CLASSES);
        add_byte(to, DCB_NUMTCS_ATTR_PFC, CLASSES);
        end(to, nest);
        return 0;
    case DCB_CMD_IEEE_GET: {
        struct ieee_ets ets = {.ets_cap = CLASSES};
        struct ieee_pfc pfc = {.pfc_cap = CLASSES};
        nest = add(to, DCB_ATTR_IEEE, NULL, 0);
        add(to, DCB_ATTR_IEEE_ETS, &ets, sizeof ets);
        add(to, DCB_ATTR_IEEE_PFC, &pfc, sizeof pfc);
        end(to, nest);
        return 0;
    }
    case DCB_CMD_IEEE_SET:
    case DCB_CMD_IEEE_DEL:
        add_byte(to, DCB_ATTR_IEEE, 0);
        return 0;
    case DCB_CMD_PFC_SCFG: {
        unsigned map = 0;
        nest = find(attrs, length, DCB_ATTR_PFC_CFG);
        for (int i = 0; i < 8; i++)
            if (number(within(nest, DCB_PFC_UP_ATTR_0 + i))) map |= 1 << i;
        snprintf(line, sizeof line, "pfc %02x\n", map);
        add_byte(to, DCB_ATTR_PFC_CFG, 0);
        break;
    }
    case DCB_CMD_PFC_SSTATE:
        snprintf(line, sizeof line, "pfc_state %u\n", number(find(attrs, length, DCB_ATTR_PFC_STATE)));
        add_byte(to, DCB_ATTR_PFC_STATE, 0);
        break;
    case DCB_CMD_PGTX_SCFG:
    case DCB_CMD_PGRX_SCFG:
        record_groups(cmd == DCB_CMD_PGTX_SCFG ? "tx" : "rx", find(attrs, length, DCB_ATTR_PG_CFG));
        add_byte(to, DCB_ATTR_PG_CFG, 0);
        return 0;
    case DCB_CMD_SAPP:
        nest = find(attrs, length, DCB_ATTR_APP);
        snprintf(line, sizeof line, "app %u %04x %02x\n", number(within(nest, DCB_APP_ATTR_IDTYPE)),
                 number(within(nest, DCB_APP_ATTR_ID)), number(within(nest, DCB_APP_ATTR_PRIORITY)));
        add_byte(to, DCB_ATTR_APP, 0);
        break;
    case DCB_CMD_SET_ALL:
        snprintf(line, sizeof line, "all\n");
        /* Done, and the link stays up (DCB_HW_CHG of the drivers ixgbe and bnx2x). */
        add_byte(to, DCB_ATTR_SET_ALL, 2);
        break;
    default:
        return -EOPNOTSUPP;
    }
    record(line);
    return 0;
}

/* Whether a message of a socket is for the driver; its answer then waits to be read. */
static int taken(int fd, const void *bytes, size_t length) {
    const struct nlmsghdr *request = bytes;
    const char *device = getenv("VNIC_DCB_DEVICE");
    if (fd < 0 || fd >= FILES || !device || length < NLMSG_LENGTH(sizeof(struct dcbmsg)) || request->nlmsg_len > length ||
        (request->nlmsg_type != RTM_GETDCB && request->nlmsg_type != RTM_SETDCB))
        return 0;
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &type, &size) || type != AF_NETLINK) return 0;
    const struct dcbmsg *dcb = NLMSG_DATA(request);
    struct rtattr *attrs = (void *)((char *)dcb + NLMSG_ALIGN(sizeof *dcb));
    int left = request->nlmsg_len - NLMSG_LENGTH(sizeof *dcb);
    struct rtattr *name = find(attrs, left, DCB_ATTR_IFNAME);
    if (!name || strncmp(RTA_DATA(name), device, RTA_PAYLOAD(name))) return 0;

    if (!answers[fd]) answers[fd] = malloc(sizeof *answers[fd]);
    struct answer *to = answers[fd];
    if (!to) abort();
    memset(to, 0, sizeof *to);
    struct nlmsghdr *head = (void *)to->bytes;
    to->length = NLMSG_LENGTH(sizeof *dcb);
    int error = serve(dcb->cmd, attrs, left, to);
    head->nlmsg_seq = request->nlmsg_seq;
    head->nlmsg_pid = request->nlmsg_pid;
    if (error) {
        struct nlmsgerr said = {.error = error, .msg = *request};
        head->nlmsg_type = NLMSG_ERROR;
        memcpy(NLMSG_DATA(head), &said, sizeof said);
        to->length = NLMSG_LENGTH(sizeof said);
    } else {
        head->nlmsg_type = request->nlmsg_type;
        memcpy(NLMSG_DATA(head), &(struct dcbmsg){.cmd = dcb->cmd}, sizeof *dcb);
    }
    head->nlmsg_len = to->length;
    return 1;
}

/* Reads the answer that waits, if one does. */
static ssize_t answer(int fd, struct iovec *into, size_t parts, int flags, int *cut) {
    struct answer *from = fd >= 0 && fd < FILES ? answers[fd] : NULL;
    if (!from || !from->length) return -1;
    ssize_t length = from->length, done = 0;
    for (size_t i = 0; i < parts && done < length; i++) {
        size_t some = (size_t)(length - done) < into[i].iov_len ? (size_t)(length - done) : into[i].iov_len;
        memcpy(into[i].iov_base, from->bytes + done, some);
        done += some;
    }
    *cut = done < length;
    if (!(flags & MSG_PEEK)) from->length = 0;
    return flags & MSG_TRUNC ? length : done;
}

/* Calls. */

#define NEXT(name) static __typeof__(name) *next; if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* A number of a socket that is gone has nothing to read. */
int socket(int domain, int type, int protocol) {
    NEXT(socket);
    int fd = next(domain, type, protocol);
    if (fd >= 0 && fd < FILES && answers[fd]) answers[fd]->length = 0;
    return fd;
}

ssize_t sendto(int fd, const void *bytes, size_t length, int flags, const struct sockaddr *to, socklen_t size) {
    NEXT(sendto);
    return taken(fd, bytes, length) ? (ssize_t)length : next(fd, bytes, length, flags, to, size);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    NEXT(sendmsg);
    const struct iovec *one = message->msg_iov;
    return message->msg_iovlen == 1 && taken(fd, one->iov_base, one->iov_len) ? (ssize_t)one->iov_len : next(fd, message, flags);
}

ssize_t recv(int fd, void *bytes, size_t length, int flags) {
    NEXT(recv);
    int cut;
    ssize_t done = answer(fd, &(struct iovec){bytes, length}, 1, flags, &cut);
    return done < 0 ? next(fd, bytes, length, flags) : done;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    NEXT(recvmsg);
    int cut;
    ssize_t done = answer(fd, message->msg_iov, message->msg_iovlen, flags, &cut);
    if (done < 0) return next(fd, message, flags);
    if (message->msg_name && message->msg_namelen >= sizeof(struct sockaddr_nl)) {
        memcpy(message->msg_name, &(struct sockaddr_nl){.nl_family = AF_NETLINK}, sizeof(struct sockaddr_nl));
        message->msg_namelen = sizeof(struct sockaddr_nl);
    }
    message->msg_controllen = 0;
    message->msg_flags = cut ? MSG_TRUNC : 0;
    return done;
}

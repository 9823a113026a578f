/*
 * For User-Mode-Linux 6.1 on processors whose registers take more room than it knows of (2696 bytes; with AMX there are
 * 11,008): Linux takes the registers of a traced process as a whole or not at all, and UML ends with SIGABRT as its first
 * program begins. Preloaded into linux.uml, this gives the kernel the rest: registers that no guest of ours uses, as they
 * are at the beginning.
 */
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Where the bits are that say which components are in use (Intel SDM 1, 13.4.2). */
#define XSTATE_BV 512

/* More than there is of any processor; a multiple of the 8 bytes that it is counted in. UML has one thread that traces. */
static unsigned char whole[1 << 16] __attribute__((aligned(64)));

/* The components that lie within so many bytes. */
static uint64_t within(size_t len)
{
    uint64_t bits = 3;
    unsigned size, offset, c, d;

    for (unsigned i = 2; i < 63; i++)
        if (__get_cpuid_count(13, i, &size, &offset, &c, &d) && offset != 0 && offset + size <= len)
            bits |= 1ull << i;
    return bits;
}

static long all_registers(long pid, const struct iovec *some)
{
    static uint64_t known;
    static size_t known_len;
    struct iovec all = { whole, sizeof(whole) };
    uint64_t used;

    if (some->iov_len < XSTATE_BV + sizeof(used) || some->iov_len > sizeof(whole))
        return -1;
    if (known_len != some->iov_len) {
        known = within(some->iov_len);
        known_len = some->iov_len;
    }
    memcpy(whole, some->iov_base, some->iov_len);
    memcpy(&used, whole + XSTATE_BV, sizeof(used));
    used &= known;
    memcpy(whole + XSTATE_BV, &used, sizeof(used));
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list list;
    long pid, result, word = 0;
    void *addr, *data;
    int reads = request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER;

    va_start(list, request);
    pid = va_arg(list, pid_t);
    addr = va_arg(list, void *);
    data = va_arg(list, void *);
    va_end(list);
    /* The system call gives the word by `data`, the C library's function as its result. */
    result = syscall(SYS_ptrace, request, pid, addr, reads ? &word : data);
    if (reads && result == 0) {
        errno = 0;
        return word;
    }
    if (result < 0 && errno == EFAULT && request == PTRACE_SETREGSET && (uintptr_t)addr == NT_X86_XSTATE)
        return all_registers(pid, data);
    return result;
}

"""The cases of the matrix: programs of ibverbs-utils and perftest with their options, and what their output must have.

perftest's programs look at no byte that they move: a case of theirs says that every operation completed, with each size
that was asked for. `-c` of the ping-pongs does compare data.
"""

import copy
import pathlib
import re
import sys

from harness import crates, newest, wheels

SIZES = [2**n for n in range(1, 24)]
# What runs both ends of a program for raw Ethernet.
FRAMES = str(pathlib.Path(__file__).resolve().parent / "frames.py")
# Sizes of one datagram at most.
DATAGRAMS = [2**n for n in range(1, 13)]


class Case:
    """A program, or a server and its client."""

    def __init__(
        self, words, check, quick=False, client=None, alone=False, clients=1, devices=1, victims=False, name=None, prepare=None,
        connects=None, **environment,
    ):
        self.words = words.split() if isinstance(words, str) else words
        self.check = check
        self.quick = quick
        # What the client gets instead of the server's options.
        self.client = client.split() if isinstance(client, str) else client
        self.alone = alone
        self.clients = clients
        self.devices = devices
        # Whether other processes on its first adapter are killed meanwhile.
        self.victims = victims
        # Makes its program, where that is not a package's.
        self.prepare = prepare
        # How it connects by RDMA CM, if it does: there is no TCP port then to wait for.
        self.connects = connects
        self.environment = environment
        self.name = name or words + (f" | {client}" if client is not None else "")
        if devices > 1:
            self.name += f" ({devices} devices)"
        if victims:
            self.name += " (others are killed)"
        self.program = self.words[0]


# ---- what output must have ---------------------------------------------------------------------------------


def lines_with(*patterns):
    """All of these are found."""

    def check(server, client):
        text = server + client
        missing = [p for p in patterns if not re.search(p, text, re.MULTILINE)]
        return f"its output has no {missing[0]!r}" if missing else None

    return check


def exchanged(iterations, more=()):
    """A ping-pong of ibverbs-utils, seen from both ends."""

    def check(server, client):
        for side, text in (("server", server), ("client", client)):
            if "invalid data" in text:
                return f"the {side} has received other data"
            for pattern in (rf"^{iterations} iters in ", *more):
                if not re.search(pattern, text, re.MULTILINE):
                    return f"the {side}'s output has no {pattern!r}"
        return None

    return check


def rows(sizes):
    """A table of perftest with these sizes, at the client. Times are `inf` where it could not find out how fast its clock ticks,
    as happens on a busy machine: what was moved was moved."""
    row = re.compile(r"^ ?(\d+) +(\d+) +(?:[\d.]+|inf) ", re.MULTILINE)

    def check(_server, client):
        seen = [(int(m[1]), int(m[2])) for m in row.finditer(client)]
        got = [size for size, _ in seen]
        missing = [s for s in sizes if s not in got]
        if missing:
            return f"the client's table lacks {missing}, it has {got}"
        empty = [size for size, count in seen if count == 0]
        return f"no iteration with {empty}" if empty else None

    return check


# ---- ibverbs-utils -------------------------------------------------------------------------------------------


def utils():
    """ibv_devices, ibv_devinfo, the ping-pongs."""
    guid = r"[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}"

    def alone(words, *patterns, **more):
        return Case(words, lines_with(*patterns), quick=True, alone=True, **more)

    yield alone("ibv_devices", r"^ +vnic0\s+[0-9a-f]{16}$")
    yield alone("ibv_devices", r"^ +vnic0\s", r"^ +vnic1\s", devices=2)
    yield alone("ibv_devinfo", r"^hca_id:\s+vnic0$", r"state:\s+PORT_ACTIVE \(4\)", r"link_layer:\s+Ethernet")
    yield alone("ibv_devinfo -l", r"^1 HCA", r"^\tvnic0$")
    yield alone(
        "ibv_devinfo -v",
        rf"node_guid:\s+{guid}",
        r"max_qp:\s+[1-9]",
        r"max_mr_size:\s+0x[1-9a-f]",
        r"atomic_cap:\s+ATOMIC_(HCA|GLOB)",
        r"GID\[ +0\]:\s+fe80:.*RoCE v1",
        r"GID\[ +1\]:\s+fe80:.*RoCE v2",
        r"completion timestamp_mask",
        r"device_cap_flags",
    )
    yield alone("ibv_devinfo -d vnic1 -i 1 -v", r"^hca_id:\s+vnic1$", devices=2)
    yield alone("ibv_devinfo -d nobody", "")

    # Two ends that change roles after each message; the GID is that of RoCE v2 where nothing else is said.
    def rc(options, quick=False, iterations=200, more=()):
        words = f"ibv_rc_pingpong {options}"
        if "-g" not in options:
            words += " -g 1"
        if "-n " not in options:
            words += f" -n {iterations}"
        return Case(words, exchanged(iterations, more), quick=quick)

    yield rc("-c", True)
    yield rc("-g 0 -c", True)
    yield rc("-s 1 -c", True)
    yield rc("-s 100")
    yield rc("-s 4097 -c", True)
    yield rc("-s 65536 -c")
    yield rc("-s 1048577 -c", True, 100)
    yield rc("-s 8388608 -c", False, 20)
    for mtu in (256, 512, 1024, 2048, 4096):
        yield rc(f"-m {mtu} -s 10000 -c", mtu in (256, 4096))
    for depth in (1, 2, 16, 4000):
        yield rc(f"-r {depth} -c", depth in (1, 16))
    yield rc("-n 1 -c", False, 1)
    yield rc("-n 20000 -c", False, 20000)
    yield rc("-l 3 -c")
    yield rc("-e -c", True)
    yield rc("-e -s 100000 -r 8 -c")
    yield rc("-d vnic0 -i 1 -c")
    stamps = (r"Average receive completion clock cycles",)
    yield rc("-t", True, more=stamps)
    yield rc("-t -e -c", more=stamps)
    yield rc("-t -N -c", more=stamps)
    yield rc("-N -c", True)
    yield rc("-N -e -s 30000 -c", True)
    yield rc("-j -c", True)
    yield rc("-j -N -c", True)
    yield rc("-j -e -t -c")
    yield rc("-o", True)
    yield rc("-O", True)
    yield rc("-o -P", True)

    def uc(options, quick=False, iterations=200):
        return Case(f"ibv_uc_pingpong -g 1 -n {iterations} {options}", exchanged(iterations), quick=quick)

    yield uc("-c", True)
    yield uc("-e -c", True)
    for mtu in (256, 4096):
        yield uc(f"-m {mtu} -s 10000 -c", mtu == 4096)
    yield uc("-s 1 -r 1 -c")
    yield uc("-s 100000 -c", iterations=200)
    yield uc("-l 2")

    def ud(options, quick=False, iterations=200, gid=1):
        return Case(f"ibv_ud_pingpong -g {gid} -n {iterations} {options}", exchanged(iterations), quick=quick)

    yield ud("-c", True)
    yield ud("-c", True, gid=0)
    yield ud("-e -c", True)
    yield ud("-s 1 -c")
    yield ud("-s 4096 -c", True)
    yield ud("-r 1 -c")
    yield ud("-l 5 -c")

    def srq(options, quick=False, iterations=100):
        return Case(f"ibv_srq_pingpong -g 1 -n {iterations} {options}", exchanged(iterations), quick=quick)

    yield srq("-c", True)
    yield srq("-e -c", True)
    yield srq("-q 1 -c")
    yield srq("-q 64 -c", iterations=100)
    yield srq("-s 100000 -q 4 -c", iterations=100)
    yield srq("-m 256 -s 3000 -c")
    yield srq("-r 20 -q 2 -c")
    yield srq("-l 1 -q 2")
    yield srq("-o", True)

    def xsrq(options, quick=False, clients=1):
        server = f"ibv_xsrq_pingpong -g 1 {options}" + (f" -c {clients}" if clients > 1 else "")
        # It prints nothing but who its peers are.
        return Case(server, lines_with("local|remote"), quick, f"ibv_xsrq_pingpong -g 1 {options}", clients=clients)

    yield xsrq("", True)
    yield xsrq("-e", True)
    yield xsrq("-s 100000 -n 20")
    yield xsrq("-m 256 -s 5000")
    yield xsrq("-n 100", True, clients=2)
    yield xsrq("-o", True)


# ---- perftest --------------------------------------------------------------------------------------------------


def perftest():
    """ib_{send,write,read,atomic}_{bw,lat} with the transports and options that each has."""
    transports = {
        "send": ("RC", "UC", "UD", "XRC"),
        "write": ("RC", "UC", "XRC"),
        "read": ("RC", "XRC"),
        "atomic": ("RC", "XRC"),
    }
    for operation, names in transports.items():
        for kind in ("bw", "lat"):
            for transport in names:
                yield from one_program(operation, kind, transport)
    yield from dynamic()
    yield from frames()
    yield from odd_ends()


def newest_perftest():
    """What the bounded form has of perftest, with its newest version."""
    for case in perftest():
        if case.quick:
            case = copy.copy(case)
            case.name, case.quick, case.prepare = f"new {case.name}", False, newest.install
            case.program, *options = case.words
            case.words = [str(newest.program(case.program)), *options]
            yield case


def one_program(operation, kind, transport):
    """A program with a transport and all options that make sense for the two."""
    base = f"ib_{operation}_{kind} -F"
    if transport != "RC":
        base += f" -c {transport}"
    atomic, datagram, bandwidth = operation == "atomic", transport == "UD", kind == "bw"
    size = 8 if atomic else 4096 if datagram else 65536

    def case(options, quick=False, sizes=None, count=100):
        words = f"{base} -n {count}"
        # The programs for atomics know one size.
        if not atomic and sizes is None:
            words += f" -s {size}"
        return Case(f"{words} {options}".rstrip(), rows(sizes or [size]), quick=quick)

    common = transport in ("RC", "UD")
    # UC and UD lose what finds no receive; perftest waits for it for ever.
    reliable = transport in ("RC", "XRC")
    yield case("", transport != "XRC")
    if not atomic:
        # (Small machines take long for all sizes: the bounded form has one of each kind.)
        brief = bandwidth and f"{operation}-{transport}" in ("write-RC", "read-RC", "send-UD")
        yield case("-a", brief, DATAGRAMS if datagram else SIZES, 20)
    yield case("-x 0")
    if not datagram:
        for mtu in (256, 512, 1024, 2048):
            yield case(f"-m {mtu}")
    # (perftest 4.5 has no events for WRITE.)
    if operation != "write":
        yield case("-e", common)
    if operation in ("send", "write"):
        for inline in (0, 1, 64, 200):
            words = f"{base} -n 100 -s {max(inline, 1)} -I {inline}"
            yield Case(words, rows([max(inline, 1)]), quick=common and inline == 64)
        yield Case(f"{base} -n 20 -a -I 32", rows(DATAGRAMS if datagram else SIZES))
    if atomic:
        yield case("-A CMP_AND_SWAP", transport == "RC")
        yield case("-A FETCH_AND_ADD")
    if atomic or operation == "read":
        yield case("-o 1")
    if operation == "send" and transport != "XRC":
        yield case("--use-srq", common)
        yield case("-r 64" if reliable else "-r 128")
    if bandwidth:
        yield from bandwidth_options(operation, transport, case, base, size)


def dynamic():
    """The dynamically connected transport, which perftest has for adapters that it knows by their number."""

    def case(words, sizes, quick=False):
        return Case(f"{words} -c DC", rows(sizes), quick=quick, name=f"by number {words}", VNIC_VENDOR_PART_ID="4119")

    for operation in ("send", "write", "read", "atomic"):
        size = 8 if operation == "atomic" else 65536
        given = "" if operation == "atomic" else f" -s {size}"
        for kind in ("bw", "lat"):
            program = f"ib_{operation}_{kind} -F"
            yield case(f"{program} -n 100{given}", [size], True)
            if operation != "atomic":
                yield case(f"{program} -n 20 -a", SIZES)
        for options in ("-q 2", "-q 8", "-b", "-b -q 8", "-x 0", "-l 16 -q 2"):
            # (perftest counts 100 for each completion, and the last one, of fewer, as well: of 320 requests 400. With several queue
            # pairs it has counted them all, and polls no more, when the first of them are done and others are not.)
            count = 320 if "-l" in options else 300
            yield case(f"ib_{operation}_bw -F -n {count}{given} {options}", [size], options == "-b -q 8")
    for operation in ("send", "write"):
        yield case(f"ib_{operation}_bw -F -n 100 -s 64 -I 64", [64])
    yield case("ib_atomic_bw -F -n 100 -A CMP_AND_SWAP", [8])
    yield case("ib_send_bw -F -n 100 -s 65536 -e", [65536], True)


def frames():
    """Raw Ethernet: whole frames by raw packet queue pairs, and flows that take them."""

    def case(words, quick=False):
        # For a time: a frame that finds no receive is lost.
        return Case([sys.executable, FRAMES, *words.split()], lines_with(r"^ ?\d+ +[1-9]\d* "), quick, alone=True, devices=2, name=words)

    yield case("raw_ethernet_bw -D 2 -s 1000", True)
    yield case("raw_ethernet_bw -D 2 -s 64 -I 64")
    yield case("raw_ethernet_bw -D 2 -s 1024 -q 4")
    for udp in ("-J 10.0.0.1 -j 10.0.0.2 -K 5000 -k 6000",):
        yield case(f"raw_ethernet_bw -D 2 -s 512 {udp}", True)
        yield case(f"raw_ethernet_bw -D 2 -s 512 --tcp {udp}")
    yield case("raw_ethernet_bw -D 2 -s 1000 --promiscuous")
    yield case("raw_ethernet_bw -D 2 -s 1000 --sniffer")
    yield case("raw_ethernet_lat -D 2 -s 64", True)


def bandwidth_options(operation, transport, case, base, size):
    """What only the programs for bandwidth have."""
    common = transport in ("RC", "UD")
    reliable = transport in ("RC", "XRC")
    for pairs in (2, 8, 64):
        yield case(f"-q {pairs}", common and pairs in (2, 64))
    yield case("-b", common)
    yield case("-b -q 8")
    if operation != "write":
        yield case("-b -q 8 -e")
    for length in (4, 16, 64):
        yield case(f"-l {length}", common and length == 16, count=320)
    yield case("-l 8 -q 2", count=320)
    yield case("-t 1")
    yield case("-t 512 -Q 64", transport == "RC", count=512)
    yield case("-Q 1")
    yield case("-N")
    if operation == "atomic":
        return
    sizes = DATAGRAMS if transport == "UD" else SIZES
    yield Case(f"{base} -n 20 -a -b", rows(sizes))
    yield Case(f"{base} -n 20 -a -q 8", rows(sizes))
    if operation != "write":
        yield Case(f"{base} -n 20 -a -e", rows(sizes))
    if operation == "send":
        if reliable:
            yield case("-r 1 -t 1")
        yield case("-r 1024 -q 4")
        if transport == "RC":
            # (It posts no more receives than one queue pair is sent.)
            yield case("--use-srq -q 8", True)
        yield case("--recv_post_list 16", count=320)


def odd_ends():
    """Options that one program is enough for, and what a NIC without it must refuse in an orderly way."""

    def bw(options, quick=False, sizes=(65536,), program="ib_write_bw"):
        return Case(f"{program} -F {options}", rows(list(sizes)), quick=quick)

    yield bw("-D 1", True)
    yield bw("-D 1 -b")
    yield bw("--mr_per_qp -q 4 -n 200")
    yield bw("--perform_warm_up -n 100")
    yield bw("--reversed -n 100", sizes=())
    yield bw("--report-both -b -n 100")
    yield bw("--report_gbits -n 100")
    yield bw("--tclass 104 -n 100")
    yield bw("-S 3 -n 100")
    yield bw("-u 18 -n 100")
    yield bw("--pkey_index 0 -n 100")
    yield bw("--use_old_post_send -n 100")
    yield bw("--disable_pcie_relaxed -n 100", True)
    yield bw("-d vnic0 -i 1 -n 100")
    yield bw("--out_json --out_json_file report.json -n 100")
    yield bw("--ipv6 -n 100")
    yield bw("-s 1048577 -n 100", sizes=(1048577,))
    yield bw("-s 8388608 -q 8 -n 10", sizes=(8388608,))
    yield bw("-n 100000 -s 8", sizes=[8])
    yield Case("ib_send_lat -F -H -n 200 -s 64", lines_with("#, usec|usec"))
    yield Case("ib_write_lat -F -C -n 200 -s 64", rows([64]))
    yield Case("ib_send_bw -F -c UD -g -x 1 -n 100 -s 1024", rows([1024]), True)
    yield Case("ib_send_lat -F -c UD -g -x 1 -n 100 -s 1024", rows([1024]))
    for program in ("ib_write_bw", "ib_send_bw"):
        yield Case(f"{program} -F --odp -n 100 -s 65536", rows([65536]), program == "ib_write_bw")
        yield Case(f"{program} -F -c DC -n 100 -s 65536", rows([65536]), program == "ib_write_bw")
    yield Case("ib_send_bw -F -c SRD -n 100 -s 1024", rows([1024]), True)
    yield Case("ib_send_bw -F --inline_recv 32 -n 100 -s 32", rows([32]))
    yield Case("ib_write_bw -F --rate_limit 1 -n 100 -s 65536", rows([65536]))


# ---- what looks for devices in files, and UCX ------------------------------------------------------------------


def rack():
    """Programs that see a card of a rack in /sys, /dev and on PCI; UCX, which also moves data."""

    def alone(words, *patterns):
        return Case(words, lines_with(*patterns), quick=True, alone=True)

    yield alone("ibstat", r"^CA 'vnic0'$", r"State: Active", r"Physical state: LinkUp", r"Rate: [1-9]", r"Link layer: Ethernet")
    yield alone("ibstatus", r"^Infiniband device 'vnic0' port 1 status:$", r"state:\s+4: ACTIVE")
    yield alone("lstopo-no-graphics --of console", r'OpenFabrics "vnic0"')
    yield alone("ucx_info -d", r"Transport: rc_verbs\n#\s+Device: vnic0:1", r"Transport: ud_verbs", r"atomic_fadd: 64 bit")
    yield alone("fi_info -p verbs", r"domain: vnic0-dgram")
    for size, shown, quick in ((1024, "1k", True), (65536, "64k", False)):
        # libfabric's messages over our datagrams, compared. Its port has other options than those of all others: -B at the server, -P at the client.
        command = f"fi_pingpong -p verbs;ofi_rxd -e rdm -c -I 100 -S {size}"
        script = command.replace("verbs;ofi_rxd", "'verbs;ofi_rxd'") + " $([ $3 ] && echo -P $2 $3 || echo -B $2)"
        yield Case(
            ["sh", "-c", script, "sh"],
            lambda _server, client, shown=shown: None if re.search(rf"^{shown} +100 +=100 ", client, re.MULTILINE) else "no result",
            quick,
            name=command,
        )
    yield alone("rdma dev", r"vnic0: node_type ca .*node_guid [0-9a-f]{4}:")
    yield alone("rdma link", r"^link vnic0/1 state ACTIVE physical_state LINK_UP")
    yield alone("rdma -j link show vnic0/1", r'"ifname":"vnic0","port":1,"state":"ACTIVE"')
    yield alone("rdma res", r"vnic0: pd \d+ cq \d+ qp \d+ mr \d+")
    yield alone("rdma statistic show", r"^link vnic0/1 .*out_of_sequence 0 ")
    for transport, test, size, quick in (
        ("rc", "tag_bw", 65536, True),
        ("ud", "tag_lat", 8, True),
        ("rc", "ucp_put_bw", 1048576, False),
        ("rc", "ucp_get", 100000, False),
        ("rc", "ucp_fadd", 8, False),
    ):
        words = f"env UCX_TLS={transport},self UCX_NET_DEVICES=vnic0:1 ucx_perftest -t {test} -n 200 -s {size}"
        yield Case(words, lambda _server, client: None if re.search(r"^Final: +200 ", client, re.MULTILINE) else "no result", quick)


# ---- RDMA CM --------------------------------------------------------------------------------------------------------


class Connects:
    """How a case connects by RDMA CM. In its words `{server}` and `{client}` are addresses of the adapters, `{port}` is a port; `same`:
    both ends have the same adapter; `stays`: the server does not end by itself. `tcp`: it listens at a TCP port, too, and `{machine}` is
    an address of this machine that the server's adapter has as a GID; `machine`: it has this address, and listens by RDMA CM alone."""

    def __init__(self, same=False, stays=False, tcp=False, machine=False):
        self.same = same
        self.stays = stays
        self.tcp = tcp
        self.machine = machine or tcp


def connections():
    """Programs of rdma-core for connections, and others that connect by them. A client is started when the server listens."""

    def case(server, client, *patterns, quick=False, same=False, stays=False):
        check = lines_with(*patterns)
        name = f"{server} | {client}" + (" (one adapter)" if same else "")
        return Case(server, check, quick, client, name=name, connects=Connects(same, stays))

    def rping(options, quick=False, server="", same=False, stays=False):
        client = f"rping -c -a {{server}} -p {{port}} -C 20 {options}".rstrip()
        started = f"rping -s -a {{server}} -p {{port}}{'' if stays else ' -C 20'} {server or options}".rstrip()
        return case(started, client, *(["ping data: rdma-ping-"] if "-v" in options else []), quick=quick, same=same, stays=stays)

    yield rping("-v", True)
    yield rping("-v", True, same=True)
    yield rping("-v -V", True)
    yield rping("-v -V -S 64")
    yield rping("-V -S 65535")
    yield rping("-v -d", True)
    yield rping("-v -V -q", True)
    yield rping("-v", True, server="-P", stays=True)
    yield rping("-V -q", server="-P -q", stays=True)

    for options in ("", "-c 20 -C 5 -S 1000", "-c 2 -C 100 -S 65536", "-t 8"):
        yield case(
            f"ucmatose -b {{server}} -p {{port}} {options}".rstrip(), f"ucmatose -s {{server}} -p {{port}} {options}".rstrip(), r"^test complete\n^return status 0$",
            quick=options in ("", "-c 20 -C 5 -S 1000"),
        )
    for options in ("", "-c 10 -C 5 -S 1000"):
        yield case(
            f"udaddy -b {{server}} {options}".rstrip(), f"udaddy -s {{server}} {options}".rstrip(), r"^test complete\n^return status 0$",
            quick=not options,
        )
    yield case("cmtime -b {server} -p {port} -c 100", "cmtime -s {server} -p {port} -c 100", r"^connect +: +[\d.]+", quick=True, stays=True)
    yield case("rdma_server -p {port}", "rdma_client -s {server} -p {port}", "rdma_client: end 0", quick=True)
    for options in ("", " -c x"):
        yield case(f"rdma_xserver -p {{port}}{options}", f"rdma_xclient -s {{server}} -p {{port}}{options}", "rdma_xclient: end 0", quick=True)
    # The sender destroys its address handles without waiting for the end of its datagrams. (With more connections the receiver loses
    # datagrams on a machine that is busy, and waits for them for ever.)
    for options in ("-m 239.1.2.3", "-m 239.1.2.3 -C 20 -S 1000"):
        yield case(
            f"mckey -b {{server}} {options}", f"mckey -b {{client}} -s {options}", r"^test complete\n^return status 0$", quick="-C" not in options
        )

    # Sockets. `-T v` compares data.
    for options, quick in (("-T v -S 65536 -C 20", True), ("-T v -T n -S 4096 -C 200", False)):
        for program in ("rstream", "riostream"):
            yield case(
                f"{program} -b {{server}} -p {{port}} {options}", f"{program} -s {{server}} -p {{port}} {options}", r"^custom +\S+ +\d+ ",
                quick=quick and program == "rstream",
            )
    copy = "head -c 3000000 /dev/urandom >sent && rcopy sent {server}:received -p {port} && cmp sent received"
    yield Case(
        "rcopy -p {port}", lines_with("^3000000 bytes in "), True, ["sh", "-c", copy], name="rcopy -p {port} | rcopy sent {server}:received -p {port}",
        connects=Connects(stays=True),
    )

    # Programs that look for the addresses of devices among those of the machine, or talk by TCP to the same address.
    for endpoint, size, shown, quick in (("msg", 1024, "1k", True), ("rdm", 65536, "64k", True), ("msg", 1048576, "1m", False), ("rdm", 16, "16", False)):
        words = f"fi_pingpong -p verbs -e {endpoint} -c -I 100 -S {size}"
        yield Case(
            f"{words} -B {{port}}", lines_with(rf"^{shown} +100 +=100 "), quick, f"{words} -P {{port}} {{machine}}", name=words,
            connects=Connects(tcp=True),
        )
    for tests, quick in (("rc_bw rc_lat", True), ("rc_rdma_read_bw rc_rdma_write_lat rc_bi_bw rc_compare_swap_mr ver_rc_fetch_add", False)):
        yield Case(
            "qperf -lp {port}", lines_with(*(rf"^{test}:\n +(bw|latency|msg_rate) +=" for test in tests.split())), quick,
            f"qperf -lp {{port}} -t 1 {{machine}} -cm1 {tests}", name=f"qperf -cm1 {tests}", connects=Connects(stays=True, tcp=True),
        )
    # (Its server's `bindname` is taken for a number.)
    server = "fio --name=server --ioengine=rdma --port={port} --rw=read --bs=64k --size=4m --iodepth=32"
    for verb, quick in (("write", True), ("read", False), ("send", False)):
        client = f"fio --name=client --ioengine=rdma --hostname={{server}} --port={{port}} --rw=write --verb={verb} --bs=64k --size=4m --iodepth=4"
        yield Case(server, lines_with(r"err= 0: .*(\n.*)*WRITE: .*io=4096KiB"), quick, client, name=f"fio --ioengine=rdma --verb={verb}", connects=Connects())

    for operation in ("write", "send", "read"):
        for kind in ("bw", "lat"):
            words = f"ib_{operation}_{kind} -F -R -n 100 -s 4096 -p {{port}}"
            yield Case(words, rows([4096]), kind == "bw", words + " {server}", name=words, connects=Connects())
    for options in ("-c UD", "-q 8", "-e", "--use-srq", "-b"):
        words = f"ib_send_bw -F -R -n 100 -s 1024 -p {{port}} {options}"
        yield Case(words, rows([1024]), options in ("-c UD", "-q 8"), words + " {server}", name=words, connects=Connects())


def newest_connections():
    """Programs that connect by RDMA CM, from their newest sources: Valkey, and fabtests of libfabric."""
    script = pathlib.Path(__file__).with_name("valkey.py").resolve()
    server = [f"{newest.VALKEY}/src/valkey-server", *"--port 0 --protected-mode no --rdma-bind {server} --rdma-port {port} --save".split(), ""]
    yield Case(
        server, lines_with(r"^valkey: \d+ values, every byte as it was set$"),
        client=f"/usr/bin/python3 {script} {newest.VALKEY} {{server}} {{port}}", name="valkey.py", prepare=newest.install_valkey,
        connects=Connects(stays=True),
    )
    hello = "Received data from client: Hello from Client!"
    table = r"^1m +\d+ +=?\d+"
    for test, shown in (
        ("msg", hello), ("msg_epoll", hello), ("cm_data", "trying with data size: 32"), ("cq_data", "verify: success"), ("inject_test", "GOOD: Completed"),
        ("shared_ctx --no-tx-shared-ctx", "Posting send to endpoint #3"), ("shared_ctx", ""), ("multi_mr", ""), ("msg_pingpong -v -I 20", table),
        ("msg_bw -v -I 50", table), ("rma_bw -o write -I 50", table), ("rma_bw -o read -I 50", table), ("rma_pingpong -o writedata -I 20", table),
    ):
        yield fabtest(test, "verbs", "msg", shown)
    for test, shown in (
        ("rdm", hello), ("rdm_pingpong -v -I 20", table), ("rdm_tagged_pingpong -v -I 20", table), ("rdm_cntr_pingpong -v -I 20", table),
        ("rma_bw -o write -I 50", table), ("rdm_atomic -o all -I 10", "FI_UINT64_FI_MSWAP"), ("recv_cancel", "GOOD: Completed"), ("cq_data", "verify: success"),
    ):
        yield fabtest(test, "verbs;ofi_rxm", "rdm", shown)
    for test, shown in (
        ("multi_recv", "^1k "), ("multi_ep -v", "PASSED multi ep writes"), ("rdm_tagged_peek", "Receive msg 7"), ("unexpected_msg", "GOOD all done"),
    ):
        yield fabtest(test, "verbs;ofi_rxm", "rdm", shown, tcp=True)


def fabtest(test, provider, endpoint, shown, tcp=False):
    """A program of fabtests, with its options. Some of them also talk by TCP."""
    name, *options = test.split()
    words = [str(newest.fabric(name)), "-p", provider, "-e", endpoint, *options, *(["-O", "{machine}", "-b={port}"] if tcp else [])]
    return Case(
        [*words, "-s", "{machine}", "-B", "{port}"], lines_with(shown), client=[*words, "-P", "{port}", "{machine}"],
        name=f"fabtests fi_{name} -p {provider} -e {endpoint} {' '.join(options)}".rstrip(), prepare=newest.install_fabtests,
        connects=Connects(tcp=tcp, machine=True),
    )


# ---- MPI -------------------------------------------------------------------------------------------------------


def mpi():
    """Open MPI on UCX: ranks that share an adapter, or several."""
    script = pathlib.Path(__file__).with_name("ranks.py").resolve()
    environment = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # (All ranks are on this machine; a machine need not have ssh.)
        "OMPI_MCA_plm_rsh_agent": "/bin/false",
        "OMPI_MCA_pml": "ucx",
        "OMPI_MCA_osc": "ucx",
        "OMPI_MCA_btl": "^openib,tcp,vader",
        "UCX_TLS": "rc,self",
    }
    for ranks, devices, victims in ((8, 1, True), (2, 1, False), (8, 4, False)):
        yield Case(
            f"mpirun --oversubscribe -np {ranks} /usr/bin/python3 {script}",
            lines_with(rf"^{ranks} ranks: every byte as it was sent$"),
            quick=victims,
            alone=True,
            devices=devices,
            victims=victims,
            name=f"mpirun -np {ranks} ranks.py",
            **environment,
        )


# ---- engines for transfers -----------------------------------------------------------------------------------------


def engines():
    """Mooncake's transfer engine and NIXL, as their makers build them."""
    script = pathlib.Path(__file__).with_name("transfer.py").resolve()
    for engine in ("mooncake", "nixl"):
        yield Case(
            f"{wheels.PYTHON} {script} {engine}",
            lines_with(rf"^{engine}: \d+ sizes, every byte as it was sent$"),
            alone=True,
            devices=2,
            prepare=wheels.install,
            name=f"transfer.py {engine}",
        )


# ---- crates ----------------------------------------------------------------------------------------------------


def rust():
    """Examples of the crates `sideway` and `ibverbs`, which load the library by themselves or are linked with it."""

    def alone(program, *patterns):
        return Case(str(crates.example(program)), lines_with(*patterns), alone=True, prepare=crates.install, name=f"crates {program}")

    yield alone("show_gids", r"\bvnic0\b.*\bfe80:")
    yield alone("ibv_devinfo", r"hca_id:\s+vnic0", r"PORT_ACTIVE|Active")
    # (It compares what it sent itself.)
    yield alone("loopback")
    for program in ("rc_pingpong", "rc_pingpong_split"):
        words = f"{crates.example(program)} -g 1 -n 200 -s 4096"
        yield Case(words, exchanged(200), prepare=crates.install, name=f"crates {program}")


def every():
    """All of them, once each."""
    names = set()
    for make in (utils, perftest, rack, connections, mpi, engines, rust, newest_perftest, newest_connections):
        for case in make():
            if case.name not in names:
                names.add(case.name)
                yield case

//! Our RDMA engine and the Linux kernel's Soft-RoCE (`rdma_rxe` in a guest), through the daemon's switch: each as
//! client and as server of everything both can do. The engine is on the adapter `vf1`, in this process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant as Clock};

use anyhow::{Context as _, Result, ensure};
use vnic_engine::rdma::{Completion, CompletionOp, Mark, Origin, QpNumber, SendOp, Status, UdDestination};
use vnic_tests::lab::roce_host::{HostConnect, HostQp};
use vnic_tests::lab::rxe::{Connect, Kind, Mr, Post, Qp, status};
use vnic_tests::lab::wire_port::{Counts, losing};
use vnic_tests::lab::{
    self, Daemon, Driven, Guest, GuestSpec, Lab, PATIENCE, RoceHost, RxePeer, WirePort, ping, wait_for,
};

const CONFIG: &str = r#"
[[adapter]]
name = "vf0"
mtu = 9000

[[adapter]]
name = "vf1"
mtu = 9000
"#;

const PEER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const OURS4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OURS6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const QKEY: u32 = 0x1234_5678;
/// Our ACK timeout, 4.096 µs · 2^n: a second. An emulated machine that is busy may need that for what waits in its
/// ring, and for the rest of a READ that is asked for again.
const TIMEOUT: u8 = 18;
/// The kernel's, a quarter of that: with 7 retries rdma_rxe never gives up, and it waits for this whenever a READ
/// response is lost, or two of its packets between two ACKs.
const KERNELS_TIMEOUT: u8 = 16;

/// The longest message.
const LONGEST: u64 = 8 << 20;
/// Where messages are sent from and where they go, on both sides: at odd addresses.
const SOURCE: u64 = 3;
const TARGET: u64 = (10 << 20) + 5;
/// Where atomics happen, and where their results go.
const WORD: u64 = 20 << 20;
const RESULT: u64 = WORD + 64;
const ROOM: u64 = 21 << 20;

#[test]
fn the_kernels_soft_roce_and_our_engine() {
    lab::case("vm-rxe", |lab| {
        let daemon = Daemon::with_config(lab, CONFIG)?;
        let mut world = World::boot(lab, &daemon)?;
        for (mtu, v6) in [(1024, false), (256, false), (4096, false), (1024, true)] {
            world.reliable(lab, mtu, v6)?;
        }
        world.at_once(lab)?;
        world.unreliable(lab)?;
        world.datagrams(lab)?;
        world.not_ready(lab)?;
        world.refused(lab)?;
        world.with_losses(lab)?;
        world.end(lab)?;
        for adapter in ["vf0", "vf1"] {
            let faults = daemon.counter(adapter, "ring_faults")?;
            ensure!(faults == 0, "{adapter} had {faults} ring faults");
        }
        Ok(())
    });
}

struct World {
    peer: RxePeer,
    mr: Mr,
    host: Driven<RoceHost>,
    rkey: u32,
    mac: [u8; 6],
    seed: u64,
}

/// A queue pair on each side, in RTS.
#[derive(Clone, Copy)]
struct Link {
    kind: Kind,
    theirs: Qp,
    ours: HostQp,
}

/// Who asks for a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Engine,
    Kernel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

impl Op {
    const ALL: [Op; 5] = [Op::Send, Op::SendImm, Op::Write, Op::WriteImm, Op::Read];

    fn name(self) -> &'static str {
        match self {
            Op::Send => "send",
            Op::SendImm => "send_imm",
            Op::Write => "write",
            Op::WriteImm => "write_imm",
            Op::Read => "read",
        }
    }

    fn has_imm(self) -> bool {
        matches!(self, Op::SendImm | Op::WriteImm)
    }

    /// Takes a receive request of the server.
    fn receives(self) -> bool {
        matches!(self, Op::Send | Op::SendImm | Op::WriteImm)
    }

    /// For the engine, on the peer's memory.
    fn request(self, addr: u64, rkey: u32, imm: u32) -> SendOp {
        match self {
            Op::Send => SendOp::Send,
            Op::SendImm => SendOp::SendImm(imm),
            Op::Write => SendOp::Write { addr, rkey },
            Op::WriteImm => SendOp::WriteImm { addr, rkey, imm },
            Op::Read => SendOp::Read { addr, rkey },
        }
    }
}

impl World {
    fn boot(lab: &Lab, daemon: &Daemon) -> Result<World> {
        let mac = daemon.mac("vf0")?;
        let mut spec = GuestSpec::new("vm1", &lab.path("vf0-eth.sock"), &mac, &format!("{PEER4}/24"));
        spec.ip6 = Some(format!("{PEER6}/64"));
        spec.mtu = 9000;
        spec.rxe = true;
        // Soft-RoCE has no flow control: let bursts wait here rather than be lost.
        spec.device.push("rx_queue_size=1024".to_owned());
        let mut guest = Guest::qemu(lab, &spec)?;
        guest.wait_ready()?;
        guest.has_network()?;
        daemon.wait_up("vf0")?;
        lab.step("the machine has booted");

        let mut port = WirePort::attach(lab, daemon, "vf1", OURS4, OURS6)?;
        let mac = port.resolve(IpAddr::V4(PEER4))?;
        ensure!(mac == port.resolve(IpAddr::V6(PEER6))?, "two addresses");
        let host = RoceHost::new(port.mac(), &[IpAddr::V4(OURS4), IpAddr::V6(OURS6)], ROOM as usize)?;
        let rkey = host.rkey();
        let host = Driven::start(port, host);
        ping(&mut guest, &format!("-c 3 -i 0.1 {OURS4}"))?;
        ping(&mut guest, &format!("-c 3 -i 0.1 {OURS6}"))?;

        let mut peer = RxePeer::start(guest)?;
        ensure!(peer.mtu() == 4096, "the MTU of rxe0 is {}", peer.mtu());
        let mr = peer.mr(ROOM, "lwra")?;
        lab.step("the port answers the machine's pings; the verbs program runs");
        Ok(World {
            peer,
            mr,
            host,
            rkey,
            mac,
            seed: 0,
        })
    }

    /// Data that were not there before.
    fn seed(&mut self) -> u64 {
        self.seed += 1000;
        self.seed
    }

    fn link(&mut self, kind: Kind, mtu: u32, v6: bool) -> Result<Link> {
        // PSNs wrap around soon.
        let (our_psn, their_psn) = (0xff_fff0, 0xff_fffc);
        let theirs = self.peer.qp(kind, "sq=256 rq=256")?;
        let sgid = self.peer.gid_index(peer_at(v6))?;
        let ours = self.host.call(move |host, _, _| host.qp(kind))??;
        if kind == Kind::Ud {
            self.peer.ready(theirs, QKEY, their_psn)?;
            self.host
                .call(move |host, _, now| host.ready(ours, QKEY, our_psn, now))??;
            return Ok(Link { kind, theirs, ours });
        }
        let connect = Connect {
            remote: ours_at(v6),
            dest_qpn: ours.number.0,
            mtu,
            rq_psn: our_psn,
            sq_psn: their_psn,
            sgid,
            more: format!("timeout={KERNELS_TIMEOUT}"),
        };
        self.peer.connect(theirs, &connect)?;
        let connect = HostConnect {
            remote: peer_at(v6),
            mac: self.mac,
            dest_qpn: theirs.qpn,
            mtu,
            rq_psn: their_psn,
            sq_psn: our_psn,
            timeout: TIMEOUT,
        };
        self.host
            .call(move |host, _, now| host.connect(ours, kind, &connect, now))??;
        Ok(Link { kind, theirs, ours })
    }

    fn unlink(&mut self, link: Link) -> Result<()> {
        self.peer.destroy_qp(link.theirs)?;
        self.host.call(move |host, _, _| host.destroy(link.ours))?
    }

    /// Waits for completions of the engine, which must be successful.
    fn ours(&self, link: Link, recv: bool, n: usize) -> Result<Vec<Completion>> {
        let cq = if recv { link.ours.recv } else { link.ours.send };
        let list = self
            .host
            .until("completions of the engine", move |host, _, _| host.take(cq, n))
            .with_context(|| self.account())?;
        let bad = list.iter().find(|c| c.status != Status::Success);
        ensure!(
            bad.is_none(),
            "the engine's completion: {bad:?}; {}",
            self.account()
        );
        Ok(list)
    }

    /// What the engine counted, for people who look for a fault.
    fn account(&self) -> String {
        let text = self.host.call(|host, port, _| {
            let (bad, events) = (host.bad_frames(), host.events());
            let device = host.device();
            let marks: Vec<_> = device.marks().iter().filter(|(_, n)| *n > 0).collect();
            format!(
                "{:?}, {bad} bad frames, {events:?}, {:?}, {marks:?}",
                port.counts(),
                device.counters()
            )
        });
        text.unwrap_or_else(|e| format!("{e:#}"))
    }

    /// One message, with everything checked on both sides.
    fn transfer(&mut self, link: Link, client: Client, op: Op, len: u64) -> Result<()> {
        let what = format!("{client:?} {} of {len} bytes", op.name());
        match client {
            Client::Engine => self.engine_asks(link, op, len),
            Client::Kernel => self.kernel_asks(link, op, len),
        }
        .context(what)
    }

    fn engine_asks(&mut self, link: Link, op: Op, len: u64) -> Result<()> {
        let seed = self.seed();
        let (mr, imm) = (self.mr, seed as u32);
        if op == Op::Read {
            self.peer.fill(&mr, seed, TARGET, len)?;
        } else {
            self.host
                .call(move |host, _, _| host.fill(seed, SOURCE, len as usize))?;
            // Something else, and guards around it.
            self.peer.fill(&mr, seed + 1, TARGET - 8, len + 16)?;
        }
        if op.receives() {
            let (off, room) = if op == Op::WriteImm { (0, 0) } else { (TARGET, len) };
            self.peer.post_recv(link.theirs, &mr, off, room, 1, 0)?;
        }
        let request = op.request(mr.addr + TARGET, mr.rkey, imm);
        self.host
            .call(move |host, _, _| host.post(link.ours, seed / 1000, request, SOURCE, len as u32))??;
        let ours = self.ours(link, false, 1)?[0];
        let expected = match op {
            Op::Read => CompletionOp::Read,
            Op::Write | Op::WriteImm => CompletionOp::Write,
            Op::Send | Op::SendImm => CompletionOp::Send,
        };
        ensure!(ours.op == expected && ours.wr_id == seed / 1000, "{ours:?}");
        if op.receives() {
            let theirs = self.peer.completions(link.theirs, "recv", 1)?[0];
            ensure!(
                theirs.status == status::SUCCESS
                    && u64::from(theirs.byte_len) == len
                    && theirs.has_imm == op.has_imm()
                    && (!op.has_imm() || theirs.imm == imm),
                "the kernel's completion: {theirs:?}"
            );
        }
        if op == Op::Read {
            ensure!(u64::from(ours.byte_len) == len, "{ours:?}");
            return self.arrived(seed, SOURCE, len);
        }
        if link.kind == Kind::Uc {
            // Nobody says when a WRITE has arrived.
            wait_for("the data", PATIENCE, || self.peer.check(&mr, seed, TARGET, len))?;
        }
        self.peer.check(&mr, seed, TARGET, len)?;
        let guards = [(TARGET - 8, 0), (TARGET + len, 8 + len)];
        for (at, place) in guards {
            let mut want = vec![0; (len + 16) as usize];
            lab::rxe::fill(seed + 1, &mut want);
            let want = &want[place as usize..][..8];
            let got = self.peer.peek(&mr, at)?;
            ensure!(got.to_le_bytes() == want, "bytes beside the message were changed");
        }
        Ok(())
    }

    fn kernel_asks(&mut self, link: Link, op: Op, len: u64) -> Result<()> {
        let seed = self.seed();
        let (mr, imm) = (self.mr, seed as u32);
        if op != Op::Read {
            self.peer.fill(&mr, seed, SOURCE, len)?;
        }
        self.host.call(move |host, _, _| {
            let data = if op == Op::Read { seed } else { seed + 1 };
            host.store(TARGET - 8, &[0xee; 8]);
            host.fill(data, TARGET, len as usize);
            host.store(TARGET + len, &[0xee; 8]);
            if op.receives() {
                let (off, room) = if op == Op::WriteImm { (0, 0) } else { (TARGET, len) };
                host.post_recv(link.ours, seed, off, room as u32)?;
            }
            anyhow::Ok(())
        })??;
        let post = Post::new(op.name(), &mr, SOURCE, len)
            .to(RoceHost::va(TARGET), self.rkey)
            .imm(imm);
        self.peer.post(link.theirs, &post)?;
        let theirs = self.peer.completions(link.theirs, "send", 1)?[0];
        ensure!(
            theirs.status == status::SUCCESS,
            "the kernel's completion: {theirs:?}; {}",
            self.account()
        );
        if op.receives() {
            let ours = self.ours(link, true, 1)?[0];
            let expected = if op == Op::WriteImm {
                CompletionOp::RecvWriteImm
            } else {
                CompletionOp::Recv
            };
            ensure!(
                ours.wr_id == seed
                    && ours.op == expected
                    && u64::from(ours.byte_len) == len
                    && ours.imm == op.has_imm().then_some(imm),
                "the engine's completion: {ours:?}"
            );
        }
        if op == Op::Read {
            return self.peer.check(&mr, seed, SOURCE, len);
        }
        if link.kind == Kind::Uc {
            wait_for("the data", PATIENCE, || self.arrived(seed, TARGET, len))?;
        }
        self.arrived(seed, TARGET, len)?;
        let guards = self
            .host
            .call(move |host, _, _| [host.bytes(TARGET - 8, 8), host.bytes(TARGET + len, 8)].concat())?;
        ensure!(guards == [0xee; 16], "bytes beside the message were changed");
        Ok(())
    }

    /// The engine's memory has the pattern.
    fn arrived(&self, seed: u64, offset: u64, len: u64) -> Result<()> {
        let wrong = self
            .host
            .call(move |host, _, _| host.difference(seed, offset, len as usize))?;
        ensure!(wrong.is_none(), "byte {wrong:?} of {len} is wrong");
        Ok(())
    }

    /// CAS and FAA on the other's memory.
    fn atomics(&mut self, link: Link) -> Result<()> {
        let mr = self.mr;
        let (first, added) = (0x0123_4567_89ab_cdef_u64, 0x1111_1111_1111_1111_u64);
        let second = first + added;
        // The request, the value that it must give back.
        let requests = [
            ("faa", [added, 0], first),
            ("cas", [second, 77], second),
            ("cas", [second, 78], 77),
        ];
        self.peer.poke(&mr, WORD, first)?;
        for (id, (op, [a, b], before)) in (0..).zip(requests) {
            let (addr, rkey) = (mr.addr + WORD, mr.rkey);
            let op = if op == "faa" {
                SendOp::FetchAdd { addr, rkey, add: a }
            } else {
                SendOp::CompareSwap {
                    addr,
                    rkey,
                    compare: a,
                    swap: b,
                }
            };
            self.host
                .call(move |host, _, _| host.post(link.ours, 2 * id + 1, op, RESULT, 8))??;
            self.ours(link, false, 1)?;
            let got = self.host.call(|host, _, _| host.bytes(RESULT, 8))?;
            ensure!(got == before.to_ne_bytes(), "{op:?} gave back {got:x?}");
        }
        ensure!(
            self.peer.peek(&mr, WORD)? == 77,
            "the kernel's word after atomics"
        );

        self.host
            .call(move |host, _, _| host.store(WORD, &first.to_ne_bytes()))?;
        for (op, [a, b], before) in requests {
            let words = if op == "faa" {
                format!("add={a}")
            } else {
                format!("compare={a} swap={b}")
            };
            let post = Post::new(op, &mr, RESULT, 8)
                .to(RoceHost::va(WORD), self.rkey)
                .with(&words);
            self.peer.post(link.theirs, &post)?;
            self.peer.all_good(link.theirs, "send", 1)?;
            let got = self.peer.peek(&mr, RESULT)?;
            ensure!(got == before, "{op} {words} gave the kernel {got:#x}");
        }
        let word = self.host.call(|host, _, _| host.bytes(WORD, 8))?;
        ensure!(word == 77_u64.to_ne_bytes(), "the engine's word: {word:x?}");
        Ok(())
    }

    /// Everything that RC can do, at many lengths.
    fn reliable(&mut self, lab: &Lab, mtu: u32, v6: bool) -> Result<()> {
        let link = self.link(Kind::Rc, mtu, v6)?;
        let m = u64::from(mtu);
        let mut lengths = vec![0, 1, 2, 3, m - 1, m, m + 1, 2 * m, 5 * m + 3, 65_536];
        if !v6 {
            lengths.push(1 << 20);
        }
        let what = format!("RC, MTU {mtu}, {}", if v6 { "IPv6" } else { "IPv4" });
        for client in [Client::Engine, Client::Kernel] {
            for len in &lengths {
                for op in Op::ALL {
                    self.transfer(link, client, op, *len).context(what.clone())?;
                }
            }
            if mtu == 4096 {
                for op in [Op::Send, Op::Write, Op::Read] {
                    self.transfer(link, client, op, LONGEST).context(what.clone())?;
                }
            }
            lab.step(&format!("{what}: {client:?} asks"));
        }
        self.atomics(link).context(what)?;
        self.unlink(link)
    }

    /// `count` requests of each side at once, all of one kind.
    fn many(&mut self, link: Link, op: Op, count: u64, len: u64) -> Result<()> {
        let (mr, seed) = (self.mr, self.seed());
        let step = len + 9;
        // What the kernel's requests use is behind what the engine's use.
        let (source, target) = (SOURCE + (5 << 20), TARGET + (5 << 20));
        let reads = op == Op::Read;
        let (peer_from, host_from) = if reads { (TARGET, target) } else { (source, SOURCE) };
        self.peer.fill_many(&mr, seed, peer_from, len, count, step)?;
        let remote = (mr.addr + TARGET, mr.rkey);
        self.host.call(move |host, _, _| {
            for j in 0..count {
                host.fill(seed + j, host_from + j * step, len as usize);
            }
            for j in 0..count {
                let request = op.request(remote.0 + j * step, remote.1, 0);
                host.post(link.ours, j, request, SOURCE + j * step, len as u32)?;
            }
            anyhow::Ok(())
        })??;
        let post = Post::new(op.name(), &mr, source, len)
            .to(RoceHost::va(target), self.rkey)
            .times(count, step);
        self.peer
            .burst(link.theirs, &post, 24)
            .with_context(|| self.account())?;
        let done = self.ours(link, false, count as usize)?;
        ensure!(
            done.iter().map(|c| c.wr_id).eq(0..count),
            "completions out of order: {done:?}"
        );
        let (peer_to, host_to) = if reads { (source, SOURCE) } else { (TARGET, target) };
        self.peer.check_many(&mr, seed, peer_to, len, count, step)?;
        for j in 0..count {
            self.arrived(seed + j, host_to + j * step, len)?;
        }
        Ok(())
    }

    /// Both ask at the same time, many requests outstanding.
    fn at_once(&mut self, lab: &Lab) -> Result<()> {
        let link = self.link(Kind::Rc, 1024, false)?;
        self.many(link, Op::Write, 200, 3001)?;
        self.many(link, Op::Read, 100, 3001)?;
        let (mr, rkey) = (self.mr, self.mr.rkey);
        self.peer.poke(&mr, WORD, 0)?;
        self.host.call(move |host, _, _| {
            host.store(WORD, &[0; 8]);
            for id in 0..100 {
                let addr = mr.addr + WORD;
                host.post(
                    link.ours,
                    2 * id + 1,
                    SendOp::FetchAdd { addr, rkey, add: 3 },
                    RESULT,
                    8,
                )?;
            }
            anyhow::Ok(())
        })??;
        let post = Post::new("faa", &mr, RESULT, 8)
            .to(RoceHost::va(WORD), self.rkey)
            .with("add=5 rstep=0")
            .times(100, 0);
        self.peer.burst(link.theirs, &post, 16)?;
        self.ours(link, false, 100)?;
        let sums = (
            self.peer.peek(&mr, WORD)?,
            self.host.call(|host, _, _| host.bytes(WORD, 8))?,
        );
        ensure!(
            sums == (300, 500_u64.to_ne_bytes().to_vec()),
            "atomics add up to {sums:?}"
        );
        lab.step("WRITEs, READs and atomics of both sides at once");
        self.unlink(link)
    }

    fn unreliable(&mut self, lab: &Lab) -> Result<()> {
        for (mtu, v6) in [(1024, false), (4096, false), (256, true)] {
            let link = self.link(Kind::Uc, mtu, v6)?;
            let m = u64::from(mtu);
            for client in [Client::Engine, Client::Kernel] {
                for len in [0, 1, 2, 3, m, m + 1, 7 * m - 2, 40_000] {
                    for op in Op::ALL.into_iter().filter(|op| *op != Op::Read) {
                        self.transfer(link, client, op, len)
                            .with_context(|| format!("UC, MTU {mtu}"))?;
                    }
                }
            }
            self.unlink(link)?;
        }
        lab.step("UC: three MTUs, both ways");
        Ok(())
    }

    /// Messages that may get lost, both ways; each carries its number as immediate data. Gives how many arrived at
    /// the kernel and at the engine. Nobody says that one will never come: that is decided `patience` after the last
    /// was sent.
    fn numbered(
        &mut self,
        kind: Kind,
        v6: bool,
        (count, len): (u64, u64),
        patience: Duration,
    ) -> Result<(usize, usize)> {
        let link = self.link(kind, 1024, v6)?;
        let (mr, mac, seed) = (self.mr, self.mac, self.seed());
        let ud = kind == Kind::Ud;
        let front = if ud { 40 } else { 0 };
        let step = len + 64;
        self.peer
            .post_recv(link.theirs, &mr, TARGET, len + front, count, step)?;
        let peer_at = peer_at(v6);
        self.host.call(move |host, _, _| {
            let ah = if ud { Some(host.ah(peer_at, mac)?) } else { None };
            let to = ah.map(|ah| UdDestination {
                ah,
                qp: QpNumber(link.theirs.qpn),
                qkey: QKEY,
            });
            for j in 0..count {
                host.post_recv(link.ours, j, TARGET + j * step, (len + front) as u32)?;
                let from = SOURCE + j * step;
                host.fill(seed + j, from, len as usize);
                host.post_to(link.ours, j, SendOp::SendImm(j as u32), from, len as u32, to)?;
            }
            anyhow::Ok(())
        })??;
        self.ours(link, false, count as usize)?;

        let mut to = String::new();
        if ud {
            let sgid = self.peer.gid_index(peer_at)?;
            let ah = self.peer.ah(ours_at(v6), sgid)?;
            to = format!("ah={ah} rqpn={} rqkey={QKEY:#x}", link.ours.number.0);
        }
        self.peer.fill_many(&mr, seed, SOURCE, len, count, step)?;
        for j in 0..count {
            let post = Post::new("send_imm", &mr, SOURCE + j * step, len);
            self.peer.post(link.theirs, &post.with(&to).imm(j as u32))?;
        }
        self.peer.all_good(link.theirs, "send", count)?;

        let theirs = self.peer.arrivals(link.theirs, count, patience)?;
        for wc in &theirs {
            ensure!(
                wc.status == status::SUCCESS
                    && u64::from(wc.byte_len) == len + front
                    && (!ud || wc.has_grh && wc.src_qp == link.ours.number.0),
                "the kernel's completion: {wc:?}"
            );
            let place = TARGET + wc.wr_id * step + front;
            self.peer.check(&mr, seed + u64::from(wc.imm), place, len)?;
        }
        let end = Clock::now() + patience;
        let ours = self.host.until("datagrams", move |host, _, _| {
            let all = host.take(link.ours.recv, count as usize);
            all.or_else(|| (Clock::now() > end).then(|| host.take_all(link.ours.recv)))
        })?;
        for wc in &ours {
            let source = match wc.origin {
                Origin::Datagram(source) => Some((source.qp.0, source.mac.0)),
                Origin::Peer | Origin::Frame { .. } => None,
            };
            ensure!(
                wc.status == Status::Success
                    && u64::from(wc.byte_len) == len + front
                    && source == ud.then_some((link.theirs.qpn, mac)),
                "the engine's completion: {wc:?}"
            );
            let imm = wc.imm.context("no immediate data")?;
            self.arrived(seed + u64::from(imm), TARGET + wc.wr_id * step + front, len)?;
        }
        self.unlink(link)?;
        Ok((theirs.len(), ours.len()))
    }

    fn datagrams(&mut self, lab: &Lab) -> Result<()> {
        for v6 in [false, true] {
            for len in [0, 1, 2, 3, 100, 1024, 4096] {
                let arrived = self.numbered(Kind::Ud, v6, (4, len), PATIENCE / 2)?;
                ensure!(
                    arrived == (4, 4),
                    "of 4 datagrams of {len} bytes arrived {arrived:?}"
                );
            }
        }
        lab.step("UD: both ways, IPv4 and IPv6");
        Ok(())
    }

    fn mark(&self, mark: Mark) -> Result<u32> {
        self.host.call(move |host, _, _| host.device().marks().get(mark))
    }

    /// SENDs that come before a receive request is posted.
    fn not_ready(&mut self, lab: &Lab) -> Result<()> {
        let link = self.link(Kind::Rc, 1024, false)?;
        let (mr, len) = (self.mr, 3000);
        let seed = self.seed();
        self.host.call(move |host, _, _| {
            host.fill(seed, SOURCE, len as usize);
            host.post(link.ours, 1, SendOp::Send, SOURCE, len)
        })??;
        wait_for("an RNR NAK of the kernel", PATIENCE, || {
            ensure!(self.mark(Mark::RnrRetried)? > 0, "{}", self.account());
            Ok(())
        })?;
        self.peer
            .post_recv(link.theirs, &mr, TARGET, u64::from(len), 1, 0)?;
        self.ours(link, false, 1)?;
        self.peer.all_good(link.theirs, "recv", 1)?;
        self.peer.check(&mr, seed, TARGET, u64::from(len))?;

        let seed = self.seed();
        self.peer.fill(&mr, seed, SOURCE, u64::from(len))?;
        self.peer
            .post(link.theirs, &Post::new("send", &mr, SOURCE, u64::from(len)))?;
        wait_for("an RNR NAK of the engine", PATIENCE, || {
            ensure!(self.mark(Mark::RnrNakSent)? > 1, "{}", self.account());
            Ok(())
        })?;
        self.host
            .call(move |host, _, _| host.post_recv(link.ours, 2, TARGET, len))??;
        self.peer.all_good(link.theirs, "send", 1)?;
        self.ours(link, true, 1)?;
        self.arrived(seed, TARGET, u64::from(len))?;
        lab.step("RNR NAKs of both sides are waited out");
        self.unlink(link)
    }

    /// A key that is wrong is refused, and both sides end in error.
    fn refused(&mut self, lab: &Lab) -> Result<()> {
        let mr = self.mr;
        for op in [Op::Write, Op::Read] {
            let link = self.link(Kind::Rc, 1024, false)?;
            let request = op.request(mr.addr, mr.rkey ^ 0x0bad_0000, 0);
            self.host
                .call(move |host, _, _| host.post(link.ours, 1, request, SOURCE, 64))??;
            let list = self.host.until("the engine's error", move |host, _, _| {
                host.take(link.ours.send, 1)
            })?;
            ensure!(list[0].status == Status::RemoteAccessError, "{list:?}");
            self.unlink(link)?;

            let link = self.link(Kind::Rc, 1024, false)?;
            let post = Post::new(op.name(), &mr, SOURCE, 64).to(RoceHost::va(0), self.rkey ^ 0x0bad_0000);
            self.peer.post(link.theirs, &post)?;
            let theirs = self.peer.completions(link.theirs, "send", 1)?[0];
            ensure!(theirs.status == status::REM_ACCESS_ERR, "{theirs:?}");
            self.unlink(link)?;
        }
        // Reads beyond the end of all memory.
        let link = self.link(Kind::Rc, 1024, false)?;
        let post = Post::new("read", &mr, SOURCE, 64).to(RoceHost::va(ROOM - 63), self.rkey);
        self.peer.post(link.theirs, &post)?;
        let theirs = self.peer.completions(link.theirs, "send", 1)?[0];
        ensure!(theirs.status == status::REM_ACCESS_ERR, "{theirs:?}");
        lab.step("wrong keys and bounds are refused by both sides");
        self.unlink(link)
    }

    /// Everything again while one frame in a hundred is lost, each way.
    fn with_losses(&mut self, lab: &Lab) -> Result<()> {
        let seed = seed();
        lab.step(&format!("losses from VNIC_SEED={seed}"));
        let before = self.host.call(move |_, port, _| {
            port.set_filter(Some(losing(10_000, seed)));
            port.counts()
        })?;
        for mtu in [1024, 4096] {
            let link = self.link(Kind::Rc, mtu, false)?;
            for client in [Client::Engine, Client::Kernel] {
                for len in [1, 5000, 65_536, 1 << 20, LONGEST] {
                    for op in Op::ALL {
                        if len == LONGEST && (mtu != 4096 || op.has_imm()) {
                            continue;
                        }
                        self.transfer(link, client, op, len)
                            .with_context(|| format!("RC with losses, MTU {mtu}, VNIC_SEED={seed}"))?;
                    }
                }
            }
            self.many(link, Op::Write, 200, 3001)?;
            self.many(link, Op::Read, 100, 3001)?;
            self.unlink(link)?;
            let counts = self.host.call(|_, port, _| port.counts())?;
            lab.step(&format!("RC with losses, MTU {mtu}: {counts:?}"));
        }
        for kind in [Kind::Uc, Kind::Ud] {
            let len = if kind == Kind::Uc { 5000 } else { 1000 };
            let (theirs, ours) = self.numbered(kind, false, (100, len), Duration::from_secs(1))?;
            lab.step(&format!(
                "{kind} with losses: of 100 messages arrived {theirs} and {ours}"
            ));
            ensure!(theirs > 50 && ours > 50, "that is too few");
        }
        let Counts { lost, .. } = self.host.call(|_, port, _| {
            port.set_filter(None);
            port.counts()
        })?;
        ensure!(lost > before.lost + 10, "only {lost} frames were lost");
        for mark in [Mark::SequenceNakReceived, Mark::SequenceNakSent] {
            ensure!(self.mark(mark)? > 0, "{mark:?} never happened");
        }
        Ok(())
    }

    fn end(self, lab: &Lab) -> Result<()> {
        let guest = self.peer.quit()?;
        let (mut host, port) = self.host.finish()?;
        ensure!(host.bad_frames() == 0, "{} bad frames", host.bad_frames());
        lab.step(&format!("{:?}, {:?}", port.counts(), host.device().counters()));
        drop(guest);
        Ok(())
    }
}

fn ours_at(v6: bool) -> IpAddr {
    if v6 { IpAddr::V6(OURS6) } else { IpAddr::V4(OURS4) }
}

fn peer_at(v6: bool) -> IpAddr {
    if v6 { IpAddr::V6(PEER6) } else { IpAddr::V4(PEER4) }
}

/// Of the losses: `VNIC_SEED`, or else from the time.
fn seed() -> u64 {
    let env = std::env::var("VNIC_SEED").ok().and_then(|s| s.parse().ok());
    env.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |d| u64::from(d.subsec_nanos()))
    })
}

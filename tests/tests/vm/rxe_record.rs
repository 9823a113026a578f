//! Records the kernel's Soft-RoCE talking to itself: two guests through the daemon. The frames are what our wire
//! code is tested against; `vnic-backend/wire/tests/vectors/README.md` says how this is run.

use std::net::IpAddr;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use vnic_tests::lab::rxe::{Connect, Kind, Mr, Post, Qp, status};
use vnic_tests::lab::{Daemon, Guest, Lab, PATIENCE, Pair, RxePeer, case, output, wait_for};

/// Where the captures go.
const DIR_VARIABLE: &str = "VNIC_RXE_RECORD";

const CONFIG: &str = r#"
[[adapter]]
name = "vf0"
mtu = 9000

[[adapter]]
name = "vf1"
mtu = 9000
"#;

/// Bytes of a memory region.
const ROOM: u64 = 1 << 16;
/// Lengths with every pad, around one and two packets.
const LENGTHS: [u64; 9] = [0, 1, 2, 3, 4, 5, 1023, 1025, 2502];

#[test]
#[ignore = "makes files for the repository: set VNIC_RXE_RECORD to a directory"]
fn soft_roce_talks_to_itself() {
    case("rxe-record", |lab| {
        let dir = std::env::var(DIR_VARIABLE).with_context(|| format!("{DIR_VARIABLE} is not set"))?;
        let daemon = Daemon::with_config(lab, CONFIG)?;
        let pair = Pair::boot(lab, &daemon, Guest::qemu, |_, spec| {
            spec.mtu = 9000;
            spec.rxe = true;
        })?;
        let mut both = Both {
            one: RxePeer::start(pair.one)?,
            two: RxePeer::start(pair.two)?,
        };
        ensure!(both.one.mtu() == 4096, "the MTU of rxe0 is {}", both.one.mtu());
        let mut record = |name: &str, scene: &mut dyn FnMut(&mut Both) -> Result<()>| -> Result<()> {
            record(lab, &daemon, &dir, name, || scene(&mut both)).with_context(|| name.to_owned())
        };
        for (name, mtu, v6) in [
            ("rc-ipv4-256", 256, false),
            ("rc-ipv4-1024", 1024, false),
            ("rc-ipv6-1024", 1024, true),
            ("rc-ipv4-4096", 4096, false),
        ] {
            record(name, &mut |both| everything_reliable(both, mtu, v6))?;
        }
        record("uc-ipv4-1024", &mut |both| unreliable(both, 1024, false))?;
        record("uc-ipv6-256", &mut |both| unreliable(both, 256, true))?;
        record("ud-ipv4", &mut |both| datagrams(both, false))?;
        record("ud-ipv6", &mut |both| datagrams(both, true))?;
        record("rc-invalidate", &mut invalidate)?;
        record("rc-rnr-nak", &mut receiver_not_ready)?;
        record("rc-naks", &mut refusals)?;
        record("rc-lost-requests", &mut |both| lost(both, true))?;
        record("rc-lost-answers", &mut |both| lost(both, false))?;
        Ok(())
    });
}

/// Captures what goes through `vf0` during a scene, and keeps the RoCE frames.
fn record(
    lab: &Lab,
    daemon: &Daemon,
    dir: &str,
    name: &str,
    scene: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let raw = lab.log(&format!("{name}.pcapng"));
    let path = raw.display().to_string();
    let mut capture = daemon.ctl_start(&["capture", "live", "-w", &path, "vf0"])?;
    wait_for("the capture's file", PATIENCE, || {
        ensure!(std::fs::metadata(&raw)?.len() > 0, "the file is empty");
        Ok(())
    })?;
    scene()?;
    // The last frames are on their way to the file.
    std::thread::sleep(std::time::Duration::from_secs(1));
    capture.signal(Signal::INT)?;
    capture.wait(PATIENCE)?;
    let kept = format!("{dir}/{name}.pcapng");
    output(
        Command::new("tshark")
            .args(["-n", "-r", &path, "-w", &kept])
            .args(["-Y", "udp.dstport == 4791"]),
    )?;
    let text = output(Command::new("tshark").args(["-n", "-r", &kept]))?;
    lab.step(&format!("{name}: {} frames", text.lines().count()));
    Ok(())
}

struct Both {
    one: RxePeer,
    two: RxePeer,
}

/// A queue pair on each side, connected, and memory for each.
struct Link {
    one: (Qp, Mr),
    two: (Qp, Mr),
}

fn address(n: u8, v6: bool) -> IpAddr {
    if v6 {
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)])
    } else {
        IpAddr::from([10, 0, 0, n])
    }
}

impl Both {
    fn link(&mut self, kind: Kind, mtu: u32, v6: bool, more: &str) -> Result<Link> {
        let one = (self.one.qp(kind, "")?, self.one.mr(ROOM, "lwrab")?);
        let two = (self.two.qp(kind, "")?, self.two.mr(ROOM, "lwrab")?);
        // PSNs that wrap around on the way.
        let (psn_one, psn_two) = (0xff_fff8, 0xff_fffe);
        let ends = [
            (&mut self.one, one.0, two.0, 1, 2, psn_two, psn_one),
            (&mut self.two, two.0, one.0, 2, 1, psn_one, psn_two),
        ];
        for (peer, ours, theirs, me, other, rq_psn, sq_psn) in ends {
            let sgid = peer.gid_index(address(me, v6))?;
            if kind == Kind::Ud {
                peer.ready(ours, 0x1234_5678, sq_psn)?;
                continue;
            }
            let connect = Connect {
                remote: address(other, v6),
                dest_qpn: theirs.qpn,
                mtu,
                rq_psn,
                sq_psn,
                sgid,
                more: more.to_owned(),
            };
            peer.connect(ours, &connect)?;
        }
        self.one.fill(&one.1, 1, 0, ROOM)?;
        Ok(Link { one, two })
    }

    fn unlink(&mut self, link: &Link) -> Result<()> {
        for (peer, (qp, mr)) in [(&mut self.one, &link.one), (&mut self.two, &link.two)] {
            peer.destroy_qp(*qp)?;
            peer.ask(&format!("destroy mr={}", mr.id))?;
        }
        Ok(())
    }

    /// Two receives `len` bytes that one sends with `op`, and they are right.
    fn send(&mut self, link: &Link, op: &str, len: u64, more: &str) -> Result<()> {
        self.two.zero(&link.two.1, 0, ROOM)?;
        self.two.post_recv(link.two.0, &link.two.1, 0, ROOM, 1, 0)?;
        let post = Post::new(op, &link.one.1, 0, len)
            .with(more)
            .imm(0xcafe_0000 | len as u32);
        self.one.post(link.one.0, &post)?;
        self.one.all_good(link.one.0, "send", 1)?;
        let bytes = self.two.all_good(link.two.0, "recv", 1)?;
        ensure!(bytes == len, "{bytes} bytes of {len} arrived");
        self.two.check(&link.two.1, 1, 0, len)
    }

    fn write(&mut self, link: &Link, op: &str, len: u64) -> Result<()> {
        if op == "write_imm" {
            self.two.post_recv(link.two.0, &link.two.1, 0, 0, 1, 0)?;
        }
        // At an odd address.
        let post = Post::new(op, &link.one.1, 0, len)
            .to(link.two.1.addr + 7, link.two.1.rkey)
            .imm(0xbeef_0000 | len as u32);
        self.two.zero(&link.two.1, 0, ROOM)?;
        self.one.post(link.one.0, &post)?;
        self.one.all_good(link.one.0, "send", 1)?;
        if op == "write_imm" {
            self.two.all_good(link.two.0, "recv", 1)?;
        }
        Ok(())
    }
}

fn everything_reliable(both: &mut Both, mtu: u32, v6: bool) -> Result<()> {
    let link = both.link(Kind::Rc, mtu, v6, "")?;
    let mtu = u64::from(mtu);
    for len in LENGTHS.iter().copied().filter(|len| len.div_ceil(mtu) <= 4) {
        both.send(&link, "send", len, "")?;
    }
    for len in [0, 3, mtu, mtu + 1, 3 * mtu - 2] {
        both.send(&link, "send_imm", len, "flags=s")?;
        both.write(&link, "write", len)?;
        both.two.check(&link.two.1, 1, 7, len)?;
        both.write(&link, "write_imm", len)?;
        both.two.check(&link.two.1, 1, 7, len)?;
        // What was written is read back to another place.
        let post = Post::new("read", &link.one.1, 32768, len).to(link.two.1.addr + 7, link.two.1.rkey);
        both.one.zero(&link.one.1, 32768, 32768)?;
        both.one.post(link.one.0, &post)?;
        both.one.all_good(link.one.0, "send", 1)?;
        both.one.check(&link.one.1, 1, 32768, len)?;
        both.one.fill(&link.one.1, 1, 0, ROOM)?;
    }
    both.two.poke(&link.two.1, 64, 0x0123_4567_89ab_cdef)?;
    let atomics = [
        ("faa", "add=0x1111111111111111"),
        ("cas", "compare=0x123456789abcdf00 swap=0xfedcba9876543210"),
        ("cas", "compare=5 swap=6"),
    ];
    let mut seen = Vec::new();
    for (op, words) in atomics {
        let post = Post::new(op, &link.one.1, 0, 8)
            .to(link.two.1.addr + 64, link.two.1.rkey)
            .with(words);
        both.one.post(link.one.0, &post)?;
        both.one.all_good(link.one.0, "send", 1)?;
        seen.push(both.one.peek(&link.one.1, 0)?);
    }
    ensure!(
        seen == [
            0x0123_4567_89ab_cdef,
            0x1234_5678_9abc_df00,
            0xfedc_ba98_7654_3210
        ],
        "atomics saw {seen:x?}"
    );
    // Several at a time: READs and atomics one after the other, then WRITEs.
    let read = Post::new("read", &link.one.1, 0, mtu + 5)
        .to(link.two.1.addr, link.two.1.rkey)
        .times(4, 0);
    both.one.burst(link.one.0, &read, 4)?;
    let write = Post::new("write", &link.one.1, 0, 2 * mtu)
        .to(link.two.1.addr, link.two.1.rkey)
        .times(4, 0);
    both.one.burst(link.one.0, &write, 4)?;
    both.unlink(&link)
}

fn unreliable(both: &mut Both, mtu: u32, v6: bool) -> Result<()> {
    let link = both.link(Kind::Uc, mtu, v6, "")?;
    let mtu = u64::from(mtu);
    for len in [0, 1, 2, 3, mtu, mtu + 1, 3 * mtu - 2] {
        both.send(&link, "send", len, "")?;
        both.send(&link, "send_imm", len, "flags=s")?;
        both.write(&link, "write", len)?;
        both.write(&link, "write_imm", len)?;
    }
    both.unlink(&link)
}

fn datagrams(both: &mut Both, v6: bool) -> Result<()> {
    let link = both.link(Kind::Ud, 0, v6, "")?;
    let sgid = both.one.gid_index(address(1, v6))?;
    let ah = both.one.ah(address(2, v6), sgid)?;
    let to = format!("ah={ah} rqpn={} rqkey=0x12345678", link.two.0.qpn);
    for len in [0, 1, 2, 3, 4, 100, 1025, 4096] {
        for op in ["send", "send_imm"] {
            both.two.post_recv(link.two.0, &link.two.1, 0, ROOM, 1, 0)?;
            let post = Post::new(op, &link.one.1, 0, len)
                .with(&to)
                .imm(0x0dd0_0000 | len as u32);
            both.one.post(link.one.0, &post)?;
            both.one.all_good(link.one.0, "send", 1)?;
            let wc = both.two.completions(link.two.0, "recv", 1)?[0];
            ensure!(
                wc.status == status::SUCCESS && u64::from(wc.byte_len) == len + 40,
                "{wc:?}"
            );
            both.two.check(&link.two.1, 1, 40, len)?;
        }
    }
    both.unlink(&link)
}

/// SEND with Invalidate of a type 2 memory window.
fn invalidate(both: &mut Both) -> Result<()> {
    let link = both.link(Kind::Rc, 1024, false, "")?;
    for len in [0, 5, 1030, 2500] {
        let window = both.two.ask("mw type=2")?.number("mw")?;
        let bind = Post::new("bind_mw", &link.two.1, 4096, 4096).with(&format!("mw={window}"));
        let rkey = both.two.post(link.two.0, &bind)?.number("rkey")?;
        both.two.all_good(link.two.0, "send", 1)?;
        let rkey = u32::try_from(rkey)?;
        let write = Post::new("write", &link.one.1, 0, 10).to(link.two.1.addr + 4096, rkey);
        both.one.post(link.one.0, &write)?;
        both.one.all_good(link.one.0, "send", 1)?;
        both.two.post_recv(link.two.0, &link.two.1, 0, ROOM, 1, 0)?;
        let post = Post::new("send_inv", &link.one.1, 0, len).with(&format!("inv={rkey}"));
        both.one.post(link.one.0, &post)?;
        both.one.all_good(link.one.0, "send", 1)?;
        both.two.all_good(link.two.0, "recv", 1)?;
        both.two.ask(&format!("destroy mw={window}"))?;
    }
    both.unlink(&link)
}

/// A SEND for which nothing is posted yet, answered with RNR NAK (timer 28: 327.68 ms).
fn receiver_not_ready(both: &mut Both) -> Result<()> {
    let link = both.link(Kind::Rc, 1024, false, "min_rnr_timer=28")?;
    for len in [4, 2500] {
        let before = both.two.counter("send_rnr_err")?;
        both.one
            .post(link.one.0, &Post::new("send", &link.one.1, 0, len))?;
        wait_for("an RNR NAK", PATIENCE, || {
            ensure!(both.two.counter("send_rnr_err")? > before, "none was sent");
            Ok(())
        })?;
        both.two.post_recv(link.two.0, &link.two.1, 0, ROOM, 1, 0)?;
        both.one.all_good(link.one.0, "send", 1)?;
        both.two.all_good(link.two.0, "recv", 1)?;
    }
    both.unlink(&link)
}

/// Requests that are refused, each on a connection of its own.
fn refusals(both: &mut Both) -> Result<()> {
    let cases = [
        ("write", 16, 0x0bad_0000_u32, "lwra", status::REM_ACCESS_ERR),
        ("read", 16, 0x0bad_0000, "lwra", status::REM_ACCESS_ERR),
        ("faa", 8, 0x0bad_0000, "lwra", status::REM_ACCESS_ERR),
        // The queue pair allows no such operation.
        ("write", 16, 0, "lra", status::REM_INV_REQ_ERR),
        ("read", 16, 0, "lwa", status::REM_INV_REQ_ERR),
        // The buffer is too small. (rdma_rxe says so in its own way.)
        ("send", 2000, 0, "lwra", status::REM_OP_ERR),
    ];
    for (op, len, wrong, access, expected) in cases {
        let link = both.link(Kind::Rc, 1024, false, &format!("access={access}"))?;
        both.two.post_recv(link.two.0, &link.two.1, 0, 100, 1, 0)?;
        let post = Post::new(op, &link.one.1, 0, len)
            .to(link.two.1.addr, link.two.1.rkey ^ wrong)
            .with("add=1");
        both.one.post(link.one.0, &post)?;
        let wc = both.one.completions(link.one.0, "send", 1)?[0];
        ensure!(wc.status == expected, "{op}: {wc:?}, not status {expected}");
        both.unlink(&link)?;
    }
    Ok(())
}

/// Loses frames of the requester (sequence NAKs, timeouts) or of the responder (duplicates of requests).
fn lost(both: &mut Both, requests: bool) -> Result<()> {
    let link = both.link(Kind::Rc, 256, false, "timeout=16 retry_cnt=7")?;
    let mut done = 0;
    both.two.zero(&link.two.1, 0, ROOM)?;
    for (op, count) in [("write", 4_u64), ("read", 3)] {
        let lossy = if requests { &mut both.one } else { &mut both.two };
        // (Not all in one go: ARP and the like suffer as well.)
        lossy.sh("tc qdisc add dev eth0 root netem loss 8%")?;
        let post = Post::new(op, &link.one.1, 0, 2048)
            .to(link.two.1.addr, link.two.1.rkey)
            .times(count, 2048);
        let result = both.one.burst(link.one.0, &post, 2);
        let lossy = if requests { &mut both.one } else { &mut both.two };
        lossy.sh("tc qdisc del dev eth0 root")?;
        result?;
        done += count;
    }
    ensure!(done == 7, "{done} done");
    both.two.check(&link.two.1, 1, 0, 4 * 2048)?;
    both.unlink(&link)
}

//! The Ethernet function from attach to detach, one data core.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use vhost::VhostBackend as _;
use vhost::vhost_user::Frontend;
use vnic_backend::AttachState::{Attached, Detached, Up};
use vnic_backend::{DropReason, NicEventKind, VlanMode};
use vnic_tests::driver::packets::{BROADCAST, Number, eth, number_of, numbered, tagged};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{Guest, Layout, NetHdr, Options, feature};

fn n(sender: u32, seq: u64) -> Number {
    Number {
        sender,
        stream: 0,
        seq,
    }
}

fn send(g: &mut Guest, frame: &[u8]) {
    g.send_wait(0, frame, NetHdr::default());
}

fn expect(g: &mut Guest, frame: &[u8]) {
    let (_, _, got) = g.recv(0, deadline()).expect("a frame");
    assert!(got == frame, "{got:02x?} instead of {frame:02x?}");
}

#[test]
fn attach_detach_reattach() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    assert_eq!(rig.nic.adapter("a")?.state, Detached);
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    let status = rig.nic.adapter("a")?;
    assert_eq!(
        (status.features, status.queue_pairs_enabled),
        (ga.options.features, 1)
    );
    let bytes: u64 = ga.mem().regions().iter().map(|r| r.memory_size).sum();
    assert_eq!(status.memory_bytes, bytes);
    for round in 0..5 {
        send(&mut ga, &numbered(b, a, n(1, round), 60));
        expect(&mut gb, &numbered(b, a, n(1, round), 60));
        match round {
            0 | 1 => {
                ga.detach()?;
            }
            _ => ga.hang_up(),
        }
        rig.state("a", Detached)?;
        let status = rig.nic.adapter("a")?;
        assert_eq!(
            (status.features, status.queue_pairs_enabled, status.memory_bytes),
            (0, 0, 0)
        );
        ga.connect(rig.socket("a"))?;
        rig.up("a")?;
        send(&mut gb, &numbered(a, b, n(2, round), 60));
        expect(&mut ga, &numbered(a, b, n(2, round), 60));
    }
    rig.wait_event("a", |k| *k == NicEventKind::AdapterState(Up))?;
    let mut states = Vec::new();
    for e in rig.poll_events() {
        if let (true, NicEventKind::AdapterState(s)) = (e.owner == "a", &e.kind) {
            states.push(*s);
        }
    }

    let mut want = vec![Attached, Up];
    for round in 0..5 {
        // An orderly VMM stops the rings first.
        if round < 2 {
            want.push(Attached);
        }
        want.extend([Detached, Attached, Up]);
    }
    assert_eq!(states, want);
    ga.mem().check_canaries()?;
    rig.finish(Copies::Extra(0))
}

#[test]
fn restart_and_second_vmm() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    // A second VMM is turned away; the first does not notice.
    assert!(Guest::attach(rig.socket("a"), Options::default()).is_err());
    rig.wait_event("a", |k| matches!(k, NicEventKind::VmmRefused { refused: 1, .. }))?;
    send(&mut gb, &numbered(a, b, n(2, 0), 60));
    expect(&mut ga, &numbered(a, b, n(2, 0), 60));
    rig.nic.restart_adapter("a")?;
    rig.state("a", Detached)?;
    ga.connect(rig.socket("a"))?;
    rig.up("a")?;
    send(&mut gb, &numbered(a, b, n(2, 1), 60));
    expect(&mut ga, &numbered(a, b, n(2, 1), 60));
    rig.finish(Copies::Extra(0))
}

/// QEMU that is configured with more queues than there are asks, hangs up, and comes again.
#[test]
fn a_vmm_that_never_uses_the_adapter_is_told_of_once() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let unused =
        |k: &NicEventKind| matches!(k, NicEventKind::VmmUnused { queue_pairs: 1, by } if by.pid.is_some());
    for times in 1..=6 {
        let vmm = Frontend::from_stream(UnixStream::connect(rig.socket("a"))?, 2);
        vmm.set_owner()?;
        vmm.get_features()?;
        drop(vmm);
        rig.wait_event("a", |k| *k == NicEventKind::AdapterState(Detached))?;
        if times < 3 {
            assert_eq!(rig.count_events("a", unused), 0);
            rig.forget_events();
        } else {
            rig.wait_event("a", unused)?;
            assert_eq!(rig.count_events("a", unused), 1);
        }
    }
    // One that uses it is served as any other.
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    send(&mut gb, &numbered(a, b, n(2, 1), 60));
    expect(&mut ga, &numbered(a, b, n(2, 1), 60));
    rig.finish(Copies::Extra(0))
}

/// QEMU 7.2 reconnects at once until its device starts.
#[test]
fn a_second_vmm_that_comes_again_at_once_is_told_of_once_and_in_a_sum() -> Result<()> {
    use std::io::Read as _;
    use std::os::unix::fs::MetadataExt as _;
    const TIMES: u64 = 8;
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    for _ in 0..TIMES {
        // Only the daemon ends the wait, by closing the connection.
        let answer = UnixStream::connect(rig.socket("a"))?.read(&mut [0])?;
        assert_eq!(answer, 0);
    }
    // The next one is served as soon as the first VMM has gone.
    ga.hang_up();
    rig.state("a", Detached)?;
    ga.connect(rig.socket("a"))?;
    rig.up("a")?;
    send(&mut gb, &numbered(a, b, n(2, 1), 60));
    expect(&mut ga, &numbered(a, b, n(2, 1), 60));

    let me = vnic_backend::Caller {
        pid: Some(std::process::id().try_into()?),
        uid: Some(std::fs::metadata("/proc/self")?.uid()),
    };
    let mut refused = Vec::new();
    for event in rig.poll_events() {
        if let NicEventKind::VmmRefused {
            owner,
            by,
            refused: n,
        } = event.kind
        {
            assert_eq!((owner, by), (Some(me), me));
            refused.push(n);
        }
    }
    assert_eq!(refused, [1, TIMES - 1]);
    rig.finish(Copies::Extra(0))
}

#[test]
fn an_adapter_takes_vmms_of_its_users_only() -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let me = std::fs::metadata("/proc/self")?;
    let mut rig = Rig::new(1)?;
    rig.add_with("a", |s| s.socket_access.users = vec![me.uid() + 1])?;
    rig.add_with("b", |s| {
        s.socket_access.users = vec![me.uid() + 1, me.uid()];
        s.socket_access.group = Some(me.gid());
    })?;
    assert!(Guest::attach(rig.socket("a"), Options::default()).is_err());
    let uid = me.uid();
    rig.wait_event(
        "a",
        |k| matches!(k, NicEventKind::VmmRefused { owner: None, by, .. } if by.uid == Some(uid)),
    )?;
    let guest = rig.attach("b", Options::default())?;
    assert_eq!(std::fs::metadata(rig.socket("b"))?.gid(), me.gid());
    drop(guest);
    rig.finish(Copies::Extra(0))
}

#[test]
fn sockets_have_the_owner_the_group_and_the_mode_of_their_adapter() -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let me = std::fs::metadata("/proc/self")?;
    // (Only root may give something away.)
    let (owner, group) = match me.uid() {
        0 => (64055, 64056),
        uid => (uid, me.gid()),
    };
    let mut rig = Rig::new(1)?;
    let rdma = rig.dir().join("rdma.sock");
    rig.add_with("a", |s| {
        s.rdma_socket = Some(rdma.clone());
        s.socket_access.owner = Some(owner);
        s.socket_access.group = Some(group);
        s.socket_access.mode = 0o620;
    })?;
    for socket in [rig.socket("a"), rdma] {
        let has = std::fs::metadata(&socket)?;
        assert_eq!((has.uid(), has.gid(), has.mode() & 0o7777), (owner, group, 0o620));
    }
    // An owner may attach where users are listed.
    rig.add_with("b", |s| {
        s.socket_access.owner = Some(me.uid());
        s.socket_access.users = vec![me.uid() + 1];
    })?;
    drop(rig.attach("b", Options::default())?);

    // Without the right to give it away there is an error that says which right, and no socket.
    let mut spec = rig.spec("c");
    spec.socket_access.owner = Some(me.uid() + 1);
    let refused = std::thread::scope(|s| {
        let without = s.spawn(|| -> Result<_> {
            let mut rights = capabilities(None)?;
            for set in [
                &mut rights.effective,
                &mut rights.permitted,
                &mut rights.inheritable,
            ] {
                set.remove(CapabilitySet::CHOWN);
            }
            set_capabilities(None, rights)?;
            Ok(rig
                .nic
                .add_adapter(spec)
                .expect_err("nobody may do that")
                .to_string())
        });
        without.join().expect("it does not panic")
    })?;
    let owner = me.uid() + 1;
    assert!(
        refused.contains(&format!("to user {owner} (socket_owner: ")),
        "{refused}"
    );
    assert!(refused.contains("CAP_CHOWN"), "{refused}");
    assert!(!rig.socket("c").exists());
    rig.finish(Copies::Extra(0))
}

#[test]
fn unicast_broadcast_unknown_hairpin() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let macs = [rig.add("a")?, rig.add("b")?, rig.add("c")?];
    let mut g = vec![];
    for name in ["a", "b", "c"] {
        g.push(rig.attach(name, Options::default())?);
    }
    let to_b = numbered(macs[1], macs[0], n(0, 0), 100);
    send(&mut g[0], &to_b);
    expect(&mut g[1], &to_b);
    let all = numbered(BROADCAST, macs[0], n(0, 1), 100);
    send(&mut g[0], &all);
    expect(&mut g[1], &all);
    expect(&mut g[2], &all);
    // Nobody has this address: all but the sender get it.
    let unknown = vnic_backend::MacAddr([2, 9, 9, 9, 9, 9]);
    let lost = numbered(unknown, macs[2], n(2, 0), 100);
    send(&mut g[2], &lost);
    expect(&mut g[0], &lost);
    expect(&mut g[1], &lost);
    // b says it has it: from now on only b gets it, and b itself cannot reach it.
    send(&mut g[1], &numbered(macs[0], unknown, n(1, 0), 100));
    expect(&mut g[0], &numbered(macs[0], unknown, n(1, 0), 100));
    send(&mut g[2], &lost);
    expect(&mut g[1], &lost);
    send(&mut g[1], &numbered(unknown, macs[1], n(1, 1), 100));
    send(&mut g[1], &numbered(macs[1], macs[1], n(1, 2), 100));
    g[1].drain();
    rig.settle()?;
    assert_eq!(rig.drops("b", DropReason::Hairpin), 1);
    assert_eq!(rig.drops("b", DropReason::OwnAddress), 1);
    assert_eq!(rig.counter("b", "rx_multicast"), 1);
    for guest in &mut g {
        assert!(guest.try_recv(0).is_none());
    }
    rig.finish(Copies::Extra(2))
}

#[test]
fn spoofed_and_invalid_sources() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let a = rig.add_with("a", |s| s.anti_spoofing = true)?;
    let b = rig.add("b")?;
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    let foreign = vnic_backend::MacAddr([2, 7, 7, 7, 7, 7]);
    for i in 0..10 {
        send(&mut ga, &numbered(b, foreign, n(0, i), 60));
        send(&mut ga, &numbered(b, BROADCAST, n(0, i), 60));
        send(&mut ga, &numbered(b, a, n(1, i), 60));
        expect(&mut gb, &numbered(b, a, n(1, i), 60));
    }
    rig.settle()?;
    assert_eq!(rig.drops("a", DropReason::SpoofedSource), 10);
    assert_eq!(rig.drops("a", DropReason::InvalidSource), 10);
    rig.wait_event("a", |k| *k == NicEventKind::SpoofedSource { source: foreign })?;
    assert_eq!(
        rig.count_events("a", |k| matches!(k, NicEventKind::SpoofedSource { .. })),
        1
    );
    rig.finish(Copies::Extra(0))
}

#[test]
fn vlans_as_seen_in_bytes() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let trunk = VlanMode::Trunk {
        native: 1,
        allowed: Some([10, 20].into()),
    };
    let t = rig.add_with("trunk", |s| s.vlan = trunk)?;
    let x = rig.add_with("x10", |s| s.vlan = VlanMode::Access(10))?;
    let y = rig.add_with("y20", |s| s.vlan = VlanMode::Access(20))?;
    let z = rig.add_with("z10", |s| s.vlan = VlanMode::Access(10))?;
    let mut g = vec![];
    for name in ["trunk", "x10", "y20", "z10"] {
        g.push(rig.attach(name, Options::default())?);
    }
    for len in [60, 64, 68, 100, 1514] {
        // Push on the way to the trunk, pop on the way back; within a VLAN nothing changes. The PCP stays.
        let up = numbered(BROADCAST, x, n(1, 0), len);
        send(&mut g[1], &up);
        expect(&mut g[0], &tagged(&up, 10));
        expect(&mut g[3], &up);
        let down = numbered(BROADCAST, t, n(0, 0), len);
        send(&mut g[0], &tagged(&down, 20 | 5 << 13));
        expect(&mut g[2], &down);
        let own = numbered(x, z, n(3, 0), len);
        send(&mut g[3], &own);
        expect(&mut g[1], &own);
        // A priority tag belongs to the access VLAN and is gone or named behind it.
        send(&mut g[1], &tagged(&up, 3 << 13));
        expect(&mut g[0], &tagged(&up, 10 | 3 << 13));
        expect(&mut g[3], &up);
    }
    send(&mut g[0], &tagged(&numbered(BROADCAST, t, n(0, 1), 60), 30));
    send(&mut g[1], &tagged(&numbered(BROADCAST, x, n(1, 1), 60), 10));
    send(&mut g[0], &numbered(y, t, n(0, 2), 60));
    for guest in &mut g {
        guest.drain();
    }
    rig.settle()?;
    assert_eq!(rig.drops("trunk", DropReason::VlanNotAllowed), 1);
    assert_eq!(rig.drops("x10", DropReason::VlanNotAllowed), 1);
    assert_eq!(rig.drops("trunk", DropReason::NoDestination), 1);
    for guest in &mut g {
        assert!(guest.try_recv(0).is_none());
    }
    rig.finish(Copies::Extra(10))
}

#[test]
fn mtu_limits_and_runts() -> Result<()> {
    let mut rig = Rig::new(1)?;
    for mtu in [68u16, 1500, 9216] {
        let (from, to) = (format!("a{mtu}"), format!("b{mtu}"));
        let a = rig.add_with(&from, |s| s.mtu = mtu)?;
        let b = rig.add_with(&to, |s| s.mtu = mtu)?;
        let big = Options {
            tx_buffer: 70000,
            queue_size: 32,
            ..Options::default()
        };
        let mut ga = rig.attach(&from, big)?;
        let mut gb = rig.attach(&to, Options::default())?;
        let limit = usize::from(mtu) + 14;
        for len in [30, 59, 60, 63, 64, 65, limit - 1, limit] {
            let f = numbered(b, a, n(0, len as u64), len);
            send(&mut ga, &f);
            expect(&mut gb, &f);
        }
        let f = tagged(&numbered(b, a, n(1, 0), limit), 1);
        send(&mut ga, &f);
        // VLAN 1 is native: the tag is taken off.
        expect(&mut gb, &numbered(b, a, n(1, 0), limit));
        for len in [limit + 1, 65557, 65558, 69000] {
            send(&mut ga, &numbered(b, a, n(2, 0), len));
        }
        for len in 0..14 {
            send(&mut ga, &eth(b, a, [0x88, 0xb5], &[])[..len]);
        }
        let shortest = eth(b, a, [0x88, 0xb5], &[]);
        send(&mut ga, &shortest);
        expect(&mut gb, &shortest);
        // A tag that is cut off.
        send(&mut ga, &tagged(&shortest, 1)[..16]);
        ga.drain();
        rig.settle()?;
        assert_eq!(rig.drops(&from, DropReason::MtuExceeded), 4);
        assert_eq!(rig.drops(&from, DropReason::Runt), 15);
        assert!(gb.try_recv(0).is_none());
        rig.nic.remove_adapter(&from)?;
        rig.nic.remove_adapter(&to)?;
    }
    rig.finish(Copies::Unknown)
}

/// A receiver with a smaller MTU than the sender gets what fits it.
#[test]
fn mtu_of_the_receiver() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let a = rig.add_with("large", |s| s.mtu = 9000)?;
    let b = rig.add_with("small", |s| s.mtu = 1500)?;
    let big = Options {
        tx_buffer: 10000,
        ..Options::default()
    };
    let (mut from, mut to) = (
        rig.attach("large", big)?,
        rig.attach("small", Options::default())?,
    );
    send(&mut from, &numbered(b, a, n(0, 0), 9014));
    let fits = numbered(b, a, n(0, 1), 1514);
    send(&mut from, &fits);
    expect(&mut to, &fits);
    from.drain();
    rig.settle()?;
    assert_eq!(rig.drops("small", DropReason::ReceiverMtu), 1);
    rig.finish(Copies::Extra(0))
}

/// Every way to lay out headers and buffers, both header lengths, with and without merging.
#[test]
fn every_layout() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let legacy = feature::VERSION_1 | feature::MRG_RXBUF;
    let mut combinations = 0;
    for layout in [
        Layout::Same,
        Layout::Separate,
        Layout::Split(3),
        Layout::Split(19),
        Layout::Split(40),
    ] {
        for (kind, packed) in (0..4).flat_map(|kind| [0, feature::RING_PACKED].map(|packed| (kind, packed))) {
            let (indirect, event_idx) = (kind & 1 != 0, kind & 2 != 0);
            for without in [0, feature::VERSION_1, feature::MRG_RXBUF, legacy] {
                let mut features = feature::PROTOCOL_FEATURES | feature::VERSION_1 | feature::MRG_RXBUF;
                features &= !without;
                features |= packed;
                if indirect {
                    features |= feature::RING_INDIRECT_DESC;
                }
                if event_idx {
                    features |= feature::RING_EVENT_IDX | feature::IN_ORDER;
                }
                let o = Options {
                    features,
                    indirect,
                    tx_layout: layout,
                    rx_layout: layout,
                    queue_size: 128,
                    start_at: 65500,
                    ..Options::default()
                };
                let mut ga = rig.attach("a", o.clone())?;
                let mut gb = rig.attach("b", o)?;
                for (i, len) in [
                    60, 1514, 61, 64, 65, 700, 333, 128, 63, 47, 46, 45, 33, 32, 31, 30,
                ]
                .into_iter()
                .cycle()
                .take(80)
                .enumerate()
                {
                    let f = numbered(b, a, n(combinations, i as u64), len);
                    send(&mut ga, &f);
                    let (hdr, buffers, got) = gb.recv(0, deadline()).expect("a frame");
                    assert!(got == f, "{layout:?}, length {len}");
                    assert_eq!((hdr, buffers), (NetHdr::default(), 1));
                }
                ga.detach()?;
                gb.detach()?;
                ga.mem().check_canaries()?;
                gb.mem().check_canaries()?;
                rig.state("a", Detached)?;
                rig.state("b", Detached)?;
                combinations += 1;
            }
        }
    }
    rig.finish(Copies::Extra(0))
}

#[test]
fn merging_and_too_small_buffers() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (
        rig.add_with("a", |s| s.mtu = 9216)?,
        rig.add_with("b", |s| s.mtu = 9216)?,
    );
    let big = Options {
        tx_buffer: 10000,
        queue_size: 64,
        ..Options::default()
    };
    let mut ga = rig.attach("a", big)?;
    // Merged: any size fits, down to buffers smaller than a header.
    for (rx_buffer, rx_layout) in [
        (1526, Layout::Same),
        (512, Layout::Split(7)),
        (300, Layout::Separate),
        (48, Layout::Same),
    ] {
        let o = Options {
            rx_buffer,
            rx_layout,
            queue_size: 1024,
            ..Options::default()
        };
        let mut gb = rig.attach("b", o)?;
        for (i, len) in [60, 9230, 1514, 1515, 4000, 9229, 100]
            .into_iter()
            .cycle()
            .take(100)
            .enumerate()
        {
            let f = numbered(b, a, n(0, i as u64), len);
            send(&mut ga, &f);
            let (_, buffers, got) = gb.recv(0, deadline()).expect("a frame");
            assert!(got == f);
            assert_eq!(usize::from(buffers), (len + 12).div_ceil(rx_buffer as usize));
        }
        gb.detach()?;
        gb.mem().check_canaries()?;
    }
    // Not merged: what does not fit is dropped, what fits goes on.
    let mut o = Options::default().without(feature::MRG_RXBUF);
    o.rx_buffer = 1526;
    let mut gb = rig.attach("b", o)?;
    for len in [1515, 60, 9230, 1514] {
        send(&mut ga, &numbered(b, a, n(1, 0), len));
    }
    expect(&mut gb, &numbered(b, a, n(1, 0), 60));
    expect(&mut gb, &numbered(b, a, n(1, 0), 1514));
    rig.settle()?;
    assert_eq!(rig.drops("b", DropReason::RxBufferTooSmall), 2);
    gb.detach()?;
    // Merged, but the whole ring is too small; then, big enough but empty.
    let o = Options {
        rx_buffer: 600,
        queue_size: 8,
        repost: false,
        ..Options::default()
    };
    let mut gb = rig.attach("b", o)?;
    send(&mut ga, &numbered(b, a, n(2, 0), 9230));
    ga.drain();
    rig.settle()?;
    assert_eq!(rig.drops("b", DropReason::RxBufferTooSmall), 3);
    for i in 0..3 {
        send(&mut ga, &numbered(b, a, n(2, i), 1514));
    }
    for i in 0..2 {
        expect(&mut gb, &numbered(b, a, n(2, i), 1514));
    }
    ga.drain();
    rig.settle()?;
    assert_eq!(rig.drops("b", DropReason::NoRxBuffer), 1);
    assert!(gb.try_recv(0).is_none());
    gb.post(0, 1);
    send(&mut ga, &numbered(b, a, n(2, 3), 1514));
    expect(&mut gb, &numbered(b, a, n(2, 3), 1514));
    rig.finish(Copies::Extra(0))
}

#[test]
fn nobody_there_and_no_buffers() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default())?;
    let down =
        |rig: &Rig| rig.drops("a", DropReason::ReceiverDown) + rig.drops("b", DropReason::ReceiverDown);
    send(&mut ga, &numbered(b, a, n(0, 0), 60));
    ga.drain();
    rig.settle()?;
    assert_eq!(down(&rig), 1);
    let o = Options {
        post: 0,
        ..Options::default()
    };
    let mut gb = rig.attach("b", o)?;
    send(&mut ga, &numbered(b, a, n(0, 1), 60));
    ga.drain();
    rig.settle()?;
    assert_eq!(rig.drops("b", DropReason::NoRxBuffer), 1);
    assert_eq!(gb.post(0, 3), 3);
    send(&mut ga, &numbered(b, a, n(0, 2), 60));
    expect(&mut gb, &numbered(b, a, n(0, 2), 60));
    gb.detach()?;
    rig.state("b", Detached)?;
    send(&mut ga, &numbered(b, a, n(0, 3), 60));
    ga.drain();
    rig.settle()?;
    assert_eq!(down(&rig), 2);
    rig.finish(Copies::Extra(0))
}

/// `rx_notifications` and `rx_notifications_suppressed` are what the guest sees on its eventfd.
#[test]
fn notifications() -> Result<()> {
    for event_idx in [false, true] {
        let mut rig = Rig::new(1)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let bit = if event_idx { feature::RING_EVENT_IDX } else { 0 };
        let mut ga = rig.attach("a", Options::default().with(bit))?;
        let wanting = Options {
            calls: true,
            ..Options::default()
        };
        let mut gb = rig.attach("b", wanting.with(bit))?;
        let mut calls = 0;
        for i in 0..50 {
            // One at a time: each deserves an interrupt.
            send(&mut ga, &numbered(b, a, n(0, i), 60));
            expect(&mut gb, &numbered(b, a, n(0, i), 60));
            ga.drain();
            rig.settle()?;
            calls += gb.ring(0).calls();
        }
        assert_eq!(calls, 50);
        assert_eq!(rig.counter("b", "rx_notifications"), 50);
        assert_eq!(rig.counter("b", "rx_notifications_suppressed"), 0);
        gb.options.calls = false;
        gb.ring(0).want_calls(false);
        for i in 0..50 {
            send(&mut ga, &numbered(b, a, n(1, i), 60));
            expect(&mut gb, &numbered(b, a, n(1, i), 60));
        }
        rig.settle()?;
        assert_eq!(gb.ring(0).calls(), 0);
        assert_eq!(rig.counter("b", "rx_notifications"), 50);
        assert!(rig.counter("b", "rx_notifications_suppressed") > 0);
        assert_eq!(rig.counter("a", "tx_notifications"), 0);
        if event_idx {
            // An interrupt only after the tenth frame from here.
            let at = gb.ring(0).taken.wrapping_add(9);
            gb.ring(0).set_used_event(at);
            for i in 0..9 {
                send(&mut ga, &numbered(b, a, n(2, i), 60));
            }
            ga.drain();
            rig.settle()?;
            assert_eq!(gb.ring(0).calls(), 0);
            send(&mut ga, &numbered(b, a, n(2, 9), 60));
            ga.drain();
            rig.settle()?;
            assert_eq!(gb.ring(0).calls(), 1);
        }
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// A sleeping core is woken by a kick; a busy one asks for none.
#[test]
fn kicks_wake_and_are_suppressed() -> Result<()> {
    for (event_idx, packed) in [
        (false, 0),
        (true, 0),
        (false, feature::RING_PACKED),
        (true, feature::RING_PACKED),
    ] {
        let mut rig = Rig::with_spin(1, Duration::from_millis(1))?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let bit = packed | if event_idx { feature::RING_EVENT_IDX } else { 0 };
        let mut ga = rig.attach("a", Options::default().with(bit))?;
        let mut gb = rig.attach("b", Options::default().with(bit))?;
        for i in 0..10 {
            let sleeps = rig.core_counter("sleeps");
            assert!(vnic_tests::driver::rig::wait_for(
                || rig.core_counter("sleeps") > sleeps
            ));
            std::thread::sleep(Duration::from_millis(2));
            send(&mut ga, &numbered(b, a, n(0, i), 60));
            expect(&mut gb, &numbered(b, a, n(0, i), 60));
            rig.nic.responsive(Duration::from_secs(10));
        }
        assert!(rig.counter("a", "kicks") >= 5, "{}", rig.counter("a", "kicks"));
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

#[test]
fn removal_while_guests_send() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let a = rig.add("a")?;
    let mut ga = rig.attach("a", Options::default())?;
    for round in 0..20 {
        let name = format!("b{round}");
        let b = rig.add(&name)?;
        let mut gb = rig.attach(&name, Options::default())?;
        let (nic, victim) = (rig.nic.clone(), name.clone());
        let remover = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(300 * round));
            nic.remove_adapter(&victim)
        });
        let mut next = 0;
        let until = Instant::now() + Duration::from_millis(15);
        for i in 0.. {
            if Instant::now() > until {
                break;
            }
            send(&mut ga, &numbered(b, a, n(0, i), 60));
            gb.send(0, &numbered(a, b, n(1, i), 60), NetHdr::default());
            while let Some((_, _, f)) = gb.try_recv(0) {
                let got = number_of(&f).expect("numbered").seq;
                assert!(got >= next);
                next = got + 1;
            }
            while ga.try_recv(0).is_some() {}
            gb.reclaim(0);
        }
        remover.join().expect("no panic")?;
        assert!(!rig.socket(&name).exists());
        assert!(rig.nic.adapter(&name).is_err());
        ga.drain();
    }
    rig.finish(Copies::Unknown)
}

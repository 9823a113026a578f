//! Two ports as a bump in the wire: everything passes as it is, nothing else does, and fault rules and captures see it.

use std::time::Instant;

use anyhow::{Result, ensure};
use vnic_backend::fault::Action;
use vnic_backend::{
    BondSpec, CaptureSpec, DropReason, FaultSpec, MacAddr, MirrorSpec, NicError, PortEnd, PortKind, PortSpec,
    VlanMode,
};
use vnic_tests::driver::packets::{BROADCAST, Number, eth, numbered, tagged};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{NetHdr, Options};

use crate::fault::packet;

const NEAR: MacAddr = MacAddr([0x02, 0, 0, 0, 7, 1]);
const FAR: MacAddr = MacAddr([0x02, 0, 0, 0, 7, 2]);

fn spec(name: &str, bridge: Option<&str>) -> PortSpec {
    PortSpec {
        vlan: VlanMode::Access(9),
        bridge: bridge.map(str::to_owned),
        ..PortSpec::new(name, PortKind::Mesh { label: name.into() })
    }
}

fn port(rig: &Rig, name: &str, bridge: Option<&str>) -> Result<PortEnd> {
    let (_, end) = rig.nic.add_port_exchange(spec(name, bridge))?;
    rig.nic.set_port_link(name, true, None)?;
    Ok(end)
}

fn send(end: &mut PortEnd, frame: &[u8]) {
    assert!(end.tx.put_or_lose(frame));
    end.tx.flush();
}

fn get(end: &mut PortEnd) -> Result<Vec<u8>> {
    let until = deadline();
    loop {
        if let Some(frame) = end.rx.next_frame() {
            return Ok(frame.to_vec());
        }
        ensure!(Instant::now() < until, "no frame came");
        std::thread::yield_now();
    }
}

fn n(seq: u64) -> Number {
    Number {
        sender: 1,
        stream: 4,
        seq,
    }
}

/// What bridges filter (IEEE 802.1Q table 8-1), and what a switch would not take.
fn odd() -> Vec<Vec<u8>> {
    let group = |last| MacAddr([0x01, 0x80, 0xc2, 0, 0, last]);
    let filled = |frame: &[u8]| [frame, &[0; 60]].concat();
    vec![
        filled(&eth(group(0x0e), NEAR, [0x88, 0xcc], b"LLDP")),
        filled(&eth(group(2), NEAR, [0x88, 0x09], &[1, 1])),
        filled(&eth(group(1), NEAR, [0x88, 0x08], &[0, 1, 0xff, 0xff])),
        filled(&eth(FAR, group(7), [0x08, 0], b"a group as a source")),
        tagged(&numbered(FAR, NEAR, n(900), 100), 0x6123),
        tagged(&tagged(&numbered(FAR, NEAR, n(901), 100), 0x6123), 4094),
        numbered(NEAR, NEAR, n(902), 1514),
    ]
}

#[test]
fn everything_passes_as_it_is_and_nothing_else_does() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let mac = rig.add("a")?;
        let mut guest = rig.attach("a", Options::default())?;
        // The one that names the other comes first, and waits.
        let mut near = port(&rig, "p0", Some("p1"))?;
        send(&mut near, &numbered(FAR, NEAR, n(0), 60));
        rig.settle()?;
        assert_eq!(rig.drops("p0", DropReason::ReceiverDown), 1);
        let mut far = port(&rig, "p1", None)?;
        rig.settle()?;
        for i in 0..50 {
            let frame = numbered(FAR, NEAR, n(i), 60 + 20 * i as usize);
            send(&mut near, &frame);
            assert_eq!(get(&mut far)?, frame);
            let frame = numbered(if i % 2 == 0 { NEAR } else { BROADCAST }, FAR, n(100 + i), 64);
            send(&mut far, &frame);
            assert_eq!(get(&mut near)?, frame);
        }
        for frame in odd() {
            send(&mut near, &frame);
            assert_eq!(get(&mut far)?, frame);
            send(&mut far, &frame);
            assert_eq!(get(&mut near)?, frame);
        }
        // The adapter is elsewhere, whatever is said to or by it.
        send(&mut near, &numbered(mac, NEAR, n(300), 60));
        get(&mut far)?;
        guest.send_wait(0, &numbered(BROADCAST, mac, n(301), 60), NetHdr::default());
        guest.send_wait(0, &numbered(FAR, mac, n(302), 60), NetHdr::default());
        guest.drain();
        rig.settle()?;
        ensure!(guest.try_recv(0).is_none(), "the adapter got a frame of the wire");
        ensure!(near.rx.next_frame().is_none() && far.rx.next_frame().is_none());
        assert_eq!(rig.drops("a", DropReason::NoDestination), 2);
        // The other end has lost its link.
        rig.nic.set_port_link("p1", false, None)?;
        rig.settle()?;
        send(&mut near, &numbered(FAR, NEAR, n(310), 60));
        rig.settle()?;
        assert_eq!(rig.drops("p0", DropReason::ReceiverDown), 2);
        rig.nic.set_port_link("p1", true, None)?;
        rig.settle()?;
        send(&mut near, &numbered(FAR, NEAR, n(311), 60));
        get(&mut far)?;
        // Parted, they are ports of the switch.
        rig.nic.set_port_bridge("p0", None)?;
        guest.send_wait(
            0,
            &tagged(&numbered(BROADCAST, mac, n(320), 60), 9),
            NetHdr::default(),
        );
        let (one, two) = (get(&mut near)?, get(&mut far)?);
        ensure!(one == numbered(BROADCAST, mac, n(320), 60) && one == two);
        rig.finish(Copies::Extra(1))?;
    }
    Ok(())
}

#[test]
fn the_kth_packet_of_a_queue_pair_is_dropped_marked_or_corrupted() -> Result<()> {
    let rig = Rig::new(1)?;
    let (mut near, mut far) = (port(&rig, "p0", Some("p1"))?, port(&rig, "p1", None)?);
    let seen = rig.nic.capture(CaptureSpec {
        owners: vec!["p0".into()],
        snaplen: 65535,
        drops_only: false,
    })?;
    let rule = |name: &str, skip, action| FaultSpec {
        from: Some("p0".into()),
        to: Some("p1".into()),
        roce: true,
        skip,
        count: Some(1),
        seed: Some(7),
        ..FaultSpec::new(name, action)
    };
    rig.nic.add_fault(rule("drop", 2, Action::Drop))?;
    rig.nic.add_fault(rule("mark", 4, Action::MarkCe))?;
    rig.settle()?;
    let packets: Vec<Vec<u8>> = (0..8).map(|psn| packet(FAR, NEAR, psn)).collect();
    for one in &packets {
        send(&mut near, one);
    }
    // (The second rule does not see what the first has dropped: its fifth is the sixth on the wire.)
    for (i, one) in packets.iter().enumerate().filter(|(i, _)| *i != 2) {
        let got = get(&mut far)?;
        match i {
            5 => {
                // The lowest bits of the second byte of the IPv4 header (RFC 3168).
                assert_eq!((one[15] & 3, got[15] & 3), (2, 3));
                assert_eq!(got[26..], one[26..]);
            }
            _ => assert_eq!(got, *one, "{i}"),
        }
    }
    // Nothing in the other direction.
    for one in &packets {
        send(&mut far, one);
        assert_eq!(get(&mut near)?, *one);
    }
    rig.settle()?;
    assert_eq!(rig.drops("p1", DropReason::FaultInjected), 1);
    assert_eq!(seen.frames.try_iter().count(), 16);
    Ok(())
}

fn refused<T>(made: Result<T, NicError>, field: &str, why: &str) {
    let text = made.map(drop).expect_err(why).to_string();
    assert!(text.contains(field) && text.contains(why), "{text}");
}

#[test]
fn a_port_is_in_one_bridge_and_nothing_else() -> Result<()> {
    let mut rig = Rig::new(1)?;
    rig.add("a")?;
    let _ends = [
        port(&rig, "p0", None)?,
        port(&rig, "p1", None)?,
        port(&rig, "p2", None)?,
    ];
    let set = |port: &str, other: &str| rig.nic.set_port_bridge(port, Some(other.into()));
    refused(set("p0", "p0"), "bridge", "p0 is the port itself");
    refused(set("p0", "a"), "bridge", "a is no port");
    set("p0", "p1")?;
    refused(set("p2", "p1"), "bridge", "p1 is bridged with p0 already");
    refused(set("p0", "p2"), "bridge", "p0 is bridged with p1 already");
    let team = BondSpec::new("t", vec!["p1".into()]);
    refused(rig.nic.set_bond(team.clone()), "members", "p1 is bridged with p0");
    let mirror = MirrorSpec {
        name: "m".into(),
        source: "a".into(),
        direction: Default::default(),
        destination: "p1".into(),
    };
    refused(
        rig.nic.add_mirror(mirror.clone()),
        "destination",
        "p1 is bridged with p0",
    );
    rig.nic.set_port_bridge("p0", None)?;
    rig.nic.add_mirror(mirror)?;
    refused(set("p0", "p1"), "bridge", "p1 is the destination of mirror m");
    rig.nic.remove_mirror("m")?;
    rig.nic.set_bond(team)?;
    refused(set("p0", "p1"), "bridge", "p1 is a member of t");
    rig.finish(Copies::Unknown)
}

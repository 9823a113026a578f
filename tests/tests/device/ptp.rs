//! The NIC as a transparent clock of PTP: what it holds a message for is in the message's correctionField.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vnic_backend::fault::Action;
use vnic_backend::settings::{AdapterSettings, Burst};
use vnic_backend::{FaultSpec, MacAddr, PortKind, PortSpec, QosSpec, VirtualClock};
use vnic_tests::driver::packets::{BROADCAST, eth, tagged};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options};
use vnic_wire::checksum;

/// How long the fault rule of a test holds a frame.
const HELD: Duration = Duration::from_millis(5);
/// Time that the messages had in their correctionField before.
const BEFORE: i64 = 1_234_567;
const SYNC: u8 = 0;
const DELAY_REQ: u8 = 1;
const FOLLOW_UP: u8 = 8;

/// How a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Ethernet,
    V4,
    V6,
}

const ALL: [Over; 3] = [Over::Ethernet, Over::V4, Over::V6];

impl Over {
    /// Bytes between the Ethernet header and the message.
    fn before(self) -> usize {
        match self {
            Over::Ethernet => 0,
            Over::V4 => 28,
            Over::V6 => 48,
        }
    }

    /// Sum of the pseudo header of a UDP packet of these bytes.
    fn pseudo(self, ip: &[u8], len: usize) -> u32 {
        match self {
            Over::Ethernet => 0,
            Over::V4 => checksum::sum(&ip[12..20]) + 17 + len as u32,
            Over::V6 => checksum::sum(&ip[8..40]) + 17 + len as u32,
        }
    }
}

/// A message of PTP, with `more` bytes of TLVs.
fn message(over: Over, to: MacAddr, from: MacAddr, kind: u8, more: usize) -> Vec<u8> {
    let mut message = vec![0x10 | kind, 2, 0, 44, 0, 0, 2, 0];
    message.extend((BEFORE << 16).to_be_bytes());
    message.extend((16..44 + more).map(|i| i as u8));
    let len = 8 + message.len();
    let ports = [1, 63, 1, if kind < 4 { 63 } else { 64 }];
    let [high, low] = (len as u16).to_be_bytes();
    let mut ip = match over {
        Over::Ethernet => return eth(to, from, [0x88, 0xf7], &message),
        Over::V4 => {
            let [a, b] = (len as u16 + 20).to_be_bytes();
            let mut ip = vec![
                0x45, 0, a, b, 0, 1, 0x40, 0, 1, 17, 0, 0, 10, 0, 0, 1, 224, 0, 1, 129,
            ];
            let sum = !checksum::fold(checksum::sum(&ip));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ip
        }
        Over::V6 => {
            let mut ip = vec![0x60, 0, 0, 0, high, low, 17, 1];
            ip.extend((0..32).map(|i| 0xf0 ^ i));
            ip
        }
    };
    let at = ip.len();
    ip.extend(ports);
    ip.extend([high, low, 0, 0]);
    ip.extend(message);
    let sum = !checksum::fold(over.pseudo(&ip, len) + checksum::sum(&ip[at..]));
    ip[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
    eth(
        to,
        from,
        if over == Over::V4 { [8, 0] } else { [0x86, 0xdd] },
        &ip,
    )
}

/// The message with its checksum left to the device.
fn partial(over: Over, frame: &[u8]) -> (Vec<u8>, NetHdr) {
    let mut frame = frame.to_vec();
    let udp = 14 + over.before() - 8;
    let sum = checksum::fold(over.pseudo(&frame[14..], frame.len() - udp));
    frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    let hdr = NetHdr {
        flags: NetHdr::NEEDS_CSUM,
        csum_start: udp as u16,
        csum_offset: 6,
        ..NetHdr::default()
    };
    (frame, hdr)
}

/// What was added to the message of a frame, and the frame as it was sent; its checksum is right, or still to be made.
fn added(over: Over, hdr: &NetHdr, frame: &[u8]) -> (Duration, Vec<u8>) {
    let tag = if frame[12..14] == [0x81, 0] { 4 } else { 0 };
    let ip = 14 + tag;
    let at = ip + over.before();
    let mut frame = frame.to_vec();
    let field: [u8; 8] = frame[at + 8..at + 16].try_into().expect("eight bytes");
    let more = i64::from_be_bytes(field) - (BEFORE << 16);
    assert_eq!(more & 0xffff, 0, "whole nanoseconds");
    frame[at + 8..at + 16].copy_from_slice(&(BEFORE << 16).to_be_bytes());
    if over != Over::Ethernet {
        let udp = at - 8;
        let pseudo = over.pseudo(&frame[ip..], frame.len() - udp);
        if hdr.flags & NetHdr::NEEDS_CSUM == 0 {
            let mut as_it_came = frame.clone();
            as_it_came[at + 8..at + 16].copy_from_slice(&field);
            let whole = checksum::fold(pseudo + checksum::sum(&as_it_came[udp..]));
            assert_eq!(whole, 0xffff, "{over:?}: the checksum is right");
        } else {
            assert_eq!(frame[udp + 6..udp + 8], checksum::fold(pseudo).to_be_bytes());
        }
        // As the sender's.
        frame[udp + 6..udp + 8].copy_from_slice(&[0, 0]);
        let sum = !checksum::fold(pseudo + checksum::sum(&frame[udp..]));
        frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
    (Duration::from_nanos((more >> 16) as u64), frame)
}

fn timed(rig: &Rig, adapter: &str, ptp: bool) -> Result<()> {
    let settings = AdapterSettings {
        ptp,
        ..rig.nic.adapter_settings(adapter)?
    };
    rig.nic.configure_adapter(adapter, &settings)?;
    rig.nic.restart_adapter(adapter)?;
    Ok(())
}

fn hold(rig: &Rig, to: &str) -> Result<()> {
    let action = Action::Delay {
        by: HELD,
        jitter: Duration::ZERO,
    };
    rig.nic.add_fault(FaultSpec {
        to: Some(to.into()),
        ..FaultSpec::new(&format!("to-{to}"), action)
    })?;
    Ok(())
}

/// The next frame of a guest.
fn next(guest: &mut Guest) -> Result<(NetHdr, Vec<u8>)> {
    let (hdr, _, frame) = guest.recv(0, deadline()).expect("a frame");
    Ok((hdr, frame))
}

/// A rule holds frames for 5 ms of a time that passes by rounds. So that is what the NIC adds.
#[test]
fn what_a_frame_is_held_for_is_added() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_micros(1));
    let mut rig = Rig::with_clock(clock.clone())?;
    let (a, b, c) = (rig.add("a")?, rig.add("b")?, rig.add("c")?);
    rig.add("d")?;
    timed(&rig, "a", true)?;
    let mut from = rig.attach("a", Options::default().with(OFFLOADS))?;
    let mut to = rig.attach("b", Options::default())?;
    let mut third = rig.attach("c", Options::default())?;
    let mut fourth = rig.attach("d", Options::default().with(OFFLOADS))?;
    for name in ["a", "b", "c", "d"] {
        hold(&rig, name)?;
    }
    // Sends a frame, lets it be held, and looks at what became of it.
    let held = |from: &mut Guest, to: &mut Guest, frame: &[u8], hdr: NetHdr| -> Result<(NetHdr, Vec<u8>)> {
        from.send_wait(0, frame, hdr);
        from.drain();
        clock.pass(2 * HELD);
        next(to)
    };
    let exactly = |time: Duration, what: &str| {
        assert!(
            (HELD..HELD + Duration::from_micros(5)).contains(&time),
            "{what}: {time:?}"
        );
    };
    let none = NetHdr::default();
    for over in ALL {
        for kind in [SYNC, DELAY_REQ, 2, 3] {
            for more in [0, 16, 400] {
                let sent = message(over, b, a, kind, more);
                let (hdr, frame) = held(&mut from, &mut to, &sent, none)?;
                let (time, unchanged) = added(over, &hdr, &frame);
                exactly(time, &format!("{over:?} {kind} {more}"));
                assert_eq!(unchanged, sent);
            }
        }
        // What a timed adapter gets, with a tag, from one that is not.
        let sent = tagged(&message(over, a, b, SYNC, 0), 0x6005);
        let (hdr, frame) = held(&mut to, &mut from, &sent, none)?;
        let (time, unchanged) = added(over, &hdr, &frame);
        exactly(time, "received");
        assert_eq!(unchanged, sent);
        // (The switch does not know the address in this VLAN. Other receivers of the flood are not timed.)
        for other in [&mut third, &mut fourth] {
            assert_eq!(next(other)?.1, sent);
        }
        // Two that are not timed, and messages that are no events.
        let sent = message(over, c, b, SYNC, 0);
        assert_eq!(held(&mut to, &mut third, &sent, none)?.1, sent);
        let sent = message(over, c, a, FOLLOW_UP, 0);
        assert_eq!(held(&mut from, &mut third, &sent, none)?.1, sent);
    }
    // Every receiver of a flood has what it was held for.
    let sent = message(Over::V4, BROADCAST, a, SYNC, 0);
    from.send_wait(0, &sent, none);
    from.drain();
    clock.pass(2 * HELD);
    for to in [&mut to, &mut third, &mut fourth] {
        let (hdr, frame) = next(to)?;
        exactly(added(Over::V4, &hdr, &frame).0, "flooded");
    }
    // The checksum is the device's work: here, and at a receiver that leaves it to its own driver.
    for over in [Over::V4, Over::V6] {
        for (to, mac) in [(&mut to, b), (&mut fourth, MacAddr([2, 0, 0, 0, 0, 4]))] {
            let sent = message(over, mac, a, DELAY_REQ, 0);
            let (asked, hdr) = partial(over, &sent);
            let (hdr, frame) = held(&mut from, to, &asked, hdr)?;
            let (time, unchanged) = added(over, &hdr, &frame);
            exactly(time, "partial");
            assert_eq!(unchanged, sent);
        }
    }
    let timed_so_far = rig.core_counter("ptp_timed");
    assert_eq!(timed_so_far, 36 + 3 + 3 + 4);
    // Off again: as it is.
    from.detach()?;
    timed(&rig, "a", false)?;
    let mut from = rig.attach("a", Options::default())?;
    let sent = message(Over::V4, b, a, SYNC, 0);
    assert_eq!(held(&mut from, &mut to, &sent, none)?.1, sent);
    assert_eq!(rig.core_counter("ptp_timed"), timed_so_far);
    rig.finish(Copies::Unknown)
}

/// A message that waits for a receive buffer, and behind a limit of its sender.
#[test]
fn waits_of_each_kind_are_added() -> Result<()> {
    const WAIT: Duration = Duration::from_millis(3);
    let clock = VirtualClock::new(Duration::from_micros(1));
    let mut rig = Rig::with_clock(clock.clone())?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let settings = AdapterSettings {
        ptp: true,
        burst: Burst::Poll,
        ..AdapterSettings::default()
    };
    rig.nic.configure_adapter("b", &settings)?;
    rig.nic.restart_adapter("b")?;
    let mut from = rig.attach("a", Options::default())?;
    let mut to = rig.attach(
        "b",
        Options {
            post: 0,
            repost: false,
            ..Options::default()
        },
    )?;
    let sent = message(Over::V6, b, a, SYNC, 0);
    from.send_wait(0, &sent, NetHdr::default());
    from.drain();
    clock.pass(WAIT);
    ensure!(to.try_recv(0).is_none());
    to.post(0, 8);
    clock.pass(Duration::ZERO);
    let (hdr, frame) = next(&mut to)?;
    let (time, unchanged) = added(Over::V6, &hdr, &frame);
    assert!(
        (WAIT..WAIT + Duration::from_micros(900)).contains(&time),
        "{time:?}"
    );
    assert_eq!(unchanged, sent);
    // 1 Mbit/s: frames wait behind each other in the queue of the receiver, at most so long.
    rig.nic.set_qos(
        "b",
        QosSpec {
            rate: 1_000_000,
            ..QosSpec::default()
        },
    )?;
    to.post(0, 64);
    for _ in 0..20 {
        from.send_wait(0, &sent, NetHdr::default());
    }
    from.drain();
    clock.pass(Duration::from_secs(1));
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let (hdr, frame) = next(&mut to)?;
        let (time, unchanged) = added(Over::V6, &hdr, &frame);
        assert_eq!(unchanged, sent);
        assert!(time >= longest, "in order: {time:?} after {longest:?}");
        longest = time;
    }
    let each = Duration::from_micros((sent.len() as u64 + 24) * 8);
    assert!(longest > 4 * each && longest < 20 * each, "{longest:?}");
    rig.finish(Copies::Extra(0))
}

/// Sender and receiver on different cores, and a wire, by the machine's time: what a rule holds until it is removed was there
/// at least for as long as this test looked on.
#[test]
fn cores_share_the_time_and_wires_are_timed() -> Result<()> {
    let mut rig = Rig::new(2)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    timed(&rig, "b", true)?;
    let (_, mut wire) = rig.nic.add_port_exchange(PortSpec::new(
        "p0",
        PortKind::Mesh {
            label: "a test".into(),
        },
    ))?;
    rig.nic.set_port_link("p0", true, None)?;
    let mut from = rig.attach("a", Options::default())?;
    let mut to = rig.attach("b", Options::default())?;
    let host = MacAddr([2, 0xaa, 0, 0, 0, 1]);
    // Lets a rule hold the frame that `send` sends, and says how long it was seen to.
    let hold = |rig: &Rig, to: &str, send: &mut dyn FnMut()| -> Result<Duration> {
        let action = Action::Delay {
            by: Duration::from_secs(60),
            jitter: Duration::ZERO,
        };
        rig.nic.add_fault(FaultSpec {
            to: Some(to.into()),
            from: (to == "p0").then(|| "b".into()),
            ..FaultSpec::new("f", action)
        })?;
        send();
        ensure!(wait_for(|| rig.nic.fault("f").is_ok_and(|f| f.injected == 1)));
        let held = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        let seen = held.elapsed();
        rig.nic.remove_fault("f")?;
        Ok(seen)
    };
    for over in ALL {
        let sent = message(over, b, a, SYNC, 0);
        let seen = hold(&rig, "b", &mut || from.send_wait(0, &sent, NetHdr::default()))?;
        let (hdr, frame) = next(&mut to)?;
        let (time, unchanged) = added(over, &hdr, &frame);
        assert!(time >= seen, "{over:?}: {time:?}, {seen:?}");
        assert_eq!(unchanged, sent);
        // From the wire, and to it.
        let sent = message(over, b, host, SYNC, 0);
        let seen = hold(&rig, "b", &mut || {
            wire.tx.put_or_lose(&sent);
            wire.tx.flush();
        })?;
        let (hdr, frame) = next(&mut to)?;
        let (time, unchanged) = added(over, &hdr, &frame);
        assert!(time >= seen, "{over:?}: {time:?}, {seen:?}");
        assert_eq!(unchanged, sent);
        let sent = message(over, host, b, DELAY_REQ, 0);
        let seen = hold(&rig, "p0", &mut || to.send_wait(0, &sent, NetHdr::default()))?;
        let until = deadline();
        let frame = loop {
            let is_it = |f: &&[u8]| f.starts_with(&host.0);
            if let Some(frame) = wire.rx.next_frame().as_deref().filter(is_it) {
                break frame.to_vec();
            }
            ensure!(Instant::now() < until, "nothing came to the wire");
            std::thread::yield_now();
        };
        let (time, unchanged) = added(over, &NetHdr::default(), &frame);
        assert!(time >= seen, "{over:?}: {time:?}, {seen:?}");
        assert_eq!(unchanged, sent);
    }
    rig.finish(Copies::Unknown)
}

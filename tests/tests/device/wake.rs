//! Wake-on-LAN: magic packets for adapters whose guests do not run.

use std::time::Duration;

use anyhow::Result;
use vnic_backend::settings::AdapterSettings;
use vnic_backend::{AttachState, MacAddr, NicEventKind, VirtualClock, VlanMode};
use vnic_tests::driver::packets::{BROADCAST, eth, tagged};
use vnic_tests::driver::rig::{Copies, Rig, wait_for};
use vnic_tests::driver::{Guest, NetHdr, Options};

/// A magic packet; real ones come by UDP, or with a protocol of their own.
fn magic(to: MacAddr, from: MacAddr, whom: MacAddr) -> Vec<u8> {
    let payload = [&[0xff; 6][..], &whom.0.repeat(16), &[0; 6]].concat();
    eth(to, from, [8, 0x42], &payload)
}

/// Sends frames.
fn send(rig: &Rig, guest: &mut Guest, frames: &[Vec<u8>]) -> Result<()> {
    for frame in frames {
        guest.send_wait(0, frame, NetHdr::default());
    }
    guest.drain();
    rig.settle()
}

/// Waits until so many magic packets were reported, and no more.
fn reported(rig: &mut Rig, expected: usize) {
    let mut count = || {
        let mut of = |name| rig.count_events(name, |k| matches!(k, NicEventKind::MagicPacket { .. }));
        of("b") + of("c")
    };
    // (Events come in their order: one that should not have come before is counted with the next.)
    assert!(wait_for(|| count() >= expected), "{} of {expected}", count());
    assert_eq!(count(), expected);
}

#[test]
fn a_magic_packet_for_a_guest_that_does_not_run_is_an_event() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_millis(1));
    let mut rig = Rig::with_clock(clock.clone())?;
    let a = rig.add_with("a", |spec| spec.anti_spoofing = true)?;
    let b = rig.add("b")?;
    let other = rig.add_with("c", |spec| spec.vlan = VlanMode::Access(7))?;
    let mut ga = rig.attach("a", Options::default())?;
    let pause = Duration::from_secs(1);
    // To everybody; again within a second; to the address itself.
    let asks = [magic(BROADCAST, a, b)];
    send(&rig, &mut ga, &asks)?;
    let by = "a".to_owned();
    rig.wait_event("b", |k| {
        *k == NicEventKind::MagicPacket {
            source: a,
            by: by.clone(),
        }
    })?;
    send(&rig, &mut ga, &asks)?;
    clock.pass(pause);
    send(&rig, &mut ga, &[magic(b, a, b)])?;
    reported(&mut rig, 2);
    clock.pass(pause);
    // Nobody's address, a part of the pattern, another VLAN, somebody else's source.
    let mut part = asks[0].clone();
    part.truncate(60);
    let nobody = MacAddr([2, 0, 0, 0, 9, 9]);
    let none = [
        magic(BROADCAST, a, nobody),
        part,
        magic(BROADCAST, a, other),
        magic(BROADCAST, b, b),
    ];
    send(&rig, &mut ga, &none)?;
    send(&rig, &mut ga, &[tagged(&magic(BROADCAST, a, other), 7)])?;
    reported(&mut rig, 3);
    // Whoever runs is awake.
    let gb = rig.attach("b", Options::default())?;
    send(&rig, &mut ga, &asks)?;
    drop(gb);
    rig.state("b", AttachState::Detached)?;
    send(&rig, &mut ga, &asks)?;
    reported(&mut rig, 4);
    clock.pass(pause);
    // WOL_MAGIC_EN=0, and 1 again.
    for wake_on_magic in [false, true] {
        let settings = AdapterSettings {
            wake_on_magic,
            ..AdapterSettings::default()
        };
        rig.nic.configure_adapter("b", &settings)?;
        rig.nic.restart_adapter("b")?;
        send(&rig, &mut ga, &asks)?;
        clock.pass(pause);
    }
    reported(&mut rig, 5);
    rig.finish(Copies::Unknown)
}

/// Patterns of the operator's, while *WakeOnPattern is 1.
#[test]
fn a_frame_with_a_pattern_is_an_event() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_millis(1));
    let mut rig = Rig::with_clock(clock.clone())?;
    let a = rig.add("a")?;
    let b = rig.add_with("b", |spec| {
        spec.wake_patterns = ["12+88:b5:07", "12+88:b5:--:08"]
            .iter()
            .filter_map(|p| p.parse().ok())
            .collect();
    })?;
    let mut ga = rig.attach("a", Options::default())?;
    let frame = |to, bytes: [u8; 2]| eth(to, a, [0x88, 0xb5], &[&bytes[..], &[0; 44]].concat());
    let woken = |rig: &mut Rig| rig.count_events("b", |k| matches!(k, NicEventKind::WakePattern { .. }));
    let pause = Duration::from_secs(1);
    send(
        &rig,
        &mut ga,
        &[frame(BROADCAST, [6, 7]), frame(BROADCAST, [6, 8])],
    )?;
    rig.wait_event("b", |k| {
        let pattern = "12+88:b5:--:08".to_owned();
        let by = "a".to_owned();
        *k == NicEventKind::WakePattern {
            source: a,
            by,
            pattern,
        }
    })?;
    // Again within a second, with a magic packet.
    send(&rig, &mut ga, &[frame(b, [7, 7]), magic(BROADCAST, a, b)])?;
    clock.pass(pause);
    // A restart lets the key act; a change of the patterns acts at once.
    for (on, patterns) in [(false, 2), (true, 0), (true, 2)] {
        let settings = AdapterSettings {
            wake_on_pattern: on,
            ..AdapterSettings::default()
        };
        rig.nic.configure_adapter("b", &settings)?;
        rig.nic.restart_adapter("b")?;
        let mut spec = rig.nic.adapter("b")?.spec;
        spec.wake_patterns = ["12+88:b5:07", "13+b5"][..patterns]
            .iter()
            .filter_map(|p| p.parse().ok())
            .collect();
        rig.nic.update_adapter(spec)?;
        send(&rig, &mut ga, &[frame(b, [7, 7])])?;
        clock.pass(pause);
    }
    assert!(wait_for(|| woken(&mut rig) >= 2), "{}", woken(&mut rig));
    assert_eq!(woken(&mut rig), 2);
    assert_eq!(
        rig.count_events("b", |k| matches!(k, NicEventKind::MagicPacket { .. })),
        0
    );
    rig.finish(Copies::Unknown)
}

/// The core that a packet comes to reports it, and no other.
#[test]
fn a_packet_that_crosses_cores_is_one_event() -> Result<()> {
    let mut rig = Rig::new(2)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    for more in ["d", "e", "f"] {
        rig.add(more)?;
    }
    let mut ga = rig.attach("a", Options::default())?;
    let others = ["d", "e", "f"].map(|name| rig.attach(name, Options::default()));
    send(&rig, &mut ga, &[magic(BROADCAST, a, b)])?;
    // The event of another packet comes behind all of the first.
    let c = rig.add("c")?;
    send(&rig, &mut ga, &[magic(BROADCAST, a, c)])?;
    rig.wait_event("c", |k| matches!(k, NicEventKind::MagicPacket { .. }))?;
    reported(&mut rig, 2);
    drop(others);
    rig.finish(Copies::Unknown)
}

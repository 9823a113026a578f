//! Completion methods: what a guest that asks for interrupts gets by each, and that no guest is left asleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vnic_backend::MacAddr;
use vnic_backend::settings::{AdapterSettings, RecvCompletion, SendCompletion};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{Guest, NetHdr, Options, Ring, feature};

const RECEIVING: [RecvCompletion; 3] = [
    RecvCompletion::Polling,
    RecvCompletion::Adaptive,
    RecvCompletion::NdisPoll,
];
const SENDING: [SendCompletion; 3] = [
    SendCompletion::Polling,
    SendCompletion::Interrupt,
    SendCompletion::NdisPoll,
];

/// Nobody sleeps so long, unless it was forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

fn frame(to: MacAddr, from: MacAddr, number: u32) -> [u8; 64] {
    let mut f = [0; 64];
    f[..6].copy_from_slice(&to.0);
    f[6..12].copy_from_slice(&from.0);
    f[12..14].copy_from_slice(&[0x88, 0xb5]);
    f[14..18].copy_from_slice(&number.to_be_bytes());
    f
}

fn configure(rig: &Rig, name: &str, change: impl FnOnce(&mut AdapterSettings)) -> Result<()> {
    let mut settings = AdapterSettings::default();
    change(&mut settings);
    rig.nic.configure_adapter(name, &settings)?;
    // Completion methods wait for a restart.
    rig.nic.restart_adapter(name)?;
    Ok(())
}

/// Sleeps until the device interrupts.
fn sleep(ring: &Ring) -> Result<()> {
    ensure!(ring.wait_for_call(FORGOTTEN), "the guest was left asleep");
    Ok(())
}

/// Takes frames until it has `n`, sleeping whenever there is none: as an interrupt-driven driver does.
fn sleeper(guest: &mut Guest, n: u32, taken: &AtomicU32) -> Result<()> {
    let mut next = 0;
    while next < n {
        while let Some((_, _, frame)) = guest.try_recv(0) {
            ensure!(frame[14..18] == next.to_be_bytes(), "frame {next} is not there");
            next += 1;
            taken.store(next, Ordering::Release);
        }
        guest.rx(0).ring.want_calls(true);
        fence(Ordering::SeqCst);
        let ring = &guest.rx(0).ring;
        if next < n && ring.used_idx() == ring.taken {
            sleep(ring)?;
            ring.calls();
        }
    }
    Ok(())
}

fn asleep((receive, send, by_thread): (RecvCompletion, SendCompletion, bool), features: u64) -> Result<()> {
    const FRAMES: u32 = 3000;
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("vf0")?, rig.add("vf1")?);
    configure(&rig, "vf0", |s| {
        (s.send_completion, s.threaded.send) = (send, by_thread)
    })?;
    configure(&rig, "vf1", |s| {
        (s.recv_completion, s.threaded.receive) = (receive, by_thread)
    })?;
    let options = Options {
        calls: true,
        queue_size: 64,
        ..Options::default().with(features)
    };
    let mut sender = rig.attach("vf0", options.clone())?;
    let mut receiver = rig.attach("vf1", options)?;
    let taken = Arc::new(AtomicU32::new(0));
    let shared = taken.clone();
    let taker = std::thread::spawn(move || sleeper(&mut receiver, FRAMES, &shared).map(|()| receiver));
    let give_up = Instant::now() + FORGOTTEN;
    for i in 0..FRAMES {
        // Never more than the receiver has buffers for: a frame that was dropped would never come.
        while i - taken.load(Ordering::Acquire) > 32 || sender.tx(0).outstanding() > 16 {
            ensure!(
                !taker.is_finished() && Instant::now() < give_up,
                "the receiver sleeps at frame {i}"
            );
            // The sender sleeps, too, for its completions.
            sender.reclaim(0);
            sender.tx(0).ring.want_calls(true);
            fence(Ordering::SeqCst);
            let queue = sender.tx(0);
            let ring = &queue.ring;
            if ring.used_idx() != ring.taken {
                continue;
            }
            if queue.outstanding() > 0 {
                sleep(ring)?;
                ring.calls();
            } else {
                std::thread::yield_now();
            }
        }
        ensure!(sender.send(0, &frame(b, a, i), NetHdr::default()), "no room");
        // Single frames, and bursts that come in bursts.
        if i % 97 == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    let receiver = taker.join().expect("no panic")?;
    sender.drain();
    assert_eq!(rig.counter("vf1", "rx_frames"), u64::from(FRAMES));
    for (adapter, all, threaded) in [
        ("vf0", "tx_notifications", "tx_notifications_threaded"),
        ("vf1", "rx_notifications", "rx_notifications_threaded"),
    ] {
        let all = rig.counter(adapter, all);
        assert_eq!(
            rig.counter(adapter, threaded),
            if by_thread { all } else { 0 },
            "{adapter}"
        );
    }
    drop((sender, receiver));
    rig.finish(Copies::Extra(0))
}

#[test]
fn a_guest_that_sleeps_gets_every_frame() -> Result<()> {
    for features in [0, feature::RING_EVENT_IDX] {
        for (receive, send) in RECEIVING.into_iter().zip(SENDING) {
            asleep((receive, send, false), features)?;
        }
        // By a thread beside the data core.
        asleep(
            (RecvCompletion::Adaptive, SendCompletion::Interrupt, true),
            features,
        )?;
    }
    Ok(())
}

/// What is owed when a ring stops, or its method changes, comes at once.
#[test]
fn what_is_owed_is_not_lost_when_the_ring_stops() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("vf0")?, rig.add("vf1")?);
    configure(&rig, "vf1", |s| s.recv_completion = RecvCompletion::Polling)?;
    let mut sender = rig.attach("vf0", Options::default())?;
    let mut receiver = rig.attach(
        "vf1",
        Options {
            calls: true,
            ..Options::default()
        },
    )?;
    receiver.rx(0).ring.want_calls(true);
    receiver.rx(0).ring.calls();
    sender.send(0, &frame(b, a, 0), NetHdr::default());
    sender.drain();
    receiver.stop_ring(0)?;
    sleep(&receiver.rx(0).ring)?;
    assert_eq!(rig.counter("vf1", "rx_notifications"), 1);
    assert_eq!(rig.counter("vf1", "rx_notifications_coalesced"), 1);
    drop((sender, receiver));
    rig.finish(Copies::Extra(0))
}

/// One frame at a time to a guest that always asks for interrupts and takes each frame at once. How often it was
/// interrupted, and how often that was put off.
fn one_by_one(method: RecvCompletion) -> Result<(u64, u64, u64)> {
    const FRAMES: u32 = 200;
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("vf0")?, rig.add("vf1")?);
    configure(&rig, "vf1", |s| s.recv_completion = method)?;
    let mut sender = rig.attach("vf0", Options::default())?;
    let mut receiver = rig.attach(
        "vf1",
        Options {
            calls: true,
            ..Options::default()
        },
    )?;
    for i in 0..FRAMES {
        sender.send_wait(0, &frame(b, a, i), NetHdr::default());
        ensure!(receiver.recv(0, deadline()).is_some(), "frame {i} does not come");
    }
    sender.drain();
    rig.settle()?;
    let counter = |name| rig.counter("vf1", name);
    let counts = (
        counter("rx_notifications"),
        counter("rx_notifications_coalesced"),
        counter("rx_notifications_suppressed"),
    );
    assert_eq!(counter("rx_frames"), u64::from(FRAMES));
    drop((sender, receiver));
    rig.finish(Copies::Extra(0))?;
    Ok(counts)
}

#[test]
fn the_methods_interrupt_as_they_are_named() -> Result<()> {
    // Each time the guest asks, and never otherwise.
    assert_eq!(one_by_one(RecvCompletion::NdisPoll)?, (200, 0, 0));
    // Always put off; sent only to a guest that seems to have fallen asleep.
    let (sent, put_off, suppressed) = one_by_one(RecvCompletion::Polling)?;
    assert_eq!((put_off, suppressed), (200, 0));
    assert!(sent <= put_off, "{sent}");
    // At once while there is little to do: how many of these come too fast for that is the machine's.
    let (sent, put_off, suppressed) = one_by_one(RecvCompletion::Adaptive)?;
    assert!(
        sent > 0 && sent + put_off + suppressed >= 200,
        "{sent} {put_off} {suppressed}"
    );
    Ok(())
}

#[test]
fn many_frames_at_once_change_the_profile() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("vf0")?, rig.add("vf1")?);
    let mut sender = rig.attach(
        "vf0",
        Options {
            queue_size: 1024,
            ..Options::default()
        },
    )?;
    let mut receiver = rig.attach(
        "vf1",
        Options {
            queue_size: 1024,
            calls: true,
            ..Options::default()
        },
    )?;
    let give_up = deadline();
    let mut i = 0;
    while rig.counter("vf1", "rx_profile_transitions") == 0 {
        ensure!(Instant::now() < give_up, "the profile never changed");
        for _ in 0..512 {
            ensure!(sender.stage(0, &frame(b, a, i), NetHdr::default()), "no room");
            i += 1;
        }
        sender.tx(0).ring.publish();
        sender.drain();
        for _ in 0..512 {
            ensure!(receiver.recv(0, deadline()).is_some(), "a frame is missing");
        }
    }
    drop((sender, receiver));
    rig.finish(Copies::Extra(0))
}

#[test]
fn sent_frames_are_completed_together_as_set() -> Result<()> {
    for (method, batch, interrupts) in [
        (SendCompletion::Interrupt, 32, 2),
        (SendCompletion::Interrupt, 8, 8),
        (SendCompletion::NdisPoll, 1, 64),
        (SendCompletion::Interrupt, 64, 1),
        (SendCompletion::Interrupt, 256, 1),
    ] {
        let mut rig = Rig::new(1)?;
        let (a, b) = (rig.add("vf0")?, rig.add("vf1")?);
        configure(&rig, "vf0", |s| {
            (s.send_completion, s.tx_coalescing) = (method, batch)
        })?;
        let options = Options {
            calls: true,
            ..Options::default()
        };
        let mut sender = rig.attach("vf0", options)?;
        let mut receiver = rig.attach("vf1", Options::default())?;
        for i in 0..64 {
            ensure!(sender.stage(0, &frame(b, a, i), NetHdr::default()), "no room");
        }
        sender.tx(0).ring.publish();
        for i in 0..64u32 {
            let (_, _, frame) = receiver.recv(0, deadline()).expect("a frame");
            assert_eq!(frame[14..18], i.to_be_bytes());
        }
        sender.drain();
        assert_eq!(
            rig.counter("vf0", "tx_notifications"),
            interrupts,
            "{method:?}, {batch} together"
        );
        assert_eq!(rig.counter("vf0", "tx_notifications_coalesced"), 0);
        drop((sender, receiver));
        rig.finish(Copies::Extra(0))?;
    }
    // A guest that polls for completions is interrupted only when it seems to sleep.
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("vf0")?, rig.add("vf1")?);
    configure(&rig, "vf0", |s| s.send_completion = SendCompletion::Polling)?;
    let mut sender = rig.attach(
        "vf0",
        Options {
            calls: true,
            ..Options::default()
        },
    )?;
    let receiver = rig.attach("vf1", Options::default())?;
    for i in 0..100 {
        sender.send_wait(0, &frame(b, a, i), NetHdr::default());
        sender.drain();
    }
    assert_eq!(rig.counter("vf0", "tx_notifications_coalesced"), 100);
    drop((sender, receiver));
    rig.finish(Copies::Extra(0))
}

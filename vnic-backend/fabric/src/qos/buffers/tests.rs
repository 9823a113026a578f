use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::qos::{BufferParts, PauseSettings};

const BUFFER: Buffer = Buffer {
    size: 64 << 10,
    xoff: 16 << 10,
    xon: 12 << 10,
    headroom: 8 << 10,
    cable_len: 7,
    beta: 100,
    parts: None,
};

fn qos(pfc: u8, buffer: Buffer) -> PortQos {
    PortQos {
        pause: PauseSettings {
            pfc,
            ..PauseSettings::default()
        },
        buffer,
        ..PortQos::default()
    }
}

#[test]
fn one_source_waits_at_xoff_and_goes_on_at_xon() {
    let mut b = Buffers::new(&qos(0b1000, BUFFER));
    for _ in 0..15 {
        b.admit(2, 3, 1024).unwrap();
    }
    assert_eq!((b.poll_change(), b.pausing()), (None, 0));
    b.admit(2, 3, 1024).unwrap();
    assert_eq!(
        b.poll_change(),
        Some(Change {
            source: 2,
            xoff: 0b1000
        })
    );
    assert_eq!((b.poll_change(), b.pausing()), (None, 0b1000));
    for _ in 0..8 {
        b.admit(2, 3, 1024).unwrap();
    }
    assert_eq!(b.admit(2, 3, 1024), Err(DropReason::LosslessOverflow));
    assert_eq!(b.used(), 24 << 10);
    // Others are not held up.
    b.admit(1, 3, 1024).unwrap();
    b.admit(2, 4, 1024).unwrap();
    for _ in 0..11 {
        b.release(2, 3, 1024);
    }
    assert_eq!(b.poll_change(), None);
    b.release(2, 3, 1024);
    assert_eq!(b.poll_change(), Some(Change { source: 2, xoff: 0 }));
    assert_eq!(b.pausing(), 0);
}

#[test]
fn a_lossy_priority_drops_where_a_lossless_one_waits() {
    let mut b = Buffers::new(&qos(0b1000, BUFFER));
    for _ in 0..16 {
        b.admit(0, 0, 1024).unwrap();
    }
    assert_eq!(b.admit(0, 0, 64), Err(DropReason::EgressFull));
    assert_eq!((b.poll_change(), b.pausing()), (None, 0));
    // Many lossy sources leave something to who comes late, and to the lossless ones.
    for source in 1..100 {
        while b.admit(source, 0, 64).is_ok() {}
    }
    assert!(b.used() <= 64 << 10);
    for source in 0..100 {
        b.admit(source, 3, 8192).unwrap();
        let told = b.poll_change().expect("there is little room");
        assert_eq!((told.source, told.xoff), (source, 0b1000));
    }
    assert_eq!(b.used(), (64 << 10) - b.free(0) + 100 * 8192);
}

#[test]
fn silence_tells_everybody_to_go_and_its_end_tells_them_again() {
    let mut b = Buffers::new(&qos(0xff, BUFFER));
    for source in 0..2 {
        b.admit(source, 5, 16 << 10).unwrap();
    }
    let told = |b: &mut Buffers| {
        core::iter::from_fn(|| b.poll_change())
            .map(|c| (c.source, c.xoff))
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&mut b), [(0, 0x20), (1, 0x20)]);
    b.set_silent(true);
    assert_eq!(told(&mut b), [(0, 0), (1, 0)]);
    assert_eq!(b.pausing(), 0x20, "they would be told");
    b.admit(0, 6, 16 << 10).unwrap();
    b.admit(0, 5, 8 << 10).unwrap();
    assert_eq!(b.admit(0, 5, 64), Err(DropReason::LosslessOverflow));
    b.release(1, 5, 16 << 10);
    assert_eq!(told(&mut b), []);
    b.set_silent(false);
    assert_eq!(told(&mut b), [(0, 0x60)]);
}

#[test]
fn changes_between_two_looks_are_one_or_none() {
    let mut b = Buffers::new(&qos(0xff, BUFFER));
    for _ in 0..100 {
        b.admit(1, 0, 16 << 10).unwrap();
        b.release(1, 0, 16 << 10);
    }
    assert_eq!(b.changes.len(), 1);
    assert_eq!(b.poll_change(), None);
}

#[test]
fn another_configuration_tells_who_waits_now() {
    let mut b = Buffers::new(&qos(0, BUFFER));
    b.admit(7, 3, 16 << 10).unwrap();
    b.configure(&qos(0b1000, BUFFER));
    assert_eq!(b.poll_change(), Some(Change { source: 7, xoff: 8 }));
    b.configure(&qos(
        0b1000,
        Buffer {
            xoff: 60 << 10,
            ..BUFFER
        },
    ));
    assert_eq!(b.poll_change(), Some(Change { source: 7, xoff: 0 }));
    b.configure(&qos(
        0b1000,
        Buffer {
            size: 8 << 10,
            xoff: 8 << 10,
            ..BUFFER
        },
    ));
    assert_eq!(b.poll_change(), Some(Change { source: 7, xoff: 8 }));
    b.configure(&qos(0, BUFFER));
    assert_eq!(
        (b.poll_change(), b.pausing()),
        (Some(Change { source: 7, xoff: 0 }), 0)
    );
    b.release(7, 3, 16 << 10);
    assert_eq!(b.used(), 0);
}

/// Bytes of one source and priority that are taken before it is told to wait.
fn taken(b: &mut Buffers, source: u16, priority: u8) -> u32 {
    (1..=64)
        .find(|_| {
            b.admit(source, priority, 1024).unwrap();
            b.poll_change().is_some()
        })
        .expect("there is little room")
}

#[test]
fn beta_is_how_much_of_what_is_left_one_may_have() {
    let of = |beta| {
        let mut b = Buffers::new(&qos(
            0xff,
            Buffer {
                xoff: 64 << 10,
                beta,
                ..BUFFER
            },
        ));
        [taken(&mut b, 0, 3), taken(&mut b, 1, 3)]
    };
    assert_eq!(of(100), [32, 16], "as much as it leaves");
    assert_eq!(of(50), [22, 14], "half of it");
    assert_eq!(of(800), [57, 7], "eight times as much: DCQCN's");
}

#[test]
fn priorities_of_another_buffer_have_its_room() {
    let parts = BufferParts {
        size: [16 << 10, 0, 0, 48 << 10, 0, 0, 0, 0],
        of_priority: [0, 0, 0, 3, 0, 0, 0, 0],
    };
    let parted = Buffer {
        xoff: 64 << 10,
        beta: 6400,
        parts: Some(parts),
        ..BUFFER
    };
    let mut b = Buffers::new(&qos(0b1000, parted));
    // Lossy ones fill theirs, and nothing else.
    while b.admit(0, 0, 1024).is_ok() {}
    assert_eq!(b.used(), 16 << 10);
    assert_eq!(b.admit(1, 5, 1024), Err(DropReason::EgressFull));
    assert_eq!(taken(&mut b, 2, 3), 48);
    // What waits counts where its priority's room is now.
    b.configure(&qos(
        0b1000,
        Buffer {
            parts: None,
            ..parted
        },
    ));
    assert_eq!((b.used(), b.free(0)), (64 << 10, 0));
    b.configure(&qos(0b1000, parted));
    for _ in 0..16 {
        b.release(0, 0, 1024);
    }
    assert_eq!((b.free(0), b.free(3)), (16 << 10, 0));
}

/// So many sources send to one port as fast as it, each, in turns of one frame; an XOFF or XON reaches them when they have
/// sent `lag` more frames (or would have). The port sends one frame a turn, of whoever has most. Frames of each source.
fn incast(sources: u16, lag: usize, bytes: u32, buffer: Buffer) -> Vec<u64> {
    let mut b = Buffers::new(&qos(0b1000, buffer));
    let mut waiting = std::vec![0u32; usize::from(sources)];
    let mut sent = std::vec![0u64; usize::from(sources)];
    let mut stopped = std::vec![false; usize::from(sources)];
    let mut news: BTreeMap<usize, Vec<Change>> = BTreeMap::new();
    let mut next = 0;
    for turn in 0..20_000 {
        for change in news.remove(&turn).unwrap_or_default() {
            stopped[usize::from(change.source)] = change.xoff != 0;
        }
        for s in 0..sources {
            if !stopped[usize::from(s)] {
                b.admit(s, 3, bytes)
                    .unwrap_or_else(|e| panic!("{sources} sources, turn {turn}: {e:?}"));
                waiting[usize::from(s)] += 1;
            }
        }
        if let Some(s) = (0..sources)
            .map(|i| (next + i) % sources)
            .find(|s| waiting[usize::from(*s)] > 0)
        {
            b.release(s, 3, bytes);
            waiting[usize::from(s)] -= 1;
            sent[usize::from(s)] += 1;
            next = s + 1;
        }
        let changes: Vec<_> = core::iter::from_fn(|| b.poll_change()).collect();
        news.entry(turn + lag + 1).or_default().extend(changes);
    }
    let most = u64::from(buffer.size) + u64::from(sources) * u64::from(buffer.headroom);
    assert!(b.used() <= most);
    sent
}

#[test]
fn incast_loses_nothing_and_starves_nobody() {
    for sources in [2, 8, 64, 256] {
        for (lag, bytes) in [(0, 1500), (4, 1500), (7, 1024), (100, 64)] {
            let sent = incast(sources, lag, bytes, BUFFER);
            let all: u64 = sent.iter().sum();
            assert!(
                all >= 19_900,
                "the port is always busy: {all} of 20000 ({sources} sources, lag {lag})"
            );
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            assert!(
                most - least <= most / 3 + 20,
                "{sources} sources, lag {lag}: {sent:?}"
            );
        }
    }
    // As an adapter has it by default.
    assert!(incast(64, 20, 9000, Buffer::default()).iter().sum::<u64>() >= 19_990);
}

proptest! {
    /// Whatever comes: the counts add up, memory is bounded, a lossy priority is never told to wait, and who is told to
    /// wait has something there.
    #[test]
    fn an_arbitrary_life(
        ops in prop::collection::vec((0..5u16, 0..8u8, 1..9000u32, 0..4u8), 1..400),
        pfc in any::<u8>(),
        size in 2048..100_000u32,
        xoff in 2048..40_000u32,
        headroom in 0..20_000u32,
        beta in Buffer::BETA_RANGE,
        parts in prop::option::of((prop::array::uniform8(0..12_000u32), prop::array::uniform8(0..8u8))),
    ) {
        let parts = parts.map(|(size, of_priority)| BufferParts { size, of_priority });
        let buffer = Buffer { size, xoff, xon: xoff / 2, headroom, cable_len: 0, beta, parts };
        let mut b = Buffers::new(&qos(pfc, buffer));
        let mut waiting: Vec<(u16, u8, u32)> = Vec::new();
        let mut told = [0u8; 5];
        for (source, priority, bytes, op) in ops {
            match op {
                0..=1 => match b.admit(source, priority, bytes) {
                    Ok(()) => waiting.push((source, priority, bytes)),
                    Err(DropReason::EgressFull) => prop_assert_eq!(pfc & 1 << priority, 0),
                    Err(reason) => {
                        prop_assert_eq!(reason, DropReason::LosslessOverflow);
                        prop_assert_ne!(pfc & 1 << priority, 0);
                    }
                },
                2 if !waiting.is_empty() => {
                    let (s, p, n) = waiting.remove(bytes as usize % waiting.len());
                    b.release(s, p, n);
                }
                _ => b.set_silent(bytes % 2 == 0),
            }
            while let Some(change) = b.poll_change() {
                prop_assert_ne!(told[usize::from(change.source)], change.xoff);
                told[usize::from(change.source)] = change.xoff;
            }
            let used: u64 = waiting.iter().map(|w| u64::from(w.2)).sum();
            prop_assert_eq!(b.used(), used);
            for (shared, size) in b.shared.iter().zip(b.size) {
                prop_assert!(*shared <= u64::from(size));
            }
            let rooms = 5 * u64::from(pfc.count_ones()) * u64::from(headroom);
            prop_assert!(b.headroom <= rooms);
            let all = b.sources.iter().fold(0, |all, s| all | s.xoff);
            prop_assert_eq!(b.pausing(), all);
            for (s, xoff) in told.iter().enumerate() {
                prop_assert_eq!(xoff & !pfc, 0);
                prop_assert!(!b.silent || *xoff == 0);
                for p in 0..8 {
                    if xoff & 1 << p != 0 {
                        let any = waiting.iter().any(|w| (usize::from(w.0), w.1) == (s, p));
                        prop_assert!(any, "{} waits for nothing", s);
                    }
                }
            }
        }
        for (s, p, n) in waiting {
            b.release(s, p, n);
        }
        prop_assert_eq!((b.used(), b.pausing()), (0, 0));
    }
}

//! HPCC's telemetry: the layout of its bytes, its units, and that `parse` undoes `emit`.

use proptest::prelude::*;
use vnic_wire::Error;
use vnic_wire::int::{self, HOPS_MAX, Hop, LEN_MAX, SENT_WRAP, TIMESTAMP_WRAP, Telemetry};

/// Figure 7: hop count and path in 16 bits, then 64 bits of each hop.
#[test]
fn layout() {
    assert_eq!(LEN_MAX, 42);
    let mut t = Telemetry::EMPTY;
    assert_eq!(t.emit().1, 2);
    t.push(
        0xabc,
        Hop {
            timestamp: 0x12_3456,
            sent: 0x7_89ab,
            queue: 0xcdef,
            speed: 0xa,
        },
    );
    let (bytes, len) = t.emit();
    assert_eq!(
        bytes[..len],
        [0x1a, 0xbc, 0xa1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]
    );
    assert_eq!(bytes[len..], [0; LEN_MAX - 10]);
}

#[test]
fn a_port_writes_down_its_units() {
    let hop = Hop::new(
        TIMESTAMP_WRAP + 5,
        SENT_WRAP + 3 * 128 + 127,
        80 * 7 + 79,
        100_000_000_000,
    );
    assert_eq!((hop.timestamp, hop.sent, hop.queue), (5, 3, 7));
    assert_eq!((hop.rate(), hop.queued()), (Some(100_000_000_000), 560));
    // A longer queue than 16 bits can say is the longest that they can.
    assert_eq!(Hop::new(0, 0, u64::MAX, 0).queue, u16::MAX);
}

/// A port may have any rate, its code may not: what part of the link is used, and for how long it is busy, stay the same.
#[test]
fn speeds_between_codes() {
    let part = |rate: u64| {
        let before = Hop::new(1_000, 7 << 40, 1_000_000, rate);
        // A millisecond at 60 %.
        let after = Hop::new(1_001_000, (7 << 40) + rate / 8_000 * 6 / 10, 1_000_000, rate);
        let known = after.rate().expect("a code") as f64 / 8e9;
        let used = after.sent_since(&before) as f64 / after.time_since(&before) as f64 / known;
        (used, after.queued() as f64 / known)
    };
    for rate in [
        300_000_000,
        999_999_999,
        1_500_000_000,
        30_000_000_000,
        99_000_000_000,
        700_000_000_000,
    ] {
        let (used, queue) = part(rate);
        assert!((used - 0.6).abs() < 0.004, "{rate}: {used}");
        let busy = 8e15 / rate as f64;
        assert!((queue / busy - 1.0).abs() < 0.001, "{rate}: {queue} {busy}");
    }
}

#[test]
fn counters_wrap() {
    let before = Hop::new(TIMESTAMP_WRAP - 10, SENT_WRAP - 256, 0, 0);
    let after = Hop::new(TIMESTAMP_WRAP + 20, SENT_WRAP + 384, 0, 0);
    assert_eq!((after.time_since(&before), after.sent_since(&before)), (30, 640));
    assert_eq!((after.time_since(&after), after.sent_since(&after)), (0, 0));
}

#[test]
fn speeds_have_codes() {
    let gigabits = |code| int::rate(code).map(|r| r / 100_000_000);
    let known: Vec<u64> = (0..=15).filter_map(gigabits).collect();
    assert_eq!(
        known,
        [10, 25, 50, 100, 200, 250, 400, 500, 560, 1000, 2000, 4000, 8000]
    );
    assert_eq!((int::rate(0), int::rate(14), int::rate(255)), (None, None, None));
    for code in 1..=13 {
        let rate = int::rate(code).unwrap();
        assert_eq!(
            (
                int::speed_code(rate),
                int::speed_code(rate + 1),
                int::speed_code(rate - 1)
            ),
            (code, code, code - 1)
        );
    }
    assert_eq!((int::speed_code(0), int::speed_code(u64::MAX)), (0, 13));
}

#[test]
fn a_sixth_switch_only_changes_the_path() {
    let mut t = Telemetry::EMPTY;
    for switch in 1..=6 {
        t.push(switch, Hop::new(u64::from(switch), 0, 0, 0));
    }
    let times: Vec<u32> = t.hops().iter().map(|h| h.timestamp).collect();
    // (All of them XORed.)
    assert_eq!((times, t.path), (vec![1, 2, 3, 4, 5], 0b111));
    // A count that is out of range, as anybody may write it, is no reason to panic.
    t.count = 255;
    assert_eq!((t.hops().len(), t.emit().1), (HOPS_MAX, LEN_MAX));
}

fn hop() -> impl Strategy<Value = Hop> {
    (0..1u32 << 24, 0..1u32 << 20, any::<u16>(), 0..16u8).prop_map(|(timestamp, sent, queue, speed)| Hop {
        timestamp,
        sent,
        queue,
        speed,
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read(hops in prop::collection::vec((0..0x1000u16, hop()), 0..=HOPS_MAX), tail: [u8; 9]) {
        let mut t = Telemetry::EMPTY;
        for (switch, hop) in &hops {
            t.push(*switch, *hop);
        }
        let (bytes, len) = t.emit();
        prop_assert_eq!(len, 2 + 8 * hops.len());
        let mut followed = bytes[..len].to_vec();
        followed.extend(tail);
        prop_assert_eq!(Telemetry::parse(&followed), Ok((t, len)));
        for cut in 0..len {
            prop_assert_eq!(Telemetry::parse(&bytes[..cut]), Err(Error::Truncated));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        match Telemetry::parse(&bytes) {
            Ok((t, len)) => prop_assert_eq!(&t.emit().0[..len], &bytes[..len]),
            Err(Error::Length) => prop_assert!(usize::from(bytes[0] >> 4) > HOPS_MAX),
            Err(e) => {
                prop_assert_eq!(e, Error::Truncated);
                prop_assert!(bytes.len() < 2 || bytes.len() < 2 + 8 * usize::from(bytes[0] >> 4));
            }
        }
    }

    #[test]
    fn differences_are_right_across_wraps(time: u32, elapsed in 0..TIMESTAMP_WRAP, sent: u32, more in 0..SENT_WRAP) {
        let (time, sent) = (u64::from(time), u64::from(sent));
        let before = Hop::new(time, sent, 0, 0);
        let after = Hop::new(time + elapsed, sent + more, 0, 0);
        prop_assert_eq!(after.time_since(&before), elapsed);
        prop_assert_eq!(after.sent_since(&before) / 128, ((sent + more) / 128 - sent / 128) % (SENT_WRAP / 128));
    }
}

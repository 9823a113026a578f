//! The sender of RMPP transfers: the table of its states printed in full, and transfers with losses and receivers of all kinds.
//!
//! `UPDATE_EXPECT=1 cargo test -p vnic-engine --test engine rmpp::` writes the text of the table anew.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write;
use std::time::Duration;

use expect_test::{Expect, expect, expect_file};
use proptest::prelude::*;
use vnic_engine::rdma::rmpp::{Act, Input, RESPONSE, Sender, State, TOTAL, TRIES, step};
use vnic_wire::mad;
use vnic_wire::sa::{Rmpp, RmppType, SaMad, rmpp_status};
use vnic_wire::time::Instant;

#[test]
fn the_whole_table() {
    let mut out = String::new();
    for state in State::ALL {
        writeln!(out, "# {state}").unwrap();
        for input in Input::ALL {
            let Some(row) = step(state, input) else { continue };
            let act = match row.act {
                Act::Nothing => String::new(),
                act => format!(" {act:?}"),
            };
            writeln!(out, "{:<21} -> {}{act}", input.name(), row.next.name()).unwrap();
        }
        writeln!(out).unwrap();
    }
    expect_file!["../snapshots/rmpp_sender.txt"].assert_eq(&out);
}

/// A transfer, and what became of it, a line each.
struct Transfer {
    sender: Sender,
    now: Instant,
    log: String,
}

impl Transfer {
    fn new(segments: u32) -> Transfer {
        let (sender, now) = (Sender::new(segments), Instant(1_000_000_000));
        let log = String::new();
        Transfer { sender, now, log }
    }

    /// Sends what is to be sent; returns the numbers.
    fn send(&mut self) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(number) = self.sender.next_segment() {
            numbers.push(number);
            self.sender.sent(self.now);
        }
        self.note(&format!("sends {numbers:?}"), None);
        numbers
    }

    fn note(&mut self, what: &str, abort: Option<u8>) {
        let at = (self.now.0 - 1_000_000_000) / 1_000_000;
        let state = self.sender.state();
        let abort = abort.map_or(String::new(), |status| format!(", ABORT {status}"));
        writeln!(self.log, "{at} ms {what}: {state}{abort}").unwrap();
    }

    fn hear(&mut self, packet: Rmpp) -> Option<u8> {
        let abort = self.sender.hear(self.now, &packet);
        let kind = match packet.kind {
            RmppType::ACK => format!("ACK {} of {}", packet.segment, packet.payload_len),
            RmppType::STOP => format!("STOP {}", packet.status),
            RmppType::ABORT => format!("ABORT {}", packet.status),
            other => format!("type {}", other.0),
        };
        self.note(&kind, abort);
        abort
    }

    fn ack(&mut self, segment: u32, window: u32) {
        self.hear(Rmpp::ack(segment, window));
    }

    /// Lets time pass until something is due.
    fn wait(&mut self) -> Option<u8> {
        self.now = self.sender.next_timeout().unwrap();
        let abort = self.sender.handle_timeout(self.now);
        self.note("waits", abort);
        abort
    }

    fn is(&self, expected: Expect) {
        expected.assert_eq(&self.log);
    }
}

#[test]
fn a_transfer_keeps_within_the_window() {
    let mut t = Transfer::new(7);
    assert_eq!(t.sender.next_timeout(), None);
    t.send();
    t.ack(1, 4);
    t.send();
    // As Linux acknowledges: at the end of the window.
    t.ack(4, 68);
    t.send();
    t.ack(7, 68);
    assert_eq!((t.sender.next_timeout(), t.sender.next_segment()), (None, None));
    t.is(expect![[r#"
            0 ms sends [1]: Waiting
            0 ms ACK 1 of 4: Sending
            0 ms sends [2, 3, 4]: Waiting
            0 ms ACK 4 of 68: Sending
            0 ms sends [5, 6, 7]: Waiting
            0 ms ACK 7 of 68: Done
    "#]]);
}

/// Linux's acknowledgements of its own segments (`wire/tests/rmpp/record`) let us send the same ones, in the same order.
#[test]
fn linux_acknowledges_what_we_send() {
    let mut senders = [(3, Sender::new(12)), (5, Sender::new(2))];
    for line in include_str!("../../../wire/tests/rmpp/linux.txt").lines() {
        let (from, hex) = line.split_once(' ').unwrap();
        let mut bytes = [0; mad::LEN];
        for (byte, i) in bytes.iter_mut().zip((0..hex.len()).step_by(2)) {
            *byte = u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        }
        let mad = SaMad::parse(&bytes).unwrap();
        let of = |sender: &&mut (u64, Sender)| sender.0 == mad.transaction >> 32;
        let (_, sender) = senders.iter_mut().find(of).unwrap();
        match (from, mad.rmpp.is_active()) {
            ("SA", _) => {
                assert_eq!(sender.next_segment(), Some(mad.rmpp.segment));
                sender.sent(Instant(0));
            }
            (_, true) => assert_eq!(sender.hear(Instant(0), &mad.rmpp), None),
            (_, false) => assert_eq!((sender.state(), sender.next_segment()), (State::Sending, Some(1))),
        }
    }
    assert!(senders.iter().all(|(_, sender)| sender.state() == State::Done));
}

#[test]
fn a_window_of_one_is_a_segment_at_a_time() {
    let mut t = Transfer::new(3);
    for number in 1..=3 {
        assert_eq!(t.send(), [number]);
        assert_eq!(t.send(), []);
        t.ack(number, number + 1);
    }
    assert_eq!(t.sender.state(), State::Done);
}

#[test]
fn a_lost_segment_is_sent_again_with_those_behind_it() {
    let mut t = Transfer::new(6);
    t.send();
    t.ack(1, 6);
    t.send();
    // The fourth is lost: the receiver has those before it.
    t.ack(3, 6);
    t.wait();
    t.send();
    t.ack(6, 6);
    t.is(expect![[r#"
        0 ms sends [1]: Waiting
        0 ms ACK 1 of 6: Sending
        0 ms sends [2, 3, 4, 5, 6]: Waiting
        0 ms ACK 3 of 6: Waiting
        2000 ms waits: Sending
        2000 ms sends [4, 5, 6]: Waiting
        2000 ms ACK 6 of 6: Done
    "#]]);
}

#[test]
fn a_lost_acknowledgement_is_made_up_for() {
    let mut t = Transfer::new(3);
    t.send();
    t.wait();
    t.send();
    t.ack(1, 3);
    t.send();
    // The one of 2 is lost; that of 3 says it, too.
    t.ack(3, 3);
    t.is(expect![[r#"
        0 ms sends [1]: Waiting
        2000 ms waits: Sending
        2000 ms sends [1]: Waiting
        2000 ms ACK 1 of 3: Sending
        2000 ms sends [2, 3]: Waiting
        2000 ms ACK 3 of 3: Done
    "#]]);
}

#[test]
fn who_has_all_of_the_window_is_asked_for_another() {
    let mut t = Transfer::new(3);
    t.send();
    t.ack(1, 2);
    t.send();
    t.ack(2, 2);
    assert_eq!(t.send(), []);
    t.wait();
    assert_eq!(t.send(), [2]);
    t.ack(2, 3);
    assert_eq!(t.send(), [3]);
}

#[test]
fn what_was_acknowledged_is_not_sent_again() {
    let mut t = Transfer::new(6);
    t.send();
    t.ack(1, 6);
    t.send();
    t.wait();
    // What was sent before is acknowledged while it is about to be sent again.
    t.ack(5, 6);
    assert_eq!(t.send(), [6]);
    t.ack(6, 9);
    assert_eq!(t.sender.state(), State::Done);
}

#[test]
fn old_acknowledgements_say_nothing() {
    let mut t = Transfer::new(9);
    t.send();
    t.ack(1, 4);
    t.send();
    t.ack(3, 5);
    t.send();
    let due = t.sender.next_timeout();
    t.now = t.now + Duration::from_millis(500);
    for (segment, window) in [(3, 5), (3, 4), (1, 4), (2, 5), (0, 1), (1, 9)] {
        t.ack(segment, window);
        assert_eq!((t.sender.next_segment(), t.sender.next_timeout()), (None, due));
    }
    // A larger window alone is news.
    t.ack(3, 6);
    assert_eq!(t.send(), [6]);
}

#[test]
fn who_never_acknowledges_is_given_up() {
    let mut t = Transfer::new(4);
    for _ in 1..TRIES {
        assert_eq!(t.send(), [1]);
        assert_eq!(t.wait(), None);
    }
    t.send();
    assert_eq!(t.wait(), Some(rmpp_status::TOO_MANY_RETRIES));
    assert_eq!((t.sender.next_timeout(), t.sender.next_segment()), (None, None));
    t.is(expect![[r#"
        0 ms sends [1]: Waiting
        2000 ms waits: Sending
        2000 ms sends [1]: Waiting
        4000 ms waits: Sending
        4000 ms sends [1]: Waiting
        6000 ms waits: Sending
        6000 ms sends [1]: Waiting
        8000 ms waits: Sending
        8000 ms sends [1]: Waiting
        10000 ms waits: Aborted, ABORT 126
    "#]]);
}

#[test]
fn who_acknowledges_slowly_is_given_up_at_last() {
    let mut t = Transfer::new(1000);
    let began = t.now;
    for number in 1.. {
        t.send();
        if t.wait().is_some() {
            break;
        }
        t.send();
        t.ack(number, number + 1);
    }
    assert_eq!((t.now.since(began), t.sender.state()), (TOTAL, State::Aborted));
}

#[test]
fn the_receiver_says_how_long_it_takes() {
    for (time, wanted) in [
        (Rmpp::NO_TIME, 2000),
        (0, 200),
        // 4.096 µs · 2^17, and 2^30.
        (17, 536),
        (30, 2000),
    ] {
        let mut t = Transfer::new(4);
        t.send();
        t.hear(Rmpp {
            response_time: time,
            ..Rmpp::ack(1, 2)
        });
        t.send();
        let due = t.sender.next_timeout().unwrap().since(t.now);
        assert_eq!(due.as_millis(), wanted, "{time}");
    }
}

#[test]
fn a_receiver_ends_a_transfer() {
    for kind in [RmppType::STOP, RmppType::ABORT] {
        for status in [rmpp_status::NO_ROOM, rmpp_status::TOO_LONG, 0, 255] {
            let mut t = Transfer::new(4);
            t.send();
            t.ack(1, 3);
            assert_eq!(t.hear(Rmpp::control(kind, status)), None);
            assert_eq!((t.sender.state(), t.send()), (State::Stopped, vec![]));
            // It is over, whatever comes.
            t.ack(3, 4);
            assert_eq!(
                (t.sender.state(), t.sender.next_timeout()),
                (State::Stopped, None)
            );
        }
    }
}

#[test]
fn what_no_receiver_says_is_answered_by_an_abort() {
    let ack = Rmpp::ack(1, 3);
    let wrong = [
        // Behind the window, behind the last, a window that ends before it.
        (Rmpp::ack(4, 9), rmpp_status::SEGMENT_TOO_BIG),
        (Rmpp::ack(u32::MAX, u32::MAX), rmpp_status::SEGMENT_TOO_BIG),
        (Rmpp::ack(2, 1), rmpp_status::WINDOW_TOO_SMALL),
        (Rmpp { status: 1, ..ack }, rmpp_status::ILLEGAL_STATUS),
        (Rmpp { version: 2, ..ack }, rmpp_status::BAD_VERSION),
        (Rmpp::control(RmppType(5), 0), rmpp_status::BAD_TYPE),
        (Rmpp::data(1, 1), rmpp_status::BAD_TYPE),
    ];
    for (packet, status) in wrong {
        let mut t = Transfer::new(5);
        t.send();
        t.ack(1, 3);
        assert_eq!(t.hear(packet), Some(status), "{packet:?}");
        assert_eq!(
            (t.sender.state(), t.sender.next_timeout()),
            (State::Aborted, None)
        );
    }
    let mut t = Transfer::new(5);
    t.send();
    t.ack(1, u32::MAX);
    assert_eq!(t.send(), [2, 3, 4, 5]);
    assert_eq!(t.hear(Rmpp::ack(6, u32::MAX)), Some(rmpp_status::SEGMENT_TOO_BIG));
}

#[test]
fn what_waits_for_its_priority_is_not_overdue() {
    let mut t = Transfer::new(3);
    t.send();
    t.ack(1, 3);
    t.sender.sent(t.now);
    t.now = t.now + 10 * RESPONSE;
    assert_eq!(
        (t.sender.handle_timeout(t.now), t.sender.next_segment()),
        (None, Some(3))
    );
}

proptest! {
    /// Whatever a receiver says and when: no segment twice without a timeout, none beyond the window or the last, an end at last.
    #[test]
    fn any_receiver_gets_no_more_than_it_may(
        segments in 1..20_u32,
        script in prop::collection::vec((0..6_u8, 0..24_u32, 0..24_u32), 0..60),
    ) {
        let mut t = Transfer::new(segments);
        let (mut window, mut sent, mut waits) = (1, 0, 1);
        for (what, segment, more) in script {
            match what {
                0 => sent += t.send().len() as u32,
                1 | 2 => {
                    t.ack(segment, segment.saturating_add(more));
                    window = window.max(segment.saturating_add(more));
                }
                3 => drop(t.hear(Rmpp { kind: RmppType(segment as u8), ..Rmpp::ack(segment, more) })),
                4 if t.sender.next_timeout().is_some() => {
                    t.wait();
                    waits += 1;
                }
                _ => t.now = t.now + Duration::from_millis(more.into()),
            }
            if let Some(next) = t.sender.next_segment() {
                prop_assert!(next <= segments && next <= window);
            }
            prop_assert!(t.sender.next_timeout().is_none() || !t.sender.state().over());
        }
        prop_assert!(sent <= segments * waits);
        // Without another word it ends.
        for _ in 0..2 * TRIES {
            t.send();
            if t.sender.state().over() {
                break;
            }
            t.wait();
        }
        prop_assert!(t.sender.state().over());
    }
}

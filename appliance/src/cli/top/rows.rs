//! Rows of `vnicctl top`: objects with their rates between two looks, sorted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use vnic_control::v1;
use vnic_control::v1::counter::Scope;

use super::super::look::{Growth, per_second};
use super::super::screen::paint::{Cell, Colour};
use super::super::{adapter, qp, text};
use super::args::Sort;
use crate::names;

/// Bits in a byte.
const BYTE: u64 = 8;

/// An adapter or a port.
#[derive(Debug, Default, Serialize)]
pub struct Owner {
    pub name: String,
    pub state: &'static str,
    /// State of the RDMA function; empty for a port.
    pub rdma: &'static str,
    pub rx_bps: u64,
    pub tx_bps: u64,
    pub rx_pps: u64,
    pub tx_pps: u64,
    pub rdma_rx_bps: u64,
    pub rdma_tx_bps: u64,
    pub rdma_rx_pps: u64,
    pub rdma_tx_pps: u64,
    pub drops_per_second: u64,
    /// Drops since it was made.
    pub drops: u64,
}

/// A queue pair.
#[derive(Debug, Default, Serialize)]
pub struct QueuePair {
    pub adapter: String,
    pub number: u32,
    pub kind: &'static str,
    pub state: &'static str,
    pub peer: String,
    pub sent_pps: u64,
    pub received_pps: u64,
    pub errors_per_second: u64,
    /// Errors since it was made.
    pub errors: u64,
    pub unacknowledged: u32,
    pub window: u32,
    pub waits_for_receiver: bool,
    pub command: String,
}

/// A data core.
#[derive(Debug, Default, Serialize)]
pub struct Core {
    pub cpu: u64,
    pub busy_percent: u64,
    pub rounds_per_second: u64,
    pub sleeps_per_second: u64,
    pub commands_per_second: u64,
    pub panics: u64,
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// Adapters with their rates.
pub fn adapters(growth: &Growth<'_>, all: &[v1::Adapter]) -> Vec<Owner> {
    let row = |a: &v1::Adapter| {
        let rate = |scope, names: &[&str]| growth.rate(growth.sum(scope, &a.name, names));
        let queue = |name| rate(Scope::AdapterQueue, &[name]);
        let rdma = |way: &str, unit: &str| {
            let cast = |cast: &str| format!("{way}_vport_rdma_{cast}_{unit}");
            rate(Scope::Rdma, &[&cast("unicast"), &cast("multicast")])
        };
        Owner {
            name: names::last(&a.name).to_owned(),
            state: adapter::state(a),
            rdma: a.rdma.as_ref().map_or("none", adapter::rdma_word),
            rx_bps: queue("rx_bytes").saturating_mul(BYTE),
            tx_bps: queue("tx_bytes").saturating_mul(BYTE),
            rx_pps: queue("rx_frames"),
            tx_pps: queue("tx_frames"),
            rdma_rx_bps: rdma("rx", "bytes").saturating_mul(BYTE),
            rdma_tx_bps: rdma("tx", "bytes").saturating_mul(BYTE),
            rdma_rx_pps: rdma("rx", "packets"),
            rdma_tx_pps: rdma("tx", "packets"),
            drops_per_second: rate(Scope::AdapterDrop, &["drops"]),
            drops: a.traffic.map_or(0, |t| t.drops),
        }
    };
    all.iter().map(row).collect()
}

/// Ports with their rates.
pub fn ports(growth: &Growth<'_>, all: &[v1::Port]) -> Vec<Owner> {
    let row = |p: &v1::Port| {
        let port = |name| growth.rate(growth.sum(Scope::Port, &p.name, &[name]));
        Owner {
            name: names::last(&p.name).to_owned(),
            state: if p.up { "up" } else { "down" },
            rx_bps: port("rx_bytes").saturating_mul(BYTE),
            tx_bps: port("tx_bytes").saturating_mul(BYTE),
            rx_pps: port("rx_frames"),
            tx_pps: port("tx_frames"),
            drops_per_second: growth.rate(growth.sum(Scope::PortDrop, &p.name, &["drops"])),
            drops: p.traffic.map_or(0, |t| t.drops),
            ..Owner::default()
        }
    };
    all.iter().map(row).collect()
}

/// Packets between two PSNs, which have 24 bits.
fn packets(from: u32, to: u32) -> u64 {
    u64::from(to.wrapping_sub(from) & 0xff_ffff)
}

/// Queue pairs with their rates, which are what their PSNs went on by.
pub fn queue_pairs(growth: &Growth<'_>, before: &[v1::QueuePair], now: &[v1::QueuePair]) -> Vec<QueuePair> {
    let before: BTreeMap<&str, &v1::QueuePair> = before.iter().map(|p| (p.name.as_str(), p)).collect();
    let row = |p: &v1::QueuePair| {
        let (adapter, _) = names::queue_pair_parts(&p.name).unwrap_or_default();
        // A queue pair that came to a new life in between begins with PSNs of its own.
        let was = before
            .get(p.name.as_str())
            .filter(|was| was.state == p.state && was.peer == p.peer);
        let sends = p.sends.unwrap_or_default();
        let sent = was.and_then(|was| Some(packets(was.sends?.end_psn, p.sends?.end_psn)));
        let received = was.map(|was| packets(was.expected_psn, p.expected_psn));
        let errors = qp::errors_in_all(p);
        let new_errors = was.map_or(0, |was| errors.saturating_sub(qp::errors_in_all(was)));
        let rate = |n| per_second(n, growth.elapsed());
        QueuePair {
            adapter: adapter.to_owned(),
            number: p.number,
            kind: qp::kind(p),
            state: qp::state(p),
            peer: p.peer.as_ref().map_or("", qp::address).to_owned(),
            sent_pps: rate(sent.unwrap_or(0)),
            received_pps: rate(received.unwrap_or(0)),
            errors_per_second: rate(new_errors),
            errors,
            unacknowledged: sends.in_flight,
            window: sends.window,
            waits_for_receiver: sends.waits_for_receiver,
            command: p.owner.as_ref().map_or("", |o| &o.command).to_owned(),
        }
    };
    now.iter().map(row).collect()
}

/// Data cores with their rates.
pub fn cores(growth: &Growth<'_>) -> Vec<Core> {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for c in growth.of(Scope::Core) {
        let panics = all.entry(c.owner).or_default();
        if c.name == "panics" {
            *panics = c.value;
        }
    }
    let row = |(owner, panics): (&str, u64)| {
        let grew = |name: &str| growth.sum(Scope::Core, owner, &[name]);
        let (busy, idle) = (grew("busy_rounds"), grew("idle_rounds"));
        Core {
            cpu: names::last(owner).parse().unwrap_or(0),
            busy_percent: text::percent(busy, idle),
            rounds_per_second: growth.rate(busy.saturating_add(idle)),
            sleeps_per_second: growth.rate(grew("sleeps")),
            commands_per_second: growth.rate(grew("commands")),
            panics,
        }
    };
    all.into_iter().map(row).collect()
}

/// Sorts adapters or ports.
pub fn sort_owners(all: &mut [Owner], by: Sort) {
    let key = |o: &Owner| match by {
        Sort::Traffic => sum(&[o.rx_bps, o.tx_bps, o.rdma_rx_bps, o.rdma_tx_bps]),
        Sort::Packets => sum(&[o.rx_pps, o.tx_pps, o.rdma_rx_pps, o.rdma_tx_pps]),
        Sort::Drops | Sort::Errors => o.drops_per_second,
        Sort::Name => 0,
    };
    all.sort_by(|a, b| (key(b), &a.name).cmp(&(key(a), &b.name)));
}

/// Sorts queue pairs.
pub fn sort_queue_pairs(all: &mut [QueuePair], by: Sort) {
    let key = |q: &QueuePair| match by {
        Sort::Traffic | Sort::Packets => (sum(&[q.sent_pps, q.received_pps]), 0),
        Sort::Drops | Sort::Errors => (q.errors_per_second, q.errors),
        Sort::Name => (0, 0),
    };
    all.sort_by(|a, b| (key(b), &a.adapter, a.number).cmp(&(key(a), &b.adapter, b.number)));
}

/// Sorts data cores.
pub fn sort_cores(all: &mut [Core], by: Sort) {
    all.sort_by_key(|c| {
        let work = if by == Sort::Name { 0 } else { c.busy_percent };
        (Reverse(work), c.cpu)
    });
}

fn rate(n: u64) -> Cell {
    Cell::plain(text::short(n))
}

/// A number that should be zero.
fn odd(n: u64, colour: Colour) -> Cell {
    let colour = if n == 0 { Colour::Plain } else { colour };
    Cell::new(text::short(n), colour)
}

/// Colour of the state of an adapter, a function or a port.
fn state_colour(state: &str) -> Colour {
    match state {
        "up" => Colour::Green,
        "down" | "failed" => Colour::Red,
        _ => Colour::Plain,
    }
}

fn state(word: &str) -> Cell {
    Cell::new(word, state_colour(word))
}

/// A column: its heading, and the cell of a row.
pub type Column<T> = (&'static str, fn(&T) -> Cell);

pub const ADAPTERS: &[Column<Owner>] = &[
    ("ADAPTER", |o| Cell::plain(&o.name)),
    ("STATE", |o| state(o.state)),
    ("RDMA", |o| state(o.rdma)),
    (">DROPS/s", |o| odd(o.drops_per_second, Colour::Yellow)),
    (">RX b/s", |o| rate(o.rx_bps)),
    (">TX b/s", |o| rate(o.tx_bps)),
    (">RDMA RX", |o| rate(o.rdma_rx_bps)),
    (">RDMA TX", |o| rate(o.rdma_tx_bps)),
    (">RX f/s", |o| rate(o.rx_pps)),
    (">TX f/s", |o| rate(o.tx_pps)),
];

pub const PORTS: &[Column<Owner>] = &[
    ("PORT", |o| Cell::plain(&o.name)),
    ("LINK", |o| state(o.state)),
    (">DROPS/s", |o| odd(o.drops_per_second, Colour::Yellow)),
    (">RX b/s", |o| rate(o.rx_bps)),
    (">TX b/s", |o| rate(o.tx_bps)),
    (">RX f/s", |o| rate(o.rx_pps)),
    (">TX f/s", |o| rate(o.tx_pps)),
    (">DROPS", |o| rate(o.drops)),
];

pub const QUEUE_PAIRS: &[Column<QueuePair>] = &[
    ("DEV", |q| Cell::plain(&q.adapter)),
    (">QPN", |q| Cell::plain(q.number.to_string())),
    ("TYPE", |q| Cell::plain(q.kind)),
    ("STATE", |q| match q.state {
        "RTS" => Cell::new(q.state, Colour::Green),
        "ERR" | "SQE" => Cell::new(q.state, Colour::Red),
        _ => Cell::plain(q.state),
    }),
    ("PEER", |q| {
        Cell::plain(if q.peer.is_empty() { "-" } else { &q.peer })
    }),
    (">SENT/s", |q| rate(q.sent_pps)),
    (">RECV/s", |q| rate(q.received_pps)),
    (">ERR/s", |q| odd(q.errors_per_second, Colour::Yellow)),
    (">ERRORS", |q| rate(q.errors)),
    (">UNACKED", |q| {
        let waits = if q.waits_for_receiver {
            Colour::Yellow
        } else {
            Colour::Plain
        };
        Cell::new(format!("{}/{}", q.unacknowledged, q.window), waits)
    }),
    ("COMMAND", |q| Cell::plain(&q.command)),
];

/// Busy rounds in per cent from which on a core is shown as busy.
const BUSY_PERCENT: u64 = 95;

pub const CORES: &[Column<Core>] = &[
    (">CORE", |c| Cell::plain(c.cpu.to_string())),
    (">BUSY %", |c| {
        let busy = c.busy_percent >= BUSY_PERCENT && c.sleeps_per_second == 0;
        let colour = if busy { Colour::Yellow } else { Colour::Plain };
        Cell::new(c.busy_percent.to_string(), colour)
    }),
    (">ROUNDS/s", |c| rate(c.rounds_per_second)),
    (">SLEEPS/s", |c| rate(c.sleeps_per_second)),
    (">COMMANDS/s", |c| rate(c.commands_per_second)),
    (">BUGS", |c| odd(c.panics, Colour::Red)),
];

#[cfg(test)]
mod tests {
    use super::super::super::look::tests::{counter, looks};
    use super::*;

    #[test]
    fn rates_are_bits_and_frames_in_a_second() {
        let (a, queue) = ("adapters/a", Scope::AdapterQueue);
        let [before, now] = looks(
            vec![counter(queue, a, "rx_bytes", "0", 1000)],
            vec![
                counter(queue, a, "rx_bytes", "0", 3000),
                counter(queue, a, "rx_frames", "0", 20),
                counter(queue, a, "rx_frames", "1", 20),
                counter(Scope::Rdma, a, "tx_vport_rdma_unicast_bytes", "", 500),
                counter(Scope::Rdma, a, "tx_vport_rdma_multicast_bytes", "", 500),
                counter(Scope::AdapterDrop, a, "drops", "runt", 6),
                counter(Scope::Port, "ports/p", "tx_frames", "", 4),
                counter(Scope::Core, "cores/2", "busy_rounds", "", 50),
                counter(Scope::Core, "cores/2", "idle_rounds", "", 150),
            ],
        );
        let growth = Growth::new(&before, &now);
        let adapter = v1::Adapter {
            name: a.to_owned(),
            ..v1::Adapter::default()
        };
        let row = &adapters(&growth, &[adapter])[0];
        assert_eq!((row.name.as_str(), row.rdma), ("a", "none"));
        assert_eq!((row.rx_bps, row.rx_pps, row.tx_bps), (8000, 20, 0));
        assert_eq!((row.rdma_tx_bps, row.drops_per_second), (4000, 3));
        let port = v1::Port {
            name: "ports/p".to_owned(),
            ..v1::Port::default()
        };
        let row = &ports(&growth, &[port])[0];
        assert_eq!((row.state, row.tx_pps), ("down", 2));
        let row = &cores(&growth)[0];
        assert_eq!((row.cpu, row.busy_percent, row.rounds_per_second), (2, 25, 100));
    }

    #[test]
    fn packets_of_queue_pairs_are_counted_by_their_psns_over_the_end_of_the_numbers() {
        let pair = |end_psn, expected_psn, errors| v1::QueuePair {
            name: "adapters/a/queuePairs/17".to_owned(),
            number: 17,
            sends: Some(v1::QueuePairSends {
                end_psn,
                ..v1::QueuePairSends::default()
            }),
            expected_psn,
            errors: Some(v1::QueuePairErrors {
                out_of_sequence: errors,
                ..v1::QueuePairErrors::default()
            }),
            ..v1::QueuePair::default()
        };
        let [before, now] = looks(Vec::new(), Vec::new());
        let growth = Growth::new(&before, &now);
        let rows = queue_pairs(&growth, &[pair(0xff_fffe, 5, 1)], &[pair(2, 7, 5)]);
        let row = &rows[0];
        assert_eq!((row.sent_pps, row.received_pps), (2, 1));
        assert_eq!((row.errors_per_second, row.errors), (2, 5));
        // One that is new has no rate yet.
        let rows = queue_pairs(&growth, &[], &[pair(9, 9, 1)]);
        assert_eq!(
            (rows[0].sent_pps, rows[0].errors_per_second, rows[0].errors),
            (0, 0, 1)
        );
    }

    #[test]
    fn rows_are_sorted_by_what_was_asked_for_and_then_by_name() {
        let owner = |name: &str, rx_bps, rx_pps, drops_per_second| Owner {
            name: name.to_owned(),
            rx_bps,
            rx_pps,
            drops_per_second,
            ..Owner::default()
        };
        for (by, wanted) in [
            (Sort::Traffic, "cab"),
            (Sort::Packets, "bac"),
            (Sort::Drops, "acb"),
            (Sort::Errors, "acb"),
            (Sort::Name, "abc"),
        ] {
            let mut all = [owner("b", 1, 9, 0), owner("a", 1, 5, 7), owner("c", 3, 5, 0)];
            if by == Sort::Drops || by == Sort::Errors {
                all[2].drops_per_second = 1;
            }
            sort_owners(&mut all, by);
            let names: String = all.iter().map(|o| o.name.as_str()).collect();
            assert_eq!(names, wanted, "{by:?}");
        }
        let pair = |number, sent_pps, errors| QueuePair {
            number,
            sent_pps,
            errors,
            ..QueuePair::default()
        };
        for (by, wanted) in [
            (Sort::Traffic, [3, 1, 2]),
            (Sort::Errors, [2, 1, 3]),
            (Sort::Name, [1, 2, 3]),
        ] {
            let mut all = [pair(2, 0, 5), pair(3, 9, 0), pair(1, 0, 0)];
            sort_queue_pairs(&mut all, by);
            assert_eq!(all.map(|q| q.number), wanted, "{by:?}");
        }
    }

    #[test]
    fn what_is_odd_is_in_colour() {
        assert_eq!(state("failed").colour, Colour::Red);
        assert_eq!(state("down").colour, Colour::Red);
        assert_eq!(state("up").colour, Colour::Green);
        assert_eq!(state("detached").colour, Colour::Plain);
        assert_eq!(odd(0, Colour::Yellow).colour, Colour::Plain);
        assert_eq!(odd(1, Colour::Yellow).colour, Colour::Yellow);
        let core = Core {
            busy_percent: 100,
            ..Core::default()
        };
        assert_eq!((CORES[1].1)(&core).colour, Colour::Yellow);
    }
}

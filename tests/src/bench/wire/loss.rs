//! `wire-loss`: what is left of the goodput between two daemons when packets are lost on the way.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::super::product::Counters;
use super::super::report::{Outcome, Summary};
use super::super::{Lab, Run};
use super::{MESH, Pair, Verb, Wires, path_mtu};

/// What is done, and how lost packets are sent again: the name in a row, and the ways of selective repeat. No ways: go-back-N.
const REPEATS: [(&str, Verb, Option<u32>); 8] = [
    ("go-back-n", Verb::Write, None),
    ("selective", Verb::Write, Some(1)),
    ("4-ways", Verb::Write, Some(4)),
    ("16-ways", Verb::Write, Some(16)),
    ("read-go-back-n", Verb::Read, None),
    ("read-selective", Verb::Read, Some(1)),
    ("read-4-ways", Verb::Read, Some(4)),
    ("read-16-ways", Verb::Read, Some(16)),
];

/// Packets lost of a million in each direction, and the same in per cent as rows name it.
const LOSSES: [(&str, u32); 4] = [("0", 0), ("0.01", 100), ("0.1", 1_000), ("1", 10_000)];

/// MTU without `--mtu`.
const MTU: u16 = 9000;

/// What one row has seen.
#[derive(Debug, Default)]
struct Row {
    /// Bytes a second in each round, and those of its peer.
    rounds: Vec<[f64; 2]>,
    /// Packets that faults dropped, packets sent again one by one, and timeouts of the ACK timer.
    events: [u64; 3],
}

impl Row {
    fn outcome(&self, name: String, peer: &'static str, note: &str) -> Result<Outcome> {
        let column = |i: usize| -> Vec<f64> { self.rounds.iter().map(|both| both[i] * 1e-9).collect() };
        let ratios: Vec<f64> = self.rounds.iter().map(|[ours, peer]| ours / peer).collect();
        let names = ["lost", "repeated", "timeouts"];
        Ok(Outcome {
            name,
            unit: "GB/s",
            value: Summary::of(&column(0)).context("no rounds")?,
            peer: Some((peer, Summary::of(&column(1)).context("no rounds")?)),
            ratio: Summary::of(&ratios),
            bare_exchange: None,
            rounds: self.rounds.len(),
            details: names.into_iter().zip(self.events.map(|n| n as f64)).collect(),
            notes: vec![note.into()],
        })
    }
}

/// The counters that a row has, summed over both hosts.
fn events(wires: &Wires, pair: &Pair) -> Result<[u64; 3]> {
    let mut sums = [0; 3];
    for (host, product) in wires.hosts.iter().zip(&pair.products) {
        // (Metrics are on the hosts' own loopback.)
        let counters: Counters = host.run(|| product.counters())?;
        sums[0] += counters.drops("fault_injected");
        sums[1] += counters.total("roce_selective_repeats");
        sums[2] += counters.total("local_ack_timeout_err");
    }
    Ok(sums)
}

/// One round: without a rule, and with one that drops each part of [`LOSSES`]. A program's rate falls while it runs on shared CPUs, so that each part
/// is measured between two windows in which nothing is lost, whose mean is its peer.
fn round(
    lab: &Lab,
    wires: &Wires,
    (verb, ways): (Verb, Option<u32>),
    rows: &mut [Row; LOSSES.len()],
) -> Result<()> {
    let pair = Pair::new(lab, wires)?;
    for product in &pair.products {
        product.repeat_selectively(ways)?;
    }
    let window = |lost: Option<u32>| -> Result<f64> {
        lab.sleep(std::time::Duration::ZERO)?;
        if let Some(lost) = lost {
            for product in &pair.products {
                product.lose(lost)?;
            }
        }
        pair.bandwidth(verb, lab.window)
    };
    let mut before = window(None)?;
    for (row, (percent, lost)) in rows.iter_mut().zip(LOSSES) {
        let seen = events(wires, &pair)?;
        let rate = window(Some(lost)).with_context(|| format!("while {percent} % are lost"))?;
        for (sum, (after, before)) in row
            .events
            .iter_mut()
            .zip(events(wires, &pair)?.into_iter().zip(seen))
        {
            *sum += after - before;
        }
        let after = window(Some(0))?;
        row.rounds.push([rate, (before + after) / 2.0]);
        before = after;
    }
    Ok(())
}

/// `wire-loss`.
pub fn run(lab: &Lab) -> Result<Run> {
    if lab.uplink == MESH && lab.vnicd.is_none() {
        return Ok(Run::Skipped("a mesh is of a daemon (--vnicd)".into()));
    }
    let mtu = lab.mtu.unwrap_or(MTU);
    let wires = match Wires::new(mtu, 1)? {
        Ok(wires) => wires,
        Err(why) => return Ok(Run::Skipped(why)),
    };
    let wanted = |name: &str| lab.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut all = BTreeMap::<usize, [Row; LOSSES.len()]>::new();
    for round_number in 0..lab.rounds {
        for (i, (name, verb, ways)) in REPEATS.into_iter().enumerate() {
            if !wanted(name) {
                continue;
            }
            let rows = all.entry(i).or_default();
            round(lab, &wires, (verb, ways), rows).with_context(|| name.to_owned())?;
            let last = rows.iter().filter_map(|row| row.rounds.last());
            let last: Vec<String> = last.map(|[rate, _]| format!("{:.2}", rate * 1e-9)).collect();
            eprintln!(
                "wire-loss-{name} round {}/{}: {} GB/s",
                round_number + 1,
                lab.rounds,
                last.join(", ")
            );
        }
    }
    let note = format!(
        "64 KiB, one RC queue pair, {} under way, path MTU {}, ports of kind {}, MTU {mtu}; lost at each receiver",
        super::WINDOW,
        path_mtu(mtu).bytes(),
        lab.uplink,
    );
    let mut figures = Vec::new();
    for (i, rows) in &all {
        for (row, (percent, lost)) in rows.iter().zip(LOSSES) {
            let peer = match lost {
                0 => "without a rule before, nothing lost after",
                _ => "nothing lost, before and after",
            };
            figures.push(row.outcome(format!("wire-loss-{}-{percent}", REPEATS[*i].0), peer, &note)?);
        }
    }
    Ok(Run::Measured(figures))
}

//! What requesters were told by a recording is compared with what responders did.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use vnic_engine::rdma::{End, QpNumber};
use vnic_fabric::Instant;
use vnic_wire::MacAddr;
use vnic_wire::psn::Psn;

use super::state::{Running, State};
use crate::rdma::{Arrival, Journal, Row};
use crate::types::*;

/// How much later than its first packet a request may seem to have begun, by the clocks of two data cores.
const SKEW: Duration = Duration::from_millis(10);
/// Requests of a connection among which the one of a PSN is looked for.
const NEAREST: usize = 64;

/// Journals of an adapter.
pub struct Recording {
    /// Its name.
    pub adapter: String,
    /// Its address.
    pub mac: MacAddr,
    /// What was noted, by driver.
    pub journals: Vec<Journal>,
}

/// Adapters by their addresses.
pub fn macs(state: &State) -> BTreeMap<MacAddr, String> {
    let each = state.adapters.iter().flat_map(|(name, entry)| {
        let macs = entry.adapter.spec().macs.clone();
        macs.into_iter().map(move |mac| (mac, name.clone()))
    });
    each.collect()
}

/// A way from a requester to a responder.
type Way = (End, End);

/// Requests of a way with the places of their fates, by their first PSNs.
type ByPsn<'a> = BTreeMap<u32, Vec<(usize, &'a Row)>>;

/// Requests of all ways.
#[derive(Default)]
struct Ways<'a>(HashMap<Way, ByPsn<'a>>);

impl<'a> Ways<'a> {
    fn add(&mut self, from: End, row: &'a Row, fate: usize) {
        if let Some(sent) = &row.sent {
            let way = self.0.entry((from, sent.to)).or_default();
            way.entry(sent.first.value()).or_default().push((fate, row));
        }
    }

    /// The request that a message is of. PSNs come again: it is the last one that had begun.
    fn of(&self, to: End, message: &Arrival) -> Option<usize> {
        let way = self.0.get(&(message.from, to))?;
        let psn = message.first.value();
        let holds = |(_, row): &&(usize, &Row)| {
            row.sent.is_some_and(|sent| {
                u32::try_from(message.first.distance(sent.first)).is_ok_and(|d| d < sent.psns)
            })
        };
        let begun = |row: &Row| row.sent.map(|sent| sent.at);
        let (mut before, mut behind) = (None, None);
        let lower = way.range(..=psn).rev().take(NEAREST);
        for (_, all) in lower.chain(way.range(psn..).rev().take(NEAREST)) {
            let (had, had_not) =
                all.split_at(all.partition_point(|(_, row)| begun(row) <= Some(message.at + SKEW)));
            let last = had.iter().rev().take(NEAREST).find(holds);
            before = before.max(last.map(|(fate, row)| (begun(row), *fate)));
            behind = behind.or_else(|| had_not.iter().take(NEAREST).find(holds).map(|(fate, _)| *fate));
        }
        before.map(|(_, fate)| fate).or(behind)
    }
}

/// Compares what was noted of all adapters; `others`: adapters of the daemon by their addresses.
pub fn compare(running: &Running, all: &[Recording], others: &BTreeMap<MacAddr, String>) -> Recorded {
    let since = |at: Instant| at.since(running.began);
    let recorded: BTreeMap<MacAddr, &str> = all.iter().map(|r| (r.mac, &*r.adapter)).collect();
    let mut status = running.status.clone();
    status.runs = false;
    let mut fates = Vec::new();
    let mut ways = Ways::default();
    for recording in all {
        for (process, journal) in (1..).zip(&recording.journals) {
            status.dropped += journal.first;
            status.lost += journal.lost;
            status.requests += journal.first + journal.rows.len() as u64;
            let mut rows: Vec<&Row> = journal.rows.iter().collect();
            rows.sort_by_key(|row| row.pair);
            for row in rows {
                let from = End {
                    mac: recording.mac,
                    qp: QpNumber(row.qp),
                };
                ways.add(from, row, fates.len());
                let last = |first: Psn, psns: u32| first.add(psns.saturating_sub(1)).value();
                fates.push(Fate {
                    adapter: recording.adapter.clone(),
                    process,
                    owner: journal.owner,
                    pair: row.pair,
                    qp: row.qp,
                    wr_id: row.wr_id,
                    operation: row.operation,
                    bytes: row.bytes,
                    signaled: row.signaled,
                    posted: row.posted.map(since),
                    psns: row.sent.map(|s| (s.first.value(), last(s.first, s.psns))),
                    told: row.told.map(|(status, at)| (status, since(at))),
                    really: row.really,
                    gone: row.gone,
                    there: there(row, &recorded, others),
                });
            }
        }
    }
    for recording in all {
        for journal in &recording.journals {
            for message in journal.arrivals.values().flatten() {
                let to = End {
                    mac: recording.mac,
                    qp: QpNumber(message.qp),
                };
                let fate = ways.of(to, message).and_then(|fate| fates.get_mut(fate));
                if let Some(There::Seen(seen)) = fate.map(|fate| &mut fate.there) {
                    see(seen, journal, message, since(message.at));
                }
            }
        }
    }
    let mut summary = BTreeMap::new();
    for fate in &fates {
        *summary.entry(fate.verdict()).or_default() += 1;
    }
    Recorded {
        status,
        fates: Arc::new(fates),
        summary,
    }
}

/// What may have happened to a request at its responder, before messages that came are looked at.
fn there(row: &Row, recorded: &BTreeMap<MacAddr, &str>, others: &BTreeMap<MacAddr, String>) -> There {
    let local = |operation| matches!(operation, WorkOperation::BindMw | WorkOperation::LocalInvalidate);
    match (row.operation, row.sent) {
        (None, _) => There::None,
        (Some(operation), _) if local(operation) => There::None,
        (_, None) => There::Unsent,
        (_, Some(sent)) => match (recorded.get(&sent.to.mac), others.get(&sent.to.mac)) {
            (Some(adapter), _) => There::Seen(Seen {
                adapter: (*adapter).to_owned(),
                qp: sent.to.qp.0,
                ..Seen::default()
            }),
            (None, Some(adapter)) => There::NotRecorded {
                adapter: adapter.clone(),
            },
            (None, None) => There::Elsewhere,
        },
    }
}

/// Adds a message that came to what is known of its request.
fn see(seen: &mut Seen, journal: &Journal, message: &Arrival, at: Duration) {
    if seen.times == 0 {
        seen.at = Some(at);
    }
    seen.bytes = seen.bytes.max(message.bytes);
    seen.times += u32::from(message.whole);
    let row = message.receive.and_then(|number| journal.row(number));
    if let (None, Some(row)) = (seen.receive, row) {
        seen.receive = Some(TakenReceive {
            wr_id: row.wr_id,
            told: row.told.map(|(status, _)| status),
        });
    }
}

//! Queue pairs of RDMA functions: by pages, one, and what has changed since the last look.

use std::collections::BTreeMap;
use std::time::Duration;

use vnic_backend::{Caller, Nic, NicError, QpErrors, QpObservation, QpState, QpStatus, RdmaOwners};

use super::Control;
use super::refused::Refused;

pub struct QueuePairs<'a>(pub &'a Control);

/// A process that is connected to the socket of an RDMA function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The process, as the kernel noted it.
    pub caller: Caller,
    /// Its name, if it still runs and is seen from here.
    pub command: Option<String>,
}

/// A queue pair of an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePairNow {
    /// Name of the adapter.
    pub adapter: String,
    /// Process that has made the queue pair, as far as it is known.
    pub owner: Option<Process>,
    pub status: QpStatus,
    /// What was counted of it, if it is observed and was asked for alone.
    pub observation: Option<QpObservation>,
}

/// A place in a list of what all adapters have: behind all with lower names of adapters, and up to this place of the adapter's.
pub type Place = (String, u64);

/// A page of a list of what adapters have: each with its adapter, and the place behind which there may be more.
type Page<T> = (Vec<(String, T)>, Option<Place>);

/// Part of what an adapter has, and the place behind which there may be more.
type Part<T> = (Vec<T>, Option<u64>);

/// Walks through adapters, ordered by name, from a place on, until `size` queue pairs were found that are wanted. `ask` gives
/// part of an adapter's; `None`: the adapter has none, or is gone.
pub(super) fn walk<T>(
    adapters: &[String],
    after: Option<&Place>,
    size: usize,
    wanted: impl Fn(&T) -> bool,
    mut ask: impl FnMut(&str, Option<u64>, usize) -> Result<Option<Part<T>>, NicError>,
) -> Result<Page<T>, NicError> {
    let mut all = Vec::new();
    for adapter in adapters {
        let mut behind = match after {
            Some((last, _)) if adapter < last => continue,
            Some((last, place)) if adapter == last => Some(*place),
            _ => None,
        };
        while let Some((rows, next)) = ask(adapter, behind, size - all.len())? {
            let rows = rows.into_iter().filter(&wanted);
            all.extend(rows.map(|row| (adapter.clone(), row)));
            if all.len() == size {
                // Behind its last place there may be another adapter.
                let more = next.or_else(|| (adapters.last() != Some(adapter)).then_some(u64::MAX));
                return Ok((all, more.map(|place| (adapter.clone(), place))));
            }
            if next.is_none() {
                break;
            }
            behind = next;
        }
    }
    Ok((all, None))
}

impl QueuePairs<'_> {
    /// Queue pairs of one adapter or of all that are wanted, behind a place, at most `size`, and the place behind which there may
    /// be more. May block.
    pub fn page(
        &self,
        only: Option<&str>,
        after: Option<&Place>,
        size: usize,
        wanted: impl Fn(&QpStatus) -> bool,
    ) -> Result<(Vec<QueuePairNow>, Option<Place>), Refused> {
        let nic = &self.0.nic;
        let adapters = match only {
            Some(name) => vec![name.to_owned()],
            None => self.0.adapter_names().into_iter().collect(),
        };
        let page = walk(&adapters, after, size, wanted, |adapter, behind, most| {
            let behind = behind.map(|place| u32::try_from(place).unwrap_or(u32::MAX));
            match nic.queue_pairs(adapter, behind, most) {
                // Of all adapters: one without an RDMA function, or one that was removed meanwhile, has none.
                Err(NicError::NotFound { .. }) if only.is_none() => Ok(None),
                answer => answer.map(|page| Some((page.rows, page.next.map(u64::from)))),
            }
        });
        let (rows, next) = page.map_err(Refused::Nic)?;
        let mut owners = BTreeMap::new();
        let now = |(adapter, status): (String, QpStatus)| QueuePairNow {
            owner: owners
                .entry(adapter.clone())
                .or_insert_with(|| Owners::of(nic, &adapter))
                .of_queue_pair(status.number.0),
            adapter,
            status,
            observation: None,
        };
        Ok((rows.into_iter().map(now).collect(), next))
    }

    /// A queue pair, which is observed for so long from now on with `keep`. May block.
    pub fn get(&self, adapter: &str, number: u32, keep: Option<Duration>) -> Result<QueuePairNow, Refused> {
        let found = self.0.nic.observe_queue_pair(adapter, number, keep);
        let (status, observation) = found.map_err(Refused::Nic)?;
        Ok(QueuePairNow {
            adapter: adapter.to_owned(),
            owner: Owners::of(&self.0.nic, adapter).of_queue_pair(number),
            status,
            observation,
        })
    }
}

/// Processes that have the RDMA function of an adapter, and their names as far as they were asked for.
pub(super) struct Owners {
    callers: RdmaOwners,
    names: BTreeMap<i32, Option<String>>,
}

impl Owners {
    pub fn of(nic: &Nic, adapter: &str) -> Owners {
        Owners {
            callers: nic.rdma_owners(adapter).unwrap_or_default(),
            names: BTreeMap::new(),
        }
    }

    fn of_queue_pair(&mut self, number: u32) -> Option<Process> {
        let caller = self.callers.of(number)?;
        Some(self.process(caller))
    }

    /// The process that has what belongs to a place among those that share the function.
    pub fn of_place(&mut self, place: vnic_backend::Place) -> Option<Process> {
        let caller = self.callers.of_place(place)?;
        Some(self.process(caller))
    }

    /// A process with its name, if it has the function.
    pub fn process(&mut self, caller: Caller) -> Process {
        let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        let has = self.callers.all().any(|owner| owner == caller);
        let command = caller
            .pid
            .filter(|_| has)
            .and_then(|pid| self.names.entry(pid).or_insert_with(|| name(pid)).clone());
        Process {
            caller,
            command: command.map(|name| name.trim_end().to_owned()),
        }
    }
}

/// What has become of a queue pair since the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueuePairChange {
    /// It is new.
    Added(Box<QueuePairNow>),
    /// Its state, its peer or its errors are others.
    Changed(Box<QueuePairNow>),
    /// It is gone: adapter and number.
    Removed(String, u32),
}

/// What is compared: state, peer and errors.
type Seen = (QpState, Option<([u8; 16], u32)>, QpErrors);

/// The queue pairs of the last look.
#[derive(Debug, Default)]
pub struct SeenQueuePairs(BTreeMap<(String, u32), Seen>);

impl SeenQueuePairs {
    /// Takes all queue pairs of a look; returns what has changed since the last one.
    pub fn look(&mut self, all: Vec<QueuePairNow>) -> Vec<QueuePairChange> {
        let mut before = std::mem::take(&mut self.0);
        let mut changes = Vec::new();
        for pair in all {
            let (key, attributes) = (
                (pair.adapter.clone(), pair.status.number.0),
                &pair.status.attributes,
            );
            let peer = attributes
                .address
                .map(|to| (to.dgid.0, attributes.destination_qp.0));
            let seen = (attributes.state, peer, pair.status.errors);
            match before.remove(&key) {
                None => changes.push(QueuePairChange::Added(Box::new(pair))),
                Some(known) if known != seen => changes.push(QueuePairChange::Changed(Box::new(pair))),
                Some(_) => {}
            }
            self.0.insert(key, seen);
        }
        let gone = before
            .into_keys()
            .map(|(adapter, number)| QueuePairChange::Removed(adapter, number));
        changes.extend(gone);
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queue pairs of an adapter by their places, at most two at a time.
    fn ask(
        of: &BTreeMap<&str, Vec<u32>>,
        adapter: &str,
        behind: Option<u64>,
        most: usize,
    ) -> Option<Part<u32>> {
        let all = of.get(adapter)?;
        let mut rest: Vec<u32> = all
            .iter()
            .copied()
            .filter(|p| behind.is_none_or(|b| u64::from(*p) > b))
            .collect();
        let more = rest.len() > most.min(2);
        rest.truncate(most.min(2));
        let last = rest.last().copied().filter(|_| more);
        Some((rest, last.map(u64::from)))
    }

    #[test]
    fn pages_go_through_all_adapters_once() {
        let of = BTreeMap::from([
            ("a", vec![0, 1, 2, 3, 4]),
            ("c", vec![]),
            ("d", vec![7, 9]),
            ("e", vec![2]),
        ]);
        let adapters = ["a", "b", "c", "d", "e"].map(str::to_owned);
        let expected: Vec<(String, u32)> = of
            .iter()
            .flat_map(|(adapter, all)| all.iter().map(|p| ((*adapter).to_owned(), *p)))
            .collect();
        for size in 1..10 {
            let (mut after, mut all) = (None, Vec::new());
            loop {
                let page = walk(
                    &adapters,
                    after.as_ref(),
                    size,
                    |_| true,
                    |adapter, behind, most| Ok(ask(&of, adapter, behind, most)),
                );
                let (rows, next) = page.expect("a page");
                assert!(rows.len() <= size);
                all.extend(rows);
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(all, expected, "by {size}");
        }
    }

    #[test]
    fn what_goes_between_two_pages_hides_nothing() {
        let mut of = BTreeMap::from([("a", vec![0, 1, 2]), ("b", vec![0, 1])]);
        let adapters = ["a", "b"].map(str::to_owned);
        let page = |of: &BTreeMap<&str, Vec<u32>>, adapters: &[String], after: Option<Place>| {
            let page = walk(
                adapters,
                after.as_ref(),
                2,
                |_| true,
                |adapter, behind, most| Ok(ask(of, adapter, behind, most)),
            );
            page.expect("a page")
        };
        let (_, next) = page(&of, &adapters, None);
        assert_eq!(next, Some(("a".to_owned(), 1)));
        // The last one that was told, and the next one.
        of.insert("a", vec![0]);
        let (rows, _) = page(&of, &adapters, next.clone());
        assert_eq!(rows, [("b".to_owned(), 0), ("b".to_owned(), 1)]);
        // The adapter itself.
        let (rows, _) = page(&of, &adapters[1..], next);
        assert_eq!(rows, [("b".to_owned(), 0), ("b".to_owned(), 1)]);
    }

    #[test]
    fn only_those_that_are_wanted_count() {
        let of = BTreeMap::from([("a", (0..100).collect::<Vec<u32>>())]);
        let page = walk(
            &["a".to_owned()],
            None,
            3,
            |p: &u32| p % 10 == 9,
            |adapter, behind, most| Ok(ask(&of, adapter, behind, most)),
        );
        let (rows, next) = page.expect("a page");
        let places: Vec<u32> = rows.into_iter().map(|(_, place)| place).collect();
        assert_eq!((places, next), (vec![9, 19, 29], Some(("a".to_owned(), 29))));
    }
}

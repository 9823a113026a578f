//! Queue pairs of RDMA functions: by pages, one, and what has changed since the last look.

use std::collections::BTreeMap;

use vnic_backend::{Caller, NicError, QUEUE_PAIRS_AT_ONCE, QpErrors, QpPage, QpState, QpStatus};

use super::Control;
use super::refused::Refused;

/// Queue pairs.
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
    /// Process to which the function belongs, if one is connected.
    pub owner: Option<Process>,
    /// The queue pair.
    pub status: QpStatus,
}

/// A place in the list of all queue pairs: behind all with lower names of adapters, and up to this place of the device.
pub type Place = (String, u32);

/// A page of the list of all queue pairs.
#[derive(Debug, Default)]
struct Page {
    rows: Vec<(String, QpStatus)>,
    /// Where the next page begins, if there may be one.
    next: Option<Place>,
}

/// Walks through adapters, ordered by name, from a place on, until `size` queue pairs were found that are wanted. `ask` gives
/// part of an adapter's; `None`: the adapter has none, or is gone.
fn walk(
    adapters: &[String],
    after: Option<&Place>,
    size: usize,
    wanted: impl Fn(&QpStatus) -> bool,
    mut ask: impl FnMut(&str, Option<u32>, usize) -> Result<Option<QpPage>, NicError>,
) -> Result<Page, NicError> {
    let mut page = Page::default();
    for adapter in adapters {
        let mut behind = match after {
            Some((last, _)) if adapter < last => continue,
            Some((last, place)) if adapter == last => Some(*place),
            _ => None,
        };
        loop {
            let room = size - page.rows.len();
            let Some(found) = ask(adapter, behind, room.min(QUEUE_PAIRS_AT_ONCE))? else {
                break;
            };
            let rows = found.rows.into_iter().filter(&wanted);
            page.rows.extend(rows.map(|row| (adapter.clone(), row)));
            let Some(place) = found.next else { break };
            if page.rows.len() == size {
                page.next = Some((adapter.clone(), place));
                return Ok(page);
            }
            behind = Some(place);
        }
        if page.rows.len() == size {
            // (Behind all places of this adapter.)
            let more = adapters.last() != Some(adapter);
            page.next = more.then(|| (adapter.clone(), u32::MAX));
            return Ok(page);
        }
    }
    Ok(page)
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
            None => {
                let mut names: Vec<String> = nic.adapters().into_iter().map(|a| a.spec.name).collect();
                names.sort();
                names
            }
        };
        let page = walk(&adapters, after, size, wanted, |adapter, behind, most| {
            match nic.queue_pairs(adapter, behind, most) {
                // Of all adapters: one without an RDMA function, or one that was removed meanwhile, has none.
                Err(NicError::NotFound { .. }) if only.is_none() => Ok(None),
                answer => answer.map(Some),
            }
        });
        let page = page.map_err(Refused::Nic)?;
        let mut owners = BTreeMap::new();
        let now = |(adapter, status): (String, QpStatus)| QueuePairNow {
            owner: owners
                .entry(adapter.clone())
                .or_insert_with(|| self.owner(&adapter))
                .clone(),
            adapter,
            status,
        };
        Ok((page.rows.into_iter().map(now).collect(), page.next))
    }

    /// A queue pair. May block.
    pub fn get(&self, adapter: &str, number: u32) -> Result<QueuePairNow, Refused> {
        let status = self.0.nic.queue_pair(adapter, number).map_err(Refused::Nic)?;
        Ok(QueuePairNow {
            adapter: adapter.to_owned(),
            owner: self.owner(adapter),
            status,
        })
    }

    /// Process that is connected to the socket of an adapter's RDMA function.
    fn owner(&self, adapter: &str) -> Option<Process> {
        let caller = self.0.nic.rdma_owner(adapter).ok()??;
        let command = caller
            .pid
            .and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        Some(Process {
            caller,
            command: command.map(|name| name.trim_end().to_owned()),
        })
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

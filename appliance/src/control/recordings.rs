//! Recordings of work requests, and what became of each.

use std::collections::BTreeMap;

use vnic_backend::{Fate, Recorded, RecordingStatus};

use super::Control;
use super::queue_pairs::{Owners, Process};
use super::refused::Refused;

pub struct Recordings<'a>(pub &'a Control);

/// A request with its place, and the process that has posted it, as far as that is known.
type Found = (u64, Fate, Option<Process>);

/// Part of what a recording has noted: requests, and the place behind which there are more.
#[derive(Debug, Default)]
pub struct Part {
    /// The recording that runs, or the last one.
    pub status: Option<RecordingStatus>,
    pub fates: Vec<Found>,
    pub next: Option<u64>,
    /// Number of all requests by verdict.
    pub summary: BTreeMap<String, u64>,
}

fn refused(error: vnic_backend::NicError) -> Refused {
    Refused::nic(str::to_owned)(error)
}

impl Recordings<'_> {
    /// Begins one. May block.
    pub fn start(&self, adapters: &[String], limit: u32) -> Result<RecordingStatus, Refused> {
        self.0.nic.start_recording(adapters, limit).map_err(refused)
    }

    /// Ends the one that runs. May block.
    pub fn stop(&self) -> Result<RecordingStatus, Refused> {
        self.0.nic.stop_recording().map_err(refused)
    }

    /// At most `size` requests that are wanted, behind the first `after`. May block.
    pub fn part(&self, after: u64, size: usize, wanted: impl Fn(&Fate) -> bool) -> Part {
        let nic = &self.0.nic;
        let status = nic.recording();
        let Some(recorded) = nic.recorded().filter(|_| status.is_none()) else {
            return Part {
                status,
                ..Part::default()
            };
        };
        let Recorded {
            status,
            fates,
            summary,
        } = recorded;
        let first = usize::try_from(after).unwrap_or(usize::MAX).min(fates.len());
        let mut found = fates
            .iter()
            .enumerate()
            .skip(first)
            .filter(|(_, fate)| wanted(fate));
        let page: Vec<_> = found.by_ref().take(size).collect();
        let next = found.next().and(page.last()).map(|(i, _)| *i as u64 + 1);
        let mut owners = BTreeMap::new();
        let mut process = |fate: &Fate| {
            let of_adapter = owners
                .entry(fate.adapter.clone())
                .or_insert_with(|| Owners::of(nic, &fate.adapter));
            fate.owner.map(|caller| of_adapter.process(caller))
        };
        let fates = page
            .into_iter()
            .map(|(i, fate)| (i as u64, fate.clone(), process(fate)));
        Part {
            status: Some(status),
            fates: fates.collect(),
            next,
            summary,
        }
    }
}

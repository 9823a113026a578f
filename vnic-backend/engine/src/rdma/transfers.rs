//! Answers of subnet administration that take several datagrams: transfers of [RMPP](super::rmpp) that go on.

use alloc::boxed::Box;
use alloc::vec::Vec;

use vnic_wire::sa::{DATA_LEN, Rmpp, RmppType, SaMad};
use vnic_wire::time::Instant;

use super::questions::Asker;
use super::rmpp::Sender;

/// Transfers of a device that go on, at most. Further answers are refused.
pub const TRANSFERS_MAX: usize = 8;
/// Of these, transfers to one queue pair.
pub const TRANSFERS_PER_QP: usize = 4;
/// Segments of a transfer, at most: 100 KiB. Longer answers are refused.
pub const SEGMENTS_MAX: usize = (100 << 10) / DATA_LEN;

/// An answer on its way.
#[derive(Debug)]
struct Transfer {
    asker: Asker,
    sender: Sender,
    segments: Vec<SaMad>,
}

impl Transfer {
    fn is(&self, asker: &Asker, transaction: u64) -> bool {
        self.asker.is(asker) && self.segments.first().map(|segment| segment.transaction) == Some(transaction)
    }

    /// The ABORT that ends it.
    fn abort(&self, status: u8) -> Option<Box<SaMad>> {
        let mut abort = Box::new(*self.segments.first()?);
        abort.rmpp = Rmpp::control(RmppType::ABORT, status);
        abort.data = [0; DATA_LEN];
        Some(abort)
    }
}

/// The transfers of a device.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    all: Vec<Transfer>,
}

impl Transfers {
    /// Whether an answer to this question of somebody is on its way.
    pub fn has(&self, asker: &Asker, transaction: u64) -> bool {
        self.all.iter().any(|transfer| transfer.is(asker, transaction))
    }

    /// Begins a transfer. False: there are too many, or it is too long.
    pub fn begin(&mut self, asker: &Asker, segments: &[SaMad]) -> bool {
        let of_qp = self.all.iter().filter(|transfer| transfer.asker.qp == asker.qp);
        let room = self.all.len() < TRANSFERS_MAX && of_qp.count() < TRANSFERS_PER_QP;
        let fits = room && segments.len() <= SEGMENTS_MAX;
        if fits {
            self.all.push(Transfer {
                asker: asker.clone(),
                sender: Sender::new(segments.len() as u32),
                segments: segments.to_vec(),
            });
        }
        fits
    }

    /// A receiver's packet came. Returns the ABORT that is to be sent.
    pub fn hear(&mut self, now: Instant, asker: &Asker, packet: &SaMad) -> Option<Box<SaMad>> {
        let mut all = self.all.iter_mut();
        let transfer = all.find(|transfer| transfer.is(asker, packet.transaction))?;
        let status = transfer.sender.hear(now, &packet.rmpp);
        let abort = status.and_then(|status| transfer.abort(status));
        self.end();
        abort
    }

    /// Lets time pass. Returns the transfers that are given up, with their ABORTs.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<(Asker, Box<SaMad>)> {
        let give_up = |transfer: &mut Transfer| {
            let status = transfer.sender.handle_timeout(now)?;
            Some((transfer.asker.clone(), transfer.abort(status)?))
        };
        let given_up = self.all.iter_mut().filter_map(give_up).collect();
        self.end();
        given_up
    }

    /// When [`handle_timeout`](Transfers::handle_timeout) must be called, at the latest.
    pub fn next_timeout(&self) -> Option<Instant> {
        let deadlines = self
            .all
            .iter()
            .filter_map(|transfer| transfer.sender.next_timeout());
        deadlines.min()
    }

    /// Those who wait for a segment that can be sent.
    pub fn waiting(&self) -> impl Iterator<Item = &Asker> {
        let waiting = self.all.iter().filter(|t| t.sender.next_segment().is_some());
        waiting.map(|transfer| &transfer.asker)
    }

    /// Takes the next segment that is to be sent to somebody who `may` get it.
    pub fn take_segment(&mut self, now: Instant, may: impl Fn(&Asker) -> bool) -> Option<(&Asker, &SaMad)> {
        let mut all = self.all.iter_mut();
        let transfer = all.find(|t| t.sender.next_segment().is_some() && may(&t.asker))?;
        let number = transfer.sender.next_segment()?;
        transfer.sender.sent(now);
        Some((&transfer.asker, transfer.segments.get(number as usize - 1)?))
    }

    /// Forgets transfers that are over.
    fn end(&mut self) {
        self.all.retain(|transfer| !transfer.sender.state().over());
    }
}

//! Notes of a recording: which PSNs a request got, and what became of messages at the responder. A shell that compares them
//! with the completions sees what no program can: whether a request that failed was carried out all the same.

use alloc::vec::Vec;

use vnic_wire::MacAddr;
use vnic_wire::psn::Psn;

use super::types::QpNumber;

/// Notes that wait; more are counted only.
const NOTES_MAX: usize = 1 << 16;

/// The other end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// Ethernet address.
    pub mac: MacAddr,
    /// Queue pair.
    pub qp: QpNumber,
}

/// What happened to a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// A request of the send queue got its PSNs.
    Begun {
        /// Queue pair.
        qp: QpNumber,
        /// Tag of the request.
        tag: u32,
        /// Destination.
        to: End,
        /// First PSN.
        first: Psn,
        /// Number of PSNs.
        psns: u32,
    },
    /// A message took a receive and completes it; the note of its last packet follows.
    Received {
        /// Queue pair.
        qp: QpNumber,
        /// Id of the receive.
        id: u64,
    },
    /// A packet of a peer was carried out, or an answer to a READ has left whole.
    Landed(Landed),
}

/// A packet that was carried out at the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landed {
    /// Queue pair of the responder.
    pub qp: QpNumber,
    /// Requester.
    pub from: End,
    /// PSN of the packet.
    pub psn: Psn,
    /// Bytes that were written, read or changed.
    pub bytes: u32,
    /// Whether a message begins with it.
    pub begins: bool,
    /// Whether the message is whole with it.
    pub ends: bool,
}

/// Notes that wait for the shell.
#[derive(Debug, Default)]
pub(super) struct Notes {
    waiting: Vec<Note>,
    lost: u64,
}

impl Notes {
    /// Adds a note.
    #[cold]
    #[inline(never)]
    pub fn push(&mut self, note: Note) {
        if self.waiting.len() < NOTES_MAX {
            self.waiting.push(note);
        } else {
            self.lost += 1;
        }
    }

    /// Takes all notes, and how many there was no room for.
    pub fn take(&mut self) -> (Vec<Note>, u64) {
        (
            core::mem::take(&mut self.waiting),
            core::mem::take(&mut self.lost),
        )
    }
}

//! Head-of-queue lifetime: what waits too long is dropped, and a class with too many such drops in a row is stalled: all
//! that waits in it is dropped until something of it is sent again, or 8 lifetimes have passed (WinOF-2 Ethernet Network,
//! Head of Queue Lifetime Limit; IBTA volume 1 section 18.2.5.4; register QHLL).

use super::Lifetimes;
use crate::{DropReason, Instant};

/// The state of one port's classes.
#[derive(Debug, Clone, Default)]
pub struct Lifetime {}

impl Lifetime {
    /// Must the frame at the head of `class`, there since `head_since`, be dropped?
    pub fn judge(
        &mut self,
        _now: Instant,
        _settings: Lifetimes,
        _class: u8,
        _head_since: Instant,
    ) -> Option<DropReason> {
        todo!()
    }

    /// Something of `class` was sent.
    pub fn sent(&mut self, _class: u8) {
        todo!()
    }

    /// Classes that are stalled, a bit each.
    pub fn stalled(&self) -> u8 {
        todo!()
    }

    /// When the frame at the head of `class`, there since `head_since`, has waited too long.
    pub fn due(&self, _settings: Lifetimes, _class: u8, _head_since: Instant) -> Option<Instant> {
        todo!()
    }
}

//! Shared receive queues (IBTA 10.2.9; `ibv_create_srq`).

use alloc::collections::VecDeque;

use super::limits::in_range;
use super::types::{CqHandle, PdHandle, RecvWr, VerbsError, XrcdHandle};

/// What a shared receive queue is created with (`ibv_srq_init_attr_ex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SrqInit {
    /// Protection domain of its buffers.
    pub pd: PdHandle,
    /// XRC: the domain whose targets may use it.
    pub xrcd: Option<XrcdHandle>,
    /// XRC: where its receives complete.
    pub cq: Option<CqHandle>,
    /// Receives that may wait.
    pub max_wr: u32,
    /// Elements of a receive.
    pub max_sge: u32,
}

/// A receive that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The receive.
    pub wr: RecvWr,
    /// Fewer than the limit are left, for the first time since the limit was set.
    pub limit_reached: bool,
}

/// A shared receive queue. While nothing is posted it takes no memory for receives.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    waiting: VecDeque<RecvWr>,
    /// Protection domain of its buffers.
    pub pd: PdHandle,
    /// XRC: the domain whose targets may use it.
    pub xrcd: Option<XrcdHandle>,
    /// XRC: where its receives complete.
    pub cq: Option<CqHandle>,
    max_wr: u32,
    max_sge: u32,
    /// Event when fewer are left; 0 is not armed.
    limit: u32,
    /// QPs that take receives from here.
    pub users: u32,
    /// It failed: nothing can be posted or taken any more.
    pub error: bool,
}

impl SharedReceiveQueue {
    /// An empty queue.
    pub fn new(init: &SrqInit) -> SharedReceiveQueue {
        SharedReceiveQueue {
            waiting: VecDeque::new(),
            pd: init.pd,
            xrcd: init.xrcd,
            cq: init.cq,
            max_wr: init.max_wr,
            max_sge: init.max_sge,
            limit: 0,
            users: 0,
            error: false,
        }
    }

    /// Adds a receive.
    pub fn post(&mut self, wr: RecvWr) -> Result<(), VerbsError> {
        if self.error {
            return Err(VerbsError::Invalid("the shared receive queue is in error"));
        }
        in_range("scatter elements", wr.sges.len() as u64, 0, self.max_sge.into())?;
        if self.waiting.len() >= self.max_wr as usize {
            return Err(VerbsError::QueueFull);
        }
        self.waiting.push_back(wr);
        Ok(())
    }

    /// Takes the oldest receive.
    #[inline]
    pub fn pop(&mut self) -> Option<Taken> {
        if self.error {
            return None;
        }
        let wr = self.waiting.pop_front()?;
        let limit_reached = self.waiting.len() < self.limit as usize;
        if limit_reached {
            self.limit = 0;
        }
        Some(Taken { wr, limit_reached })
    }

    /// Takes the oldest receive without looking at the limit, also in error: the queue is being destroyed.
    pub fn drain(&mut self) -> Option<RecvWr> {
        self.waiting.pop_front()
    }

    /// Sets the limit for one event (0: none), or how many receives may wait. The event comes when a receive is taken
    /// and fewer than the limit are left (`ibv_modify_srq`); that there are fewer already makes none by itself.
    pub fn modify(&mut self, limit: Option<u32>, max_wr: Option<u32>) -> Result<(), VerbsError> {
        if self.error {
            return Err(VerbsError::Invalid("the shared receive queue is in error"));
        }
        let room = max_wr.unwrap_or(self.max_wr);
        if let Some(max_wr) = max_wr {
            in_range(
                "receives",
                max_wr.into(),
                self.waiting.len() as u64,
                u32::MAX.into(),
            )?;
        }
        let limit = limit.unwrap_or(self.limit);
        in_range("limit", limit.into(), 0, room.into())?;
        self.limit = limit;
        self.max_wr = room;
        Ok(())
    }

    /// Receives that wait.
    #[inline]
    pub fn len(&self) -> u32 {
        self.waiting.len() as u32
    }

    /// Nothing waits?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Receives that may wait.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// Elements of a receive.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// The limit, 0 when none is set or its event was given.
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

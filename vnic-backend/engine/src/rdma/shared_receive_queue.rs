//! Shared receive queues (IBTA 10.2.9; `ibv_create_srq`).

use alloc::collections::VecDeque;

use super::limits::in_range;
use super::types::{CqHandle, PdHandle, RecvWr, VerbsError, XrcdHandle};

/// Attributes of a new shared receive queue (`ibv_srq_init_attr_ex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SrqInit {
    /// Protection domain of its buffers.
    pub pd: PdHandle,
    /// XRC: the domain whose targets may use it.
    pub xrcd: Option<XrcdHandle>,
    /// XRC: the completion queue of its receives.
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
    /// Whether fewer than the limit are left, for the first time since the limit was set.
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
    /// XRC: the completion queue of its receives.
    pub cq: Option<CqHandle>,
    max_wr: u32,
    max_sge: u32,
    /// Receives below which an event is raised; 0: not armed.
    limit: u32,
    /// Receives behind those that wait here, which were not read yet.
    pub unread: u32,
    /// QPs that take receives from here.
    pub users: u32,
    /// Whether it failed: nothing can be posted or taken any more.
    pub error: bool,
    /// Whether it was closed: nothing can be posted, it looks empty.
    closed: bool,
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
            unread: 0,
            users: 0,
            error: false,
            closed: false,
        }
    }

    /// Forgets the receives that wait and takes no more. Returns how many were forgotten.
    pub fn close(&mut self) -> u32 {
        self.closed = true;
        core::mem::take(&mut self.waiting).len() as u32
    }

    fn check_works(&self) -> Result<(), VerbsError> {
        if self.error || self.closed {
            return Err(VerbsError::Invalid("the shared receive queue is in error"));
        }
        Ok(())
    }

    /// Receives that wait.
    pub fn len(&self) -> u32 {
        self.waiting.len() as u32
    }

    /// Receives that wait, receives that may wait, and the limit that is armed.
    pub fn query(&self) -> (u32, u32, u32) {
        (self.len(), self.max_wr, self.limit)
    }

    /// Adds a receive.
    pub fn post(&mut self, wr: RecvWr) -> Result<(), VerbsError> {
        self.check_works()?;
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
        let limit_reached = self.len().saturating_add(self.unread) < self.limit;
        if limit_reached {
            self.limit = 0;
        }
        Some(Taken { wr, limit_reached })
    }

    /// Sets the limit for one event (0: none), or how many receives may wait. The event comes when a receive is taken
    /// and fewer than the limit are left (`ibv_modify_srq`); if there are fewer already, that alone makes none.
    pub fn modify(&mut self, limit: Option<u32>, max_wr: Option<u32>) -> Result<(), VerbsError> {
        self.check_works()?;
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
        in_range("limit", limit, 0, room)?;
        self.limit = limit;
        self.max_wr = room;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::{SgList, Sge};
    use super::*;

    fn queue(max_wr: u32) -> SharedReceiveQueue {
        SharedReceiveQueue::new(&SrqInit {
            pd: PdHandle(0),
            xrcd: None,
            cq: None,
            max_wr,
            max_sge: 2,
        })
    }

    fn receive(id: u64, elements: usize) -> RecvWr {
        let sge = Sge {
            addr: 0,
            len: 1,
            lkey: 0,
        };
        RecvWr {
            id,
            tag: 0,
            sges: SgList::from_elem(sge, elements),
        }
    }

    #[test]
    fn receives_are_taken_in_order() {
        let mut queue = queue(3);
        assert_eq!(queue.pop(), None);
        for id in 0..3 {
            queue.post(receive(id, 1)).expect("there is room");
        }
        assert_eq!(queue.post(receive(3, 1)), Err(VerbsError::QueueFull));
        for id in 0..3 {
            assert_eq!(queue.pop().map(|taken| taken.wr.id), Some(id));
        }
        assert!(matches!(
            queue.post(receive(4, 3)),
            Err(VerbsError::OutOfRange { max: 2, .. })
        ));
    }

    #[test]
    fn the_limit_is_told_once() {
        let mut queue = queue(10);
        for id in 0..6 {
            queue.post(receive(id, 0)).expect("there is room");
        }
        queue.modify(Some(4), None).expect("a limit below the size");
        let mut told = || queue.pop().map(|taken| taken.limit_reached);
        assert_eq!(
            [told(), told(), told(), told()],
            [Some(false), Some(false), Some(true), Some(false)]
        );
        // Set again while there are fewer already: told when the next is taken.
        queue.modify(Some(4), None).expect("a limit below the size");
        assert_eq!(queue.pop().map(|taken| taken.limit_reached), Some(true));
        assert_eq!(queue.pop().map(|taken| taken.limit_reached), Some(false));
    }

    #[test]
    fn sizes_and_limits_fit_each_other() {
        let mut queue = queue(10);
        assert!(queue.modify(Some(11), None).is_err());
        assert!(queue.modify(Some(11), Some(12)).is_ok());
        assert!(queue.modify(None, Some(10)).is_err());
        assert!(queue.modify(Some(0), Some(2)).is_ok());
        queue.post(receive(0, 0)).expect("there is room");
        queue.post(receive(1, 0)).expect("there is room");
        assert!(queue.modify(None, Some(1)).is_err());
        assert_eq!(queue.post(receive(2, 0)), Err(VerbsError::QueueFull));
    }

    #[test]
    fn a_failed_queue_takes_and_gives_nothing() {
        let mut queue = queue(10);
        queue.post(receive(0, 0)).expect("there is room");
        queue.error = true;
        assert_eq!(queue.pop(), None);
        assert!(queue.post(receive(1, 0)).is_err());
        assert!(queue.modify(Some(1), None).is_err());
    }
}

//! Completion channels.

#![expect(unsafe_code, reason = "begins as the structure of the header")]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Mutex;

use vnic_verbs::CompletionChannel;

use crate::abi::*;
use crate::context::Context;
use crate::errno::{Errno, complain};
use crate::events::{Unacknowledged, make_blocking, wait_for};
use crate::handle::{Use, Uses, publish};
use crate::sync::lock;

/// A completion channel.
#[repr(C)]
pub struct Channel {
    base: UnsafeCell<ibv_comp_channel>,
    pub inner: CompletionChannel,
    /// Queues of the channel by number. An event is counted, and a queue ends, under this lock.
    queues: Mutex<HashMap<u32, Listed>>,
    pub uses: Uses,
    _needs: Use,
}

struct Listed {
    /// The program's pointer to the queue.
    pointer: usize,
    completions: Unacknowledged,
}

object!(Channel: ibv_comp_channel);

impl Channel {
    /// Makes a completion channel.
    pub fn create(context: &Context) -> Result<*mut ibv_comp_channel, Errno> {
        let inner = context.seat.device.create_completion_channel()?;
        make_blocking(inner.as_fd())?;
        Ok(publish(Channel {
            base: UnsafeCell::new(ibv_comp_channel {
                context: context.pointer(),
                fd: inner.as_fd().as_raw_fd(),
                refcnt: 0,
            }),
            inner,
            queues: Mutex::default(),
            uses: Uses::default(),
            _needs: context.uses.one(),
        }))
    }

    /// Adds a queue that has its events here: its number, and the program's pointer to it.
    pub fn list(&self, number: u32, pointer: usize, completions: &Unacknowledged) {
        let completions = completions.clone();
        lock(&self.queues).insert(number, Listed { pointer, completions });
    }

    /// Removes a queue.
    pub fn forget(&self, number: u32) {
        lock(&self.queues).remove(&number);
    }

    /// Takes the oldest event and returns its queue; the program must acknowledge it. Waits unless the descriptor
    /// is non-blocking.
    pub fn get(&self) -> Result<*mut ibv_cq, Errno> {
        wait_for(self.inner.as_fd(), || self.take())
    }

    fn take(&self) -> Result<Option<*mut ibv_cq>, Errno> {
        let queues = lock(&self.queues);
        loop {
            let event = self.inner.try_event().map_err(|e| {
                complain(&e);
                Errno::BROKEN
            })?;
            let Some(cq) = event else { return Ok(None) };
            // A queue that is not listed was destroyed meanwhile.
            if let Some(listed) = queues.get(&cq.number()) {
                listed.completions.taken();
                let pointer = std::ptr::with_exposed_provenance_mut(listed.pointer);
                return Ok(Some(pointer));
            }
        }
    }
}

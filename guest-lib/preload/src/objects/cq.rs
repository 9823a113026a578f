//! Completion queues.

#![expect(
    unsafe_code,
    reason = "begins as the structure of the header; is taken back from the program"
)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::time::Duration;

use vnic_verbs::{CompletionQueue, CqBuilder};

use super::{Channel, Pd};
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::events::{Kind, Unacknowledged};
use crate::handle::{Object, Use, Uses, end, maybe, publish, the};
use crate::work::cursor::Cursor;

/// A completion queue; the program sees the extended one, whichever it asked for.
#[repr(C)]
pub struct Cq {
    base: UnsafeCell<ibv_cq_ex>,
    pub inner: CompletionQueue,
    /// State of `ibv_start_poll` and the calls that follow it.
    pub cursor: Cursor,
    /// Events of its channel that were taken and not acknowledged.
    pub completions: Unacknowledged,
    /// Asynchronous events that were taken and not acknowledged.
    pub asynchronous: Unacknowledged,
    pub uses: Uses,
    _needs: Vec<Use>,
}

object!(Cq: ibv_cq_ex);

/// Settings of a new queue.
pub struct Wanted<'a> {
    pub entries: u32,
    pub context: *mut c_void,
    pub channel: Option<&'a Channel>,
    pub vector: i64,
    pub parent: Option<&'a Pd>,
}

impl Cq {
    /// Makes a completion queue.
    pub fn create(context: &Context, wanted: &Wanted<'_>) -> Result<*mut ibv_cq_ex, Errno> {
        let device = &context.seat.device;
        // SAFETY: a field that nobody changes.
        let vectors = unsafe { (*context.pointer()).num_comp_vectors };
        check_entries(context, wanted.entries)?;
        if !(0..i64::from(vectors)).contains(&wanted.vector) {
            return Err(Errno::INVALID);
        }
        let mut builder = CqBuilder::new(wanted.entries);
        if let Some(channel) = wanted.channel {
            builder = builder.channel(&channel.inner);
        }
        let inner = device.create_cq_with(builder)?;
        let channel = wanted.channel.map_or(std::ptr::null_mut(), Object::c);
        let needs = [
            Some(&context.uses),
            wanted.channel.map(|c| &c.uses),
            wanted.parent.map(|p| &p.uses),
        ];
        let pointer = publish(Cq {
            base: UnsafeCell::new(ibv_cq_ex {
                context: context.pointer(),
                channel,
                cq_context: wanted.context,
                handle: inner.number(),
                cqe: entries(&inner),
                ..zeros()
            }),
            inner,
            cursor: Cursor::default(),
            completions: Unacknowledged::default(),
            asynchronous: Unacknowledged::default(),
            uses: Uses::default(),
            _needs: needs.into_iter().flatten().map(Uses::one).collect(),
        });
        // SAFETY: just made.
        let cq = unsafe { the::<Cq>(pointer) };
        if let Some(channel) = wanted.channel {
            channel.list(cq.inner.number(), pointer.expose_provenance(), &cq.completions);
        }
        let (number, asynchronous) = (cq.inner.number(), cq.asynchronous.clone());
        context.register(Kind::Cq, number, pointer.expose_provenance(), asynchronous);
        Ok(pointer)
    }

    /// Gives the queue room for `wanted` completions; at least for those that wait.
    pub fn resize(&self, wanted: u32) -> Result<(), Errno> {
        // SAFETY: the context outlives what was made in it.
        check_entries(unsafe { Context::of((*self.c()).context) }, wanted)?;
        self.check_room(wanted.next_power_of_two())?;
        self.inner.resize(wanted)?;
        // SAFETY: a field that the program reads and nobody else changes.
        unsafe { (*self.c()).cqe = entries(&self.inner) };
        Ok(())
    }

    /// Checks that completions that wait have a place. A request that was just posted completes in a moment, and would
    /// find none: so a queue that is to shrink waits for it a little. That does not help a program that shrinks the
    /// queue below what may come.
    fn check_room(&self, room: u32) -> Result<(), Errno> {
        let shrinks = room < self.inner.entries();
        for _ in 0..if shrinks { SETTLING } else { 0 } {
            if self.inner.waiting() > room {
                break;
            }
            std::thread::sleep(MOMENT);
        }
        if self.inner.waiting() > room {
            return Err(Errno::INVALID);
        }
        Ok(())
    }

    /// Destroys the queue, when all its events are acknowledged.
    ///
    /// # Safety
    /// The queue is ours, and the program does not use it any more.
    pub unsafe fn destroy(pointer: *mut ibv_cq_ex) -> Result<(), Errno> {
        // SAFETY: by the caller's promise; the channel and the context outlive it.
        let (cq, channel, context) = unsafe {
            let cq = the::<Cq>(pointer);
            (
                cq,
                maybe::<Channel>((*pointer).channel),
                Context::of((*pointer).context),
            )
        };
        cq.uses.none()?;
        if let Some(channel) = channel {
            channel.forget(cq.inner.number());
        }
        context.forget(Kind::Cq, cq.inner.number(), pointer.addr(), &cq.asynchronous);
        cq.completions.wait();
        // SAFETY: by the caller's promise, and nothing of ours has it.
        unsafe { end::<Cq>(pointer) }
    }
}

/// Times that a queue that is to shrink looks for completions, and the wait between two.
const SETTLING: u32 = 5;
const MOMENT: Duration = Duration::from_millis(1);

/// Completions that the queue has room for.
fn entries(cq: &CompletionQueue) -> c_int {
    c_int::try_from(cq.entries()).unwrap_or(c_int::MAX)
}

fn check_entries(context: &Context, wanted: u32) -> Result<(), Errno> {
    let most = context.seat.device.query_device().max_cqe;
    if (1..=most).contains(&wanted) {
        Ok(())
    } else {
        Err(Errno::INVALID)
    }
}

//! Completions that are read field by field: `ibv_start_poll` … `ibv_end_poll`, and the functions between.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint};
use std::time::{Duration, SystemTime};

use vnic_verbs::{CompletionQueue, Context, WorkCompletion};

use super::latch::Latch;
use super::patience::Patience;
use super::poll;
use crate::abi::*;
use crate::errno::{Errno, complain};
use crate::handle::the;
use crate::objects::Cq;

/// State of a completion queue's polling. The thread that has started to poll owns it until it ends.
#[derive(Debug, Default)]
pub struct Cursor {
    /// Patience of polls of either kind.
    pub patience: Patience,
    latch: Latch,
    /// The completion that is read. Only the owner of the latch touches it.
    state: UnsafeCell<State>,
}

#[derive(Debug, Default)]
struct State {
    completion: WorkCompletion,
    clock: Clock,
}

// SAFETY: the state belongs to who has the latch.
unsafe impl Sync for Cursor {}

operation! {
    /// `ibv_start_poll`. ENOENT: there is no completion. EINVAL: it asks for something unknown. ENODEV: the device is
    /// gone, and there are no completions left.
    fn start_poll(cq: *mut ibv_cq_ex, attributes: *mut ibv_poll_cq_attr) -> c_int, as code {
        if attributes.as_ref().is_some_and(|a| a.comp_mask != 0) {
            return Err(Errno::INVALID);
        }
        let Cursor { latch, patience, .. } = &the::<Cq>(cq).cursor;
        latch.take();
        let result = advance(cq);
        if result.is_err() {
            // A program does not call `ibv_end_poll` if this fails.
            latch.give_back();
        }
        patience.found(usize::from(result.is_ok()));
        result
    }

    /// `ibv_next_poll`. Errors are those of [`start_poll`]; the program must call `ibv_end_poll` all the same.
    fn next_poll(cq: *mut ibv_cq_ex) -> c_int, as code {
        advance(cq)
    }

    /// `ibv_end_poll`.
    fn end_poll(cq: *mut ibv_cq_ex), as plain {
        the::<Cq>(cq).cursor.latch.give_back();
        Ok(())
    }

    /// `ibv_wc_read_completion_wallclock_ns`.
    fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64, as plain {
        let object: &Cq = the(cq);
        let State { completion, clock } = &mut *object.cursor.state.get();
        Ok(clock.wall(completion.time(), || measure(&object.inner)))
    }
}

/// Takes the next completion.
///
/// # Safety
/// The queue is ours, and the caller has its latch.
#[inline]
unsafe fn advance(cq: *mut ibv_cq_ex) -> Result<(), Errno> {
    // SAFETY: by the caller's promise.
    unsafe {
        let object: &Cq = the(cq);
        let state = &mut *object.cursor.state.get();
        let count = object
            .inner
            .poll_each(1, |completion| state.completion = completion)?;
        if count == 0 {
            return Err(Errno::NO_ENTRY);
        }
        (*cq).wr_id = state.completion.id();
        (*cq).status = poll::status(&state.completion);
    }
    Ok(())
}

/// Functions that read one field of the completion.
macro_rules! readers {
    ($($(#[$doc:meta])* fn $name:ident($completion:ident) -> $ret:ty $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Between `ibv_start_poll` and `ibv_end_poll` of a queue of ours.
        pub unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ret {
            // SAFETY: by the caller's promise, who has the latch.
            let $completion = unsafe { &(*the::<Cq>(cq).cursor.state.get()).completion };
            $body
        }
    )*};
}

readers! {
    /// `ibv_wc_read_opcode`.
    fn read_opcode(completion) -> c_uint { poll::opcode(completion) }
    /// `ibv_wc_read_vendor_err`.
    fn read_vendor_err(completion) -> u32 { completion.vendor_error() }
    /// `ibv_wc_read_byte_len`.
    fn read_byte_len(completion) -> u32 { completion.byte_len() }
    /// `ibv_wc_read_imm_data`, and `ibv_wc_read_invalidated_rkey` as well.
    fn read_imm_data(completion) -> u32 {
        let datum = poll::datum(completion);
        // SAFETY: both are numbers of 32 bits.
        unsafe { datum.imm_data }
    }
    /// `ibv_wc_read_qp_num`.
    fn read_qp_num(completion) -> u32 { completion.qp() }
    /// `ibv_wc_read_src_qp`.
    fn read_src_qp(completion) -> u32 { completion.source_qp() }
    /// `ibv_wc_read_wc_flags`.
    fn read_wc_flags(completion) -> c_uint { poll::flags(completion) }
    /// `ibv_wc_read_slid`: Ethernet has none.
    fn read_slid(_completion) -> u32 { 0 }
    /// `ibv_wc_read_sl`.
    fn read_sl(completion) -> u8 { completion.service_level() }
    /// `ibv_wc_read_dlid_path_bits`: Ethernet has none.
    fn read_dlid_path_bits(_completion) -> u8 { 0 }
    /// `ibv_wc_read_completion_ts`: in nanoseconds of the device's clock (`hca_core_clock` is 1 GHz).
    fn read_completion_ts(completion) -> u64 { nanos(completion.time()) }
    /// `ibv_wc_read_cvlan`.
    fn read_cvlan(completion) -> u16 { completion.vlan().unwrap_or(0) }
    /// `ibv_wc_read_flow_tag`: there are no flows.
    fn read_flow_tag(_completion) -> u32 { 0 }
}

/// Gives a completion queue the functions that `wc_flags` (`IBV_WC_EX_*`) asks for. A program that reads a field without
/// asking for it reads zeros or the truth: all of them cost nothing.
pub fn equip(cq: &mut ibv_cq_ex, _wc_flags: u64) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_slid = Some(read_slid);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    cq.read_completion_ts = Some(read_completion_ts);
    cq.read_cvlan = Some(read_cvlan);
    cq.read_flow_tag = Some(read_flow_tag);
    cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts times of the device's clock to the wall clock. Asking the device is a command, so a measurement is used for
/// a while; correct clocks do not differ by much in that time.
#[derive(Debug, Default)]
struct Clock(Option<Measured>);

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
struct Measured {
    device: Duration,
    wall: Duration,
}

/// Time for which a measurement is used.
const SERVES: Duration = Duration::from_secs(1);

/// Tries of a measurement; the one that took least time is the best.
const TRIES: usize = 3;

impl Clock {
    /// A time by the wall clock, in ns since 1970; 0 if the device does not give times.
    fn wall(&mut self, time: Duration, measure: impl FnOnce() -> Option<Measured>) -> u64 {
        if time.is_zero() {
            return 0;
        }
        let known = self.0.filter(|m| time.abs_diff(m.device) < SERVES);
        if known.is_none() {
            self.0 = measure().or(self.0);
        }
        let Some(Measured { device, wall }) = self.0 else {
            return 0;
        };
        nanos((wall + time).saturating_sub(device))
    }
}

/// Reads both clocks.
fn measure(cq: &CompletionQueue) -> Option<Measured> {
    let device = cq.device();
    (0..TRIES)
        .filter_map(|_| read_both(&device))
        .min_by_key(|(took, _)| *took)
        .map(|(_, measured)| measured)
}

fn read_both(device: &Context) -> Option<(Duration, Measured)> {
    let wall = || SystemTime::UNIX_EPOCH.elapsed().ok();
    let before = wall()?;
    let clock = device.clock().inspect_err(|e| complain(e)).ok()?;
    let took = wall()?.checked_sub(before)?;
    let measured = Measured {
        device: clock,
        wall: before + took / 2,
    };
    Some((took, measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_follows_the_device_and_is_measured_now_and_then() {
        let mut clock = Clock::default();
        let mut measurements = 0;
        let mut at = |time: u64, device: u64, wall: u64| {
            clock.wall(Duration::from_millis(time), || {
                measurements += 1;
                Some(Measured {
                    device: Duration::from_millis(device),
                    wall: Duration::from_millis(wall),
                })
            }) / 1_000_000
        };
        // Without a time there is none.
        assert_eq!(at(0, 1, 1), 0);
        // A completion from before the measurement, then some from behind it.
        assert_eq!(at(4000, 4500, 9500), 9000);
        assert_eq!(at(4600, 0, 0), 9600);
        assert_eq!(at(5499, 0, 0), 10_499);
        // The wall's clock was set back meanwhile.
        assert_eq!(at(5500, 5600, 600), 500);
        assert_eq!(measurements, 2);
    }

    #[test]
    fn without_an_answer_the_last_one_serves_on() {
        let mut clock = Clock::default();
        assert_eq!(clock.wall(Duration::from_secs(5), || None), 0);
        let measured = Measured {
            device: Duration::from_secs(5),
            wall: Duration::from_secs(105),
        };
        assert_eq!(
            clock.wall(Duration::from_secs(5), || Some(measured)),
            105_000_000_000
        );
        assert_eq!(clock.wall(Duration::from_secs(9), || None), 109_000_000_000);
    }
}

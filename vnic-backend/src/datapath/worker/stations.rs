//! The stations of a data core, in the order in which a round visits them: stations that bring frames are behind those that
//! make room for them, so that a frame that comes in a round leaves in it.

use std::time::Duration;

use vnic_fabric::Instant;

use super::super::core::Core;
use super::super::news::CoreEvent;
use super::super::outputs::Outputs;
use super::Worker;

/// Longest sleep of a core: ageing needs the time now and then.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// A core with work due within this time does not sleep, if the work has to be in time: timers of a sleeping thread come
/// late.
const AWAKE: Duration = Duration::from_micros(200);
/// `AWAKE` of stations with work in flight: the core does not begin to sleep while they are due.
const UNDER_WAY: Duration = Duration::from_nanos(1);

/// The list of stations. Each is a type with
///
/// - `AWAKE`: the core does not sleep while the station is due within this time;
/// - `round`: does the station's work and adds how much it was; a station that is not in use costs a comparison;
/// - `due`: when the station must be visited at the latest without any event;
/// - `arm`: the core is about to sleep, and new work is to wake it; true: there is work already;
/// - `disarm`: the core polls again.
///
/// No item has a default, so that no station forgets one. (They are no methods of a trait: the compiler takes those for
/// callable from outside and does not inline what they call into the round.)
macro_rules! stations {
    ($($station:ident)*) => {
        #[inline(always)]
        pub fn round(w: &mut Worker, now: Instant) -> usize {
            let mut work = 0;
            $($station::round(w, now, &mut work);)*
            work
        }

        /// How long the core may sleep; `None`: it does not.
        pub fn longest_sleep(w: &mut Worker, now: Instant) -> Option<Duration> {
            let mut longest = LONGEST_SLEEP;
            $(if let Some(at) = $station::due(w, now) {
                let left = at.since(now);
                if left < $station::AWAKE {
                    return None;
                }
                longest = longest.min(left);
            })*
            Some(longest)
        }

        pub fn arm(w: &mut Worker) -> bool {
            let mut more = false;
            $(more |= $station::arm(w);)*
            more
        }

        pub fn disarm(w: &mut Worker) {
            $($station::disarm(w);)*
        }

        $(struct $station;)*
    };
}

stations! {
    Interrupts Waiting Pauses Bonds Receivers Faults Senders GuestRoce Control Transmit FromWire Rdma OtherCores Mirrors Flush Stopping
}

/// Coalesced interrupts that are due. A guest that sleeps waits for them.
impl Interrupts {
    const AWAKE: Duration = AWAKE;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, _: &mut usize) {
        #[inline(never)]
        fn call(w: &mut Worker, now: Instant) {
            w.core.call_due(now);
            w.rings.call_due(&mut w.core, now);
        }
        if now >= w.core.owed.next {
            call(w, now);
        }
    }

    fn due(w: &mut Worker, _: Instant) -> Option<Instant> {
        Some(w.core.owed.next)
    }

    fn arm(_: &mut Worker) -> bool {
        false
    }

    fn disarm(_: &mut Worker) {}
}

/// Frames that wait for receive buffers.
impl Waiting {
    const AWAKE: Duration = Duration::ZERO;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, work: &mut usize) {
        #[cold]
        fn serve(w: &mut Worker) -> usize {
            let rung = w.alarm.take();
            w.core.served(move |out| out.waiting_round(rung)).unwrap_or(1)
        }
        w.core.out.round.waiting.look();
        if let Some(port) = w.core.out.taken {
            w.core.out.mend_receiver(port, now);
        }
        if !w.core.out.round.waiting.is_empty() {
            *work += serve(w);
        }
    }

    fn due(w: &mut Worker, _: Instant) -> Option<Instant> {
        w.core.out.waiting_due()
    }

    fn arm(w: &mut Worker) -> bool {
        !w.core.out.round.waiting.is_empty() && (w.core.out.request_buffers() | w.alarm.is_rung())
    }

    fn disarm(w: &mut Worker) {
        if !w.core.out.round.waiting.is_empty() {
            w.alarm.look();
            w.core.out.suppress_buffer_kicks();
        }
    }
}

/// Flow control of uplinks, in both directions.
impl Pauses {
    const AWAKE: Duration = Duration::ZERO;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, _: &mut usize) {
        if w.core.out.links_busy() {
            w.core.guarded(|core| core.out.links_round(now));
        }
    }

    fn due(w: &mut Worker, _: Instant) -> Option<Instant> {
        w.core.out.links_due()
    }

    fn arm(_: &mut Worker) -> bool {
        false
    }

    fn disarm(_: &mut Worker) {}
}

/// Frames of flows that move to another member of a bond.
impl Bonds {
    const AWAKE: Duration = AWAKE;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, work: &mut usize) {
        if !w.core.out.bonds.local.is_empty() {
            *work += w.core.served(move |out| out.bonds_round(now)).unwrap_or(1);
        }
    }

    fn due(w: &mut Worker, now: Instant) -> Option<Instant> {
        w.core.out.bonds_due(now)
    }

    fn arm(_: &mut Worker) -> bool {
        false
    }

    fn disarm(_: &mut Worker) {}
}

/// Queues of receivers, by traffic class.
impl Receivers {
    const AWAKE: Duration = AWAKE;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, work: &mut usize) {
        #[cold]
        fn serve(w: &mut Worker, now: Instant) -> usize {
            let work = w.core.served(move |out| out.receivers_round(now));
            if let (None, Some(port)) = (work, w.core.out.taken) {
                w.core.report(CoreEvent::Panic { port });
            }
            work.unwrap_or(1)
        }
        if !w.core.out.queued.is_empty() {
            *work += serve(w, now);
        }
    }

    fn due(w: &mut Worker, now: Instant) -> Option<Instant> {
        w.core.out.receivers_due(now)
    }

    fn arm(w: &mut Worker) -> bool {
        !w.core.out.queued.is_empty() && w.core.out.request_room()
    }

    fn disarm(w: &mut Worker) {
        w.core.out.suppress_room_kicks();
    }
}

/// Frames that faults delay.
impl Faults {
    const AWAKE: Duration = Duration::ZERO;

    #[inline(always)]
    fn round(w: &mut Worker, _: Instant, work: &mut usize) {
        if w.core.out.faulty() {
            *work += w.core.served(Outputs::fault_round).unwrap_or(1);
        }
    }

    fn due(w: &mut Worker, _: Instant) -> Option<Instant> {
        w.core.out.faults().and_then(|f| f.next_time())
    }

    fn arm(_: &mut Worker) -> bool {
        false
    }

    fn disarm(_: &mut Worker) {}
}

/// Paused times of adapters; send queues, by limit and class.
impl Senders {
    const AWAKE: Duration = Duration::ZERO;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, work: &mut usize) {
        if w.core.out.round.waiting.pressed || w.core.senders.any_paused() {
            w.core.pause_round(now);
        }
        if w.core.senders.queued {
            *work += w.core.senders_round(now);
            w.police();
        }
    }

    fn due(w: &mut Worker, now: Instant) -> Option<Instant> {
        w.core.senders_due(now)
    }

    fn arm(_: &mut Worker) -> bool {
        false
    }

    fn disarm(_: &mut Worker) {}
}

/// Guests' own RoCE: notifications and limits.
impl GuestRoce {
    const AWAKE: Duration = AWAKE;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, work: &mut usize) {
        if !w.core.out.guest_roce.is_empty() {
            *work += w.core.guest_roce_round(now);
            w.police();
        }
    }

    fn due(w: &mut Worker, now: Instant) -> Option<Instant> {
        w.core.guest_roce_due(now)
    }

    fn arm(_: &mut Worker) -> bool {
        false
    }

    fn disarm(_: &mut Worker) {}
}

/// Commands of guests' Ethernet drivers, one each.
impl Control {
    const AWAKE: Duration = Duration::ZERO;

    #[inline(always)]
    fn round(w: &mut Worker, _: Instant, work: &mut usize) {
        if !w.control.is_empty() {
            *work += w.control_round();
        }
    }

    fn due(_: &mut Worker, _: Instant) -> Option<Instant> {
        None
    }

    fn arm(w: &mut Worker) -> bool {
        w.control.request_kicks()
    }

    fn disarm(w: &mut Worker) {
        w.control.suppress_kicks();
    }
}

/// Transmit rings, a burst each.
impl Transmit {
    const AWAKE: Duration = UNDER_WAY;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, work: &mut usize) {
        w.rings.round(&mut w.core, &w.sleeper, now, work);
    }

    fn due(w: &mut Worker, now: Instant) -> Option<Instant> {
        w.rings.due(&w.core, now)
    }

    fn arm(w: &mut Worker) -> bool {
        w.rings.request_kicks()
    }

    fn disarm(w: &mut Worker) {
        w.rings.suppress_kicks();
    }
}

/// Frames from the wire.
impl FromWire {
    const AWAKE: Duration = Duration::ZERO;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, work: &mut usize) {
        *work += w.uplinks.round(&mut w.core, &mut w.functions, &w.sleeper, now);
    }

    fn due(_: &mut Worker, _: Instant) -> Option<Instant> {
        None
    }

    fn arm(w: &mut Worker) -> bool {
        w.uplinks.request_frames()
    }

    fn disarm(_: &mut Worker) {}
}

/// RDMA functions, a turn each.
impl Rdma {
    const AWAKE: Duration = Duration::ZERO;

    #[inline(always)]
    fn round(w: &mut Worker, now: Instant, work: &mut usize) {
        if !w.functions.is_empty() {
            *work += w.functions.round(&mut w.core, &w.sleeper, now);
        }
    }

    fn due(w: &mut Worker, now: Instant) -> Option<Instant> {
        // All news is reported before the core sleeps.
        w.functions.housekeeping(&mut w.core, now);
        w.functions.due(now)
    }

    fn arm(w: &mut Worker) -> bool {
        let now = w.now();
        w.functions.request_kicks(&mut w.core, now)
    }

    fn disarm(w: &mut Worker) {
        w.functions.suppress_kicks();
    }
}

/// Frames of other cores, and frames that they have copied. They wake the core.
impl OtherCores {
    const AWAKE: Duration = Duration::ZERO;

    #[inline(always)]
    fn round(w: &mut Worker, _: Instant, work: &mut usize) {
        if w.core.links_in.len() > 1 {
            *work += w.core.poll_links() + w.rings.collect_copied(&mut w.core);
        }
    }

    fn due(_: &mut Worker, _: Instant) -> Option<Instant> {
        None
    }

    fn arm(_: &mut Worker) -> bool {
        false
    }

    fn disarm(_: &mut Worker) {}
}

/// Copies of frames for the destinations of mirror sessions.
impl Mirrors {
    const AWAKE: Duration = Duration::ZERO;

    #[inline(always)]
    fn round(w: &mut Worker, _: Instant, work: &mut usize) {
        if w.core.out.mirrors() {
            *work += w.core.guarded(Core::mirror_round).unwrap_or(1);
        }
    }

    fn due(_: &mut Worker, _: Instant) -> Option<Instant> {
        None
    }

    fn arm(w: &mut Worker) -> bool {
        w.core.out.round.mirrors.wait()
    }

    fn disarm(_: &mut Worker) {}
}

/// Used indices of receive queues and batches of uplinks, also those that an uplink could not take before.
impl Flush {
    const AWAKE: Duration = UNDER_WAY;

    #[inline(always)]
    fn round(w: &mut Worker, _: Instant, _: &mut usize) {
        w.core.flush();
    }

    fn due(w: &mut Worker, now: Instant) -> Option<Instant> {
        (!w.core.settled()).then_some(now)
    }

    fn arm(w: &mut Worker) -> bool {
        !w.core.settled()
    }

    fn disarm(_: &mut Worker) {}
}

/// Rings that stop when none of their buffers is in flight any more.
impl Stopping {
    const AWAKE: Duration = UNDER_WAY;

    #[inline(always)]
    fn round(w: &mut Worker, _: Instant, _: &mut usize) {
        if !w.stopping.is_empty() {
            w.finish_stopping();
        }
    }

    fn due(w: &mut Worker, now: Instant) -> Option<Instant> {
        (!w.stopping.is_empty()).then_some(now)
    }

    fn arm(_: &mut Worker) -> bool {
        false
    }

    fn disarm(_: &mut Worker) {}
}

//! The world of a run: devices, network and time.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use fastrand::Rng;
use vnic_engine::rdma::{Completion, CqHandle, Device, Marks, QpState, Status, VerbsError};
use vnic_fabric::network::Arrival;
use vnic_fabric::{Faults, Network};
use vnic_wire::time::Instant;

use super::capture::Capture;
use super::ledger::Ledger;
use super::link::Parcel;
use super::node::{Binding, Book, Node, Policy, QpSlot, ReceiveSlot};
use super::plan::{Cut, Plan, What};
use crate::memory::SimMemory;
use crate::oracle::{Finish, Judgement, Oracle, Rule, Tally, Violation};

/// Events of a world after which it is believed to be restless.
const EVENTS_MAX: u64 = 4_000_000;
/// Calls of a device at one time after which it is believed to make no progress: so often 256 objects may fail.
const CALLS: u32 = 100;
/// Events without a completion after which receivers that never posted are helped.
const HELP_AFTER: u64 = 20_000;

/// A verb was refused that should not have been.
pub fn refused<T>(what: &str, error: VerbsError) -> Judgement<T> {
    Rule::Verb.broken(format!("{what}: {error}"))
}

/// What a device gives; it is a broken rule if it refuses.
pub fn granted<T>(what: &str, answer: Result<T, VerbsError>) -> Judgement<T> {
    answer.or_else(|e| refused(what, e))
}

/// A run in progress.
// Wide: a whole world: devices, network, plan, oracle and what drives them.
pub struct World {
    pub plan: Plan,
    pub cut: Cut,
    /// Nanoseconds.
    pub now: u64,
    pub nodes: Vec<Node>,
    pub memories: Rc<Vec<SimMemory>>,
    pub slots: Vec<Option<QpSlot>>,
    pub receives: Vec<ReceiveSlot>,
    pub oracle: Oracle,
    pub net: Network<Parcel>,
    /// Came while their device was sending.
    pub held_back: Vec<Arrival<Parcel>>,
    pub books: HashMap<u64, Book>,
    pub next_id: u64,
    pub capture: Capture,
    pub ledger: Ledger,
    /// Cells of atomics: device, domain, address, key, region.
    pub cells: Vec<(usize, usize, u64, u32, usize)>,
    /// Binds that are under way: what they will show.
    pub pending_bindings: HashMap<(usize, usize), Binding>,
    /// Send queues that are paused, and until when.
    pub paused: Vec<(usize, u64)>,
    pub next_action: usize,
    pub rng: Rng,
    /// For rates and priorities.
    pub outlets: Rng,
    /// No more work comes; receives are posted as needed.
    pub draining: bool,
    events: u64,
    /// Events since the last completion.
    idle: u64,
    helped: bool,
}

/// What a run was.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The rule that was broken, if one was.
    pub violation: Option<Violation>,
    /// Paths that the engine took.
    pub marks: Marks,
    /// Completions that came.
    pub tally: Tally,
    /// What was checked at the end.
    pub finish: Finish,
    /// Packets that were sent.
    pub packets: u64,
    /// Virtual time, in nanoseconds.
    pub time: u64,
}

/// Runs a plan. A panic of the engine is a broken rule.
pub fn run(plan: &Plan, cut: &Cut, capture: &mut Capture) -> Outcome {
    let mut world = World::new(plan.clone(), cut.clone(), std::mem::take(capture));
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let (violation, finish) = match result {
        Ok(Ok(finish)) => (None, finish),
        Ok(Err(v)) => (Some(v), Finish::default()),
        Err(panic) => (Some(Violation::panic(&*panic)), Finish::default()),
    };
    *capture = std::mem::take(&mut world.capture);
    let mut marks = Marks::default();
    for device in world.nodes.iter().filter_map(|n| n.device.as_ref()) {
        marks.add(device.marks());
    }
    Outcome {
        violation,
        marks,
        tally: world.oracle.tally.clone(),
        finish,
        packets: world.ledger.packets(),
        time: world.now,
    }
}

/// The tag of the request with this identifier.
pub(super) fn tag(id: u64) -> u32 {
    (id >> 24) as u32
}

impl World {
    fn new(plan: Plan, cut: Cut, capture: Capture) -> World {
        let sizes = plan.nodes.iter().map(|(_, memory)| *memory);
        let memories = Rc::new(sizes.map(SimMemory::new).collect());
        let mut faults = Faults::new(plan.seed);
        for rule in &plan.faults {
            // The plan makes rules within their ranges.
            let added = faults.add(rule.clone());
            debug_assert!(added.is_ok(), "{added:?}");
        }
        let mut net = Network::new(faults);
        net.set_default(plan.link);
        World {
            now: 0,
            nodes: Vec::new(),
            slots: Vec::new(),
            receives: Vec::new(),
            oracle: Oracle::new(plan.terms, &memories),
            memories,
            net,
            held_back: Vec::new(),
            books: HashMap::new(),
            next_id: 0,
            capture,
            ledger: Ledger::new(plan.nodes.len()),
            cells: Vec::new(),
            pending_bindings: HashMap::new(),
            paused: Vec::new(),
            next_action: 0,
            rng: Rng::with_seed(plan.seed ^ 0x77_6f72_6c64),
            outlets: Rng::with_seed(plan.seed ^ 0x70_7269_6f72),
            draining: false,
            events: 0,
            idle: 0,
            helped: false,
            plan,
            cut,
        }
    }

    fn run(&mut self) -> Judgement<Finish> {
        self.set_up()?;
        self.until_quiet()?;
        self.drain()?;
        self.until_quiet()?;
        self.oracle.drained()?;
        self.resume_all()?;
        self.until_quiet()?;
        self.oracle.quiet()?;
        self.settle()
    }

    /// A device.
    pub fn device(&mut self, dev: usize) -> &mut Device {
        self.nodes[dev].device()
    }

    /// A queue pair that is there.
    pub fn slot(&self, slot: usize) -> &QpSlot {
        self.slots[slot].as_ref().expect("it was not cut out")
    }

    /// A queue pair that is there.
    pub fn slot_mut(&mut self, slot: usize) -> &mut QpSlot {
        self.slots[slot].as_mut().expect("it was not cut out")
    }

    /// Numbers of the queue pairs that are alive.
    pub fn living(&self) -> Vec<usize> {
        (0..self.slots.len())
            .filter(|s| self.slots[*s].as_ref().is_some_and(|s| s.alive))
            .collect()
    }

    /// A number that no request has had; its high bits are used as well.
    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Something was done to a device: looks at what it did, and plans what it wants.
    pub fn stirred(&mut self, dev: usize) -> Judgement {
        self.oracle.watch(dev)?;
        while let Some(event) = self.nodes[dev].device().poll_event() {
            self.capture.note(self.now, || format!("dev{dev} {event:?}"));
            self.ledger.event(dev, event);
            self.oracle.event(dev, event)?;
        }
        let (now, lazy, gap) = (self.now, self.plan.lazy, self.plan.gap);
        let wants = self.nodes[dev].device().wants_transmit();
        let node = &mut self.nodes[dev];
        if wants && node.transmit.is_none() {
            node.transmit = Some(now + self.rng.u64(0..=gap));
        }
        for cq in node.cqs.iter_mut().filter(|c| c.poll.is_none()) {
            cq.poll = Some(now + self.rng.u64(0..lazy));
        }
        Ok(())
    }

    /// Lets time pass until nothing happens any more, or until nothing more is to be done and draining can begin.
    pub fn until_quiet(&mut self) -> Judgement {
        while let Some(at) = self.next_time() {
            self.now = self.now.max(at);
            self.oracle.clock(self.now);
            self.events += 1;
            self.idle += 1;
            if self.events > EVENTS_MAX {
                return Rule::Progress.broken("the world does not come to rest");
            }
            if self.idle > HELP_AFTER && (self.draining || self.plan.is_long()) {
                self.idle = 0;
                self.help()?;
            }
            self.one_step()?;
            if !self.draining && self.next_action >= self.plan.actions.len() {
                break;
            }
        }
        Ok(())
    }

    fn next_time(&self) -> Option<u64> {
        let mut next = self.net.next_time().map(|t| t.0);
        let mut consider = |t: Option<u64>| next = [next, t].into_iter().flatten().min();
        if !self.held_back.is_empty() {
            consider(Some(self.now));
        }
        for node in &self.nodes {
            consider(node.device.as_ref().and_then(|d| d.next_timeout()).map(|t| t.0));
            consider(node.transmit);
            for cq in &node.cqs {
                consider(cq.poll);
            }
        }
        for r in &self.receives {
            consider(r.refill);
        }
        for s in self.slots.iter().flatten().filter(|s| s.alive) {
            consider(s.connect);
        }
        for (_, until) in &self.paused {
            consider(Some(*until));
        }
        consider(self.plan.actions.get(self.next_action).map(|a| a.at));
        next
    }

    fn one_step(&mut self) -> Judgement {
        let now = self.now;
        let due = |t: Option<u64>| t.is_some_and(|t| t <= now);
        for arrival in std::mem::take(&mut self.held_back) {
            self.arrive(&arrival, None)?;
        }
        while let Some(arrival) = self.net.pop(Instant(now)) {
            self.arrive(&arrival, None)?;
        }
        for dev in 0..self.nodes.len() {
            // (What may fail at a time is bounded: the rest fails at the next calls.)
            let mut calls = 0;
            while due(self.nodes[dev].device().next_timeout().map(|t| t.0)) {
                if calls == CALLS {
                    return Rule::Progress.broken(format!(
                        "dev{dev}: {CALLS} calls of handle_timeout at {now} leave its timer there"
                    ));
                }
                calls += 1;
                self.nodes[dev].device().handle_timeout(Instant(now));
                self.stirred(dev)?;
            }
            if due(self.nodes[dev].transmit) {
                self.nodes[dev].transmit = None;
                self.transmit(dev)?;
                if self.nodes[dev].transmit.is_some_and(|t| t <= now) {
                    self.nodes[dev].transmit = Some(now + 1 + self.plan.gap);
                }
            }
            for cq in 0..self.nodes[dev].cqs.len() {
                if due(self.nodes[dev].cqs[cq].poll) {
                    self.poll(dev, cq)?;
                }
            }
        }
        for queue in 0..self.receives.len() {
            if due(self.receives[queue].refill) {
                self.refill(queue)?;
            }
        }
        for slot in self.living() {
            if due(self.slot(slot).connect) {
                self.slot_mut(slot).connect = None;
                self.connect_now(slot)?;
            }
        }
        for i in (0..self.paused.len()).rev() {
            if self.paused[i].1 <= now {
                let (slot, _) = self.paused.swap_remove(i);
                self.resume(slot)?;
            }
        }
        while let Some(action) = self.plan.actions.get(self.next_action).copied() {
            if action.at > now {
                break;
            }
            let number = self.next_action;
            self.next_action += 1;
            if !self.cut.actions.contains(&number) {
                self.act(number, action.what, action.seed)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, number: usize, what: What, seed: u64) -> Judgement {
        let mut rng = Rng::with_seed(seed);
        self.capture
            .note(self.now, || format!("action {number}: {what:?}"));
        match what {
            What::Post(pair, other) => {
                let slot = pair * 2 + usize::from(other);
                if self.slots[slot].is_some() {
                    self.post(slot, &mut rng)?;
                }
                Ok(())
            }
            What::Admin => self.administer(&mut rng),
            What::Dynamic => self.change_dynamic(&mut rng),
            What::Attack => self.attack(&mut rng),
        }
    }

    /// Polls a completion queue.
    pub fn poll(&mut self, dev: usize, cq: usize) -> Judgement {
        let (handle, max, arms) = {
            let cq = &mut self.nodes[dev].cqs[cq];
            cq.poll = None;
            (cq.handle, cq.max, cq.arms)
        };
        let mut n = self.take_completions(dev, handle, max)?;
        if n < max && arms {
            // What the owner did about them may have completed already.
            n = self.take_completions(dev, handle, max)?;
        }
        let lazy = self.plan.lazy;
        if n == max || arms && n > 0 {
            self.nodes[dev].cqs[cq].poll = Some(self.now + self.rng.u64(1..=lazy));
        } else if arms {
            let arm = if self.rng.bool() {
                vnic_engine::rdma::Arm::Next
            } else {
                vnic_engine::rdma::Arm::Solicited
            };
            granted("arm_cq", self.device(dev).arm_cq(handle, arm))?;
            self.oracle.armed(dev, handle, arm)?;
        }
        Ok(())
    }

    fn take_completions(&mut self, dev: usize, cq: CqHandle, max: usize) -> Judgement<usize> {
        let mut found = Vec::new();
        let polled = self.nodes[dev].device().poll_cq(cq, &mut found, max);
        let n = granted("poll_cq", polled)?;
        let entries = self.nodes[dev]
            .cqs
            .iter()
            .find(|c| c.handle == cq)
            .map(|c| c.entries);
        if entries.is_some_and(|entries| n > entries as usize) {
            return Rule::Completion.broken(format!("dev{dev} {cq:?} of {entries:?} entries held {n}"));
        }
        for c in &found {
            self.idle = 0;
            self.capture.completion(self.now, dev, c);
            self.ledger.completion(dev, c, self.books.get(&c.wr_id));
            self.oracle.completed(dev, cq, c)?;
            self.note_completion(c)?;
        }
        Ok(n)
    }

    /// What the owner does when a request has completed.
    fn note_completion(&mut self, c: &Completion) -> Judgement {
        let Some(book) = self.books.remove(&c.wr_id) else {
            return Ok(());
        };
        if let Some(queue) = book.receives {
            self.give_back(&book.local);
            self.receives[queue].open = self.receives[queue].open.saturating_sub(1);
            let again = self.draining || self.receives[queue].policy == Policy::Early;
            if again && c.status == Status::Success && (self.draining || self.rng.u32(0..10) > 0) {
                return self.fill(queue, u32::MAX);
            }
            return Ok(());
        }
        let Some(slot) = book.slot else { return Ok(()) };
        let mut before = Vec::new();
        while let Some(id) = self.slot_mut(slot).open.pop_front() {
            if id == c.wr_id {
                break;
            }
            before.push(id);
        }
        for id in before {
            if let Some(book) = self.books.remove(&id) {
                self.end_book(slot, &book, true);
            }
        }
        self.end_book(slot, &book, c.status == Status::Success);
        Ok(())
    }

    fn end_book(&mut self, slot: usize, book: &Book, success: bool) {
        self.give_back(&book.local);
        if success && self.slot(slot).kind.reliable() && self.slot(slot).strict {
            self.give_back(&book.remote);
        }
        if let Some((dev, window, bind)) = book.window {
            let binding = self.pending_bindings.remove(&(dev, window));
            let w = &mut self.nodes[dev].windows[window];
            // Flushed or not, it may have been carried out: nobody knows its key any more.
            w.busy = !success;
            w.bound = binding.filter(|_| bind && success);
            if let Some(bound) = &w.bound {
                w.key = bound.key;
            }
        }
    }

    fn refill(&mut self, queue: usize) -> Judgement {
        let r = &mut self.receives[queue];
        r.refill = None;
        r.refills += 1;
        if let (Policy::Late(period), true) = (r.policy, r.refills < 20 && !self.draining) {
            r.refill = Some(self.now + period);
        }
        self.fill(queue, 3)
    }

    /// No more work: receivers become ready.
    fn drain(&mut self) -> Judgement {
        self.capture
            .note(self.now, || "no more work is posted".to_owned());
        self.draining = true;
        self.idle = 0;
        for queue in 0..self.receives.len() {
            if self.receives[queue].policy != Policy::Never {
                self.fill(queue, u32::MAX)?;
            }
        }
        Ok(())
    }

    /// Send queues that are still stopped go on.
    fn resume_all(&mut self) -> Judgement {
        self.idle = 0;
        for slot in self.living() {
            let number = self.number(slot);
            let dev = self.slot(slot).dev;
            let state = self.state_of(dev, number)?;
            if matches!(state, QpState::Sqd | QpState::Sqe) {
                self.resume(slot)?;
            }
        }
        Ok(())
    }

    /// Receivers that never posted do now; whoever still waits for one, with retries for ever, is stopped.
    fn help(&mut self) -> Judgement {
        if std::mem::replace(&mut self.helped, true) {
            for (dev, number) in self.oracle.waiting_for_ever() {
                let slot = self
                    .living()
                    .into_iter()
                    .find(|s| self.slot(*s).dev == dev && self.slot(*s).number == number);
                if let Some(slot) = slot {
                    self.step_to(slot, QpState::Err)?;
                }
            }
        }
        for queue in 0..self.receives.len() {
            self.fill(queue, u32::MAX)?;
        }
        Ok(())
    }
}

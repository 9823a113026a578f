//! Thread of a data core: orders, a round, and sleep without work.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use vnic_engine::counters::CoreCounter as C;
use vnic_fabric::Instant;
use vnic_fabric::qos::Away;
use vnic_fabric::qos::egress::SLACK;
use vnic_fabric::switch::{Switch, SwitchConfig, SwitchStats};

use super::MAX_CORES;
use super::by_thread::ByThread;
use super::clock::Clock;
use super::core::Core;
use super::counters::{CoreCounters, CoreTimes};
use super::dpc::{BufferAlarm, Dpc};
use super::handle::{Order, WorkerHandle, answer};
use super::idle::Idle;
use super::link::{LinkIn, LinkOut, Waker, link};
use super::news::{CoreEvent, Reporter};
use super::outputs::{Outputs, Pressure, Waiting};
use super::qos::Pauses;
use super::quota::{COMMANDS, Quota};
use super::sleep::{Sleeper, Source};
use super::worker::Worker;
use crate::call::Signals;
use crate::confine::Filter;
use crate::types::NicError;

/// Starts a data core on each CPU.
pub fn start(
    cpus: &[usize],
    idle_spin: Duration,
    switch: &SwitchConfig,
    events: &Reporter,
    clock: &Clock,
    confine: bool,
) -> Result<Vec<WorkerHandle>, NicError> {
    let os = |what: &str, source: std::io::Error| NicError::Os {
        what: what.into(),
        source,
    };
    let n = cpus.len();
    if n == 0 || n > MAX_CORES {
        let problem = format!("{n} data cores; allowed are 1 to {MAX_CORES}");
        return Err(NicError::Invalid {
            field: "data_cores",
            problem,
        });
    }
    let wakers = (0..n)
        .map(|_| Waker::new(clock.start_time()).map(Arc::new))
        .collect::<Result<Vec<_>, _>>();
    let wakers = wakers.map_err(|e| os("making an eventfd", e))?;
    let mut outs: Vec<Vec<Option<LinkOut>>> = (0..n).map(|_| (0..n).map(|_| None).collect()).collect();
    let mut ins: Vec<Vec<Option<LinkIn>>> = (0..n).map(|_| (0..n).map(|_| None).collect()).collect();
    for from in 0..n {
        for to in (0..n).filter(|&to| to != from) {
            let (out, input) = link(wakers[to].clone());
            outs[from][to] = Some(out);
            ins[to][from] = Some(input);
        }
    }
    let confinement = match confine {
        true => {
            Some(Arc::new(Filter::data_core().map_err(|e| {
                os("making a filter of system calls; see --no-sandbox", e)
            })?))
        }
        false => None,
    };
    let pressure = Arc::new(Pressure::default());
    let pauses = Arc::new(Pauses::default());
    let alarms: Vec<_> = wakers
        .iter()
        .map(|w| Arc::new(BufferAlarm::new(w.clone())))
        .collect();
    let dpc = Dpc::start(alarms.clone()).map_err(|e| os("starting the thread for receive buffers", e))?;
    let dpc = Arc::new(dpc);
    let by_thread = ByThread::start().map_err(|e| os("starting the thread for interrupts", e))?;
    let mut handles: Vec<WorkerHandle> = Vec::with_capacity(n);
    let mut begun = Vec::with_capacity(n);
    for (index, ((&cpu, outs), ins)) in cpus.iter().zip(outs).zip(ins).enumerate() {
        let (orders, mailbox) = unbounded();
        let (counters, times) = (Arc::new(CoreCounters::default()), Arc::new(CoreTimes::default()));
        let waker = wakers[index].clone();
        let sleeper = Sleeper::new().map_err(|e| os("making an epoll set", e))?;
        sleeper
            .add(waker.fd(), Source::Waker)
            .map_err(|e| os("watching an eventfd", e))?;
        let signals = Signals::new().map(Arc::new).map_err(|e| {
            os("setting up asynchronous I/O (io_setup), by which guests are interrupted; fs.aio-max-nr may be too low", e)
        })?;
        // A random seed, so that no guest can choose addresses that collide in the forwarding database.
        let seed = RandomState::new().build_hasher().finish();
        let waiting = Waiting::new(pressure.clone(), pauses.clone(), clock.clone());
        let out = Outputs::new(index, counters.clone(), events.clone(), waiting);
        let core = Core::new(out, Switch::with_seed(switch.clone(), seed), (outs, ins));
        let (pinned, was_pinned) = answer();
        let runner = Runner {
            worker: Worker::new(
                core,
                sleeper,
                clock.clone(),
                alarms[index].clone(),
                (dpc.clone(), index),
                by_thread.clone(),
            ),
            mailbox,
            waker: waker.clone(),
            counters: counters.clone(),
            times: times.clone(),
            idle_spin,
            switch_stats: SwitchStats::default(),
        };
        let confinement = confinement.clone();
        let thread = std::thread::Builder::new()
            .name(format!("vnic-core{index}"))
            .spawn(move || {
                let result = pin(cpu).map_err(|e| ("choose CPUs this process may use", e));
                let confined = |()| match confinement {
                    None => Ok(()),
                    Some(filter) => filter
                        .enter()
                        .map_err(|e| ("seccomp does not work here: see --no-sandbox", e)),
                };
                let result = result.and_then(confined);
                let ok = result.is_ok();
                let _ = pinned.send(result);
                if ok {
                    runner.run();
                }
            })
            .map_err(|e| os("starting a thread", e))?;
        handles.push(WorkerHandle::new(
            cpu,
            (counters, times),
            signals,
            orders,
            waker,
            thread,
        ));
        begun.push((cpu, was_pinned));
    }
    for (cpu, was_pinned) in begun {
        if let Some(Err((cure, source))) = was_pinned.wait() {
            for h in &handles {
                h.end();
                h.join();
            }
            let what = format!("starting a data core on CPU {cpu}; {cure}");
            return Err(NicError::Os { what, source });
        }
    }
    Ok(handles)
}

/// Nanoseconds of a time.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// A data core and the state of its thread.
struct Runner {
    worker: Worker,
    mailbox: Receiver<Order>,
    waker: Arc<Waker>,
    counters: Arc<CoreCounters>,
    times: Arc<CoreTimes>,
    idle_spin: Duration,
    switch_stats: SwitchStats,
}

impl Runner {
    fn run(mut self) {
        let mut idle = Idle::new(self.idle_spin, self.worker.now());
        let mut quota = Quota::default();
        // When the last round began, if it found work.
        let mut busy: Option<Instant> = None;
        // When the last round began, unless the core has slept since.
        let mut looked: Option<Instant> = None;
        loop {
            let now = self.worker.now();
            if let Some(began) = busy.take() {
                self.times.round.add(nanos(now.since(began)));
                self.worker.functions.round_over(now);
            }
            if let Some(last) = looked.replace(now)
                && now.since(last) > SLACK
            {
                self.worker.core.was_away(Away::new(last, now));
            }
            self.worker.core.now = now;
            self.worker.core.out.round.now = now;
            let mut open = quota.open(now);
            for _ in 0..COMMANDS {
                let waiting = if open { quota.waiting.pop_front() } else { None };
                let order = waiting.map(Order::Ask).or_else(|| self.mailbox.try_recv().ok());
                let (job, asks) = match order {
                    Some(Order::Do(job)) => (job, false),
                    Some(Order::Ask(job)) if open => (job, true),
                    Some(Order::Ask(job)) => {
                        quota.waiting.push_back(job);
                        continue;
                    }
                    Some(Order::End) => return,
                    None => break,
                };
                self.counters.add(C::Commands as usize, 1);
                idle.worked(now);
                job(&mut self.worker);
                if asks {
                    open = quota.spend(now, self.worker.now());
                }
            }
            let work = self.worker.round(now);
            if let Some(suspect) = self.worker.core.switch.tick(now) {
                self.worker.core.report(CoreEvent::Loop(suspect));
            }
            self.worker.clock.round_over();
            if work > 0 {
                self.counters.add(C::BusyRounds as usize, 1);
                idle.worked(now);
                busy = Some(now);
                continue;
            }
            self.counters.add(C::IdleRounds as usize, 1);
            quota.idle();
            self.publish_switch_stats();
            if idle.looked(now) && quota.waiting.is_empty() && self.worker.clock.sleeps() {
                let slept = self.sleep();
                looked = None;
                let now = self.worker.now();
                if slept && let Some(called) = self.waker.take_called() {
                    self.times.wake_up.add(nanos(now.since(called)));
                }
                idle.slept(now);
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Adds the changes of the switch's own counters to the core's counters.
    fn publish_switch_stats(&mut self) {
        let stats = self.worker.core.switch.stats();
        if stats != self.switch_stats {
            self.counters.add(
                C::LearnedAddresses as usize,
                stats.learned - self.switch_stats.learned,
            );
            self.counters.add(
                C::LearnRefused as usize,
                stats.refused - self.switch_stats.refused,
            );
            self.switch_stats = stats;
        }
    }

    /// Sleeps until it is woken, unless there is work already. Returns whether it slept.
    fn sleep(&mut self) -> bool {
        let Some(longest) = self.worker.longest_sleep() else {
            return false;
        };
        // Who woke it too late the last time does not count.
        self.waker.take_called();
        self.waker.set_asleep(true);
        let more = longest.is_zero() | self.worker.arm() | !self.mailbox.is_empty();
        if !more {
            self.counters.add(C::Sleeps as usize, 1);
            self.worker.wait(longest);
        }
        self.waker.set_asleep(false);
        self.worker.disarm();
        !more
    }
}

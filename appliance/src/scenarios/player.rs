//! Plays a scenario on a NIC, and puts everything back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, geteuid, getpid, pidfd_open, pidfd_send_signal};
use vnic_backend::fault::Action;
use vnic_backend::{FaultSpec, GidSetting, GidSource, Nic, RdmaPort, VerbsFaultSpec};

use super::timeline::{Act, Moment, PortChange, Scenario};

/// How often rules that moments wait for are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// A scenario that is played.
pub struct Player {
    nic: Nic,
    /// What is still to do, in the order of the file.
    moments: Vec<Moment>,
    /// When rules that moments wait for hit first.
    hit: BTreeMap<String, Duration>,
    /// When it was looked last.
    looked: Duration,
    length: Duration,
    /// What puts back what was done, the last first.
    undo: Vec<Act>,
    ports: BTreeMap<String, RdmaPort>,
    /// GIDs that are not where they were: by adapter and index in the file, with their index.
    gids: BTreeMap<(String, Option<u16>), (u16, GidSetting)>,
    /// Rates of links as they were, by adapter.
    rates: BTreeMap<String, u64>,
    /// Adapters that were cut off; their places are in the names of the rules.
    cut: Vec<String>,
    kill: Killer,
    over: bool,
    log: Vec<String>,
}

/// What ends the processes at an adapter.
pub type Killer = Box<dyn FnMut(&Nic, &str) -> Result<(), String> + Send>;

impl Player {
    /// A player that has not begun.
    pub fn new(nic: Nic, scenario: &Scenario) -> Player {
        Player {
            nic,
            moments: scenario.moments.clone(),
            hit: BTreeMap::new(),
            looked: Duration::ZERO,
            length: scenario.length,
            undo: Vec::new(),
            ports: BTreeMap::new(),
            gids: BTreeMap::new(),
            rates: BTreeMap::new(),
            cut: Vec::new(),
            kill: Box::new(kill),
            over: false,
            log: Vec::new(),
        }
    }

    /// The same with processes that are ended in another way.
    pub fn killing(self, kill: Killer) -> Player {
        Player { kill, ..self }
    }

    /// When there is something to do; `None`: the scenario is over, and put back.
    pub fn next(&self) -> Option<Duration> {
        if self.over {
            return None;
        }
        let known = self.moments.iter().filter_map(|moment| self.due(moment)).min();
        let next = known.map_or(self.length, |due| due.min(self.length));
        let waits = self.moments.iter().any(|moment| self.due(moment).is_none());
        Some(if waits { next.min(self.looked + LOOK) } else { next })
    }

    /// Does what is due so long after the begin; at the end, and with the first error, everything is put back. May block.
    pub fn play(&mut self, now: Duration) -> Result<(), String> {
        if self.over {
            return Ok(());
        }
        self.look(now);
        while let Some((moment, when)) = self.take(now) {
            let act = &moment.act;
            let done = self.act(act);
            let failed = done
                .as_ref()
                .err()
                .map_or_else(String::new, |e| format!(": FAILED: {e}"));
            self.log.push(format!("{when:>12} {act}{failed}"));
            if let Err(problem) = done {
                self.end();
                return Err(format!("{} {act}: {problem}", when.trim_start()));
            }
        }
        if self.length <= now {
            self.end();
        }
        Ok(())
    }

    /// When something is due, if that is known yet.
    fn due(&self, moment: &Moment) -> Option<Duration> {
        match &moment.after {
            None => Some(moment.at),
            Some(rule) => self.hit.get(rule).map(|hit| *hit + moment.at),
        }
    }

    /// Notes which of the rules that moments wait for have hit by now.
    fn look(&mut self, now: Duration) {
        self.looked = now;
        let rules: BTreeSet<&String> = self.moments.iter().filter_map(|m| m.after.as_ref()).collect();
        let fresh = rules
            .into_iter()
            .filter(|rule| !self.hit.contains_key(*rule) && has_hit(&self.nic, rule));
        let fresh: Vec<String> = fresh.cloned().collect();
        self.hit.extend(fresh.into_iter().map(|rule| (rule, now)));
    }

    /// Takes the next moment that is due, and what the log says of its time.
    fn take(&mut self, now: Duration) -> Option<(Moment, String)> {
        let due = |moment: &Moment| self.due(moment).filter(|due| *due <= now.min(self.length));
        let dues = self.moments.iter().enumerate();
        let (_, at) = dues.filter_map(|(at, m)| Some((due(m)?, at))).min()?;
        let moment = self.moments.remove(at);
        let when = match &moment.after {
            None => milliseconds(moment.at),
            Some(rule) => format!("{rule} + {}", milliseconds(moment.at)),
        };
        Some((moment, when))
    }

    /// Puts everything back, and does no more. May block.
    pub fn end(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let never = self.moments.iter().filter(|moment| self.due(moment).is_none());
        let never: BTreeSet<String> = never.filter_map(|moment| moment.after.clone()).collect();
        for rule in never {
            self.log
                .push(format!("{:>12} what waits for {rule}: it hit nothing", "never"));
        }
        self.moments.clear();
        while let Some(act) = self.undo.pop() {
            let done = self.do_it(&act);
            let failed = done.err().map_or_else(String::new, |e| format!(": FAILED: {e}"));
            self.log.push(format!("{:>12} {act}{failed}", "put back"));
        }
        self.log.push("end".to_owned());
    }

    /// What was done, a line each, with the times of the file.
    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// Does something, and notes what puts it back.
    fn act(&mut self, act: &Act) -> Result<(), String> {
        self.do_it(act)?;
        if let Act::Renumber { adapter, .. } = act {
            let adapter = adapter.clone();
            let back = Act::Away { adapter, away: false };
            self.undo.retain(|undo| *undo != back);
        }
        match self.undo.iter().rposition(|undo| undo == act) {
            Some(at) => drop(self.undo.remove(at)),
            None => self.undo.extend(act.inverse()),
        }
        Ok(())
    }

    fn do_it(&mut self, act: &Act) -> Result<(), String> {
        let nic = self.nic.clone();
        let said = |error: vnic_backend::NicError| error.to_string();
        match act {
            Act::Cut { adapter, cut: true } => {
                let rules = nic.add_faults(self.cut(adapter));
                rules.map(drop).map_err(|(_, error)| said(error))
            }
            Act::Cut { adapter, cut: false } => self
                .cut(adapter)
                .iter()
                .try_for_each(|rule| nic.remove_fault(&rule.name).map(drop))
                .map_err(said),
            Act::Port { adapter, change } => {
                let port = self.ports.entry(adapter.clone()).or_default();
                match *change {
                    PortChange::Down(down) => port.down = down,
                    PortChange::Mtu(mtu) => port.mtu = mtu,
                    PortChange::Speed(speed) => port.speed = speed,
                }
                nic.set_rdma_port(adapter, *port).map_err(said)
            }
            Act::Fail { adapter } => nic.fail_rdma(adapter).map_err(said),
            Act::Away { adapter, away } => nic.set_rdma_away(adapter, *away).map_err(said),
            Act::Renumber { adapter, number } => nic
                .set_rdma_number(adapter, *number)
                .and_then(|()| nic.set_rdma_away(adapter, false))
                .map_err(said),
            Act::MoveGid { adapter, index, to } => {
                let (at, gid) = self.gid(adapter, *index)?;
                nic.set_gid(adapter, Some(at), None).map_err(said)?;
                self.gids.insert((adapter.clone(), *index), (at, gid));
                let there = to.map(|to| nic.set_gid(adapter, Some(to), Some(gid)));
                there.transpose().map(drop).map_err(|error| {
                    // It is where it was.
                    let _ = nic.set_gid(adapter, Some(at), Some(gid));
                    said(error)
                })
            }
            Act::ReturnGid { adapter, index, to } => {
                let moved = self.gids.remove(&(adapter.clone(), *index));
                let (at, gid) = moved.ok_or("it was not moved")?;
                if let Some(to) = to {
                    nic.set_gid(adapter, Some(*to), None).map_err(said)?;
                }
                nic.set_gid(adapter, Some(at), Some(gid)).map(drop).map_err(said)
            }
            Act::AddFault(spec) => nic.add_fault(FaultSpec::clone(spec)).map(drop).map_err(said),
            Act::RemoveFault(spec) => nic.remove_fault(&spec.name).map(drop).map_err(said),
            Act::AddVerbsFault(spec) => nic
                .add_verbs_fault(VerbsFaultSpec::clone(spec))
                .map(drop)
                .map_err(said),
            Act::RemoveVerbsFault(spec) => nic.remove_verbs_fault(&spec.name).map(drop).map_err(said),
            Act::Rate { adapter, mbps } => {
                let mut qos = nic.qos(adapter).map_err(said)?.spec;
                let before = *self.rates.entry(adapter.clone()).or_insert(qos.rate);
                qos.rate = mbps.map_or(before, |mbps| u64::from(mbps) * 1_000_000);
                nic.set_qos(adapter, qos).map_err(said)
            }
            Act::PauseStorm {
                adapter,
                priorities,
                storm,
            } => nic
                .set_pause_storm(adapter, storm.then_some(*priorities))
                .map_err(said),
            Act::Tell {
                adapter,
                event,
                object,
            } => nic.tell_rdma(adapter, *event, *object).map_err(said),
            Act::Kill { adapter } => (self.kill)(&nic, adapter),
        }
    }

    /// Rules that let no frame pass between an adapter and others, under names that no operator can give.
    fn cut(&mut self, adapter: &str) -> Vec<FaultSpec> {
        let known = self.cut.iter().position(|name| name == adapter);
        let n = known.unwrap_or_else(|| {
            self.cut.push(adapter.to_owned());
            self.cut.len() - 1
        });
        let rule = |way: &str| FaultSpec {
            seed: Some(0),
            ..FaultSpec::new(&format!("_cut-{way}-{n}"), Action::Drop)
        };
        let (mut from, mut to) = (rule("from"), rule("to"));
        from.from = Some(adapter.to_owned());
        to.to = Some(adapter.to_owned());
        vec![from, to]
    }

    /// The operator's GID at an index, or the first one.
    fn gid(&self, adapter: &str, index: Option<u16>) -> Result<(u16, GidSetting), String> {
        let status = self.nic.rdma(adapter).map_err(|e| e.to_string())?;
        let rows = status.map(|status| status.gids).unwrap_or_default();
        let row = rows
            .into_iter()
            .find(|row| row.source == GidSource::Operator && index.is_none_or(|index| row.index == index));
        let row = row.ok_or("no GID of an operator is there (vnicctl gid set)")?;
        let (gid, kind, vlan) = (row.gid, row.kind, row.vlan);
        Ok((row.index, GidSetting { gid, kind, vlan }))
    }
}

/// Whether a rule of this name has hit something.
fn has_hit(nic: &Nic, rule: &str) -> bool {
    let frames = nic.fault(rule).is_ok_and(|status| status.injected > 0);
    frames
        || nic
            .verbs_faults()
            .iter()
            .any(|status| status.spec.name == rule && status.injected > 0)
}

/// A time, exact to the nanosecond.
fn milliseconds(time: Duration) -> String {
    let text = format!("{}.{:06}", time.as_millis(), time.subsec_nanos() % 1_000_000);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} ms")
}

/// Kills the processes of the daemon's user that have an adapter's RDMA function. Others are refused.
fn kill(nic: &Nic, adapter: &str) -> Result<(), String> {
    let own = geteuid().as_raw();
    let owners = || nic.rdma_owners(adapter).map_err(|e| e.to_string());
    let mut killed = 0;
    for caller in owners()?.all() {
        let pid = caller.pid.and_then(Pid::from_raw);
        let pid = pid.ok_or("the kernel does not say which process has it")?;
        if caller.uid != Some(own) {
            return Err("another user's process has it".to_owned());
        }
        if pid == getpid() {
            return Err("the daemon itself has it".to_owned());
        }
        let held = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| e.to_string())?;
        // The process may have ended before, and its number may be another's by now.
        if owners()?.all().any(|there| there == caller) {
            pidfd_send_signal(&held, Signal::KILL).map_err(|e| e.to_string())?;
            killed += 1;
        }
    }
    match killed {
        0 => Err("no process has it".to_owned()),
        _ => Ok(()),
    }
}

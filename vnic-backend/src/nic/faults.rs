//! Fault rules: added, listed and removed here, in force on the data cores.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use vnic_fabric::fault::{Match, Rule, RuleId, Tally};
use vnic_wire::ethernet::EtherType;

use super::state::{FaultEntry, State, not_found};
use super::{Inner, Nic, wait};
use crate::check;
use crate::datapath::{FaultReport, Reported, Worker};
use crate::rehearsal::acts;
use crate::types::*;

/// Port of a name that does not exist: no frame comes from it or goes to it.
const NOBODY: PortId = PortId(u16::MAX);

impl Nic {
    /// Adds a fault rule. On return it is in force on all data cores.
    pub fn add_fault(&self, spec: FaultSpec) -> Result<FaultStatus, NicError> {
        let mut made = self.add_faults(vec![spec]).map_err(|(_, error)| error)?;
        made.pop().ok_or(NicError::ShuttingDown)
    }

    /// Adds fault rules in this order: all of them, or none. The error has the index of the first one that is refused.
    pub fn add_faults(&self, specs: Vec<FaultSpec>) -> Result<Vec<FaultStatus>, (usize, NicError)> {
        let mut state = self.inner.state().map_err(|e| (0, e))?;
        for (i, spec) in specs.iter().enumerate() {
            check_new(&state, &specs[..i], spec).map_err(|e| (i, e))?;
        }
        acts().map_err(|e| (0, e))?;
        let mut added = Vec::new();
        let mut answers = Vec::new();
        for mut spec in specs {
            // Short enough for people, and exact as a JSON number.
            let seed = spec
                .seed
                .unwrap_or_else(|| RandomState::new().build_hasher().finish() & 0xffff_ffff);
            spec.seed = Some(seed);
            state.faults.made += 1;
            let id = state.faults.made;
            let entry = FaultEntry {
                tally: Arc::new(Tally::default()),
                created: SystemTime::now(),
                spec,
            };
            let rule = rule(id, &entry.spec, &state);
            let tally = entry.tally.clone();
            let add = |w: &mut Worker| w.core.out.faults_or_new(w.core.now).add(rule, tally);
            answers.extend(self.inner.start_everywhere(add));
            added.push(entry.status(id));
            state.faults.rules.insert(id, entry);
        }
        drop(state);
        wait(answers);
        for f in &added {
            let (name, action) = (f.spec.name.clone(), f.spec.action.name());
            self.inner.hub.publish(
                "",
                NicEventKind::FaultAdded {
                    id: f.id,
                    name,
                    action,
                },
            );
        }
        Ok(added)
    }

    /// Removes a fault rule; the frames that it holds back leave. Returns its last status.
    pub fn remove_fault(&self, name: &str) -> Result<FaultStatus, NicError> {
        let (id, entry, answers) = {
            let mut state = self.inner.state()?;
            let found = state.faults.named(name).map(|(id, _)| id);
            if found.is_some() {
                acts()?;
            }
            let removed = found.and_then(|id| state.faults.rules.remove_entry(&id));
            let (id, entry) = removed.ok_or_else(|| not_found("fault", name))?;
            let answers = self.inner.start_everywhere(move |w| {
                if let Some(faults) = w.core.out.faults() {
                    faults.remove(RuleId(id));
                }
            });
            (id, entry, answers)
        };
        wait(answers);
        let status = entry.status(id);
        let (name, injected) = (status.spec.name.clone(), status.injected);
        self.inner
            .hub
            .publish("", NicEventKind::FaultRemoved { id, name, injected });
        Ok(status)
    }

    /// Status of a fault rule.
    pub fn fault(&self, name: &str) -> Result<FaultStatus, NicError> {
        let state = self.inner.state()?;
        let found = state.faults.named(name).map(|(id, e)| e.status(id));
        found.ok_or_else(|| not_found("fault", name))
    }

    /// Status of all fault rules, in the order of matching.
    pub fn faults(&self) -> Vec<FaultStatus> {
        let state = self.inner.lock();
        state.faults.rules.iter().map(|(id, e)| e.status(*id)).collect()
    }
}

/// Checks a rule behind the rules before it in the list.
fn check_new(state: &State, before: &[FaultSpec], spec: &FaultSpec) -> Result<(), NicError> {
    check::fault(spec, &rule(0, spec, state))?;
    if state.faults.named(&spec.name).is_some() || before.iter().any(|b| b.name == spec.name) {
        return Err(NicError::Exists {
            kind: "fault",
            name: spec.name.clone(),
        });
    }
    for (field, name) in [("from", &spec.from), ("to", &spec.to)] {
        if let Some(name) = name
            && state.id_of(name).is_none()
        {
            let problem = match state.bonds.contains_key(name) {
                true => format!("{name} is a bond; a rule is about one of its members"),
                false => format!("no adapter or port is named {name}"),
            };
            return invalid(field, problem);
        }
    }
    if state.faults.rules.len() + before.len() >= FAULTS_MAX {
        return Err(NicError::Limit(format!(
            "a NIC has at most {FAULTS_MAX} fault rules"
        )));
    }
    Ok(())
}

/// The rule for the data cores, with the current ports of its names.
fn rule(id: u32, spec: &FaultSpec, state: &State) -> Rule {
    let (from, to) = ports(spec, state);
    Rule {
        id: RuleId(id),
        name: spec.name.clone(),
        matches: Match {
            from,
            to,
            roce: spec.roce,
            destination_qp: spec.destination_qp,
            opcodes: spec.opcodes,
            psn: spec.psn,
            ethertype: spec.ethertype.map(EtherType),
        },
        skip: spec.skip,
        probability: spec.probability,
        count: spec.count,
        seed: spec.seed,
        action: spec.action,
    }
}

fn ports(spec: &FaultSpec, state: &State) -> (Option<PortId>, Option<PortId>) {
    let port = |name: &Option<String>| name.as_ref().map(|n| state.id_of(n).unwrap_or(NOBODY));
    (port(&spec.from), port(&spec.to))
}

impl Inner {
    /// Updates the ports of rules after the adapter or port of this name was added or removed.
    pub(super) fn bind_faults(&self, state: &State, name: &str) {
        for (id, e) in &state.faults.rules {
            let spec = &e.spec;
            if spec.from.as_deref() != Some(name) && spec.to.as_deref() != Some(name) {
                continue;
            }
            let (from, to) = ports(spec, state);
            let id = RuleId(*id);
            for w in self.workers.iter() {
                w.post(move |w| {
                    if let Some(faults) = w.core.out.faults() {
                        faults.set_ports(id, from, to);
                    }
                });
            }
        }
    }
}

impl State {
    /// An injection with names for a data core's report, and the adapter or port that it belongs to.
    pub(super) fn injection(&self, report: FaultReport) -> (String, FaultInjection) {
        let FaultReport { rule, name, what } = report;
        let (owner, what) = match what {
            Reported::More(n) => (String::new(), Injected::More(n)),
            Reported::One {
                path,
                effect,
                len,
                roce,
            } => {
                let named = |p| self.names.get(&p).cloned().unwrap_or_default();
                let (from, to) = (named(path.0), named(path.1));
                let one = Injected::One {
                    from,
                    to: to.clone(),
                    effect,
                    len,
                    roce: roce.map(|r| (r.opcode, r.destination_qp, r.psn)),
                };
                (to, one)
            }
        };
        let id = rule.0;
        (owner, FaultInjection { id, name, what })
    }
}

//! Rules for completions and commands of RDMA functions: added, listed and removed here, in force on the data cores.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use vnic_fabric::fault::Tally;

use super::Nic;
use super::state::{State, VerbsFaultEntry, not_found};
use crate::rdma::VerbsRule;
use crate::rehearsal::acts;
use crate::types::fault::{ALWAYS, HOLD_MAX};
use crate::types::*;

impl Nic {
    /// Adds a rule for completions or commands of an adapter's RDMA function. On return it is in force. It stays
    /// when the adapter starts anew, or is removed and one of its name is added.
    pub fn add_verbs_fault(&self, mut spec: VerbsFaultSpec) -> Result<VerbsFaultStatus, NicError> {
        let mut state = self.inner.state()?;
        check(&state, &spec)?;
        let adapter = match state.adapters.get(&spec.adapter) {
            None => return invalid("adapter", format!("no adapter is named {}", spec.adapter)),
            Some(entry) if entry.rdma.is_none() => {
                return invalid("adapter", format!("{} has no RDMA function", spec.adapter));
            }
            Some(entry) => entry.adapter.clone(),
        };
        acts()?;
        // Short enough for people, and exact as a JSON number.
        let random = || RandomState::new().build_hasher().finish() & 0xffff_ffff;
        spec.seed = Some(spec.seed.unwrap_or_else(random));
        state.verbs_faults.made += 1;
        let entry = VerbsFaultEntry {
            rule: Arc::new(VerbsRule {
                id: state.verbs_faults.made,
                spec,
                tally: Tally::default(),
            }),
            created: SystemTime::now(),
        };
        let (rule, id) = (entry.rule.clone(), adapter.id);
        let status = entry.status();
        state.verbs_faults.rules.push(entry);
        self.inner.workers[adapter.core].call(move |w| {
            for function in w.functions.each(id) {
                function.add_verbs_rule(rule.clone());
            }
        });
        Ok(status)
    }

    /// Removes a rule; the completions that it holds back go to the driver. Returns its last status.
    pub fn remove_verbs_fault(&self, name: &str) -> Result<VerbsFaultStatus, NicError> {
        let mut state = self.inner.state()?;
        let found = state
            .verbs_faults
            .rules
            .iter()
            .position(|e| e.rule.spec.name == name);
        let at = found.ok_or_else(|| not_found("verbs fault", name))?;
        acts()?;
        let entry = state.verbs_faults.rules.remove(at);
        if let Some(adapter) = state.adapters.get(&entry.rule.spec.adapter) {
            let (rule, id) = (entry.rule.id, adapter.adapter.id);
            self.inner.workers[adapter.adapter.core].call(move |w| {
                for function in w.functions.each(id) {
                    function.remove_verbs_rule(rule);
                }
            });
        }
        Ok(entry.status())
    }

    /// Status of all rules for completions and commands, in the order of matching.
    pub fn verbs_faults(&self) -> Vec<VerbsFaultStatus> {
        let state = self.inner.lock();
        state
            .verbs_faults
            .rules
            .iter()
            .map(VerbsFaultEntry::status)
            .collect()
    }
}

fn check(state: &State, spec: &VerbsFaultSpec) -> Result<(), NicError> {
    let rules = &state.verbs_faults.rules;
    if rules.iter().any(|e| e.rule.spec.name == spec.name) {
        return Err(NicError::Exists {
            kind: "verbs fault",
            name: spec.name.clone(),
        });
    }
    if rules.len() >= VERBS_FAULTS_MAX {
        return Err(NicError::Limit(format!(
            "a NIC has at most {VERBS_FAULTS_MAX} rules for completions and commands"
        )));
    }
    if spec.probability > ALWAYS {
        return invalid("probability", format!("at most {ALWAYS} millionths"));
    }
    let held = |by: Duration| match by.is_zero() || by > HOLD_MAX {
        true => invalid("action", format!("a time over 0, at most {HOLD_MAX:?}")),
        false => Ok(()),
    };
    match &spec.action {
        VerbsFaultAction::Command { commands, .. } if commands.is_empty() => {
            invalid("action", "no command is named".to_owned())
        }
        VerbsFaultAction::Command { status, .. } if *status == CommandStatus::Ok => {
            invalid("action", "a refusal has a status".to_owned())
        }
        VerbsFaultAction::Completion { fault, .. } => match fault {
            CompletionFault::Late(by) | CompletionFault::Swap(by) => held(*by),
            CompletionFault::Lie(s) | CompletionFault::Fail(s) if *s == CompletionStatus::Success => {
                invalid("action", "a failure has a status".to_owned())
            }
            _ => Ok(()),
        },
        VerbsFaultAction::Command { .. } => Ok(()),
    }
}

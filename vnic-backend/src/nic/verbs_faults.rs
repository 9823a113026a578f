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
        let worker = &self.inner.workers[adapter.core];
        let since = worker.call(|w| w.core.now).ok_or(NicError::ShuttingDown)?;
        let entry = VerbsFaultEntry {
            rule: Arc::new(VerbsRule {
                id: state.verbs_faults.made,
                spec,
                since,
                tally: Tally::default(),
            }),
            created: SystemTime::now(),
        };
        let (rule, port) = (entry.rule.clone(), adapter.id);
        let status = entry.status();
        state.verbs_faults.rules.push(entry);
        let (id, name) = (rule.id, rule.spec.name.clone());
        let (owner, action) = (rule.spec.adapter.clone(), rule.spec.action.name());
        // The event of its first hit comes behind this one.
        self.inner
            .hub
            .publish(&owner, NicEventKind::VerbsFaultAdded { id, name, action });
        worker.call(move |w| {
            for function in w.functions.each(port) {
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
                let now = w.core.now;
                for function in w.functions.each(id) {
                    function.remove_verbs_rule(rule, now);
                }
            });
        }
        let status = entry.status();
        let (id, name, injected) = (status.id, name.to_owned(), status.injected);
        let told = NicEventKind::VerbsFaultRemoved { id, name, injected };
        self.inner.hub.publish(&status.spec.adapter, told);
        Ok(status)
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
    if spec.min_bytes > spec.max_bytes.or(spec.min_bytes) {
        return invalid("max_bytes", "less than the least number of bytes".to_owned());
    }
    if spec.lasts.is_some_and(|lasts| lasts.is_zero()) {
        return invalid("lasts", "a time over 0".to_owned());
    }
    if spec.after.max(spec.lasts.unwrap_or_default()) > RULE_TIME_MAX {
        return invalid("after", format!("at most {RULE_TIME_MAX:?}"));
    }
    match &spec.action {
        VerbsFaultAction::Command {
            commands,
            status,
            delay,
        } => match (status, delay) {
            _ if commands.is_empty() => invalid("action", "no command is named".to_owned()),
            (Some(CommandStatus::Ok), _) => invalid("action", "a refusal has a status".to_owned()),
            (None, None) => invalid("action", "a status, a delay, or both".to_owned()),
            _ if spec.is_sized() && !commands.iter().all(|one| SIZED_COMMANDS.contains(one)) => invalid(
                "min_bytes",
                "of commands only registrations have a size".to_owned(),
            ),
            (_, Some(by)) => held(*by),
            _ => Ok(()),
        },
        VerbsFaultAction::NotReady { .. } if spec.is_sized() => invalid(
            "min_bytes",
            "a message's length is not known when it needs a receive".to_owned(),
        ),
        VerbsFaultAction::Completion { fault, .. } => match fault {
            CompletionFault::Late(by) | CompletionFault::Swap(by) => held(*by),
            CompletionFault::Lie(s) | CompletionFault::Fail(s) if *s == CompletionStatus::Success => {
                invalid("action", "a failure has a status".to_owned())
            }
            _ => Ok(()),
        },
        VerbsFaultAction::Post { post, operations, .. } if *post != Post::Send && !operations.is_empty() => {
            invalid("action", "only sends have operations".to_owned())
        }
        VerbsFaultAction::Post {
            post: Post::SharedReceive,
            qp: Some(_),
            ..
        } => invalid("action", "a shared receive has no queue pair".to_owned()),
        VerbsFaultAction::NotReady { .. } | VerbsFaultAction::Post { .. } => Ok(()),
    }
}

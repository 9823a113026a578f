//! Scenarios of `vnic.v1.FaultService`.

use std::collections::{BTreeMap, HashMap};

use tonic::Status;
use vnic_control::v1;

use super::errors::invalid;
use crate::control::PlayNow;
use crate::names;
use crate::stored::values;

/// Length of a scenario file, at most.
const CONTENT_MAX: usize = 1 << 20;

/// Checks the length of a file.
pub fn checked(content: &str) -> Result<(), Status> {
    match content.len() {
        ..=CONTENT_MAX => Ok(()),
        len => Err(invalid("content", format!("{len} bytes; at most 1 MiB"))),
    }
}

/// Adapters by part, without the names of their collection.
pub fn adapters(wanted: HashMap<String, String>) -> BTreeMap<String, String> {
    let plain = |name: String| names::last(&name).to_owned();
    wanted
        .into_iter()
        .map(|(part, name)| (part, plain(name)))
        .collect()
}

/// A scenario as a message.
pub fn message(now: PlayNow) -> v1::Scenario {
    let state = match (&now.state.problem, now.state.over, now.state.stopped) {
        (_, false, _) => v1::scenario::State::Playing,
        (Some(_), ..) => v1::scenario::State::Failed,
        (None, _, true) => v1::scenario::State::Stopped,
        (None, _, false) => v1::scenario::State::Ended,
    };
    v1::Scenario {
        name: names::of(names::SCENARIOS, &now.name),
        description: now.description,
        state: state.into(),
        problem: now.state.problem.unwrap_or_default(),
        log: now.state.log,
        length: Some(values::duration(now.length)),
        begin_time: Some(now.began.into()),
    }
}

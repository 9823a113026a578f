//! Messages of fault rules: for the service, and for the command line, which makes them from options and files.

use std::time::Duration;

use vnic_backend::fault::{ALWAYS, Action};
use vnic_backend::{FaultSpec, FaultStatus};
use vnic_control::v1;
use vnic_control::v1::fault::Action as Wire;

use crate::names;

/// Message of a rule; `owner` gives the resource name of an adapter or port.
pub fn message(spec: &FaultSpec, owner: impl Fn(&str) -> String) -> v1::Fault {
    let owned = |name: &Option<String>| name.as_deref().map(&owner).unwrap_or_default();
    let matches = v1::FaultMatch {
        from: owned(&spec.from),
        to: owned(&spec.to),
        roce: spec.roce,
        destination_qp: spec.destination_qp,
        opcodes: spec
            .opcodes
            .iter()
            .flat_map(|o| o.iter().map(u32::from).collect::<Vec<_>>())
            .collect(),
        psn: spec.psn.map(|r| v1::PsnRange {
            first: r.first,
            last: r.last,
        }),
        ethertype: spec.ethertype.map(u32::from),
    };
    v1::Fault {
        name: names::of(names::FAULTS, &spec.name),
        r#match: Some(matches),
        skip: spec.skip,
        probability: Some(f64::from(spec.probability) / f64::from(ALWAYS)),
        count: spec.count,
        seed: spec.seed,
        action: Some(action(&spec.action)),
        ..v1::Fault::default()
    }
}

/// Message of a rule with its counters, without the lifetime.
pub fn status_message(status: &FaultStatus, owner: impl Fn(&str) -> String) -> v1::Fault {
    v1::Fault {
        id: status.id,
        matched: status.matched,
        injected: status.injected,
        spent: status.spent(),
        create_time: Some(status.created.into()),
        ..message(&status.spec, owner)
    }
}

fn action(action: &Action) -> Wire {
    // Neither span is longer than a minute.
    let span = |d: Duration| Some(prost_types::Duration::try_from(d).unwrap_or_default());
    match *action {
        Action::Drop => Wire::Drop(v1::DropFault {}),
        Action::Delay { by, jitter } => Wire::Delay(v1::DelayFault {
            delay: span(by),
            jitter: span(jitter),
        }),
        Action::Reorder { by, at_most } => Wire::Reorder(v1::ReorderFault {
            frames: by,
            at_most: span(at_most),
        }),
        Action::Duplicate { copies } => Wire::Duplicate(v1::DuplicateFault { copies }),
        Action::Corrupt { bits, offset } => Wire::Corrupt(v1::CorruptFault {
            bits,
            offset: offset.map(u32::from),
        }),
        Action::MarkCe => Wire::MarkCe(v1::MarkCeFault {}),
    }
}

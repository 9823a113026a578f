//! Checks of a configuration that depend on an adapter's keys, or are only for a port. [`PortQos::check`] checks the limits.
//! Each refusal names the field, as the control interface calls it, and what is allowed.

use vnic_engine::settings::QosKeys;
use vnic_fabric::qos::QosError;

use crate::types::*;

/// Checks the configuration of an uplink, which has neither a guest nor a registry: fields about a guest are refused, and so
/// are watermarks for which a registry would use others.
pub fn port(spec: &QosSpec) -> Result<(), NicError> {
    for (field, absent) in [
        ("policies", spec.policies.is_empty()),
        ("forced_traffic_class", spec.forced_traffic_class.is_none()),
        ("skprio_to_priority", spec.tags.by_socket.is_none()),
        ("schedule_queue", spec.queue.is_none()),
        ("send_queue_per_priority", !spec.keys.sending.queue_per_priority),
        ("congestion_monitoring", !spec.keys.hint.enable),
    ] {
        if !absent {
            let problem = "only adapters have it: it is about what a guest sends or receives";
            return invalid(field, problem);
        }
    }
    let tables = spec.classes_by_port.len();
    if tables > BY_PORT_MAX {
        let problem = format!("{tables} tables: 0 to {BY_PORT_MAX} are allowed");
        return invalid(BY_PORT, problem);
    }
    for (name, of_level) in &spec.classes_by_port {
        let alone = PortQos {
            classes: with(spec, *of_level),
            ..PortQos::default()
        };
        alone.check().map_err(|error| of_one(name, error))?;
    }
    watermarks(spec.keys.guard)
}

/// Most tables for what came by one adapter or port: each waiting frame looks for its own.
const BY_PORT_MAX: usize = 64;
const BY_PORT: &str = "priority_to_tc_by_port";

/// Classes of a port with another table.
fn with(spec: &QosSpec, of_level: [u8; 16]) -> Classes {
    Classes {
        of_priority: std::array::from_fn(|i| of_level[i]),
        of_upper: Some(std::array::from_fn(|i| of_level[i + 8])),
        ..spec.classes.clone()
    }
}

/// The refusal of the table for what came by one adapter or port.
fn of_one(name: &str, QosError { problem, .. }: QosError) -> NicError {
    NicError::Invalid {
        field: BY_PORT,
        problem: format!("{name}: {problem}"),
    }
}

/// Checks that an adapter has nothing that only ports have.
pub fn adapter(spec: &QosSpec) -> Result<(), NicError> {
    if !spec.classes_by_port.is_empty() {
        return invalid(
            BY_PORT,
            "only ports have it: it is about what is sent to the wire",
        );
    }
    if !spec.tpid.is_plain() {
        return invalid("tpid", "only ports have it: tags of guests have 0x8100");
    }
    let Some(tables) = &spec.classes.arbitration else {
        return Ok(());
    };
    let turns = tables.high.iter().chain(&tables.low).map(|(lane, _)| *lane);
    match turns.chain(spec.classes.of_level()).any(|lane| lane > 7) {
        true => invalid("vl_arbitration", "only ports have virtual lanes 8 to 14"),
        false => Ok(()),
    }
}

/// Checks the watermarks of storm prevention, as an operator gives them.
pub fn watermarks(guard: Guard) -> Result<(), NicError> {
    let given = PortQos {
        guard,
        ..PortQos::default()
    };
    Ok(given.check()?)
}

/// Checks what is new against the limits of the device. What was there before stays, and acts within them.
pub fn limits(spec: &QosSpec, before: &QosSpec, limits: QosLimits) -> Result<(), NicError> {
    limits.check_classes(&spec.classes, &before.classes)?;
    let new = spec.classes_by_port.iter();
    for (name, table) in new.filter(|(name, table)| before.classes_by_port.get(*name) != Some(*table)) {
        let checked = limits.check_classes(&with(spec, *table), &spec.classes);
        checked.map_err(|error| of_one(name, error))?;
    }
    limits.check_marking(&spec.ecn, &before.ecn)?;
    Ok(limits.check_pfc(spec.pfc, before.pfc)?)
}

const QUEUE: &str = "schedule_queue";

/// Checks a new schedule queue: hardware QoS is on, and all supported classes have a limit or none has (WinOF-2 Ethernet
/// Network, Hardware QoS Offload). An existing queue stays when the keys change: it acts for the supported classes.
pub fn new_queue(queue: &ScheduleQueue, keys: &QosKeys) -> Result<(), NicError> {
    if !keys.sending.offload {
        let problem =
            "hardware QoS is off for this adapter: set *QoSOffload to 1 and restart the adapter first";
        return invalid(QUEUE, problem);
    }
    let supported = keys.sending.offload_classes;
    let (inside, outside): (Vec<usize>, Vec<usize>) =
        (0..queue.limit.len()).partition(|tc| supported & (1 << tc) != 0);
    let has = |rates: &[u64], tc: &usize| rates.get(*tc).is_some_and(|rate| *rate != 0);
    if let Some(tc) = outside
        .iter()
        .find(|tc| has(&queue.limit, tc) || has(&queue.guarantee, tc))
    {
        let problem = format!(
            "traffic class {tc} is not one of *QosOffloadSupportedTCs ({supported:#04x}): 0 is allowed, or set its bit there"
        );
        return invalid(QUEUE, problem);
    }
    let (with, without): (Vec<usize>, Vec<usize>) = inside.into_iter().partition(|tc| has(&queue.limit, tc));
    if !with.is_empty() && !without.is_empty() {
        let problem = format!(
            "traffic classes {with:?} have a maximum and {without:?} have none: all that *QosOffloadSupportedTCs names \
             ({supported:#04x}) must have one, or none"
        );
        return invalid(QUEUE, problem);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_engine::settings::SendRules;

    #[test]
    fn ports_have_no_guest() {
        type Change = fn(&mut QosSpec);
        let refused: [(&str, Change); 10] = [
            ("schedule_queue", |s| s.queue = Some(ScheduleQueue::default())),
            ("policies", |s| {
                s.policies.push(Policy {
                    name: "a".to_owned(),
                    matches: Match::Tcp,
                    priority: Some(3),
                    dscp: None,
                });
            }),
            ("forced_traffic_class", |s| s.forced_traffic_class = Some(106)),
            ("skprio_to_priority", |s| s.tags.by_socket = Some([0; 16])),
            ("send_queue_per_priority", |s| {
                s.keys.sending.queue_per_priority = true
            }),
            ("congestion_monitoring", |s| s.keys.hint.enable = true),
            (BY_PORT, |s| {
                s.classes_by_port.insert("a".to_owned(), [8; 16]);
            }),
            (BY_PORT, |s| {
                let all = (0..=BY_PORT_MAX).map(|i| (i.to_string(), [0; 16]));
                s.classes_by_port = all.collect();
            }),
            (BY_PORT, |s| {
                s.classes_by_port.insert("a".to_owned(), [3; 16]);
                s.classes.arbitration = Some(VlArbitration {
                    low: vec![(0, 1), (1, 1)],
                    ..VlArbitration::default()
                });
                s.classes.of_priority = [0, 1, 0, 1, 0, 1, 0, 1];
            }),
            ("storm_critical_ms", |s| s.keys.guard.critical_ms = 79),
        ];
        for (wanted, change) in refused {
            let mut spec = QosSpec::default();
            assert!(port(&spec).is_ok());
            change(&mut spec);
            match port(&spec) {
                Err(NicError::Invalid { field, .. }) => assert_eq!(field, wanted),
                other => panic!("{wanted}: {other:?}"),
            }
        }
    }

    #[test]
    fn all_supported_classes_have_a_limit_or_none_has() {
        let mut queue = ScheduleQueue::default();
        assert!(new_queue(&queue, &QosKeys::default()).is_ok());
        queue.limit[0] = 5_000_000;
        let refused = new_queue(&queue, &QosKeys::default()).expect_err("refused");
        assert!(refused.to_string().contains("or none"), "{refused}");
    }

    #[test]
    fn classes_that_are_not_supported_have_no_limits() {
        let mut queue = ScheduleQueue {
            limit: [1_000_000, 1_000_000, 0, 0, 0, 0, 0, 0],
            ..ScheduleQueue::default()
        };
        let mut keys = QosKeys {
            sending: SendRules {
                offload_classes: 3,
                ..SendRules::default()
            },
            ..QosKeys::default()
        };
        assert!(new_queue(&queue, &keys).is_ok());
        queue.limit[2] = 1_000_000;
        let refused = new_queue(&queue, &keys).expect_err("refused").to_string();
        assert!(refused.contains("*QosOffloadSupportedTCs (0x03)"), "{refused}");
        keys.sending.offload = false;
        let refused = new_queue(&queue, &keys).expect_err("refused").to_string();
        assert!(refused.contains("set *QoSOffload to 1"), "{refused}");
    }
}

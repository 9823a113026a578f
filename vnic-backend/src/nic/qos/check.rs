//! Checks of a configuration that depend on an adapter's keys, or are only for a port. [`PortQos::check`] checks the limits.
//! Each refusal names the field, as the control interface calls it, and what is allowed.

use vnic_engine::settings::QosKeys;

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
    watermarks(spec.keys.guard)
}

/// Checks that an adapter has nothing that only ports have.
pub fn adapter(spec: &QosSpec) -> Result<(), NicError> {
    match spec.tpid.is_plain() {
        true => Ok(()),
        false => invalid("tpid", "only ports have it: tags of guests have 0x8100"),
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
        let refused: [(&str, Change); 7] = [
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

//! What acts of the quality of service that an operator, keys, and a peer of data center bridging exchange give.

mod marking;

use std::sync::Arc;

use vnic_engine::settings::{FlowControl, QosKeys, SendRules};

use super::state::{Imposed, PortEntry};
use crate::datapath::QosChange;
use crate::types::*;
use marking::marking;

/// Quality of service of a port for the cores: what acts; what the operator alone wants, if the port cannot have that.
pub fn of_port(entry: &PortEntry) -> Result<Arc<QosChange>, NicError> {
    let acts = entry.operational();
    change(&acts, &acts.keys).or_else(|_| change(&entry.limited(&entry.qos), &entry.qos.keys))
}

/// Quality of service of an adapter for the cores: what of it is within the limits. An imposed priority of RDMA acts where neither the
/// operator (by a policy, a traffic class, `DefaultUntaggedPriority`) nor the queue pair names one.
pub fn of_adapter(spec: &QosSpec, keys: &QosKeys, imposed: Imposed) -> Result<Arc<QosChange>, NicError> {
    let mut new = change(&spec.within(imposed.limits), keys)?;
    if let (Some(priority), Some(new)) = (imposed.rdma_priority, Arc::get_mut(&mut new))
        && keys.priorities.default_priority == 0
        && !spec.disabled
    {
        new.marking.priorities.default_priority = priority;
    }
    Ok(new)
}

/// Quality of service for the cores.
pub fn change(spec: &QosSpec, keys: &QosKeys) -> Result<Arc<QosChange>, NicError> {
    let whole = merge(spec, keys);
    whole.check()?;
    let qos = acts(whole, spec.disabled);
    let (plain, keys) = match spec.disabled {
        true => (None, &QosKeys::default()),
        false => (spec.forced_traffic_class, keys),
    };
    let marking = marking(&qos.classification, keys, plain);
    Ok(Arc::new(QosChange { qos, marking }))
}

/// The operator's configuration and the keys together.
pub fn merge(spec: &QosSpec, keys: &QosKeys) -> PortQos {
    PortQos {
        ecn: spec.ecn,
        rate: spec.rate,
        tpid: spec.tpid,
        classification: Classification {
            priorities: keys.priorities,
            dscp_to_priority: keys.acting_dscp_map(),
            dscp_to_colour: spec.dscp_to_colour.0,
            tags: spec.tags,
            policies: spec.policies.clone(),
        },
        classes: spec.classes.clone(),
        pause: PauseSettings {
            global_tx: keys.flow_control.is_sent(),
            global_rx: keys.flow_control.is_obeyed(),
            global_waits: keys.flow_control == FlowControl::Negotiated,
            pfc: spec.pfc,
        },
        buffer: spec.buffer,
        guard: keys.acting_watermarks(),
        lifetimes: keys.lifetimes,
        hint: keys.hint,
        queue: spec.queue.clone(),
        sending: keys.sending,
    }
}

/// The part that acts: a schedule queue only while hardware QoS is on, and only for the classes that it supports; thresholds in
/// bytes. While quality of service is disabled, of the rest the link's speed, its buffer and global pause.
pub fn acts(whole: PortQos, disabled: bool) -> PortQos {
    let SendRules {
        offload,
        offload_classes,
        ..
    } = whole.sending;
    let supported = |rates: [u64; 8]| {
        std::array::from_fn(|tc| {
            if offload_classes & (1 << tc) != 0 {
                rates[tc]
            } else {
                0
            }
        })
    };
    let queue = whole.queue.filter(|_| offload).map(|queue| ScheduleQueue {
        limit: supported(queue.limit),
        guarantee: supported(queue.guarantee),
    });
    let ecn = whole.ecn.map(|red| red.in_bytes(whole.buffer.size));
    let on = PortQos { queue, ecn, ..whole };
    if !disabled {
        return on;
    }
    PortQos {
        rate: on.rate,
        tpid: on.tpid,
        pause: PauseSettings { pfc: 0, ..on.pause },
        buffer: Buffer {
            parts: None,
            ..on.buffer
        },
        guard: on.guard,
        hint: on.hint,
        queue: on.queue,
        sending: on.sending,
        ..PortQos::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dcbx_names_the_priority_of_rdma_where_nobody_else_does() {
        let of = |spec: &QosSpec, keys: &QosKeys, named| {
            let imposed = Imposed {
                rdma_priority: named,
                ..Imposed::default()
            };
            let new = of_adapter(spec, keys, imposed).expect("it fits");
            let frames = new.qos.classification.priorities.default_priority;
            (new.marking.priorities.default_priority, frames)
        };
        let (plain, mut keys) = (QosSpec::default(), QosKeys::default());
        assert_eq!(of(&plain, &keys, None), (0, 0));
        assert_eq!(
            of(&plain, &keys, Some(4)),
            (4, 0),
            "frames of the guest are its own"
        );
        let disabled = QosSpec {
            disabled: true,
            ..QosSpec::default()
        };
        assert_eq!(of(&disabled, &keys, Some(4)), (0, 0));
        keys.priorities.default_priority = 2;
        assert_eq!(of(&plain, &keys, Some(4)), (2, 2));
    }
}

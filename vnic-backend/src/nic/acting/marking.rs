//! Marking of an adapter's RDMA packets.

use vnic_engine::rdma::{MarkPolicy, Marking};
use vnic_engine::settings::QosKeys;
use vnic_fabric::qos::{Classification, Match, Policy};

/// Marking by keys and policies: those for RDMA and for ports of RDMA in their order, and then that for everything.
pub fn marking(acting: &Classification, keys: &QosKeys, forced_traffic_class: Option<u8>) -> Marking {
    let port_of = |matches| match matches {
        Match::NetDirect => Some(None),
        Match::NetDirectPort(port) => Some(Some(port)),
        _ => None,
    };
    let policy = |p: &Policy, port| MarkPolicy {
        port,
        priority: p.priority,
        dscp: p.dscp,
    };
    let all = || acting.policies.iter();
    let rdma = all().filter_map(|p| Some(policy(p, port_of(p.matches)?)));
    let rest = all().filter(|p| p.matches == Match::Default);
    Marking {
        priorities: acting.priorities,
        dscp_to_priority: acting.dscp_to_priority,
        tags: acting.tags,
        priority_to_dscp: keys.acting_priority_to_dscp(),
        named_dscp: keys.named_dscp(),
        marks: keys.marks,
        forced_traffic_class,
        policies: rdma.chain(rest.map(|p| policy(p, None))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_fabric::qos::Trust;

    #[test]
    fn a_policy_for_rdma_goes_before_that_for_everything() {
        let policy = |matches, priority, dscp| Policy {
            name: String::new(),
            matches,
            priority,
            dscp,
        };
        let mut acting = Classification {
            priorities: Trust::Dscp.into(),
            ..Classification::default()
        };
        let of = |acting: &Classification| {
            let m = marking(acting, &QosKeys::default(), Some(106));
            assert_eq!(
                (m.priorities.trust, m.marks.default_dscp, m.forced_traffic_class),
                (Trust::Dscp, 26, Some(106))
            );
            let policies = m.policies.iter().map(|p| (p.port, p.priority, p.dscp));
            policies.collect::<Vec<_>>()
        };
        assert_eq!(of(&acting), []);
        acting.policies = vec![
            policy(Match::Default, Some(1), None),
            policy(Match::Udp, Some(2), Some(2)),
        ];
        assert_eq!(of(&acting), [(None, Some(1), None)]);
        acting
            .policies
            .push(policy(Match::NetDirectPort(445), Some(3), None));
        acting.policies.push(policy(Match::NetDirect, Some(4), Some(46)));
        assert_eq!(
            of(&acting),
            [
                (Some(445), Some(3), None),
                (None, Some(4), Some(46)),
                (None, Some(1), None)
            ]
        );
    }
}

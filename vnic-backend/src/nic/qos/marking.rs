//! Marking of an adapter's RDMA packets.

use vnic_engine::rdma::Marking;
use vnic_engine::settings::QosKeys;
use vnic_fabric::qos::{Classification, Match};

/// Marking by keys and policies; policies are about the function's traffic as a whole.
pub fn marking(acting: &Classification, keys: &QosKeys, forced_traffic_class: Option<u8>) -> Marking {
    let about = |matches| acting.policies.iter().find(|p| p.matches == matches);
    let policy = about(Match::NetDirect).or_else(|| about(Match::Default));
    Marking {
        priorities: acting.priorities,
        dscp_to_priority: acting.dscp_to_priority,
        priority_to_dscp: keys.acting_priority_to_dscp(),
        marks: keys.marks,
        forced_traffic_class,
        policy_priority: policy.and_then(|p| p.priority),
        policy_dscp: policy.and_then(|p| p.dscp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_fabric::qos::{Policy, Trust};

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
            (m.policy_priority, m.policy_dscp)
        };
        assert_eq!(of(&acting), (None, None));
        acting.policies = vec![
            policy(Match::Default, Some(1), None),
            policy(Match::Udp, Some(2), Some(2)),
        ];
        assert_eq!(of(&acting), (Some(1), None));
        acting.policies.push(policy(Match::NetDirect, Some(4), Some(46)));
        assert_eq!(of(&acting), (Some(4), Some(46)));
    }
}

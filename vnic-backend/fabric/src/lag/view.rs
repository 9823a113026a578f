//! What a bond shows: which queue pair and flow is on which member, and how even that is.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::flows::Seen;
use super::{Affinity, Bond, Member};
use crate::Instant;

/// How even a load is spread over members.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evenness {
    /// Share of the member that has most, 0 to 1.
    pub largest: f64,
    /// Jain's index: (Σx)² / (n Σx²), 1 when all have the same, 1/n when one has all (R. Jain, D. Chiu, W. Hawe, "A
    /// quantitative measure of fairness and discrimination for resource allocation in shared computer systems", DEC-TR-301,
    /// 1984).
    pub jain: f64,
}

impl Evenness {
    /// Evenness of the members' loads; `None` if all are 0.
    pub fn of(loads: impl Iterator<Item = u64>) -> Option<Evenness> {
        let (mut n, mut sum, mut squares, mut most) = (0.0, 0.0, 0.0, 0u64);
        for load in loads {
            let x = load as f64;
            (n, sum, squares, most) = (n + 1.0, sum + x, squares + x * x, most.max(load));
        }
        (sum > 0.0).then(|| Evenness {
            largest: most as f64 / sum,
            jain: sum * sum / (n * squares),
        })
    }
}

impl fmt::Display for Evenness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.largest * 100.0;
        write!(f, "largest share {percent:.1} %, Jain's index {:.3}", self.jain)
    }
}

/// A member, as the view shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// The member.
    pub member: Member,
    /// Whether its link is up.
    pub link: bool,
    /// Whether link aggregation control lets it receive; without LACP of no meaning.
    pub collecting: bool,
    /// Whether link aggregation control lets it send; without LACP of no meaning.
    pub distributing: bool,
    /// Whether it may send.
    pub usable: bool,
    /// Time that it still has to wait after it came back.
    pub ready_in: Option<Duration>,
    /// Buckets that are on it.
    pub buckets: usize,
    /// Buckets that are to move away from it.
    pub leaving: usize,
    /// Flows that were on it lately, those of queue pairs included.
    pub flows: usize,
    /// Flows of queue pairs among them.
    pub qps: usize,
    /// Frames that it sent since the bond was made.
    pub packets: u64,
    /// Bytes of these frames.
    pub bytes: u64,
}

/// An affinity, as the view shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffinityView {
    /// Frames that the affinity is about.
    pub what: Affinity,
    /// The member that the affinity names.
    pub member: Member,
    /// The member that frames go by; `None`: they wait, or no member is up.
    pub current: Option<Member>,
    /// Whether the affinity was removed, and goes when none of its frames is under way.
    pub leaves: bool,
}

/// State of a bond, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Members, in their order.
    pub members: Vec<MemberView>,
    /// The active member, of active-backup.
    pub active: Option<Member>,
    /// Flows of the last [`FLOW_IDLE`](super::flows::FLOW_IDLE), those of a member together, the largest first.
    pub flows: Vec<Seen>,
    /// Frames of flows that found no place in that list.
    pub unseen: u64,
    /// Affinities.
    pub affinities: Vec<AffinityView>,
    /// How even the listed flows are spread over usable members.
    pub by_flows: Option<Evenness>,
    /// How even the flows of queue pairs are spread.
    pub by_qps: Option<Evenness>,
    /// How even the bytes of the listed flows are spread.
    pub by_bytes: Option<Evenness>,
}

impl Bond {
    /// The bond as it is now.
    pub fn view(&self, now: Instant) -> View {
        let mut flows: Vec<Seen> = self.seen(now).copied().collect();
        // The same flows make the same list, whatever place they have in the table.
        flows.sort_by_cached_key(|s| {
            let flow = &s.flow;
            let packets = (flow.packet, flow.inner);
            let link = (flow.source, flow.destination, flow.ethertype.0);
            (
                s.member,
                u64::MAX - s.bytes,
                packets,
                flow.qp,
                flow.local_qp,
                link,
            )
        });
        let members = (0..).zip(&self.members).map(|(i, m)| {
            let member = Member(i);
            let here = || self.buckets().iter().filter(move |s| s.member() == Some(member));
            let flows = || flows.iter().filter(move |s| s.member == member);
            MemberView {
                member,
                link: m.link,
                collecting: m.collecting,
                distributing: m.distributing,
                usable: self.alive & 1 << i != 0,
                ready_in: self.ready_in(now, member),
                buckets: here().count(),
                leaving: here().filter(|s| !s.is_settled()).count(),
                flows: flows().count(),
                qps: flows().filter(|s| is_qp(s)).count(),
                packets: m.packets,
                bytes: m.bytes,
            }
        });
        let members: Vec<MemberView> = members.collect();
        let usable = || members.iter().filter(|m| m.usable);
        let bytes = |m: &MemberView| -> u64 {
            let of = flows.iter().filter(|s| s.member == m.member);
            of.map(|s| s.bytes).sum()
        };
        let affinities = self.affinities.iter().filter_map(|(what, member, slot)| {
            let slot = self.slots.get(slot)?;
            Some(AffinityView {
                what,
                member,
                current: slot.member(),
                leaves: slot.leaves(),
            })
        });
        View {
            by_flows: Evenness::of(usable().map(|m| m.flows as u64)),
            by_qps: Evenness::of(usable().map(|m| m.qps as u64)),
            by_bytes: Evenness::of(usable().map(bytes)),
            affinities: affinities.collect(),
            active: self.active(),
            unseen: self.unseen(),
            members,
            flows,
        }
    }
}

fn is_qp(seen: &Seen) -> bool {
    seen.flow.qp.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenness() {
        let of = |loads: &[u64]| Evenness::of(loads.iter().copied()).map(|e| std::format!("{e}"));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[0, 0]), None);
        for (loads, text) in [
            (&[5, 5][..], "largest share 50.0 %, Jain's index 1.000"),
            (&[7, 0], "largest share 100.0 %, Jain's index 0.500"),
            (&[6, 4], "largest share 60.0 %, Jain's index 0.962"),
            (&[1, 1, 1, 1], "largest share 25.0 %, Jain's index 1.000"),
            (&[9, 0, 0, 0], "largest share 100.0 %, Jain's index 0.250"),
            (&[3], "largest share 100.0 %, Jain's index 1.000"),
        ] {
            assert_eq!(of(loads).as_deref(), Some(text), "{loads:?}");
        }
    }
}

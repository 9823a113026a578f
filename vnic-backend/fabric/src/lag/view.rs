//! What a bond shows: which queue pair and flow sits on which member, and how even that is.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::flows::Seen;
use super::{Affinity, Bond, Member};
use crate::Instant;

/// How even a load is spread over members.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evenness {
    /// Part of the member that has most, 0 to 1.
    pub largest: f64,
    /// Jain's index: (Σx)² / (n Σx²), 1 when all have the same, 1/n when one has all (R. Jain, D. Chiu, W. Hawe, "A
    /// quantitative measure of fairness and discrimination for resource allocation in shared computer systems", DEC-TR-301,
    /// 1984).
    pub jain: f64,
}

impl Evenness {
    /// Of what each member has; none if nobody has anything.
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

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Which.
    pub member: Member,
    /// Its link is up.
    pub link: bool,
    /// Link aggregation control lets it receive; of no meaning without.
    pub collecting: bool,
    /// And send.
    pub distributing: bool,
    /// It may send.
    pub usable: bool,
    /// It came back, and still has to wait for so long.
    pub ready_in: Option<Duration>,
    /// Buckets that are on it.
    pub buckets: usize,
    /// Of these, buckets that are to move away.
    pub leaving: usize,
    /// Flows that were on it lately; those of queue pairs are among them.
    pub flows: usize,
    /// Those of queue pairs.
    pub qps: usize,
    /// Frames that were sent by it since the bond was made.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// An affinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffinityView {
    /// What it is about.
    pub what: Affinity,
    /// The member it names.
    pub member: Member,
    /// The member that frames go by; none: they wait, or nobody is up.
    pub current: Option<Member>,
    /// It was removed, and goes when nothing of it is under way.
    pub leaves: bool,
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Members, in their order.
    pub members: Vec<MemberView>,
    /// The active one, of active-backup.
    pub active: Option<Member>,
    /// Flows of the last [`FLOW_IDLE`](super::flows::FLOW_IDLE), those of a member together, the largest first.
    pub flows: Vec<Seen>,
    /// Frames of flows that found no place in that list.
    pub unseen: u64,
    /// Affinities.
    pub affinities: Vec<AffinityView>,
    /// How even the listed flows are spread over usable members.
    pub by_flows: Option<Evenness>,
    /// How even those of queue pairs are.
    pub by_qps: Option<Evenness>,
    /// How even the bytes of listed flows are.
    pub by_bytes: Option<Evenness>,
}

impl Bond {
    /// How it is now.
    pub fn view(&self, now: Instant) -> View {
        let mut flows: Vec<Seen> = self.seen(now).copied().collect();
        // The same flows make the same list, whatever place they have.
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

//! Whatever is sent, received, set and asked: properties that hold.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use vnic_engine::gids::{ADDRESSES_MAX, GidLearner, GidSource};
use vnic_engine::rdma::{GidEntry, GidKind, GidTable};
use vnic_wire::EtherType;
use vnic_wire::gid::Gid;
use vnic_wire::time::Instant;

use super::frames::*;

#[derive(Debug, Clone)]
enum Step {
    Sent(Vec<u8>),
    Received(Vec<u8>),
    /// Milliseconds; the guest answers for addresses that end in an even byte.
    Pass(u32),
    Set(Option<u16>, Option<(Gid, GidKind, Option<u16>)>, bool),
    GuestDown,
    DriverDown,
    Retell,
}

fn v4() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![
        8 => (1u8..9).prop_map(|d| [10, 0, 0, d]),
        1 => any::<[u8; 4]>(),
    ]
}

fn v6() -> impl Strategy<Value = [u8; 16]> {
    let last = |prefix: [u8; 16]| {
        (0u8..6).prop_map(move |d| {
            let mut a = prefix;
            a[15] = d;
            a
        })
    };
    prop_oneof![
        6 => last(SIX),
        2 => last(LINK),
        1 => Just([0; 16]),
        1 => Just(Gid::from_mac(MAC).0),
        1 => any::<[u8; 16]>(),
    ]
}

fn telling() -> impl Strategy<Value = Vec<u8>> {
    let plain = prop_oneof![
        (1u16..4, v4(), v4()).prop_map(|(op, s, t)| arp(op, s, t)),
        v4().prop_map(arp_announcement),
        (v6(), v6()).prop_map(|(s, t)| solicitation(s, t)),
        (v6(), v6()).prop_map(|(s, t)| advertisement(s, t)),
        v6().prop_map(router_solicitation),
        v4().prop_map(ipv4),
        v6().prop_map(ipv6),
    ];
    (plain, proptest::option::weighted(0.2, 0u16..4096)).prop_map(|(f, vlan)| match vlan {
        Some(id) => tagged(EtherType::VLAN, id % 4 * 1365, &f),
        None => f,
    })
}

/// A good frame with bytes changed, cut somewhere.
fn mangled() -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (telling(), changes, any::<prop::sample::Index>()).prop_map(|(mut f, changes, cut)| {
        for (at, b) in changes {
            let at = at.index(f.len());
            f[at] = b;
        }
        f.truncate(cut.index(f.len() + 1));
        f
    })
}

fn gid() -> impl Strategy<Value = Gid> {
    prop_oneof![v4().prop_map(Gid::from_ipv4), v6().prop_map(Gid)]
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![Just(GidKind::RoceV1), Just(GidKind::RoceV2)];
    let entry = proptest::option::of((gid(), kind, proptest::option::of(0u16..4)));
    prop_oneof![
        8 => telling().prop_map(Step::Sent),
        2 => mangled().prop_map(Step::Sent),
        1 => proptest::collection::vec(any::<u8>(), 0..256).prop_map(Step::Sent),
        1 => proptest::collection::vec(any::<u8>(), 0..300).prop_map(Step::Received),
        1 => (v4(), proptest::option::of(1u8..8)).prop_map(|(ip, t)| Step::Received(dhcp(ip, MAC, t))),
        6 => (0u32..40_000).prop_map(Step::Pass),
        3 => (proptest::option::of(0u16..18), entry, any::<bool>()).prop_map(|(i, e, d)| Step::Set(i, e, d)),
        1 => Just(Step::GuestDown),
        1 => Just(Step::DriverDown),
        1 => Just(Step::Retell),
    ]
}

/// Key to index and source.
type Rows = BTreeMap<(Gid, GidKind, Option<u16>), (u16, GidSource)>;

fn rows(learner: &GidLearner) -> Rows {
    let row = |(i, e, s): (u16, GidEntry, GidSource)| ((e.gid, e.kind, e.vlan), (i, s));
    learner.entries().map(row).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_table_is_sound_whatever_happens(
        len in prop_oneof![Just(16u16), Just(5), Just(256)],
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut learner = GidLearner::new(MAC, len);
        let mut device = GidTable::new(len);
        let mut now = Instant(0);
        let mut set = BTreeMap::new();
        for step in steps {
            let before = rows(&learner);
            let mut quiet = true;
            match &step {
                Step::Sent(f) => { learner.sent(now, f); }
                Step::Received(f) => {
                    learner.received(now, f);
                    prop_assert_eq!(&rows(&learner), &before, "others make no address the guest's");
                }
                Step::Pass(ms) => {
                    let end = now + Duration::from_millis((*ms).into());
                    let mut asked = 0;
                    while let Some(at) = learner.next_time().filter(|t| *t <= end) {
                        now = now.max(at);
                        let mut questions = Vec::new();
                        learner.poll(now, &mut |f| questions.push(f.to_vec()));
                        asked += questions.len();
                        for q in questions {
                            let even = question(&q).gid;
                            if even.0[15].is_multiple_of(2) && let Some(a) = answer(&q, &[even]) {
                                prop_assert!(learner.sent(now, &a));
                            }
                        }
                    }
                    // Three questions of three seconds for each address at most.
                    prop_assert!(asked <= ADDRESSES_MAX * (4 + *ms as usize / 1000), "{} questions", asked);
                    now = end;
                }
                Step::Set(index, entry, driver) => {
                    quiet = false;
                    let by = if *driver { GidSource::Driver } else { GidSource::Operator };
                    let entry = entry.map(|(gid, kind, vlan)| GidEntry { gid, kind, vlan, mac: MAC });
                    if let Ok(at) = learner.set(*index, entry, by) {
                        prop_assert!(index.is_none_or(|i| i == at));
                        prop_assert!(at < len);
                        match entry {
                            Some(e) => { set.insert(at, (e, by)); }
                            None => { set.remove(&at); }
                        }
                    }
                }
                Step::GuestDown => {
                    learner.guest_down(now);
                    prop_assert!(learner.entries().all(|(_, _, s)| !s.is_learned()));
                    prop_assert_eq!(learner.next_time(), None);
                }
                Step::DriverDown => {
                    quiet = false;
                    learner.driver_down();
                    set.retain(|_, (_, by)| *by != GidSource::Driver);
                }
                Step::Retell => {
                    device = GidTable::new(len);
                    learner.retell();
                }
            }
            // The device takes each change and then has the same.
            for (index, entry) in learner.changes() {
                prop_assert!(device.set(index, entry).is_ok(), "{:?} at {} after {:?}", entry, index, step);
            }
            let told: Vec<_> = device.iter().map(|(i, e)| (i, *e)).collect();
            let has: Vec<_> = learner.entries().map(|(i, e, _)| (i, e)).collect();
            prop_assert_eq!(told, has);
            // What was set is there; nobody else's entry says that it was set.
            for (at, (e, by)) in &set {
                prop_assert!(learner.entries().any(|row| row == (*at, *e, *by)), "{:?}", step);
            }
            let by_hand = |s: GidSource| matches!(s, GidSource::Operator | GidSource::Driver);
            prop_assert_eq!(learner.entries().filter(|(_, _, s)| by_hand(*s)).count(), set.len());
            // The adapter's own are there as long as there is room, and nothing but addresses of interfaces is.
            let after = rows(&learner);
            let own = [GidKind::RoceV1, GidKind::RoceV2].map(|k| after.contains_key(&(Gid::from_mac(MAC), k, None)));
            prop_assert!(own == [true; 2] || learner.entries().count() + 2 >= usize::from(len));
            for (gid, _, vlan) in after.keys() {
                prop_assert!(!gid.is_multicast() && *gid != Gid::UNSPECIFIED && gid.0 != loopback());
                prop_assert!(vlan.is_none_or(|v| (1..=4094).contains(&v)));
                prop_assert!(gid.to_ipv4().is_none_or(|a| a[0] != 127 && a[0] != 0 && a[0] < 224));
            }
            // An entry keeps its index while it lives, unless somebody set something.
            if quiet {
                for (key, (index, _)) in &after {
                    prop_assert!(before.get(key).is_none_or(|(was, _)| was == index), "{:?} moved by {:?}", key, step);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_taken(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..50)) {
        let mut learner = GidLearner::new(MAC, 64);
        for (i, f) in frames.iter().enumerate() {
            let now = Instant(i as u64 * 2_000_000);
            learner.sent(now, f);
            learner.received(now, f);
            // With the right outside, so that the inside is looked at.
            for ethertype in [0x0806u16, 0x0800, 0x86dd, 0x8100] {
                let mut f = f.clone();
                f.resize(f.len().max(14), 0);
                f[6..12].copy_from_slice(&MAC.0);
                f[12..14].copy_from_slice(&ethertype.to_be_bytes());
                learner.sent(now, &f);
                learner.received(now, &f);
            }
        }
    }
}

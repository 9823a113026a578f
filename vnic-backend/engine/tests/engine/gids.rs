//! The GID table follows the guest: tables of cases in virtual time.

mod frames;
mod model;

use core::time::Duration;

use frames::*;
use vnic_engine::gids::{
    ADDRESSES_MAX, ANSWER, GidError, GidLearner, GidSource, QUESTIONS, QUIET, TESTING, is_answer,
};
use vnic_engine::rdma::{GidEntry, GidKind, GidTable};
use vnic_wire::gid::Gid;
use vnic_wire::time::Instant;
use vnic_wire::{EtherType, MacAddr};

/// A learner, the device's table, a clock, and what was asked.
struct World {
    learner: GidLearner,
    device: GidTable,
    now: Instant,
    asked: Vec<Vec<u8>>,
}

impl World {
    fn new(len: u16) -> World {
        let mut world = World {
            learner: GidLearner::new(MAC, len),
            device: GidTable::new(len),
            now: Instant(0),
            asked: Vec::new(),
        };
        world.apply();
        world
    }

    /// The device takes the changes without complaint, and then has what the learner has.
    fn apply(&mut self) {
        for (index, entry) in self.learner.changes() {
            self.device.set(index, entry).expect("a good change");
        }
        assert!(!self.learner.changed());
        let device: Vec<_> = self.device.iter().map(|(i, e)| (i, *e)).collect();
        let learner: Vec<_> = self.learner.entries().map(|(i, e, _)| (i, e)).collect();
        assert_eq!(device, learner);
    }

    fn sent(&mut self, frame: &[u8]) -> bool {
        let ours = self.learner.sent(self.now, frame);
        self.apply();
        ours
    }

    fn received(&mut self, frame: &[u8]) {
        self.learner.received(self.now, frame);
        self.apply();
    }

    /// Time passes; the guest answers for these addresses.
    fn pass(&mut self, time: Duration, has: &[Gid]) {
        let end = self.now + time;
        while let Some(at) = self.learner.next_time().filter(|t| *t <= end) {
            self.now = self.now.max(at);
            let mut asked = Vec::new();
            self.learner.poll(self.now, &mut |f| asked.push(f.to_vec()));
            self.apply();
            for question in &asked {
                if let Some(answer) = answer(question, has) {
                    assert!(is_answer(&answer), "an answer is for nobody else");
                    assert!(self.sent(&answer), "an answer is for nobody else");
                }
            }
            self.asked.extend(asked);
        }
        self.now = end;
    }

    /// Learned addresses, by index, with their source.
    fn learned(&self) -> Vec<(u16, Gid, Option<u16>, GidSource)> {
        let v1 = |e: &GidEntry| e.kind == GidKind::RoceV1;
        let rows = self.learner.entries().filter(|(_, e, s)| s.is_learned() && v1(e));
        rows.map(|(i, e, s)| (i, e.gid, e.vlan, s)).collect()
    }

    fn gids(&self) -> Vec<Gid> {
        self.learned().into_iter().map(|(_, gid, ..)| gid).collect()
    }
}

fn entry(gid: Gid, kind: GidKind) -> GidEntry {
    GidEntry {
        gid,
        kind,
        vlan: None,
        mac: MAC,
    }
}

#[test]
fn the_adapters_own_entries_are_there_from_the_start() {
    let world = World::new(256);
    let own = Gid::from_mac(MAC);
    let rows: Vec<_> = world.learner.entries().collect();
    assert_eq!(
        rows,
        [
            (0, entry(own, GidKind::RoceV1), GidSource::Mac),
            (1, entry(own, GidKind::RoceV2), GidSource::Mac),
        ]
    );
    assert_eq!(world.learner.next_time(), None);
    // The guest says that it has the address: that is no news, and not asked for.
    let mut world = World::new(256);
    world.sent(&router_solicitation(own.0));
    assert_eq!(world.learner.next_time(), None);
    // Tables that are too short for anything are no trouble.
    for len in 0..4 {
        let mut world = World::new(len);
        world.sent(&arp_announcement(A));
        assert_eq!(world.learner.entries().count(), usize::from(len).min(2), "{len}");
    }
}

#[test]
fn what_the_guest_sends_tells_its_addresses() {
    use GidSource::{Arp, Nd};
    let (a, six) = (Gid::from_ipv4(A), Gid(SIX));
    let link = Gid(LINK);
    type Addresses<'a> = &'a [(Gid, GidSource)];
    let cases: &[(&str, Vec<u8>, Addresses<'_>)] = &[
        ("ARP request", arp(REQUEST, A, B), &[(a, Arp)]),
        ("ARP reply", arp(REPLY, A, B), &[(a, Arp)]),
        ("ARP announcement", arp_announcement(A), &[(a, Arp)]),
        ("ARP probe", arp(REQUEST, [0; 4], A), &[]),
        ("reverse ARP", arp(3, A, A), &[]),
        (
            "ARP of another sender",
            with_source(arp(REQUEST, A, B), OTHER),
            &[],
        ),
        ("ARP for another sender", arp_from(OTHER, A), &[]),
        ("solicitation", solicitation(SIX, GATEWAY), &[(six, Nd)]),
        (
            "solicitation, cut behind the type",
            solicitation(SIX, GATEWAY)[..56].to_vec(),
            &[(six, Nd)],
        ),
        ("advertisement", advertisement(SIX, SIX), &[(six, Nd)]),
        (
            "advertisement from another address",
            advertisement(LINK, SIX),
            &[(link, Nd), (six, Nd)],
        ),
        ("router solicitation", router_solicitation(LINK), &[(link, Nd)]),
        (
            "router solicitation from nowhere",
            router_solicitation([0; 16]),
            &[],
        ),
        ("test for duplicates", solicitation([0; 16], SIX), &[]),
        (
            "behind a router",
            with_hop_limit(advertisement(SIX, SIX), 64),
            &[],
        ),
        ("ordinary IPv4", ipv4(A), &[]),
        ("ordinary IPv6", ipv6(SIX), &[]),
        (
            "from the own link-local address",
            router_solicitation(Gid::from_mac(MAC).0),
            &[],
        ),
        (
            "mapped address",
            advertisement(LINK, Gid::from_ipv4(A).0),
            &[(link, Nd)],
        ),
        ("ARP from 127.0.0.1", arp_announcement([127, 0, 0, 1]), &[]),
        ("ARP from a group", arp_announcement([224, 0, 0, 1]), &[]),
        ("ARP from everybody", arp_announcement([255; 4]), &[]),
        ("ARP from this network", arp_announcement([0, 1, 2, 3]), &[]),
        (
            "advertisement of a group",
            advertisement(LINK, group(1)),
            &[(link, Nd)],
        ),
        (
            "advertisement of loopback",
            advertisement(LINK, loopback()),
            &[(link, Nd)],
        ),
    ];
    for (what, frame, expected) in cases {
        let mut world = World::new(256);
        assert!(!is_answer(frame) && !world.sent(frame), "{what}: not for the NIC");
        let got: Vec<_> = world.learned().iter().map(|(_, gid, _, s)| (*gid, *s)).collect();
        assert_eq!(got, *expected, "{what}");
        // Two entries each, RoCEv1 first, from index 2 on.
        let rows: Vec<_> = world.learner.entries().skip(2).collect();
        for (i, (gid, source)) in expected.iter().enumerate() {
            let at = 2 + 2 * i as u16;
            assert_eq!(rows[2 * i], (at, entry(*gid, GidKind::RoceV1), *source), "{what}");
            assert_eq!(
                rows[2 * i + 1],
                (at + 1, entry(*gid, GidKind::RoceV2), *source),
                "{what}"
            );
        }
    }
}

#[test]
fn tags_make_entries_of_their_vlan() {
    let mut world = World::new(256);
    for (id, vlan) in [(7, Some(7)), (0, None), (4094, Some(4094))] {
        world.sent(&tagged(EtherType::VLAN, id, &arp_announcement(A)));
        world.sent(&tagged(EtherType::VLAN, id, &advertisement(SIX, SIX)));
        let of = |g| {
            world
                .learned()
                .iter()
                .any(|(_, gid, v, _)| *gid == g && *v == vlan)
        };
        assert!(of(Gid::from_ipv4(A)) && of(Gid(SIX)), "{id}");
    }
    // The adapter's own address on a VLAN is another interface.
    world.sent(&tagged(
        EtherType::VLAN,
        7,
        &router_solicitation(Gid::from_mac(MAC).0),
    ));
    assert!(world.gids().contains(&Gid::from_mac(MAC)));
    // Reserved, service and nested tags are none of ours.
    let before = world.learned();
    world.sent(&tagged(EtherType::VLAN, 4095, &arp_announcement(B)));
    world.sent(&tagged(EtherType::SERVICE_VLAN, 5, &arp_announcement(B)));
    let inner = tagged(EtherType::VLAN, 5, &arp_announcement(B));
    world.sent(&tagged(EtherType::VLAN, 6, &inner));
    assert_eq!(world.learned(), before);
    // Questions carry the tag.
    world.pass(QUIET, &[]);
    let tags: Vec<_> = world.asked.iter().map(|q| question(q).vlan).collect();
    for vlan in [None, Some(7), Some(4094)] {
        assert!(tags.contains(&vlan), "{vlan:?} in {tags:?}");
    }
}

#[test]
fn an_address_that_answers_stays_and_one_that_does_not_goes() {
    let (a, b, six) = (Gid::from_ipv4(A), Gid::from_ipv4(B), Gid(SIX));
    let mut world = World::new(256);
    world.sent(&arp_announcement(A));
    world.sent(&arp_announcement(B));
    world.sent(&advertisement(SIX, SIX));
    let all = world.learned();
    world.pass(10 * QUIET, &[a, b, six]);
    assert_eq!(world.learned(), all);
    // About one question for each in each period: the first new neighbour made for one more.
    assert!((27..=36).contains(&world.asked.len()), "{}", world.asked.len());
    for frame in &world.asked {
        let q = question(frame);
        assert_eq!((q.destination, q.source), (MAC, world.learner.nic_mac()));
        assert!([a, b, six].contains(&q.gid));
    }

    // `ip addr del` of one: three questions, then it is gone. The others keep their index.
    world.asked.clear();
    world.pass(QUIET + ANSWER * u32::from(QUESTIONS), &[b, six]);
    let left: Vec<_> = all.iter().filter(|r| r.1 != a).copied().collect();
    assert_eq!(world.learned(), left);
    let about_a = world.asked.iter().filter(|f| question(f).gid == a).count();
    assert_eq!(about_a, usize::from(QUESTIONS));

    // A new address takes the lowest index that is free.
    world.sent(&arp_announcement(C));
    assert_eq!(world.learned()[0], (2, Gid::from_ipv4(C), None, GidSource::Arp));
}

#[test]
fn traffic_is_a_sign_of_life() {
    let mut world = World::new(256);
    world.sent(&arp_announcement(A));
    world.sent(&advertisement(SIX, SIX));
    for _ in 0..100 {
        world.pass(Duration::from_secs(5), &[]);
        world.sent(&ipv4(A));
        // Looked at again only later: no cost for each frame.
        world.now = world.now + Duration::from_millis(2);
        world.sent(&ipv6(SIX));
    }
    assert_eq!(world.asked, Vec::<Vec<u8>>::new());
    assert_eq!(world.gids().len(), 2);
    // Not on another VLAN, and not of another interface.
    for _ in 0..20 {
        world.pass(Duration::from_secs(5), &[]);
        world.sent(&tagged(EtherType::VLAN, 9, &ipv4(A)));
        world.sent(&with_source(ipv4(A), OTHER));
    }
    assert!(world.gids().is_empty());
}

#[test]
fn a_changed_address_is_updated_within_seconds() {
    let mut world = World::new(256);
    world.sent(&arp_announcement(A));
    world.pass(Duration::from_secs(2), &[Gid::from_ipv4(A)]);
    world.sent(&arp_announcement(B));
    world.pass(Duration::from_secs(5), &[Gid::from_ipv4(B)]);
    assert_eq!(world.gids(), [Gid::from_ipv4(B)]);
    // Also when the new one comes after a test.
    world.sent(&advertisement(GATEWAY, GATEWAY));
    world.sent(&solicitation([0; 16], SIX));
    world.pass(Duration::from_secs(8), &[Gid::from_ipv4(B), Gid(SIX)]);
    assert_eq!(world.gids(), [Gid::from_ipv4(B), Gid(SIX)]);
    world.pass(2 * QUIET, &[Gid::from_ipv4(B)]);
    // A second address beside it, which both answer: both stay.
    world.sent(&arp_announcement(A));
    world.pass(Duration::from_secs(5), &[Gid::from_ipv4(A), Gid::from_ipv4(B)]);
    assert_eq!(world.gids(), [Gid::from_ipv4(A), Gid::from_ipv4(B)]);
}

#[test]
fn a_doubted_address_is_asked_for_at_once_and_as_often_as_ever() {
    let mut world = World::new(256);
    world.sent(&arp_announcement(A));
    world.pass(Duration::from_secs(2), &[]);
    // Whoever doubts it again and again makes no more questions of it.
    for _ in 0..10 {
        world.learner.doubt(world.now);
        world.pass(Duration::from_millis(1), &[]);
    }
    assert_eq!(world.asked.len(), 1);
    // The guest answers: it stays.
    world.pass(ANSWER, &[Gid::from_ipv4(A)]);
    assert_eq!((world.asked.len(), world.gids()), (2, vec![Gid::from_ipv4(A)]));
    // It does not: it goes, long before it would have been quiet for long.
    world.learner.doubt(world.now);
    world.pass(u32::from(QUESTIONS) * ANSWER, &[]);
    assert!(world.gids().is_empty());
}

#[test]
fn a_tested_address_counts_when_the_guest_confirms_it() {
    let six = Gid(SIX);
    // The guest takes it: asked after the test, it answers.
    let mut world = World::new(256);
    world.sent(&solicitation([0; 16], SIX));
    world.pass(TESTING - Duration::from_millis(1), &[six]);
    assert!(world.gids().is_empty());
    world.pass(Duration::from_millis(1), &[six]);
    assert_eq!(world.gids(), [six]);

    // A duplicate: it does not.
    let mut world = World::new(256);
    world.sent(&solicitation([0; 16], SIX));
    world.pass(TESTING + ANSWER * u32::from(QUESTIONS), &[]);
    assert!(world.gids().is_empty());
    assert_eq!(world.asked.len(), usize::from(QUESTIONS));
    assert_eq!(world.learner.next_time(), None);

    // It uses it at once (RFC 4429).
    let mut world = World::new(256);
    world.sent(&solicitation([0; 16], SIX));
    world.sent(&ipv6(SIX));
    assert_eq!(world.gids(), [six]);
}

#[test]
fn dhcp_gives_addresses_that_the_guest_must_confirm() {
    let a = Gid::from_ipv4(A);
    let cases: &[(&str, Vec<u8>, bool)] = &[
        ("acknowledgement", dhcp(A, MAC, Some(5)), true),
        ("cut behind the address", dhcp(A, MAC, None)[..86].to_vec(), true),
        ("cut at 256 bytes", dhcp(A, MAC, Some(2))[..256].to_vec(), true),
        ("offer", dhcp(A, MAC, Some(2)), false),
        ("refusal", dhcp(A, MAC, Some(6)), false),
        ("for another client", dhcp(A, OTHER, Some(5)), false),
        ("of no address", dhcp([0; 4], MAC, Some(5)), false),
        ("of a group", dhcp([239, 1, 1, 1], MAC, Some(5)), false),
    ];
    for (what, frame, expected) in cases {
        let mut world = World::new(256);
        world.received(frame);
        assert!(
            world.gids().is_empty(),
            "{what}: nobody but the guest makes an address its own"
        );
        world.pass(Duration::from_secs(2), &[a]);
        let expected: Vec<_> = expected
            .then_some((2, a, None, GidSource::Dhcp))
            .into_iter()
            .collect();
        assert_eq!(world.learned(), expected, "{what}");
    }
    // The client announces before it is asked, on its VLAN.
    let mut world = World::new(256);
    world.received(&tagged(EtherType::VLAN, 5, &dhcp(A, MAC, Some(5))));
    world.sent(&tagged(EtherType::VLAN, 5, &arp_announcement(A)));
    assert_eq!(world.learned(), [(2, a, Some(5), GidSource::Dhcp)]);
    // Whoever forges answers fills nothing.
    let mut world = World::new(256);
    for i in 0..10_000u32 {
        world.received(&dhcp((0x0a00_0001 + i).to_be_bytes(), MAC, Some(5)));
    }
    for i in 0..ADDRESSES_MAX - 1 {
        world.sent(&arp_announcement([10, 9, 9, i as u8 + 1]));
    }
    assert_eq!(world.gids().len(), 126.min(ADDRESSES_MAX - 1));
}

#[test]
fn a_guest_that_claims_everything_keeps_what_it_had() {
    let mut world = World::new(4096);
    for i in 0..5_000u32 {
        world.sent(&arp_announcement((0x0a00_0001 + i).to_be_bytes()));
    }
    assert_eq!(world.gids().len(), ADDRESSES_MAX);
    assert_eq!(world.gids()[0], Gid::from_ipv4([10, 0, 0, 1]));
    assert_eq!(world.learner.refused(), 5_000 - ADDRESSES_MAX as u64);
    // Room comes back; what answers has stayed.
    let keep = Gid::from_ipv4([10, 0, 0, 1]);
    world.pass(QUIET + ANSWER * 4, &[keep]);
    assert_eq!(world.gids(), [keep]);
    world.sent(&arp_announcement(A));
    assert_eq!(world.gids().len(), 2);
}

#[test]
fn what_the_operator_sets_stays_and_others_give_way() {
    use GidSource::{Driver, Operator};
    let (a, b) = (Gid::from_ipv4(A), Gid::from_ipv4(B));
    let v2 = |gid| Some(entry(gid, GidKind::RoceV2));
    let mut world = World::new(8);
    world.sent(&arp_announcement(A));
    // Over a learned entry: that one moves.
    assert_eq!(world.learner.set(Some(2), v2(b), Operator), Ok(2));
    world.apply();
    let at = |w: &World, gid, kind| w.device.find(gid, kind, None);
    assert_eq!(at(&world, b, GidKind::RoceV2), Some(2));
    assert_eq!(at(&world, a, GidKind::RoceV1), Some(4));
    assert_eq!(at(&world, a, GidKind::RoceV2), Some(3));
    // The same GID elsewhere: the learned one vanishes, and comes back when the place is cleared.
    assert_eq!(world.learner.set(Some(7), v2(a), Operator), Ok(7));
    world.apply();
    assert_eq!(at(&world, a, GidKind::RoceV2), Some(7));
    assert_eq!(
        world.learner.set(Some(6), v2(a), Operator),
        Err(GidError::Exists(7))
    );
    assert_eq!(world.learner.set(Some(7), None, Operator), Ok(7));
    world.apply();
    assert_eq!(at(&world, a, GidKind::RoceV2), Some(3));
    // It outlives the guest, and the guest's driver cannot touch it.
    world.learner.guest_down(world.now);
    world.apply();
    assert_eq!(
        world.learner.entries().map(|(i, ..)| i).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    let held = |r| {
        matches!(
            r,
            Err(GidError::Held {
                index: 2,
                holder: Operator,
                ..
            })
        )
    };
    assert!(held(world.learner.set(Some(2), None, Driver)));
    assert!(held(world.learner.set(Some(2), v2(a), Driver)));
    // The driver's own: gone with it.
    assert_eq!(world.learner.set(None, v2(a), Driver), Ok(3));
    assert_eq!(world.learner.set(Some(5), None, Driver), Ok(5));
    assert_eq!(
        world.learner.set(Some(5), None, Operator),
        Err(GidError::Empty(5))
    );
    world.learner.driver_down();
    world.apply();
    assert_eq!(world.learner.entries().count(), 3);
    // The adapter's own entries can be covered, not cleared; covered ones move and come home.
    assert!(matches!(
        world.learner.set(Some(0), None, Operator),
        Err(GidError::Held {
            index: 0,
            holder: GidSource::Mac,
            ..
        })
    ));
    assert_eq!(world.learner.set(Some(0), v2(a), Operator), Ok(0));
    world.apply();
    assert_eq!(at(&world, Gid::from_mac(MAC), GidKind::RoceV1), Some(3));
    assert_eq!(world.learner.set(Some(0), None, Operator), Ok(0));
    world.apply();
    assert_eq!(at(&world, Gid::from_mac(MAC), GidKind::RoceV1), Some(0));
    // Their places are kept for them, also while the operator has them elsewhere.
    let own = v2(Gid::from_mac(MAC));
    assert_eq!(world.learner.set(Some(1), v2(a), Operator), Ok(1));
    assert_eq!(world.learner.set(Some(3), own, Operator), Ok(3));
    assert_eq!(world.learner.set(Some(1), None, Operator), Ok(1));
    world.sent(&arp_announcement(C));
    assert_eq!(world.learner.set(Some(3), None, Operator), Ok(3));
    world.apply();
    assert_eq!(at(&world, Gid::from_mac(MAC), GidKind::RoceV2), Some(1));
    world.learner.guest_down(world.now);
    // A learned one that is cleared comes back with the next sign.
    world.sent(&arp_announcement(C));
    assert_eq!(world.learner.set(Some(3), None, Operator), Ok(3));
    world.apply();
    assert!(world.gids().is_empty());
    world.sent(&arp_announcement(C));
    assert_eq!(world.gids(), [Gid::from_ipv4(C)]);
    // No room: 3 to 7 are five indices.
    for i in 0..3 {
        assert!(
            world
                .learner
                .set(None, v2(Gid::from_ipv4([10, 8, 8, i])), Operator)
                .is_ok()
        );
    }
    assert_eq!(world.learner.set(None, v2(b), Operator), Err(GidError::Exists(2)));
    assert_eq!(
        world.learner.set(None, v2(Gid(SIX)), Operator),
        Err(GidError::Full(8))
    );
    world.apply();
}

#[test]
fn what_cannot_be_set_is_refused_with_its_reason() {
    let mut world = World::new(16);
    let good = entry(Gid::from_ipv4(A), GidKind::RoceV2);
    let mut set = |index, e: GidEntry| world.learner.set(index, Some(e), GidSource::Operator);
    let with_gid = |gid| GidEntry { gid, ..good };
    assert_eq!(set(Some(16), good), Err(GidError::Index { index: 16, len: 16 }));
    for gid in [
        Gid::UNSPECIFIED,
        Gid(group(1)),
        Gid(loopback()),
        Gid::from_ipv4([224, 0, 0, 1]),
    ] {
        assert_eq!(set(Some(5), with_gid(gid)), Err(GidError::NotUnicast), "{gid}");
    }
    for vlan in [0, 4095] {
        let vlan_entry = GidEntry {
            vlan: Some(vlan),
            ..good
        };
        assert_eq!(set(Some(5), vlan_entry), Err(GidError::Vlan(vlan)));
    }
    assert_eq!(
        set(Some(5), GidEntry { mac: OTHER, ..good }),
        Err(GidError::Mac(OTHER))
    );
    let zeros = MacAddr::default();
    assert_eq!(set(Some(5), GidEntry { mac: zeros, ..good }), Ok(5));
    let own = with_gid(Gid::from_mac(MAC));
    assert_eq!(set(Some(5), own), Err(GidError::Exists(1)));
    assert_eq!(
        world.learner.set(None, None, GidSource::Operator),
        Err(GidError::NoIndex)
    );
    world.apply();
    assert_eq!(world.device.by_index(5), Some(&good));
    for (error, text) in [
        (
            GidError::Index { index: 16, len: 16 },
            "16; the table has 16 entries, allowed are 0 to 15",
        ),
        (GidError::Exists(7), "the GID is at index 7 already"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_device_made_anew_is_told_everything() {
    let mut world = World::new(16);
    world.sent(&arp_announcement(A));
    world.device = GidTable::new(16);
    world.learner.retell();
    world.apply();
    assert_eq!(world.device.usage().used, 4);
}

#[test]
fn addresses_that_are_not_allowed_are_neither_learned_nor_set_by_the_driver() {
    let restricted = || {
        let mut world = World::new(256);
        let allowed = ["10.0.0.5", "2001:db8::/64"].map(|p| p.parse().expect("a prefix"));
        world.learner.restrict(&allowed);
        world
    };
    let (a, b, own) = (Gid::from_ipv4(A), Gid::from_ipv4(B), Gid::from_mac(MAC));
    let cases: &[(&str, Vec<u8>, &[Gid])] = &[
        ("ARP", arp_announcement(A), &[a]),
        ("ARP of another", arp_announcement(B), &[]),
        ("advertisement", advertisement(own.0, SIX), &[Gid(SIX)]),
        ("advertisement of another", advertisement(SIX, LINK), &[Gid(SIX)]),
        (
            "own address in a VLAN",
            tagged(EtherType::VLAN, 5, &router_solicitation(own.0)),
            &[own],
        ),
        ("solicitation from another", router_solicitation(LINK), &[]),
        ("test of another", solicitation([0; 16], LINK), &[]),
    ];
    for (what, frame, gids) in cases {
        let mut world = restricted();
        world.sent(frame);
        world.pass(Duration::from_secs(2), &[a, b, Gid(SIX), Gid(LINK), own]);
        assert_eq!(world.gids(), *gids, "{what}");
    }
    for (address, known) in [(A, true), (B, false)] {
        let mut world = restricted();
        world.received(&dhcp(address, MAC, Some(5)));
        world.pass(Duration::from_secs(2), &[a, b]);
        assert_eq!(!world.gids().is_empty(), known, "{address:?}");
    }
    let mut world = restricted();
    let mut set = |gid, by| {
        let entry = entry(gid, GidKind::RoceV2);
        world.learner.set(Some(9), Some(entry), by)
    };
    assert_eq!(set(b, GidSource::Driver), Err(GidError::NotAllowed(b)));
    assert_eq!(
        set(Gid(LINK), GidSource::Driver),
        Err(GidError::NotAllowed(Gid(LINK)))
    );
    assert_eq!(set(a, GidSource::Driver), Ok(9));
    // That is at an index already, which is another matter.
    assert_eq!(set(own, GidSource::Driver), Err(GidError::Exists(1)));
    assert_eq!(set(b, GidSource::Operator), Ok(9));
}

/// Answers to a frame by the interface with address [`OTHER`], which has [`B`] and [`SIX`] without a VLAN, and [`C`] in VLAN 7.
fn answers(head: &[u8]) -> Vec<Vec<u8>> {
    let has = |gid: Gid, vlan| match vlan {
        None => gid == Gid::from_ipv4(B) || gid == Gid(SIX),
        Some(id) => id == 7 && gid == Gid::from_ipv4(C),
    };
    let mut all = Vec::new();
    vnic_engine::gids::answer(head, OTHER, has, &mut |frame| all.push(frame.to_vec()));
    all
}

#[test]
fn questions_for_an_address_of_the_interface_are_answered() {
    use vnic_wire::{arp as a, ipv6 as v6, nd};
    for (question, ip, vlan) in [
        (arp(REQUEST, A, B), B, None),
        (tagged(EtherType::VLAN, 7, &arp(REQUEST, A, C)), C, Some(7)),
    ] {
        let [answer] = answers(&question).try_into().expect("one answer");
        let at = if vlan.is_some() { 18 } else { 14 };
        assert_eq!((&answer[..6], &answer[6..12]), (&MAC.0[..], &OTHER.0[..]));
        let reply = a::Header::parse(&answer[at..]).expect("ARP");
        assert_eq!(
            (reply.operation, reply.sender_mac, reply.sender_ip),
            (REPLY, OTHER, ip)
        );
        assert_eq!((reply.target_mac, reply.target_ip), (MAC, A));
        assert!(answer.len() >= 60);
    }
    // An ordinary solicitation, and a test for duplicates, whose sender has no address yet.
    for (source, to, flags) in [(LINK, LINK, 3 << 29), ([0; 16], group(1), 1 << 29)] {
        let [answer] = answers(&solicitation(source, SIX))
            .try_into()
            .expect("one answer");
        let packet = v6::Header::parse(&answer[14..]).expect("IPv6");
        assert_eq!(
            (packet.source, packet.destination, packet.hop_limit),
            (SIX, to, 255)
        );
        let message = nd::Header::parse(&answer[54..]).expect("an advertisement");
        assert_eq!(
            (message.kind, message.target, message.flags),
            (nd::NEIGHBOUR_ADVERTISEMENT, SIX, flags)
        );
        // The Ethernet address of the target.
        assert_eq!((&answer[78..80], &answer[80..86]), (&[2, 1][..], &OTHER.0[..]));
        let group = source == [0; 16];
        assert_eq!(answer[..6] == [0x33, 0x33, 0, 0, 0, 1], group);
    }
}

#[test]
fn other_frames_are_not_answered() {
    let asked = solicitation(LINK, SIX);
    for (what, frame) in [
        ("another's address", arp(REQUEST, A, A)),
        ("an address of another VLAN", arp(REQUEST, A, C)),
        (
            "the same in that VLAN",
            tagged(EtherType::VLAN, 7, &arp(REQUEST, A, B)),
        ),
        ("an answer", arp(REPLY, A, B)),
        ("the interface's own", with_source(arp(REQUEST, A, B), OTHER)),
        ("an advertisement", advertisement(LINK, SIX)),
        (
            "a solicitation that has passed a router",
            with_hop_limit(asked.clone(), 254),
        ),
        ("another IPv6 address", solicitation(LINK, GATEWAY)),
        ("ordinary traffic", ipv6(LINK)),
    ] {
        assert_eq!(answers(&frame).len(), 0, "{what}");
    }
    for len in 0..asked.len() {
        assert_eq!(answers(&asked[..len]).len(), 0, "{len} bytes");
    }
}

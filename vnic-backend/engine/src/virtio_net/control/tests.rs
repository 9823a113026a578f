use alloc::vec;

use proptest::prelude::*;

use super::super::steering::tunnel_type;
use super::*;

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ALL: u64 = u64::MAX;
const TUNNELS: u32 = tunnel_type::VXLAN | tunnel_type::NVGRE;

struct Four;

impl Device for Four {
    fn may_be(&self, mac: MacAddr) -> bool {
        mac == OWN || mac.0 == OTHER
    }

    fn values(&self, queue: u16) -> [u64; 6] {
        [u64::from(queue); 6]
    }
}

fn control(features: u64) -> Control {
    Control::new(features, 4, OWN, TUNNELS)
}

fn ask(control: &mut Control, parts: &[&[u8]]) -> (Option<Change>, Vec<u8>) {
    let mut reply = Vec::new();
    let change = control.command(&parts.concat(), &Four, &mut reply);
    (change, reply)
}

/// RSS command: types, mask, unclassified, table, transmit queues, key.
fn rss(types: u32, unclassified: u16, table: &[u16], pairs: u16, key: &[u8]) -> Vec<u8> {
    let mut out = vec![class::MQ, 1];
    out.extend(types.to_le_bytes());
    out.extend((table.len() as u16).wrapping_sub(1).to_le_bytes());
    out.extend(unclassified.to_le_bytes());
    out.extend(table.iter().flat_map(|id| id.to_le_bytes()));
    out.extend(pairs.to_le_bytes());
    out.push(key.len() as u8);
    out.extend(key);
    out
}

/// Each command: what it needs, its bytes, and what follows.
#[test]
fn table_of_commands() {
    use Change::*;
    let rows: [(&str, u64, &[u8], Change); 15] = [
        ("promiscuous", f::CTRL_RX, &[0, 0, 1], Receive),
        ("all multicast", f::CTRL_RX, &[0, 1, 1], Receive),
        ("all unicast", f::CTRL_RX_EXTRA, &[0, 2, 1], Receive),
        ("no broadcast", f::CTRL_RX_EXTRA, &[0, 5, 0], Receive),
        (
            "addresses",
            f::CTRL_RX,
            &[1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6],
            Receive,
        ),
        (
            "own address",
            f::CTRL_MAC_ADDR,
            &[1, 1, 2, 0, 0, 0, 0, 2],
            Receive,
        ),
        ("VLAN", f::CTRL_VLAN, &[2, 0, 5, 0], Receive),
        ("no VLAN", f::CTRL_VLAN, &[2, 1, 5, 0], Receive),
        ("announced", f::GUEST_ANNOUNCE, &[3, 0], Announced),
        ("pairs", f::MQ, &[4, 0, 4, 0], Receive),
        (
            "hash report",
            f::HASH_REPORT,
            &[4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 7],
            Receive,
        ),
        (
            "offloads",
            f::CTRL_GUEST_OFFLOADS,
            &[5, 0, 2, 0, 0, 0, 0, 0, 0, 0],
            Offloads,
        ),
        (
            "transmit",
            f::NOTF_COAL,
            &[6, 0, 8, 0, 0, 0, 9, 0, 0, 0],
            Coalescing,
        ),
        (
            "a queue",
            f::VQ_NOTF_COAL,
            &[6, 2, 2, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0],
            Coalescing,
        ),
        ("tunnels", f::HASH_TUNNEL, &[7, 0, 0x10, 1, 0, 0], Receive),
    ];
    for (name, needs, bytes, change) in rows {
        let mut with = control(ALL);
        assert_eq!(ask(&mut with, &[bytes]), (Some(change), vec![OK]), "{name}");
        assert_eq!(with.commands, [1, 1], "{name}");
        let mut without = control(ALL & !needs);
        let before = without.clone();
        assert_eq!(
            ask(&mut without, &[bytes]),
            (None, vec![ERR]),
            "{name} without its feature"
        );
        assert_eq!(
            (without.commands, without.filter),
            ([1, 0], before.filter),
            "{name}"
        );
        let mut long = control(ALL);
        assert_eq!(
            ask(&mut long, &[bytes, &[0]]),
            (None, vec![ERR]),
            "{name}, one byte more"
        );
        assert_eq!(
            Control {
                commands: [0; 2],
                ..long
            },
            control(ALL),
            "{name}, one byte more"
        );
        for n in 0..bytes.len() {
            let mut short = control(ALL);
            assert_eq!(
                ask(&mut short, &[&bytes[..n]]),
                (None, vec![ERR]),
                "{name}, {n} bytes"
            );
            assert_eq!(
                Control {
                    commands: [0; 2],
                    ..short
                },
                control(ALL),
                "{name}, {n} bytes"
            );
        }
    }
}

#[test]
fn queue_pairs_have_bounds() {
    let mut c = control(ALL);
    assert_eq!(c.pairs, 1);
    for (pairs, ok) in [(0u16, false), (1, true), (4, true), (5, false), (0x8000, false)] {
        let (_, reply) = ask(&mut c, &[&[class::MQ, 0], &pairs.to_le_bytes()]);
        assert_eq!(reply == [OK], ok, "{pairs}");
    }
    assert_eq!(c.pairs, 4);
    assert_eq!(Control::forgotten(ALL, 4, OWN, TUNNELS).pairs, 4);
}

#[test]
fn rss_has_bounds() {
    let key = [7; KEY_MAX];
    let good = rss(hash_type::TCPV4, 3, &[0, 1, 2, 3], 4, &key);
    let mut c = control(ALL);
    assert_eq!(ask(&mut c, &[&good]), (Some(Change::Receive), vec![OK]));
    assert_eq!(c.rss.as_ref().map(|r| r.table().to_vec()), Some(vec![0, 1, 2, 3]));
    let wrong = [
        ("an unknown type", rss(1 << 6, 0, &[0], 1, &key)),
        ("three entries", rss(1, 0, &[0, 1, 2], 1, &key)),
        ("too many entries", rss(1, 0, &[0; 256], 1, &key)),
        ("a pair that is not there", rss(1, 0, &[4], 1, &key)),
        ("unclassified nowhere", rss(1, 4, &[0], 1, &key)),
        ("no pairs", rss(1, 0, &[0], 0, &key)),
        ("five pairs", rss(1, 0, &[0], 5, &key)),
        ("a long key", rss(1, 0, &[0], 1, &[7; 41])),
    ];
    for (name, bytes) in wrong {
        let before = c.rss.clone();
        assert_eq!(ask(&mut c, &[&bytes]), (None, vec![ERR]), "{name}");
        assert_eq!(c.rss, before, "{name}");
    }
    // Pairs without RSS end it.
    ask(&mut c, &[&[class::MQ, 0, 2, 0]]);
    assert_eq!((c.pairs, &c.rss), (2, &None));
}

#[test]
fn tunnels_are_those_of_the_device() {
    let mut c = control(ALL);
    assert_eq!(c.tunnels, Some(0));
    let set =
        |c: &mut Control, types: u32| ask(c, &[&[class::HASH_TUNNEL, 0], &types.to_le_bytes()]).1 == [OK];
    assert!(set(&mut c, tunnel_type::NVGRE));
    for wrong in [tunnel_type::GENEVE, tunnel_type::NVGRE | 1 << 31] {
        assert!(!set(&mut c, wrong), "{wrong:#x}");
        assert_eq!(c.tunnels, Some(tunnel_type::NVGRE));
    }
    assert!(set(&mut c, 0));
    assert_eq!(c.tunnels, Some(0));
    // A driver without the feature has no say.
    assert_eq!(control(ALL & !f::HASH_TUNNEL).tunnels, None);
}

#[test]
fn an_address_must_be_allowed() {
    let mut c = control(ALL);
    for (mac, ok) in [
        ([1, 0, 0, 0, 0, 2], false),
        ([0; 6], false),
        ([2, 0, 0, 0, 0, 3], false),
        (OTHER, true),
    ] {
        let (_, reply) = ask(&mut c, &[&[class::MAC, 1], &mac]);
        assert_eq!(reply == [OK], ok, "{mac:?}");
    }
    assert_eq!(c.filter.mac.0, OTHER);
}

#[test]
fn offloads_are_those_that_were_negotiated() {
    let mut c = control(f::CTRL_GUEST_OFFLOADS | f::GUEST_CSUM | f::GUEST_TSO4);
    assert_eq!(c.offloads, f::GUEST_CSUM | f::GUEST_TSO4);
    let (_, reply) = ask(&mut c, &[&[5, 0], &f::GUEST_TSO6.to_le_bytes()]);
    assert_eq!(reply, [ERR]);
    ask(&mut c, &[&[5, 0], &f::GUEST_CSUM.to_le_bytes()]);
    assert_eq!(c.offloads, f::GUEST_CSUM);
}

#[test]
fn coalescing_of_all_and_of_one() {
    let mut c = control(ALL);
    ask(&mut c, &[&[6, 1, 8, 0, 0, 0, 50, 0, 0, 0]]);
    ask(&mut c, &[&[6, 2, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]]);
    let receive = Coalescing {
        packets: 8,
        usecs: 50,
    };
    assert!(c.coalescing.iter().step_by(2).all(|q| *q == receive));
    assert_eq!(c.coalescing[1], Coalescing::default());
    assert_eq!(c.coalescing[3], Coalescing { packets: 2, usecs: 3 });
    let (change, reply) = ask(&mut c, &[&[6, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]);
    assert_eq!((change, reply), (None, vec![OK, 2, 0, 0, 0, 3, 0, 0, 0]));
    // There is no ninth queue with notifications of this kind.
    let (_, reply) = ask(&mut c, &[&[6, 2, 8, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]]);
    assert_eq!(reply, [ERR]);
}

#[test]
fn statistics() {
    let mut c = control(ALL);
    let (_, reply) = ask(&mut c, &[&[class::STATS, 0]]);
    assert_eq!(reply, [OK, 1, 0, 1, 0, 1, 0, 0, 0]);
    let of = |queue: u16, types: u64| [&queue.to_le_bytes()[..], &[0; 6], &types.to_le_bytes()].concat();
    let (_, reply) = ask(
        &mut c,
        &[&[class::STATS, 1], &of(3, stats::TX_BASIC), &of(8, stats::CVQ)],
    );
    assert_eq!(reply.len(), 1 + 56 + 24);
    assert_eq!(reply[..9], [OK, 16, 0, 3, 0, 0, 0, 56, 0]);
    assert_eq!(reply[9..17], 3u64.to_le_bytes());
    assert_eq!(reply[57..65], [32, 0, 8, 0, 0, 0, 24, 0]);
    assert_eq!(reply[65..73], 2u64.to_le_bytes());
    for (queue, types) in [
        (3, stats::RX_BASIC),
        (8, stats::TX_BASIC),
        (9, stats::CVQ),
        (0, 1 << 5),
    ] {
        let (_, reply) = ask(&mut c, &[&[class::STATS, 1], &of(queue, types)]);
        assert_eq!(reply, [ERR], "{queue} {types:#x}");
    }
    let many = of(0, stats::RX_BASIC).repeat(400);
    assert_eq!(ask(&mut c, &[&[class::STATS, 1], &many]), (None, vec![ERR]));
}

proptest! {
    /// Whatever a driver writes, it gets one acknowledgement, and what is refused changes nothing.
    #[test]
    fn any_command(features: u64, commands in prop::collection::vec((0u8..10, 0u8..4, prop::collection::vec(any::<u8>(), 0..64)), 0..20)) {
        let mut c = control(features);
        for (class, command, data) in commands {
            let before = c.clone();
            let (change, reply) = ask(&mut c, &[&[class, command], &data]);
            prop_assert!(reply[0] == OK || reply == [ERR] && change.is_none());
            if reply[0] == ERR {
                prop_assert_eq!(&Control { commands: before.commands, ..c.clone() }, &before);
            }
            prop_assert!((1..=4).contains(&c.pairs));
            prop_assert!(c.offloads & !features == 0);
        }
    }
}

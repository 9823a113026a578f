//! The switch, in one to three copies, against a naive model of the same rules: maps instead of a table, no
//! shortcuts, tags judged by what the receiver would make of the frame. Lists of operations are arbitrary.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use vnic_fabric::switch::{Egress, PortConfig, PortId, Switch, SwitchConfig, Verdict};
use vnic_fabric::wake::Wakes;
use vnic_fabric::{DropReason, Instant, PriorityTags, TagEdit, VlanMode};
use vnic_wire::MacAddr;

const AGEING: Duration = Duration::from_secs(8);
const LIMIT: usize = 3;
const PORTS: u16 = 5;
const VLANS: [u16; 4] = [1, 2, 3, 4094];

#[derive(Debug, Clone)]
enum Op {
    Frame {
        port: u16,
        to: MacAddr,
        from: MacAddr,
        tci: Option<u16>,
        len: usize,
        /// Repeat: the second time takes the shortcuts.
        times: usize,
    },
    Seconds(u64),
    Add(u16, PortConfig),
    Set(u16, PortConfig),
    Remove(u16),
    Link(u16, bool),
    Flush(u16),
}

fn mac() -> impl Strategy<Value = MacAddr> {
    select(vec![0u8, 1, 2, 3, 4, 5, 6, 7]).prop_map(|n| MacAddr([2, 0, 0, 0, 0, n]))
}

fn any_mac() -> impl Strategy<Value = MacAddr> {
    prop_oneof![
        12 => mac(),
        1 => Just(MacAddr::BROADCAST),
        1 => Just(MacAddr([1, 0, 0x5e, 0, 0, 1])),
    ]
}

fn vlan_mode() -> impl Strategy<Value = VlanMode> {
    prop_oneof![
        select(VLANS.to_vec()).prop_map(VlanMode::Access),
        (
            select(VLANS.to_vec()),
            prop::option::of(prop::collection::btree_set(select(VLANS.to_vec()), 0..3))
        )
            .prop_map(|(native, allowed)| VlanMode::Trunk { native, allowed }),
    ]
}

fn config() -> impl Strategy<Value = PortConfig> {
    (
        prop_oneof![Just(VlanMode::default()), vlan_mode()],
        prop::collection::vec(mac(), 0..3),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.8),
        0u8..8,
        select(vec![PriorityTags::Keep, PriorityTags::Add, PriorityTags::Strip]),
    )
        .prop_map(
            |(vlan, macs, anti_spoofing, learning, default_priority, priority_tags)| PortConfig {
                vlan,
                macs,
                anti_spoofing,
                learning,
                default_priority,
                priority_tags,
                wakes: Wakes::default(),
                times_ptp: false,
            },
        )
}

fn op() -> impl Strategy<Value = Op> {
    let port = || 0..PORTS;
    let tci = prop_oneof![
        5 => Just(None),
        1 => (0u16..16).prop_map(|p| Some(p << 12)),
        3 => (0u16..16, select(VLANS.to_vec())).prop_map(|(p, v)| Some(p << 12 | v)),
        1 => Just(Some(4095)),
    ];
    let frame = (
        port(),
        any_mac(),
        any_mac(),
        tci,
        prop_oneof![20 => 60usize..61, 1 => 0usize..22],
        1usize..3,
    )
        .prop_map(|(port, to, from, tci, len, times)| Op::Frame {
            port,
            to,
            from,
            tci,
            len,
            times,
        });
    prop_oneof![
        30 => frame,
        3 => (1u64..6).prop_map(Op::Seconds),
        2 => (port(), config()).prop_map(|(p, c)| Op::Add(p, c)),
        2 => (port(), config()).prop_map(|(p, c)| Op::Set(p, c)),
        1 => port().prop_map(Op::Remove),
        4 => (port(), any::<bool>()).prop_map(|(p, up)| Op::Link(p, up)),
        1 => port().prop_map(Op::Flush),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    port: u16,
    is_static: bool,
    seen: u64,
}

/// The rules, as one would write them down.
#[derive(Default)]
struct Model {
    ports: BTreeMap<u16, (PortConfig, bool)>,
    known: BTreeMap<(u16, MacAddr), Known>,
    now: u64,
}

fn native(mode: &VlanMode) -> u16 {
    match mode {
        VlanMode::Access(v) => *v,
        VlanMode::Trunk { native, .. } => *native,
    }
}

fn member(mode: &VlanMode, vlan: u16) -> bool {
    match mode {
        VlanMode::Access(v) => vlan == *v,
        VlanMode::Trunk { native, allowed } => {
            vlan == *native
                || (1..=4094).contains(&vlan) && allowed.as_ref().is_none_or(|a| a.contains(&vlan))
        }
    }
}

impl Model {
    fn claim(&mut self, port: u16) {
        let Some((config, _)) = self.ports.get(&port) else {
            return;
        };
        for mac in config.macs.iter().filter(|m| !m.is_multicast()) {
            let key = (native(&config.vlan), *mac);
            if !self.known.get(&key).is_some_and(|k| k.is_static) {
                let k = Known {
                    port,
                    is_static: true,
                    seen: 0,
                };
                self.known.insert(key, k);
            }
        }
    }

    fn claim_all(&mut self, first: u16) {
        self.claim(first);
        (0..PORTS).for_each(|p| self.claim(p));
    }

    fn add(&mut self, port: u16, config: PortConfig) {
        self.remove(port);
        self.ports.insert(port, (config, false));
        self.claim(port);
    }

    fn set(&mut self, port: u16, config: PortConfig) {
        let Some(p) = self.ports.get_mut(&port) else {
            return;
        };
        let moved = p.0.vlan != config.vlan;
        p.0 = config;
        self.known
            .retain(|_, k| k.port != port || !(k.is_static || moved));
        self.claim_all(port);
    }

    fn remove(&mut self, port: u16) {
        if self.ports.remove(&port).is_some() {
            self.known.retain(|_, k| k.port != port);
            self.claim_all(port);
        }
    }

    fn flush(&mut self, port: u16) {
        self.known.retain(|_, k| k.port != port || k.is_static);
    }

    fn learn(&mut self, key: (u16, MacAddr), port: u16) {
        let share = self
            .known
            .values()
            .filter(|k| k.port == port && !k.is_static)
            .count();
        let new = Known {
            port,
            is_static: false,
            seen: self.now,
        };
        match self.known.get_mut(&key) {
            Some(k) if k.is_static => {}
            Some(k) if k.port == port => *k = new,
            Some(k) if share < LIMIT => *k = new,
            None if share < LIMIT => {
                self.known.insert(key, new);
            }
            _ => {}
        }
    }

    fn targets(&self, port: u16, vlan: u16) -> BTreeSet<u16> {
        self.ports
            .iter()
            .filter(|(p, (c, up))| **p != port && *up && member(&c.vlan, vlan))
            .map(|(p, _)| *p)
            .collect()
    }

    /// The verdict, without tag edits.
    fn frame(
        &mut self,
        port: u16,
        to: MacAddr,
        from: MacAddr,
        tci: Option<u16>,
        len: usize,
    ) -> Result<BTreeSet<u16>, DropReason> {
        if len < 14 || (tci.is_some() && len < 18) {
            return Err(DropReason::Runt);
        }
        if from.is_multicast() {
            return Err(DropReason::InvalidSource);
        }
        let Some((config, _)) = self.ports.get(&port).cloned() else {
            return Err(DropReason::NoDestination);
        };
        if config.anti_spoofing && !config.macs.contains(&from) {
            return Err(DropReason::SpoofedSource);
        }
        let vlan = match tci.map_or(0, |t| t & 0xfff) {
            0 => native(&config.vlan),
            v => {
                if matches!(config.vlan, VlanMode::Access(_)) || !member(&config.vlan, v) {
                    return Err(DropReason::VlanNotAllowed);
                }
                v
            }
        };
        if config.learning {
            self.learn((vlan, from), port);
        }
        if !to.is_multicast()
            && let Some(k) = self.known.get(&(vlan, to))
        {
            return if k.port == port {
                Err(if k.is_static {
                    DropReason::OwnAddress
                } else {
                    DropReason::Hairpin
                })
            } else if self.ports[&k.port].1 {
                Ok([k.port].into())
            } else {
                Err(DropReason::ReceiverDown)
            };
        }
        let targets = self.targets(port, vlan);
        if targets.is_empty() {
            Err(DropReason::NoDestination)
        } else {
            Ok(targets)
        }
    }
}

/// What arrives must be of the right VLAN for the receiver, tagged or not as its settings say, with the
/// sender's priority, or its port's, as long as there is a tag to carry it.
fn check_tag(from: &PortConfig, config: &PortConfig, vlan: u16, tci: Option<u16>, edit: TagEdit) {
    let out = match (edit, tci) {
        (TagEdit::Keep, t) => t,
        (TagEdit::Push(new), None) => Some(new),
        (TagEdit::Pop, Some(_)) => None,
        (TagEdit::Replace(new), Some(_)) => Some(new),
        (e, t) => panic!("{e:?} of {t:x?}"),
    };
    let untagged = native(&config.vlan);
    assert_eq!(
        out.map_or(0, |t| t & 0xfff),
        if vlan == untagged { 0 } else { vlan }
    );
    match (&config.vlan, out) {
        (VlanMode::Access(_), Some(_)) => panic!("tag on an access port"),
        (_, Some(t)) => {
            let priority = tci.unwrap_or(u16::from(from.default_priority) << 13) >> 12;
            assert_eq!(t >> 12, priority);
            if t & 0xfff == 0 {
                // A mere priority tag: as the sender's port says.
                let wanted = match tci {
                    Some(_) => PriorityTags::Strip != from.priority_tags,
                    None => PriorityTags::Add == from.priority_tags,
                };
                assert!(wanted, "{from:?}");
            }
        }
        // A priority tag stays where the receiver takes tags.
        (VlanMode::Trunk { .. }, None) => match tci {
            None => assert_ne!(from.priority_tags, PriorityTags::Add),
            Some(t) => assert!(t & 0xfff != 0 || from.priority_tags == PriorityTags::Strip),
        },
        (VlanMode::Access(_), None) => {}
    }
}

fn bytes(to: MacAddr, from: MacAddr, tci: Option<u16>) -> Vec<u8> {
    let mut f = [to.0, from.0].concat();
    if let Some(t) = tci {
        f.extend([0x81, 0x00]);
        f.extend(t.to_be_bytes());
    }
    f.extend([0x08, 0x00]);
    f.resize(64, 0x45);
    f
}

struct World {
    copies: Vec<Switch>,
    model: Model,
    steps: usize,
}

impl World {
    fn new(copies: usize) -> World {
        let config = SwitchConfig {
            ageing: AGEING,
            learn_limit_per_port: LIMIT,
            forward_lldp: false,
        };
        World {
            copies: (0..copies)
                .map(|i| Switch::with_seed(config.clone(), i as u64))
                .collect(),
            model: Model::default(),
            steps: 0,
        }
    }

    fn now(&self) -> Instant {
        Instant(self.model.now)
    }

    fn all(&mut self, f: impl Fn(&mut Switch)) {
        self.copies.iter_mut().for_each(f);
    }

    fn exchange(&mut self) {
        for i in 0..self.copies.len() {
            while let Some(u) = self.copies[i].poll_update() {
                for (j, other) in self.copies.iter_mut().enumerate() {
                    if i != j {
                        other.apply_update(u);
                    }
                }
            }
            assert!(!self.copies[i].has_updates());
        }
    }

    fn step(&mut self, op: Op) {
        self.steps += 1;
        // Reading the whole tables is slow in a debug build: now and then, and whenever something aged.
        let look = self.steps.is_multiple_of(8) || matches!(op, Op::Seconds(_));
        match op {
            Op::Frame {
                port,
                to,
                from,
                tci,
                len,
                times,
            } => {
                for _ in 0..times {
                    self.frame(port, to, from, tci, len);
                }
            }
            Op::Seconds(s) => {
                self.model.now += s * 1_000_000_000;
                let now = self.now();
                self.all(|c| {
                    c.tick(now);
                });
            }
            Op::Add(p, config) => {
                self.all(|c| c.add_port(PortId(p), config.clone()));
                self.model.add(p, config);
            }
            Op::Set(p, config) => {
                self.all(|c| c.set_port(PortId(p), config.clone()));
                self.model.set(p, config);
            }
            Op::Remove(p) => {
                self.all(|c| c.remove_port(PortId(p)));
                self.model.remove(p);
            }
            Op::Link(p, up) => {
                self.all(|c| c.set_link(PortId(p), up));
                if let Some(port) = self.model.ports.get_mut(&p) {
                    port.1 = up;
                }
            }
            Op::Flush(p) => {
                self.all(|c| c.flush_port(PortId(p)));
                self.model.flush(p);
            }
        }
        self.exchange();
        if look {
            self.compare();
        }
    }

    fn frame(&mut self, port: u16, to: MacAddr, from: MacAddr, tci: Option<u16>, len: usize) {
        let expected = self.model.frame(port, to, from, tci, len);
        let f = bytes(to, from, tci);
        let now = self.now();
        // The copy that owns the port.
        let n = self.copies.len();
        let switch = &mut self.copies[usize::from(port) % n];
        let explained = switch.explain(PortId(port), &f[..len.min(18)], len);
        let verdict = switch.forward(now, PortId(port), &f[..len.min(18)], len);
        // A frame to its own source is learned before its destination is looked for.
        if to != from {
            assert_eq!(explained.verdict, verdict, "the explanation is the decision");
        }
        let (vlan, egress): (u16, Vec<Egress>) = match verdict {
            Verdict::Drop(reason) => {
                assert_eq!(Err(reason), expected);
                return;
            }
            Verdict::Unicast(e) => {
                let vlan = match tci.map_or(0, |t| t & 0xfff) {
                    0 => native(&self.model.ports[&port].0.vlan),
                    v => v,
                };
                (vlan, vec![e])
            }
            Verdict::Flood(flood) => {
                assert_eq!(flood.tci, tci);
                (flood.vlan, switch.flood_targets(PortId(port), flood).collect())
            }
        };
        let mut got = BTreeSet::new();
        for e in egress {
            assert_ne!(e.port.0, port, "back to where it came from");
            let (config, up) = &self.model.ports[&e.port.0];
            assert!(up, "to a port that is down");
            assert!(member(&config.vlan, vlan), "into another VLAN");
            check_tag(&self.model.ports[&port].0, config, vlan, tci, e.tag);
            assert!(got.insert(e.port.0), "twice to the same port");
        }
        assert_eq!(Ok(got), expected);
        let sender = &self.model.ports[&port].0;
        assert!(!sender.anti_spoofing || sender.macs.contains(&from), "spoofed");
    }

    /// All copies know what the model knows. Where the ageing time is just over, the first copy decides.
    fn compare(&mut self) {
        let now = self.now();
        let first: BTreeSet<_> = self.copies[0].entries(now).map(|e| (e.0, e.1)).collect();
        self.model.known.retain(|key, k| {
            let age = Duration::from_nanos(now.0 - k.seen);
            k.is_static || age <= AGEING || age <= AGEING + Duration::from_millis(60) && first.contains(key)
        });
        let model: BTreeSet<_> = self
            .model
            .known
            .iter()
            .map(|((v, m), k)| (*v, *m, k.port, k.is_static))
            .collect();
        for c in &self.copies {
            let got: Vec<_> = c.entries(now).map(|(v, m, p, s, _)| (v, m, p.0, s)).collect();
            assert_eq!(got.len(), model.len(), "{got:?} {model:?}");
            assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), model);
        }
    }
}

proptest! {
    #[test]
    fn switch_equals_model(copies in 1usize..4, start in prop::collection::vec(config(), 2..=PORTS as usize), ops in prop::collection::vec(op(), 1..150)) {
        let mut w = World::new(copies);
        for (p, c) in (0..).zip(start) {
            w.step(Op::Add(p, c));
            w.step(Op::Link(p, true));
        }
        for op in ops {
            w.step(op);
        }
        w.compare();
    }

    /// Frames of any bytes, and a head shorter or longer than promised.
    #[test]
    fn no_bytes_panic(frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), any::<u16>(), 0usize..70, any::<u64>()), 1..50)) {
        let mut s = Switch::new(SwitchConfig::default());
        for p in 0..3 {
            s.add_port(PortId(p), PortConfig { learning: true, ..PortConfig::default() });
            s.set_link(PortId(p), true);
        }
        for (head, port, len, now) in frames {
            let port = PortId(port % 4);
            if let Verdict::Unicast(e) = s.forward(Instant(now), port, &head, len) {
                prop_assert_ne!(e.port, port);
            }
            s.tick(Instant(now));
        }
    }
}

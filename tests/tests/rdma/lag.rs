//! RDMA over bonds: queue pairs of two NICs that two wires join.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vnic_backend::lag::{Affinity, BondSettings, Member, Mode, Policy, View};
use vnic_backend::{BondSpec, CongestionSpec, MacAddr};
use vnic_device::queue::Operation;
use vnic_device::verbs::QpType;
use vnic_engine::settings::parameter;
use vnic_tests::driver::rdma::{Qp, Side, World, Wr, fill};
use vnic_tests::driver::rig::wait_for;
use vnic_tests::driver::veth::{Veth, ends, ip};

const BOND: &str = "bond0";
const QPS: usize = 64;

fn spec(policy: Policy) -> BondSpec {
    BondSpec {
        settings: BondSettings {
            mode: Mode::Aggregate { policy, lacp: false },
            failback_delay: Duration::from_millis(50),
            patience: Some(Duration::from_millis(20)),
            ..BondSettings::default()
        },
        ..BondSpec::new(BOND, vec!["p0".into(), "p1".into()])
    }
}

fn mac(side: usize) -> MacAddr {
    MacAddr([2, 0x55, 0, 0, 0, side as u8 + 1])
}

/// Two NICs whose bonds two wires join, each with an RDMA function and its driver.
struct Hosts {
    worlds: Vec<World>,
    sides: Vec<Side>,
}

impl Hosts {
    /// The bonds are served by the last of so many cores, the functions by the first.
    fn new(cores: usize, policy: Policy) -> Result<Option<Hosts>> {
        let Some(veth) = Veth::several(1500, 2)? else {
            return Ok(None);
        };
        let (mut worlds, mut sides) = (Vec::new(), Vec::new());
        for side in [0, 1] {
            let mut world = World::new(cores, &[])?;
            world.add_with("a", |s| s.macs = vec![mac(side)])?;
            for mut port in veth.ports("packet", side)? {
                port.data_core = world.rig.cores.last().copied();
                world.rig.nic.add_port(port)?;
            }
            ensure!(world.rig.nic.set_bond(spec(policy))?.up);
            sides.push(world.side("a")?);
            worlds.push(world);
        }
        Ok(Some(Hosts { worlds, sides }))
    }

    /// Queue pairs made in a row at both ends.
    fn pairs(&mut self, n: usize) -> Vec<(Qp, Qp)> {
        let [a, b] = &mut self.sides[..] else {
            panic!("two sides");
        };
        (0..n).map(|_| a.pair(b, QpType::Rc)).collect()
    }

    /// Writes by each of them, and looks whether it arrived.
    fn write(&mut self, pairs: &mut [(Qp, Qp)], seed: u64) -> Result<()> {
        let [a, b] = &mut self.sides[..] else {
            panic!("two sides");
        };
        for (i, (qp, _)) in pairs.iter_mut().enumerate() {
            let id = i as u64;
            let bytes = fill(seed << 32 | id, 3000);
            a.mr.area.write(0, &bytes[..]);
            let wr =
                Wr::new(id, Operation::Write, &[a.at(0, 3000)]).remote(b.mr.element(0, 1).addr, b.mr.rkey);
            a.done(qp, &wr);
            ensure!(b.mr.area.bytes(0, 3000) == bytes, "QP {i}");
        }
        Ok(())
    }

    fn view(&self) -> Result<View> {
        Ok(self.worlds[0].rig.nic.bond_view(BOND)?)
    }

    fn set(&self, parameters: &[(&str, u32)]) -> Result<()> {
        for world in &self.worlds {
            let mut spec = CongestionSpec::default();
            for (name, value) in parameters {
                let known = parameter(name).context("it exists")?;
                spec.own.put(known, Some(*value));
            }
            world.rig.nic.set_congestion("a", spec)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        drop(self.sides);
        self.worlds.into_iter().try_for_each(World::finish)
    }
}

/// Queue pairs of the first host by member, with the UDP source ports that they use.
fn qps(view: &View, member: u8) -> (BTreeSet<u32>, BTreeSet<u16>) {
    let of = view
        .flows
        .iter()
        .filter(|s| s.member == Member(member) && s.flow.qp.is_some());
    let ports = of.clone().filter_map(|s| Some(s.flow.packet?.ports?.source));
    (
        of.clone().filter_map(|s| s.flow.local_qp).collect(),
        ports.collect(),
    )
}

/// 64 queue pairs made in a row at both ends: no member has more than 60 %, and the view names them all. Pinned to one source
/// port all are on one member; not pinned any more, they spread.
fn spread(cores: usize, policy: Policy) -> Result<()> {
    let Some(mut hosts) = Hosts::new(cores, policy)? else {
        return Ok(());
    };
    for pinned in [false, true, false] {
        hosts.set(&[("roce_pin_source_port", pinned.into())])?;
        // The view begins anew with the bond.
        for world in &hosts.worlds {
            world.rig.nic.remove_bond(BOND)?;
            ensure!(world.rig.nic.set_bond(spec(policy))?.up);
        }
        let mut pairs = hosts.pairs(QPS);
        hosts.write(&mut pairs, u64::from(pinned))?;
        let view = hosts.view()?;
        let (first, second) = (qps(&view, 0), qps(&view, 1));
        let numbers: BTreeSet<u32> = pairs.iter().map(|(a, _)| a.number).collect();
        assert_eq!(&first.0 | &second.0, numbers, "{policy}");
        let even = view.by_qps.context("no queue pairs")?;
        if pinned {
            assert_eq!(even.largest, 1.0, "{policy}: {even}");
            assert_eq!(&first.1 | &second.1, BTreeSet::from([49152]));
        } else {
            assert!(even.largest <= 0.6, "{policy}: {even}");
            assert_eq!((&first.1 | &second.1).len(), QPS);
        }
    }
    hosts.finish()
}

#[test]
fn queue_pairs_spread_by_their_source_ports() -> Result<()> {
    spread(1, Policy::Layer34)
}

#[test]
fn queue_pairs_spread_by_five_tuples_between_cores() -> Result<()> {
    spread(2, Policy::FiveTuple)
}

/// A queue pair goes by the member that somebody chose for it, also when its function is on another core; then by its hash
/// again. (How many have an odd hash is up to their numbers, which begin anywhere: where the ports' upper byte changes on the
/// way, 3 or 5 of 8.)
#[test]
fn a_queue_pair_goes_where_it_is_told_to() -> Result<()> {
    for cores in [1, 2] {
        let Some(mut hosts) = Hosts::new(cores, Policy::Layer34)? else {
            return Ok(());
        };
        let mut pairs = hosts.pairs(8);
        let source = mac(0);
        for member in [Some(Member(1)), Some(Member(0)), None] {
            for (qp, _) in &pairs {
                let what = Affinity::Qp {
                    source,
                    qp: qp.number,
                };
                hosts.worlds[0].rig.nic.set_bond_affinity(BOND, what, member)?;
            }
            hosts.write(&mut pairs, 3)?;
            let view = hosts.view()?;
            let of_qps: Vec<_> = view.flows.iter().filter(|s| s.flow.qp.is_some()).collect();
            assert_eq!(of_qps.len(), pairs.len(), "{member:?}");
            for seen in of_qps {
                let by_hash = Member((Policy::Layer34.hash(&seen.flow) % 2) as u8);
                assert_eq!(
                    seen.member,
                    member.unwrap_or(by_hash),
                    "{member:?}: {:?}",
                    seen.flow
                );
            }
        }
        hosts.finish()?;
    }
    Ok(())
}

/// Packets of one queue pair take both wires, and when one dies, the other.
#[test]
fn packets_of_one_queue_pair_take_several_ways() -> Result<()> {
    for cores in [1, 2] {
        let Some(mut hosts) = Hosts::new(cores, Policy::Layer34)? else {
            return Ok(());
        };
        hosts.set(&[("selective_repeat_forced_en", 1), ("roce_multipath_ways", 4)])?;
        let mut pairs = hosts.pairs(1);
        // The first answer says that the peer takes them.
        hosts.write(&mut pairs, 1)?;
        for round in 2..40 {
            hosts.write(&mut pairs, round)?;
        }
        let view = hosts.view()?;
        let (first, second) = (qps(&view, 0), qps(&view, 1));
        let number = BTreeSet::from([pairs[0].0.number]);
        assert_eq!((&first.0, &second.0), (&number, &number));
        // Each way has its member.
        assert_eq!((first.1.len(), second.1.len()), (2, 2), "{first:?} {second:?}");
        ip(&["link", "set", &ends(1)[0], "down"])?;
        for round in 40..60 {
            hosts.write(&mut pairs, round)?;
        }
        hosts.finish()?;
    }
    Ok(())
}

/// A wire dies while queue pairs write: what is lost is sent again, by the other one, and all arrives.
#[test]
fn writes_survive_the_death_of_a_link() -> Result<()> {
    let Some(mut hosts) = Hosts::new(1, Policy::Layer34)? else {
        return Ok(());
    };
    let mut pairs = hosts.pairs(16);
    hosts.write(&mut pairs, 1)?;
    for (round, dying) in [0, 1, 0].into_iter().enumerate() {
        ip(&["link", "set", &ends(dying)[0], "down"])?;
        // Nobody has noticed yet, or somebody has: it goes on.
        hosts.write(&mut pairs, 10 + round as u64)?;
        ip(&["link", "set", &ends(dying)[0], "up"])?;
        hosts.write(&mut pairs, 20 + round as u64)?;
        let back = || {
            let all = hosts.worlds.iter().map(|w| w.rig.nic.bond_view(BOND));
            all.into_iter().all(|v| {
                v.is_ok_and(|v| {
                    v.members
                        .iter()
                        .all(|m| m.usable && m.leaving == 0 && m.buckets == 128)
                })
            })
        };
        ensure!(wait_for(back));
        hosts.write(&mut pairs, 30 + round as u64)?;
    }
    hosts.finish()
}

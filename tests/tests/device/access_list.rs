//! Access lists under traffic: what they deny is dropped, counted and traced, on whatever way it comes.

use anyhow::{Result, ensure};
use vnic_backend::acl::{Action, Match, RULES_MAX, Rule, Rules, Way};
use vnic_backend::{DropReason, MacAddr, NicError};
use vnic_device::verbs::QpType;
use vnic_tests::driver::packets::{BROADCAST, Flow, Number, numbered, pattern, tagged, tcp, tso, udp};
use vnic_tests::driver::rdma::{World, Wr, fill};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options};

fn rule(way: Way, action: Action, matches: Match) -> Rule {
    Rule { way, action, matches }
}

fn rules(rules: &[Rule]) -> Rules {
    Rules {
        rules: rules.to_vec(),
        ..Rules::default()
    }
}

/// Frames of this protocol.
fn protocol(protocol: u8) -> Match {
    Match {
        protocol: Some(protocol),
        ..Match::default()
    }
}

/// The helpers' flows go to this port.
fn to_port(port: u16) -> Match {
    Match {
        destination_ports: Some((port, port)),
        ..Match::default()
    }
}

fn flow(to: MacAddr, from: MacAddr, v6: bool, vlan: Option<u16>) -> Flow {
    Flow {
        to,
        from,
        v6,
        vlan,
        port: 9,
    }
}

fn send(rig: &Rig, guest: &mut Guest, frame: &[u8]) -> Result<()> {
    guest.send_wait(0, frame, NetHdr::default());
    guest.drain();
    rig.settle()
}

fn quiet(rig: &Rig, guest: &mut Guest) -> Result<()> {
    rig.settle()?;
    let more = guest.try_recv(0);
    ensure!(more.is_none(), "{more:?}");
    Ok(())
}

/// Each frame by both ways of a list: the sender's, and the receiver's.
#[test]
fn what_a_list_denies_does_not_pass() -> Result<()> {
    for cores in [1, 2] {
        for way in Way::ALL {
            let mut rig = Rig::new(cores)?;
            let (a, b) = (rig.add("a")?, rig.add("b")?);
            let mut ga = rig.attach("a", Options::default())?;
            let mut gb = rig.attach("b", Options::default())?;
            let owner = if way == Way::Tx { "a" } else { "b" };
            let n = Number {
                sender: 1,
                stream: 0,
                seq: 0,
            };
            let plain = numbered(b, a, n, 100);
            let frames: Vec<(Vec<u8>, bool)> = [
                (tcp(&flow(b, a, false, None), &[7; 20]), true),
                (tcp(&flow(b, a, true, None), &[7; 20]), true),
                (tcp(&flow(b, a, false, Some(5)), &[7; 20]), true),
                (tagged(&tcp(&flow(b, a, true, Some(5)), &[7; 200]), 6), true),
                (udp(&flow(b, a, false, None), &[7; 20]), false),
                (udp(&flow(b, a, true, Some(5)), &[7; 200]), false),
                (plain.clone(), false),
                (numbered(BROADCAST, a, n, 100), false),
            ]
            .into();
            // Without a list, all pass.
            for (frame, _) in &frames {
                send(&rig, &mut ga, frame)?;
                assert_eq!(gb.recv(0, deadline()).expect("a frame").2, *frame);
            }
            let status = rig
                .nic
                .set_access_list(owner, rules(&[rule(way, Action::Deny, protocol(6))]))?;
            assert_eq!((status.hits, status.revision), (vec![0], 1));
            let mut denied = 0;
            for (frame, wanted) in &frames {
                let trace = rig.nic.trace("a", &frame[..frame.len().min(512)], frame.len())?;
                let dropped = match way {
                    Way::Tx => trace.dropped,
                    Way::Rx => trace.receivers[0].dropped,
                };
                assert_eq!(dropped, wanted.then_some(DropReason::AccessList), "{trace:?}");
                assert!(
                    trace.steps.iter().any(|(name, _)| *name == "access_list"),
                    "{trace:?}"
                );
                send(&rig, &mut ga, frame)?;
                match wanted {
                    true => denied += 1,
                    false => assert_eq!(gb.recv(0, deadline()).expect("a frame").2, *frame),
                }
                quiet(&rig, &mut gb)?;
            }
            assert_eq!(rig.drops(owner, DropReason::AccessList), denied);
            let status = rig.nic.access_list(owner)?;
            assert_eq!(
                (status.hits[0], status.unmatched.iter().sum::<u64>()),
                (denied, 4)
            );
            // The other way, and other adapters, are as they were; and so is this one without its list.
            send(&rig, &mut gb, &tcp(&flow(a, b, false, None), &[7; 20]))?;
            assert!(ga.recv(0, deadline()).is_some());
            rig.nic.set_access_list(owner, Rules::default())?;
            for (frame, _) in &frames {
                send(&rig, &mut ga, frame)?;
                assert_eq!(gb.recv(0, deadline()).expect("a frame").2, *frame);
            }
            rig.finish(Copies::Extra(0))?;
        }
    }
    Ok(())
}

/// Headers behind the first bytes that the NIC reads of a frame are looked at where they are.
#[test]
fn a_request_and_long_headers_are_looked_at() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let big = Options {
            tx_buffer: 10_000,
            ..Options::default()
        };
        let mut ga = rig.attach("a", big.with(OFFLOADS))?;
        let mut gb = rig.attach("b", Options::default())?;
        let (request, hdr) = tso(&flow(b, a, true, None), &pattern(5000), 1000);
        // IPv4 with 40 bytes of options, and UDP behind them: its ports are beyond the first 64 bytes.
        let mut long = udp(&flow(b, a, false, None), &[7; 60]);
        let ports = u16::from_be_bytes([long[36], long[37]]);
        long.splice(34..34, [1; 40]);
        long[14] = 0x4f;
        for (wanted, list) in [
            (true, [to_port(ports), protocol(6)]),
            (false, [to_port(ports ^ 1), protocol(17)]),
        ] {
            for way in [Way::Tx, Way::Rx] {
                let (owner, other) = if way == Way::Tx { ("a", "b") } else { ("b", "a") };
                rig.nic.set_access_list(other, Rules::default())?;
                let before = rig.drops(owner, DropReason::AccessList);
                if wanted {
                    rig.nic
                        .set_access_list(owner, rules(&list.map(|m| rule(way, Action::Deny, m))))?;
                    ga.send_wait(0, &request, hdr);
                    send(&rig, &mut ga, &long)?;
                    quiet(&rig, &mut gb)?;
                    assert_eq!(rig.drops(owner, DropReason::AccessList), before + 2);
                } else {
                    rig.nic
                        .set_access_list(owner, rules(&[rule(way, Action::Deny, list[0])]))?;
                    send(&rig, &mut ga, &long)?;
                    assert_eq!(gb.recv(0, deadline()).expect("a frame").2, long);
                }
            }
        }
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// Packets between RDMA functions of neighbours, which are no frames otherwise.
#[test]
fn rdma_packets_are_under_the_list_too() -> Result<()> {
    for cores in [1, 2] {
        for (owner, way) in [("a", Way::Tx), ("b", Way::Rx)] {
            let world = World::new(cores, &["a", "b"])?;
            let (mut a, mut b) = (world.side("a")?, world.side("b")?);
            let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
            let bytes = fill(1, 500);
            a.mr.area.write(4096, &bytes);
            b.receive(&mut qb, 1, &[b.at(8192, 500)]);
            a.done(&mut qa, &Wr::send(1, &[a.at(4096, 500)]));
            assert_eq!(b.cq.good(1).byte_len, 500);
            // RoCE of both versions.
            let v1 = Match {
                ethertype: Some(0x8915),
                ..Match::default()
            };
            let deny = [to_port(4791), v1].map(|m| rule(way, Action::Deny, m));
            world.rig.nic.set_access_list(owner, rules(&deny))?;
            b.receive(&mut qb, 2, &[b.at(8192, 500)]);
            qa.sends().write(&Wr::send(2, &[a.at(4096, 500)]));
            qa.ring(&mut a.bells);
            let denied = || world.rig.drops(owner, DropReason::AccessList) > 0;
            assert!(wait_for(denied), "{cores} {owner}");
            // The packet is sent again once it may pass.
            world.rig.nic.set_access_list(owner, Rules::default())?;
            assert_eq!(b.cq.good(2).byte_len, 500);
            assert_eq!(a.cq.good(2).wr_id, 2);
        }
    }
    Ok(())
}

#[test]
fn a_list_is_there_before_its_adapter_and_stays_when_it_is_made_anew() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let b = rig.add("b")?;
    rig.nic.restore_access_list("a", Rules::deny_all())?;
    let a = rig.add("a")?;
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    let n = Number {
        sender: 1,
        stream: 0,
        seq: 0,
    };
    send(&rig, &mut ga, &numbered(b, a, n, 60))?;
    send(&rig, &mut gb, &numbered(a, b, n, 60))?;
    quiet(&rig, &mut ga)?;
    quiet(&rig, &mut gb)?;
    assert_eq!(rig.nic.access_list("a")?.unmatched, [1, 1]);
    let mut spec = rig.nic.adapter("a")?.spec;
    spec.mtu = 1400;
    rig.nic.update_adapter(spec)?;
    drop(ga);
    rig.nic.restart_adapter("a")?;
    let mut ga = rig.attach("a", Options::default())?;
    send(&rig, &mut ga, &numbered(b, a, n, 60))?;
    quiet(&rig, &mut gb)?;
    assert_eq!(rig.nic.access_list("a")?.unmatched, [1, 2]);
    let many = vec![rule(Way::Rx, Action::Deny, Match::default()); RULES_MAX + 1];
    let refused = rig.nic.set_access_list("a", rules(&many));
    assert!(matches!(refused, Err(NicError::Invalid { field: "rules", .. })));
    let unknown = rig.nic.set_access_list("z", Rules::default());
    assert!(matches!(unknown, Err(NicError::NotFound { .. })));
    // A new adapter of the name has no list.
    drop(ga);
    rig.nic.remove_adapter("a")?;
    rig.add_with("a", |s| s.macs = vec![a])?;
    assert_eq!(rig.nic.access_list("a")?.rules, Rules::default());
    rig.finish(Copies::Unknown)
}

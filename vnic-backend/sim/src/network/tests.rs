//! Runs of small networks.

use anyhow::Result;

use super::scenario::{Flow, Pfc, Scenario, SwitchSettings, Topology};

use super::world::World;
use super::*;

const G: u64 = 1_000_000_000;

fn star(hosts: usize, rate: u64) -> Scenario {
    Scenario::new("star", Topology::star(hosts, rate, 1000))
}

fn endless(from: usize, to: usize) -> Flow {
    Flow::new(from, to, 0, None)
}

fn quiet(scenario: &Scenario) -> Result<Outcome> {
    run(scenario, &mut |_| {})
}

#[test]
fn a_flow_of_one_packet_takes_what_the_links_take() -> Result<()> {
    let scenario = Scenario {
        flows: vec![Flow::new(0, 1, 5_000, Some(1000))],
        ..star(2, 40 * G)
    };
    let outcome = quiet(&scenario)?;
    // WRITE: Ethernet 14, IPv4 20, UDP 8, BTH 12, RETH 16, payload 1000, ICRC 4, FCS 4, gap and preamble 20: 1098 bytes,
    // 219.6 ns at 40 Gbit/s, twice; acknowledge 14 + 20 + 8 + 12 + 4 + 4 + 4 + 20 = 86 bytes, 17.2 ns, twice; four cables.
    let expected = 2.0 * 219.6 + 2.0 * 17.2 + 4_000.0;
    assert_eq!(outcome.flows[0].end, Some(5_000 + expected as u64));
    assert_eq!(outcome.flows[0].ideal, expected as u64);
    assert_eq!(
        (outcome.flows[0].delivered, outcome.totals.data_packets),
        (1000, 1)
    );
    assert_eq!(outcome.totals.packet_hops, 4);
    Ok(())
}

#[test]
fn a_flow_alone_is_as_fast_as_it_can_be() -> Result<()> {
    for bytes in [1, 1024, 1025, 5_000, 100_000, 1_000_000, 4_000_001] {
        for rates in [[40, 40], [10, 100], [100, 10]] {
            let mut scenario = Scenario {
                flows: vec![Flow::new(0, 1, 0, Some(bytes))],
                duration: 100_000_000,
                ..star(2, G)
            };
            for (link, rate) in scenario.topology.links.iter_mut().zip(rates) {
                link.rate = rate * G;
            }
            scenario.host.delay = 700;
            let outcome = quiet(&scenario)?;
            let flow = &outcome.flows[0];
            let took = flow.end.expect("it ends") as f64;
            // The window of the engine (1024 packets) does not show at these lengths of cable.
            let off = took - flow.ideal as f64;
            assert!(off.abs() <= 2.0, "{bytes} {rates:?}: {took} {}", flow.ideal);
        }
    }
    Ok(())
}

/// Everything that was sent is somewhere.
fn conserved(world: &World<'_>) {
    let sent: u64 = world.net.sent_packets;
    let totals = &world.net.totals;
    let ended = totals.drops + world.received;
    assert_eq!(sent, ended + world.net.packets.len() as u64);
}

#[test]
fn packets_are_somewhere_and_links_are_no_faster_than_they_are() -> Result<()> {
    for pfc in [Pfc::Off, Pfc::Static(50_000), Pfc::Dynamic(1.0)] {
        let scenario = Scenario {
            flows: (0..8).map(|from| endless(from, 8)).collect(),
            duration: 3_000_000,
            switch: SwitchSettings {
                buffer: 1_000_000,
                pfc,
                ..SwitchSettings::paper()
            },
            ..star(9, 40 * G)
        };
        let mut world = World::new(&scenario)?;
        world.run(&mut |_| {})?;
        conserved(&world);
        for port in &world.net.ports {
            let most = port.time(port.sent);
            assert!(most <= 3_000_000_000 + port.time(2_000), "{most}");
        }
        let outcome = world.finish();
        let drops = outcome.totals.drops;
        assert_eq!(drops == 0, pfc != Pfc::Off, "{pfc:?}: {drops}");
        assert_eq!(outcome.totals.pauses == 0, pfc == Pfc::Off, "{pfc:?}");
        assert!(outcome.queues[0].max <= 1_000_000);
        assert!(
            outcome.queues[0].utilization() > 0.99,
            "{pfc:?} {:?}",
            outcome.queues[0].utilization()
        );
        let delivered: u64 = outcome.flows.iter().map(|f| f.delivered).sum();
        if pfc != Pfc::Off {
            // 1024 of 1106 bytes at 40 Gbit/s for 3 ms.
            let most = 15_000_000.0 * 1024.0 / 1106.0;
            assert!(
                (delivered as f64) < most && (delivered as f64) > 0.98 * most,
                "{delivered}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_seed_is_a_whole_run_on_any_number_of_threads() -> Result<()> {
    let scenarios: Vec<Scenario> = (0..4)
        .map(|seed| Scenario {
            seed: seed % 3,
            flows: (0..4)
                .map(|from| Flow::new(from, 4, from as u64 * 1000, Some(200_000)))
                .collect(),
            ..star(5, 10 * G)
        })
        .collect();
    let hashes = |jobs| -> Result<Vec<u64>> {
        let outcomes = run_all(&scenarios, jobs, &|_, _| {});
        outcomes.into_iter().map(|o| Ok(o?.hash)).collect()
    };
    let once = hashes(1)?;
    assert_eq!(once, hashes(3)?);
    assert_eq!(once[0], once[3]);
    assert_ne!(once[0], once[1]);
    Ok(())
}

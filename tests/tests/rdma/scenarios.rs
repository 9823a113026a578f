//! Scenarios that are shipped, played in virtual time: what drivers see, and that each run does the same.

mod repeated;
mod replica;
mod stage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use vnic_appliance::config::scenario_from_text;
use vnic_appliance::scenarios::{Player, Scenario};
use vnic_backend::{GidKind, GidSetting, VirtualClock};
use vnic_device::command::Opcode;
use vnic_device::command::device::PortReply;
use vnic_device::event::EventKind;
use vnic_device::queue::Operation;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{CompletionStatus as Status, PortState, QpType};
use vnic_device::zerocopy::FromBytes;
use vnic_tests::driver::rdma::{Side, World, Wr};

const GID: GidSetting = GidSetting {
    gid: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
    kind: GidKind::RoceV2,
    vlan: None,
};

/// Files of scenarios.
fn shipped() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/scenarios/verbs");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        all.push(entry?.path());
    }
    all.sort();
    Ok(all)
}

fn scenario(name: &str) -> Result<Scenario> {
    let all = shipped()?;
    let path = all
        .iter()
        .find(|path| path.file_stem().is_some_and(|stem| stem == name));
    let path = path.with_context(|| name.to_owned())?;
    Ok(scenario_from_text(
        path,
        &std::fs::read_to_string(path)?,
        &BTreeMap::new(),
    )?)
}

fn world() -> Result<World> {
    let world = World::with_clock(VirtualClock::new(Duration::from_micros(1)), &["vf0", "vf1"])?;
    world.rig.nic.set_gid("vf0", Some(30), Some(GID))?;
    Ok(world)
}

fn port(side: &mut Side) -> PortReply {
    let reply = side.d.command(Opcode::QueryPort, &[], &[]);
    PortReply::read_from_bytes(&reply.bytes).expect("a port")
}

fn state(side: &mut Side) -> Option<PortState> {
    PortState::from_number(port(side).state)
}

/// Plays up to a time of the file.
fn until(player: &mut Player, ms: u64) -> Result<()> {
    let time = Duration::from_millis(ms);
    while let Some(at) = player.next().filter(|at| *at <= time) {
        player.play(at).map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

#[test]
fn the_log_has_the_times_of_the_file() -> Result<()> {
    let world = world()?;
    let mut player = Player::new(world.rig.nic.clone(), &scenario("port-down-late-event")?);
    until(&mut player, 10_000)?;
    let expected = [
        "      200 ms vf0: no frame passes",
        "      700 ms vf0: the port says that it is down",
        "     2200 ms vf0: frames pass again",
        "     2700 ms vf0: the port says that it is up",
        "end",
    ];
    ensure!(player.log() == expected, "{:#?}", player.log());
    world.finish()
}

#[test]
fn a_port_goes_down_and_packets_wait_for_it() -> Result<()> {
    let world = world()?;
    let (mut a, mut b) = (world.side("vf0")?, world.side("vf1")?);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    let mut player = Player::new(world.rig.nic.clone(), &scenario("port-down-late-event")?);
    let write = |n: u64, a: &Side, b: &Side| {
        Wr::new(n, Operation::Write, &[a.at(0, 100)]).remote(b.mr.iova, b.mr.rkey)
    };
    let first = write(1, &a, &b);
    a.done(&mut qa, &first);
    until(&mut player, 200)?;
    // Packets stop; nobody is told.
    let second = write(2, &a, &b);
    a.post(&mut qa, &second);
    a.bells.wait_taken();
    a.d.sync();
    ensure!(a.cq.poll().is_none() && state(&mut a) == Some(PortState::Active));
    ensure!(a.d.count_events(EventKind::PortError) == 0);
    until(&mut player, 700)?;
    ensure!(a.d.event(EventKind::PortError).object == 1 && state(&mut a) == Some(PortState::Down));
    ensure!(state(&mut b) == Some(PortState::Active) && a.cq.poll().is_none());
    until(&mut player, 2700)?;
    ensure!(a.d.event(EventKind::PortActive).object == 1 && state(&mut a) == Some(PortState::Active));
    player.end();
    ensure!(world.rig.nic.faults().is_empty());
    drop((a, b));
    world.finish()
}

/// A MiB at 100 Mbit/s takes longer than 80 ms; when the rate is what it was again, no time at all.
#[test]
fn a_link_is_slow_for_a_time() -> Result<()> {
    let text = "name = \"slow\"\n[[step]]\nat = \"0 ms\"\naction = \"rate\"\nadapter = \"vf0\"\nrate = 100\nfor = \"1 s\"\n";
    let scenario = scenario_from_text(Path::new("slow"), text, &BTreeMap::new())?;
    let clock = VirtualClock::new(Duration::from_micros(100));
    let world = World::with_clock(clock.clone(), &["vf0", "vf1"])?;
    let (mut a, mut b) = (world.side("vf0")?, world.side("vf1")?);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    let mut player = Player::new(world.rig.nic.clone(), &scenario);
    let mut write = || {
        let begin = clock.now();
        for n in 0..16 {
            let wr = Wr::new(n, Operation::Write, &[a.at(0, 1 << 16)]).remote(b.mr.iova, b.mr.rkey);
            a.post(&mut qa, &wr);
        }
        let mut ended = 0;
        while ended < 16 {
            clock.pass(Duration::from_millis(1));
            ended += std::iter::from_fn(|| a.cq.poll())
                .filter(|e| e.status() == Status::Success)
                .count();
        }
        clock.now() - begin
    };
    let before = write();
    until(&mut player, 0)?;
    let slow = write();
    until(&mut player, 1000)?;
    let behind = write();
    ensure!(
        before < Duration::from_millis(10) && behind < Duration::from_millis(10),
        "{before:?} {behind:?}"
    );
    ensure!(slow > Duration::from_millis(80), "{slow:?}");
    ensure!(player.log()[0].ends_with("vf0: the rate is 100 Mbit/s"));
    drop((a, b));
    world.finish()
}

/// Who pauses all others goes on itself; they stand still, whomever they send to.
#[test]
fn an_adapter_pauses_all_others_for_a_time() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_micros(100));
    let world = World::with_clock(clock.clone(), &["vf0", "vf1", "vf2"])?;
    let (mut a, mut b, mut c) = (world.side("vf0")?, world.side("vf1")?, world.side("vf2")?);
    let (mut bc, _cb) = b.pair(&mut c, QpType::Rc);
    let (mut ac, _ca) = a.pair(&mut c, QpType::Rc);
    let mut player = Player::new(world.rig.nic.clone(), &scenario("pause-storm")?);
    let mut post = |a: &mut Side, b: &mut Side| {
        let wr = Wr::new(1, Operation::Write, &[b.at(0, 100)]);
        b.post(&mut bc, &wr.remote(c.mr.iova, c.mr.rkey));
        let wr = Wr::new(2, Operation::Write, &[a.at(0, 100)]);
        a.post(&mut ac, &wr.remote(c.mr.iova, c.mr.rkey));
        clock.pass(Duration::from_millis(2));
    };
    let ended = |side: &mut Side| side.cq.poll().is_some();
    post(&mut a, &mut b);
    ensure!(ended(&mut a) && ended(&mut b));
    until(&mut player, 200)?;
    post(&mut a, &mut b);
    ensure!(!ended(&mut b), "a victim goes on");
    until(&mut player, 2200)?;
    clock.pass(Duration::from_millis(2));
    ensure!(ended(&mut a) && ended(&mut b), "they wait for ever");
    post(&mut a, &mut b);
    ensure!(ended(&mut a) && ended(&mut b));
    drop((a, b, c));
    world.finish()
}

/// Events tell apart what changed; nothing did.
#[test]
fn drivers_hear_of_what_has_not_happened() -> Result<()> {
    let steps = ["lid_change", "gid_change", "port_error"].map(|event| {
        format!("[[step]]\nat = \"0 ms\"\naction = \"event\"\nadapter = \"vf0\"\nevent = {event:?}\n")
    });
    let text = format!("name = \"told\"\n{}", steps.concat());
    let scenario = scenario_from_text(Path::new("told"), &text, &BTreeMap::new())?;
    let world = world()?;
    let (mut a, mut b) = (world.side("vf0")?, world.side("vf1")?);
    let gids = a.d.gids();
    let mut player = Player::new(world.rig.nic.clone(), &scenario);
    until(&mut player, 0)?;
    let expected = [
        "vf0: is told LidChange 1",
        "vf0: is told GidChange 0",
        "vf0: is told PortError 1",
    ];
    ensure!(
        player
            .log()
            .iter()
            .zip(expected)
            .all(|(line, end)| line.ends_with(end))
    );
    ensure!(a.d.event(EventKind::LidChange).object == 1);
    ensure!(a.d.event(EventKind::GidChange).object == 0);
    ensure!(a.d.event(EventKind::PortError).object == 1);
    ensure!(a.d.gids() == gids && state(&mut a) == Some(PortState::Active));
    ensure!(b.d.count_events(EventKind::LidChange) == 0);
    drop((a, b));
    world.finish()
}

#[test]
fn a_scenario_that_is_stopped_leaves_nothing() -> Result<()> {
    let world = world()?;
    let mut a = world.side("vf0")?;
    for (name, ms) in [
        ("port-flap", 250),
        ("mtu-changed", 300),
        ("gid-moved", 300),
        ("grey-nic", 300),
    ] {
        let before = (port(&mut a).active_mtu, a.d.gids());
        let mut player = Player::new(world.rig.nic.clone(), &scenario(name)?);
        until(&mut player, ms)?;
        let speed = port(&mut a).speed;
        ensure!((name == "mtu-changed") == (port(&mut a).active_mtu == 1 && speed == 1000));
        ensure!((name == "gid-moved") == a.d.gids().iter().any(|gid| gid.index == 100));
        player.end();
        ensure!(
            player.next().is_none() && world.rig.nic.faults().is_empty(),
            "{name}"
        );
        ensure!((port(&mut a).active_mtu, a.d.gids()) == before, "{name}");
        ensure!(state(&mut a) == Some(PortState::Active));
    }
    drop(a);
    world.finish()
}

#[test]
fn a_device_that_failed_takes_nothing_but_a_reset() -> Result<()> {
    let world = world()?;
    let mut a = world.side("vf0")?;
    let mut player = Player::new(world.rig.nic.clone(), &scenario("device-fatal")?);
    until(&mut player, 1000)?;
    a.d.event(EventKind::DeviceFatal);
    ensure!(world.objects("vf0").is_empty());
    for opcode in [Opcode::QueryPort, Opcode::Hello, Opcode::AllocPd] {
        ensure!(a.d.status(opcode, &[0_u8; 0], &[]) == S::NotReady, "{opcode:?}");
    }
    ensure!(a.d.status(Opcode::Reset, &[0_u8; 0], &[]) == S::Ok);
    a.d.hello();
    a.d.pd();
    drop(a);
    world.finish()
}

#[test]
fn a_device_is_gone_and_comes_back() -> Result<()> {
    let world = world()?;
    let a = world.side("vf0")?;
    let mut player = Player::new(world.rig.nic.clone(), &scenario("device-removed")?);
    until(&mut player, 300)?;
    let status = world.rig.nic.rdma("vf0")?.context("a function")?;
    ensure!(status.off.is_some() && world.objects("vf0").is_empty());
    drop(a);
    until(&mut player, 10_000)?;
    ensure!(vnic_tests::driver::rig::wait_for(|| world.side("vf0").is_ok()));
    world.finish()
}

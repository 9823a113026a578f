//! Commands that are slow, and registrations that are refused by their size.

use vnic_device::command::CommandHead;
use vnic_device::zerocopy::IntoBytes;
use vnic_tests::driver::rdma::{FULL, extents, list_of};

use super::*;

fn commands(
    commands: &[VerbsCommand],
    status: Option<CommandStatus>,
    delay: Option<Duration>,
) -> VerbsFaultSpec {
    let action = VerbsFaultAction::Command {
        commands: commands.to_vec(),
        status,
        delay,
    };
    VerbsFaultSpec::new("rule", "a", action)
}

const MS: Duration = Duration::from_millis(1);

/// Makes a command available that nobody waits for.
fn submit(side: &mut Side, opcode: Opcode) {
    let head: CommandHead = side.d.head(opcode, 0, 0);
    side.d.submit(head.as_bytes(), 64);
}

/// While a command waits, other processes and all work requests go on, and the core sleeps.
#[test]
fn a_slow_command_holds_up_its_process_only() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_micros(10));
    let world = World::with_clock(clock.clone(), &["a", "b"])?;
    let process = |adapter: &str| -> Result<Side> {
        let options = Options {
            shares: true,
            memory: 2 << 20,
            ..Options::default()
        };
        Ok(Side::new(Driver::start(world.socket(adapter), options)?))
    };
    let (mut slow, mut other, mut peer) = (process("a")?, process("a")?, process("b")?);
    let (mut qp, _peers) = slow.pair(&mut peer, QpType::Rc);
    let before = world.objects("a");
    world.rig.nic.add_verbs_fault(VerbsFaultSpec {
        count: Some(1),
        ..commands(&[VerbsCommand::AllocPd], None, Some(20 * MS))
    })?;
    submit(&mut slow, Opcode::AllocPd);
    clock.pass(10 * MS);
    // Its requests, and commands of the other process.
    let wr = Wr::new(1, Operation::Write, &[slow.at(0, 8)]).remote(peer.mr.iova, peer.mr.rkey);
    slow.done(&mut qp, &wr);
    let made = other.d.pd();
    other.d.end(Opcode::DeallocPd, made)?;
    clock.pass(9 * MS);
    assert!(slow.d.control.take().is_none(), "20 ms have not passed");
    assert_eq!(world.objects("a"), before, "it was not looked at");
    clock.pass(2 * MS);
    assert!(slow.d.control.take().is_some());
    assert_ne!(world.objects("a"), before, "it was carried out");
    world.finish()
}

/// The end of its rule lets a command go on, and what both rules say comes together.
#[test]
fn a_slow_command_goes_on_when_its_rule_ends() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut a = world.side("a")?;
    let nic = &world.rig.nic;
    nic.add_verbs_fault(commands(&[VerbsCommand::AllocPd], None, Some(60_000 * MS)))?;
    submit(&mut a, Opcode::AllocPd);
    while nic.verbs_faults()[0].injected == 0 {
        std::thread::yield_now();
    }
    nic.remove_verbs_fault("rule")?;
    let deadline = std::time::Instant::now() + 10 * LONG;
    while a.d.control.take().is_none() {
        assert!(std::time::Instant::now() < deadline, "it waits for ever");
        std::thread::yield_now();
    }
    // Slow, and refused.
    nic.add_verbs_fault(commands(
        &[VerbsCommand::AllocPd],
        Some(CommandStatus::LimitReached),
        Some(20 * MS),
    ))?;
    let before = std::time::Instant::now();
    let status = a.d.status(Opcode::AllocPd, &[0u8; 0], &[]);
    assert_eq!(status, CommandStatus::LimitReached);
    assert!(before.elapsed() >= 20 * MS);
    assert_eq!(nic.verbs_faults()[0].injected, 1, "a command is judged once");
    world.finish()
}

/// A process that goes takes its slow command with it.
#[test]
fn a_driver_may_go_while_its_command_waits() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let nic = &world.rig.nic;
    let mut a = world.side("a")?;
    nic.add_verbs_fault(VerbsFaultSpec {
        count: Some(1),
        ..commands(
            &[VerbsCommand::AllocPd],
            Some(CommandStatus::InUse),
            Some(60_000 * MS),
        )
    })?;
    submit(&mut a, Opcode::AllocPd);
    while nic.verbs_faults()[0].injected == 0 {
        std::thread::yield_now();
    }
    drop(a);
    let mut a = world.side("a")?;
    a.d.pd();
    world.finish()
}

#[test]
fn registrations_are_refused_by_their_size() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut a = world.side("a")?;
    let nic = &world.rig.nic;
    let refuse = commands(
        &[VerbsCommand::RegisterMr, VerbsCommand::ReregisterMr],
        Some(CommandStatus::LimitReached),
        None,
    );
    nic.add_verbs_fault(VerbsFaultSpec {
        min_bytes: Some(8192),
        ..refuse.clone()
    })?;
    let register = |a: &mut Side, len: u64| {
        let area = a.d.area(len);
        let body = vnic_device::command::memory::RegisterMr {
            pd: a.pd,
            access: FULL,
            iova: 0,
            extents: extents(&area),
        };
        a.d.status(Opcode::RegisterMr, &body, &list_of(&area.extents))
    };
    let before = world.objects("a");
    assert_eq!(register(&mut a, 8192), CommandStatus::LimitReached);
    assert_eq!(world.objects("a"), before);
    assert_eq!(register(&mut a, 8191), CommandStatus::Ok);
    let status = nic.remove_verbs_fault("rule")?;
    assert_eq!((status.matched, status.injected), (1, 1));
    assert_eq!(register(&mut a, 8192), CommandStatus::Ok);

    // Slow by size: it is carried out later, once.
    nic.add_verbs_fault(VerbsFaultSpec {
        max_bytes: Some(100),
        ..commands(&[VerbsCommand::RegisterMr], None, Some(5 * MS))
    })?;
    let began = std::time::Instant::now();
    assert_eq!(register(&mut a, 100), CommandStatus::Ok);
    assert!(began.elapsed() >= 5 * MS);
    assert_eq!(nic.remove_verbs_fault("rule")?.injected, 1);
    for bad in [
        VerbsFaultSpec {
            min_bytes: Some(1),
            ..commands(&[VerbsCommand::AllocPd], Some(CommandStatus::InUse), None)
        },
        commands(&[VerbsCommand::AllocPd], None, None),
        commands(&[VerbsCommand::AllocPd], None, Some(Duration::ZERO)),
        VerbsFaultSpec {
            min_bytes: Some(2),
            max_bytes: Some(1),
            ..refuse.clone()
        },
        VerbsFaultSpec {
            lasts: Some(Duration::ZERO),
            ..refuse.clone()
        },
        VerbsFaultSpec {
            min_bytes: Some(2),
            ..VerbsFaultSpec::new("rule", "a", VerbsFaultAction::NotReady { qp: None })
        },
    ] {
        let refused = nic.add_verbs_fault(bad.clone());
        assert!(matches!(refused, Err(NicError::Invalid { .. })), "{bad:?}");
    }
    world.finish()
}

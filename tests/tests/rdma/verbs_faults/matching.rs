//! What rules match beside kinds and queue pairs: processes, sizes and times.

use vnic_backend::ProcessMatch;

use super::*;

/// The name of this program, as the kernel keeps it.
fn own_name() -> Result<String> {
    Ok(std::fs::read_to_string("/proc/self/comm")?.trim_end().to_owned())
}

fn process(world: &World, adapter: &str) -> Result<Side> {
    let options = Options {
        shares: true,
        memory: 2 << 20,
        ..Options::default()
    };
    Ok(Side::new(Driver::start(world.socket(adapter), options)?))
}

#[test]
fn a_process_is_meant_by_its_number_or_its_program() -> Result<()> {
    let own = i32::try_from(std::process::id())?;
    let program = |name: &str| ProcessMatch::Program(name.to_owned());
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (process(&world, "a")?, process(&world, "b")?);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    let wr = Wr::new(1, Operation::Write, &[a.at(0, 8)]).remote(b.mr.iova, b.mr.rkey);
    for (process, hit) in [
        (ProcessMatch::Pid(own), true),
        (ProcessMatch::Pid(own + 1), false),
        (program(&own_name()?), true),
        (program("another"), false),
    ] {
        let rule = VerbsFaultSpec {
            process: Some(process.clone()),
            ..always(Kind::Write, Fault::Lie(Status::RemoteAccessError))
        };
        world.rig.nic.add_verbs_fault(rule)?;
        match hit {
            true => drop(a.fails(&mut qa, &wr, Status::RemoteAccessError)),
            false => drop(a.done(&mut qa, &wr)),
        }
        let last = world.rig.nic.remove_verbs_fault("rule")?;
        assert_eq!(
            (last.matched, last.injected),
            (hit.into(), hit.into()),
            "{process}"
        );
    }
    // The driver of a guest has no program that is known; its VMM has a number.
    drop((a, b));
    world.finish()?;
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    let wr = Wr::new(1, Operation::Write, &[a.at(0, 8)]).remote(b.mr.iova, b.mr.rkey);
    for (process, hit) in [(program(&own_name()?), false), (ProcessMatch::Pid(own), true)] {
        let rule = VerbsFaultSpec {
            process: Some(process),
            ..always(Kind::Write, Fault::Lie(Status::RemoteAccessError))
        };
        world.rig.nic.add_verbs_fault(rule)?;
        match hit {
            true => drop(a.fails(&mut qa, &wr, Status::RemoteAccessError)),
            false => drop(a.done(&mut qa, &wr)),
        }
        world.rig.nic.remove_verbs_fault("rule")?;
    }
    world.finish()
}

/// Completions that tell no length are of no size.
#[test]
fn sizes_are_of_completions_that_tell_one() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    let action = VerbsFaultAction::Completion {
        qp: None,
        kinds: Vec::new(),
        fault: Fault::Lie(Status::RemoteAccessError),
    };
    world.rig.nic.add_verbs_fault(VerbsFaultSpec {
        min_bytes: Some(100),
        max_bytes: Some(200),
        ..VerbsFaultSpec::new("rule", "a", action)
    })?;
    let wr = |operation, len| Wr::new(1, operation, &[a.at(0, len)]).remote(b.mr.iova, b.mr.rkey);
    let (write, reads) = (
        wr(Operation::Write, 150),
        [99, 100, 200, 201].map(|len| wr(Operation::Read, len)),
    );
    a.done(&mut qa, &write);
    a.done(&mut qa, &reads[0]);
    a.fails(&mut qa, &reads[1], Status::RemoteAccessError);
    a.fails(&mut qa, &reads[2], Status::RemoteAccessError);
    a.done(&mut qa, &reads[3]);
    world.finish()
}

#[test]
fn a_rule_acts_in_its_time() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_micros(10));
    let world = World::with_clock(clock.clone(), &["a", "b"])?;
    let ms = Duration::from_millis;
    let rule = VerbsFaultSpec {
        after: ms(10),
        lasts: Some(ms(5)),
        ..always(Kind::Write, Fault::Lie(Status::RemoteAccessError))
    };
    let mut p = Pair::of(world, rule)?;
    p.write(0);
    p.a.cq.good(0);
    clock.pass(ms(9));
    p.write(1);
    p.a.cq.good(1);
    clock.pass(ms(2));
    p.write(2);
    p.a.cq.expect(2, Status::RemoteAccessError);
    clock.pass(ms(3));
    p.write(3);
    p.a.cq.expect(3, Status::RemoteAccessError);
    clock.pass(ms(2));
    p.write(4);
    p.a.cq.good(4);
    assert_eq!(p.injected(), 2);
    p.world.finish()
}

/// A time is of the rule, not of the adapter: one that starts anew does not begin it again.
#[test]
fn a_restart_does_not_begin_the_time_anew() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_micros(10));
    let world = World::with_clock(clock.clone(), &["a", "b"])?;
    let ms = Duration::from_millis;
    world.rig.nic.add_verbs_fault(VerbsFaultSpec {
        lasts: Some(ms(5)),
        ..always(Kind::Write, Fault::Lie(Status::RemoteAccessError))
    })?;
    clock.pass(ms(6));
    world.rig.nic.restart_adapter("a")?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    let wr = Wr::new(1, Operation::Write, &[a.at(0, 8)]).remote(b.mr.iova, b.mr.rkey);
    a.done(&mut qa, &wr);
    world.finish()
}

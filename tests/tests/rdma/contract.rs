//! Every command of the contract with every end that it names (`proto/device/SPEC.md`, section 5.3): the table is read,
//! and a row of it that no test has seen is a failure.

mod connections;
mod flows;
mod framing;
mod memory;
mod pairs;
mod queues;
mod states;
mod whole;

use std::collections::BTreeSet;

use anyhow::Result;
use vnic_device::command::Opcode as O;
use vnic_device::status::CommandStatus as S;
use vnic_device::zerocopy::{Immutable, IntoBytes};
use vnic_tests::driver::rdma::{Driver, Reply, World, spec};

/// Ends that no test here can bring about, and why.
const NOT_HERE: &[(O, S, &str)] = &[
    (
        O::RegisterMr,
        S::OutOfRange,
        "max_mr_size is 2^64 - 1: nobody can share more",
    ),
    (O::ReregisterMr, S::OutOfRange, "as REGISTER_MR"),
    (O::AllocPd, S::LimitReached, "takes a million: limits.rs"),
    (O::CreateAh, S::LimitReached, "takes a million: limits.rs"),
    (O::AllocMw, S::LimitReached, "takes 262144: limits.rs"),
    (O::RegisterDmMr, S::LimitReached, "takes 524288: limits.rs"),
    (O::RegisterNullMr, S::LimitReached, "as REGISTER_DM_MR"),
    (O::RegisterOnDemandMr, S::LimitReached, "as REGISTER_DM_MR"),
    (O::Connect, S::LimitReached, "takes 65536: the engine's tests"),
    (
        O::CreateFlow,
        S::NotPermitted,
        "takes an adapter without flows: verbs/frames.rs",
    ),
];

/// The command ends so, with a text, and nothing has changed.
pub fn refused<B: IntoBytes + Immutable + ?Sized>(
    d: &mut Driver,
    opcode: O,
    body: &B,
    list: &[u8],
    status: S,
) -> Reply {
    let before = d.resources();
    let reply = d.command(opcode, body.as_bytes(), list);
    assert_eq!(reply.status, status, "{opcode:?}: {reply}");
    assert!(!reply.text().is_empty(), "{opcode:?} says nothing");
    assert_eq!(d.resources(), before, "{opcode:?} failed and changed something");
    reply
}

/// The command succeeds.
pub fn fine<B: IntoBytes + Immutable + ?Sized>(d: &mut Driver, opcode: O, body: &B, list: &[u8]) -> Reply {
    let reply = d.command(opcode, body.as_bytes(), list);
    assert_eq!(reply.status, S::Ok, "{opcode:?}: {reply}");
    reply
}

#[test]
fn every_command_has_every_end() -> Result<()> {
    let mut world = World::new(1, &["a", "b"])?;
    let mut seen = BTreeSet::new();
    type Part = fn(&mut World) -> Result<Driver>;
    let parts: [(&str, Part); 8] = [
        ("without RDMA", whole::not_permitted),
        ("framing", framing::all),
        ("reserved", framing::reserved),
        ("whole", whole::all),
        ("memory", memory::all),
        ("queues", queues::all),
        ("pairs", pairs::all),
        ("connections", connections::all),
    ];
    for (name, part) in parts {
        println!("{name}");
        let mut driver = part(&mut world)?;
        driver.mem.check_canaries()?;
        seen.extend(driver.seen.iter().copied());
        driver.hang_up();
    }
    let missing: Vec<_> = spec::ends()
        .into_iter()
        .filter(|(opcode, status)| !seen.contains(&(opcode.number(), status.number())))
        .filter(|end| !NOT_HERE.iter().any(|(o, s, _)| (*o, *s) == *end))
        .collect();
    assert!(missing.is_empty(), "not seen: {missing:?}");
    for (opcode, status, why) in NOT_HERE {
        assert!(
            !seen.contains(&(opcode.number(), status.number())),
            "{opcode:?} ends in {status:?} after all, though: {why}"
        );
    }
    // And nothing else than the contract says.
    let allowed = spec::ends();
    for (opcode, status) in seen {
        let (Some(opcode), Some(status)) = (O::from_number(opcode), S::from_number(status)) else {
            continue;
        };
        let anywhere = matches!(status, S::LimitReached);
        assert!(
            anywhere || allowed.contains(&(opcode, status)),
            "{opcode:?} ends in {status:?}, which its row does not have"
        );
    }
    world.finish()
}

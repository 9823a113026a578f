//! Programs that connect by rdma_cm: with our library, and with the kernel's communication management and Soft-RoCE, in either
//! machine.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use vnic_tests::lab::{Guest, wait_for};

use super::{PATIENCE, Side, World, begin, ended};

/// Server and client.
const PROGRAMS: [[&str; 2]; 6] = [
    [
        "rping -s -V -C 20 -S 4000",
        "rping -c -V -C 20 -S 4000 -a 10.0.0.2",
    ],
    ["ucmatose -c 3 -C 5", "ucmatose -c 3 -C 5 -s 10.0.0.2"],
    ["udaddy -c 2 -C 5", "udaddy -c 2 -C 5 -s 10.0.0.2"],
    [
        "ib_send_bw -R -F -n 50 -s 30000",
        "ib_send_bw -R -F -n 50 -s 30000 10.0.0.2",
    ],
    [
        "ib_write_bw -R -F -n 50 -s 65536",
        "ib_write_bw -R -F -n 50 -s 65536 10.0.0.2",
    ],
    [
        "ib_read_bw -R -F -n 50 -s 65536",
        "ib_read_bw -R -F -n 50 -s 65536 10.0.0.2",
    ],
];
/// With Soft-RoCE at one end, of the programs above: a connection's messages of both sides, datagrams, and data each way.
const WITH_SOFT: [usize; 4] = [0, 2, 3, 5];
/// With one percent of Soft-RoCE's frames lost.
const LOSSY: [usize; 2] = [0, 3];
/// How often a pair of perftest's programs is started. They connect twice, and the second time the client does not wait until the
/// server listens: if it comes first, it is rejected and ends, and its server waits for ever, with any device.
const STARTS: usize = 20;
/// What such a client prints.
const CAME_FIRST: &str = "RDMA_CM_EVENT_REJECTED; error: 8";

/// All programs between our functions; some with Soft-RoCE and the kernel's communication management as server, and as client; then
/// one percent of the frames that Soft-RoCE sends is lost.
pub fn programs(world: &mut World<'_>) -> Result<()> {
    use Side::{Ours, Soft};
    for guest in [&mut world.vms.one, &mut world.vms.two] {
        guest.ok("modprobe rdma_ucm && test -e /dev/infiniband/rdma_cm")?;
    }
    for program in PROGRAMS {
        one(world, [Ours, Ours], program, "")?;
    }
    for side in [Ours, Soft] {
        times(world, side)?;
    }
    for sides in [[Ours, Soft], [Soft, Ours]] {
        for program in WITH_SOFT {
            one(world, sides, PROGRAMS[program], "")?;
        }
    }
    lossy(&mut world.vms.one, "add")?;
    lossy(&mut world.vms.two, "add")?;
    for sides in [[Ours, Soft], [Soft, Ours]] {
        for program in LOSSY {
            one(world, sides, PROGRAMS[program], ", 1 % lost")?;
        }
    }
    lossy(&mut world.vms.one, "del")?;
    lossy(&mut world.vms.two, "del")
}

/// Frames that the machine's Ethernet driver sends: those of Soft-RoCE, not ours.
fn lossy(guest: &mut Guest, how: &str) -> Result<()> {
    guest.ok(&format!("tc qdisc {how} dev eth0 root netem loss 1%"))?;
    Ok(())
}

fn one(
    world: &mut World<'_>,
    [server, client]: [Side; 2],
    [first, second]: [&str; 2],
    how: &str,
) -> Result<()> {
    let name = format!(
        "{second} (server {}, client {}{how})",
        server.name(),
        client.name()
    );
    let mut starts = 0;
    loop {
        starts += 1;
        begin(&mut world.vms.two, "server", &server.command(first))?;
        listens(world, server).with_context(|| name.clone())?;
        begin(&mut world.vms.one, "client", &client.command(second))?;
        let (b, heard) = ended(&mut world.vms.one, "client").with_context(|| name.clone())?;
        if b != 0 {
            // Its server may wait for ever.
            world.vms.two.run("kill -KILL $(cat /tmp/server.pid)")?;
        }
        let (a, told) = ended(&mut world.vms.two, "server").with_context(|| name.clone())?;
        if b == 0 && a == 0 {
            break;
        }
        ensure!(
            starts < STARTS && heard.contains(CAME_FIRST),
            "{name}: the client ended with {b}:\n{heard}\nthe server ended with {a}:\n{told}"
        );
    }
    world.lab.step(&format!("{name}: pass (start {starts})"));
    world
        .report
        .push(json!({ "case": name, "result": "pass", "starts": starts }));
    Ok(())
}

/// Connections of one kind of device with its own, one behind the other: what a step takes, for the report.
fn times(world: &mut World<'_>, side: Side) -> Result<()> {
    begin(
        &mut world.vms.two,
        "server",
        &side.command("cmtime -b 10.0.0.2 -c 100"),
    )?;
    listens(world, side)?;
    begin(
        &mut world.vms.one,
        "client",
        &side.command("cmtime -s 10.0.0.2 -c 100"),
    )?;
    let (exit, told) = ended(&mut world.vms.one, "client")?;
    // Its server goes on for ever.
    world.vms.two.run("kill -KILL $(cat /tmp/server.pid)")?;
    let (_, heard) = ended(&mut world.vms.two, "server")?;
    let name = format!("cmtime -c 100 ({})", side.name());
    ensure!(
        exit == 0 && told.lines().any(|line| line.starts_with("connect ")),
        "{name}: the client ended with {exit}:\n{told}\nthe server printed:\n{heard}"
    );
    world.lab.step(&format!("{name}:\n{told}"));
    world
        .report
        .push(json!({ "case": name, "result": "pass", "printed": told }));
    Ok(())
}

/// Waits until the server that was begun listens for connections.
fn listens(world: &mut World<'_>, server: Side) -> Result<()> {
    match server {
        Side::Soft => world.listens("rdma resource show cm_id | grep -q LISTEN"),
        Side::Ours => {
            let daemon = world.daemon;
            wait_for("a listener of the adapter", PATIENCE, || {
                let answer = daemon.ctl(&["rdma", "connection", "list", "vf1"])?;
                let all = answer["connections"].as_array().context("connections")?;
                ensure!(
                    all.iter().any(|one| one["state"] == "STATE_LISTEN"),
                    "nobody listens: {answer}"
                );
                Ok(())
            })
        }
    }
}

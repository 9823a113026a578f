//! Programs that connect by rdma_cm: with our library, and with the kernel's communication management and Soft-RoCE, in either
//! machine.

use anyhow::{Result, ensure};
use serde_json::json;
use vnic_tests::lab::Guest;

use super::{Side, World, begin, ended};

/// Server and client. The client is started until there is a server. (udaddy and perftest's programs hang there at times: a client
/// that fails behind the connection is started again, and their servers wait for the first one.)
const PROGRAMS: [(&str, &str); 2] = [
    (
        "rping -s -V -C 20 -S 4000",
        "rping -c -V -C 20 -S 4000 -a 10.0.0.2",
    ),
    ("ucmatose -c 3 -C 5", "ucmatose -c 3 -C 5 -s 10.0.0.2"),
];
/// Starts a program until it succeeds: it does not while nobody listens.
const UNTIL: &str =
    r#"printf '%s\n' 'for i in $(seq 200); do "$@" && exit 0; sleep 0.2; done; exit 1' >/tmp/until"#;

/// All programs between our functions, and with Soft-RoCE and the kernel's communication management as server, and as client; then one
/// percent of the frames that Soft-RoCE sends is lost.
pub fn programs(world: &mut World<'_>) -> Result<()> {
    use Side::{Ours, Soft};
    for guest in [&mut world.vms.one, &mut world.vms.two] {
        guest.ok("modprobe rdma_ucm && test -e /dev/infiniband/rdma_cm")?;
        guest.ok(UNTIL)?;
    }
    for sides in [[Ours, Ours], [Ours, Soft], [Soft, Ours]] {
        for program in PROGRAMS {
            one(world, sides, program, "")?;
        }
    }
    lossy(&mut world.vms.one, "add")?;
    lossy(&mut world.vms.two, "add")?;
    for sides in [[Ours, Soft], [Soft, Ours]] {
        one(world, sides, PROGRAMS[0], ", 1 % lost")?;
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
    (first, second): (&str, &str),
    how: &str,
) -> Result<()> {
    begin(&mut world.vms.two, "server", &server.command(first))?;
    begin(
        &mut world.vms.one,
        "client",
        &format!("sh /tmp/until {}", client.command(second)),
    )?;
    let (a, told) = ended(&mut world.vms.one, "client")?;
    let (b, heard) = ended(&mut world.vms.two, "server")?;
    let name = format!(
        "{second} (server {}, client {}{how})",
        server.name(),
        client.name()
    );
    ensure!(
        a == 0 && b == 0,
        "{name}: the client ended with {a}:\n{told}\nthe server ended with {b}:\n{heard}"
    );
    world.lab.step(&format!("{name}: pass"));
    world.report.push(json!({ "case": name, "result": "pass" }));
    Ok(())
}

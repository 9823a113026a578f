//! Programs that connect by rdma_cm, in two machines with our library.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Side, World, begin, ended};

/// Server and client. The client is started until there is a server.
const PROGRAMS: [(&str, &str); 6] = [
    (
        "rping -s -V -C 20 -S 4000",
        "rping -c -V -C 20 -S 4000 -a 10.0.0.2",
    ),
    ("ucmatose -c 3 -C 5", "ucmatose -c 3 -C 5 -s 10.0.0.2"),
    ("udaddy -c 2 -C 5", "udaddy -c 2 -C 5 -s 10.0.0.2"),
    (
        "ib_send_bw -R -F -n 50 -s 30000",
        "ib_send_bw -R -F -n 50 -s 30000 10.0.0.2",
    ),
    (
        "ib_write_bw -R -F -n 50 -s 65536",
        "ib_write_bw -R -F -n 50 -s 65536 10.0.0.2",
    ),
    (
        "ib_read_lat -R -F -n 20 -s 4096",
        "ib_read_lat -R -F -n 20 -s 4096 10.0.0.2",
    ),
];
/// Starts a program until it succeeds: it does not while nobody listens.
const UNTIL: &str =
    r#"printf '%s\n' 'for i in $(seq 200); do "$@" && exit 0; sleep 0.2; done; exit 1' >/tmp/until"#;

/// All programs.
pub fn programs(world: &mut World<'_>) -> Result<()> {
    world.vms.one.ok(UNTIL)?;
    for (server, client) in PROGRAMS {
        begin(&mut world.vms.two, "server", &Side::Ours.command(server))?;
        let client = format!("sh /tmp/until {}", Side::Ours.command(client));
        begin(&mut world.vms.one, "client", &client)?;
        let (a, told) = ended(&mut world.vms.one, "client")?;
        let (b, heard) = ended(&mut world.vms.two, "server")?;
        let name = format!("{server} (both ours)");
        ensure!(
            a == 0 && b == 0,
            "{name}: the client ended with {a}:\n{told}\nthe server ended with {b}:\n{heard}"
        );
        world.lab.step(&format!("{name}: pass"));
        world.report.push(json!({ "case": name, "result": "pass" }));
    }
    Ok(())
}

//! A guest that moves between two daemons that a mesh joins, as operators have it: `vnicctl adapter export-migration`,
//! `prepare-migration`, `hand-over` and `cancel-migration`. Both daemons are killed meanwhile.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use vnic_backend::MacAddr;
use vnic_tests::driver::packets::{Number, numbered};
use vnic_tests::driver::rig::deadline;
use vnic_tests::driver::{Guest, NetHdr, Options};
use vnic_tests::lab::hosts::joined_by_a_mesh;
use vnic_tests::lab::{Host, PATIENCE, mesh_port, wait_for};

/// Nobody else is in their namespaces.
const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];

/// Address of the guest that moves.
const GUEST: MacAddr = MacAddr([2, 0, 0, 0, 0x0c, 0]);

/// Address of the guest of `vf1` at an end.
fn neighbour(end: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0x0d, end])
}

fn configuration(end: usize, dir: &Path) -> String {
    let mesh = mesh_port(end, dir, &ADDRESSES.map(|address| format!("{address}:4791")));
    let neighbour = neighbour(end as u8);
    format!(
        "[[adapter]]\nname = \"vf0\"\nmac = \"02:00:00:00:0c:0{end}\"\n[[adapter]]\nname = \"vf1\"\nmac = \"{neighbour}\"\n\
         [[port]]\nname = \"m0\"\n{mesh}"
    )
}

/// The guests: the one that moves, and one at each end.
struct Guests {
    moving: Guest,
    near: [Guest; 2],
    seq: u64,
}

fn frame(to: MacAddr, from: MacAddr, seq: u64) -> Vec<u8> {
    let n = Number {
        sender: 1,
        stream: 0,
        seq,
    };
    numbered(to, from, n, 200)
}

/// Sends a frame until the other guest has it: a mesh may lose one while a daemon comes back.
fn pass(from: &mut Guest, to: &mut Guest, frame: &[u8]) -> Result<()> {
    let end = deadline();
    loop {
        from.send_wait(0, frame, NetHdr::default());
        let soon = std::time::Instant::now() + std::time::Duration::from_millis(200);
        while let Some((_, _, got)) = to.recv(0, soon.min(end)) {
            if got == frame {
                return Ok(());
            }
        }
        ensure!(std::time::Instant::now() < end, "a frame does not come");
    }
}

impl Guests {
    /// Frames of the moving guest and of both neighbours, each way.
    fn talk(&mut self) -> Result<()> {
        for end in [0, 1] {
            let (near, mac) = (&mut self.near[usize::from(end)], neighbour(end));
            self.seq += 2;
            pass(near, &mut self.moving, &frame(GUEST, mac, self.seq))
                .with_context(|| format!("from the neighbour of {end}"))?;
            pass(&mut self.moving, near, &frame(mac, GUEST, self.seq + 1))
                .with_context(|| format!("to the neighbour of {end}"))?;
        }
        Ok(())
    }
}

fn shown(host: &Host) -> Result<Value> {
    host.ctl(&["adapter", "show", "vf0"])
}

fn mac(host: &Host) -> Result<String> {
    Ok(shown(host)?["macs"][0].as_str().context("no address")?.to_owned())
}

fn part(part: &str, here: bool) -> Value {
    json!({"part": part, "peer": "", "has_addresses": here})
}

/// Prepares the move of the guest of `from` to the adapter of `to`.
fn prepare(from: &Host, to: &Host) -> Result<()> {
    let document = from.ctl(&["adapter", "export-migration", "vf0"])?;
    let file = to.path("vf0.json");
    std::fs::write(&file, document.to_string())?;
    let file = file.display().to_string();
    to.ctl(&["adapter", "prepare-migration", "vf0", "--file", &file])?;
    Ok(())
}

fn joined(hosts: &[Host; 2]) -> Result<()> {
    for host in hosts {
        wait_for("a connected peer", PATIENCE, || {
            let port = host.ctl(&["port", "show", "m0"])?;
            ensure!(
                port["up"] == true && port["mesh"]["connections"][0]["connected"] == true,
                "{port}"
            );
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_guest_moves_between_daemons_that_are_killed_meanwhile() -> Result<()> {
    let Some((mut hosts, _dir)) = joined_by_a_mesh(ADDRESSES, configuration)? else {
        return Ok(());
    };
    moves(&mut hosts).map_err(|error| {
        let logs = hosts.each_ref().map(|h| format!("---- {}\n{}", h.name, h.log()));
        error.context(logs.concat())
    })
}

fn moves(hosts: &mut [Host; 2]) -> Result<()> {
    joined(hosts)?;
    let attach = |host: &Host, adapter: &str| Guest::attach(host.eth_socket(adapter), Options::default());
    let mut guests = Guests {
        moving: attach(&hosts[0], "vf0")?,
        near: [attach(&hosts[0], "vf1")?, attach(&hosts[1], "vf1")?],
        seq: 0,
    };
    guests.talk()?;
    hosts[0].ctl(&["registry", "set", "vf0", "TxMaxPostSendsCoalescing", "13"])?;

    prepare(&hosts[0], &hosts[1])?;
    let (at, to) = (shown(&hosts[0])?, shown(&hosts[1])?);
    ensure!(at["migration"] == part("PART_SOURCE", true), "{at}");
    ensure!(
        to["migration"] == part("PART_TARGET", false) && to["macs"] == at["macs"],
        "{to}"
    );
    let key = hosts[1].ctl(&["registry", "get", "vf0", "TxMaxPostSendsCoalescing"])?;
    ensure!(key.to_string().contains("13"), "{key}");
    guests.talk()?;
    for (host, adapter) in [(0, "vf0"), (1, "vf0")] {
        let why = hosts[host].refusal(&["adapter", "hand-over", adapter])?;
        ensure!(why.contains("guest"), "{why}");
    }

    // Both daemons are killed: the move stays prepared, and the guest goes on where it is.
    hosts[0].kill_and_restart()?;
    hosts[1].kill_and_restart()?;
    guests.moving.connect(hosts[0].eth_socket("vf0"))?;
    for end in [0, 1] {
        guests.near[end].connect(hosts[end].eth_socket("vf1"))?;
    }
    joined(hosts)?;
    guests.talk()?;
    let to = shown(&hosts[1])?;
    ensure!(
        to["migration"] == part("PART_TARGET", false) && to["macs"] == at["macs"],
        "{to}"
    );

    // The guest moves; the target's daemon is killed once more before the move is over.
    guests.moving.detach()?;
    guests.moving.connect(hosts[1].eth_socket("vf0"))?;
    guests.talk()?;
    let (from, to) = (shown(&hosts[0])?, shown(&hosts[1])?);
    ensure!(from["migration"] == part("PART_SOURCE", false), "{from}");
    ensure!(to["migration"] == part("PART_TARGET", true), "{to}");
    let why = hosts[1].refusal(&["adapter", "cancel-migration", "vf0"])?;
    ensure!(why.contains("runs on vf0 already"), "{why}");
    hosts[1].kill_and_restart()?;
    guests.moving.connect(hosts[1].eth_socket("vf0"))?;
    guests.near[1].connect(hosts[1].eth_socket("vf1"))?;
    joined(hosts)?;
    guests.talk()?;

    for host in hosts.iter() {
        host.ctl(&["adapter", "hand-over", "vf0"])?;
        ensure!(shown(host)?["migration"].is_null(), "{}", shown(host)?);
    }
    guests.talk()?;
    let left = mac(&hosts[0])?;
    ensure!(left != GUEST.to_string() && mac(&hosts[1])? == GUEST.to_string());
    let events = hosts[1].ctl(&["event", "list"])?.to_string();
    for kind in ["migration_switched", "migration_done"] {
        ensure!(events.contains(kind), "no {kind}: {events}");
    }

    // The configuration has other addresses: what the move has made holds.
    for host in hosts.iter_mut() {
        host.kill_and_restart()?;
    }
    ensure!(mac(&hosts[0])? == left && mac(&hosts[1])? == GUEST.to_string());
    guests.moving.connect(hosts[1].eth_socket("vf0"))?;
    for end in [0, 1] {
        guests.near[end].connect(hosts[end].eth_socket("vf1"))?;
    }
    joined(hosts)?;
    guests.talk()?;

    // A move back that is given up leaves nothing behind.
    prepare(&hosts[1], &hosts[0])?;
    ensure!(mac(&hosts[0])? == GUEST.to_string());
    for host in hosts.iter() {
        host.ctl(&["adapter", "cancel-migration", "vf0"])?;
        ensure!(shown(host)?["migration"].is_null(), "{}", shown(host)?);
    }
    ensure!(mac(&hosts[0])? == left && mac(&hosts[1])? == GUEST.to_string());
    guests.talk()
}

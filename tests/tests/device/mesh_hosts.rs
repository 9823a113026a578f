//! RDMA between two hosts whose daemons are joined by ports of type `mesh`. Hosts are network namespaces of this test's own,
//! with a wire between their kernels; the daemons themselves take no device.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use vnic_tests::lab::hosts::joined_by_a_mesh;
use vnic_tests::lab::load::Pairs;
use vnic_tests::lab::{Host, PATIENCE, mesh_port, wait_for};

/// Nobody else is in their namespaces.
const ADDRESSES: [&str; 2] = ["10.79.0.1", "10.79.0.2"];

fn configuration(i: usize, dir: &Path) -> String {
    let mesh = mesh_port(i, dir, &ADDRESSES.map(|address| format!("{address}:4790")));
    format!(
        "[[adapter]]\nname = \"vf0\"\nmac = \"02:00:00:00:0b:0{i}\"\nmtu = 9000\n\
         [[port]]\nname = \"m0\"\nmtu = 9000\n{mesh}"
    )
}

#[test]
fn rdma_between_hosts_that_a_mesh_joins() -> Result<()> {
    let Some((hosts, _dir)) = joined_by_a_mesh(ADDRESSES, configuration)? else {
        return Ok(());
    };
    carry(&hosts).map_err(|error| {
        let logs = hosts.each_ref().map(|h| format!("---- {}\n{}", h.name, h.log()));
        error.context(logs.concat())
    })
}

fn carry(hosts: &[Host; 2]) -> Result<()> {
    let [a, b] = hosts;
    let peer = |host: &Host| -> Result<Value> {
        let port = host.ctl(&["port", "show", "m0"])?;
        let peer = port["mesh"]["connections"][0].clone();
        ensure!(port["up"] == true && peer["connected"] == true, "{port}");
        Ok(peer)
    };
    for host in hosts {
        wait_for("a connected peer", PATIENCE, || peer(host))?;
    }
    let pairs = Pairs::connect([a, b], 4)?;
    let mut before = peer(a)?;
    let shown = loop {
        // 4 queue pairs, 2 writes of 6000 bytes each under way: 9.6 MB, each byte is looked at.
        pairs.write(200)?;
        let shown = wait_for("a connected peer", PATIENCE, || peer(a))?;
        // Both have called each other, and of two connections one stays: it counts from its own beginning.
        if shown["since"] == before["since"] {
            break shown;
        }
        before = shown;
    };
    let sent = shown["tx_bytes"].as_u64().context("no count")?;
    ensure!(sent > 9_000_000, "{shown}");
    ensure!(shown["rx_malformed"].as_u64().unwrap_or(0) == 0, "{shown}");
    // The wire carries 1500 bytes: frames of RDMA travel in pieces.
    ensure!(
        shown["max_datagram"].as_u64().is_some_and(|n| n < 1500),
        "{shown}"
    );

    // What is lost is sent again.
    for host in hosts {
        host.ctl(&[
            "fault",
            "add",
            "lossy",
            "--to",
            "m0",
            "--probability",
            "1%",
            "--drop",
        ])?;
    }
    pairs.write(50)?;
    Ok(())
}

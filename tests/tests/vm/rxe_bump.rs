//! A bump in the wire between two NICs that are not ours: the kernel's Soft-RoCE in two machines.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, ensure};
use serde_json::json;
use vnic_tests::lab::bump::sum;
use vnic_tests::lab::rxe::{Connect, Kind, Mr, Post};
use vnic_tests::lab::{self, Guest, GuestSpec, RxePeer, Wire};

/// WRITEs of a run, and bytes of each: 8 packets.
const WRITES: u64 = 60;
const LEN: u64 = 8192;
const ROOM: u64 = WRITES * LEN;

fn address(end: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + end as u8))
}

#[test]
fn what_is_put_between_two_machines_with_soft_roce_is_found() {
    lab::case("vm-rxe-bump", |lab| {
        let wire = match Wire::new()? {
            Ok(wire) => wire,
            Err(why) => {
                lab::skip(lab.name(), &why);
                return Ok(());
            }
        };
        let boot = |end: usize| -> Result<Guest> {
            let host = &wire.ends[end];
            let mac = format!("02:00:00:00:0b:0{}", end + 1);
            let mut spec = GuestSpec::new(
                &format!("vm{}", end + 1),
                &host.eth_socket("vf0"),
                &mac,
                &format!("{}/24", address(end)),
            );
            spec.rxe = true;
            spec.device.push("rx_queue_size=1024".to_owned());
            Guest::qemu(lab, &spec)
        };
        let guests = [boot(0)?, boot(1)?];
        let mut peers = Vec::new();
        for mut guest in guests {
            guest.wait_ready()?;
            guest.has_network()?;
            peers.push(RxePeer::start(guest)?);
        }
        let [near, far] = &mut peers[..] else {
            unreachable!("two machines")
        };
        let (from, to) = (near.mr(ROOM, "lwra")?, far.mr(ROOM, "lwra")?);
        lab.step("two machines with Soft-RoCE are up");

        let mut seed = 0;
        let mut run = |scenario: &str| {
            seed += 1000;
            // Soft-RoCE does not answer marks.
            let found = wire.run(scenario, &["--no-cnp"], || write(near, &from, far, &to, seed))?;
            ensure!(
                found["flows"].as_array().is_some_and(|flows| flows.len() == 1),
                "{scenario}: {found}"
            );
            lab.step(scenario);
            Ok(found)
        };
        let found = run("drop-one")?;
        ensure!(
            found["dropped_frames"] == 1 && sum(&found, "gaps") >= 1 && sum(&found, "naks") >= 1,
            "{found}"
        );
        let found = run("drop-twice")?;
        ensure!(found["dropped_frames"] == 2, "{found}");
        let found = run("corrupt-one")?;
        ensure!(sum(&found, "corrupt") == 1 && sum(&found, "naks") >= 1, "{found}");
        let found = run("mark-some")?;
        // Soft-RoCE does not react to marks.
        ensure!(
            sum(&found, "marked") > 0 && found["notifications"] == json!([]),
            "{found}"
        );
        run("lose-acks")?;
        let found = run("swap-some")?;
        ensure!(sum(&found, "gaps") > 0 && sum(&found, "naks") > 0, "{found}");
        Ok(())
    });
}

/// Writes from one machine to the other, over new queue pairs, and compares every byte.
fn write(near: &mut RxePeer, from: &Mr, far: &mut RxePeer, to: &Mr, seed: u64) -> Result<()> {
    let (a, b) = (near.qp(Kind::Rc, "sq=64")?, far.qp(Kind::Rc, "sq=64")?);
    let sgids = [near.gid_index(address(0))?, far.gid_index(address(1))?];
    let connect = |end: usize, dest_qpn| Connect {
        remote: address(1 - end),
        dest_qpn,
        mtu: 1024,
        rq_psn: 0xff_fff0,
        sq_psn: 0xff_fff0,
        sgid: sgids[end],
        // (Capable of ECN: others are not marked.)
        more: "timeout=16 tclass=2".to_owned(),
    };
    near.connect(a, &connect(0, b.qpn))?;
    far.connect(b, &connect(1, a.qpn))?;
    near.fill_many(from, seed, 0, LEN, WRITES, LEN)?;
    let post = Post::new("write", from, 0, LEN)
        .to(to.addr, to.rkey)
        .times(WRITES, LEN)
        .with(&format!("rstep={LEN}"));
    near.burst(a, &post, 8)?;
    far.check_many(to, seed, 0, LEN, WRITES, LEN)?;
    near.destroy_qp(a)?;
    far.destroy_qp(b)
}

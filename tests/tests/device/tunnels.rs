//! Frames of tunnels: the packet inside decides about queue and hash, by the driver's choice or by the keys; checksums inside are finished.

use std::collections::BTreeSet;

use anyhow::Result;
use vhost::vhost_user::VhostUserFrontend as _;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vnic_backend::settings::{AdapterSettings, TunnelKeys};
use vnic_backend::{MacAddr, PortKind, PortSpec};
use vnic_tests::driver::packets::{eth, udp, udp_partial};
use vnic_tests::driver::rig::{Copies, Rig, wait_for};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options, feature};

use crate::control_queue::{ERR, OK, flow, pair, through, toeplitz};

const VXLAN: u32 = 1 << 4;
const NVGRE: u32 = 1 << 8;
/// Stations of the frames inside.
const INSIDE: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 7, 1]), MacAddr([2, 0, 0, 0, 7, 2])];

/// A frame in a VXLAN packet to this port; what is outside is always the same.
fn vxlan(macs: [MacAddr; 2], port: u16, inner: &[u8]) -> Vec<u8> {
    let mut frame = udp(&flow(macs, 0xdddd), &[&[8, 0, 0, 0, 0, 0, 5, 0], inner].concat());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[40..42].copy_from_slice(&[0; 2]);
    frame
}

/// A frame in an NVGRE packet.
fn nvgre(macs: [MacAddr; 2], inner: &[u8]) -> Vec<u8> {
    let mut frame = udp(&flow(macs, 0), &[]);
    frame.truncate(34);
    frame[23] = 47;
    frame.extend([0x20, 0, 0x65, 0x58, 0, 0, 5, 0]);
    frame.extend(inner);
    frame
}

fn inside(port: u16) -> Vec<u8> {
    udp(&flow(INSIDE, port), b"inside")
}

/// Addresses and ports of a UDP frame.
fn input(frame: &[u8]) -> Vec<u8> {
    [&frame[26..34], &frame[34..38]].concat()
}

fn key() -> [u8; 40] {
    std::array::from_fn(|i| (i as u8).wrapping_mul(73).wrapping_add(11))
}

fn choose(b: &mut Guest, types: u32) -> Result<Vec<u8>> {
    b.command(&[&[7, 0][..], &types.to_le_bytes()].concat(), 1)
}

/// VIRTIO_NET_F_HASH_TUNNEL: the driver says which tunnels are looked into; what it is told is the hash that chose the queue.
#[test]
fn a_driver_chooses_tunnels() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let features = feature::HASH_REPORT | feature::HASH_TUNNEL;
    let (mut a, mut b, macs) = pair(&mut rig, 4, features)?;
    let (_, space) = b
        .frontend()?
        .get_config(24, 4, VhostUserConfigFlags::empty(), &[0; 4])?;
    assert_eq!(space, 0x1d3u32.to_le_bytes());
    let table = [3, 1, 0, 2, 2, 0, 1, 3];
    assert_eq!(b.rss(&table, &key())?, OK);
    let mut spread =
        |rig: &Rig, b: &mut Guest, looks: bool, frame: &dyn Fn(&[u8]) -> Vec<u8>| -> Result<usize> {
            let mut used = BTreeSet::new();
            for port in 1000..1040 {
                let inner = inside(port);
                let frame = frame(&inner);
                let queue = through(rig, &mut a, b, &frame)?.expect("a frame");
                let (hashed, report) = match frame[23] {
                    _ if looks => (input(&inner), 3),
                    17 => (input(&frame), 3),
                    _ => (frame[26..34].to_vec(), 1),
                };
                let hash = toeplitz(&key(), &hashed);
                assert_eq!(
                    (b.hash, queue),
                    ((hash, report), table[hash as usize % 8]),
                    "port {port}"
                );
                used.insert(queue);
            }
            Ok(used.len())
        };
    let in_vxlan = |inner: &[u8]| vxlan(macs, 4789, inner);
    let in_nvgre = |inner: &[u8]| nvgre(macs, inner);
    // Until the driver says something, outer packets count.
    assert_eq!(spread(&rig, &mut b, false, &in_vxlan)?, 1);
    assert_eq!(choose(&mut b, VXLAN)?, OK);
    assert_eq!(spread(&rig, &mut b, true, &in_vxlan)?, 4);
    assert_eq!(spread(&rig, &mut b, false, &in_nvgre)?, 1);
    assert_eq!(choose(&mut b, VXLAN | NVGRE)?, OK);
    assert_eq!(spread(&rig, &mut b, true, &in_nvgre)?, 4);
    // VXLAN-GPE is not offered.
    assert_eq!(choose(&mut b, VXLAN | 1 << 5)?, ERR);
    assert_eq!(spread(&rig, &mut b, true, &in_vxlan)?, 4);
    assert_eq!(choose(&mut b, 0)?, OK);
    assert_eq!(spread(&rig, &mut b, false, &in_vxlan)?, 1);
    rig.finish(Copies::Extra(0))
}

/// The keys choose for a driver that does not know of tunnels: by them the queue, but not the hash that it is told.
#[test]
fn keys_choose_tunnels() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (mut a, b, macs) = pair(&mut rig, 4, feature::HASH_REPORT)?;
    drop(b);
    rig.state("b", vnic_backend::AttachState::Detached)?;
    type Change = fn(&mut TunnelKeys);
    let rows: [(&str, Change, [bool; 3]); 5] = [
        ("as they are", |_| {}, [true, false, true]),
        ("no VXLAN", |t| t.vxlan = false, [false, false, true]),
        ("no NVGRE", |t| t.nvgre = false, [true, false, false]),
        ("none", |t| t.any = false, [false, false, false]),
        ("another port", |t| t.vxlan_port = 8472, [false, true, true]),
    ];
    for (name, change, expected) in rows {
        let mut settings = AdapterSettings::default();
        change(&mut settings.offloads.tunnels);
        rig.nic.configure_adapter("b", &settings)?;
        rig.nic.restart_adapter("b")?;
        let features = feature::CTRL_VQ | feature::MQ | feature::RSS | feature::HASH_REPORT;
        let options = Options {
            pairs: 4,
            ..Options::default().with(features)
        };
        let mut b = rig.attach("b", options)?;
        assert_eq!(b.rss(&[0, 1, 2, 3], &key())?, OK, "{name}");
        for (i, expected) in expected.into_iter().enumerate() {
            let frame = |inner: &[u8]| match i {
                0 => vxlan(macs, 4789, inner),
                1 => vxlan(macs, 8472, inner),
                _ => nvgre(macs, inner),
            };
            let (mut used, mut told) = (BTreeSet::new(), BTreeSet::new());
            for port in 1000..1040 {
                used.insert(through(&rig, &mut a, &mut b, &frame(&inside(port)))?);
                told.insert(b.hash);
            }
            assert_eq!((used.len() > 1, told.len()), (expected, 1), "{name}");
        }
        b.detach()?;
        rig.state("b", vnic_backend::AttachState::Detached)?;
    }
    rig.finish(Copies::Extra(0))
}

/// Automatic steering, without a control queue of the adapter's own: the packet inside comes by the queue by which the guest sends its flow.
#[test]
fn what_is_inside_comes_where_it_was_sent() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let a = rig.add("a")?;
    let b = rig.add_with("b", |spec| spec.queue_pairs = 4)?;
    let mut sender = rig.attach("a", Options::default())?;
    let options = Options {
        pairs: 4,
        ..Options::default()
    };
    let mut guest = rig.attach("b", options)?;
    for (port, by) in (0..16).map(|i| (1000 + i, i % 4)) {
        let there = inside(port);
        let mut back = eth(INSIDE[0], INSIDE[1], [0x08, 0x00], &there[14..]);
        back[26..30].copy_from_slice(&there[30..34]);
        back[30..34].copy_from_slice(&there[26..30]);
        back[34..36].copy_from_slice(&there[36..38]);
        back[36..38].copy_from_slice(&there[34..36]);
        guest.send_wait(by, &vxlan([b, a], 4789, &back), NetHdr::default());
        guest.drain();
        rig.settle()?;
        assert!(sender.try_recv(0).is_some());
        let frame = vxlan([a, b], 4789, &there);
        assert_eq!(
            through(&rig, &mut sender, &mut guest, &frame)?,
            Some(by),
            "port {port}"
        );
    }
    rig.finish(Copies::Extra(0))
}

/// A request for the checksum inside passes to a guest that takes it, and is finished for one that does not.
#[test]
fn the_checksum_inside_is_the_nics_work() -> Result<()> {
    for takes in [true, false] {
        let mut rig = Rig::new(1)?;
        let macs = [rig.add("a")?, rig.add("b")?];
        let mut a = rig.attach("a", Options::default().with(OFFLOADS))?;
        let features = if takes { OFFLOADS } else { 0 };
        let mut b = rig.attach("b", Options::default().with(features))?;
        for port in 2000..2020 {
            let (inner, request) = udp_partial(&flow(INSIDE, port), b"inside, unfinished");
            let frame = vxlan(macs, 4789, &inner);
            let hdr = NetHdr {
                csum_start: request.csum_start + 50,
                ..request
            };
            a.send_wait(0, &frame, hdr);
            a.drain();
            rig.settle()?;
            let (got, _, bytes) = b.try_recv(0).expect("a frame");
            if takes {
                assert_eq!((got.flags, got.csum_start), (NetHdr::NEEDS_CSUM, 84));
                assert_eq!(bytes, frame);
            } else {
                assert_eq!(got, NetHdr::default());
                // The whole, made by another: etherparse computes the checksum.
                assert_eq!(
                    bytes,
                    vxlan(macs, 4789, &udp(&flow(INSIDE, port), b"inside, unfinished"))
                );
            }
        }
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// `*VxlanUDPPortNumber` is the adapter's: frames of both uplinks follow, and another adapter's go by its own.
#[test]
fn the_port_of_vxlan_counts_on_every_uplink() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let mut ends = Vec::new();
    for name in ["p0", "p1"] {
        let kind = PortKind::Mesh { label: name.into() };
        ends.push(rig.nic.add_port_exchange(PortSpec::new(name, kind))?.1);
        rig.nic.set_port_link(name, true, None)?;
    }
    let mut guests = Vec::new();
    for (name, port) in [("a", 8472), ("b", 4789)] {
        let mac = rig.add_with(name, |spec| (spec.control_queue, spec.queue_pairs) = (true, 4))?;
        let mut settings = AdapterSettings::default();
        settings.offloads.tunnels.vxlan_port = port;
        rig.nic.configure_adapter(name, &settings)?;
        rig.nic.restart_adapter(name)?;
        let features = feature::CTRL_VQ | feature::MQ | feature::RSS;
        let options = Options {
            pairs: 4,
            ..Options::default().with(features)
        };
        let mut guest = rig.attach(name, options)?;
        assert_eq!(guest.rss(&[0, 1, 2, 3], &key())?, OK);
        guests.push((guest, mac, port));
    }
    for (i, end) in ends.iter_mut().enumerate() {
        let outside = MacAddr([2, 0, 0, 0, 9, i as u8]);
        for (guest, mac, own) in &mut guests {
            for port in [4789, 8472] {
                let mut used = BTreeSet::new();
                for inner in 1000..1040 {
                    let frame = vxlan([outside, *mac], port, &inside(inner));
                    assert!(end.tx.put_or_lose(&frame));
                    end.tx.flush();
                    let mut came = None;
                    assert!(wait_for(|| {
                        came = guest.try_recv_any();
                        came.is_some()
                    }));
                    let (queue, _, got) = came.expect("a frame");
                    assert_eq!(got, frame);
                    used.insert(queue);
                }
                assert_eq!(used.len() > 1, port == *own, "port {port} on uplink {i}");
            }
        }
    }
    for (mut guest, ..) in guests {
        guest.detach()?;
    }
    rig.finish(Copies::Unknown)
}

//! Who has an address that several adapters claim, and who may know it: the first, in its VLAN.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Result, ensure};
use vnic_backend::{Claim, DropReason, GidKind, GidSetting, MacAddr, NicEventKind, VlanMode};
use vnic_device::command::Opcode;
use vnic_device::command::device::GidRecord;
use vnic_device::command::qp::{AddressVector, CreateAh};
use vnic_device::command::{NONE, Object};
use vnic_device::status::CommandStatus as S;
use vnic_device::zerocopy::IntoBytes;
use vnic_tests::driver::packets::{BROADCAST, eth, tagged};
use vnic_tests::driver::rdma::{Side, World};
use vnic_tests::driver::rig::wait_for;
use vnic_tests::driver::{NetHdr, Options};
use vnic_wire::gid::Gid;
use vnic_wire::{arp, ipv6, nd};

/// The address that everybody wants, and where those who have it have it.
const WANTED: [u8; 4] = [10, 0, 0, 9];
const AT: u16 = 40;
/// Where everybody has an IPv4 address of its own.
const OWN: u16 = 50;

fn mapped(ip: [u8; 4]) -> [u8; 16] {
    Ipv4Addr::from(ip).to_ipv6_mapped().octets()
}

/// Sets an entry, or clears it.
fn set(side: &mut Side, index: u16, ip: Option<[u8; 4]>, vlan: u16) -> S {
    let record = GidRecord {
        gid: ip.map(mapped).unwrap_or_default(),
        index,
        vlan,
        kind: if ip.is_some() { 2 } else { 0 },
        ..GidRecord::default()
    };
    side.d.status(Opcode::SetGid, record.as_bytes(), &[])
}

fn claim(side: &mut Side) {
    assert_eq!(set(side, AT, Some(WANTED), 0), S::Ok);
}

fn give_back(side: &mut Side) {
    assert_eq!(set(side, AT, None, 0), S::Ok);
}

/// The Ethernet address that the device finds for the wanted one, from entry `OWN`.
fn found(side: &mut Side) -> Option<MacAddr> {
    let body = CreateAh {
        pd: side.pd,
        address: AddressVector {
            dgid: mapped(WANTED),
            sgid_index: OWN,
            hop_limit: 64,
            ..AddressVector::default()
        },
        ..CreateAh::default()
    };
    let made: Object = match side.d.ask(Opcode::CreateAh, &body, &[]) {
        Ok(made) => made,
        Err(reply) => {
            assert_eq!(reply.status, S::Unreachable, "{reply}");
            return None;
        }
    };
    assert_ne!(made.handle, NONE);
    let address: AddressVector = side.d.ask(Opcode::QueryAh, &made, &[]).expect("QUERY_AH");
    side.d.end(Opcode::DestroyAh, made.handle).expect("DESTROY_AH");
    Some(MacAddr(address.dmac))
}

/// A driver with an IPv4 address of its own, and its adapter's Ethernet address.
fn side(world: &World, name: &str, last: u8) -> Result<(Side, MacAddr)> {
    let mut side = world.side(name)?;
    assert_eq!(set(&mut side, OWN, Some([10, 0, 0, last]), 0), S::Ok);
    let mac = MacAddr(side.d.gid().mac);
    Ok((side, mac))
}

#[test]
fn the_first_keeps_an_address_until_it_gives_it_back() -> Result<()> {
    for cores in [1, 2] {
        let mut world = World::new(cores, &["a", "evil", "asks"])?;
        let (mut a, first) = side(&world, "a", 1)?;
        let (mut evil, second) = side(&world, "evil", 2)?;
        let (mut asks, _) = side(&world, "asks", 3)?;
        assert_eq!(found(&mut asks), None);
        claim(&mut a);
        assert_eq!(found(&mut asks), Some(first));
        claim(&mut evil);
        world.rig.wait_event("evil", |k| {
            matches!(k, NicEventKind::GidConflict(c)
                if c.gid == mapped(WANTED) && c.vlan == 1 && c.other == first && !c.ours)
        })?;
        assert_eq!(found(&mut asks), Some(first));
        // A claim that was withdrawn leaves nothing behind.
        give_back(&mut evil);
        assert_eq!(found(&mut asks), Some(first));
        // The next one has it when the first gives it back, and keeps it then.
        claim(&mut evil);
        give_back(&mut a);
        assert_eq!(found(&mut asks), Some(second));
        claim(&mut a);
        assert_eq!(found(&mut asks), Some(second));
        // What a driver has set goes with it.
        drop(evil);
        ensure!(wait_for(|| found(&mut asks) == Some(first)));
        let told = world
            .rig
            .count_events("asks", |k| matches!(k, NicEventKind::GidConflict(_)));
        assert_eq!(told, 0);
        drop((a, asks));
        world.finish()?;
    }
    Ok(())
}

/// Who claims again and again makes no more than an event a second.
#[test]
fn conflicts_are_not_told_without_end() -> Result<()> {
    let mut world = World::new(1, &["a", "evil"])?;
    let (mut a, _) = side(&world, "a", 1)?;
    let (mut evil, _) = side(&world, "evil", 2)?;
    claim(&mut a);
    let start = std::time::Instant::now();
    for _ in 0..500 {
        claim(&mut evil);
        give_back(&mut evil);
    }
    world
        .rig
        .wait_event("evil", |k| matches!(k, NicEventKind::GidConflict(_)))?;
    let most = start.elapsed().as_secs() as usize + 2;
    let told = world
        .rig
        .count_events("evil", |k| matches!(k, NicEventKind::GidConflict(_)));
    ensure!(told <= most, "{told} events");
    drop((a, evil));
    world.finish()
}

#[test]
fn the_operators_word_comes_before_that_of_guests() -> Result<()> {
    let world = World::new(1, &["a", "evil", "asks"])?;
    let (mut evil, second) = side(&world, "evil", 2)?;
    let (mut asks, _) = side(&world, "asks", 3)?;
    claim(&mut evil);
    assert_eq!(found(&mut asks), Some(second));
    let setting = GidSetting {
        gid: mapped(WANTED),
        kind: GidKind::RoceV2,
        vlan: None,
    };
    world.rig.nic.set_gid("a", Some(AT), Some(setting))?;
    let (a, first) = side(&world, "a", 1)?;
    assert_eq!(found(&mut asks), Some(first));
    world.rig.nic.set_gid("a", Some(AT), None)?;
    assert_eq!(found(&mut asks), Some(second));
    drop((a, evil, asks));
    world.finish()
}

#[test]
fn vlans_are_networks_of_their_own() -> Result<()> {
    let mut world = World::new(1, &[])?;
    for (name, vlan) in [("a", 10), ("b", 20), ("asks10", 10), ("asks20", 20)] {
        world.add_with(name, |spec| spec.vlan = VlanMode::Access(vlan))?;
    }
    world.add("trunk", 1500)?;
    let (mut a, in10) = side(&world, "a", 1)?;
    let (mut b, in20) = side(&world, "b", 2)?;
    let (mut asks10, _) = side(&world, "asks10", 3)?;
    let (mut asks20, _) = side(&world, "asks20", 4)?;
    let (mut trunk, _) = side(&world, "trunk", 5)?;
    claim(&mut a);
    // Nobody in another VLAN learns that there is one.
    assert_eq!(found(&mut asks10), Some(in10));
    assert_eq!(found(&mut asks20), None);
    assert_eq!(found(&mut trunk), None);
    claim(&mut b);
    assert_eq!((found(&mut asks10), found(&mut asks20)), (Some(in10), Some(in20)));
    let told = ["a", "b"].map(|name| {
        world
            .rig
            .count_events(name, |k| matches!(k, NicEventKind::GidConflict(_)))
    });
    assert_eq!(told, [0, 0]);
    // An access port has no tags; a trunk sees the VLAN that it names.
    for vlan in [10, 20] {
        assert_eq!(set(&mut b, AT + 1, Some([10, 0, 0, 7]), vlan), S::NotPermitted);
    }
    for (vlan, there) in [(10, in10), (20, in20)] {
        assert_eq!(set(&mut trunk, OWN, Some([10, 0, 0, 5]), vlan), S::Ok);
        assert_eq!(found(&mut trunk), Some(there));
    }
    // An adapter moves when it is restarted, and its addresses with it.
    let moves = MacAddr(trunk.d.gid().mac);
    drop(trunk);
    give_back(&mut b);
    let setting = GidSetting {
        gid: mapped(WANTED),
        kind: GidKind::RoceV2,
        vlan: None,
    };
    world.rig.nic.set_gid("trunk", Some(AT), Some(setting))?;
    assert_eq!(found(&mut asks20), None);
    let mut settings = world.rig.nic.adapter("trunk")?.settings;
    settings.vlan_id = 20;
    world.rig.nic.configure_adapter("trunk", &settings)?;
    world.rig.nic.restart_adapter("trunk")?;
    assert_eq!(found(&mut asks20), Some(moves));
    assert_eq!(found(&mut asks10), Some(in10));
    drop((a, b, asks10, asks20));
    world.finish()
}

/// Gratuitous ARP for an address that is another's.
#[test]
fn arp_takes_no_address_away() -> Result<()> {
    let mut world = World::new(1, &["a", "evil", "asks"])?;
    let (mut a, first) = side(&world, "a", 1)?;
    let (mut asks, _) = side(&world, "asks", 3)?;
    claim(&mut a);
    let mut guest = world.rig.attach("evil", Options::default())?;
    let mac = world.rig.nic.adapter("evil")?.spec.macs[0];
    let announcement = arp::Header {
        operation: arp::REQUEST,
        sender_mac: mac,
        sender_ip: WANTED,
        target_mac: MacAddr::default(),
        target_ip: WANTED,
    };
    let frame = eth(BROADCAST, mac, [0x08, 0x06], &announcement.emit());
    guest.send_wait(0, &frame, NetHdr::default());
    world
        .rig
        .wait_event("evil", |k| matches!(k, NicEventKind::GidConflict(_)))?;
    assert_eq!(found(&mut asks), Some(first));
    // It has it when nobody else has.
    give_back(&mut a);
    assert_eq!(found(&mut asks), Some(mac));
    drop((a, asks, guest));
    world.finish()
}

#[test]
fn an_address_that_is_not_allowed_is_never_had() -> Result<()> {
    for cores in [1, 2] {
        let mut world = World::new(cores, &["asks"])?;
        let prefix = |p: &str| p.parse().expect("a prefix");
        world.add_with("pinned", |spec| {
            spec.allowed_addresses = vec![prefix("10.0.0.2"), prefix("fd00::/64")];
        })?;
        let (mut asks, _) = side(&world, "asks", 3)?;
        let (mut pinned, mac) = side(&world, "pinned", 2)?;
        assert_eq!(set(&mut pinned, AT, Some(WANTED), 0), S::NotPermitted);
        assert_eq!(found(&mut asks), None);
        let mut guest = world.rig.attach("pinned", Options::default())?;
        let announcement = |sender_ip| {
            let packet = arp::Header {
                operation: arp::REQUEST,
                sender_mac: mac,
                sender_ip,
                target_mac: MacAddr::default(),
                target_ip: sender_ip,
            };
            eth(BROADCAST, mac, [0x08, 0x06], &packet.emit())
        };
        // Behind a tag its end is not in the first bytes that the NIC reads of a frame.
        let target = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 9);
        let advertised = tagged(&advertisement(mac, target), 0);
        let mut dropped = 0;
        for (frame, address) in [
            (announcement(WANTED), IpAddr::from(WANTED)),
            (tagged(&announcement([10, 0, 0, 7]), 0), [10, 0, 0, 7].into()),
            (advertised, target.into()),
        ] {
            guest.send_wait(0, &frame, NetHdr::default());
            world.rig.wait_event(
                "pinned",
                |k| matches!(k, NicEventKind::SpoofedAddress(Claim::Address(a)) if *a == address),
            )?;
            dropped += 1;
            assert_eq!(world.rig.drops("pinned", DropReason::SpoofedAddress), dropped);
        }
        assert_eq!(found(&mut asks), None);
        // What it may have is heard, and nothing more is dropped.
        guest.send_wait(0, &announcement([10, 0, 0, 2]), NetHdr::default());
        let allowed = advertisement(mac, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9));
        guest.send_wait(0, &tagged(&allowed, 0), NetHdr::default());
        let gid = "fd00::9".parse::<Ipv6Addr>()?.octets();
        world.rig.wait_event(
            "pinned",
            |k| matches!(k, NicEventKind::GidChanged { gid: g, added: true, .. } if *g == gid),
        )?;
        assert_eq!(world.rig.drops("pinned", DropReason::SpoofedAddress), dropped);
        // The operator knows better.
        let setting = GidSetting {
            gid: mapped(WANTED),
            kind: GidKind::RoceV2,
            vlan: None,
        };
        world.rig.nic.set_gid("pinned", Some(AT), Some(setting))?;
        assert_eq!(found(&mut asks), Some(mac));
        drop((asks, pinned, guest));
        world.finish()?;
    }
    Ok(())
}

/// A neighbour advertisement from the link-local address of `mac`.
fn advertisement(mac: MacAddr, target: Ipv6Addr) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        next_header: nd::PROTOCOL_ICMPV6,
        hop_limit: nd::HOP_LIMIT,
        payload_len: nd::HEADER_LEN as u16,
        source: Gid::from_mac(mac).0,
        destination: Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets(),
    };
    let message = nd::Header {
        kind: nd::NEIGHBOUR_ADVERTISEMENT,
        checksum: 0,
        flags: 0,
        target: target.octets(),
    };
    let packet = [&header.emit()[..], &message.emit()].concat();
    eth(MacAddr([0x33, 0x33, 0, 0, 0, 1]), mac, [0x86, 0xdd], &packet)
}

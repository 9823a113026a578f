//! The GID table of an adapter follows the guest on its Ethernet function: by what it sends, by DHCP, by asking.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vnic_backend::{GidKind, GidRow, GidSetting, GidSource, MacAddr, NicEventKind};
use vnic_tests::driver::packets::{BROADCAST, eth, tagged};
use vnic_tests::driver::rdma::{self, Driver, World};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, Options};
use vnic_wire::{arp, dhcp, ipv4, ipv6, nd, udp};

const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const A: [u8; 4] = [10, 0, 0, 5];
const B: [u8; 4] = [10, 0, 0, 6];
const SIX: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];

fn mapped(ip: [u8; 4]) -> [u8; 16] {
    Ipv4Addr::from(ip).to_ipv6_mapped().octets()
}

fn arp_packet(
    operation: u16,
    sender_mac: MacAddr,
    sender_ip: [u8; 4],
    target_ip: [u8; 4],
) -> [u8; arp::HEADER_LEN] {
    arp::Header {
        operation,
        sender_mac,
        sender_ip,
        target_mac: MacAddr::default(),
        target_ip,
    }
    .emit()
}

/// Gratuitous ARP.
fn announcement(mac: MacAddr, ip: [u8; 4]) -> Vec<u8> {
    eth(BROADCAST, mac, ARP, &arp_packet(arp::REQUEST, mac, ip, ip))
}

fn advertisement(mac: MacAddr, address: [u8; 16]) -> Vec<u8> {
    let message = nd::Header {
        kind: nd::NEIGHBOUR_ADVERTISEMENT,
        checksum: 0,
        flags: 1 << 29,
        target: address,
    }
    .emit();
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: message.len() as u16,
        next_header: nd::PROTOCOL_ICMPV6,
        hop_limit: nd::HOP_LIMIT,
        source: address,
        destination: [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    };
    let to = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    eth(to, mac, IPV6, &[&header.emit()[..], &message].concat())
}

/// What a server acknowledges to this client.
fn acknowledgement(server: MacAddr, client: MacAddr, ip: [u8; 4]) -> Vec<u8> {
    let front = dhcp::Header {
        operation: dhcp::REPLY,
        transaction: 7,
        client_ip: [0; 4],
        your_ip: ip,
        client_mac: client,
    };
    let mut message = front.emit().to_vec();
    message.resize(236, 0);
    message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, dhcp::ACK, 255]);
    let udp = udp::Header {
        source_port: dhcp::SERVER_PORT,
        destination_port: dhcp::CLIENT_PORT,
        len: (udp::HEADER_LEN + message.len()) as u16,
        checksum: 0,
    };
    let header = ipv4::Header {
        header_len: ipv4::HEADER_LEN,
        dscp_ecn: 0,
        total_len: (ipv4::HEADER_LEN + udp::HEADER_LEN + message.len()) as u16,
        id: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: ipv4::PROTOCOL_UDP,
        checksum: 0,
        source: [10, 0, 0, 1],
        destination: ip,
    };
    eth(
        client,
        server,
        IPV4,
        &[&header.emit()[..], &udp.emit(), &message].concat(),
    )
}

fn add(rig: &mut Rig, name: &str) -> Result<MacAddr> {
    let socket = rig.dir().join(format!("{name}-rdma.sock"));
    rig.add_with(name, |spec| {
        spec.anti_spoofing = true;
        spec.rdma_socket = Some(socket);
    })
}

fn rows(rig: &Rig, name: &str) -> Result<Vec<GidRow>> {
    Ok(rig.nic.rdma(name)?.context("an RDMA function")?.gids)
}

/// Learned addresses, in the order of the table.
fn learned(rig: &Rig, name: &str) -> Vec<([u8; 16], Option<u16>, GidSource)> {
    let rows = rows(rig, name).unwrap_or_default();
    let v1 = rows.iter().filter(|r| r.kind == GidKind::RoceV1);
    v1.filter(|r| r.source.is_learned())
        .map(|r| (r.gid, r.vlan, r.source))
        .collect()
}

fn send(guest: &mut Guest, frame: &[u8]) {
    guest.send_wait(0, frame, NetHdr::default());
}

/// Lets a guest live, answering ARP for these addresses, until `done`; answers the addresses it was asked for.
fn live(
    guest: &mut Guest,
    mac: MacAddr,
    has: &[[u8; 4]],
    mut done: impl FnMut() -> bool,
) -> Result<Vec<[u8; 4]>> {
    let (end, mut asked) = (deadline(), Vec::new());
    while !done() {
        ensure!(Instant::now() < end, "it does not happen; asked for {asked:?}");
        let Some((_, _, frame)) = guest.recv(0, Instant::now() + Duration::from_millis(5)) else {
            continue;
        };
        if frame.get(12..14) != Some(&ARP) {
            continue;
        }
        let question = arp::Header::parse(&frame[14..])?;
        // A probe of the NIC's: to this guest alone, and it leaves no trace in its table.
        assert_eq!(frame[..6], mac.0);
        assert_eq!((question.operation, question.sender_ip), (arp::REQUEST, [0; 4]));
        assert_ne!(question.sender_mac, mac);
        if has.contains(&question.target_ip) {
            let reply = arp_packet(arp::REPLY, mac, question.target_ip, [0; 4]);
            send(guest, &eth(question.sender_mac, mac, ARP, &reply));
        }
        asked.push(question.target_ip);
    }
    Ok(asked)
}

#[test]
fn what_a_guest_sends_fills_its_table_and_nobody_elses() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (mac, other) = (add(&mut rig, "a")?, add(&mut rig, "b")?);
        let own = rows(&rig, "a")?;
        assert_eq!(own.len(), 2);
        assert!(own.iter().all(|r| r.source == GidSource::Mac && r.mac == mac));
        let mut guest = rig.attach("a", Options::default())?;
        let _other = rig.attach("b", Options::default())?;
        send(&mut guest, &announcement(mac, A));
        send(&mut guest, &advertisement(mac, SIX));
        send(&mut guest, &tagged(&announcement(mac, A), 7));
        // Somebody else's address, and one that is only probed.
        let foreign = arp_packet(arp::REQUEST, other, B, B);
        send(&mut guest, &eth(BROADCAST, mac, ARP, &foreign));
        let probe = arp_packet(arp::REQUEST, mac, [0; 4], B);
        send(&mut guest, &eth(BROADCAST, mac, ARP, &probe));
        let want = [
            (mapped(A), None, GidSource::Arp),
            (SIX, None, GidSource::Nd),
            (mapped(A), Some(7), GidSource::Arp),
        ];
        ensure!(
            wait_for(|| learned(&rig, "a") == want),
            "{:?}",
            learned(&rig, "a")
        );
        let all = rows(&rig, "a")?;
        assert_eq!(
            all.iter().map(|r| r.index).collect::<Vec<_>>(),
            (0..8).collect::<Vec<_>>()
        );
        assert_eq!(rows(&rig, "b")?.len(), 2);
        rig.wait_event(
            "a",
            |k| matches!(k, NicEventKind::GidChanged { index: 2, gid, added: true } if *gid == mapped(A)),
        )?;

        // The guest goes: so do its addresses. What the operator has set stays.
        let setting = GidSetting {
            gid: mapped(B),
            kind: GidKind::RoceV2,
            vlan: None,
        };
        assert_eq!(rig.nic.set_gid("a", Some(20), Some(setting))?, 20);
        guest.hang_up();
        ensure!(
            wait_for(|| learned(&rig, "a").is_empty()),
            "{:?}",
            learned(&rig, "a")
        );
        let left: Vec<u16> = rows(&rig, "a")?.iter().map(|r| r.index).collect();
        assert_eq!(left, [0, 1, 20]);
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

#[test]
fn an_address_that_was_changed_is_asked_for_and_goes() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let mac = add(&mut rig, "a")?;
    let mut guest = rig.attach("a", Options::default())?;
    send(&mut guest, &announcement(mac, A));
    ensure!(wait_for(|| learned(&rig, "a").len() == 1));
    send(&mut guest, &announcement(mac, B));
    let only_b = [(mapped(B), None, GidSource::Arp)];
    let asked = live(&mut guest, mac, &[B], || learned(&rig, "a") == only_b)?;
    assert_eq!(asked.iter().filter(|ip| **ip == A).count(), 3, "{asked:?}");
    rig.wait_event(
        "a",
        |k| matches!(k, NicEventKind::GidChanged { gid, added: false, .. } if *gid == mapped(A)),
    )?;
    rig.finish(Copies::Unknown)
}

#[test]
fn an_address_from_dhcp_counts_when_the_guest_has_it() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (mac, server) = (add(&mut rig, "a")?, add(&mut rig, "b")?);
    let mut guest = rig.attach("a", Options::default())?;
    let mut dhcp = rig.attach("b", Options::default())?;
    send(&mut dhcp, &acknowledgement(server, mac, A));
    let want = [(mapped(A), None, GidSource::Dhcp)];
    let asked = live(&mut guest, mac, &[A], || learned(&rig, "a") == want)?;
    assert_eq!(asked, [A]);
    assert!(learned(&rig, "b").is_empty());
    // The answer was for the NIC: the other guest does not see it.
    ensure!(dhcp.recv(0, Instant::now() + Duration::from_millis(50)).is_none());
    rig.finish(Copies::Unknown)
}

/// A guest without an Ethernet driver answers nobody: the NIC does, for the addresses of its RDMA function.
#[test]
fn an_adapter_with_the_driver_of_its_function_only_is_found() -> Result<()> {
    for cores in [1, 2] {
        let mut world = World::new(cores, &["a", "b"])?;
        let setting = |gid, kind| GidSetting {
            gid,
            kind,
            vlan: None,
        };
        let nic = world.rig.nic.clone();
        nic.set_gid("a", None, Some(setting(mapped(A), GidKind::RoceV2)))?;
        nic.set_gid("a", None, Some(setting(SIX, GidKind::RoceV2)))?;
        let mac = nic.adapter("a")?.spec.macs[0];
        let asker = nic.adapter("b")?.spec.macs[0];
        let driver = Driver::start(world.socket("a"), rdma::Options::default())?;
        let mut guest = world.rig.attach("b", Options::default())?;
        // (What `b` hears before, such as the announcement of `a`, is none of the answers.)
        let mut ask = |question: &[u8], is_answer: &dyn Fn(&[u8]) -> bool| -> Result<Vec<u8>> {
            send(&mut guest, question);
            let end = deadline();
            while let Some((_, _, frame)) = guest.recv(0, end) {
                if frame[..6] == asker.0 && frame[6..12] == mac.0 && is_answer(&frame) {
                    return Ok(frame);
                }
            }
            let counted: Vec<_> = nic.counters().into_iter().filter(|s| s.value > 0).collect();
            anyhow::bail!("nobody answers: {counted:?}")
        };
        let question = arp_packet(arp::REQUEST, asker, B, A);
        let answer = ask(&eth(BROADCAST, asker, ARP, &question), &|f| f[12..14] == ARP)?;
        let reply = arp::Header::parse(&answer[14..])?;
        assert_eq!(
            (reply.operation, reply.sender_mac, reply.sender_ip),
            (arp::REPLY, mac, A)
        );
        let own = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        let message = nd::solicitation(&own, &SIX, SIX, asker);
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: message.len() as u16,
            next_header: nd::PROTOCOL_ICMPV6,
            hop_limit: nd::HOP_LIMIT,
            source: own,
            destination: SIX,
        };
        let question = eth(BROADCAST, asker, IPV6, &[&header.emit()[..], &message].concat());
        let answer = ask(&question, &|f| f[12..14] == IPV6)?;
        assert_eq!(nd::Header::parse(&answer[54..])?.target, SIX);
        // With an Ethernet driver the guest answers for itself.
        let mut own = world.rig.attach("a", Options::default())?;
        let question = eth(BROADCAST, asker, ARP, &arp_packet(arp::REQUEST, asker, B, A));
        send(&mut guest, &question);
        let end = deadline();
        while own.recv(0, end).is_some_and(|(_, _, frame)| frame != question) {}
        guest.drain();
        world.rig.settle()?;
        ensure!(guest.try_recv(0).is_none(), "nobody else answers");
        drop(driver);
        world.rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

//! Segmentation requests of programs, in tunnels too: whatever the program writes into lengths and checksums, the segments are those that a
//! stack would have sent, each in a packet of the tunnel of its own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use etherparse as ep;
use proptest::prelude::*;
use vnic_engine::offload::{Accepts, HEAD_MAX, Malformed, Request, program};
use vnic_engine::virtio_net::NetHdr;
use vnic_engine::virtio_net::steering::{Tunnels, tunnel_type};

use super::offload::{Guest, Spec, build, build_udp, spec, verify, verify_udp};

const TUNNELS: Tunnels = Tunnels {
    types: tunnel_type::ALL,
    vxlan_port: 8472,
};

/// A tunnel.
#[derive(Debug, Clone, Copy)]
struct Around {
    v6: bool,
    geneve: bool,
    /// Whether its UDP header has a checksum.
    checksum: bool,
    id: u16,
}

fn around() -> impl Strategy<Value = Around> {
    any::<(bool, bool, bool, u16)>().prop_map(|(v6, geneve, checksum, id)| Around {
        v6,
        geneve,
        checksum,
        id,
    })
}

impl Around {
    fn port(&self) -> u16 {
        if self.geneve { 6081 } else { 8472 }
    }

    fn header(&self) -> &'static [u8] {
        match self.geneve {
            // An option of four bytes.
            true => &[1, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 3, 4],
            false => &[8, 0, 0, 0, 0, 0, 5, 0],
        }
    }

    /// The packet of the tunnel that carries a frame: made by etherparse, as the `n`th.
    fn packet(&self, n: u16, inner: &[u8]) -> Vec<u8> {
        let payload = [self.header(), inner].concat();
        let link = ep::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
        let mut out = Vec::new();
        let ip = if self.v6 {
            let mut ip = ep::Ipv6Header {
                hop_limit: 64,
                source: [1; 16],
                destination: [2; 16],
                ..Default::default()
            };
            ip.next_header = ep::ip_number::UDP;
            link.ip(ep::IpHeaders::Ipv6(ip, Default::default()))
        } else {
            let mut ip =
                ep::Ipv4Header::new(0, 64, ep::ip_number::UDP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
            ip.identification = self.id.wrapping_add(n);
            link.ip(ep::IpHeaders::Ipv4(ip, Default::default()))
        };
        ip.udp(0xdddd, self.port()).write(&mut out, &payload).unwrap();
        if !self.checksum {
            let udp = 14 + if self.v6 { 40 } else { 20 };
            out[udp + 6..udp + 8].fill(0);
        }
        out
    }
}

/// What a program posts: the guest's frame with nonsense in all fields that the device makes.
fn posted(s: &Spec, g: &Guest, udp: bool, nonsense: [u8; 2]) -> Vec<u8> {
    let mut frame = g.frame.clone();
    let (network, transport) = (14 + 4 * s.tags, usize::from(g.hdr.csum_start));
    let fields = match s.v6 {
        true => vec![network + 4],
        false => vec![network + 2, network + 10],
    };
    let of_transport = if udp { vec![4, 6] } else { vec![16] };
    for at in fields
        .into_iter()
        .chain(of_transport.into_iter().map(|at| transport + at))
    {
        frame[at..at + 2].copy_from_slice(&nonsense);
    }
    frame
}

fn request(mut frame: Vec<u8>, size: u16, tunnels: &Tunnels) -> Result<Guest, Malformed> {
    let hdr = program::request(&mut frame, size, tunnels)?;
    Ok(Guest { hdr, frame })
}

proptest! {
    #[test]
    fn a_program_need_not_know_lengths_and_checksums(s in spec(), udp: bool, nonsense: [u8; 2]) {
        let g = if udp { build_udp(&s) } else { build(&s) };
        let made = request(posted(&s, &g, udp, nonsense), s.gso_size, &TUNNELS).unwrap();
        prop_assert_eq!(made.check(), g.check());
        let cut = made.cut();
        prop_assert_eq!(&cut, &g.cut());
        if udp { verify_udp(&s, &cut) } else { verify(&s, &cut) }
        // A guest that takes it uncut gets right lengths and the sum of the pseudo header.
        let whole = Spec { gso_size: u16::MAX, ..s.clone() };
        let finished = Guest { hdr: NetHdr { gso_size: u16::MAX, ..made.hdr }, frame: made.frame.clone() }.cut();
        prop_assert_eq!(finished.len(), 1);
        if udp { verify_udp(&whole, &finished) } else { verify(&whole, &finished) }
        let (network, transport) = (14 + 4 * s.tags, usize::from(g.hdr.csum_start));
        prop_assert_eq!(&made.frame[network..network + 4], &finished[0][network..network + 4]);
        let field = transport + usize::from(made.hdr.csum_offset);
        let mut sum = u32::from(u16::from_be_bytes([made.frame[field], made.frame[field + 1]]));
        let mut zeroed = finished[0].clone();
        zeroed[field..field + 2].fill(0);
        sum += vnic_wire::checksum::sum(&zeroed[transport..]);
        let right = u16::from_be_bytes([finished[0][field], finished[0][field + 1]]);
        prop_assert_eq!(vnic_engine::offload::Segmenter::finish(sum), right);
    }

    /// The segments in a tunnel are the segments, each in a packet of the tunnel.
    #[test]
    fn segments_in_tunnels(s in spec(), t in around(), udp: bool, nonsense: [u8; 2]) {
        let s = Spec { tags: s.tags.min(1), ..s };
        let g = if udp { build_udp(&s) } else { build(&s) };
        let mut frame = t.packet(0, &posted(&s, &g, udp, nonsense));
        let network = 14;
        let outer = network + if t.v6 { 40 } else { 20 };
        let len = if t.v6 { network + 4 } else { network + 2 };
        frame[len..len + 2].copy_from_slice(&nonsense);
        frame[outer + 4..outer + 6].copy_from_slice(&nonsense);
        if t.checksum {
            frame[outer + 6..outer + 8].copy_from_slice(&[nonsense[0] | 1, nonsense[1]]);
        }
        let head_len = outer + 8 + t.header().len() + usize::from(g.hdr.csum_start) + g.frame.len();
        prop_assume!(head_len - s.payload.len() <= HEAD_MAX + usize::from(g.hdr.csum_start));
        let made = match request(frame, s.gso_size, &TUNNELS) {
            Err(Malformed::HeadersTooLong | Malformed::Header(_)) => return Ok(()),
            made => made.unwrap(),
        };
        let Request::Tso(tso) = made.check().unwrap() else { panic!("a request") };
        let around = tso.outer.unwrap();
        prop_assert_eq!((around.v6, around.checksum, around.udp), (t.v6, t.checksum, outer));
        prop_assert!(!Request::Tso(tso).accepted_by(&Accepts::from_features(u64::MAX)));
        let expected: Vec<_> = (0..).zip(g.cut()).map(|(n, inner)| t.packet(n, &inner)).collect();
        prop_assert_eq!(made.cut(), expected);
        // As a tag is pushed and popped on the way.
        prop_assert_eq!(Request::Tso(tso).header(0).flags, made.hdr.flags);
    }

    #[test]
    fn any_bytes_of_a_program(frame in prop::collection::vec(any::<u8>(), 0..400), s in spec(), t in around(), size: u16,
                              hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        let _ = request(frame, size, &TUNNELS);
        let mut frame = t.packet(0, &build(&s).frame);
        for (at, byte) in hits {
            let at = at.index(frame.len().min(HEAD_MAX));
            frame[at] = byte;
        }
        if let Ok(made) = request(frame, size, &TUNNELS) {
            let cut: usize = made.cut().iter().map(Vec::len).sum();
            prop_assert!(cut >= made.frame.len());
        }
    }
}

#[test]
fn what_cannot_be_cut() {
    let s = Spec {
        tags: 0,
        ..Spec::default()
    };
    let tcp = build(&s).frame;
    let answer = |change: &dyn Fn(&mut Vec<u8>), size: u16| {
        let mut frame = tcp.clone();
        change(&mut frame);
        request(frame, size, &TUNNELS).err()
    };
    assert_eq!(answer(&|_| {}, 1000), None);
    assert_eq!(answer(&|_| {}, 7), Some(Malformed::SegmentTooSmall(7)));
    assert_eq!(answer(&|f| f[23] = 47, 1000), Some(Malformed::WrongProtocol));
    assert_eq!(answer(&|f| f[20] = 0x20, 1000), Some(Malformed::Fragment));
    assert_eq!(answer(&|f| f[13] = 6, 1000), Some(Malformed::WrongProtocol));
    assert_eq!(
        answer(&|f| f.resize(65_550, 0), 1000),
        Some(Malformed::SegmentTooLong)
    );
    // A tunnel that is not looked into is UDP.
    let t = Around {
        v6: false,
        geneve: false,
        checksum: false,
        id: 1,
    };
    let made = request(t.packet(0, &tcp), 1000, &Tunnels::NONE).unwrap();
    assert_eq!(
        (made.hdr.gso_type, made.hdr.flags),
        (NetHdr::GSO_UDP_L4, NetHdr::NEEDS_CSUM)
    );
}

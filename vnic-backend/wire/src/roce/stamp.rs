//! Telemetry that switches write into frames.

use super::Frame;
use crate::ethernet::{self, Payload};
use crate::icrc;
use crate::int::{Hop, Sign, TRAILER_LEN, Telemetry};
use crate::opcode::Opcode;
use crate::{EtherType, bth, grh, ipv4, ipv6, udp};

/// Bytes of the front of a frame that [`gathers`] looks at, at most.
pub const FRONT: usize = ethernet::HEADER_LEN + 2 * 4 + ipv6::HEADER_LEN + udp::HEADER_LEN + bth::HEADER_LEN;

/// Whether a RoCE frame of `len` bytes, of which this is the front, gathers telemetry: it has a trailer in its packet or behind it, and
/// carries data or asks for some. (In an acknowledge the trailer is what another packet gathered.) The caller knows that it is RoCE.
#[inline]
pub fn gathers(front: &[u8], len: usize) -> bool {
    let Some((bth, end)) = shape(front) else {
        return false;
    };
    let bth = front.get(bth..).and_then(<[u8]>::first_chunk::<9>);
    bth.is_some_and(|b| {
        let carried = Sign::of(b[8] >> 1) == Sign::Carried || len == end + TRAILER_LEN;
        carried && gathering(Opcode(b[0]))
    })
}

/// Offset of the BTH of a RoCE frame, and of the end of its packet; 0: RoCEv1 has nothing behind it.
#[inline]
fn shape(front: &[u8]) -> Option<(usize, usize)> {
    let Payload { offset, ethertype } = ethernet::payload(front).ok()?;
    let length = |at: usize| {
        let bytes = front.get(offset + at..).and_then(<[u8]>::first_chunk::<2>)?;
        Some(usize::from(u16::from_be_bytes(*bytes)))
    };
    match ethertype {
        EtherType::IPV4 => Some((offset + ipv4::HEADER_LEN + udp::HEADER_LEN, offset + length(2)?)),
        EtherType::IPV6 => {
            let header = offset + ipv6::HEADER_LEN;
            Some((header + udp::HEADER_LEN, header + length(4)?))
        }
        EtherType::ROCE => Some((offset + grh::HEADER_LEN, 0)),
        _ => None,
    }
}

/// Whether packets of this opcode gather telemetry on their way.
fn gathering(opcode: Opcode) -> bool {
    let operation = opcode.operation();
    operation.is_some_and(|o| o.is_request() || o.is_read_response())
}

/// Writes the record of a switch into the trailer of a frame that [`gathers`] telemetry; the ICRC follows, unless the trailer is behind
/// it. False: the frame has no trailer, and is unchanged.
pub fn stamp(frame: &mut [u8], switch: u16, hop: Hop) -> bool {
    let Some((at, pad)) = place(frame) else {
        return stamp_behind(frame, switch, hop);
    };
    let Some((trailer, rest)) = frame
        .get_mut(at..)
        .and_then(<[u8]>::split_first_chunk_mut::<TRAILER_LEN>)
    else {
        return false;
    };
    let Some(icrc) = rest.get_mut(pad..).and_then(<[u8]>::first_chunk_mut) else {
        return false;
    };
    let before = *trailer;
    let mut telemetry = Telemetry::parse_trailer(trailer);
    telemetry.push(switch, hop);
    *trailer = telemetry.emit_trailer();
    let mut changed = [0; TRAILER_LEN + 3];
    for (to, (a, b)) in changed.iter_mut().zip(before.iter().zip(&*trailer)) {
        *to = a ^ b;
    }
    *icrc = icrc::change(*icrc, &changed[..TRAILER_LEN + pad]);
    true
}

/// Writes the record into the trailer behind the packet of a frame, which the ICRC does not protect.
fn stamp_behind(frame: &mut [u8], switch: u16, hop: Hop) -> bool {
    let len = frame.len();
    if !gathers(frame, len) || shape(frame).is_none_or(|(_, end)| len != end + TRAILER_LEN) {
        return false;
    }
    let Some(trailer) = frame.last_chunk_mut::<TRAILER_LEN>() else {
        return false;
    };
    let Some(mut telemetry) = Telemetry::read_behind(trailer) else {
        return false;
    };
    telemetry.push(switch, hop);
    *trailer = telemetry.emit_trailer();
    true
}

/// Offset of the trailer of a frame that gathers telemetry, and the bytes of pad behind it.
fn place(frame: &[u8]) -> Option<(usize, usize)> {
    let parsed = Frame::parse(frame).ok()?;
    (parsed.headers.bth.telemetry == Sign::Carried).then_some(())?;
    gathering(parsed.headers.bth.opcode).then_some(())?;
    let network = ethernet::payload(frame).ok()?.offset;
    let pad = usize::from(parsed.headers.bth.pad);
    let end = network + parsed.packet.len() - icrc::LEN;
    Some((end.checked_sub(pad + TRAILER_LEN)?, pad))
}

#[cfg(test)]
mod tests {
    use std::prelude::v1::*;

    use super::super::{Network, Path, build};
    use super::*;
    use crate::MacAddr;
    use crate::gid::Gid;
    use crate::opcode::{Operation, Transport};
    use crate::psn::Psn;
    use crate::transport::{Extended, Headers};

    fn path(network: Network, tagged: bool) -> Path {
        Path {
            eth: ethernet::Header {
                destination: MacAddr([2, 0, 0, 0, 0, 1]),
                source: MacAddr([2, 0, 0, 0, 0, 2]),
                ethertype: EtherType::IPV4,
            },
            vlan: tagged.then_some(crate::vlan::Header {
                tci: crate::vlan::Tci(5),
                ethertype: EtherType::IPV4,
            }),
            network,
            source_port: 50_000,
        }
    }

    fn headers(operation: Operation, sign: Sign) -> Headers {
        let opcode = Opcode::new(Transport::Rc, operation);
        let extended = match operation {
            Operation::Acknowledge => Extended::Aeth(crate::aeth::Header {
                syndrome: crate::aeth::Syndrome::Ack { credits: 3 },
                msn: 7,
            }),
            _ => Extended::None,
        };
        Headers {
            bth: bth::Header {
                telemetry: sign,
                ..bth::Header::new(opcode, 9, Psn::new(77))
            },
            xrceth: None,
            dceth: None,
            extended,
        }
    }

    fn networks() -> [Network; 3] {
        let (a, b) = (Gid([0xfd; 16]), Gid([0xfe; 16]));
        let v4 = |n| Gid::from_ipv4([10, 0, 0, n]);
        [Network::v1(a, b), Network::v2(v4(1), v4(2)), Network::v2(a, b)]
    }

    #[test]
    fn a_switch_writes_and_the_frame_stays_right() {
        for network in networks() {
            for tagged in [false, true] {
                for len in [0, 1, 2, 3, 4, 1024] {
                    let path = path(network, tagged);
                    let headers = headers(Operation::WriteMiddle, Sign::Carried);
                    let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
                    let mut frame = Vec::new();
                    build(&path, &headers, &payload, &mut frame).expect("a frame");
                    assert_eq!(frame.len(), path.frame_len(&headers, len));
                    assert!(gathers(&frame[..FRONT.min(frame.len())], frame.len()));
                    for i in 1..=6u16 {
                        let hop = Hop::new(u64::from(i) * 1000, 1 << 20, 800 * u64::from(i), 40_000_000_000);
                        assert!(stamp(&mut frame, i, hop));
                        let read = Frame::parse(&frame).expect("a frame");
                        assert!(read.icrc_ok(), "{network:?} {len} {i}");
                        assert_eq!(read.payload, payload);
                        let telemetry = Telemetry::parse_trailer(read.trailer.expect("a trailer"));
                        assert_eq!(telemetry.count, i.min(5) as u8);
                        let last = telemetry.hops().last().copied();
                        assert_eq!(last.filter(|_| i <= 5), Some(hop).filter(|_| i <= 5));
                    }
                    // What was damaged before stays damaged.
                    frame[14 + 60] ^= 1;
                    stamp(&mut frame, 9, Hop::default());
                    assert!(!Frame::parse(&frame).is_ok_and(|read| read.icrc_ok()));
                }
            }
        }
    }

    #[test]
    fn what_gathers_nothing_stays_as_it_is() {
        for network in networks() {
            for (operation, sign) in [
                (Operation::WriteMiddle, Sign::None),
                (Operation::WriteMiddle, Sign::Known),
                (Operation::Acknowledge, Sign::Carried),
            ] {
                let mut frame = Vec::new();
                build(
                    &path(network, false),
                    &headers(operation, sign),
                    &[1; 64],
                    &mut frame,
                )
                .expect("a frame");
                let before = frame.clone();
                assert!(!gathers(&frame, frame.len()), "{operation:?}");
                assert!(!stamp(&mut frame, 1, Hop::default()));
                assert_eq!(frame, before);
            }
        }
        // A stranger that has the sign, but no trailer.
        let mut frame = Vec::new();
        let path = path(networks()[1], false);
        build(
            &path,
            &headers(Operation::WriteMiddle, Sign::None),
            &[1; 64],
            &mut frame,
        )
        .expect("a frame");
        frame[14 + 20 + 8 + 8] |= 6;
        let before = frame.clone();
        assert!(gathers(&frame, frame.len()) && !stamp(&mut frame, 1, Hop::default()));
        assert_eq!(frame, before);
        assert_eq!(Frame::parse(&frame).expect("a frame").payload.len(), 64);
        for len in 0..frame.len() {
            let _ = gathers(&frame[..len], len);
            let _ = stamp(&mut frame[..len], 1, Hop::default());
        }
    }

    /// For a guest the trailer is behind the packet, which stays as the guest has made it.
    #[test]
    fn a_switch_writes_behind_a_packet() {
        for network in &networks()[1..] {
            for tagged in [false, true] {
                for operation in [Operation::WriteMiddle, Operation::Acknowledge] {
                    let path = path(*network, tagged);
                    let mut frame = Vec::new();
                    build(&path, &headers(operation, Sign::None), &[7; 20], &mut frame).expect("a frame");
                    let packet = frame.clone();
                    frame.extend_from_slice(&Telemetry::EMPTY.emit_trailer());
                    let hop = Hop::new(1000, 1 << 20, 800, 40_000_000_000);
                    let gathering = operation == Operation::WriteMiddle;
                    assert_eq!(gathers(&frame[..FRONT.min(frame.len())], frame.len()), gathering);
                    assert_eq!(stamp(&mut frame, 3, hop), gathering);
                    assert_eq!(frame[..packet.len()], packet);
                    let read = Frame::parse(&frame).expect("a frame");
                    assert!(read.icrc_ok() && read.payload == [7; 20]);
                    let trailer = frame.last_chunk().expect("a trailer");
                    let telemetry = Telemetry::read_behind(trailer).expect("telemetry");
                    assert_eq!(telemetry.hops(), &[hop][..usize::from(gathering)]);
                    // Bytes of that length that are no trailer stay as they are.
                    *frame.last_mut().expect("a byte") ^= 1;
                    let before = frame.clone();
                    assert!(!stamp(&mut frame, 3, hop) && frame == before);
                    frame.push(0);
                    assert!(!gathers(&frame, frame.len()));
                }
            }
        }
    }
}

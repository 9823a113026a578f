//! Frames of every kind for the tests, from a seed; and a second way to an ICRC.

use vnic_wire::aeth::{NakCode, Syndrome};
use vnic_wire::ethernet::Header as Eth;
use vnic_wire::gid::Gid;
use vnic_wire::icrc::Kind;
use vnic_wire::int::Sign;
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{self, Network, Path};
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::vlan::{self, Tci};
use vnic_wire::{EtherType, MacAddr, aeth, atomiceth, bth, dcceth, dceth, deth, reth, xrceth};

/// Largest path MTU (IBTA vol 1 section 9.2).
pub const MTU_MAX: usize = 4096;

/// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn u32(&mut self) -> u32 {
        self.next() as u32
    }

    pub fn u24(&mut self) -> u32 {
        self.u32() >> 8
    }

    pub fn u8(&mut self) -> u8 {
        self.next() as u8
    }

    pub fn bool(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.u8())
    }

    pub fn vec(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.u8()).collect()
    }
}

/// Every opcode that the crate knows.
pub fn opcodes() -> Vec<Opcode> {
    (0..=255)
        .map(Opcode)
        .filter(|o| *o == Opcode::CNP || o.operation().is_some())
        .collect()
}

/// Transport headers with this opcode.
pub fn headers(rng: &mut Rng, opcode: Opcode) -> Headers {
    if opcode == Opcode::CNP {
        return Headers::cnp(rng.u24());
    }
    let operation = opcode.operation().unwrap();
    let mut bth = bth::Header {
        opcode,
        solicited: rng.bool(),
        migrated: rng.bool(),
        pad: 0,
        version: 0,
        pkey: rng.u32() as u16,
        fecn: rng.bool(),
        becn: rng.bool(),
        // 0 and 1 are for management (IBTA vol 1 section 3.9.1).
        destination_qp: rng.u24().max(2),
        ack_request: rng.bool(),
        selective: rng.bool(),
        telemetry: Sign::Known,
        // (It changes the layout, which dissectors do not know.)
        spread: false,
        scattered: false,
        psn: Psn::new(rng.u32()),
    };
    bth.scattered = bth.selective;
    let reth = reth::Header {
        va: rng.next(),
        rkey: rng.u32(),
        len: rng.u32() >> 1,
    };
    let aeth = aeth::Header {
        syndrome: syndrome(rng),
        msn: rng.u24(),
    };
    let deth = deth::Header {
        qkey: rng.u32(),
        source_qp: rng.u24().max(2),
    };
    let imm = rng.u32();
    use Operation as O;
    let extended = if opcode.transport() == Transport::Ud {
        match operation {
            O::SendOnlyImm => Extended::DethImm(deth, imm),
            _ => Extended::Deth(deth),
        }
    } else {
        match operation {
            O::SendFirst | O::SendMiddle | O::SendLast | O::SendOnly => Extended::None,
            O::WriteMiddle | O::WriteLast | O::ReadResponseMiddle => Extended::None,
            O::SendLastImm | O::SendOnlyImm | O::WriteLastImm => Extended::Imm(imm),
            O::WriteFirst | O::WriteOnly | O::ReadRequest => Extended::Reth(reth),
            O::WriteOnlyImm => Extended::RethImm(reth, imm),
            O::ReadResponseFirst | O::ReadResponseLast | O::ReadResponseOnly | O::Acknowledge => {
                Extended::Aeth(aeth)
            }
            O::AtomicAcknowledge => Extended::AtomicAck(aeth, rng.next()),
            O::CompareSwap | O::FetchAdd => Extended::Atomic(atomiceth::Header {
                va: rng.next(),
                rkey: rng.u32(),
                swap_or_add: rng.next(),
                compare: rng.next(),
            }),
            O::SendLastInvalidate | O::SendOnlyInvalidate => Extended::Ieth(rng.u32()),
            O::Connect | O::Disconnect => Extended::Connection(dcceth::Header {
                access_key: rng.next(),
                connection: rng.u32(),
            }),
        }
    };
    let leads = |transport| opcode.transport() == transport && operation.is_request();
    Headers {
        bth,
        xrceth: leads(Transport::Xrc).then(|| xrceth::Header { srq: rng.u24() }),
        dceth: leads(Transport::Dc).then(|| dceth::Header {
            connection: rng.u8(),
            initiator: rng.u24(),
        }),
        extended,
    }
}

fn syndrome(rng: &mut Rng) -> Syndrome {
    let value = rng.u8() & 31;
    match rng.below(3) {
        0 => Syndrome::Ack { credits: value },
        1 => Syndrome::RnrNak { timer: value },
        _ => Syndrome::Nak(NakCode::from_code(value % 5)),
    }
}

/// A path of this kind.
pub fn path(rng: &mut Rng, kind: Kind, tagged: bool) -> Path {
    let mut source = Gid(rng.bytes());
    let mut destination = Gid(rng.bytes());
    match kind {
        Kind::V4 => {
            source = Gid::from_ipv4([10, rng.u8(), rng.u8(), rng.u8()]);
            destination = Gid::from_ipv4([10, rng.u8(), rng.u8(), rng.u8()]);
        }
        Kind::V1 | Kind::V6 => {
            source.0[..8].copy_from_slice(&[0xfd, 1, 2, 3, 4, 5, 6, 7]);
            destination.0[..8].copy_from_slice(&[0xfd, 1, 2, 3, 4, 5, 6, 7]);
        }
    }
    let mut network = match kind {
        Kind::V1 => Network::v1(source, destination),
        Kind::V4 | Kind::V6 => Network::v2(source, destination),
    };
    network.set_traffic_class(rng.u8());
    network.set_hop_limit(rng.u8().max(1));
    network.set_flow_label(rng.u32() >> 12);
    if let Network::V4 {
        id, dont_fragment, ..
    } = &mut network
    {
        *id = rng.u32() as u16;
        *dont_fragment = rng.bool();
    }
    let mut mac = || {
        let mut m: [u8; 6] = rng.bytes();
        m[0] = 0x02;
        MacAddr(m)
    };
    Path {
        eth: Eth {
            destination: mac(),
            source: mac(),
            ethertype: EtherType(0),
        },
        vlan: tagged.then(|| vlan::Header {
            tci: Tci(rng.u32() as u16),
            ethertype: EtherType(0),
        }),
        network,
        source_port: if kind == Kind::V1 {
            0
        } else {
            rng.u32() as u16 | 0xc000
        },
    }
}

/// A length that the opcode allows: all remainders by 4, short ones more often.
pub fn payload_len(rng: &mut Rng, opcode: Opcode) -> usize {
    if !opcode.operation().is_some_and(Operation::has_payload) {
        return 0;
    }
    match rng.below(8) {
        0 => MTU_MAX - rng.below(4),
        1 => rng.below(MTU_MAX + 1),
        2 => 1 << rng.below(13),
        _ => rng.below(130),
    }
}

/// Path, headers (with the right pad), payload, frame.
pub struct Sample {
    pub path: Path,
    pub headers: Headers,
    pub payload: Vec<u8>,
    pub frame: Vec<u8>,
}

/// A frame with this opcode.
pub fn sample(rng: &mut Rng, opcode: Opcode, kind: Kind, tagged: bool) -> Sample {
    let path = path(rng, kind, tagged);
    let mut headers = headers(rng, opcode);
    let len = payload_len(rng, opcode);
    let payload = rng.vec(len);
    let mut frame = Vec::new();
    roce::build(&path, &headers, &payload, &mut frame).unwrap();
    headers.bth.pad = (len.wrapping_neg() & 3) as u8;
    Sample {
        path,
        headers,
        payload,
        frame,
    }
}

/// The ICRC of a frame (its last four bytes do not count), bit by bit from the text of the standard: eight
/// bytes of ones, then the packet with ones in the fields that may change. Knows nothing of the crate's
/// parsers. `None` if the frame is not RoCE.
pub fn icrc_bit_by_bit(frame: &[u8]) -> Option<[u8; 4]> {
    let mut at = 14;
    if frame[12..14] == [0x81, 0x00] {
        at = 18;
    }
    let mut packet = frame[at..frame.len() - 4].to_vec();
    let (variant, bth): (&[usize], usize) = match frame[at - 2..at] {
        [0x08, 0x00] => (&[1, 8, 10, 11, 26, 27], 28),
        [0x86, 0xdd] => (&[1, 2, 3, 7, 46, 47], 48),
        [0x89, 0x15] => (&[1, 2, 3, 7], 40),
        _ => return None,
    };
    if frame[at - 2..at] != [0x08, 0x00] {
        packet[0] |= 0x0f;
    }
    for i in variant {
        packet[*i] = 0xff;
    }
    packet[bth + 4] = 0xff;
    let mut register = u32::MAX;
    for byte in [0xff; 8].iter().chain(&packet) {
        for bit in 0..8 {
            let feedback = (register ^ u32::from(byte >> bit)) & 1;
            register = (register >> 1) ^ (feedback * 0xedb8_8320);
        }
    }
    Some((!register).to_le_bytes())
}

//! Invariant CRC (IBTA vol 1 section 7.8.1; annex A16 for RoCEv1, annex A17 for RoCEv2).
//!
//! The CRC-32 of Ethernet over the packet from its network header to its pad bytes, with ones in place of
//! fields that may change on the way. RoCE has no LRH: eight bytes of ones stand for it. Masked are, of IPv4:
//! type of service, time to live, header checksum; of IPv6 and the GRH: traffic class, flow label, hop limit;
//! the UDP checksum; the byte of the BTH with FECN and BECN. The CRC is transmitted lowest byte first.
//!
//! `crc32fast` computes it: its polynomial, reflection and final complement are those of Ethernet's CRC-32, so
//! the result is the standard's on every code path. Its `std` feature looks for carry-less multiplication
//! (PCLMULQDQ, PMULL) at run time, which makes it seven times as fast on 4 KiB; without the feature there would
//! only be tables. The answer of the CPU changes only the time taken: the crate stays free of clock, I/O and
//! state.

use crc32fast::Hasher;

use crate::{Error, bth, grh, ipv4, ipv6, udp};

/// Bytes of the CRC at the end of a packet.
pub const LEN: usize = 4;

/// CRC-32 of the eight bytes of ones that stand for the LRH.
const ONES: u32 = 0x2144_df1c;

/// Which network header the packet has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RoCEv1: GRH, BTH.
    V1,
    /// RoCEv2 over IPv4: IPv4 without options, UDP, BTH.
    V4,
    /// RoCEv2 over IPv6: IPv6 without extension headers, UDP, BTH.
    V6,
}

/// Bytes up to the end of the BTH, for each kind.
const V1_LEN: usize = grh::HEADER_LEN + bth::HEADER_LEN;
const V4_LEN: usize = ipv4::HEADER_LEN + udp::HEADER_LEN + bth::HEADER_LEN;
const V6_LEN: usize = ipv6::HEADER_LEN + udp::HEADER_LEN + bth::HEADER_LEN;

/// The CRC of a packet, made piece by piece.
#[derive(Debug, Clone)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins with the front of a packet: `headers` starts with the IPv4, IPv6 or global route header and
    /// reaches at least to the end of the BTH. Bytes behind the BTH count as they are, so the whole packet may
    /// be given.
    #[inline]
    pub fn new(kind: Kind, headers: &[u8]) -> Result<Icrc, Error> {
        let mut crc = Icrc(Hasher::new_with_initial(ONES));
        let rest = match kind {
            Kind::V1 => {
                let (b, rest) = headers.split_first_chunk::<V1_LEN>().ok_or(Error::Truncated)?;
                let mut b = *b;
                mask_v6(&mut b);
                b[grh::HEADER_LEN + bth::CONGESTION_OFFSET] = 0xff;
                crc.update(&b);
                rest
            }
            Kind::V4 => {
                let (b, rest) = headers.split_first_chunk::<V4_LEN>().ok_or(Error::Truncated)?;
                let mut b = *b;
                b[1] = 0xff;
                b[8] = 0xff;
                b[10] = 0xff;
                b[11] = 0xff;
                mask_udp(&mut b, ipv4::HEADER_LEN);
                crc.update(&b);
                rest
            }
            Kind::V6 => {
                let (b, rest) = headers.split_first_chunk::<V6_LEN>().ok_or(Error::Truncated)?;
                let mut b = *b;
                mask_v6(&mut b);
                mask_udp(&mut b, ipv6::HEADER_LEN);
                crc.update(&b);
                rest
            }
        };
        crc.update(rest);
        Ok(crc)
    }

    /// Goes on with the bytes that follow; pad bytes count.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The CRC as it is transmitted.
    #[inline]
    pub fn finish(self) -> [u8; LEN] {
        self.0.finalize().to_le_bytes()
    }
}

/// Masks traffic class, flow label and hop limit.
#[inline]
fn mask_v6<const N: usize>(b: &mut [u8; N]) {
    b[0] |= 0x0f;
    b[1] = 0xff;
    b[2] = 0xff;
    b[3] = 0xff;
    b[7] = 0xff;
}

/// Masks the checksum of a UDP header at `udp`, and the BTH behind it.
#[inline]
fn mask_udp<const N: usize>(b: &mut [u8; N], udp: usize) {
    b[udp + udp::CHECKSUM_OFFSET] = 0xff;
    b[udp + udp::CHECKSUM_OFFSET + 1] = 0xff;
    b[udp + udp::HEADER_LEN + bth::CONGESTION_OFFSET] = 0xff;
}

/// The CRC of a whole packet: `packet` is from its network header to its last pad byte.
#[inline]
pub fn compute(kind: Kind, packet: &[u8]) -> Result<[u8; LEN], Error> {
    Ok(Icrc::new(kind, packet)?.finish())
}

/// The ICRC of a packet whose last bytes change: `icrc` before, and which bits of them change, up to the last pad byte. A wrong one
/// stays wrong. (A CRC is linear: bits that do not change, and all before them, count nothing.)
pub fn change(icrc: [u8; LEN], changed: &[u8]) -> [u8; LEN] {
    // A register of zeros, and no final complement.
    let mut crc = Hasher::new_with_initial(!0);
    crc.update(changed);
    let by = !crc.finalize();
    (u32::from_le_bytes(icrc) ^ by).to_le_bytes()
}

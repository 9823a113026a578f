//! Marks of packets: ECN congestion experienced (RFC 3168).

/// Offset of the IP header if the frame is a TCP segment over IPv4 or IPv6 (without extension headers).
#[inline]
pub fn tcp(head: &[u8]) -> Option<usize> {
    let at = match head.get(12..14)? {
        [0x81, 0x00] => 18,
        _ => 14,
    };
    let protocol = match head.get(at - 2..at)? {
        [0x08, 0x00] => at + 9,
        [0x86, 0xdd] => at + 6,
        _ => return None,
    };
    (head.get(protocol) == Some(&6)).then_some(at)
}

/// Marks the packet whose IP header begins at `at`: congestion experienced. False: its ends do not use ECN, and the
/// packet is unchanged.
pub fn mark(head: &mut [u8], at: usize) -> bool {
    match head.get_mut(at..) {
        Some([first, tos, rest @ ..]) if *first >> 4 == 4 => {
            if *tos & 3 == 0 {
                return false;
            }
            let before = u16::from_be_bytes([*first, *tos]);
            *tos |= 3;
            let after = u16::from_be_bytes([*first, *tos]);
            // RFC 1624, equation 3; the checksum is at offset 10.
            if let Some([a, b]) = rest.get_mut(8..10) {
                let sum = u32::from(!u16::from_be_bytes([*a, *b])) + u32::from(!before) + u32::from(after);
                let sum = (sum & 0xffff) + (sum >> 16);
                let sum = (sum & 0xffff) + (sum >> 16);
                [*a, *b] = (!(sum as u16)).to_be_bytes();
            }
            true
        }
        Some([first, second, ..]) if *first >> 4 == 6 => {
            // The traffic class is bits 4 to 11; its last two are bits 5 and 4 of the second byte.
            let ecn = *second >> 4 & 3;
            *second |= 0x30;
            if ecn == 0 {
                *second &= !0x30;
            }
            ecn != 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(header: &[u8]) -> u16 {
        let mut sum = 0u32;
        for w in header.chunks(2) {
            sum += u32::from(u16::from_be_bytes([w[0], w[1]]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_ipv4_checksum_stays_right() {
        for tos in 0..=255u8 {
            for id in [0, 1, 0x1234, 0xfffe, 0xffff] {
                let mut ip = [
                    0x45, tos, 0, 60, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
                ];
                ip[4..6].copy_from_slice(&u16::to_be_bytes(id));
                let right = sum(&ip);
                ip[10..12].copy_from_slice(&right.to_be_bytes());
                let mut frame = [&[0; 12][..], &[8, 0], &ip].concat();
                assert_eq!(tcp(&frame), Some(14));
                assert_eq!(mark(&mut frame, 14), tos & 3 != 0);
                let expected = if tos & 3 == 0 { tos } else { tos | 3 };
                assert_eq!(frame[15], expected);
                let sum_now = sum(&frame[14..]);
                assert!(sum_now == 0 || sum_now == 0xffff, "{sum_now:#x}");
            }
        }
    }

    #[test]
    fn ipv6_and_tags() {
        for ecn in 0..4u8 {
            let mut ip = vec![0x6a, ecn << 4 | 0x0b, 1, 2, 0, 20, 6, 64];
            ip.resize(60, 0);
            let mut frame = [&[0; 12][..], &[0x81, 0, 0x60, 1, 0x86, 0xdd], &ip].concat();
            assert_eq!(tcp(&frame), Some(18));
            assert_eq!(mark(&mut frame, 18), ecn != 0);
            let expected = if ecn == 0 { 0x0b } else { 0x3b };
            assert_eq!((frame[18], frame[19]), (0x6a, expected));
        }
        assert_eq!(tcp(&[0; 64]), None);
        assert_eq!(tcp(&[0; 13]), None);
    }
}

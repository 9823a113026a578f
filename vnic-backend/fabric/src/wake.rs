//! Magic packets, which ask to wake a machine (AMD, Magic Packet Technology, publication 20213): somewhere in the frame stand six bytes
//! of ones and then the machine's address sixteen times. The frame's own destination and protocol do not matter.

use vnic_wire::MacAddr;

const SYNC: [u8; 6] = [0xff; 6];
const TIMES: usize = 16;
/// Bytes of the pattern.
pub const LEN: usize = SYNC.len() + 6 * TIMES;

/// The address that the first such pattern in these bytes repeats.
pub fn magic(bytes: &[u8]) -> Option<MacAddr> {
    bytes.windows(LEN).find_map(|window| {
        let (first, rest) = window.strip_prefix(&SYNC)?.split_first_chunk::<6>()?;
        let mac = MacAddr(*first);
        let same = || rest.as_chunks::<6>().0.iter().all(|other| other == first);
        (!mac.is_multicast() && same()).then_some(mac)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn pattern(mac: MacAddr, times: usize) -> Vec<u8> {
        [&SYNC[..], &mac.0.repeat(times)].concat()
    }

    #[test]
    fn the_pattern_is_found_anywhere_and_whole() {
        let whole = pattern(MAC, TIMES);
        assert_eq!(whole.len(), LEN);
        for front in [0, 1, 14, 42, 1400] {
            // More ones before the pattern are part of nothing.
            for byte in [0, 0xff] {
                let at = |pattern: &[u8]| [&vec![byte; front][..], pattern, &[1, 2, 3]].concat();
                assert_eq!(magic(&at(&whole)), Some(MAC), "{front} {byte}");
                assert_eq!(magic(&at(&pattern(MAC, TIMES - 1))), None);
                let mut other = whole.clone();
                other[LEN - 1] ^= 1;
                assert_eq!(magic(&at(&other)), None);
                other = whole.clone();
                other[5] = 0xfe;
                assert_eq!(magic(&at(&other)), None);
            }
        }
        // Nobody's address.
        assert_eq!(magic(&[0xff; 1514]), None);
        assert_eq!(magic(&[]), None);
    }
}

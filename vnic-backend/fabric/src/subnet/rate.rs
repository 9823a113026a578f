//! Codes of MTUs and rates in a PathRecord (IBTA volume 1, table 205).

/// Bytes of payload by code, from code 1 on.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Mbit/s by code, from code 2 (2.5 Gbit/s) on.
const RATES: [u32; 23] = [
    2_500, 10_000, 30_000, 5_000, 20_000, 40_000, 60_000, 80_000, 120_000, 14_000, 56_000, 112_000, 168_000,
    25_000, 100_000, 200_000, 300_000, 28_000, 50_000, 400_000, 600_000, 800_000, 1_200_000,
];

/// Bytes of payload of a code, 1 to 5.
pub fn mtu_bytes(code: u8) -> Option<u32> {
    MTUS.get(usize::from(code.checked_sub(1)?)).copied()
}

/// Code of the largest MTU with at most so many bytes of payload; the smallest one below 256.
pub fn mtu_code(bytes: u32) -> u8 {
    MTUS.iter()
        .zip(1..)
        .filter(|(mtu, _)| **mtu <= bytes)
        .map(|(_, code)| code)
        .last()
        .unwrap_or(1)
}

/// Mbit/s of a code, 2 to 24.
pub fn rate_mbps(code: u8) -> Option<u32> {
    RATES.get(usize::from(code.checked_sub(2)?)).copied()
}

/// Code of the fastest rate of at most so many Mbit/s; the slowest one below 2.5 Gbit/s.
pub fn rate_code(mbps: u32) -> u8 {
    let fits = RATES.iter().zip(2..).filter(|(rate, _)| **rate <= mbps);
    fits.max_by_key(|(rate, _)| **rate).map_or(2, |(_, code)| code)
}

/// Code of the fastest rate below that of a code.
pub(super) fn rate_below(code: u8) -> Option<u8> {
    let limit = rate_mbps(code)?;
    let slower = RATES.iter().zip(2..).filter(|(rate, _)| **rate < limit);
    slower.max_by_key(|(rate, _)| **rate).map(|(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_numbers() {
        assert_eq!([255, 256, 1023, 4096, 9000].map(mtu_code), [1, 1, 2, 5, 5]);
        assert_eq!([0, 1, 5, 6].map(mtu_bytes), [None, Some(256), Some(4096), None]);
        assert_eq!(
            [0, 2_500, 9_999, 10_000, 100_000, u32::MAX].map(rate_code),
            [2, 2, 5, 3, 16, 24]
        );
        assert_eq!(
            [1, 2, 3, 24, 25].map(rate_mbps),
            [None, Some(2_500), Some(10_000), Some(1_200_000), None]
        );
        assert_eq!([2, 3, 5, 25].map(rate_below), [None, Some(5), Some(2), None]);
    }
}

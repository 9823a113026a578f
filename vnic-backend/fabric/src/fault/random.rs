//! Randomness from a seed.

/// SplitMix64 (G. L. Steele Jr., D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA
/// 2014): eight bytes of state, any seed is as good as any other. Not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(u64);

/// The odd number next to 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix64 {
    /// The stream of two seeds. Streams of other pairs are independent of it.
    pub(crate) fn of(a: u64, b: u64) -> SplitMix64 {
        SplitMix64(mix(mix(a.wrapping_add(GAMMA)) ^ b.wrapping_mul(GAMMA)))
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// A number below `n`; 0 when `n` is 0. The bias is below n/2^64.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        // The first numbers for seed 1234567, as in the test of the JDK's and others' implementations.
        let mut r = SplitMix64(1_234_567);
        assert_eq!(r.next(), 6_457_827_717_110_365_317);
        assert_eq!(r.next(), 3_203_168_211_198_807_973);
        assert_eq!(r.next(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn numbers_stay_below() {
        let mut r = SplitMix64::of(1, 2);
        assert_eq!(r.below(0), 0);
        assert_eq!(r.below(1), 0);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[r.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
    }

    #[test]
    fn streams_differ() {
        let first = |a, b| SplitMix64::of(a, b).next();
        assert_ne!(first(0, 0), first(0, 1));
        assert_ne!(first(0, 1), first(1, 0));
        assert_eq!(first(3, 4), first(3, 4));
    }
}

//! The random numbers of the project.

/// xoshiro256++ of Blackman and Vigna, its state filled from the seed by SplitMix64.
///
/// Both are written out here so that a seed means the same numbers on every machine and in every later version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number in [0, 1): 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_never_change() {
        // SplitMix64 from 0 and xoshiro256++ of its first four outputs.
        let mut rng = Rng::new(0);
        assert_eq!(rng.state[0], 0xE220_A839_7B1D_CDAF);
        assert_eq!([rng.next_u64(), rng.next_u64()], [5987356902031041503, 7051070477665621255]);
    }

    #[test]
    fn units_fill_their_interval_evenly() {
        let mut rng = Rng::new(42);
        let mut bins = [0u32; 10];
        for _ in 0..100_000 {
            let u = rng.unit();
            assert!((0.0..1.0).contains(&u));
            bins[(u * 10.0) as usize] += 1;
        }
        assert!(bins.iter().all(|&n| (9_600..10_400).contains(&n)), "{bins:?}");
    }
}

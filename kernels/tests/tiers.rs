//! Every tier that this CPU has equals the scalar tier to the bit, for every format of the registry: packed and plain
//! products, rows of 1 to 5 blocks, 1 to 33 rows and tokens, extreme codes, outputs that start as NaN, weights at odd
//! addresses, and memory full of NaN on both sides of everything that is read.

mod support;

use quantsmith_kernels::{
    ActGroup, Activations, Format, OutMut, PANEL, Registry, Supported, Tier, Values, cpu,
};

/// A small generator (xorshift) with a fixed seed, so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// How a case fills blocks and activations.
#[derive(Clone, Copy, Debug)]
enum Fill {
    Random,
    AllOnes,
    Zero,
    High,
}

/// Rows of blocks whose floating-point fields are finite.
fn weights(format: &Format, blocks: usize, fill: Fill, random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..blocks * format.bytes)
        .map(|_| match fill {
            Fill::Random => random.next() as u8,
            Fill::AllOnes => 0xff,
            Fill::Zero => 0,
            Fill::High => 0x80,
        })
        .collect();
    for block in bytes.chunks_exact_mut(format.bytes) {
        for field in format.fields {
            use quantsmith_kernels::FieldType as T;
            for n in 0..field.count {
                let at = field.offset + n * field.ty.bytes();
                let value = ((random.below(2000) as f32) - 1000.0) / 700.0;
                match field.ty {
                    T::F16 => block[at..at + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes()),
                    T::Bf16 => block[at..at + 2].copy_from_slice(&half::bf16::from_f32(value).to_le_bytes()),
                    T::F32 => block[at..at + 4].copy_from_slice(&value.to_le_bytes()),
                    // Powers of two whose products stay in range.
                    T::E8m0 => block[at] = 118 + random.below(16) as u8,
                    _ => {}
                }
            }
        }
    }
    bytes
}

/// Quantised activations, made here so that only the products are under test.
fn activations(cols: usize, tokens: usize, fill: Fill, random: &mut Random) -> (Vec<i8>, Vec<ActGroup>) {
    let padded = Activations::padded(cols);
    let codes: Vec<i8> = (0..tokens * padded)
        .map(|_| match fill {
            Fill::Random => (random.below(255) as i32 - 127) as i8,
            Fill::AllOnes => 127,
            Fill::Zero => 0,
            Fill::High => -127,
        })
        .collect();
    let groups = codes
        .chunks_exact(32)
        .map(|codes| {
            let sum = |half: &[i8]| half.iter().map(|c| i32::from(*c)).sum::<i32>();
            ActGroup::new((random.below(1000) as f32) / 313.0, [sum(&codes[..16]), sum(&codes[16..])])
        })
        .collect();
    (codes, groups)
}

/// The bits of a value; the payload of a NaN is nobody's promise.
fn bits(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }
}

/// Bytes of 0xff (in every float type a NaN) that lie before and after what a kernel may read; an odd number, so that
/// weights lie at odd addresses.
const MARGIN: usize = 67;

/// Values with something else on both sides.
#[derive(Debug)]
struct Guarded<T>(Vec<T>);

impl<T: Copy> Guarded<T> {
    fn new(inner: &[T], poison: T) -> Self {
        let margin = || std::iter::repeat_n(poison, MARGIN);
        Guarded(margin().chain(inner.iter().copied()).chain(margin()).collect())
    }

    fn get(&self) -> &[T] {
        &self.0[MARGIN..self.0.len() - MARGIN]
    }

    fn get_mut(&mut self) -> &mut [T] {
        let end = self.0.len() - MARGIN;
        &mut self.0[MARGIN..end]
    }
}

struct Case {
    bytes: Guarded<u8>,
    codes: Guarded<i8>,
    groups: Guarded<ActGroup>,
    rows: usize,
    cols: usize,
    tokens: usize,
}

impl Case {
    fn new(
        format: &Format,
        (rows, blocks, tokens): (usize, usize, usize),
        fill: Fill,
        random: &mut Random,
    ) -> Self {
        let cols = blocks * format.elements.max(32);
        let bytes = weights(format, rows * cols / format.elements, fill, random);
        let (codes, groups) = activations(cols, tokens, fill, random);
        let nan = f32::NAN;
        let poison =
            ActGroup { scaled_sum: nan, scaled_halves: [nan; 2], ..ActGroup::new(nan, [i16::MAX.into(); 2]) };
        Case {
            bytes: Guarded::new(&bytes, 0xff),
            codes: Guarded::new(&codes, i8::MIN),
            groups: Guarded::new(&groups, poison),
            rows,
            cols,
            tokens,
        }
    }

    fn x(&self) -> Activations<'_> {
        Activations::new(self.codes.get(), self.groups.get(), self.cols, self.tokens)
    }

    fn plain(&self, format: &'static Format, tier: Supported) -> Vec<u32> {
        let mut out = self.out();
        let kernels = format.kernels(tier);
        let to = OutMut::new(out.get_mut(), self.rows, self.tokens);
        kernels.matmul_rows(self.bytes.get(), self.rows, self.x(), 0..self.rows, to);
        self.checked(&out)
    }

    fn packed(&self, format: &'static Format, tier: Supported) -> Vec<u32> {
        let mut out = self.out();
        let kernels = format.kernels(tier);
        let panels = self.rows.div_ceil(PANEL);
        let mut packed = Guarded::new(&vec![0xa5; kernels.packed_len(self.rows, self.cols)], 0xff);
        kernels.pack_panels(self.bytes.get(), self.cols, self.rows, 0..panels, packed.get_mut());
        let to = OutMut::new(out.get_mut(), self.rows, self.tokens);
        kernels.matmul_packed(packed.get(), self.rows, self.x(), 0..panels, to);
        self.checked(&out)
    }

    /// An output that starts as NaN, between values that must stay.
    fn out(&self) -> Guarded<f32> {
        Guarded::new(&vec![f32::NAN; self.rows * self.tokens], 7.0)
    }

    fn checked(&self, out: &Guarded<f32>) -> Vec<u32> {
        let around = out.0[..MARGIN].iter().chain(&out.0[out.0.len() - MARGIN..]);
        assert!(around.copied().all(|v| v == 7.0), "something was written outside the output");
        out.get().iter().copied().map(bits).collect()
    }
}

/// The definition, in plain Rust and without the kernels' own code: sums in f64, and what their terms can amount to
/// before scaled codes and minimum cancel.
fn definition(case: &Case, format: &'static Format, largest: f32) -> Vec<(f64, f64)> {
    let mut values = vec![0.0f32; case.rows * case.cols];
    format.kernels(Supported::SCALAR).dequantise(case.bytes.get(), &mut values);
    let mut out = Vec::new();
    for t in 0..case.tokens {
        let all = case.x();
        let x: Vec<f64> = (0..case.cols / 32)
            .map(|group| all.group(t, group))
            .flat_map(|(codes, group)| {
                codes.as_flattened().iter().map(|code| f64::from(*code) * f64::from(group.scale))
            })
            .collect();
        for row in values.chunks_exact(case.cols) {
            let x = |c: usize| x[c];
            let sum = row.iter().enumerate().map(|(c, w)| f64::from(*w) * x(c)).sum();
            let size = |w: &f32| f64::from(if w.is_finite() { w.abs().max(largest) } else { *w }).abs();
            out.push((sum, row.iter().enumerate().map(|(c, w)| size(w) * x(c).abs()).sum()));
        }
    }
    out
}

/// The largest weight of many blocks of a format with a minimum, where that can hide the size of what is added; else 0.
fn largest_weight(format: &'static Format, random: &mut Random) -> f32 {
    let Values::Codes { offset: true, .. } = format.values else { return 0.0 };
    let bytes = weights(format, 256, Fill::Random, random);
    let mut values = vec![0.0f32; 256 * format.elements];
    format.kernels(Supported::SCALAR).dequantise(&bytes, &mut values);
    values.into_iter().map(f32::abs).fold(0.0, f32::max)
}

/// The cases of a format: some shapes with every fill, every number of tokens, and a number of random draws.
fn cases(format: &'static Format) -> Vec<(String, Case)> {
    let seed = format.name.bytes().fold(0, |h: u64, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
    let every = [Fill::Random, Fill::AllOnes, Fill::Zero, Fill::High];
    let mut shapes = Vec::new();
    for shape in [(1, 1, 1), (16, 2, 1), (17, 3, 2), (33, 5, 3), (15, 4, 33), (7, 1, 9), (32, 2, 17)] {
        shapes.extend(every.map(|fill| (shape, fill)));
    }
    shapes.extend((1..=33).map(|tokens| ((17, 1, tokens), Fill::Random)));
    for _ in 0..16 {
        let shape = (1 + 2 * random.below(17), 1 + random.below(5), 1 + random.below(33));
        shapes.push((shape, every[random.below(4)]));
    }
    let case = |(shape, fill): ((usize, usize, usize), Fill)| {
        let (rows, blocks, tokens) = shape;
        let name = format!("{}, {rows} rows of {blocks} blocks, {tokens} tokens, {fill:?}", format.name);
        (name, Case::new(format, shape, fill, &mut random))
    };
    shapes.into_iter().map(case).collect()
}

#[test]
fn products_of_every_format_equal_scalar_to_the_bit_on_every_tier() {
    let registry = Registry::builtin();
    for format in registry.iter().filter(|f| !f.is_float()) {
        for (name, case) in cases(format) {
            let want = case.plain(format, Supported::SCALAR);
            for tier in support::tiers() {
                assert_eq!(case.plain(format, tier), want, "{name}: plain on {tier:?}");
                assert_eq!(case.packed(format, tier), want, "{name}: packed on {tier:?}");
            }
        }
    }
    support::log_tiers("kernels/tiers");
}

#[quantsmith_kernels::tiered]
#[allow(unreachable_pub, reason = "the public functions of such a module are those of its set")]
mod tiles {
    use quantsmith_kernels::arch::scalar::{Lines, Products, Unit};

    /// What each step gives.
    pub fn steps(halves: bool, codes: &[Lines], y: &[[Unit; 2]]) -> Vec<Products> {
        if halves { run::<true>(codes, y) } else { run::<false>(codes, y) }
    }

    fn run<const HALVES: bool>(codes: &[Lines], y: &[[Unit; 2]]) -> Vec<Products> {
        let mut tiles = isa::Tiles::<HALVES>::new();
        let mut all = Vec::new();
        for (codes, [first, second]) in codes.iter().zip(y) {
            let mut products = Products([[[-1; 16]; 16]; 2]);
            tiles.step(codes, [first, if HALVES { first } else { second }], &mut products);
            all.push(products);
        }
        all
    }
}

#[test]
fn tiles_give_the_products_of_two_steps_ago_on_every_tier() {
    use quantsmith_kernels::arch::scalar::Lines;
    let mut random = Random(0x7117e5);
    let mut byte = || match random.below(3) {
        0 => 0x80,
        1 => 0x7f,
        _ => random.next() as u8,
    };
    let codes: Vec<_> = (0..6).map(|_| Lines([(); 16].map(|()| [(); 64].map(|()| byte())))).collect();
    let mut unit = || [(); 16].map(|()| [(); 8].map(|()| [(); 4].map(|()| byte() as i8)));
    let y: Vec<_> = (0..6).map(|_| [unit(), unit()]).collect();
    for (halves, lines) in [(false, 8), (true, 4)] {
        let product = |step: usize, tile: usize, token: usize, row: usize| -> i32 {
            let (unit, from) = if halves { (0, 4 * lines * tile) } else { (tile, 0) };
            let y = &y[step][unit][token].as_flattened()[from..];
            let code = |c: usize| codes[step].0[lines * tile + c / 4][4 * row + c % 4] as i8;
            (0..4 * lines).map(|c| i32::from(code(c)) * i32::from(y[c])).sum()
        };
        for tier in support::tiers() {
            let steps = tiles::Set::new(tier).steps(halves, &codes, &y);
            for (step, found) in steps.iter().enumerate() {
                for (tile, found) in found.0.iter().enumerate() {
                    for (token, found) in found.iter().enumerate() {
                        let want: [i32; 16] = core::array::from_fn(|row| {
                            step.checked_sub(2).map_or(0, |loaded| product(loaded, tile, token, row))
                        });
                        assert_eq!(
                            *found, want,
                            "{tier:?}, halves {halves}: step {step}, tile {tile}, token {token}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn products_are_what_the_dequantised_weights_give() {
    let registry = Registry::builtin();
    for format in registry.iter().filter(|f| !f.is_float()) {
        let largest = largest_weight(format, &mut Random(77));
        for (name, case) in cases(format) {
            let got = case.plain(format, Supported::SCALAR);
            for (i, (got, (want, magnitude))) in
                got.iter().zip(definition(&case, format, largest)).enumerate()
            {
                let got = f64::from(f32::from_bits(*got));
                if !magnitude.is_finite() {
                    assert!(!got.is_finite(), "{name}: value {i} is {got}, although a weight is not finite");
                    continue;
                }
                // A few roundings for each of the at most 80 groups, each of at most half a unit in the last place
                // of a sum that is no larger than the sum of magnitudes; a minimum can cancel the scaled codes.
                let bound = 80.0 * 4.0 * magnitude * f64::from(f32::EPSILON) + 1e-3;
                assert!((got - want).abs() <= bound, "{name}: value {i} is {got}, not {want}");
            }
        }
    }
}

#[test]
fn every_format_has_kernels_on_every_tier() {
    for format in Registry::builtin().iter() {
        assert_eq!(format.tiers(), Tier::ALL, "{}", format.name);
        let here: Vec<_> =
            Tier::ALL.iter().filter(|t| t.arch().is_none_or(|arch| arch == cpu::ARCH)).collect();
        let rows: Vec<_> = format.rows.iter().map(|row| &row.tier).collect();
        assert_eq!(rows, here, "{}", format.name);
    }
}

#[test]
fn names_and_numbers_of_formats_are_distinct() {
    let registry = Registry::builtin();
    for (n, format) in registry.iter().enumerate() {
        for other in registry.iter().skip(n + 1) {
            assert!(!format.name.eq_ignore_ascii_case(other.name), "{} is declared twice", format.name);
            assert!(format.id.is_none() || format.id != other.id, "{} and {}", format.name, other.name);
        }
    }
}

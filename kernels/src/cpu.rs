//! What this CPU can do: the only place that asks it.
//!
//! On x86-64 the answer comes from `cpuid` and the extended control register: a feature counts only when the
//! operating system saves its registers too, so a guest whose hypervisor advertises AVX without enabling it gets
//! the scalar tier and not an illegal instruction. Where the `cpufeatures` crate knows a feature, it must agree.
//! Detection reads a [`CpuidSource`], so made-up CPUs can be tested. On AArch64 the standard library asks the
//! kernel.

use crate::Tier;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A tier that this CPU has. Only detection makes one; holding it is the proof that the tier's code may run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Supported(Tier);

impl Supported {
    /// The scalar tier, which every CPU has.
    pub const SCALAR: Supported = Supported(Tier::Scalar);

    /// The tier itself.
    pub const fn tier(self) -> Tier {
        self.0
    }
}

impl fmt::Debug for Supported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Supported").field(&self.0.name()).finish()
    }
}

/// The architecture that this program was compiled for, as `target_arch` spells it.
pub const ARCH: &str = if cfg!(target_arch = "x86_64") {
    "x86_64"
} else if cfg!(target_arch = "aarch64") {
    "aarch64"
} else {
    "another"
};

/// The answers of `cpuid` and `xgetbv`, so that a made-up CPU can give them.
pub trait CpuidSource {
    /// The registers eax, ebx, ecx, edx of a leaf and subleaf; zeros where the leaf does not exist.
    fn leaf(&self, leaf: u32, subleaf: u32) -> [u32; 4];
    /// The extended control register 0, asked only where the operating system uses it.
    fn xcr0(&self) -> u64;
}

/// Which of the features that some tier needs are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features(Vec<&'static str>);

impl Features {
    /// Whether the feature is there.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    /// The names, in a fixed order.
    pub fn names(&self) -> &[&'static str] {
        &self.0
    }

    /// Reads the features of an x86-64 CPU.
    pub fn x86_64(cpu: &dyn CpuidSource) -> Self {
        let max = cpu.leaf(0, 0)[0];
        let one = if max >= 1 { cpu.leaf(1, 0) } else { [0; 4] };
        let (seven, seven1) = if max >= 7 { (cpu.leaf(7, 0), cpu.leaf(7, 1)) } else { ([0; 4], [0; 4]) };
        let bit = |word: u32, n: u32| word >> n & 1 == 1;
        let xcr0 = if bit(one[2], 27) { cpu.xcr0() } else { 0 };
        let saved = |mask: u64| xcr0 & mask == mask;
        let (ymm, zmm, tiles) = (saved(0b110), saved(0b1110_0110), saved(0b110_0000_0000_0000_0110));
        let table: &[(&'static str, bool)] = &[
            ("avx2", ymm && bit(one[2], 28) && bit(seven[1], 5)),
            ("fma", ymm && bit(one[2], 12)),
            ("f16c", ymm && bit(one[2], 29)),
            ("avxvnni", ymm && bit(seven1[0], 4)),
            ("avx512f", zmm && bit(seven[1], 16)),
            ("avx512dq", zmm && bit(seven[1], 17)),
            ("avx512bw", zmm && bit(seven[1], 30)),
            ("avx512vl", zmm && bit(seven[1], 31)),
            ("avx512vnni", zmm && bit(seven[2], 11)),
            ("amx-tile", tiles && bit(seven[3], 24)),
            ("amx-int8", tiles && bit(seven[3], 25)),
        ];
        Features(table.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect())
    }

    /// Features given by name, for made-up CPUs of any architecture.
    pub fn from_names(names: &[&'static str]) -> Self {
        Features(names.to_vec())
    }
}

/// A CPU: its architecture and features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    arch: &'static str,
    features: Features,
}

/// A tier that was asked for and that this CPU does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// What was asked for.
    pub asked: String,
    /// The tiers that there are, the lowest first.
    pub available: Vec<Tier>,
    /// The features that are missing; empty when no tier has the name or the architecture is another.
    pub missing: Vec<&'static str>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction set '{}' is not available here", self.asked)?;
        if !self.missing.is_empty() {
            write!(f, " (the CPU lacks {})", self.missing.join(", "))?;
        }
        let names: Vec<_> = self.available.iter().map(|t| t.name()).collect();
        write!(f, "; available: {}", names.join(", "))
    }
}

impl core::error::Error for Unavailable {}

impl Cpu {
    /// Asks the CPU that this program runs on.
    pub fn detect() -> Self {
        Cpu { arch: ARCH, features: host::features() }
    }

    /// A made-up CPU, for tests of the choice. It gives no [`Supported`] tier.
    pub fn made_up(arch: &'static str, features: Features) -> Self {
        Cpu { arch, features }
    }

    /// The features that some tier needs and that are there.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The tiers that the CPU has, the lowest first.
    pub fn tiers(&self) -> Vec<Tier> {
        Tier::ALL.iter().copied().filter(|t| self.has(*t)).collect()
    }

    /// Whether the CPU has a tier.
    pub fn has(&self, tier: Tier) -> bool {
        tier.arch().is_none_or(|arch| arch == self.arch) && self.missing(tier).is_empty()
    }

    fn missing(&self, tier: Tier) -> Vec<&'static str> {
        tier.features().iter().copied().filter(|f| !self.features.has(f)).collect()
    }

    /// The best tier, or the one that was asked for by name: a name can lower the tier, never raise it past the CPU.
    pub fn choose_tier(&self, asked: Option<&str>) -> Result<Tier, Unavailable> {
        let available = self.tiers();
        let Some(asked) = asked else {
            return Ok(available.last().copied().unwrap_or(Tier::Scalar));
        };
        let named = Tier::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(asked));
        match named {
            Some(tier) if self.has(tier) => Ok(tier),
            Some(tier) if tier.arch().is_none_or(|arch| arch == self.arch) => {
                Err(Unavailable { asked: asked.into(), missing: self.missing(tier), available })
            }
            _ => Err(Unavailable { asked: asked.into(), missing: Vec::new(), available }),
        }
    }
}

/// The tiers of this very CPU, the lowest first, each with the proof that it may run.
pub fn supported() -> Vec<Supported> {
    Cpu::detect().tiers().into_iter().map(Supported).collect()
}

/// Chooses the tier for this very CPU: the best, or a lower one by name.
pub fn choose(asked: Option<&str>) -> Result<Supported, Unavailable> {
    Cpu::detect().choose_tier(asked).map(Supported)
}

#[cfg(target_arch = "x86_64")]
mod host {
    use super::{CpuidSource, Features};
    use core::arch::x86_64::{__cpuid_count, _xgetbv};

    struct Host;

    impl CpuidSource for Host {
        fn leaf(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
            let r = __cpuid_count(leaf, subleaf);
            [r.eax, r.ebx, r.ecx, r.edx]
        }

        fn xcr0(&self) -> u64 {
            #[target_feature(enable = "xsave")]
            fn read() -> u64 {
                // SAFETY: the caller has seen OSXSAVE, so `xgetbv` exists and register 0 may be read.
                unsafe { _xgetbv(0) }
            }
            // SAFETY: `Features::x86_64` asks only when CPUID.1:ECX.OSXSAVE is set, which implies XSAVE.
            unsafe { read() }
        }
    }

    /// Whether this process may use tiles. The system is asked once.
    fn tiles() -> bool {
        use core::sync::atomic::{AtomicU8, Ordering};
        const NOT_ASKED: u8 = 2;
        static ANSWER: AtomicU8 = AtomicU8::new(NOT_ASKED);
        if ANSWER.load(Ordering::Relaxed) == NOT_ASKED {
            // Two threads that get here at once both ask, which does no harm.
            ANSWER.store(u8::from(tiles_permitted()), Ordering::Relaxed);
        }
        ANSWER.load(Ordering::Relaxed) == 1
    }

    /// Asks the system for the use of tiles, for this process and for good.
    #[cfg(target_os = "linux")]
    fn tiles_permitted() -> bool {
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
        const XTILEDATA: i64 = 18;
        let answer: i64;
        // SAFETY: the call takes two numbers and touches no memory; `syscall` changes rcx and r11, which are named.
        unsafe {
            core::arch::asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => answer,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        answer == 0
    }

    /// How other systems are asked is not known here.
    #[cfg(not(target_os = "linux"))]
    fn tiles_permitted() -> bool {
        false
    }

    cpufeatures::new!(avx2_known, "avx2");
    cpufeatures::new!(fma_known, "fma");
    cpufeatures::new!(avx512f_known, "avx512f");
    cpufeatures::new!(avx512bw_known, "avx512bw");
    cpufeatures::new!(avx512dq_known, "avx512dq");
    cpufeatures::new!(avx512vl_known, "avx512vl");

    pub(super) fn features() -> Features {
        let mut features = Features::x86_64(&Host);
        if features.has("amx-tile") && !tiles() {
            features.0.retain(|name| !name.starts_with("amx"));
        }
        features.0.retain(|name| match *name {
            "avx2" => avx2_known::get(),
            "fma" => fma_known::get(),
            "avx512f" => avx512f_known::get(),
            "avx512bw" => avx512bw_known::get(),
            "avx512dq" => avx512dq_known::get(),
            "avx512vl" => avx512vl_known::get(),
            _ => true,
        });
        features
    }
}

#[cfg(target_arch = "aarch64")]
mod host {
    use super::Features;

    /// Without the standard library nobody asks the system, and only the baseline is sure.
    #[cfg(not(feature = "std"))]
    pub(super) fn features() -> Features {
        Features::from_names(&["neon"])
    }

    #[cfg(feature = "std")]
    pub(super) fn features() -> Features {
        use std::arch::is_aarch64_feature_detected;

        let table = [
            ("neon", is_aarch64_feature_detected!("neon")),
            ("dotprod", is_aarch64_feature_detected!("dotprod")),
            ("i8mm", is_aarch64_feature_detected!("i8mm")),
        ];
        Features(table.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect())
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod host {
    pub(super) fn features() -> super::Features {
        super::Features::default()
    }
}

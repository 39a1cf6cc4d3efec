//! The choice of the tier, with made-up CPUs: what counts, what is refused, and what the refusal says.

use quantsmith_kernels::cpu::{CpuidSource, Features};
use quantsmith_kernels::{Cpu, Tier};

/// A CPU as its registers describe it.
struct MadeUp {
    leaf1_ecx: u32,
    leaf7: [u32; 4],
    leaf7_1_eax: u32,
    xcr0: u64,
    max_leaf: u32,
}

impl CpuidSource for MadeUp {
    fn leaf(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        match (leaf, subleaf) {
            (0, _) => [self.max_leaf, 0, 0, 0],
            (1, _) => [0, 0, self.leaf1_ecx, 0],
            (7, 0) => self.leaf7,
            (7, 1) => [self.leaf7_1_eax, 0, 0, 0],
            _ => panic!("leaf {leaf:#x} was not expected to be asked"),
        }
    }

    fn xcr0(&self) -> u64 {
        assert!(
            self.leaf1_ecx >> 27 & 1 == 1,
            "xgetbv where the system does not use it is an illegal instruction"
        );
        self.xcr0
    }
}

const OSXSAVE: u32 = 1 << 27;
const AVX_FMA_F16C: u32 = 1 << 28 | 1 << 12 | 1 << 29;
const AVX2: u32 = 1 << 5;
const AVX512: u32 = 1 << 16 | 1 << 17 | 1 << 30 | 1 << 31;
const VNNI: u32 = 1 << 11;

fn server() -> MadeUp {
    MadeUp {
        leaf1_ecx: OSXSAVE | AVX_FMA_F16C,
        leaf7: [0, AVX2 | AVX512, VNNI, 1 << 24 | 1 << 25],
        leaf7_1_eax: 0,
        xcr0: 0b110_0000_0000_1110_0111,
        max_leaf: 7,
    }
}

fn tiers(cpu: &MadeUp) -> Vec<&'static str> {
    Cpu::made_up("x86_64", Features::x86_64(cpu)).tiers().into_iter().map(Tier::name).collect()
}

#[test]
fn a_server_has_every_tier_up_to_its_best() {
    assert!(tiers(&server()).contains(&"avx512vnni"));
    assert_eq!(tiers(&server()), ["scalar", "avx2", "avx512", "avx512vnni", "amx"]);
}

#[test]
fn registers_that_the_system_does_not_save_do_not_count() {
    assert_eq!(tiers(&MadeUp { xcr0: 0b1110_0111, ..server() }).last(), Some(&"avx512vnni"), "no tiles");
    assert_eq!(tiers(&MadeUp { xcr0: 0b110, ..server() }).last(), Some(&"avx2"), "no AVX-512 state");
    assert_eq!(tiers(&MadeUp { xcr0: 0b010, ..server() }), ["scalar"], "no AVX state");
    assert_eq!(tiers(&MadeUp { leaf1_ecx: AVX_FMA_F16C, ..server() }), ["scalar"], "no OSXSAVE");
}

#[test]
fn each_feature_is_needed_by_itself() {
    for missing in [1 << 12, 1 << 29, 1 << 28] {
        let cpu = MadeUp { leaf1_ecx: (OSXSAVE | AVX_FMA_F16C) & !missing, ..server() };
        assert!(!tiers(&cpu).contains(&"avx2"), "AVX2 without bit {missing:#x}");
    }
    let no_vl = MadeUp { leaf7: [0, AVX2 | AVX512 & !(1 << 31), VNNI, 0], ..server() };
    assert!(!tiers(&no_vl).contains(&"avx512vnni"), "AVX-512 VNNI without VL");
    let no_vnni = MadeUp { leaf7: [0, AVX2 | AVX512, 0, 0], ..server() };
    assert_eq!(tiers(&no_vnni), ["scalar", "avx2", "avx512"]);
    let no_int8 = MadeUp { leaf7: [0, AVX2 | AVX512, VNNI, 1 << 24], ..server() };
    assert_eq!(tiers(&no_int8).last(), Some(&"avx512vnni"), "tiles without int8");
    let desktop = MadeUp { leaf7: [0, AVX2, 0, 0], leaf7_1_eax: 1 << 4, ..server() };
    assert_eq!(tiers(&desktop), ["scalar", "avx2", "avxvnni"]);
}

#[test]
fn an_old_cpu_is_asked_only_for_the_leaves_it_has() {
    let old =
        MadeUp { leaf1_ecx: 0, leaf7: [u32::MAX; 4], leaf7_1_eax: u32::MAX, xcr0: u64::MAX, max_leaf: 1 };
    assert_eq!(tiers(&old), ["scalar"]);
}

#[test]
fn a_name_lowers_the_tier_and_never_raises_it() {
    let cpu = Cpu::made_up("x86_64", Features::from_names(&["avx2", "fma", "f16c"]));
    assert_eq!(cpu.choose_tier(None), Ok(Tier::Avx2));
    assert_eq!(cpu.choose_tier(Some("scalar")), Ok(Tier::Scalar));
    assert_eq!(cpu.choose_tier(Some("AVX2")), Ok(Tier::Avx2));
    let error = cpu.choose_tier(Some("avx512vnni")).expect_err("the CPU lacks it").to_string();
    assert!(error.contains("the CPU lacks avx512f"), "{error}");
    assert!(error.ends_with("available: scalar, avx2"), "{error}");
    let error = cpu.choose_tier(Some("neon")).expect_err("another architecture").to_string();
    assert!(error.contains("'neon' is not available here; available: scalar, avx2"), "{error}");
    assert!(cpu.choose_tier(Some("sse9")).is_err());
}

#[test]
fn arm_has_its_own_tiers() {
    let cpu = Cpu::made_up("aarch64", Features::from_names(&["neon", "avx2", "fma", "f16c"]));
    assert_eq!(cpu.choose_tier(None), Ok(Tier::Neon));
    assert!(cpu.choose_tier(Some("avx2")).is_err());
    let phone = Cpu::made_up("aarch64", Features::from_names(&["neon", "dotprod"]));
    assert_eq!(phone.choose_tier(None), Ok(Tier::DotProd));
    let server = Cpu::made_up("aarch64", Features::from_names(&["neon", "dotprod", "i8mm"]));
    assert_eq!(server.choose_tier(None), Ok(Tier::I8mm));
}

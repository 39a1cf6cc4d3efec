//! The instruction-set tiers: one row each, and everything that is made from a row.
//!
//! A tier is a value, never a `match` on its name. The `#[cfg]` and `#[target_feature]` attributes of emitted code,
//! the `Tier` type of the kernels crate, the features that detection asks for, and the names in tests, tables and
//! documentation all come from [`TIERS`]. To add a tier, add a row here and a vocabulary module of the same name
//! under `kernels/src/arch/`.

pub(crate) mod lower;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// One instruction-set tier.
pub(crate) struct IsaSpec {
    /// Name in paths, on the command line and in tests.
    pub name: &'static str,
    /// Variant of the `Tier` enum.
    pub variant: &'static str,
    /// `target_arch` that has it; `None` for every architecture.
    pub arch: Option<&'static str>,
    /// Features that the compiler is told about.
    pub features: &'static [&'static str],
    /// Features that only detection knows, because stable Rust cannot name them in an attribute.
    pub detect_only: &'static [&'static str],
    /// Width of a vector register in bits; 0 where there is none.
    pub bits: u32,
    /// One line for `cpu` and for the documentation.
    pub about: &'static str,
}

/// Every tier, the lowest first; within an architecture this is the order of preference.
pub(crate) const TIERS: &[IsaSpec] = &[
    IsaSpec {
        name: "scalar",
        variant: "Scalar",
        arch: None,
        features: &[],
        detect_only: &[],
        bits: 0,
        about: "plain Rust: the specification of every kernel",
    },
    IsaSpec {
        name: "avx2",
        variant: "Avx2",
        arch: Some("x86_64"),
        features: &["avx2", "fma", "f16c"],
        detect_only: &[],
        bits: 256,
        about: "AVX2 with FMA and F16C",
    },
    IsaSpec {
        name: "avxvnni",
        variant: "AvxVnni",
        arch: Some("x86_64"),
        features: &["avx2", "fma", "f16c", "avxvnni"],
        detect_only: &[],
        bits: 256,
        about: "AVX2 with VNNI",
    },
    IsaSpec {
        name: "avx512",
        variant: "Avx512",
        arch: Some("x86_64"),
        features: &["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"],
        detect_only: &[],
        bits: 512,
        about: "AVX-512 (F, BW, DQ, VL)",
    },
    IsaSpec {
        name: "avx512vnni",
        variant: "Avx512Vnni",
        arch: Some("x86_64"),
        features: &["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"],
        detect_only: &[],
        bits: 512,
        about: "AVX-512 (F, BW, DQ, VL) with VNNI",
    },
    IsaSpec {
        name: "amx",
        variant: "Amx",
        arch: Some("x86_64"),
        features: &["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"],
        detect_only: &["amx-tile", "amx-int8"],
        bits: 512,
        about: "AMX tiles of int8, on top of AVX-512 VNNI",
    },
    IsaSpec {
        name: "neon",
        variant: "Neon",
        arch: Some("aarch64"),
        features: &["neon"],
        detect_only: &[],
        bits: 128,
        about: "the baseline of AArch64",
    },
    IsaSpec {
        name: "dotprod",
        variant: "DotProd",
        arch: Some("aarch64"),
        features: &["neon", "dotprod"],
        detect_only: &[],
        bits: 128,
        about: "NEON with dot products",
    },
    IsaSpec {
        name: "i8mm",
        variant: "I8mm",
        arch: Some("aarch64"),
        features: &["neon", "dotprod", "i8mm"],
        detect_only: &[],
        bits: 128,
        about: "NEON with dot products and 8-bit matrix products",
    },
];

impl IsaSpec {
    /// The tier's name as an identifier.
    pub(crate) fn ident(&self) -> Ident {
        Ident::new(self.name, Span::call_site())
    }

    /// The tier's variant of `Tier` as an identifier.
    pub(crate) fn variant_ident(&self) -> Ident {
        Ident::new(self.variant, Span::call_site())
    }

    /// `#[cfg(target_arch = …)]`, or nothing for a tier that every architecture has.
    pub(crate) fn cfg(&self) -> TokenStream {
        match self.arch {
            Some(arch) => quote!(#[cfg(target_arch = #arch)]),
            None => TokenStream::new(),
        }
    }

    /// `#[target_feature(enable = …)]`, or nothing for a tier without features.
    pub(crate) fn target_feature(&self) -> TokenStream {
        if self.features.is_empty() {
            return TokenStream::new();
        }
        let list = self.features.join(",");
        quote!(#[target_feature(enable = #list)])
    }
}

/// Emits the `Tier` enum of the kernels crate, made from [`TIERS`].
pub(crate) fn tier_enum() -> TokenStream {
    let variants: Vec<_> = TIERS.iter().map(IsaSpec::variant_ident).collect();
    let docs: Vec<_> = TIERS.iter().map(|t| t.about).collect();
    let names: Vec<_> = TIERS.iter().map(|t| t.name).collect();
    let bits: Vec<_> = TIERS.iter().map(|t| t.bits).collect();
    let archs = TIERS.iter().map(|t| match t.arch {
        Some(arch) => quote!(::core::option::Option::Some(#arch)),
        None => quote!(::core::option::Option::None),
    });
    let features = TIERS.iter().map(|t| {
        let all = t.features.iter().chain(t.detect_only);
        quote!(&[#(#all),*])
    });
    quote! {
        /// An instruction-set tier. Within an architecture the order of the variants is the order of preference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Tier { #(#[doc = #docs] #variants),* }

        impl Tier {
            /// Every tier of every architecture, the lowest first.
            pub const ALL: &'static [Tier] = &[#(Tier::#variants),*];

            /// The name on the command line, in paths and in tests.
            pub const fn name(self) -> &'static str { match self { #(Tier::#variants => #names),* } }

            /// One line that says what the tier is.
            pub const fn about(self) -> &'static str { match self { #(Tier::#variants => #docs),* } }

            /// Width of a vector register in bits, 0 where there is none.
            pub const fn bits(self) -> u32 { match self { #(Tier::#variants => #bits),* } }

            /// The `target_arch` that has the tier, `None` for all of them.
            pub const fn arch(self) -> ::core::option::Option<&'static str> {
                match self { #(Tier::#variants => #archs),* }
            }

            /// The CPU features that the tier's code needs.
            pub const fn features(self) -> &'static [&'static str] {
                match self { #(Tier::#variants => #features),* }
            }
        }
    }
}

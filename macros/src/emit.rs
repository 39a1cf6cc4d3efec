//! Plan to code: the row of facts, and one module of kernels per tier.
//!
//! For `Q4_K` this emits `pub static Q4_K: Format` and `pub mod q4_k` with the scalar functions that read scales and,
//! for each tier, a module such as `q4_k::avx2` with `dequantise`, `matmul`, `matmul_rows` and `pack`. The bodies hold
//! no `unsafe` and no intrinsics: they are words of the tier's vocabulary, handed to the kernels that are written once.
//! Every tier is emitted, each under its `cfg`, because a macro does not know the target.

use crate::ast::FieldType;
use crate::isa::{IsaSpec, TIERS, lower};
use crate::model::{Codes, Format, Part, Values};
use crate::names;
use crate::plan::{Plan, RecordPart, plan};
use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

/// The whole output for a legal format.
pub(crate) fn emit(format: &Format) -> TokenStream {
    let (k, module) = (names::support(), names::module(&format.name));
    let (docs, name) = (&format.docs, &format.name);
    let facts = facts(format);
    let about = format!("The kernels of [`{name}`], one module per tier.");
    let body = match &format.values {
        Values::Float(ty) => float(*ty),
        Values::Codes(codes) => coded(format, codes),
    };
    quote! {
        #(#docs)*
        pub static #name: #k::Format = #facts;

        #[doc = #about]
        #[allow(unused_parens, unused_variables, unused_imports, clippy::all, reason = "generated code")]
        pub mod #module {
            use #k as k;
            #body
        }
    }
}

/// Items that stand in for a format that has errors, so that one mistake gives one message.
pub(crate) fn stub(name: &proc_macro2::Ident) -> TokenStream {
    let k = names::support();
    quote! {
        #[allow(missing_docs)]
        pub static #name: #k::Format = #k::Format::invalid();
    }
}

fn facts(format: &Format) -> TokenStream {
    let k = names::support();
    let module = names::module(&format.name);
    let (name, id, elements, bytes) = (format.name.to_string(), format.id, format.elements, format.bytes);
    let about = first_line(&format.docs);
    let fields = format.fields.iter().map(|f| {
        let (name, byte, count) = (&f.name, f.byte, f.count.unwrap_or(1));
        let ty = field_type(f.ty);
        quote!(#k::Field { name: #name, ty: #k::FieldType::#ty, offset: #byte, count: #count })
    });
    let values = match &format.values {
        Values::Float(ty) => {
            let ty = field_type(*ty);
            quote!(#k::Values::Float(#k::FieldType::#ty))
        }
        Values::Codes(codes) => {
            let (group, bits, bias, max) = (codes.group, codes.bits, codes.bias, codes.max);
            let (table, offset) = (codes.table.is_some(), codes.offset.is_some());
            quote!(#k::Values::Codes { group: #group, bits: #bits, bias: #bias, max: #max, table: #table, offset: #offset })
        }
    };
    quote! {
        #k::Format {
            name: #name, about: #about, id: #id, elements: #elements, bytes: #bytes,
            fields: &[#(#fields),*], values: #values, rows: #module::ROWS,
        }
    }
}

fn first_line(docs: &[syn::Attribute]) -> String {
    let line = docs.iter().find_map(|doc| match &doc.meta {
        syn::Meta::NameValue(pair) => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value().trim().to_string()),
            _ => None,
        },
        _ => None,
    });
    line.unwrap_or_default()
}

fn field_type(ty: FieldType) -> proc_macro2::Ident {
    let name = ty.name();
    format_ident!("{}{}", name[..1].to_uppercase(), name[1..])
}

/// A plain number: the kernels exist already, per type of float.
fn float(ty: FieldType) -> TokenStream {
    let (dequantise, matmul) = (format_ident!("dequantise_{}", ty.name()), format_ident!("matmul_{}", ty.name()));
    let rows = TIERS.iter().map(|tier| {
        let (cfg, module, variant) = (tier.cfg(), tier.ident(), tier.variant_ident());
        quote! {
            #cfg
            k::TierKernels {
                tier: k::Tier::#variant,
                dequantise: k::float::#module::#dequantise,
                product: k::Product::Float { matmul: k::float::#module::#matmul },
            }
        }
    });
    quote! {
        /// The kernels of every tier of this architecture, the lowest tier first.
        pub static ROWS: &[k::TierKernels] = &[#(#rows),*];
    }
}

fn coded(format: &Format, codes: &Codes) -> TokenStream {
    let plan = plan(format, codes);
    let scalar = scalar_functions(format, codes, &plan);
    let tiers = TIERS.iter().map(|tier| tier_module(format, codes, &plan, tier));
    let rows = TIERS.iter().map(|tier| {
        let (cfg, module, variant) = (tier.cfg(), tier.ident(), tier.variant_ident());
        quote! {
            #cfg
            k::TierKernels {
                tier: k::Tier::#variant,
                dequantise: #module::dequantise,
                product: k::Product::Codes {
                    matmul: #module::matmul, matmul_rows: #module::matmul_rows, pack: #module::pack,
                    unit: UNIT, record: RECORD, units: UNITS,
                },
            }
        }
    });
    let (bytes, unit, record) = (format.bytes, plan.unit, plan.record);
    let tables = format.tables.iter().map(|(name, entries)| {
        let (count, entries) = (entries.len(), entries.iter().map(|e| Literal::i32_unsuffixed(*e as i32)));
        quote!(static #name: [i32; #count] = [#(#entries),*];)
    });
    let (units, groups) = (format.elements / 32, format.elements / codes.group);
    quote! {
        #(#tables)*
        const BYTES: usize = #bytes;
        const UNIT: usize = #unit;
        const RECORD: usize = #record;
        const UNITS: usize = #units;
        const GROUPS: usize = #groups;
        /// The kernels of every tier of this architecture, the lowest tier first.
        pub static ROWS: &[k::TierKernels] = &[#(#rows),*];
        #scalar
        #(#tiers)*
    }
}

/// What every tier shares: reading scales and offsets, and filling a packed record.
fn scalar_functions(format: &Format, codes: &Codes, plan: &Plan) -> TokenStream {
    let groups = format.elements / codes.group;
    let scales = (0..groups).map(|g| part_value(&codes.scale, g));
    let offsets = codes.offset.as_ref().map(|offset| {
        let values = (0..groups).map(|g| {
            let value = part_value(&offset.part, g);
            if offset.subtracted { quote!(-(#value)) } else { value }
        });
        quote!([#(#values),*])
    });
    let offsets = offsets.unwrap_or_else(|| quote!([0.0; GROUPS]));
    let floats = plan.floats.iter().map(|f| {
        let (width, from, to) = (f.ty.bytes(), f.from, f.to);
        quote!(k::put::<#width>(record, #to + #width * lane, k::bytes::<#width>(block, #from));)
    });
    let record_codes = |part: &Part, at: &RecordPart| -> Vec<TokenStream> {
        let Some(code) = &part.code else { return Vec::new() };
        let value = |(g, v)| {
            let (v, to) = (lower::scalar(v), at.code_at + g * at.code_step);
            quote!(record[#to + lane] = (#v) as u8;)
        };
        code.values.iter().enumerate().map(value).collect()
    };
    let scale_codes = record_codes(&codes.scale, &plan.scale);
    let offset_codes = match (&codes.offset, &plan.offset) {
        (Some(offset), Some(at)) => record_codes(&offset.part, at),
        _ => Vec::new(),
    };
    quote! {
        /// The scale of each group.
        #[inline]
        fn scales(block: &[u8; BYTES]) -> [f32; GROUPS] { [#(#scales),*] }

        /// What is added to each weight of a group.
        #[inline]
        fn offsets(block: &[u8; BYTES]) -> [f32; GROUPS] { #offsets }

        /// Writes the scale parts of one row of a panel.
        #[inline]
        fn fill(block: &[u8; BYTES], lane: usize, record: &mut [u8; RECORD]) {
            #(#floats)* #(#scale_codes)* #(#offset_codes)*
        }
    }
}

/// A part's value of one group, read from the block.
fn part_value(part: &Part, g: usize) -> TokenStream {
    let (ty, byte) = part.float[g];
    let read = format_ident!("{}_at", ty.name());
    let mut value = quote!(k::#read(block, #byte));
    if let Some(code) = &part.code {
        let code = lower::scalar(&code.values[g]);
        value = quote!(#value * (#code) as f32);
    }
    if part.factor != 1.0 {
        let factor = Literal::f32_suffixed(part.factor);
        value = quote!(#value * #factor);
    }
    value
}

/// A part's values of sixteen rows, read from a record.
fn part_lanes(part: &RecordPart, codes: &Codes) -> TokenStream {
    let read = format_ident!("{}_at", part.float.name());
    let (at, step) = (part.float_at, part.float_step);
    // The kernel counts in groups of 16 or 32; a larger group covers several of those.
    let per_group = (codes.group / 32).max(1);
    let group = if per_group == 1 { quote!(group) } else { quote!((group / #per_group)) };
    let place = |at: usize, step: usize| if step == 0 { quote!(#at) } else { quote!(#at + #step * #group) };
    let float = place(at, step);
    let mut value = quote!(kernel::#read(record, #float, sub));
    if part.has_code {
        let code = place(part.code_at, part.code_step);
        let read = names::local(if part.signed { "i8_at" } else { "u8_at" });
        value = quote!(isa::mul(#value, kernel::#read(record, #code, sub)));
    }
    if part.factor != 1.0 {
        let factor = Literal::f32_suffixed(part.factor);
        value = quote!(isa::mul(#value, isa::splat(#factor)));
    }
    value
}

/// One tier's functions.
fn tier_module(format: &Format, codes: &Codes, plan: &Plan, tier: &IsaSpec) -> TokenStream {
    let (cfg, name, feature) = (tier.cfg(), tier.ident(), tier.target_feature());
    let about = format!("Kernels of `{}` for {}.", format.name, tier.about);
    let (bias, max) = (Literal::i32_unsuffixed(codes.bias), Literal::i32_unsuffixed(codes.max));
    let (runs, bits) = (format.elements / 16, codes.bits);
    let (halves, has_offset) = (codes.group == 16, codes.offset.is_some());
    let block_body = lower::block_codes(&plan.runs);
    let unit_body = lower::unit_codes(codes.bits);
    let (block_lookup, unit_lookup) = match &codes.table {
        None => (quote!(raw(block)), quote!({ #unit_body })),
        Some(entries) => {
            let entries = quote!(&[#(#entries),*]);
            let (run, quad) = (0..runs, 0..8usize);
            (
                quote!({ let raw = raw(block); [#(isa::h_table(raw[#run], #entries)),*] }),
                quote!({ let quads = { #unit_body }; [#(isa::table(quads[#quad], #entries)),*] }),
            )
        }
    };
    let scale = part_lanes(&plan.scale, codes);
    let offset = match (&plan.offset, &codes.offset) {
        (Some(part), Some(offset)) => {
            let value = part_lanes(part, codes);
            if offset.subtracted { quote!(isa::neg(#value)) } else { value }
        }
        _ => quote!(isa::splat(0.0)),
    };
    quote! {
        #cfg
        #[doc = #about]
        pub mod #name {
            use super::*;
            use k::arch::#name as isa;
            use k::kernel::#name as kernel;

            /// Stored codes of a block, sixteen to a register.
            #[inline]
            #feature
            fn raw(block: &[u8; BYTES]) -> [isa::H; #runs] { #block_body }

            /// Codes of a block, sixteen to a register.
            #[inline]
            #feature
            fn codes(block: &[u8; BYTES]) -> [isa::H; #runs] { #block_lookup }

            /// Codes of a unit of a panel: eight quads of columns, a row to a lane.
            #[inline]
            #feature
            fn unit_codes(unit: &[u8; UNIT], sub: usize) -> [isa::I; 8] { #unit_lookup }

            /// Scales of a group of sixteen rows.
            #[inline]
            #feature
            fn scale(record: &[u8; RECORD], group: usize, sub: usize) -> isa::F { #scale }

            /// Offsets of a group of sixteen rows.
            #[inline]
            #feature
            fn offset(record: &[u8; RECORD], group: usize, sub: usize) -> isa::F { #offset }

            /// The values of whole blocks.
            #feature
            pub fn dequantise(bytes: &[u8], out: &mut [f32]) {
                kernel::dequantise::<BYTES, #runs, GROUPS, #bias, #has_offset>(
                    bytes, out, |block| codes(block), |block| scales(block), |block| offsets(block),
                );
            }

            /// Matrix product over packed panels.
            #feature
            pub fn matmul(job: k::PanelJob<'_>) {
                kernel::matmul::<UNIT, RECORD, UNITS, #halves, #max, #bias, #has_offset>(
                    job,
                    |unit, sub| unit_codes(unit, sub),
                    |record, group, sub| scale(record, group, sub),
                    |record, group, sub| offset(record, group, sub),
                );
            }

            /// Matrix product over rows in the file's layout.
            #feature
            pub fn matmul_rows(job: k::RowJob<'_>) {
                kernel::matmul_rows::<BYTES, #runs, GROUPS, #max, #bias, #has_offset>(
                    job, |block| codes(block), |block| scales(block), |block| offsets(block),
                );
            }

            /// Packs rows into panels.
            #feature
            pub fn pack(job: k::PackJob<'_>) {
                kernel::pack::<BYTES, #runs, UNIT, RECORD, UNITS, #bits>(
                    job, |block| raw(block), |block, lane, record| fill(block, lane, record),
                );
            }
        }
    }
}

//! Plan to code: the row of facts, and one module of kernels per tier.
//!
//! For `Q4_K` this emits `pub static Q4_K: Format` and `pub mod q4_k` with the scalar functions that read scales and,
//! for each tier, a module such as `q4_k::avx2` with `dequantise`, `matmul`, `matmul_rows` and `pack`. The bodies hold
//! no `unsafe` and no intrinsics: they are words of the tier's vocabulary, handed to the kernels that are written once.
//! Every tier is emitted, each under its `cfg`, because a macro does not know the target.

use crate::ast::{Derived, FieldType};
use crate::emit_inverse;
use crate::isa::{IsaSpec, TIERS, lower};
use crate::model::{Codes, Each, Format, Part, Source, Values};
use crate::names;
use crate::plan::{Plan, RecordPart, Run, plan};
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

/// The list of a family's formats.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a proc_macro2::Ident>) -> TokenStream {
    let k = names::support();
    quote! {
        /// The formats of this module, in the order of declaration.
        pub static FORMATS: &[&#k::Format] = &[#(&#names),*];
    }
}

fn facts(format: &Format) -> TokenStream {
    let k = names::support();
    let module = names::module(&format.name);
    let (name, elements, bytes) = (format.name.to_string(), format.elements, format.bytes);
    let id = match format.id {
        Some(id) => quote!(::core::option::Option::Some(#id)),
        None => quote!(::core::option::Option::None),
    };
    let about = first_line(&format.docs);
    let digest = format.digest.iter().map(|byte| Literal::u8_unsuffixed(*byte));
    let tiers = TIERS.iter().map(IsaSpec::variant_ident);
    let fields = format.fields.iter().map(|f| {
        let (name, byte, count) = (&f.name, f.byte, f.count.unwrap_or(1));
        let ty = field_type(f.ty);
        let derived = match f.derived {
            None => quote!(::core::option::Option::None),
            Some(Derived::Sum) => quote!(::core::option::Option::Some(#k::Derived::Sum)),
            Some(Derived::ScaledSum) => quote!(::core::option::Option::Some(#k::Derived::ScaledSum)),
        };
        quote!(#k::Field { name: #name, ty: #k::FieldType::#ty, offset: #byte, count: #count, derived: #derived })
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
    let inverse = match &format.values {
        Values::Float(_) => quote!(::core::result::Result::Err("a number is converted")),
        Values::Codes(codes) => emit_inverse::inverse(format, codes),
    };
    quote! {
        #k::Format {
            name: #name, about: #about, id: #id, digest: [#(#digest),*], elements: #elements, bytes: #bytes,
            fields: &[#(#fields),*], values: #values, tiers: &[#(#k::Tier::#tiers),*], rows: #module::ROWS,
            inverse: #inverse,
        }
    }
}

fn first_line(docs: &[syn::Attribute]) -> String {
    let line = docs.iter().find_map(|doc| match &doc.meta {
        syn::Meta::NameValue(pair) => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
                Some(text.value().trim().to_string())
            }
            _ => None,
        },
        _ => None,
    });
    line.unwrap_or_default()
}

pub(crate) fn field_type(ty: FieldType) -> proc_macro2::Ident {
    let name = ty.name();
    format_ident!("{}{}", name[..1].to_uppercase(), name[1..])
}

/// A plain number: the kernels exist already, per type of float.
fn float(ty: FieldType) -> TokenStream {
    let (dequantise, matmul) =
        (format_ident!("dequantise_{}", ty.name()), format_ident!("matmul_{}", ty.name()));
    let rows = TIERS.iter().map(|tier| {
        let (cfg, module, variant) = (tier.cfg(), tier.ident(), tier.variant_ident());
        quote! {
            #cfg
            k::TierKernels {
                tier: k::Tier::#variant,
                dequantise: k::float::#module::#dequantise,
                product: k::Product::Float { matmul: k::float_product::#module::#matmul },
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
    let (bytes, unit, record) = (codes.repeat * format.bytes, plan.unit, plan.record);
    let tables = format.tables.iter().map(|table| {
        let (name, count) = (&table.name, table.entries.len());
        let entries = table.entries.iter().map(|e| Literal::i32_unsuffixed(*e as i32));
        // Naming the file here makes the compiler look at it again when it changes.
        let watch = table.file.as_ref().map(|file| {
            quote!(
                const _: &[u8] = ::core::include_bytes!(#file);
            )
        });
        quote!(#watch static #name: [i32; #count] = [#(#entries),*];)
    });
    let (bits, bias, has_offset) = (codes.bits, Literal::i32_unsuffixed(codes.bias), codes.offset.is_some());
    let table = codes.table.map(|entries| quote!(static TABLE: [u8; 16] = [#(#entries),*];));
    let table_ref = match codes.table {
        Some(_) => quote!(::core::option::Option::Some(&TABLE)),
        None => quote!(::core::option::Option::None),
    };
    let needed = plan.runs.iter().any(|run| matches!(run, Run::Each(_)));
    let each = needed.then(|| each_function(format, codes, &codes.each));
    let elements = codes.repeat * format.elements;
    let (units, groups) = (elements / 32, elements / codes.group);
    quote! {
        #(#tables)*
        const BYTES: usize = #bytes;
        const UNIT: usize = #unit;
        const RECORD: usize = #record;
        const UNITS: usize = #units;
        #table
        static SHAPE: k::Shape = k::Shape {
            bytes: BYTES, units: UNITS, groups: #groups, bits: #bits, bias: #bias, offset: #has_offset,
            unit: UNIT, record: RECORD, table: #table_ref,
        };
        /// The kernels of every tier of this architecture, the lowest tier first.
        pub static ROWS: &[k::TierKernels] = &[#(#rows),*];
        #each
        #scalar
        #(#tiers)*
    }
}

/// Codes that are not just bits, one after the other.
fn each_function(format: &Format, codes: &Codes, each: &Each) -> TokenStream {
    let functions = lower::element(each, &format.fields, &format.tables);
    let (elements, bytes, all) = (format.elements, format.bytes, codes.repeat * format.elements);
    let stored = match &each.values {
        Some(values) => {
            // The number of a value among the few that there are, found by the value itself.
            let low = values.iter().copied().min().unwrap_or(0);
            let mut numbers = vec![0u8; (values.iter().copied().max().unwrap_or(0) - low + 1) as usize];
            for (n, value) in values.iter().enumerate() {
                numbers[(value - low) as usize] = n as u8;
            }
            let (count, low) = (numbers.len(), Literal::i64_unsuffixed(low));
            quote! {{
                static NUMBERS: [u8; #count] = [#(#numbers),*];
                NUMBERS[(value - (#low)) as usize]
            }}
        }
        None => {
            let low = Literal::i64_unsuffixed(each.low);
            quote!((value - (#low)) as u8)
        }
    };
    quote! {
        #functions
        /// Stored codes of a block.
        #[inline(never)]
        fn each(block: &[u8; BYTES]) -> [u8; #all] {
            let mut all = [0u8; #all];
            let mut i = 0usize;
            while i < #all {
                let value = element(&block[i / #elements * #bytes..], (i % #elements) as i64);
                all[i] = #stored;
                i += 1;
            }
            all
        }
    }
}

/// What every tier shares: reading scales and offsets, and filling a packed record.
fn scalar_functions(format: &Format, codes: &Codes, plan: &Plan) -> TokenStream {
    let groups = codes.repeat * format.elements / codes.group;
    let scales = (0..groups).map(|g| {
        let value = part_value(&codes.scale, g, format);
        quote!(scales[#g] = #value;)
    });
    let offsets = codes.offset.iter().flat_map(|offset| {
        (0..groups).map(move |g| {
            let value = part_value(&offset.part, g, format);
            let value = if offset.subtracted { quote!(-(#value)) } else { value };
            quote!(offsets[#g] = #value;)
        })
    });
    let floats = plan.floats.iter().map(|f| {
        let (width, to) = (f.ty.bytes(), f.to);
        match &f.from {
            Source::Byte(from) => {
                quote!(k::put::<#width>(record, #to + #width * lane, k::bytes::<#width>(block, #from));)
            }
            Source::Bits(symbol) => {
                let value = lower::scalar(symbol);
                quote!(k::put::<2>(record, #to + 2 * lane, &((#value) as u16).to_le_bytes());)
            }
        }
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
        /// The scale of each group, and what is added to each weight of it.
        fn parts(block: &[u8], scales: &mut [f32; k::MAX_GROUPS], offsets: &mut [f32; k::MAX_GROUPS]) {
            let block: &[u8; BYTES] = k::bytes(block, 0);
            #(#scales)* #(#offsets)*
        }

        /// Writes the scale parts of one row of a panel.
        fn fill(block: &[u8], lane: usize, record: &mut [u8]) {
            let block: &[u8; BYTES] = k::bytes(block, 0);
            let record: &mut [u8; RECORD] = k::bytes_mut(record);
            #(#floats)* #(#scale_codes)* #(#offset_codes)*
        }
    }
}

/// A part's value of one group, read from the block.
fn part_value(part: &Part, g: usize, format: &Format) -> TokenStream {
    let groups = part.float.len();
    let (ty, from) = &part.float[g % groups];
    let mut value = match from {
        Source::Byte(byte) => {
            let (read, byte) = (format_ident!("{}_at", ty.name()), byte + g / groups * format.bytes);
            quote!(k::#read(block, #byte))
        }
        Source::Bits(symbol) => {
            let bits = lower::scalar(symbol);
            quote!(k::f16_bits((#bits) as u16))
        }
    };
    if let Some(code) = &part.code {
        let code = lower::scalar(&code.values[g % groups]);
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
    let mut value = quote!(product::#read(record, #float, sub));
    if part.has_code {
        let code = place(part.code_at, part.code_step);
        let read = names::local(if part.signed { "i8_at" } else { "u8_at" });
        value = quote!(isa::mul(#value, product::#read(record, #code, sub)));
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
    let (halves, has_offset) = (codes.group == 16, codes.offset.is_some());
    let block_body = lower::block_codes(&plan.runs);
    let unit_body = lower::unit_codes(codes.bits);
    let unit_lookup = match &codes.table {
        None => quote!({ #unit_body }),
        Some(_) => {
            let quad = 0..8usize;
            quote!({ let quads = { #unit_body }; [#(isa::table(quads[#quad], &TABLE)),*] })
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
            use k::{product::#name as product, rows::#name as rows};

            /// Stored codes of a block.
            #feature
            fn decode(block: &[u8; BYTES], out: &mut [u8]) { #block_body }

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
                rows::dequantise(bytes, out, &SHAPE, &|block, out| decode(k::bytes(block, 0), out), &parts);
            }

            /// Matrix product over packed panels.
            #feature
            pub fn matmul(job: k::PanelJob<'_>) {
                product::matmul::<UNIT, RECORD, UNITS, #halves, #max, #bias, #has_offset>(
                    job,
                    |unit, sub| unit_codes(unit, sub),
                    |record, group, sub| scale(record, group, sub),
                    |record, group, sub| offset(record, group, sub),
                );
            }

            /// Matrix product over rows in the file's layout.
            #feature
            pub fn matmul_rows(job: k::RowJob<'_>) {
                rows::matmul_rows(job, &SHAPE, &|block, out| decode(k::bytes(block, 0), out), &parts);
            }

            /// Packs rows into panels.
            #feature
            pub fn pack(job: k::PackJob<'_>) {
                rows::pack(job, &SHAPE, &|block, out| decode(k::bytes(block, 0), out), &fill);
            }
        }
    }
}

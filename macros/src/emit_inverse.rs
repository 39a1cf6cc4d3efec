//! Inverse to code: one static of plain data. What quantising does with it is written once, in the kernels crate.
//!
//! Lists of bits and grids are byte strings, which cost the compiler a token each: a bit is a little-endian u16, the
//! number of the block's bit, with the highest bit set where the block holds the inverse.

use crate::emit::field_type;
use crate::inverse::{Codes, Float, Inverse, Levels, Part, Place, find};
use crate::model::{self, Format};
use crate::names;
use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// The expression of type `Result<&'static Inverse, &'static str>` for a format with codes.
pub(crate) fn inverse(format: &Format, codes: &model::Codes) -> TokenStream {
    match find(format, codes) {
        Ok(found) => {
            let data = data(&found);
            quote!(::core::result::Result::Ok(&#data))
        }
        Err(why) => quote!(::core::result::Result::Err(#why)),
    }
}

fn data(inverse: &Inverse) -> TokenStream {
    let k = names::support();
    let codes = match &inverse.codes {
        Codes::Each { places: all, levels } => {
            let (bits, places) = (all[0].len(), places(all.iter().flatten().copied()));
            let levels = match levels {
                Levels::Range(low, high) => {
                    let (low, high) =
                        (Literal::i32_unsuffixed(*low as i32), Literal::i32_unsuffixed(*high as i32));
                    quote!(#k::Levels::Range(#low, #high))
                }
                Levels::List(list) => {
                    let list = numbers(list);
                    quote!(#k::Levels::List(#list))
                }
            };
            quote!(#k::Codes::Each { levels: #levels, bits: #bits, places: #places })
        }
        Codes::Joint { cells, levels } => {
            let levels = numbers(levels);
            let cells = cells.iter().map(|cell| {
                let (elements, bits) = (words(&cell.elements), words(&cell.bits));
                let inverse = bytes(cell.inverse.iter().flat_map(|a| a.to_le_bytes()));
                quote!(#k::Joint { elements: #elements, bits: #bits, inverse: #inverse })
            });
            quote!(#k::Codes::Joint { levels: #k::Levels::List(#levels), cells: &[#(#cells),*] })
        }
        Codes::Grid(grid) => {
            let (width, even) = (grid.width, grid.even);
            let rows = bytes(grid.rows.iter().map(|v| *v as i8 as u8));
            let (index_bits, state_bits) = (grid.index[0].len(), grid.state[0].len());
            let (index, state) = (words(&grid.index.concat()), words(&grid.state.concat()));
            let signs = places(grid.signs.iter().copied());
            quote! {
                #k::Codes::Grid(#k::Grid {
                    width: #width, rows: #rows, index_bits: #index_bits, index: #index,
                    state_bits: #state_bits, state: #state, signs: #signs, even: #even,
                })
            }
        }
    };
    let scale = part(&inverse.scale, false);
    let offset = match &inverse.offset {
        None => quote!(::core::option::Option::None),
        Some((offset, subtracted)) => {
            let offset = part(offset, *subtracted);
            quote!(::core::option::Option::Some(#offset))
        }
    };
    quote!(#k::Inverse { codes: #codes, scale: #scale, offset: #offset })
}

fn part(part: &Part, negative: bool) -> TokenStream {
    let k = names::support();
    let ty = field_type(part.ty);
    let floats = part.floats.iter().map(|float| match float {
        Float::Byte(byte) => quote!(#k::FloatPlace::Byte(#byte)),
        Float::Bits(bits) => {
            let bits = places(bits.iter().copied());
            quote!(#k::FloatPlace::Bits(#bits))
        }
    });
    let (bits, width) = (words(&part.bits.concat()), part.bits.first().map_or(0, Vec::len));
    let values = numbers(&part.values);
    let factor = Literal::f32_suffixed(if negative { -part.factor } else { part.factor });
    quote! {
        #k::Part { ty: #k::FieldType::#ty, floats: &[#(#floats),*], bits: #width, places: #bits, values: #values, factor: #factor }
    }
}

fn bytes(all: impl Iterator<Item = u8>) -> Literal {
    Literal::byte_string(&all.collect::<Vec<u8>>())
}

fn words(all: &[usize]) -> Literal {
    bytes(all.iter().flat_map(|w| (*w as u16).to_le_bytes()))
}

fn numbers(all: &[i64]) -> TokenStream {
    let all = all.iter().map(|v| Literal::i16_unsuffixed(*v as i16));
    quote!(&[#(#all),*])
}

fn places(all: impl Iterator<Item = Place>) -> Literal {
    let word = |place: Place| match place {
        Some((bit, inverted)) => bit as u16 | u16::from(inverted) << 15,
        None => u16::MAX,
    };
    bytes(all.flat_map(|place| word(place).to_le_bytes()))
}

//! Every architecture against llama.cpp: what a row of the table says of a family is what others take it to be.
//!
//! `data/families.py` describes small models and keeps what llama.cpp makes of them in `data/families.json`. Weights are a
//! function of name and place, here and there.

mod kit;

use kit::{Draft, Tensor, VOCAB};
use quantsmith::files::{Array, Metadata, Value};
use quantsmith::kernels::ops::attention::CellType;
use quantsmith::model::arch::ARCHITECTURES;
use quantsmith::{CacheTypes, LoadOptions};
use serde_json::Value as Json;

fn reference() -> Json {
    serde_json::from_str(include_str!("data/families.json")).expect("what families.py wrote")
}

fn metadata(json: &Json) -> Metadata {
    let mut metadata = Metadata::new();
    for (key, value) in json.as_object().expect("keys and values") {
        let value = match value {
            Json::Bool(value) => Value::Bool(*value),
            Json::String(value) => Value::String(value.as_str().into()),
            Json::Array(values) if values[0].is_boolean() => {
                Value::Array(Array::Bool(values.iter().map(|v| v.as_bool().expect("a flag")).collect()))
            }
            Json::Array(values) => {
                let number = |v: &Json| v.as_u64().expect("a number") as u32;
                Value::Array(Array::U32(values.iter().map(number).collect()))
            }
            Json::Number(value) => match value.as_u64() {
                Some(value) => Value::U32(value as u32),
                None => Value::F32(value.as_f64().expect("a number") as f32),
            },
            other => panic!("{key}: {other}"),
        };
        metadata.insert(key.as_str(), value);
    }
    kit::vocabulary(&mut metadata);
    metadata
}

/// The values of a tensor: FNV-1a of the name, plus the place, through splitmix64; its upper bits from -1 to 1.
fn values(name: &str, count: u64, middle: f32, reach: f32) -> Vec<f32> {
    let seed = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let value = |place: u64| {
        let x = place.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
        let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let x = x ^ x >> 31;
        ((x >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * reach + middle
    };
    (1..=count).map(value).collect()
}

fn draft(case: &Json) -> Draft {
    let metadata = metadata(&case["metadata"]);
    let arch = metadata.str("general.architecture").expect("a name").to_string();
    let layers = case["metadata"][format!("{arch}.block_count")].as_u64().expect("a count");
    let mut draft = Draft { metadata, tensors: Vec::new() };
    for (pattern, what) in case["tensors"].as_object().expect("tensors") {
        let dims: Vec<u64> =
            what[0].as_array().expect("dimensions").iter().map(|d| d.as_u64().expect("a size")).collect();
        let [middle, reach] = [&what[1], &what[2]].map(|x| x.as_f64().expect("a number") as f32);
        for layer in 0..if pattern.contains('*') { layers } else { 1 } {
            let name = pattern.replace('*', &layer.to_string());
            let values = values(&name, dims.iter().product(), middle, reach);
            draft.tensors.push(Tensor { name, dims: dims.clone(), format: "F32", values });
        }
    }
    for (name, factors) in case["factors"].as_object().expect("vectors") {
        let factors = factors.as_array().expect("numbers").iter();
        let values: Vec<f32> = factors.map(|x| x.as_f64().expect("a number") as f32).collect();
        let dims = vec![values.len() as u64];
        draft.tensors.push(Tensor { name: name.clone(), dims, format: "F32", values });
    }
    draft
}

#[test]
fn every_architecture_gives_the_logits_of_llama_cpp() {
    let reference = reference();
    let tokens: Vec<u32> = reference["tokens"]
        .as_array()
        .expect("tokens")
        .iter()
        .map(|t| t.as_u64().expect("an id") as u32)
        .collect();
    for (name, case) in reference["cases"].as_object().expect("cases") {
        let exact = CacheTypes { keys: CellType::F32, values: CellType::F32 };
        let model = draft(case).write().load(LoadOptions { cache: exact, ..Default::default() });
        let found = kit::logits(&model, &tokens);
        let rows = case["logits"].as_array().expect("rows");
        assert_eq!(rows.len(), tokens.len(), "{name}");
        // There GELU is a table of f16 numbers, half a step of which is 2^-12 of the value; elsewhere only the order of sums
        // differs.
        let gelu = model.hparams().arch.activation == quantsmith::model::arch::Activation::Gelu;
        let part = if gelu { 1.0 / 512.0 } else { 1.0 / 65536.0 };
        let (mut worst, mut size) = (0.0f64, 0.0f64);
        for (i, row) in rows.iter().enumerate() {
            for (j, expected) in row.as_array().expect("logits").iter().enumerate() {
                let expected = expected.as_f64().expect("a number");
                let found = f64::from(f32::from_bits(found[i * VOCAB + (i + 19 * j) % VOCAB]));
                worst = worst.max((found - expected).abs());
                size = size.max(expected.abs());
            }
        }
        println!("{name}: {worst:.1e} of {size:.1}");
        assert!(worst <= part * size, "{name}: {worst:.1e} of {size:.1}");
    }
}

#[test]
fn no_architecture_is_left_out() {
    let reference = reference();
    let cases = reference["cases"].as_object().expect("cases");
    let names: Vec<_> = cases
        .values()
        .map(|case| case["metadata"]["general.architecture"].as_str().expect("a name"))
        .collect();
    for arch in ARCHITECTURES {
        assert!(names.contains(&arch.name), "{}: add a case to data/families.py", arch.name);
    }
}

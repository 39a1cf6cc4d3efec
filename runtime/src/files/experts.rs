//! Experts stored one by one: `blk.N.ffn_gate.E.weight`, as the first Mixtral files have them.
//!
//! They are handed out as the one tensor that later files have in their place, `blk.N.ffn_gate_exps.weight`
//! with the experts as its last dimension.

use std::collections::BTreeMap;

use super::error::Quoted;
use super::tensor::TensorInfo;

/// Joins the experts of each layer; tells of those that do not belong together.
pub(crate) fn join(tensors: Vec<TensorInfo>, warnings: &mut Vec<String>) -> Vec<TensorInfo> {
    let mut groups: BTreeMap<String, BTreeMap<u64, usize>> = BTreeMap::new();
    for (index, tensor) in tensors.iter().enumerate() {
        if let Some((joined, expert)) = parse(&tensor.name) {
            groups.entry(joined).or_default().insert(expert, index);
        }
    }
    if groups.is_empty() {
        return tensors;
    }
    let mut kept: Vec<Option<TensorInfo>> = tensors.into_iter().map(Some).collect();
    for (name, experts) in groups {
        match joined(&name, &experts, &kept) {
            Some(tensor) => {
                let mut places = experts.into_values();
                if let Some(first) = places.next() {
                    kept[first] = Some(tensor);
                }
                places.for_each(|place| kept[place] = None);
            }
            None => {
                warnings.push(format!("the experts of {} do not match one another", Quoted(name.as_bytes())))
            }
        }
    }
    kept.into_iter().flatten().collect()
}

/// The name of the joined tensor and the number of the expert.
fn parse(name: &str) -> Option<(String, u64)> {
    let rest = name.strip_prefix("blk.")?.strip_suffix(".weight")?;
    let mut words = rest.split('.');
    let (Some(layer), Some(kind), Some(expert), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return None;
    };
    let number =
        |text: &str| -> Option<u64> { text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())? };
    number(layer)?;
    matches!(kind, "ffn_gate" | "ffn_up" | "ffn_down").then_some(())?;
    Some((format!("blk.{layer}.{kind}_exps.weight"), number(expert)?))
}

fn joined(name: &str, experts: &BTreeMap<u64, usize>, tensors: &[Option<TensorInfo>]) -> Option<TensorInfo> {
    let count = experts.len() as u64;
    let all: Vec<&TensorInfo> = experts.values().map(|&i| tensors[i].as_ref()).collect::<Option<_>>()?;
    let first = *all.first()?;
    let alike = |t: &&TensorInfo| {
        (&t.dims, t.type_id, t.layout, &t.stored) == (&first.dims, first.type_id, first.layout, &first.stored)
    };
    let numbered = experts.keys().copied().eq(0..count);
    let free = !tensors.iter().flatten().any(|t| t.name == name);
    if !(numbered && free && first.dims.len() == 2 && first.pieces() == 1 && all.iter().all(alike)) {
        return None;
    }
    let mut tensor = first.clone();
    tensor.name = name.into();
    tensor.dims.push(count);
    // Cannot overflow: all lie side by side in files.
    tensor.bytes = first.bytes * count;
    tensor.stored.more = all[1..].iter().map(|t| (t.part, t.offset)).collect();
    Some(tensor)
}

//! The plan: what is fused, that values never share a place while both live, and what it tells.

mod kit;

use kit::{Draft, EXACT, MIXED, Shape};
use quantsmith::model::arch::{ARCHITECTURES, Architecture};
use quantsmith::{LoadOptions, Model, PassReport};
use std::sync::Arc;

fn model(name: &str, formats: &[&'static str], shape: Shape) -> Arc<Model> {
    let arch = Architecture::find(name).expect("an architecture");
    let options = LoadOptions { threads: Some(3), ubatch: 16, ..Default::default() };
    Draft::new(arch, shape, formats).write().load(options)
}

/// What makes a plan right: places of values that live at once do not meet, and nothing is read before it is made.
fn check(pass: &PassReport, name: &str) {
    let end = |offset: u64, bytes: u64| offset + bytes;
    for (i, a) in pass.values.iter().enumerate() {
        let area = if a.area == "common" { pass.common_bytes } else { pass.thread_bytes };
        assert!(end(a.offset, a.bytes) <= area, "{name}: {} lies beyond its area", a.name);
        assert!(a.offset.is_multiple_of(64), "{name}: {}", a.name);
        let elements = (a.shape[0] * a.shape[1]) as u64;
        assert!(a.bytes >= if a.kind == "f32" { 4 * elements } else { elements }, "{name}: {}", a.name);
        for b in &pass.values[..i] {
            let together = a.area == b.area && a.first <= b.last && b.first <= a.last;
            let apart = end(a.offset, a.bytes) <= b.offset || end(b.offset, b.bytes) <= a.offset;
            assert!(!together || apart, "{name}: {} and {} share a place", a.name, b.name);
        }
    }
    for node in &pass.nodes {
        for value in node.reads.iter().chain(&node.writes) {
            let lives = |v: &&quantsmith::ValueReport| {
                v.value == *value && v.first <= node.step && node.step <= v.last
            };
            assert!(
                pass.values.iter().any(|v| lives(&v)),
                "{name}: step {} uses a value without a place",
                node.step
            );
        }
        for value in &node.reads {
            let made = pass.nodes.iter().filter(|n| n.writes.contains(value)).map(|n| n.step).min();
            assert!(made.is_some_and(|made| made <= node.step), "{name}: step {} reads too early", node.step);
        }
    }
}

#[test]
fn values_that_live_at_once_never_share_a_place_in_any_architecture() {
    for arch in ARCHITECTURES {
        for formats in [MIXED, EXACT] {
            let plan = model(arch.name, formats, Shape::default()).plan();
            check(&plan.decode, arch.name);
            check(&plan.batch, arch.name);
        }
    }
}

#[test]
fn a_layer_of_llama_is_seven_steps_for_one_token() {
    let draft = |name| model(name, &["Q8_0"], Shape { layers: 3, ..Shape::default() }).plan();
    let ops = |pass: &PassReport, steps: std::ops::Range<usize>| -> Vec<String> {
        pass.nodes[steps].iter().map(|n| format!("{} {}", n.kind, n.ops)).collect()
    };
    let llama = draft("llama");
    assert_eq!(
        ops(&llama.decode, 7..14),
        [
            "product norm+quantise+matmul+matmul+matmul+bias+bias",
            "rows rope+rope+store",
            "attend attend+quantise",
            "merge merge+merge",
            "product matmul+add",
            "product norm+quantise+matmul+matmul+bias+gate+quantise",
            "product matmul+bias+add",
        ]
    );
    assert_eq!(
        ops(&llama.batch, 8..16),
        [
            "rows norm+quantise",
            "product matmul+matmul+matmul+bias+bias",
            "rows rope+rope+store",
            "attend attend+quantise",
            "product matmul+add",
            "rows norm+quantise",
            "product matmul+matmul+bias+gate+quantise",
            "product matmul+bias+add",
        ]
    );
    // The norms behind the parts go in front of the next product; no step more than llama has.
    let gemma = draft("gemma3");
    assert_eq!(gemma.decode.nodes.len(), llama.decode.nodes.len());
    assert_eq!(gemma.decode.nodes[12].ops, "norm+add+norm+quantise+matmul+matmul+bias+gate+quantise");
}

#[test]
fn the_plan_names_the_kernel_and_the_reason_for_each_tensor() {
    let plan = model("llama", MIXED, Shape::default()).plan();
    let find = |name: &str| plan.tensors.iter().filter(|t| t.name == name).collect::<Vec<_>>();
    // The table is read by rows, and multiplied for the logits.
    let table = find("token_embd.weight");
    assert_eq!(table.len(), 2);
    assert_eq!(table[0].kernel, format!("q4_0::{}::dequantise", plan.isa));
    assert_eq!(table[1].kernel, format!("q4_0::{}::matmul_packed", plan.isa));
    assert_eq!(table[1].reason, "the best tier of this CPU; interleaved at load");
    assert_eq!((table[0].packed_bytes, table[0].bytes), (0, 96 * 64 / 32 * 18));
    assert!(table[1].packed_bytes > 0);
    let float = plan.tensors.iter().find(|t| t.format == "F16").expect("a float tensor");
    assert!(float.kernel.ends_with("::matmul_float") && float.packed_bytes == 0, "{}", float.kernel);
    assert_eq!(float.reason, "the best tier of this CPU; float weights are used as they are");
    let sum = plan.arena_bytes + plan.kv_bytes + plan.weight_bytes + plan.packed_bytes + plan.other_bytes;
    assert_eq!(plan.total_bytes, sum);
    assert_eq!(plan.kv_bytes, 4 * 2 * 256 * 2 * 32 * 2);
}

#[test]
fn the_reason_says_what_was_asked_for() {
    let arch = Architecture::find("llama").expect("an architecture");
    let options = LoadOptions { isa: Some("scalar".into()), pack: false, ..Default::default() };
    let plan = Draft::new(arch, Shape::default(), MIXED).write().load(options).plan();
    assert_eq!(plan.packed_bytes, 0);
    let matrix = plan.tensors.iter().find(|t| t.kernel.ends_with("matmul_rows")).expect("an unpacked matrix");
    assert_eq!(
        (matrix.tier.as_str(), matrix.reason.as_str()),
        ("scalar", "the tier that was asked for; packing is off")
    );
}

#[test]
fn windows_keep_only_what_they_can_need() {
    let shape = Shape { context: 4096, layers: 2, ..Shape::default() };
    let per_position = 2 * 2 * 32 * 2;
    let full = model("llama", MIXED, shape).plan().kv_bytes;
    assert_eq!(full, 2 * 4096 * per_position);
    // Every second layer sees 24 positions; a batch of 16, whole chunks of 64, and one more.
    let windowed = model("gemma3", MIXED, shape).plan().kv_bytes;
    assert_eq!(windowed, (4096 + 128) * per_position);
}

//! The containers before GGUF.

use std::borrow::Cow;
use std::fs;

use super::kit_legacy::{Legacy, VOCABULARY, open_legacy, open_legacy_with};
use super::*;
use crate::files::{Array, Container, Layout, OpenOptions, Value};

#[test]
fn every_container_gives_the_same_model() {
    for legacy in Legacy::containers() {
        let file = open_legacy(&legacy.clone().model(1, 1, 2).build()).expect("a right file");
        let m = file.metadata();
        assert_eq!(m.str("general.architecture"), Some("llama"));
        assert_eq!(m.str("general.name"), Some("m"));
        for (key, value) in [
            ("llama.embedding_length", 64),
            ("llama.block_count", 1),
            ("llama.feed_forward_length", 128),
            ("llama.rope.dimension_count", 16),
            ("llama.attention.head_count", 4),
            ("llama.attention.head_count_kv", 2),
            ("llama.context_length", 4096),
            ("tokenizer.ggml.bos_token_id", 1),
            ("tokenizer.ggml.eos_token_id", 2),
            ("tokenizer.ggml.unknown_token_id", 0),
        ] {
            assert_eq!(m.u32(key), Some(value), "{key}");
        }
        assert_eq!(m.f32("llama.attention.layer_norm_rms_epsilon"), Some(1e-5));
        assert!(!m.contains("llama.rope.freq_base"));
        let names: Vec<&str> = file.tensors().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "token_embd.weight",
                "output_norm.weight",
                "output.weight",
                "blk.0.attn_q.weight",
                "blk.0.attn_k.weight",
                "blk.0.attn_v.weight",
                "blk.0.attn_output.weight",
                "blk.0.attn_norm.weight",
                "blk.0.ffn_gate.weight",
                "blk.0.ffn_down.weight",
                "blk.0.ffn_up.weight",
                "blk.0.ffn_norm.weight",
            ]
        );
        let down = file.tensor("blk.0.ffn_down.weight").expect("w2");
        assert_eq!((&down.dims[..], down.type_name), (&[128, 64][..], "F16"));
        let written = legacy.model(1, 1, 2);
        let data = file.data(down);
        assert!(matches!(data, Cow::Borrowed(_)));
        assert_eq!(&*data, written.data("layers.0.feed_forward.w2.weight"));
    }
}

#[test]
fn containers_are_reported() {
    let names: Vec<String> = Legacy::containers()
        .iter()
        .map(|l| open_legacy(&l.build()).expect("a vocabulary alone").container().to_string())
        .collect();
    assert_eq!(names, ["GGML (unversioned)", "GGMF v1", "GGJT v1", "GGJT v2", "GGJT v3"]);
}

#[test]
fn the_vocabulary_is_translated() {
    for legacy in Legacy::containers() {
        let scored = legacy.magic != b"lmgg";
        let file = open_legacy(&legacy.build()).expect("a vocabulary alone");
        let m = file.metadata();
        let tokens = m.strings("tokenizer.ggml.tokens").expect("tokens");
        let text = |i: usize| tokens[i].as_str().expect("text");
        assert_eq!((text(0), text(1), text(2)), ("<unk>", "<s>", "</s>"));
        assert_eq!((text(3), text(3 + 255), text(3 + 0x20)), ("<0x00>", "<0xFF>", "<0x20>"));
        assert_eq!((text(259), text(260)), ("\u{2581}the", "x"));
        let kinds = m.ints("tokenizer.ggml.token_type").expect("kinds");
        assert_eq!((&kinds[..4], &kinds[257..]), (&[2, 3, 3, 6][..], &[6, 6, 1, 1][..]));
        let scores = m.f32s("tokenizer.ggml.scores").expect("scores");
        assert_eq!(&scores[259..], if scored { [-0.5, -1.5] } else { [-0.0, -1.0] });
        assert_eq!((tokens.len(), scores.len(), kinds.len()), (261, 261, 261));
        assert_eq!(m.str("tokenizer.ggml.model"), Some("llama"));
    }
}

#[test]
fn a_vocabulary_that_ends_early_is_recognised() {
    for mut legacy in Legacy::containers().map(|l| l.model(0, 1, 4)) {
        legacy.words[0] += 1;
        let file = open_legacy(&legacy.build()).expect("a right file");
        let tokens = file.metadata().strings("tokenizer.ggml.tokens").expect("tokens");
        assert_eq!(tokens.len(), VOCABULARY as usize);
        assert!(file.warnings().iter().any(|w| w.contains("261 entries where the header says 262")));

        // The embedding may have the row that the vocabulary lacks.
        for tensor in &mut legacy.tensors[..3] {
            if let [columns, rows] = &mut tensor.1[..] {
                *rows += 1;
                tensor.3.extend(vec![0; 4 * *columns as usize]);
            }
        }
        let file = open_legacy(&legacy.build()).expect("a right file");
        let m = file.metadata();
        let tokens = m.strings("tokenizer.ggml.tokens").expect("tokens");
        assert_eq!((tokens.len(), tokens[261].as_str()), (262, Some("[PAD261]")));
        assert_eq!(m.ints("tokenizer.ggml.token_type").map(|k| k[261]), Some(5));
    }
}

#[test]
fn old_ids_mean_old_blocks() {
    let cases: &[(usize, u32, u32, u32, Layout, &str)] = &[
        (0, 2, 32, 20, Layout::V1, "Q4_0_V1"),
        (1, 3, 32, 24, Layout::V1, "Q4_1_V1"),
        (2, 4, 16, 10, Layout::V1, "Q4_2_V1"),
        (2, 5, 16, 12, Layout::V1, "Q4_3_V1"),
        (2, 6, 32, 22, Layout::V1, "Q5_0_V1"),
        (2, 7, 32, 24, Layout::V1, "Q5_1_V1"),
        (2, 8, 32, 36, Layout::V1, "Q8_0_V1"),
        (3, 2, 32, 20, Layout::V2, "Q4_0_V2"),
        (3, 3, 32, 24, Layout::V2, "Q4_1_V2"),
        (3, 6, 32, 22, Layout::Current, "Q5_0"),
        (3, 7, 32, 24, Layout::Current, "Q5_1"),
        (3, 8, 32, 36, Layout::V2, "Q8_0_V1"),
        (4, 2, 32, 18, Layout::Current, "Q4_0"),
        (4, 8, 32, 34, Layout::Current, "Q8_0"),
    ];
    for &(container, type_id, elements, bytes, layout, name) in cases {
        let legacy = Legacy::containers()[container].clone().model(type_id, elements, bytes);
        let file = open_legacy(&legacy.build()).expect("a right file");
        let t = file.tensor("blk.0.attn_q.weight").expect("wq");
        assert_eq!((t.type_id, t.layout, t.type_name), (type_id, layout, name));
        assert_eq!(&*file.data(t), legacy.data("layers.0.attention.wq.weight"));
        let version = [0, 0, 0, 1, 2][container];
        assert_eq!(file.metadata().u32("general.quantization_version"), Some(version));
    }
}

#[test]
fn a_quantisation_version_in_ftype_decides_the_layout() {
    let mut legacy = Legacy::new(b"lmgg", None).model(2, 32, 18);
    legacy.words[6] = 2002;
    let file = open_legacy(&legacy.build()).expect("a right file");
    assert_eq!(file.tensor("output.weight").map(|t| t.type_name), Some("Q4_0"));
    assert_eq!(file.metadata().u32("general.file_type"), Some(2));
    let mut legacy = Legacy::new(b"tjgg", Some(3)).model(2, 32, 18);
    legacy.words[6] = 1002;
    let error = open_legacy(&legacy.build()).expect_err("a contradiction").to_string();
    assert!(error.contains("ftype") && error.contains("1002") && error.contains("version of 2"), "{error}");
}

#[test]
fn k_quants_of_64_elements_are_recognised_by_extent() {
    // 64 columns cannot be 256.
    let narrow = Legacy::new(b"tjgg", Some(3)).model(12, 64, 38);
    let file = open_legacy(&narrow.build()).expect("a right file");
    let t = file.tensor("output.weight").expect("output");
    assert_eq!((t.layout, t.type_name), (Layout::K64, "Q4_K_64"));
    assert_eq!(&*file.data(t), narrow.data("output.weight"));

    // 256 columns can: only the place of the next tensor tells.
    for (elements, bytes, layout) in [(64, 38, Layout::K64), (256, 144, Layout::Current)] {
        let size = 256 / elements * bytes;
        let mut legacy = Legacy::new(b"tjgg", Some(3));
        legacy.words[1..4].copy_from_slice(&[256, 32, 4]);
        legacy.words[4] = 1;
        let matrix = |rows: u32| pattern((rows * size) as usize);
        let legacy = legacy
            .tensor("tok_embeddings.weight", &[256, VOCABULARY], 12, matrix(VOCABULARY))
            .tensor("layers.0.attention.wk.weight", &[256, 256], 12, matrix(256))
            .tensor("layers.0.feed_forward.w1.weight", &[256, 8], 12, matrix(8));
        let file = open_legacy(&legacy.build()).expect("a right file");
        assert!(file.tensors().iter().all(|t| t.layout == layout));
        let w1 = file.tensor("blk.0.ffn_gate.weight").expect("w1");
        assert_eq!(&*file.data(w1), matrix(8));
    }
}

#[test]
fn rows_with_separate_arrays_are_put_in_order_by_option() {
    for (type_id, bytes) in [(2u32, 20u32), (3, 24)] {
        // Scales that make sense, so that the warning has something to see.
        let mut blocks = Legacy::new(b"lmgg", None).model(type_id, 32, bytes);
        let mut arrays = blocks.clone();
        for (tensor, array) in blocks.tensors.iter_mut().zip(&mut arrays.tensors) {
            let [columns, _] = tensor.1[..] else { continue };
            for block in tensor.3.chunks_mut(bytes as usize) {
                block[..bytes as usize - 16].fill(0);
                block[..4].copy_from_slice(&0.25f32.to_le_bytes());
                block[bytes as usize - 16..].fill(0xff);
            }
            let n = (columns / 32) as usize;
            array.3 = tensor
                .3
                .chunks(n * bytes as usize)
                .flat_map(|row| {
                    let part = |at: usize, count: usize| -> Vec<u8> {
                        row.chunks(bytes as usize).flat_map(|b| b[at..at + count].to_vec()).collect()
                    };
                    if type_id == 2 {
                        [part(0, 4), part(4, 16)].concat()
                    } else {
                        [part(4, 4), part(0, 4), part(8, 16)].concat()
                    }
                })
                .collect();
        }
        let option = OpenOptions { struct_of_arrays: true, ..OpenOptions::default() };
        let file = open_legacy_with(&arrays.build(), &option).expect("a right file");
        for (tensor, old) in
            [("output.weight", "output.weight"), ("blk.0.ffn_down.weight", "layers.0.feed_forward.w2.weight")]
        {
            let t = file.tensor(tensor).expect("by name");
            assert_eq!(&*file.data(t), blocks.data(old));
            assert_eq!(t.stored_as().as_deref(), Some("as a struct of arrays"));
        }
        let suspicion = |bytes: &[u8]| {
            let file = open_legacy(bytes).expect("a right file");
            file.warnings().iter().any(|w| w.contains("separate arrays"))
        };
        assert!(!suspicion(&blocks.build()));
        if type_id == 2 {
            assert!(suspicion(&arrays.build()));
        }
    }
    let option = OpenOptions { struct_of_arrays: true, ..OpenOptions::default() };
    let error = open_legacy_with(&Legacy::new(b"fmgg", Some(1)).build(), &option).expect_err("no such files");
    assert!(error.to_string().contains("this is GGMF v1"), "{error}");
}

/// Writes the parts of a model next to one another; gives the path of the first.
fn write_parts(dir: &std::path::Path, files: &[Vec<u8>]) -> std::path::PathBuf {
    let base = dir.join("ggml-model.bin");
    fs::write(&base, &files[0]).expect("written");
    for (i, file) in files.iter().enumerate().skip(1) {
        fs::write(dir.join(format!("ggml-model.bin.{i}")), file).expect("written");
    }
    base
}

#[test]
fn a_model_in_several_files_is_joined() {
    let block = |id: u32| if id == 2 { (32, 20) } else { (1, 4) };
    for mut whole in [Legacy::new(b"lmgg", None), Legacy::new(b"fmgg", Some(1))] {
        // An odd number of rows cannot be split.
        whole.words[0] = 262;
        whole.tokens.push((b"y".to_vec(), -2.0));
        let mut whole = whole.model(2, 32, 20);
        for tensor in &mut whole.tensors {
            if tensor.1.last() == Some(&VOCABULARY) {
                tensor.1[1] = 262;
                tensor.3.extend(pattern(40));
            }
        }
        let parts = whole.split(2, block);
        let files: Vec<Vec<u8>> = parts.iter().map(Legacy::build).collect();
        let dir = tempfile::tempdir().expect("a directory");
        let base = write_parts(dir.path(), &files);
        let single = open_legacy(&whole.build()).expect("a right file");
        for start in [base.clone(), dir.path().join("ggml-model.bin.1")] {
            let joined = ModelFile::open(&start, &Table).expect("a right model");
            assert_eq!((joined.path(), joined.paths().count()), (base.as_path(), 2));
            assert_eq!(joined.tensors().len(), single.tensors().len());
            for (a, b) in joined.tensors().iter().zip(single.tensors()) {
                assert_eq!((&a.name, &a.dims, a.bytes, a.type_id), (&b.name, &b.dims, b.bytes, b.type_id));
                assert_eq!(joined.data(a), single.data(b), "{}", a.name);
                assert_eq!(a.pieces(), if a.dims.len() == 1 { 1 } else { 2 });
            }
            let keys = |f: &ModelFile| -> Vec<(String, Value)> {
                let kept = f.metadata().iter().filter(|(k, _)| *k != "general.name");
                kept.map(|(k, v)| (k.to_owned(), v.clone())).collect()
            };
            assert_eq!(keys(&joined), keys(&single));
        }

        let alone = OpenOptions { single_file: true, ..OpenOptions::default() };
        let one = ModelFile::open_with(&base, &Table, &alone).expect("one part");
        assert_eq!(one.tensor("token_embd.weight").map(|t| t.dims[0]), Some(32));

        let refusal = |text: &str| {
            let error = ModelFile::open(&base, &Table).expect_err("parts that do not fit").to_string();
            assert!(error.contains(text) && error.contains("ggml-model.bin.1: "), "{error}");
        };
        let mut other = parts[1].clone();
        other.words[6] = 3;
        write_parts(dir.path(), &[files[0].clone(), other.build()]);
        refusal("hyperparameters");
        let mut other = parts[1].clone();
        other.tokens[260].0 = b"z".to_vec();
        write_parts(dir.path(), &[files[0].clone(), other.build()]);
        refusal("vocabulary");
        let mut other = parts[1].clone();
        other.tensors.swap(3, 6);
        write_parts(dir.path(), &[files[0].clone(), other.build()]);
        refusal("as in the first part");
        let mut other = parts[1].clone();
        other.tensors.pop();
        write_parts(dir.path(), &[files[0].clone(), other.build()]);
        refusal("number of tensors");
        fs::remove_file(dir.path().join("ggml-model.bin.1")).expect("removed");
        refusal("no such file");
    }
}

#[test]
fn tensors_that_are_not_needed_are_passed_over() {
    let legacy = Legacy::new(b"tjgg", Some(1))
        .model(0, 1, 4)
        .tensor("rope.freqs", &[8], 0, vec![0; 32])
        .tensor("layers.0.attention.inner_attention.rope.freqs", &[8], 0, vec![0; 32]);
    let file = open_legacy(&legacy.build()).expect("a right file");
    assert_eq!(file.tensors().len(), 12);
    assert!(file.warnings().iter().any(|w| w == "2 tensors are not used, the first is 'rope.freqs'"));
}

#[test]
fn what_the_file_does_not_say_is_assumed_or_given() {
    let legacy = Legacy::new(b"tjgg", Some(3)).model(0, 1, 4);
    let file = open_legacy(&legacy.build()).expect("a right file");
    let told = "assumed, since the file does not say: context length 4096, epsilon 1e-5, RoPE base 10000";
    assert!(file.warnings().iter().any(|w| w == told), "{:?}", file.warnings());
    let options = OpenOptions {
        context_length: Some(777),
        epsilon: Some(1e-6),
        rope_base: Some(5e5),
        ..OpenOptions::default()
    };
    let file = open_legacy_with(&legacy.build(), &options).expect("a right file");
    let m = file.metadata();
    assert_eq!(m.u32("llama.context_length"), Some(777));
    assert_eq!(m.f32("llama.attention.layer_norm_rms_epsilon"), Some(1e-6));
    assert_eq!(m.f32("llama.rope.freq_base"), Some(5e5));
    assert!(file.warnings().is_empty(), "{:?}", file.warnings());
}

#[test]
fn models_with_all_heads_are_of_the_first_kind() {
    let mut legacy = Legacy::new(b"tjgg", Some(3)).model(0, 1, 4);
    for tensor in &mut legacy.tensors[4..6] {
        tensor.1[1] = 64;
        tensor.3 = vec![0; 64 * 64 * 4];
    }
    legacy.words[5] = 64;
    let file = open_legacy(&legacy.build()).expect("a right file");
    let m = file.metadata();
    assert_eq!(m.u32("llama.attention.head_count_kv"), Some(4));
    assert_eq!(m.u32("llama.context_length"), Some(2048));
    assert_eq!(m.f32("llama.attention.layer_norm_rms_epsilon"), Some(5e-6));
    assert_eq!(m.u32("llama.rope.dimension_count"), Some(16));
    assert!(file.warnings().iter().any(|w| w.contains("n_rot is 64")));
}

#[test]
fn a_legacy_file_cut_at_any_byte_is_refused() {
    for legacy in Legacy::containers() {
        let bytes = legacy.model(1, 1, 2).build();
        let header = bytes.len().min(6000);
        for cut in (4..header).chain((header..bytes.len()).step_by(97)) {
            match open_legacy(&bytes[..cut]) {
                Err(error) => {
                    let message = error.to_string();
                    assert!(message.starts_with("m.bin: ") && !message.contains('\n'), "{message}");
                    assert!(error.offset().is_none_or(|at| at <= cut as u64), "{cut}: {message}");
                }
                // Cut between two tensors, it is a smaller model, which lacks what it needs, or a vocabulary.
                Ok(file) => assert!(file.tensors().len() < 12, "{cut}"),
            }
        }
    }
}

#[test]
fn legacy_fields_that_lie_are_refused() {
    let base = Legacy::new(b"tjgg", Some(3));
    let message = |legacy: &Legacy| open_legacy(&legacy.build()).expect_err("a lie").to_string();
    let with = |change: &dyn Fn(&mut Legacy)| {
        let mut legacy = base.clone().model(0, 1, 4);
        change(&mut legacy);
        message(&legacy)
    };
    for (change, parts) in [
        (
            &(|l: &mut Legacy| l.version = Some(4)) as &dyn Fn(&mut Legacy),
            &["version of GGJT", "found 4"][..],
        ),
        (&|l| l.words[0] = u32::MAX, &["n_vocab", "4294967295", "at most"]),
        (&|l| l.words[1] = 0, &["n_embd", "found 0"]),
        (&|l| l.words[3] = 0, &["n_head", "found 0"]),
        (&|l| l.words[3] = 5, &["n_head", "divisor of n_embd"]),
        (&|l| l.words[4] = 13, &["n_layer", "found 13", "at most 12"]),
        (&|l| l.words[6] = 9002, &["ftype", "found 9002"]),
        (&|l| (l.tensors[0].2, l.tensors[0].1[0]) = (2, 48), &["multiple of 32"]),
        (&|l| l.tensors[1].2 = 4, &["type of tensor 'norm.weight'", "found 4", "0 (F32)"]),
        (&|l| l.tensors[1].2 = 9, &["type of tensor 'norm.weight'", "found 9"]),
        (&|l| l.tensors[1].0 = String::new(), &["length of the name"]),
        (&|l| l.tensors[1].0 = "tok_embeddings.weight".into(), &["a second time"]),
        (&|l| l.tensors[1].1 = vec![1; 5], &["number of dimensions", "found 5"]),
        (&|l| l.tensors[1].1 = vec![], &["number of dimensions", "found 0"]),
        (
            &|l| l.tensors[11].1 = vec![u32::MAX; 4],
            &["dimensions of tensor 'layers.0.ffn_norm.weight'", "2^63"],
        ),
        (
            &|l| l.tensors[11].1 = vec![u32::MAX],
            &["data of tensor 'layers.0.ffn_norm.weight'", "17179869180 bytes"],
        ),
        (&|l| l.tensors[4].1 = vec![256, 8], &["layers.0.attention.wk.weight"]),
        (&|l| drop(l.tensors.remove(4)), &["none called 'layers.0.attention.wk.weight'"]),
        (&|l| l.tensors[0].0 = "model/wte".into(), &["first tensor", "'model/wte'", "LLaMA"]),
    ] {
        let message = with(change);
        for part in parts {
            assert!(message.contains(part), "no '{part}' in: {message}");
        }
    }
    let mut rwkv = Legacy::new(b"fmgg", Some(100));
    rwkv.words[0] = 50277;
    assert!(message(&rwkv).contains("rwkv.cpp"));
    let mut gptj = Legacy::new(b"lmgg", None);
    gptj.words[0] = 50400;
    assert!(message(&gptj).contains("GPT-J"), "{}", message(&gptj));
}

#[test]
fn a_record_with_a_name_of_four_gigabytes_is_refused() {
    let mut bytes = Legacy::new(b"tjgg", Some(3)).build();
    let at = bytes.len();
    for word in [1u32, 0xffff_fff0, 0, 1] {
        bytes.extend(word.to_le_bytes());
    }
    let error = open_legacy(&bytes).expect_err("a lie");
    assert_eq!(error.offset(), Some(at as u64 + 16));
    assert!(error.to_string().contains("4294967280 bytes"), "{error}");
}

#[test]
fn arrays_of_metadata_have_the_kinds_of_gguf() {
    let file = open_legacy(&Legacy::new(b"fmgg", Some(1)).build()).expect("a vocabulary");
    let kinds =
        ["tokens", "scores", "token_type"].map(|k| file.metadata().get(&format!("tokenizer.ggml.{k}")));
    assert!(matches!(
        kinds,
        [
            Some(Value::Array(Array::String(_))),
            Some(Value::Array(Array::F32(_))),
            Some(Value::Array(Array::I32(_)))
        ]
    ));
    assert_eq!(file.container(), Container::Ggmf);
}

#[test]
fn a_vocabulary_larger_than_any_is_refused() {
    let mut legacy = Legacy::new(b"lmgg", None);
    legacy.words[0] = 524_289;
    legacy.tokens = vec![(vec![], 0.0); 524_289];
    let error = open_legacy(&legacy.build()).expect_err("too many").to_string();
    assert!(error.contains("found 524289, accepted: at most 524288"), "{error}");
}

//! `bench` and `kernels`: llama-bench's flags, fields and formats, and what they say of layers.

use std::path::PathBuf;

use quantsmith_tests::{Quantsmith, quantsmith, tiny_llama};
use serde_json::Value;

struct Tiny {
    folder: tempfile::TempDir,
    path: PathBuf,
}

fn tiny() -> Tiny {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, tiny_llama().bytes()).expect("the file is written");
    Tiny { folder, path }
}

impl Tiny {
    fn bench(&self, flags: &str) -> Quantsmith {
        quantsmith!("bench", "-m", &self.path).args("-r 1 -t 1").args(flags)
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// The fields of llama-bench, in its order.
const FIELDS: &str = "build_commit build_number cpu_info gpu_info backends model_filename model_type model_size \
    model_n_params n_batch n_ubatch n_threads cpu_mask cpu_strict poll type_k type_v n_gpu_layers n_cpu_moe split_mode \
    main_gpu no_kv_offload flash_attn devices tensor_split tensor_buft_overrides load_mode lazy_mode embeddings \
    no_op_offload no_host repack fit_target fit_min_ctx n_prompt n_gen n_depth test_time avg_ns stddev_ns avg_ts stddev_ts";
/// Those that follow them here.
const OURS: &str = "isa kernel_set mem_bw_gbs peak_rss median_ts roof";

#[test]
fn the_fields_are_those_of_llama_bench_in_all_formats_and_ours_follow() {
    let tiny = tiny();
    let json = tiny.bench("-p 4 -n 3 -o json").json();
    let records = json.as_array().expect("a list");
    let want: Vec<&str> = FIELDS
        .split_whitespace()
        .chain(OURS.split_whitespace())
        .chain(["samples_ns", "samples_ts"])
        .collect();
    assert_eq!(records.len(), 2);
    for record in records {
        assert_eq!(keys(record), want);
        assert!(record["avg_ts"].as_f64().is_some_and(|speed| speed > 0.0));
        assert_eq!(record["samples_ts"].as_array().map(Vec::len), Some(1));
    }
    if cfg!(target_os = "linux") {
        let peak = records[1]["peak_rss"].as_u64().expect("a number");
        assert!((1 << 20..256 << 20).contains(&peak), "{peak}: without the memory whose speed is measured");
    }
    assert_eq!((&records[0]["n_prompt"], &records[0]["n_gen"]), (&4.into(), &0.into()));
    assert_eq!((&records[1]["n_prompt"], &records[1]["n_gen"]), (&0.into(), &3.into()));
    assert!(records[0]["roof"].is_null() && records[1]["roof"].is_number(), "of generation alone");

    let plain = want[..want.len() - 2].join(",");
    let csv = tiny.bench("-p 4 -n 3 -o csv").run().stdout;
    assert_eq!((csv.lines().count(), csv.lines().next()), (3, Some(plain.as_str())));
    let jsonl = tiny.bench("-p 4 -n 3 -o jsonl").run().stdout;
    let lines: Vec<Value> = jsonl.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.len() == 2 && keys(&lines[1]) == want);
    let sql = tiny.bench("-p 4 -n 3 -o sql").run().stdout;
    assert!(sql.starts_with("CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT,\n"), "{sql}");
    assert_eq!(sql.matches("INSERT INTO llama_bench (build_commit, build_number, ").count(), 2);
}

/// The columns of a Markdown table, and how many rows it has.
fn table(text: &str) -> (Vec<&str>, usize) {
    let head = text.lines().next().expect("a head").trim_matches('|').split('|').map(str::trim).collect();
    (head, text.lines().count() - 2)
}

#[test]
fn every_combination_is_measured_and_columns_tell_them_apart() {
    let tiny = tiny();
    let plain = tiny.bench("-p 4 -n 0").run().stdout;
    let usual = ["model", "size", "params", "backend", "threads", "isa", "test", "t/s", "of roof"];
    assert_eq!(table(&plain), (usual.to_vec(), 1));
    let many = tiny.bench("-p 1-3 -p 8 -n 0 -b 4,8 -ub 2 -ctk f16,f32 -ctv f32").run().stdout;
    let (head, rows) = table(&many);
    assert_eq!(rows, 4 * 2 * 2);
    assert_eq!(head[5..9], ["n_batch", "n_ubatch", "type_k", "type_v"]);
    let repack = tiny.bench("-p 4 -n 0 --repack 0,1").run().stdout;
    assert!(table(&repack).1 == 2 && table(&repack).0.contains(&"repack"), "{repack}");
    let tests = tiny.bench("-p 2 -n 2 -pg 3,4 -pg 1,1 -d 0,5 -fa 0,1 --no-warmup --delay 0 --progress").run();
    assert_eq!(tests.code, 0, "{}", tests.stderr);
    let column = |line: &str| line.split('|').nth(7).map(|cell| cell.trim().to_owned());
    let names: Vec<String> = tests.stdout.lines().skip(2).filter_map(column).collect();
    let once = ["pp2", "tg2", "pp3+tg4", "pp1+tg1"];
    let want = once.map(String::from).into_iter().chain(once.map(|name| format!("{name} @ d5")));
    assert_eq!(names, want.collect::<Vec<_>>());
}

#[test]
fn a_run_is_compared_with_an_earlier_one_of_the_same_settings_only() {
    let tiny = tiny();
    let earlier = tiny.folder.path().join("earlier.json");
    let json = tiny.bench("-p 4 -n 2 -ub 64 -o json").run().stdout;
    std::fs::write(&earlier, json).expect("the file is written");
    let compared = |flags: &str| {
        let ended = tiny.bench(flags).arg("--compare").arg(&earlier).run();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stderr.lines().filter(|line| line.trim_end().ends_with('x')).count()
    };
    assert_eq!(compared("-p 4 -n 2 -ub 64"), 2);
    assert_eq!(compared("-p 4 -n 2 -ub 32"), 0, "another batch");
    assert_eq!(compared("-p 5 -n 2 -ub 64"), 1);
}

#[test]
fn what_makes_no_sense_is_wrong_use() {
    let tiny = tiny();
    for flags in ["-p 0 -n 0", "-b 0", "-ub 0", "-p 5-1", "-r 0", "-ctk q9", "--repack 2", "-o xml", "-pg 3"]
    {
        let ended = tiny.bench(flags).run();
        assert!(!ended.error(2).is_empty(), "{flags}");
    }
    // Heads of sixteen are no whole blocks of 32.
    assert!(tiny.bench("-p 1 -n 0 -ctk q8_0").run().error(2).contains("q8_0"));
}

#[test]
fn kernels_times_kernels_or_whole_layers() {
    let run = |flags: &str| {
        quantsmith!("kernels").args("--format q4_0 --shape 48x64 --batch 1,5 -t 2 --json").args(flags).json()
    };
    for (flags, layer) in [("", false), ("--layer", true)] {
        let json = run(flags);
        assert_eq!(keys(&json), ["threads", "layer", "read_gb_per_s", "multiply", "kernels"]);
        assert_eq!((json["threads"].as_u64(), json["layer"].as_bool()), (Some(2), Some(layer)));
        let rows = json["kernels"].as_array().expect("a list");
        assert_eq!(rows.iter().map(|row| row["batch"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(5)]);
        assert!(rows.iter().all(|row| row["seconds"].as_f64().is_some_and(|s| s > 0.0 && s < 10.0)));
    }
}

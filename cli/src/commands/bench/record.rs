//! A measured test: the fields that llama-bench prints, in its order, and ours after them; and the formats.

use serde::Serialize;
use serde_json::Value;

/// One test. Fields of machines with GPUs have the values that a machine without one gives.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    pub(crate) build_commit: &'static str,
    pub(crate) build_number: u32,
    pub(crate) cpu_info: String,
    pub(crate) gpu_info: &'static str,
    pub(crate) backends: &'static str,
    pub(crate) model_filename: String,
    pub(crate) model_type: String,
    pub(crate) model_size: u64,
    pub(crate) model_n_params: u64,
    pub(crate) n_batch: usize,
    pub(crate) n_ubatch: usize,
    pub(crate) n_threads: usize,
    pub(crate) cpu_mask: &'static str,
    pub(crate) cpu_strict: bool,
    pub(crate) poll: u32,
    pub(crate) type_k: &'static str,
    pub(crate) type_v: &'static str,
    pub(crate) n_gpu_layers: i32,
    pub(crate) n_cpu_moe: u32,
    pub(crate) split_mode: &'static str,
    pub(crate) main_gpu: u32,
    pub(crate) no_kv_offload: bool,
    pub(crate) flash_attn: bool,
    pub(crate) devices: &'static str,
    pub(crate) tensor_split: &'static str,
    pub(crate) tensor_buft_overrides: &'static str,
    pub(crate) load_mode: &'static str,
    pub(crate) lazy_mode: &'static str,
    pub(crate) embeddings: bool,
    pub(crate) no_op_offload: bool,
    pub(crate) no_host: bool,
    pub(crate) repack: bool,
    pub(crate) fit_target: u32,
    pub(crate) fit_min_ctx: u32,
    pub(crate) n_prompt: usize,
    pub(crate) n_gen: usize,
    pub(crate) n_depth: usize,
    pub(crate) test_time: String,
    pub(crate) avg_ns: u64,
    pub(crate) stddev_ns: u64,
    pub(crate) avg_ts: f64,
    pub(crate) stddev_ts: f64,
    pub(crate) isa: &'static str,
    pub(crate) kernel_set: String,
    pub(crate) mem_bw_gbs: f64,
    pub(crate) peak_rss: u64,
    pub(crate) median_ts: f64,
    /// Of the speed at which the weights could be read at most, for generation alone.
    pub(crate) roof: Option<f64>,
    pub(crate) samples_ns: Vec<u64>,
    pub(crate) samples_ts: Vec<f64>,
}

/// The fields whose values are lists, which only JSON shows.
const LISTS: [&str; 2] = ["samples_ns", "samples_ts"];

impl Record {
    /// What is measured: `pp512`, `tg128`, `pp512+tg128`, with ` @ d4096` behind a context.
    pub(crate) fn test(&self) -> String {
        let mut parts = Vec::new();
        if self.n_prompt > 0 {
            parts.push(format!("pp{}", self.n_prompt));
        }
        if self.n_gen > 0 {
            parts.push(format!("tg{}", self.n_gen));
        }
        let depth = if self.n_depth > 0 { format!(" @ d{}", self.n_depth) } else { String::new() };
        parts.join("+") + &depth
    }

    /// The fields with plain values, in order.
    fn fields(&self) -> Vec<(String, Value)> {
        let Ok(Value::Object(all)) = serde_json::to_value(self) else { return Vec::new() };
        all.into_iter().filter(|(key, _)| !LISTS.contains(&key.as_str())).collect()
    }

    /// The head of the CSV form.
    pub(crate) fn csv_head(&self) -> String {
        self.fields().into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(",") + "\n"
    }

    /// A line of CSV.
    pub(crate) fn csv(&self) -> String {
        let quoted = |value: Value| format!("\"{}\"", plain(&value).replace('"', "\"\""));
        self.fields().into_iter().map(|(_, value)| quoted(value)).collect::<Vec<_>>().join(",") + "\n"
    }

    /// The table that the SQL form fills.
    pub(crate) fn sql_head(&self) -> String {
        let column = |(key, value): (String, Value)| {
            let kind = match value {
                Value::Number(n) if n.is_f64() => "REAL",
                Value::Number(_) | Value::Bool(_) => "INTEGER",
                Value::Null => "REAL",
                _ => "TEXT",
            };
            format!("  {key} {kind}")
        };
        let columns: Vec<String> = self.fields().into_iter().map(column).collect();
        format!("CREATE TABLE IF NOT EXISTS llama_bench (\n{}\n);\n\n", columns.join(",\n"))
    }

    /// A row for that table.
    pub(crate) fn sql(&self) -> String {
        let (keys, values): (Vec<String>, Vec<Value>) = self.fields().into_iter().unzip();
        let literal = |value: &Value| match value {
            Value::Null => "NULL".to_owned(),
            Value::Number(_) => plain(value),
            _ => format!("'{}'", plain(value).replace('\'', "''")),
        };
        let values: Vec<String> = values.iter().map(literal).collect();
        format!("INSERT INTO llama_bench ({}) VALUES ({});\n", keys.join(", "), values.join(", "))
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(on) => u8::from(*on).to_string(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Mean and standard deviation, which is 0 for a single sample.
pub(crate) fn mean_and_deviation(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    if samples.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = samples.iter().map(|s| (s - mean) * (s - mean)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// The value in the middle.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 { f64::NAN } else { (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0 }
}

//! Every architecture against a second, plain implementation in f64, written from the same facts and nothing else.

mod kit;

use kit::{Draft, EXACT, Shape, tokens};
use quantsmith::LoadOptions;
use quantsmith::files::{Metadata, Value};
use quantsmith::model::arch::{
    ARCHITECTURES, Activation, Alibi, Architecture, Factor, NormKind, Parallel, Placement, QkNorm,
    RopeLayers, RopeStyle,
};

struct Reference<'a> {
    draft: &'a Draft,
    arch: &'a Architecture,
    shape: Shape,
}

type Rows = Vec<Vec<f64>>;

impl Reference<'_> {
    fn vector(&self, name: &str) -> Option<Vec<f64>> {
        self.draft.values(name).map(|(values, _)| values.iter().map(|&x| f64::from(x)).collect())
    }

    fn linear(&self, x: &[f64], name: &str) -> Vec<f64> {
        let (values, dims) = self.draft.values(&format!("{name}.weight")).expect("a matrix");
        let cols = dims[0] as usize;
        let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>();
        let mut y: Vec<f64> = values.chunks(cols).map(dot).collect();
        if let Some(bias) = self.vector(&format!("{name}.bias")) {
            y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
        }
        y
    }

    fn norm(&self, x: &[f64], name: &str) -> Vec<f64> {
        let weight = match self.arch.norm {
            NormKind::Bare => vec![1.0; x.len()],
            NormKind::Rms | NormKind::Layer => self.vector(&format!("{name}.weight")).expect("a norm"),
        };
        let bias = self.vector(&format!("{name}.bias")).unwrap_or_else(|| vec![0.0; x.len()]);
        let mean = match self.arch.norm {
            NormKind::Rms => 0.0,
            NormKind::Layer | NormKind::Bare => x.iter().sum::<f64>() / x.len() as f64,
        };
        let square = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let factor = 1.0 / (square + 1e-5).sqrt();
        x.iter().zip(weight.iter().zip(bias)).map(|(x, (w, b))| (x - mean) * factor * w + b).collect()
    }

    fn local(&self, layer: usize) -> bool {
        self.arch.window.is_some() && layer.is_multiple_of(2)
    }

    /// The largest bias of attention that falls off with the distance.
    fn largest_bias(&self) -> Option<f64> {
        match self.arch.alibi {
            Alibi::Always(largest) => Some(largest.into()),
            Alibi::AtBlocks(count, largest) if count == self.shape.layers => Some(largest.into()),
            Alibi::AtBlocks(..) | Alibi::Never => None,
        }
    }

    /// What attention of a head loses with each position of distance.
    fn slope(&self, head: usize) -> f64 {
        let Some(largest) = self.largest_bias() else { return 0.0 };
        let whole = (1..=self.shape.heads).rev().find(|n| n.is_power_of_two()).expect("at least one head");
        let exponent = if head < whole { (head + 1) as f64 } else { (head - whole) as f64 + 0.5 };
        (-largest * exponent / whole as f64).exp2()
    }

    fn rotate(&self, x: &mut [f64], layer: usize, position: usize) {
        let rotates = match self.arch.rope_layers {
            RopeLayers::All => true,
            RopeLayers::Local => self.arch.window.is_none() || self.local(layer),
            RopeLayers::NotLastOf(n) => !(layer + 1).is_multiple_of(n),
            RopeLayers::None => false,
        };
        if !rotates || self.largest_bias().is_some() {
            return;
        }
        let base = if self.local(layer) { self.arch.local_base.unwrap_or(10_000.0) } else { 10_000.0 };
        let dim = self.shape.head_dim;
        for head in x.chunks_mut(dim) {
            for j in 0..dim / 2 {
                let angle = position as f64 * f64::from(base).powf(-2.0 * j as f64 / dim as f64);
                let (a, b) = match self.arch.rope {
                    RopeStyle::Norm => (2 * j, 2 * j + 1),
                    RopeStyle::Neox => (j, j + dim / 2),
                };
                let (x, y) = (head[a], head[b]);
                (head[a], head[b]) = (x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos());
            }
        }
    }

    fn qk_norm(&self, x: &mut [f64], name: &str) {
        let width = match self.arch.qk_norm {
            QkNorm::None => return,
            QkNorm::Head | QkNorm::HeadRotated => self.shape.head_dim,
            QkNorm::Row => x.len(),
        };
        let weight = self.vector(&format!("{name}.weight")).expect("a norm");
        for run in x.chunks_mut(width) {
            let factor = 1.0 / (run.iter().map(|x| x * x).sum::<f64>() / width as f64 + 1e-5).sqrt();
            run.iter_mut().zip(&weight).for_each(|(x, w)| *x *= factor * w);
        }
    }

    fn attention(&self, x: &Rows, layer: usize) -> Rows {
        let Shape { heads, kv_heads, head_dim: dim, window, .. } = self.shape;
        let project = |part: &str| -> Rows {
            x.iter().map(|x| self.linear(x, &format!("blk.{layer}.{part}"))).collect()
        };
        let (mut q, mut k, v) = (project("attn_q"), project("attn_k"), project("attn_v"));
        for (rows, name) in [(&mut q, "attn_q_norm"), (&mut k, "attn_k_norm")] {
            for (position, row) in rows.iter_mut().enumerate() {
                let name = format!("blk.{layer}.{name}");
                if self.arch.qk_norm == QkNorm::HeadRotated {
                    self.rotate(row, layer, position);
                    self.qk_norm(row, &name);
                } else {
                    self.qk_norm(row, &name);
                    self.rotate(row, layer, position);
                }
            }
        }
        let scale = 1.0 / (dim as f64).sqrt();
        let cap = self.arch.attention_cap.filter(|&cap| cap > 0.0).map(f64::from);
        let reach = if self.local(layer) { window.map_or(usize::MAX, |w| w as usize) } else { usize::MAX };
        let attend = |position: usize, head: usize| -> Vec<f64> {
            let kv = head / (heads / kv_heads) * dim;
            let query = &q[position][head * dim..][..dim];
            let first = (position + 1).saturating_sub(reach);
            let score = |p: usize| {
                let s = scale * query.iter().zip(&k[p][kv..]).map(|(a, b)| a * b).sum::<f64>();
                cap.map_or(s, |cap| cap * (s / cap).tanh()) - self.slope(head) * (position - p) as f64
            };
            let weights: Vec<f64> = (first..=position).map(|p| score(p).exp()).collect();
            let sum: f64 = weights.iter().sum();
            (0..dim)
                .map(|d| (first..=position).zip(&weights).map(|(p, w)| w / sum * v[p][kv + d]).sum())
                .collect()
        };
        let joined = |position| (0..heads).flat_map(|head| attend(position, head)).collect::<Vec<_>>();
        (0..x.len()).map(|p| self.linear(&joined(p), &format!("blk.{layer}.attn_output"))).collect()
    }

    fn ffn(&self, x: &[f64], layer: usize) -> Vec<f64> {
        let f = |x: f64| match self.arch.activation {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Gelu => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
            Activation::ReluSquared => x.max(0.0).powi(2),
        };
        let up = self.linear(x, &format!("blk.{layer}.ffn_up"));
        let hidden: Vec<f64> = if self.arch.gated {
            let gate = self.linear(x, &format!("blk.{layer}.ffn_gate"));
            gate.into_iter().zip(up).map(|(g, u)| f(g) * u).collect()
        } else {
            up.into_iter().map(f).collect()
        };
        self.linear(&hidden, &format!("blk.{layer}.ffn_down"))
    }

    fn factor(&self, rule: Factor) -> f64 {
        let (embed, layers) = (self.shape.embed as f64, self.shape.layers as f64);
        match rule {
            Factor::One | Factor::OneOverKey => 1.0,
            Factor::SqrtWidth => embed.sqrt(),
            Factor::Key(value) => value.into(),
            Factor::KeyOrOverSqrtBlocks(value) => f64::from(value) / layers.sqrt(),
            Factor::OneOverKeyOrOverWidth(value) => f64::from(value) / embed,
        }
    }

    fn logits(&self, tokens: &[u32]) -> Rows {
        let (table, dims) = self.draft.values("token_embd.weight").expect("a table");
        let embed = dims[0] as usize;
        let scale = self.factor(self.arch.embedding);
        let row = |token: u32| {
            table[token as usize * embed..][..embed].iter().map(|&x| scale * f64::from(x)).collect()
        };
        let mut x: Rows = tokens.iter().map(|&token| row(token)).collect();
        if let Some(positions) = self.vector("position_embd.weight") {
            for (x, row) in x.iter_mut().zip(positions.chunks(embed)) {
                x.iter_mut().zip(row).for_each(|(x, p)| *x += p);
            }
        }
        let (pre, post) = (self.arch.placement != Placement::Post, self.arch.placement != Placement::Pre);
        let residual = self.factor(self.arch.residual);
        let add = |x: &mut [f64], y: &[f64]| x.iter_mut().zip(y).for_each(|(x, y)| *x += residual * y);
        let norm = |on: bool, x: &[f64], name: String| if on { self.norm(x, &name) } else { x.to_vec() };
        for i in 0..self.shape.layers {
            let block = |part: &str| format!("blk.{i}.{part}");
            let normed: Rows = x.iter().map(|x| norm(pre, x, block("attn_norm"))).collect();
            let attended = self.attention(&normed, i);
            for (position, x) in x.iter_mut().enumerate() {
                let attended = norm(post, &attended[position], block("post_attention_norm"));
                let second = self.vector(&block("ffn_norm.weight")).is_some();
                if self.arch.parallel != Parallel::Never {
                    let input =
                        if second { self.norm(x, &block("ffn_norm")) } else { normed[position].clone() };
                    add(x, &attended);
                    add(x, &self.ffn(&input, i));
                } else {
                    add(x, &attended);
                    let ffn = self.ffn(&norm(pre, x, block("ffn_norm")), i);
                    add(x, &norm(post, &ffn, block("post_ffw_norm")));
                }
            }
        }
        let cap = self.arch.final_cap.filter(|&cap| cap > 0.0).map(f64::from);
        let scale = self.factor(self.arch.logits);
        let finish = |x: &f64| cap.map_or(scale * x, |cap| cap * (scale * x / cap).tanh());
        x.iter()
            .map(|x| self.linear(&self.norm(x, "output_norm"), "token_embd").iter().map(finish).collect())
            .collect()
    }
}

fn compare(draft: &Draft, arch: &Architecture, shape: Shape) {
    let tokens = tokens(60);
    let expected: Vec<f64> = Reference { draft, arch, shape }.logits(&tokens).concat();
    let model = draft.write().load(LoadOptions { threads: Some(2), ubatch: 32, ..Default::default() });
    let found = kit::logits(&model, &tokens);
    let size = (expected.iter().map(|x| x * x).sum::<f64>() / expected.len() as f64).sqrt();
    let difference =
        found.iter().zip(&expected).map(|(f, e)| (f64::from(f32::from_bits(*f)) - e).powi(2)).sum::<f64>();
    let difference = (difference / expected.len() as f64).sqrt() / size;
    // Keys and values are kept in f16, everything else is f32.
    assert!(difference < 2e-3, "{}: the logits differ by {difference} of their size", arch.name);
    assert!(size > 0.1, "{}: logits of size {size} show nothing", arch.name);
}

#[test]
fn every_architecture_computes_what_its_facts_say() {
    for arch in ARCHITECTURES {
        let shape = Shape::default();
        compare(&Draft::new(arch, shape, EXACT), arch, shape);
    }
}

#[test]
fn a_model_without_grouped_heads_and_with_one_head_computes_the_same_as_the_reference() {
    for name in ["llama", "gemma3", "refact"] {
        let arch = Architecture::find(name).expect("an architecture");
        for (heads, kv_heads) in [(1, 1), (3, 3), (6, 1)] {
            let shape = Shape { heads, kv_heads, layers: 2, ..Shape::default() };
            compare(&Draft::new(arch, shape, EXACT), arch, shape);
        }
    }
}

#[test]
fn several_matrices_in_one_tensor_give_what_they_give_one_by_one() {
    let arch = Architecture::find("phi3").expect("an architecture");
    let apart = Draft::new(arch, Shape::default(), EXACT);
    let mut joined = Draft { metadata: Metadata::clone(&apart.metadata), tensors: Vec::new() };
    let mut fused: Vec<(String, kit::Tensor)> = Vec::new();
    for tensor in &apart.tensors {
        let target = match tensor.name.split('.').nth(2) {
            Some("attn_q" | "attn_k" | "attn_v") if tensor.name.ends_with("weight") => "attn_qkv.weight",
            Some("ffn_gate" | "ffn_up") if tensor.name.ends_with("weight") => "ffn_up.weight",
            Some("attn_q" | "attn_v" | "ffn_up") => continue,
            _ => {
                joined.tensors.push(tensor.clone());
                continue;
            }
        };
        let layer = tensor.name.split('.').nth(1).expect("a layer");
        let name = format!("blk.{layer}.{target}");
        match fused.iter_mut().find(|(n, _)| *n == name) {
            Some((_, all)) => {
                all.values.extend(&tensor.values);
                all.dims[1] += tensor.dims[1];
            }
            None => fused.push((name.clone(), kit::Tensor { name, ..tensor.clone() })),
        }
    }
    joined.tensors.extend(fused.into_iter().map(|(_, tensor)| tensor));
    let mut apart = apart;
    apart
        .tensors
        .retain(|t| !["attn_q.bias", "attn_v.bias", "ffn_up.bias"].iter().any(|end| t.name.ends_with(end)));
    let tokens = tokens(20);
    let run = |draft: &Draft| kit::logits(&draft.write().load(LoadOptions::default()), &tokens);
    assert_eq!(run(&joined), run(&apart));
}

#[test]
fn frequencies_follow_base_scaling_and_divisors() {
    let arch = Architecture::find("llama").expect("an architecture");
    let shape = Shape { layers: 2, ..Shape::default() };
    let plain = Draft::new(arch, shape, EXACT);
    let tokens = tokens(30);
    let run = |draft: &Draft| kit::logits(&draft.write().load(LoadOptions::default()), &tokens);
    let base = run(&plain);
    // A factor of 2 is a divisor of 2 for all pairs.
    let linear = plain.clone().set("{a}.rope.scaling.factor", Value::F32(2.0));
    let mut divided = plain.clone().with("rope_freqs.weight", &[16]);
    divided.tensors.last_mut().expect("a tensor").values.fill(2.0);
    assert_eq!(run(&linear), run(&divided));
    assert_ne!(run(&linear), base);
    let none = linear.clone().set("{a}.rope.scaling.type", Value::String("none".into()));
    assert_eq!(run(&none), base);
    let other = plain.clone().set("{a}.rope.freq_base", Value::F32(500.0));
    assert_ne!(run(&other), base);
}

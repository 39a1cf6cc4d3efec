//! Builds the graph of a model from its architecture's row and its tensors.
//!
//! One builder for all families. It binds each tensor where it is used, so a tensor that is missing or has another
//! shape than the graph needs is found here, before anything runs. From the last layer's attention on only the rows
//! whose logits are asked for are computed.

use super::op::{Graph, Index, Kind, Op, Rows, Value, ValueId};
use crate::error::Error;
use crate::files::ModelFile;
use crate::model::arch::{NormKind, Placement, QkNorm};
use crate::model::hparams::{HParams, LayerParams};
use crate::weights::{Binder, Use, WeightId};

/// The table of learned positions.
pub(crate) const POSITIONS: &str = "position_embd.weight";

/// Builds the graph and binds its tensors.
pub(crate) fn build(file: &ModelFile, params: &HParams, binder: &mut Binder<'_>) -> Result<Graph, Error> {
    let mut builder =
        Builder { params, binder, graph: Graph::default(), rows: Rows::Tokens, codes: Vec::new() };
    builder.model(file)?;
    Ok(builder.graph)
}

struct Builder<'a, 'b> {
    params: &'a HParams,
    binder: &'a mut Binder<'b>,
    graph: Graph,
    rows: Rows,
    /// Quantised forms of values, to be shared by all that read them.
    codes: Vec<(ValueId, ValueId)>,
}

/// The tensors that two branches of attention read and what comes out.
struct Qkv {
    q: ValueId,
    k: ValueId,
    v: ValueId,
}

impl Builder<'_, '_> {
    fn value(&mut self, name: impl Into<String>, cols: usize, kind: Kind) -> ValueId {
        self.graph.values.push(Value { name: name.into(), rows: self.rows, cols, kind });
        ValueId(self.graph.values.len() - 1)
    }

    fn floats(&mut self, name: impl Into<String>, cols: usize) -> ValueId {
        self.value(name, cols, Kind::Floats)
    }

    fn push(&mut self, op: Op<ValueId>) {
        // A value that changes is another value for those who read its quantised form.
        if let Some(changed) = op.changed() {
            self.codes.retain(|(x, _)| *x != changed);
        }
        self.graph.ops.push(op);
    }

    /// Whether the file has the weights of something.
    fn has(&self, tensor: &str) -> bool {
        self.binder.has(&format!("{tensor}.weight"))
    }

    fn cols(&self, value: ValueId) -> usize {
        self.graph.values[value.0].cols
    }

    fn model(&mut self, file: &ModelFile) -> Result<(), Error> {
        let params = self.params;
        let vocab = vocab(file, self.binder)?;
        let table = self.binder.bind("token_embd.weight", params.embed, vocab, Use::Table)?;
        let mut x = self.floats("embedding", params.embed);
        self.push(Op::Embed { table, by: Index::Token, scale: params.embedding_scale, out: x });
        let told = !params.rope.is_empty() || params.alibi.is_some();
        if !told || self.binder.has(POSITIONS) {
            let table = self.binder.bind(POSITIONS, params.embed, params.context, Use::Table)?;
            let out = self.floats("position", params.embed);
            self.push(Op::Embed { table, by: Index::Position, scale: 1.0, out });
            self.push(Op::Add { x, y: out });
        }
        x = self.norm_if(x, "token_embd_norm", "embedding_norm")?;
        let rotations: Vec<_> = params
            .rope
            .iter()
            .enumerate()
            .map(|(kind, rope)| {
                let out = self.floats(format!("rotation.{kind}"), rope.dims);
                self.push(Op::Rotation { kind, out });
                out
            })
            .collect();
        for i in 0..params.layers.len() {
            x = self.layer(i, x, &rotations)?;
        }
        let x = self.norm(x, "output_norm", "output_norm")?;
        let name = if self.has("output") { "output.weight" } else { "token_embd.weight" };
        let output = self.binder.bind(name, params.embed, vocab, Use::Matrix)?;
        let logits = self.product(x, output, "logits");
        self.bias(logits, "output.bias")?;
        self.scale(logits, params.logit_scale);
        if let Some(cap) = params.final_cap {
            self.push(Op::Cap { x: logits, cap });
        }
        self.graph.logits = Some(logits);
        Ok(())
    }

    fn layer(&mut self, i: usize, x: ValueId, rotations: &[ValueId]) -> Result<ValueId, Error> {
        let params = self.params;
        let pre = params.arch.placement != Placement::Post;
        let mut ffn_norm = format!("blk.{i}.ffn_norm");
        let own_norm = self.has(&ffn_norm);
        let behind = format!("blk.{i}.post_attention_norm");
        if params.arch.placement == Placement::Pre && !own_norm && self.has(&behind) {
            // It stands behind attention and in front of the feed-forward part; some files name it by the former.
            ffn_norm = behind;
        }
        let normed = if pre { self.norm(x, &format!("blk.{i}.attn_norm"), "attn_norm")? } else { x };
        // Side by side, attention may have a norm of its own.
        let second = format!("blk.{i}.attn_norm_2");
        let input = if self.has(&second) { self.norm(x, &second, "attn_norm_2")? } else { normed };
        let mut attended = self.attention(i, input, rotations)?;
        let (mut x, mut normed) = (x, normed);
        if i + 1 == params.layers.len() {
            // Nothing but the cache needs the other rows any more.
            let name = self.graph.values[attended.0].name.clone();
            (attended, x) = (self.select(attended, &name), self.select(x, "residual"));
            // Side by side, the other branch may read the same input.
            normed = if params.parallel && !own_norm { self.select(normed, "attn_norm") } else { normed };
            self.codes.clear();
        }
        attended = self.norm_if(attended, &format!("blk.{i}.attn_sub_norm"), "attn_sub_norm")?;
        let mut attention =
            self.linear(attended, &format!("blk.{i}.attn_output"), params.embed, "attn_output")?;
        if params.parallel {
            let input = if own_norm { self.norm(x, &ffn_norm, "ffn_norm")? } else { normed };
            let ffn = self.ffn(i, input)?;
            self.scale(attention, params.residual_scale);
            self.scale(ffn, params.residual_scale);
            self.push(Op::Add { x: attention, y: x });
            self.push(Op::Add { x: ffn, y: attention });
            return Ok(ffn);
        }
        attention = self.post_norm(attention, &format!("blk.{i}.post_attention_norm"))?;
        self.scale(attention, params.residual_scale);
        self.push(Op::Add { x: attention, y: x });
        let x = attention;
        let normed = if pre { self.norm(x, &ffn_norm, "ffn_norm")? } else { x };
        let mut ffn = self.ffn(i, normed)?;
        ffn = self.post_norm(ffn, &format!("blk.{i}.post_ffw_norm"))?;
        self.scale(ffn, params.residual_scale);
        self.push(Op::Add { x: ffn, y: x });
        Ok(ffn)
    }

    fn attention(&mut self, i: usize, x: ValueId, rotations: &[ValueId]) -> Result<ValueId, Error> {
        let (params, layer) = (self.params, &self.params.layers[i]);
        let Qkv { q, k, v } = self.qkv(i, x, layer)?;
        let (q_width, k_width) = match params.arch.qk_norm {
            QkNorm::None => (None, None),
            QkNorm::Head | QkNorm::HeadRotated => (Some(params.head_dim), Some(params.head_dim)),
            QkNorm::Row => (Some(self.cols(q)), Some(self.cols(k))),
        };
        let rotated_first = params.arch.qk_norm == QkNorm::HeadRotated;
        for (value, width, name) in [(q, q_width, "attn_q_norm"), (k, k_width, "attn_k_norm")] {
            let norm = match width {
                Some(width) => {
                    let weight = self.binder.vector(&format!("blk.{i}.{name}.weight"), width)?;
                    Some(Op::HeadNorm { x: value, width, weight })
                }
                None => None,
            };
            let rope = layer.rope.map(|kind| {
                let (rotation, style) = (rotations[kind], params.rope[kind].style);
                Op::Rope { x: value, rotation, head: params.head_dim, style }
            });
            let order = if rotated_first { [rope, norm] } else { [norm, rope] };
            order.into_iter().flatten().for_each(|op| self.push(op));
        }
        self.push(Op::Store { k, v, layer: i });
        let out = self.floats("attention", layer.heads * params.value_dim);
        self.push(Op::Attend { q, layer: i, out });
        Ok(out)
    }

    fn qkv(&mut self, i: usize, x: ValueId, layer: &LayerParams) -> Result<Qkv, Error> {
        let (key, value) = (self.params.head_dim, self.params.value_dim);
        let sizes = [layer.heads * key, layer.kv_heads * key, layer.kv_heads * value];
        let fused = format!("blk.{i}.attn_qkv");
        let mut out = [x; 3];
        if self.has(&fused) {
            let all: usize = sizes.iter().sum();
            let mut start = 0;
            for (j, name) in ["q", "k", "v"].into_iter().enumerate() {
                let rows = start..start + sizes[j];
                start = rows.end;
                let weight = format!("{fused}.weight");
                let weight = self.binder.bind_rows(&weight, self.cols(x), all, rows.clone(), Use::Matrix)?;
                out[j] = self.product(x, weight, name);
                self.tensor_scale(out[j], &fused)?;
                let bias = format!("{fused}.bias");
                if self.binder.has(&bias) {
                    let bias = self.binder.vector_part(&bias, all, rows)?;
                    self.push(Op::Bias { x: out[j], bias });
                }
            }
        } else {
            for (j, name) in ["q", "k", "v"].into_iter().enumerate() {
                out[j] = self.linear_product(x, &format!("blk.{i}.attn_{name}"), sizes[j], name)?;
            }
            for (j, name) in ["q", "k", "v"].into_iter().enumerate() {
                self.bias(out[j], &format!("blk.{i}.attn_{name}.bias"))?;
            }
        }
        let [q, k, v] = out;
        Ok(Qkv { q, k, v })
    }

    fn ffn(&mut self, i: usize, x: ValueId) -> Result<ValueId, Error> {
        let (ff, function) = (self.params.layers[i].ff, self.params.arch.activation);
        let (up, gate) = (format!("blk.{i}.ffn_up"), format!("blk.{i}.ffn_gate"));
        let hidden = if !self.params.arch.gated {
            let hidden = self.linear(x, &up, ff, "ffn_up")?;
            self.push(Op::Activate { x: hidden, function });
            hidden
        } else if self.has(&gate) {
            let gated = self.linear_product(x, &gate, ff, "ffn_gate")?;
            let other = self.linear_product(x, &up, ff, "ffn_up")?;
            self.bias(gated, &format!("{gate}.bias"))?;
            self.bias(other, &format!("{up}.bias"))?;
            self.push(Op::Gate { x: gated, up: other, function });
            gated
        } else {
            // One tensor holds the gate's rows and then the others.
            let name = format!("{up}.weight");
            let (cols, all) = (self.cols(x), 2 * ff);
            let gate = self.binder.bind_rows(&name, cols, all, 0..ff, Use::Matrix)?;
            let other = self.binder.bind_rows(&name, cols, all, ff..all, Use::Matrix)?;
            let gated = self.product(x, gate, "ffn_gate");
            let other = self.product(x, other, "ffn_up");
            self.tensor_scale(gated, &up)?;
            self.tensor_scale(other, &up)?;
            self.push(Op::Gate { x: gated, up: other, function });
            gated
        };
        let hidden = self.norm_if(hidden, &format!("blk.{i}.ffn_sub_norm"), "ffn_sub_norm")?;
        self.linear(hidden, &format!("blk.{i}.ffn_down"), self.params.embed, "ffn_down")
    }

    /// A norm in front of something.
    fn norm(&mut self, x: ValueId, tensor: &str, name: &str) -> Result<ValueId, Error> {
        let cols = self.cols(x);
        let mut vector = |part: &str| self.binder.vector(&format!("{tensor}.{part}"), cols);
        let (weight, bias) = match self.params.arch.norm {
            NormKind::Rms => (Some(vector("weight")?), None),
            NormKind::Layer => {
                (Some(vector("weight")?), self.binder.vector_if(&format!("{tensor}.bias"), cols)?)
            }
            NormKind::Bare => (None, None),
        };
        let out = self.floats(name, cols);
        self.push(Op::Norm { x, weight, bias, out });
        Ok(out)
    }

    /// A norm that is there where the file has it.
    fn norm_if(&mut self, x: ValueId, tensor: &str, name: &str) -> Result<ValueId, Error> {
        if self.has(tensor) { self.norm(x, tensor, name) } else { Ok(x) }
    }

    /// A norm behind something, where the architecture has it.
    fn post_norm(&mut self, x: ValueId, tensor: &str) -> Result<ValueId, Error> {
        match self.params.arch.placement {
            Placement::Pre => Ok(x),
            Placement::PrePost | Placement::Post => self.norm(x, tensor, "post_norm"),
        }
    }

    fn select(&mut self, x: ValueId, name: &str) -> ValueId {
        self.rows = Rows::Outputs;
        let out = self.floats(name, self.cols(x));
        self.push(Op::Select { x, out });
        out
    }

    fn scale(&mut self, x: ValueId, factor: f32) {
        if factor != 1.0 {
            self.push(Op::Scale { x, factor });
        }
    }

    fn bias(&mut self, x: ValueId, name: &str) -> Result<(), Error> {
        if let Some(bias) = self.binder.vector_if(name, self.cols(x))? {
            self.push(Op::Bias { x, bias });
        }
        Ok(())
    }

    /// A matrix and its bias, if there is one.
    fn linear(&mut self, x: ValueId, tensor: &str, rows: usize, name: &str) -> Result<ValueId, Error> {
        let out = self.linear_product(x, tensor, rows, name)?;
        self.bias(out, &format!("{tensor}.bias"))?;
        Ok(out)
    }

    fn linear_product(
        &mut self,
        x: ValueId,
        tensor: &str,
        rows: usize,
        name: &str,
    ) -> Result<ValueId, Error> {
        let weight = self.binder.bind(&format!("{tensor}.weight"), self.cols(x), rows, Use::Matrix)?;
        let out = self.product(x, weight, name);
        self.tensor_scale(out, tensor)?;
        Ok(out)
    }

    /// The scale that a whole tensor has beside those of its blocks, if there is one (NVFP4, BitNet).
    fn tensor_scale(&mut self, x: ValueId, tensor: &str) -> Result<(), Error> {
        if let Some(scale) = self.binder.vector_if(&format!("{tensor}.scale"), 1)? {
            let factor = self.binder.values(scale)[0];
            self.scale(x, factor);
        }
        // Meant for machines that compute with activations of the weights' own format.
        self.binder.pass_over(&format!("{tensor}.input_scale"));
        Ok(())
    }

    /// A product, with the quantised form of `x` where the weight's format takes that.
    fn product(&mut self, x: ValueId, weight: WeightId, name: &str) -> ValueId {
        let (rows, codes) = {
            let weight = self.binder.matrix(weight);
            (weight.rows, weight.takes_codes())
        };
        let x = if codes { self.quantised(x) } else { x };
        let out = self.floats(name, rows);
        self.push(Op::MatMul { x, weight, out });
        out
    }

    fn quantised(&mut self, x: ValueId) -> ValueId {
        if let Some((_, codes)) = self.codes.iter().find(|(value, _)| *value == x) {
            return *codes;
        }
        let name = format!("{}.codes", self.graph.values[x.0].name);
        let out = self.value(name, self.cols(x), Kind::Codes);
        self.push(Op::Quantise { x, out });
        self.codes.push((x, out));
        out
    }
}

/// The number of tokens: the rows of the embedding table.
fn vocab(file: &ModelFile, binder: &Binder<'_>) -> Result<usize, Error> {
    let name = "token_embd.weight";
    let error = |found: String| Error::Tensor {
        path: file.path().into(),
        name: name.into(),
        found,
        expected: "a row for each token, from 1 to 2^31".into(),
    };
    let rows = binder.rows(name).ok_or_else(|| error("not in the file".into()))?;
    match usize::try_from(rows) {
        Ok(rows) if rows > 0 && rows <= 1 << 31 => Ok(rows),
        _ => Err(error(format!("{rows} rows"))),
    }
}

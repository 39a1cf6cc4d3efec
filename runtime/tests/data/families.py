#!/usr/bin/env python3
"""Writes families.json: small models of all architectures, and the logits that llama.cpp gives for them.

Needs numpy, gguf and llama-cpp-python (0.3.36 made what is there). Weights are a function of name and place, so the file
holds shapes only; the test builds the same models.
"""

import json
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

VOCAB, TOKENS, SHOWN = 96, 24, 5
LONG_FACTORS, SHORT_FACTORS = [1, 1.5, 3, 8], [1, 1, 1.25, 1.5]
QKV, OUT, FFN = ("attn_q", "attn_k", "attn_v"), ("attn_output",), ("ffn_gate", "ffn_up", "ffn_down")


def case(arch, *, layers=3, heads=4, kv_heads=2, head=8, rope=None, norm="rms", without=(), biases=(), qkv=False,
         ffn="gate", post=False, qk_norm=None, tied=False, keys=None, factors=None, more=()):
    """A model: what differs from a plain LLaMA. `keys` are metadata of the architecture, `factors` vectors as they
    are, `more` norms that others do not have."""
    embed, ff = 32, 48
    meta = {
        "context_length": 256, "embedding_length": embed, "block_count": layers, "feed_forward_length": ff,
        "attention.head_count": heads, "attention.head_count_kv": kv_heads, "rope.dimension_count": rope or head,
        "vocab_size": VOCAB,
        "attention.layer_norm_rms_epsilon" if norm == "rms" else "attention.layer_norm_epsilon": 1e-5,
    }
    if head * heads != embed:
        meta |= {"attention.key_length": head, "attention.value_length": head}
    meta |= keys or {}
    # Name: dimensions, what the values lie around, and how far from it at most.
    tensors = {}

    def matrix(name, cols, rows, size=2.5):
        tensors[f"{name}.weight"] = [[cols, rows], 0.0, size / cols**0.5]
        if any(name.endswith(part) for part in biases):
            tensors[f"{name}.bias"] = [[rows], 0.0, 0.4]

    def vector(name, size, bias=False):
        tensors[f"{name}.weight"] = [[size], 1.0, 0.4]
        if bias:
            tensors[f"{name}.bias"] = [[size], 0.0, 0.3]

    def norm_of(name):
        if not name.endswith(tuple(without) or ("\0",)):
            vector(name, embed, norm == "layer bias")

    matrix("token_embd", embed, VOCAB, size=embed**0.5)
    norm_of("output_norm")
    if not tied:
        matrix("output", embed, VOCAB)
    if "position_embd" in more:
        matrix("position_embd", embed, 256, size=embed**0.5)
    for name in more:
        if name != "position_embd":
            vector(name, ff if "ffn_sub" in name else embed, norm == "layer bias")
    sizes = {"attn_q": heads * head, "attn_k": kv_heads * head, "attn_v": kv_heads * head}
    norm_of("blk.*.attn_norm")
    if qkv:
        matrix("blk.*.attn_qkv", embed, sum(sizes.values()))
    else:
        for name, size in sizes.items():
            matrix(f"blk.*.{name}", embed, size)
    matrix("blk.*.attn_output", heads * head, embed)
    norm_of("blk.*.ffn_norm")
    if ffn == "gate":
        matrix("blk.*.ffn_gate", embed, ff)
    matrix("blk.*.ffn_up", embed, 2 * ff if ffn == "fused" else ff)
    matrix("blk.*.ffn_down", ff, embed)
    if post:
        vector("blk.*.post_attention_norm", embed)
    if post is True:
        vector("blk.*.post_ffw_norm", embed)
    if qk_norm:
        vector("blk.*.attn_q_norm", head if qk_norm == "head" else heads * head)
        vector("blk.*.attn_k_norm", head if qk_norm == "head" else kv_heads * head)
    metadata = {f"{arch}.{key}": value for key, value in meta.items()}
    return {"metadata": {"general.architecture": arch} | metadata, "tensors": tensors, "factors": factors or {}}


WINDOW = {"attention.sliding_window": 8}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
SECTIONS = {"rope.dimension_sections": [2, 1, 1, 0]}
SCALES = {"embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0}
POST = {"post": True, "without": ("attn_norm", "ffn_norm")}
LAYER = {"norm": "layer bias", "ffn": "up", "biases": QKV + OUT + FFN + ("attn_qkv",)}

CASES = {
    "llama": case("llama"),
    "llama, biases": case("llama", biases=QKV + OUT + FFN),
    "llama, tied, divisors": case("llama", tied=True, factors={"rope_freqs.weight": LONG_FACTORS}),
    "llama, linear": case("llama", keys=LINEAR),
    "llama, yarn": case("llama", keys=YARN),
    "qwen2": case("qwen2", biases=QKV),
    "qwen3": case("qwen3", head=16, qk_norm="head"),
    # llama-cpp-python 0.3.36 does not read the epsilon of this one, and takes 0.
    "qwen2vl": case("qwen2vl", biases=QKV, keys=SECTIONS | {"attention.layer_norm_rms_epsilon": 0.0}),
    "qwen3vl": case("qwen3vl", qk_norm="head", keys=SECTIONS | {"n_deepstack_layers": 0}),
    "hunyuan-dense": case("hunyuan-dense", qk_norm="head"),
    "seed_oss": case("seed_oss", biases=QKV, without=("ffn_norm",), post="attention"),
    "bitnet": case("bitnet", tied=True, more=("blk.*.attn_sub_norm", "blk.*.ffn_sub_norm")),
    "exaone": case("exaone", factors={"rope_freqs.weight": LONG_FACTORS}),
    "gemma": case("gemma", head=16, tied=True),
    "gemma2": case("gemma2", head=16, tied=True, post=True,
                   keys=WINDOW | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 6.0}),
    "gemma3": case("gemma3", layers=7, head=16, tied=True, post=True, qk_norm="head",
                   keys=WINDOW | {"rope.freq_base": 1e6}),
    "gemma3, linear": case("gemma3", layers=7, head=16, tied=True, post=True, qk_norm="head", keys=WINDOW | LINEAR),
    "internlm2": case("internlm2"),
    "xverse": case("xverse"),
    "baichuan, 7B": case("baichuan", layers=32),
    "baichuan, 13B": case("baichuan", layers=40),
    "refact": case("refact", kv_heads=1),
    "refact, six heads": case("refact", heads=6, kv_heads=1),
    "olmo": case("olmo", norm="bare", without=("_norm",)),
    "smollm3": case("smollm3", layers=5, tied=True),
    "arcee": case("arcee", ffn="up"),
    "minicpm": case("minicpm", tied=True, keys=SCALES),
    "granite": case("granite", keys=SCALES | {"attention.scale": 0.4}),
    "olmo2": case("olmo2", qk_norm="row", **POST),
    "olmo2, windows, yarn": case("olmo2", layers=5, qk_norm="row", keys=WINDOW | YARN, **POST),
    "exaone4": case("exaone4", qk_norm="head", **POST),
    "exaone4, windows": case("exaone4", layers=64, qk_norm="head",
                             keys=WINDOW | {"attention.sliding_window_pattern": [True, True, True, False] * 16}, **POST),
    "ernie4_5": case("ernie4_5"),
    "glm4": case("glm4", post=True, ffn="fused", rope=4, biases=QKV),
    "chatglm": case("chatglm", qkv=True, biases=("attn_qkv",), ffn="fused", rope=4),
    "phi3": case("phi3", qkv=True, ffn="fused"),
    "phi3, long": case("phi3", qkv=True, ffn="fused",
                       keys={"rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": 1.19},
                       factors={"rope_factors_long.weight": LONG_FACTORS, "rope_factors_short.weight": SHORT_FACTORS}),
    "orion": case("orion", norm="layer bias"),
    "stablelm": case("stablelm", norm="layer bias", rope=4, biases=QKV, keys={"use_parallel_residual": False}),
    "stablelm, parallel": case("stablelm", norm="layer bias", rope=4, without=("ffn_norm",),
                               keys={"use_parallel_residual": True}),
    "starcoder2": case("starcoder2", **LAYER),
    "gpt2": case("gpt2", kv_heads=4, qkv=True, more=("position_embd",), **LAYER),
    "starcoder": case("starcoder", kv_heads=1, qkv=True, more=("position_embd",), **LAYER),
    "bloom": case("bloom", kv_heads=4, qkv=True, more=("token_embd_norm",), **LAYER),
    "falcon": case("falcon", kv_heads=1, qkv=True, without=("ffn_norm",), norm="layer bias", ffn="up"),
    "falcon, two norms": case("falcon", qkv=True, without=("ffn_norm",), norm="layer bias", ffn="up",
                              more=("blk.*.attn_norm_2",)),
    "codeshell": case("codeshell", qkv=True, **LAYER),
    "phi2": case("phi2", rope=4, without=("ffn_norm",), norm="layer bias", ffn="up",
                 biases=LAYER["biases"] + ("output",)),
    "gptneox": case("gptneox", kv_heads=4, qkv=True, rope=4, keys={"use_parallel_residual": True}, **LAYER),
    "gptneox, in turn": case("gptneox", kv_heads=4, qkv=True, rope=4, keys={"use_parallel_residual": False}, **LAYER),
    "nemotron": case("nemotron", rope=4, **LAYER),
    "command-r": case("command-r", norm="layer", tied=True, without=("ffn_norm",), keys={"logit_scale": 0.25}),
    "cohere2": case("cohere2", layers=5, norm="layer", tied=True, without=("ffn_norm",),
                    keys=WINDOW | {"logit_scale": 0.25}),
}


def values(name, dims, middle, reach):
    """The values of a tensor: FNV-1a of the name, plus the place, through splitmix64; its upper bits from -1 to 1."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        x = (np.arange(1, np.prod(dims) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed))
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    x = (x >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    return (x * np.float32(reach) + np.float32(middle)).reshape(dims[::-1])


def write(path, case):
    arch = case["metadata"]["general.architecture"]
    writer = gguf.GGUFWriter(path, arch)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
           list: writer.add_array}
    for key, value in case["metadata"].items():
        if key != "general.architecture":
            add[type(value)](key, value)
    writer.add_tokenizer_model("no_vocab")
    for pattern, (dims, middle, reach) in case["tensors"].items():
        layers = case["metadata"][f"{arch}.block_count"] if "*" in pattern else 1
        for layer in range(layers):
            name = pattern.replace("*", str(layer))
            writer.add_tensor(name, values(name, dims, middle, reach))
    for name, factors in case["factors"].items():
        writer.add_tensor(name, np.array(factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(path, tokens):
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    assert model, "llama.cpp does not take the model"
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 256
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.swa_full = True
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    assert llama_cpp.llama_decode(context, batch) == 0
    row = lambda i: np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (VOCAB,)).copy()
    return np.stack([row(i) for i in range(len(tokens))])


def main():
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, None)
    tokens = [i * i * 7 % VOCAB for i in range(1, TOKENS + 1)]
    with tempfile.TemporaryDirectory() as directory:
        for name, entry in CASES.items():
            path = Path(directory) / "model.gguf"
            write(path, entry)
            found = logits(path, tokens)
            # Of each position the logits of a few tokens, other ones each time.
            entry["logits"] = [[float(f"{row[(i + 19 * j) % VOCAB]:.6g}") for j in range(SHOWN)]
                               for i, row in enumerate(found)]
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in CASES.items()]
    out = Path(__file__).with_suffix(".json")
    out.write_text(f'{{"tokens": {tokens},\n"cases": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The classic pair beside PyTorch: an int8 matrix of 1024 x 1024 with 1 row and with 1024 rows of f32 activations.

    python3 -m venv torch && torch/bin/pip install torch
    torch/bin/python benches/peers/pytorch.py
    torch/bin/python benches/peers/pytorch.py -t 1,2 --batch 1,1024 --rounds 15 --engine x86 --isa avx512vnni

PyTorch's side is a Linear layer after `quantize_dynamic` (weights int8, activations quantised in every call), ours the layer
of `quantsmith kernels --layer`: a matrix of Q8_0, activations quantised in every call, too, to int8 in groups of 32. Both get
f32 and give f32, with the matrix in the caches. They take turns, so that whatever else the machine does hits both. Prints
the median and the middle half of both in microseconds, and the ratio of the medians.

torch/bin/pip install --no-deps torch does not suffice: it wants its CUDA libraries (several GB) even where there is no GPU.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402

try:
    from torch.ao.quantization import quantize_dynamic
except ImportError:
    sys.exit(f"torch {torch.__version__} has no torch.ao.quantization.quantize_dynamic; versions up to 2.15 have it")


def theirs(layer, x, seconds):
    """Microseconds of one call: the median of short runs."""
    with torch.inference_mode():
        begin = time.perf_counter()
        layer(x)
        layer(x)
        calls = max(1, int(0.02 / ((time.perf_counter() - begin) / 2)))
        runs = []
        stop = time.perf_counter() + seconds
        while len(runs) < 5 or time.perf_counter() < stop:
            begin = time.perf_counter()
            for _ in range(calls):
                layer(x)
            runs.append((time.perf_counter() - begin) / calls)
    return 1e6 * statistics.median(runs)


def ours(program, threads, size, batches, isa):
    """Microseconds of one call for each number of rows."""
    command = [program, "kernels", "--layer", "--format", "q8_0", "--shape", f"{size}x{size}", "--json"]
    command += ["--batch", ",".join(map(str, batches)), "-t", str(threads)] + (["--isa", isa] if isa else [])
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: {run.stderr.strip()}")
    rows = json.loads(run.stdout)["kernels"]
    return {row["batch"]: 1e6 * row["seconds"] for row in rows}, rows[0]["isa"]


def cell(samples):
    """Median and middle half."""
    if len(samples) < 2:
        return f"{samples[0]:.1f}"
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default="target/release/quantsmith")
    parser.add_argument("--isa", help="the tier that ours uses")
    parser.add_argument("--engine", help="PyTorch's engine for int8: " + ", ".join(torch.backends.quantized.supported_engines))
    parser.add_argument("-t", "--threads", default="1,2")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batch", default="1,1024")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of one measurement")
    args = parser.parse_args()
    if args.engine:
        torch.backends.quantized.engine = args.engine
    batches = [int(n) for n in args.batch.split(",")]
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(args.size, args.size, bias=False)).eval()
    layer = quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    inputs = {batch: torch.randn(batch, args.size) for batch in batches}
    print(f"torch {torch.__version__}, engine {torch.backends.quantized.engine}; {processor()}\n")
    print(f"| threads | rows | isa        | {'ours, µs':>26} | {'PyTorch, µs':>26} | ratio |")
    print(f"| ------: | ---: | ---------- | {'-' * 25}: | {'-' * 25}: | ----: |")
    for threads in (int(n) for n in args.threads.split(",")):
        torch.set_num_threads(threads)
        mine, peer = ({batch: [] for batch in batches} for _ in range(2))
        for _ in range(args.rounds):
            times, isa = ours(args.ours, threads, args.size, batches, args.isa)
            for batch in batches:
                mine[batch].append(times[batch])
                peer[batch].append(theirs(layer, inputs[batch], args.seconds))
        for batch in batches:
            ratio = statistics.median(peer[batch]) / statistics.median(mine[batch])
            print(f"| {threads:>7} | {batch:>4} | {isa:10} | {cell(mine[batch]):>26} | {cell(peer[batch]):>26} | {ratio:4.2f}x |",
                  flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Speed beside llama.cpp's, in one run: the two take turns, so that whatever else the machine does hits both.

    benches/peers/compare.py --peer PATH/TO/llama-bench model.gguf …
    benches/peers/compare.py --peer llama-bench -t 1,2 -p 512 -n 32 -r 5 --isa avx2 model.gguf

Prints the median and the spread (first to third quarter) of both in tokens per second, and the ratio of the medians.
llama-bench comes with llama.cpp; a build from the PyPI source of llama-cpp-python has it, too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys


def rate(command, env=None):
    """One measurement: the tokens per second that a llama-bench of some kind prints."""
    run = subprocess.run(command, capture_output=True, text=True, env=env)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: {run.stderr.strip().splitlines()[-1:]}")
    return json.loads(run.stdout)[0]["samples_ts"][0]


def spread(samples):
    """Median, first and third quarter."""
    if len(samples) < 2:
        return samples[0], samples[0], samples[0]
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return middle, low, high


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer", required=True, help="llama-bench")
    parser.add_argument("--ours", default="target/release/quantsmith")
    parser.add_argument("--isa", help="the tier that ours uses")
    parser.add_argument("-t", "--threads", default="2")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--gen", type=int, default=32)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    args = parser.parse_args()
    env = dict(os.environ)
    # Set on some machines for other programs' sake; a peer must not be slowed by it.
    env.pop("OPENBLAS_CORETYPE", None)
    print(f"| {'model':36} | threads | {'test':6} | {'ours':>26} | {'llama.cpp':>26} | ratio |")
    print(f"| {'-' * 36} | ------: | ------ | {'-' * 25}: | {'-' * 25}: | ----: |")
    for model in args.models:
        for threads in args.threads.split(","):
            for test, flags in (("pp", ["-p", str(args.prompt), "-n", "0"]), ("tg", ["-p", "0", "-n", str(args.gen)])):
                if flags[1] == "0" and flags[3] == "0":
                    continue
                common = ["-m", model, "-t", threads, "-r", "1", "-o", "json", *flags]
                isa = ["--isa", args.isa] if args.isa else []
                ours, theirs = [], []
                for _ in range(args.rounds):
                    ours.append(rate([args.ours, "bench", *common, *isa]))
                    theirs.append(rate([args.peer, *common], env))
                (a, a0, a1), (b, b0, b1) = spread(ours), spread(theirs)
                name = os.path.basename(model)[:36]
                size = args.prompt if test == "pp" else args.gen
                print(f"| {name:36} | {threads:>7} | {test + str(size):6} | {a:9.1f} ({a0:.1f} to {a1:.1f})".ljust(88)
                      + f"| {b:9.1f} ({b0:.1f} to {b1:.1f})".ljust(29) + f"| {a / b:4.2f}x |", flush=True)


if __name__ == "__main__":
    main()

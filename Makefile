# What people and CI run. On a bare machine .ci/run installs what this needs.
#
#   make demo      build, fetch a small model, complete a prompt
#   make test      everything that must pass before a change goes in
#   make bench     the kernels, tier against tier
#   make example   a format that is declared outside, in a program of its own
#   make expand FORMAT=q4_k TIER=avx512vnni     the code generated for a format
#   make fuzz TARGET=gguf SECONDS=600           a reader of files under libFuzzer
#
# The emulated tests assume an x86-64 Linux host and tests/setup-emulators.sh.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := build

BINARY   := target/release/quantsmith
SMOLLM2  := models/SmolLM2-135M-Instruct.Q4_1.gguf
PROMPT   := The capital of France is
# More than sixteen tokens, which is when AMX uses tiles.
LONG_PROMPT := The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is Madrid. And of Germany,

# The profile of the tests: optimised, and with overflow checks and assertions.
PROFILE  ?= test

# Each test process that exercises a tier appends `tier<TAB>test binary<TAB>ran`
# (or `skipped`) to this file; the target `tiers` reads it.
export QUANTSMITH_TIER_LOG := $(CURDIR)/target/tiers.tsv
MUST_RUN := scalar avx2 neon dotprod i8mm \
            $(shell grep -qsw avx_vnni /proc/cpuinfo && echo avxvnni) \
            $(shell grep -qsw avx512_vnni /proc/cpuinfo && echo avx512 avx512vnni) \
            $(shell grep -qsw amx_int8 /proc/cpuinfo && echo amx)

# What the tests of tokenizers and chat templates compare with.
export QUANTSMITH_VOCABS := $(CURDIR)/models/reference-0.3.36
export QUANTSMITH_TEMPLATES := $(QUANTSMITH_VOCABS)/templates

# Property tests draw the same cases each time.
export PROPTEST_RNG_SEED ?= 1

# Where tests/setup-bochs.sh leaves its mark, and the processors that it emulates.
BOCHS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/quantsmith/bochs/ready
BOCHS_CPUS := avxvnni amx
MUST_RUN += $(if $(wildcard $(BOCHS)),$(BOCHS_CPUS))

# Everything emulated ends by itself: seconds for one program.
export QEMU_TIMEOUT ?= 600

# Haswell has AVX2 and no AVX-512, Nehalem has neither. Taken away from Haswell:
# what QEMU cannot emulate and would warn about.
X86_CPUS := Haswell,-pcid,-x2apic,-tsc-deadline,-invpcid,-hle,-rtm Nehalem
# Cortex-A53 has plain NEON, max has dotprod and i8mm.
ARM_CPUS := cortex-a53 max

## Build and run

.PHONY: build
build:
	cargo build --release -p quantsmith-cli

.PHONY: models
models:
	tests/fetch-models.sh

.PHONY: references
references:
	tests/fetch-references.sh

.PHONY: demo
demo: build
	tests/fetch-models.sh smollm2
	$(BINARY) run -m $(SMOLLM2) -p "$(PROMPT)" -n 32 --temp 0 -no-cnv

.PHONY: bench
bench:
	cargo bench -p quantsmith-benches

.PHONY: fmt
fmt:
	cargo fmt --all

# The generated module of one format, and in it the one of a tier if TIER is
# given, as the compiler sees it. In a target directory of its own, since the
# flag is the nightly compiler's.
.PHONY: expand
expand:
	@mkdir -p target
	: $${FORMAT:?name a format, as in: make expand FORMAT=q4_k TIER=avx512vnni}
	case "$${TIER-}" in neon | dotprod | i8mm) . tests/aarch64-env.sh ;; esac
	RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/expand \
	    cargo rustc -q -p quantsmith-kernels --lib -- -Zunpretty=expanded >target/expanded.rs
	awk -v format="$${FORMAT,,}" -v tier="$${TIER-}" '
	    # The first module of that name, up to the brace at its own indentation.
	    function opens(name) { return name != "" && $$0 ~ "^ *(pub(\\([^)]*\\))? )?mod " name " \\{$$" }
	    !in_format && opens(format) { in_format = 1; match($$0, /^ */); end_format = substr($$0, 1, RLENGTH) "}" }
	    !in_format { next }
	    !in_tier && opens(tier) { in_tier = found = 1; match($$0, /^ */); end_tier = substr($$0, 1, RLENGTH) "}" }
	    tier == "" || in_tier { print }
	    in_tier && $$0 == end_tier { in_tier = 0; tier = "-" }
	    $$0 == end_format { if (tier == "") found = 1; exit }
	    END { if (!found) { print "nothing was generated for " format " " tier > "/dev/stderr"; exit 1 } }
	' target/expanded.rs | rustfmt --edition 2024

# A reader under libFuzzer. What gave new coverage is kept in target/fuzz/corpus, what ended the run in target/fuzz. Flags
# for one crate of a build are the nightly compiler's. Memory is bounded by the targets themselves: libFuzzer sees only the
# whole of its process.
SECONDS ?= 60
.PHONY: fuzz
fuzz:
	: $${TARGET:?name a reader, as in: make fuzz TARGET=gguf SECONDS=600}
	RUSTC_BOOTSTRAP=1 cargo build --release --manifest-path fuzz/Cargo.toml --target-dir target/fuzz \
	    -Zprofile-rustflags --config fuzz/coverage.toml --bin "$$TARGET"
	mkdir -p "target/fuzz/corpus/$$TARGET"
	"target/fuzz/release/$$TARGET" -max_total_time=$(SECONDS) -timeout=10 -rss_limit_mb=256 -print_final_stats=1 \
	    -artifact_prefix=target/fuzz/ "target/fuzz/corpus/$$TARGET" "fuzz/corpus/$$TARGET"

## Test

.PHONY: test
test: fmt-check clippy features doc models references clear-tiers test-native example test-x86-emulated test-bochs test-aarch64 tiers

.PHONY: fmt-check
fmt-check:
	cargo fmt --all --check

.PHONY: clippy
clippy:
	cargo clippy --workspace --all-targets -- -D warnings

# The kernels without the standard library, with one family of formats.
.PHONY: features
features:
	cargo clippy -p quantsmith-kernels --no-default-features --features k-quants -- -D warnings

.PHONY: doc
doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

.PHONY: test-native
test-native: models references
	cargo test --workspace --profile $(PROFILE)

# Shell functions of the emulated tests.
#   emulated COMMAND...          runs it within the time limit
#   kernel_tests ARGUMENT...     builds the kernels' tests and prints the binaries, without
#                                examples and without `ui`, which runs only the compiler
#   run_tests NAME EMULATOR...   runs $$tests as cargo would
#   same_as_here NAME COMMAND... compares fingerprints: the same model and prompt must give
#                                the same bits on every CPU
define EMULATION
emulated() { timeout -k 5 "$$QEMU_TIMEOUT" "$$@"; }
kernel_tests() {
    cargo test -q --profile $(PROFILE) "$$@" --no-run --message-format=json |
        sed -n '/"kind":\["example"\]/d; s/.*#quantsmith-kernels@.*"executable":"\([^"]*\)".*/\1/p' | grep -vE '/(ui|quality)-[^/]*$$'
}
run_tests() {
    local name=$$1 test
    shift
    for test in $$tests; do
        echo "== $${test##*/} on $$name"
        (cd kernels && CARGO_MANIFEST_DIR=$$PWD emulated "$$@" "$$test")
    done
}
fingerprint() { "$$@" fingerprint -m $(SMOLLM2) -p "$(PROMPT)" | grep -oE '[0-9a-f]{64}'; }
here=$$(fingerprint $(BINARY))
same_as_here() {
    local name=$$1 there
    shift
    there=$$(fingerprint emulated "$$@")
    echo "fingerprint: $$there $$name"
    [ "$$there" = "$$here" ] || { echo "differs from this CPU's: $$here" >&2; exit 1; }
}
endef

# The binary that users get, and the tests that `test-native` built: all
# packages are named, since for one alone cargo would unite features in another
# way and so compile everything again.
.PHONY: test-x86-emulated
test-x86-emulated: models build
	@command -v qemu-x86_64 >/dev/null || { echo 'qemu-x86_64 is missing: run tests/setup-emulators.sh as root' >&2; exit 1; }
	$(EMULATION)
	tests=$$(kernel_tests --workspace)
	for cpu in $(X86_CPUS); do
	    name=$${cpu%%,*}
	    run_tests "$$name" qemu-x86_64 -cpu "$$cpu"
	    same_as_here "$$name" qemu-x86_64 -cpu "$$cpu" $(BINARY)
	    answer=$$(emulated qemu-x86_64 -cpu "$$cpu" $(BINARY) run -m $(SMOLLM2) -p "$(PROMPT)" -n 4 --temp 0 -no-cnv </dev/null)
	    echo "$$name answers: $$answer"
	    [ -n "$$answer" ] || { echo 'no answer' >&2; exit 1; }
	done

.PHONY: test-aarch64
test-aarch64: models build
	@command -v qemu-aarch64 >/dev/null || { echo 'qemu-aarch64 is missing: run tests/setup-emulators.sh as root' >&2; exit 1; }
	$(EMULATION)
	. tests/aarch64-env.sh
	tests=$$(kernel_tests -p quantsmith-kernels)
	cargo build --release -p quantsmith-cli
	for cpu in $(ARM_CPUS); do
	    run_tests "$$cpu" qemu-aarch64 -cpu "$$cpu"
	    same_as_here "$$cpu" qemu-aarch64 -cpu "$$cpu" "$$CARGO_TARGET_DIR/$$CARGO_BUILD_TARGET/release/quantsmith"
	done

# A format that is declared outside: quantised into, run, timed on every tier, and refused by the program without it.
OWN := target/own-format.gguf
.PHONY: example
example: models build
	cargo build --release --target-dir target --manifest-path examples/own-format/Cargo.toml
	own=target/release/own-format
	$$own quantize --allow-requantize $(SMOLLM2) $(OWN) my_q3
	for isa in $$($$own cpu --json | grep -oP '"available":\[\K[^]]*' | tr -d '"' | tr ',' ' '); do
	    echo "$$isa: $$($$own fingerprint --isa "$$isa" -m $(OWN) -p "$(PROMPT)")"
	done | tee target/own-format.txt
	[ "$$(sed 's/.*: //' target/own-format.txt | sort -u | wc -l)" = 1 ] || { echo 'the tiers differ' >&2; exit 1; }
	$$own run -m $(OWN) -p "$(PROMPT)" -n 16 --temp 0 -no-cnv </dev/null
	$$own kernels --format my_q3,q4_0 --isa all --shape 512x512 --batch 1,64
	! $(BINARY) inspect $(OWN) 2>target/own-format.txt || { echo 'a program without the format took the file' >&2; exit 1; }
	grep MY_Q3 target/own-format.txt

# Processors that neither this machine nor QEMU need have, where tests/setup-bochs.sh has made the emulator. It is slow: each
# gets the tests of its own tier.
.PHONY: test-bochs
test-bochs: models build
	@if ! [ -f "$(BOCHS)" ]; then echo 'no Bochs: avxvnni and amx are not run (tests/setup-bochs.sh)'; exit 0; fi
	$(EMULATION)
	tests=$$(kernel_tests --workspace | grep -E '/(golden|tiers)-')
	model=$(CURDIR)/$(SMOLLM2)
	answer() { "$$@" fingerprint -t 1 -m "$$model" -p "$(LONG_PROMPT)" | grep -oE '[0-9a-f]{64}'; }
	here=$$(answer $(BINARY))
	run_on() {
	    local test there
	    for test in $$tests; do
	        (cd kernels && CARGO_MANIFEST_DIR=$$PWD BOCHS_FILES=$$PWD/tests/data BOCHS_RESULT=$$QUANTSMITH_TIER_LOG \
	            QUANTSMITH_TIERS=$$1 ../tests/bochs-run.sh "$$1" "$$test" on_every_tier)
	    done
	    there=$$(BOCHS_FILES=$$model answer tests/bochs-run.sh "$$1" $(BINARY))
	    echo "fingerprint: $$there $$1"
	    [ "$$there" = "$$here" ] || { echo "differs from this CPU's: $$here" >&2; exit 1; }
	}
	jobs=()
	for cpu in $(BOCHS_CPUS); do
	    run_on "$$cpu" >"target/bochs-$$cpu.txt" 2>&1 &
	    jobs+=($$!)
	done
	failed=0
	for job in "$${jobs[@]}"; do wait "$$job" || failed=1; done
	for cpu in $(BOCHS_CPUS); do echo "== $$cpu (Bochs)"; cat "target/bochs-$$cpu.txt"; done
	exit "$$failed"

.PHONY: clear-tiers
clear-tiers:
	@mkdir -p target
	: >"$$QUANTSMITH_TIER_LOG"

# A tier that no test ran is as good as untested, so it fails where this
# machine, with its emulators, has it.
.PHONY: tiers
tiers:
	@awk -F '\t' -v must='$(MUST_RUN)' '
	    { seen[$$1] = 1; count[$$1, $$3]++ }
	    END {
	        n = split(must, required, " ")
	        for (i = 1; i <= n; i++) { needed[required[i]] = 1; seen[required[i]] = 1 }
	        printf "\n%-12s %8s %8s\n", "tier", "ran", "skipped"
	        fflush()
	        for (tier in seen) {
	            ran = count[tier, "ran"] + 0
	            missed = tier in needed && !ran
	            printf "%-12s %8d %8d%s\n", tier, ran, count[tier, "skipped"], missed ? "   MUST RUN" : "" | "sort"
	            if (ran) passed++; else if (missed) failed++; else skipped++
	        }
	        close("sort")
	        printf "\ntiers: %d passed, %d failed, %d skipped\n", passed, failed, skipped
	        exit (failed > 0)
	    }
	' "$$QUANTSMITH_TIER_LOG"

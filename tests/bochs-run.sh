#!/bin/bash
# Runs one program on an emulated processor that this machine need not have: Bochs
# boots a Linux kernel that does nothing else (see tests/bochs/).
#
#   tests/bochs-run.sh CPU PROGRAM [ARGUMENT...]
#
#   tests/bochs-run.sh amx     target/debug/deps/golden-01…    AVX-512, VNNI and AMX
#   tests/bochs-run.sh avxvnni target/debug/deps/golden-01…    AVX2 and AVX-VNNI, no AVX-512
#
# CPU is amx, avxvnni, or any model of Bochs (bochs -help cpu, in the cache directory).
# PROGRAM is an x86-64 executable. Its output and exit status become those of this
# script; it runs in a directory of the same name, with an empty /tmp, no input, and
# the environment variables QUANTSMITH_*, RUST_* and CARGO_MANIFEST_DIR. The machine
# has one processor of 50 million instructions a second by its own clock, and 2 GiB
# of memory. Booting takes about four seconds of processor time.
# Exit status 124: it took longer than BOCHS_TIMEOUT; 125: the machine failed.
#
#   BOCHS_TIMEOUT   the limit of one run in seconds (900)
#   BOCHS_FILES     files and directories to carry along, each to the same absolute
#                   path; separated by spaces
#   BOCHS_RESULT    a text file that the program writes or adds to: what it wrote is
#                   added to the file of that path here
#
# Needs what tests/setup-bochs.sh makes.
set -euo pipefail

die() {
    printf 'bochs-run: %s\n' "$*" >&2
    exit 125
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/quantsmith/bochs
[ $# -ge 2 ] || die "usage: bochs-run.sh CPU PROGRAM [ARGUMENT...]"
[ -f "$cache/ready" ] || die "no emulator in $cache: run tests/setup-bochs.sh"
case $1 in
amx) model=sapphire_rapids ;;
avxvnni) model=arrow_lake ;;
*) model=$1 ;;
esac
program=$2
[ -x "$program" ] || die "$program: not an executable file"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The initial file system: the program, what it is given, and the files it reads.
mkdir -p "$work/root/job"
ln "$cache/init" "$work/root/init" 2>/dev/null || cp "$cache/init" "$work/root/init"
strip --strip-debug -o "$work/root/job/program" "$program"
arguments=("${@:2}")
printf '%s\0' "${arguments[@]}" >"$work/root/job/arguments"
env -0 | grep -zE '^(QUANTSMITH_|RUST_|CARGO_MANIFEST_DIR=)' >"$work/root/job/environment" || true
# A dynamically linked program's libraries go along under the names it knows them by.
libraries=$(ldd "$program" 2>/dev/null | grep -o '/[^ ]*' || true)
for file in $libraries ${BOCHS_FILES:-}; do
    cp -rL --parents "$(realpath -s "$file")" "$work/root" || die "cannot carry $file along"
done
result=${BOCHS_RESULT:+$(realpath -sm "$BOCHS_RESULT")}
printf '%s\0' "$PWD" ${result:+"$result"} >"$work/root/job/paths"
mkdir -p "$work/root$PWD" "$work/root${result%/*}"
(cd "$work/root" && find . | cpio -o -H newc -R 0:0 --quiet) >"$work/initrd"

# What the firmware reads (see boot.S): the size as 32 bits, then the command line.
size=$(stat -c %s "$work/initrd")
{
    for shift in 0 8 16 24; do
        # shellcheck disable=SC2059 # the format is the byte
        printf "\\x$(printf %02x $((size >> shift & 255)))"
    done
    printf '%s\0' "$(sed 's/#.*//' "$cache/command-line" | tr -s '\n ' ' ')"
} >"$work/handoff"

# A VGA ROM must be named, though nothing uses it.
cat >"$work/machine" <<END
config_interface: textconfig
display_library: nogui
cpu: model=$model, count=1, ips=50000000, reset_on_triple_fault=0, ignore_bad_msrs=1, msrs=$cache/msrs
memory: guest=2048, host=2048
romimage: file=$cache/boot.rom
vgaromimage: file=$cache/boot.rom
optramimage1: file=$cache/kernel, address=0x1000000
optramimage2: file=$work/initrd, address=0x10000000
optramimage3: file=$work/handoff, address=0x10000
pci: enabled=0
clock: sync=none
floppya: type=none
ata0: enabled=0
ata1: enabled=0
com1: enabled=1, mode=file, dev=$work/console
parport1: enabled=1, file=/dev/fd/3
parport2: enabled=1, file=/dev/fd/4
port_e9_hack: enabled=1
log: $work/log
panic: action=fatal
error: action=ignore
info: action=ignore
END

# Through pipes, because the emulator would empty a file that it opens.
exec 3> >(exec cat)
out=$!
exec 4> >(exec cat >&2)
err=$!
ended=0
# In the background, so that a signal to this script ends the machine too.
timeout -k 5 "${BOCHS_TIMEOUT:-900}" "$cache/bochs" -q -f "$work/machine" >"$work/report" 2>&1 </dev/null &
machine=$!
trap 'kill "$machine"; exit 143' INT TERM HUP
wait "$machine" || ended=$?
exec 3>&- 4>&-
wait "$out" "$err"

if [ -n "$result" ]; then
    sed -n '/^file begins$/,/^file ends$/p' "$work/report" | sed '1d; $d' | sed '${/^$/d}' >>"$result"
fi
if status=$(grep -a '^exit status: ' "$work/report"); then
    exit "${status#exit status: }"
fi
case $ended in
124 | 137)
    printf 'bochs-run: %s: stopped after %s s\n' "$program" "${BOCHS_TIMEOUT:-900}" >&2
    exit 124
    ;;
esac
tail -n 20 "$work/report" "$work/log" "$work/console" >&2 2>/dev/null || true
die "$program: the emulated machine failed; the ends of its logs are above"

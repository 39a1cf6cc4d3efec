#!/bin/sh
# Makes what tests/bochs-run.sh needs to run programs on processors that this
# machine need not have: Intel's with AMX, and with AVX-VNNI but no AVX-512.
#
#   tests/setup-bochs.sh          takes a few minutes once; then it does nothing
#
# Bochs is built from Debian's source package with one patch (tests/bochs/*.patch),
# because QEMU emulates neither extension. It boots Debian's kernel by a firmware of
# 64 KiB and a first process, both in tests/bochs/. All of it, with the package
# lists, goes to ${XDG_CACHE_HOME:-$HOME/.cache}/quantsmith/bochs; nothing of the
# system changes, save that missing tools are installed, which needs root.
# Works on Debian on x86-64.
set -eu

release=trixie version=3.0
options="--with-nogui --without-x --enable-x86-64 --enable-long-phy-address
    --enable-avx --enable-evex --enable-amx
    --enable-all-optimizations --enable-trace-linking --enable-configurable-msrs
    --disable-stats --disable-perfmon --disable-cdrom --disable-docbook --disable-xpm"

die() {
    printf 'setup-bochs: %s\n' "$*" >&2
    exit 1
}

say() {
    printf 'setup-bochs: %s\n' "$*"
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)/bochs
cache=${XDG_CACHE_HOME:-$HOME/.cache}/quantsmith/bochs
[ "$(uname -m)" = x86_64 ] || die "this machine is $(uname -m), and the script is for x86-64"

# Everything that the results follow from: a change makes them anew.
built_from=$(echo "$version $options" | cat - "$here"/*.patch | cksum)
ready_from=$(cat "$0" "$here"/* | cksum)
[ "$(cat "$cache/ready" 2>/dev/null)" != "$ready_from" ] || exit 0

missing=
command -v apt-get >/dev/null 2>&1 || die "apt-get is missing: this script is for Debian"
for tool in g++:g++ make:make patch:patch objcopy:binutils cpio:cpio xz:xz-utils lz4:lz4 zstd:zstd; do
    command -v "${tool%:*}" >/dev/null 2>&1 || missing="$missing ${tool#*:}"
done
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || die "run as root: to install$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -qq --no-install-recommends $missing
fi

mkdir -p "$cache"
rm -f "$cache/ready"
work=$cache/work
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/archives/partial"
cd "$work"

# A second set of package lists, for a release that need not be the machine's own.
# shellcheck disable=SC2016 # apt's variables
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/$' | head -n 1)
[ -n "$mirror" ] || die "no Debian mirror among apt's sources"
cat >sources <<END
Types: deb deb-src
URIs: $mirror
Suites: $release
Components: main
Architectures: amd64
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
mv sources debian.sources
cat >apt.conf <<END
Dir::Etc::SourceList "$work/debian.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$work/lists";
Dir::Cache "$work";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
END
export APT_CONFIG="$work/apt.conf"

say "fetching the sources of Bochs $version and a kernel from Debian $release"
apt-get update -qq
kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p')
[ -n "$kernel" ] || die "Debian $release has no linux-image-cloud-amd64"
apt-get download -qq "$kernel"

# The emulator.
if [ "$(cat "$cache/bochs.from" 2>/dev/null)" != "$built_from" ]; then
    # The archive alone, checked by apt: the packaging is for other purposes.
    apt-get source -qq --tar-only bochs
    archive=bochs_$version+dfsg.orig.tar.xz
    [ -f "$archive" ] || die "Debian $release has $(ls bochs_*.tar.*) where $archive was expected"
    tar -xJf "$archive"
    cd "bochs-$version"
    for change in "$here"/*.patch; do
        patch -p1 -s <"$change" || die "$change does not apply to Bochs $version"
    done
    say "building it (about two minutes of processor time); messages go to $work/build.log"
    {
        # shellcheck disable=SC2086 # a list of words
        ./configure CXXFLAGS='-O2 -fomit-frame-pointer' $options &&
            make -j"$(nproc)"
    } >"$work/build.log" 2>&1 || {
        tail -n 20 "$work/build.log" >&2
        die "Bochs could not be built; the end of $work/build.log is above"
    }
    strip -o "$cache/bochs" bochs
    printf '%s\n' "$built_from" >"$cache/bochs.from"
    cd "$work"
fi

# The kernel: the ELF image inside the bootable one, laid out as in memory. The boot
# header says where it is (Documentation/arch/x86/boot.rst of the kernel).
say "preparing the kernel, the firmware and the first process"
dpkg-deb --fsys-tarfile "$kernel"_*.deb | tar -x --wildcards './boot/vmlinuz-*'
number() {
    od -An -t "u$2" -j $(($1)) -N "$2" boot/vmlinuz-* | tr -d ' '
}
start=$((($(number 0x1f1 1) + 1) * 512 + $(number 0x248 4)))
# Four bytes of size come after the compressed data.
tail -c +$((start + 1)) boot/vmlinuz-* | head -c $(($(number 0x24c 4) - 4)) >payload
case $(od -An -t x1 -N 4 payload) in
' 28 b5 2f fd') zstd -qdc <payload >vmlinux ;;
' 02 21 4c 18') lz4 -qdc <payload >vmlinux ;;
' fd 37 7a 58') xz -dc <payload >vmlinux ;;
*) die "$kernel: compressed neither by zstd nor by lz4 nor by xz" ;;
esac
objcopy -O binary vmlinux "$cache/kernel"
# Where it is entered is a note of type 18 (PHYS32_ENTRY of the PVH boot protocol).
entry=$(readelf -n vmlinux | awk '/0x00000012/ { getline; print "0x" $6 $5 $4 $3; exit }')
[ -n "$entry" ] || die "$kernel: no PVH entry point"

as --32 --defsym KERNEL_ENTRY="$entry" --defsym RAM_END=0x80000000 --defsym INITRD=0x10000000 \
    --defsym HANDOFF=0x10000 "$here/boot.S" -o boot.o
objcopy -O binary -j .text boot.o "$cache/boot.rom"
gcc -static -O2 -Wall "$here/init.c" -o "$cache/init"
cp "$here/command-line" "$here/msrs" "$cache/"

say "checking the emulated processors"
gcc -O2 -static -pthread "$here/check.c" -o check
touch "$cache/ready"
for cpu in amx avxvnni; do
    BOCHS_TIMEOUT=300 "$here/../bochs-run.sh" "$cpu" "$work/check" "$cpu" >report || {
        cat report >&2
        rm -f "$cache/ready"
        die "the emulated processor $cpu does not compute right"
    }
done

cd /
rm -rf "$work"
printf '%s\n' "$ready_from" >"$cache/ready"
say "ready in $cache"

#!/bin/sh
# Installs what the emulated tests need on Debian: QEMU's user mode (x86-64 with
# fewer features, AArch64) and a Rust toolchain and linker for AArch64. Needs
# root. Does nothing where everything is there already.
set -eu

die() {
    printf 'setup-emulators: %s\n' "$*" >&2
    exit 1
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

command -v apt-get >/dev/null 2>&1 || die "apt-get is missing: this script is for Debian;
elsewhere install qemu-user, an AArch64 GCC, and 'rustup target add aarch64-unknown-linux-gnu'"

missing=
command -v qemu-x86_64 >/dev/null 2>&1 && command -v qemu-aarch64 >/dev/null 2>&1 ||
    missing="$missing qemu-user"
installed gcc-aarch64-linux-gnu && installed libc6-dev-arm64-cross ||
    missing="$missing gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
# A target that rustup installed is preferred (see aarch64-env.sh), so Debian's
# compiler is needed only where there is none. The two packages must be of one
# version, which a single apt-get call takes care of.
if ! rustup target list --installed 2>/dev/null | grep -qx aarch64-unknown-linux-gnu; then
    installed rustc-web && installed libstd-rust-web-dev:arm64 ||
        missing="$missing rustc-web libstd-rust-web-dev:arm64"
fi
[ -n "$missing" ] || exit 0

[ "$(id -u)" = 0 ] || die "run as root: to install$missing"
dpkg --print-foreign-architectures | grep -qx arm64 || dpkg --add-architecture arm64
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list of words
apt-get install -y -qq --no-install-recommends $missing

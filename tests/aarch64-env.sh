# To be sourced by bash: what cargo needs to build for AArch64 Linux and to run
# the result in QEMU on another machine.
#
#   . tests/aarch64-env.sh
#   QEMU_CPU=cortex-a53 cargo test -p quantsmith-kernels     plain NEON
#   QEMU_CPU=max        cargo test -p quantsmith-kernels     dotprod and i8mm
#
# QEMU reads QEMU_CPU itself, so it can change from one command to the next.
# QEMU_TIMEOUT is the limit of one program's run, in seconds.
# Needs what tests/setup-emulators.sh installs.
# shellcheck shell=bash

CARGO_TARGET_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/target-aarch64
export CARGO_TARGET_DIR
export CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu
export QEMU_CPU=${QEMU_CPU:-max}

# The usual compiler where it knows the target (rustup target add), else Debian's.
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$CARGO_BUILD_TARGET/lib" ]; then
    export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc
    if [ ! -d "$("$RUSTC" --print sysroot 2>/dev/null)/lib/rustlib/$CARGO_BUILD_TARGET/lib" ]; then
        echo "aarch64-env: no Rust for $CARGO_BUILD_TARGET: run tests/setup-emulators.sh" >&2
        return 1
    fi
fi

[ "$(uname -m)" = aarch64 ] ||
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc

# Static, because a dynamically linked program that starts a thread hangs for
# ever under QEMU 7.2; and RUSTFLAGS, if set, would take the place of this.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS='-C target-feature=+crt-static'

# A program that hangs all the same ends here.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="timeout -k 5 ${QEMU_TIMEOUT:-900} qemu-aarch64"

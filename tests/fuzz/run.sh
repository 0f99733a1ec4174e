#!/bin/sh
# Builds the fuzz targets without cargo-fuzz and runs one: tests/fuzz/run.sh review 60
set -eu
cd "$(dirname "$0")"
target="$1" seconds="${2:-60}"
host=$(rustc -vV | sed -n 's/^host: //p')
# Coverage for libFuzzer, in the code for the target only: build scripts and macros are for the host.
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
cargo build --target "$host" --bin "$target"
mkdir -p "corpus/$target" "artifacts/$target"
exec "${CARGO_TARGET_DIR:-target}/$host/debug/$target" -max_total_time="$seconds" -artifact_prefix="artifacts/$target/" \
    "corpus/$target" "seeds/$target"

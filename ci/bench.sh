#!/usr/bin/env bash
# Has a hot path become slower? ci/bench.sh [quick|full] [BASE] counts the instructions of every hot path (callgrind) in
# this tree, and compares them with those of BASE, by default the last release: its saved counts, or else the latest tag
# v* before HEAD. The status is 1 if a hot path takes 3 % more (--threshold PERCENT), with a line for each; if nothing
# can be counted or compared, one line says why, and the status is 0. Then asv keeps these counts and a few times in
# build/asv/results, and makes pages of them; a time never fails. The quick profile takes one to four minutes on two
# cores, asv a quarter of one of them. docs/benchmarks.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source ci/setup.sh test

# valgrind is for this script alone, so the others go on without it
ensure_valgrind() {
    local WHAT="" APT="" DNF="" APK=""
    command -v valgrind >/dev/null && return 0
    need "valgrind, which counts instructions" "valgrind libc6-dbg" valgrind "valgrind musl-dbg"
    install_needed
}

ensure_valgrind || true
exec python -m asv_benchmarks.counting "$@"

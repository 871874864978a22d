#!/usr/bin/env bash
# Mutated requests, a million of them, at a running server whose compiled modules have the address and undefined
# behaviour sanitizers: ci/fuzz_server.sh [--requests N] [--seed S] (docs/fuzzing.md). Builds in a scratch directory, and
# gives all arguments to tests.server.fuzzing, which says what it looks for.
# KAFKALOG_ASAN_DIR: a scratch directory to keep, for a quick second run; that of ci/asan.sh will do.
# KAFKALOG_NO_SANITIZER=1: the modules in place, without sanitizers; several times as quick.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source ci/setup.sh test

say() { printf 'fuzz: %s\n' "$*" >&2; }

if [ "${KAFKALOG_NO_SANITIZER:-0}" = 1 ]; then exec "$PYTHON" -m tests.server.fuzzing "$@"; fi

SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all"
COMPILER="${CC%% *}"
SCRATCH="${KAFKALOG_ASAN_DIR:-$(mktemp -d)}"
mkdir -p "$SCRATCH"
[ -n "${KAFKALOG_ASAN_DIR:-}" ] || trap 'rm -rf "$SCRATCH"' EXIT

LIBRARY="$("$COMPILER" -print-file-name=libasan.so)"
# shellcheck disable=SC2086
if [ ! -f "$LIBRARY" ] || ! echo 'int main(void) { return 0; }' | "$COMPILER" $SANITIZE -x c -o "$SCRATCH/probe" - 2>/dev/null
then
    say "the compiler $COMPILER has no address sanitizer: NOTHING WAS CHECKED (gcc with libasan is needed; CC names another)"
    exit 1
fi

say "building in $SCRATCH"
tar cf - --exclude='*.so' --exclude=__pycache__ kafkalog setup.py pyproject.toml README.md LICENSE | tar xf - -C "$SCRATCH"
# signed overflow has to be an error here, not a wrap: Python's own flags say the latter
(cd "$SCRATCH" && CFLAGS="$SANITIZE -fno-wrapv -fno-omit-frame-pointer" LDFLAGS="$SANITIZE" \
    "$PYTHON" setup.py -q build_ext --inplace -j "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" >build.log 2>&1) \
    || { tail -n 20 "$SCRATCH/build.log" >&2; exit 1; }

say "sending"
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:abort_on_error=1:quarantine_size_mb=32"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:abort_on_error=1"
# what a sanitizer puts beside each piece of memory, and keeps of what was given back, counts as the server's
"$PYTHON" -m tests.server.fuzzing --root "$SCRATCH" --preload "$LIBRARY" --rss 900 "$@"

#!/usr/bin/env bash
# The compiled modules under the address and undefined behaviour sanitizers: builds them in a scratch directory and
# runs the tests that reach them there: random bytes, damage of every kind by every way in, and what the fuzzer kept
# (ci/fuzz.sh), and many threads on one log. Every access outside a buffer, use after free and signed overflow ends the
# run with a trace. About six minutes. Arguments go to pytest.
# KAFKALOG_FUZZ: how many times the usual rounds of tests/_core/test_fuzz.py (default 10).
# KAFKALOG_THREADS_S: how many seconds readers and writers share a log (default 60).
# KAFKALOG_ASAN_DIR: a scratch directory to keep, for a quick second run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source ci/setup.sh test

say() { printf 'asan: %s\n' "$*" >&2; }

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
tar cf - --exclude='*.so' --exclude=__pycache__ kafkalog tests fuzz setup.py pyproject.toml README.md LICENSE | tar xf - -C "$SCRATCH"
cd "$SCRATCH"
# signed overflow has to be an error here, not a wrap: Python's own flags say the latter
CFLAGS="$SANITIZE -fno-wrapv -fno-omit-frame-pointer" LDFLAGS="$SANITIZE" \
    "$PYTHON" setup.py -q build_ext --inplace -j "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" >build.log 2>&1 \
    || { tail -n 20 build.log >&2; exit 1; }

say "running the tests"
export PYTHONPATH="$SCRATCH" PYTHONMALLOC=malloc KAFKALOG_FUZZ="${KAFKALOG_FUZZ:-10}"
export KAFKALOG_THREADS_S="${KAFKALOG_THREADS_S:-60}"
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:abort_on_error=1"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:abort_on_error=1"
# the sanitizer keeps what was given back for a while, which that one test takes for a leak
# what they print must not be caught by pytest, which dies with them
LD_PRELOAD="$LIBRARY" "$PYTHON" -m pytest -q --capture=sys -p no:cacheprovider tests/_core tests/records tests/golden \
    tests/test_fuzz_faces.py tests/test_many_threads.py --deselect tests/_core/test_arrow.py::test_nothing_is_left_behind "$@"

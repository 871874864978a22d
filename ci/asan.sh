#!/usr/bin/env bash
# The compiled modules under the address and undefined behaviour sanitizers: builds them in a scratch directory and
# runs the tests that reach them there: random bytes, damage of every kind by every way in, what the fuzzer kept
# (ci/fuzz.sh), many threads on one log, look-ups by key, and decoded values. Every access outside a buffer, use after
# free and signed overflow ends the run with a trace. About ten minutes. Arguments go to pytest.
# KAFKALOG_FUZZ: how many times the usual rounds of tests/_core/test_fuzz.py (default 10).
# KAFKALOG_THREADS_S: how many seconds readers and writers share a log (default 60).
# KAFKALOG_ASAN_DIR: a scratch directory to keep, for a quick second run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source ci/sanitizers.sh asan kafkalog tests docs fuzz setup.py pyproject.toml README.md LICENSE

cd "$SCRATCH"
say "running the tests"
export PYTHONPATH="$SCRATCH" PYTHONMALLOC=malloc KAFKALOG_FUZZ="${KAFKALOG_FUZZ:-10}"
export KAFKALOG_THREADS_S="${KAFKALOG_THREADS_S:-60}"
# the sanitizer keeps freed memory for a while, which two tests take for a leak
# an emulated processor has no room for the sanitizer's shadow of all memory
# what they print must not be caught by pytest, which dies with them
LD_PRELOAD="$LIBRARY" "$PYTHON" -m pytest -q --capture=sys -p no:cacheprovider tests/_core tests/records tests/golden \
    tests/server/wire tests/storage/test_append*.py tests/storage/test_log_parts.py tests/test_fuzz_faces.py \
    tests/test_many_threads.py tests/keys tests/values \
    --deselect tests/_core/test_arrow.py::test_nothing_is_left_behind \
    --deselect tests/_core/test_offset_map.py::test_memory_is_given_back \
    --deselect tests/_core/test_cpu.py::test_a_processor_without_the_fast_instructions "$@"

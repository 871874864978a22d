#!/usr/bin/env bash
# Everything a change has to pass, on a fresh clone too: style, and the whole test suite, with the types
# (tests/test_sourcecode.py), the golden data and, where Java is, the real Kafka beside us; and whether a hot path
# became slower (ci/bench.sh). Arguments go to pytest, and leave the hot paths out; `-n 0` runs the tests in one
# process. KAFKALOG_WORKERS is how many there are, each of which needs 1 to 2 GB: by default three to eight, three for
# each processor where 2.5 GB are free for each, because many tests wait (tests/workers.py).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source ci/setup.sh test

unset PYTHONDONTWRITEBYTECODE # the tests start thousands of short processes, each of which would compile the package
status=0
python -m ruff check .
workers="$(awk -v most="$(($(nproc) * 3))" '
    /^MemAvailable:/ { fit = int($2 / 2500000) }
    END { if (fit > most) fit = most; if (fit > 8) fit = 8; print (fit < 3 ? 3 : fit) }' /proc/meminfo || echo 3)"
counting=""
if [ $# -eq 0 ]; then # instructions are counted with what the tests leave of the processors; times come after them
    mkdir -p build
    set -m # a process group of its own, which ends as one
    nice -n 19 bash ci/bench.sh quick --save build/counts.json >build/counts.txt 2>&1 &
    counting=$!
    set +m
    trap 'kill -- "-$counting" 2>/dev/null || true' EXIT
fi
# on a fresh clone two processes compile the tests, about half each: every one of pytest's would compile all of them
if [ ! -d tests/__pycache__ ]; then
    python -m pytest --collect-only -q --ignore-glob='tests/[s-z]*' "$@" >/dev/null 2>&1 &
    half=$!
    python -m pytest --collect-only -q --ignore-glob='tests/[!s-z]*' "$@" >/dev/null 2>&1 || true
    wait "$half" || true
fi
python -m pytest -n "${KAFKALOG_WORKERS:-$workers}" --dist loadfile --durations=40 --durations-min=5 "$@" || status=$?
[ "$status" = 0 ] || exit "$status"
if [ -n "$counting" ]; then
    wait "$counting" || status=$?
    cat build/counts.txt
    if [ "$status" = 0 ]; then python -m asv_benchmarks.counting --times build/counts.json
    else bash ci/bench.sh quick; fi # other work may have had a part in what became slower
fi

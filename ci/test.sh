#!/usr/bin/env bash
# Everything a change has to pass, on a fresh clone too: style, types, and the whole test suite, with the golden
# data and, where Java is, the real Kafka beside us; then whether a hot path became slower (ci/bench.sh). Arguments go
# to pytest, and leave the last step out; `-n 0` runs the tests in one process. KAFKALOG_WORKERS is how many there are,
# each of which needs 1 to 2 GB: many tests wait, so that two processors are busy with three (tests/workers.py).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source ci/setup.sh test

unset PYTHONDONTWRITEBYTECODE # the tests start thousands of short processes, each of which would compile the package
status=0
python -m ruff check .
python -m mypy --strict kafkalog & # one process, which would leave the other processors idle
types=$!
python -m pytest -n "${KAFKALOG_WORKERS:-3}" --dist loadfile --durations=40 --durations-min=5 "$@" || status=$?
wait "$types" || status=1
[ "$status" = 0 ] || exit "$status"
if [ $# -eq 0 ]; then bash ci/bench.sh quick; fi

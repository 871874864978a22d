#!/usr/bin/env bash
# Mutated requests, a million of them, at a running server whose compiled modules have the address and undefined
# behaviour sanitizers: ci/fuzz_server.sh [--requests N] [--seed S] [--workers N] (docs/fuzzing.md). Builds in a scratch
# directory, and gives all arguments to tests.server.fuzzing, which says what it looks for.
# KAFKALOG_ASAN_DIR: a scratch directory to keep, for a quick second run; that of ci/asan.sh will do.
# KAFKALOG_NO_SANITIZER=1: the modules in place, without sanitizers; several times as quick.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

if [ "${KAFKALOG_NO_SANITIZER:-0}" = 1 ]; then
    source ci/setup.sh test
    exec "$PYTHON" -m tests.server.fuzzing "$@"
fi

source ci/sanitizers.sh fuzz kafkalog setup.py pyproject.toml README.md LICENSE

say "sending"
export ASAN_OPTIONS="$ASAN_OPTIONS:quarantine_size_mb=32"
# the sanitizer's red zones and its store of freed memory count as the server's
"$PYTHON" -m tests.server.fuzzing --root "$SCRATCH" --preload "$LIBRARY" --rss 900 "$@"

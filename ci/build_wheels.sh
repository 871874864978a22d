#!/usr/bin/env bash
# The wheels of this commit, for every CPython, libc and machine that headers can be had for here, without a container
# engine: bash ci/build_wheels.sh [--twice] [--test OPTIONS] [--out DIR] [--jobs N] [NAME...]
# NAME is a wheel's name or a part of it, as cp313 or musllinux_aarch64. --twice builds all again elsewhere and compares
# the bytes; --test runs the tests against each wheel that a Python can be had for, with these options of pytest.
# Into dist/ go the sdist, the wheels, SHA256SUMS and build.log; the last lines are a table of what was made and what
# was not. Status 1: a required wheel is missing, or a check or a test found a fault. Compiler, headers and tools come
# from registries and stay in KAFKALOG_WHEELS_CACHE (build/wheels); KAFKALOG_PYTHON names the Python that runs it all.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export KAFKALOG_WHEELS_CACHE="${KAFKALOG_WHEELS_CACHE:-$ROOT/build/wheels}"
exec </dev/null

find_python() {
    local candidate
    for candidate in ${KAFKALOG_PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' \
            >/dev/null 2>&1; then command -v "$candidate"; return 0; fi
    done
    echo "wheels: no Python 3.11 or newer with its venv module; KAFKALOG_PYTHON may name one" >&2
    return 1
}

# a separate venv, rebuilt when the list of tools changes
TOOLS="$KAFKALOG_WHEELS_CACHE/tools"
STAMP="$TOOLS/made-of-$(cksum <"$ROOT/ci/wheels/requirements.txt" | tr ' ' '-')"
if [ ! -f "$STAMP" ]; then
    BASE="$(find_python)"
    "$BASE" -m venv --clear "$TOOLS"
    "$TOOLS/bin/python" -m pip -q --disable-pip-version-check install -r "$ROOT/ci/wheels/requirements.txt"
    : >"$STAMP"
fi
PYTHONPATH="$ROOT" exec "$TOOLS/bin/python" -m ci.wheels "$@"

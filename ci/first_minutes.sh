#!/usr/bin/env bash
# The first five minutes of README.md with an installed package: ci/first_minutes.sh WHEEL PYTHON [DOCUMENT]
# Makes an empty environment with that interpreter, installs the wheel and what the README's examples import besides, and
# runs the examples from the shell and from Python, to the letter, each block in its order in one empty directory: what
# a command prints has to be what the README says (`...` stands for anything). Needs bash and nothing else.
# KAFKALOG_FIRST_DIR: the directory to work in; it is kept.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
exec </dev/null
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
WHEEL="$(realpath "$1")" BASE="$(command -v "$2")" README="$(realpath "${3:-$HERE/README.md}")"
SCRATCH="${KAFKALOG_FIRST_DIR:-$(mktemp -d)}"
mkdir -p "$SCRATCH/work"
[ -n "${KAFKALOG_FIRST_DIR:-}" ] || trap 'rm -rf "$SCRATCH"' EXIT

"$BASE" -m venv "$SCRATCH/venv"
export PATH="$SCRATCH/venv/bin:$PATH" NO_COLOR=1 COLUMNS=200 TZ=UTC
unset PYTHONPATH
printf '$ pip install %s duckdb pyarrow\n' "$(basename "$WHEEL")"
python -m pip install -q --disable-pip-version-check "$WHEEL" duckdb pyarrow
cd "$SCRATCH/work"
exec python -I "$HERE/ci/first_minutes.py" "$README"

#!/usr/bin/env bash
# The tests against a built wheel: ci/test_wheel.sh WHEEL PYTHON [pytest arguments]
# Makes an empty environment with that interpreter, installs the wheel and its extra `test` there, copies the tests and
# what they read to a scratch directory without the package, and runs pytest in it. The tests of the sources read this
# tree. The package that the tests import is looked at first: it has to be the installed one.
# KAFKALOG_WHEEL_DIR: a scratch directory to keep; a second run finds its environment ready.
# KAFKALOG_TEST_EXTRAS: other extras than `test`, for an interpreter that not every package has a wheel for yet;
# KAFKALOG_TEST_ALSO: packages in their place.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
exec </dev/null
WHEEL="$(realpath "$1")"
BASE="$(command -v "$2")" || { echo "test_wheel: there is no $2" >&2; exit 2; }
shift 2
SOURCES="$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")"
SCRATCH="${KAFKALOG_WHEEL_DIR:-$(mktemp -d)}"
mkdir -p "$SCRATCH"
SCRATCH="$(realpath "$SCRATCH")"
[ -n "${KAFKALOG_WHEEL_DIR:-}" ] || trap 'rm -rf "$SCRATCH"' EXIT
BESIDE=(tests docs examples fuzz asv_benchmarks ci README.md CONTRIBUTING.md CHANGELOG.md LICENSE pyproject.toml)

say() { printf 'test_wheel: %s\n' "$*" >&2; }

install() { "$PYTHON" -m pip install -q --disable-pip-version-check "$@"; }

PYTHON="$SCRATCH/venv/bin/python"
[ -x "$PYTHON" ] || "$BASE" -m venv "$SCRATCH/venv"
EXTRAS="${KAFKALOG_TEST_EXTRAS-test}"
say "installing $(basename "$WHEEL") into an empty environment of $("$PYTHON" --version)"
# shellcheck disable=SC2086
install "kafkalog${EXTRAS:+[$EXTRAS]} @ file://$WHEEL" ${KAFKALOG_TEST_ALSO:-}
install --force-reinstall --no-deps "$WHEEL"

rm -rf "$SCRATCH/tree"
mkdir "$SCRATCH/tree"
(cd "$SOURCES" && tar cf - --exclude=__pycache__ --exclude=target --exclude=results "${BESIDE[@]}") | tar xf - -C "$SCRATCH/tree"
cd "$SCRATCH/tree"
unset PYTHONPATH
export KAFKALOG_SOURCES="$SOURCES" KAFKALOG_WHEEL="$WHEEL" PATH="$SCRATCH/venv/bin:$PATH"
"$PYTHON" -c '
import sys, sysconfig, kafkalog
where, wanted = kafkalog.__file__, sysconfig.get_path("platlib")
sys.exit(None if where.startswith(wanted + "/") else f"kafkalog comes from {where}, not from {wanted}")'
say "testing in $SCRATCH/tree"
status=0
"$PYTHON" -m pytest -p no:cacheprovider --basetemp="$SCRATCH/work" "$@" || status=$?
rm -rf "$SCRATCH/tree" "$SCRATCH/work"
exit "$status"

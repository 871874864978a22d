#!/usr/bin/env bash
# The quick tests against an aarch64 wheel on a real aarch64 Python: ci/test_aarch64.sh ROOT WHEEL [pytest arguments]
# ROOT is one that ci/aarch64_root.sh made (bookworm has Python 3.11, trixie 3.13); on another kind of processor it is
# emulated, five to nine times slower. What needs a JVM (marks interop and spark) and what takes long (slow) is not run,
# and tests of the sources are the same on every architecture. Without arguments all the rest runs.
# The wheel and the packages are put in by this machine's own pip, which is quicker than an emulated one.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
exec </dev/null
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
ROOT="$(realpath "$1")" WHEEL="$(realpath "$2")"
shift 2
PIP="${KAFKALOG_PIP:-python3 -m pip}"
TESTED=(pytest hypothesis google-crc32c pyarrow pandas duckdb polars fastavro protobuf deflate matplotlib aiokafka confluent-kafka kio uvloop)
# they read the sources and the benchmarks, which are the same everywhere, or need ruff and mypy
SOURCES_ONLY=(
    tests/test_sourcecode.py tests/test_layers.py tests/test_internals_doc.py tests/test_threads_doc.py tests/benchmarks
)
BESIDE=(tests docs examples fuzz ci README.md CONTRIBUTING.md CHANGELOG.md LICENSE pyproject.toml)

say() { printf 'test_aarch64: %s\n' "$*" >&2; }

# what is stopped from outside leaves nothing mounted and no emulated process: the mounts are the command's own
in_root() { bash "$HERE/ci/in_root.sh" "$ROOT" "$@"; }

SYSTEM="$(find "$ROOT/usr/bin" -maxdepth 1 -name 'python3.*[0-9]' | head -n 1)"
VERSION="${SYSTEM##*/python}"
SITE="$ROOT/venv/lib/python$VERSION/site-packages"
[ -e "$ROOT/venv/bin/python" ] || in_root "/usr/bin/python$VERSION" -m venv --without-pip /venv
abi="cp${VERSION//./}"
platforms=()
for glibc in 2014 _2_17 _2_24 _2_26 _2_27 _2_28 _2_31 _2_34; do platforms+=(--platform "manylinux${glibc}_aarch64"); done
if [ ! -e "$SITE/pytest" ]; then
    say "packages for Python $VERSION"
    $PIP install -q --disable-pip-version-check --target "$SITE" "${platforms[@]}" --python-version "$VERSION" \
        --implementation cp --abi "$abi" --abi abi3 --abi none --only-binary=:all: --upgrade "$WHEEL" "${TESTED[@]}"
fi
rm -rf "$SITE/kafkalog" "$SITE/pyspark_kafkalog" "$SITE"/kafkalog-*.dist-info "$SITE/bin"
$PIP install -q --disable-pip-version-check --target "$SITE" "${platforms[@]}" --python-version "$VERSION" \
    --implementation cp --abi "$abi" --only-binary=:all: --no-deps --upgrade "$WHEEL"
{ echo '#!/venv/bin/python'; tail -n +2 "$SITE/bin/kafkalog"; } >"$ROOT/venv/bin/kafkalog"
chmod +x "$ROOT/venv/bin/kafkalog"

rm -rf "$ROOT/tree"
mkdir "$ROOT/tree"
(cd "$HERE" && tar cf - --exclude=__pycache__ --exclude=target --exclude=results "${BESIDE[@]}") | tar xf - -C "$ROOT/tree"
ignored=("${SOURCES_ONLY[@]/#/--ignore=}")
export KAFKALOG_SOURCES=/src KAFKALOG_WHEEL="/$(basename "$WHEEL")"
if [ "$(uname -m)" != aarch64 ]; then export KAFKALOG_EMULATED=1; fi
export KAFKALOG_NO_BROWSER=1    # the root has none, and a page is the same on every architecture
[ $# -gt 0 ] || set -- tests
say "testing $(basename "$WHEEL") with Python $VERSION"
# shellcheck disable=SC2016
in_root /bin/bash -c 'export PATH="/venv/bin:$PATH"; cd /tree && exec python -m pytest -p no:cacheprovider "$@"' bash \
    -m "not interop and not spark and not slow" "${ignored[@]}" "$@"

#!/usr/bin/env bash
# The tests on CPython 3.14 without the global interpreter lock, built here from the sources of a distribution:
#   bash ci/free_threaded.sh SCRATCH [ARGUMENTS OF PYTEST]
# SCRATCH is kept: a second run builds only what changed in kafkalog. The sources are the archive that
# KAFKALOG_CPYTHON_SOURCE names (python3.14_*.orig.tar.xz of Debian or Ubuntu), else what `apt-get source` finds.
# Needs a C compiler, make, and the headers of zlib, libffi, OpenSSL, liblzma, bzip2 and SQLite. About 20 minutes on two
# processors. Packages without wheels for this interpreter are named in one line; their tests fail at the import.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
exec </dev/null
mkdir -p "$1"
SCRATCH="$(cd "$1" && pwd)"
TREE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
PYTHON="$SCRATCH/venv/bin/python"
shift

say() { printf 'free_threaded: %s\n' "$*" >&2; }

if [ ! -x "$SCRATCH/python/bin/python3" ]; then
    source="${KAFKALOG_CPYTHON_SOURCE:-}"
    if [ -z "$source" ]; then
        (cd "$SCRATCH" && apt-get source --download-only python3.14) || {
            say "no sources of CPython 3.14: name their archive in KAFKALOG_CPYTHON_SOURCE"; exit 1; }
        source="$(ls -t "$SCRATCH"/python3.14_*.orig.tar.* | head -n 1)"
    fi
    say "building the interpreter from $(basename "$source")"
    rm -rf "$SCRATCH/source" && mkdir "$SCRATCH/source"
    tar -C "$SCRATCH/source" --strip-components=1 -xf "$source"
    (cd "$SCRATCH/source" && ./configure -q --disable-gil --prefix="$SCRATCH/python" --with-ensurepip=install &&
        make -s -j"$(nproc)" && make -s install) > "$SCRATCH/interpreter.log" 2>&1 || {
        say "it could not be built: see $SCRATCH/interpreter.log"; exit 1; }
fi
[ -x "$PYTHON" ] || "$SCRATCH/python/bin/python3" -m venv "$SCRATCH/venv"

needed=(Cython setuptools setuptools-scm numpy pyarrow click rich cramjam crc32c lark fsspec pytest pytest-xdist hypothesis)
wished=(fastavro protobuf duckdb polars confluent-kafka aiokafka kafka-python kio textual cryptography zstandard lz4
    python-snappy pandas matplotlib jsonschema google-crc32c google-re2 prometheus_client h11 uvloop s3fs pyiceberg deltalake)
"$PYTHON" -m pip install -q --only-binary :all: "${needed[@]}"
missing=()
for one in "${wished[@]}"; do
    "$PYTHON" -m pip install -q --only-binary :all: "$one" > /dev/null 2>&1 || missing+=("$one")
done
[ "${#missing[@]}" -eq 0 ] || say "no wheels for this interpreter: ${missing[*]}"

say "building kafkalog"
rm -rf "$SCRATCH/tree.new" && git clone -q "$TREE" "$SCRATCH/tree.new"
[ ! -d "$SCRATCH/tree/build" ] || mv "$SCRATCH/tree/build" "$SCRATCH/tree.new/build"
rm -rf "$SCRATCH/tree" && mv "$SCRATCH/tree.new" "$SCRATCH/tree"
cd "$SCRATCH/tree"
"$PYTHON" setup.py -q build_ext --inplace -j "$(nproc)" > "$SCRATCH/build.log" 2>&1 || { tail "$SCRATCH/build.log" >&2; exit 1; }

say "running the tests without the lock"
[ $# -gt 0 ] || set -- tests/_core tests/storage tests/records tests/keys tests/values tests/where tests/manager \
    tests/cleaner tests/test_many_threads.py tests/test_group_commit.py tests/test_shared_objects.py \
    tests/test_free_threaded.py
# DuckDB's development wheel for this interpreter warns of what its import uses
PYTHON_GIL=0 PYTHONPATH="$SCRATCH/tree" "$PYTHON" -X faulthandler -m pytest -q -p no:cacheprovider \
    -W "ignore:'_UnionGenericAlias':DeprecationWarning" --continue-on-collection-errors "$@"

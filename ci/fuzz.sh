#!/usr/bin/env bash
# The coverage-guided fuzzer: ci/fuzz.sh TARGET [RUNS] [libFuzzer options], TARGET one of fuzz/__init__.py (docs/fuzzing.md).
# Builds all compiled modules, and the Python modules that read untrusted bytes, with clang's libFuzzer and sanitizers,
# and gives TARGET that many inputs (100000; 0 runs until something is found), beginning with tests/data/corpus/TARGET.
# `ci/fuzz.sh TARGET merge` keeps of all that was found the least that reaches as much, as the new corpus.
# KAFKALOG_FUZZ_DIR: a scratch directory to keep, with the build and what was found (found/TARGET). An input that is
# a finding is written to build/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
ROOT="$PWD"
TARGET="${1:?ci/fuzz.sh TARGET [RUNS]: docs/fuzzing.md lists the targets}"
RUNS="${2:-100000}"
grep -q "\"$TARGET\": [0-9]" fuzz/__init__.py || { echo "fuzz: there is no target $TARGET in fuzz/" >&2; exit 2; }
source ci/setup.sh test
LONGEST="$("$PYTHON" -c 'import sys; from fuzz import TARGETS; print(TARGETS[sys.argv[1]])' "$TARGET")"
shift $(( $# > 1 ? 2 : 1 ))

say() { printf 'fuzz: %s\n' "$*" >&2; }

CLANG="${CLANG:-$(command -v clang || ls /usr/bin/clang-[0-9]* 2>/dev/null | sort -V | tail -n 1 || true)}"
if [ -z "$CLANG" ]; then
    WHAT="" APT="" DNF="" APK=""
    need "clang with libFuzzer" "clang libclang-rt-14-dev" "clang compiler-rt" "clang compiler-rt"
    install_needed
    CLANG="$(command -v clang)"
fi

SCRATCH="${KAFKALOG_FUZZ_DIR:-$(mktemp -d)}"
mkdir -p "$SCRATCH/found/$TARGET"
[ -n "${KAFKALOG_FUZZ_DIR:-}" ] || trap 'rm -rf "$SCRATCH"' EXIT
CHECKS="address,undefined"
# Cython's calling code adds 0 to a null pointer, and most of what it compares are pointers
FLAGS="-fno-sanitize-recover=all -fno-sanitize=pointer-overflow -fno-sanitize-coverage=trace-cmp,indirect-calls -fno-omit-frame-pointer -gline-tables-only"

say "building in $SCRATCH with $CLANG"
tar cf - --exclude='*.so' --exclude=__pycache__ kafkalog fuzz setup.py pyproject.toml README.md LICENSE | tar xf - -C "$SCRATCH"
PYTHONPATH="$ROOT" "$PYTHON" -m fuzz.seeds "$SCRATCH/seeds" "$TARGET"
cd "$SCRATCH"
# signed overflow has to be an error here, not a wrap: Python's own flags say the latter
CC="$CLANG" LDSHARED="$CLANG -shared" LDFLAGS="-fsanitize=fuzzer-no-link,$CHECKS" \
    CFLAGS="-fsanitize=fuzzer-no-link,$CHECKS $FLAGS -fno-wrapv -Wno-everything" \
    "$PYTHON" fuzz/build.py -q build_ext --inplace -j "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" >build.log 2>&1 \
    || { tail -n 20 build.log >&2; exit 1; }

setting() { "$PYTHON" -c "import sysconfig; print(sysconfig.get_config_var('$1') or '')"; }
LIBRARY="$(setting LIBDIR)"
NAME="$("$PYTHON" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"
[ "$(setting Py_ENABLE_SHARED)" = 1 ] || { say "this Python has no shared library (libpython): the fuzzer needs one"; exit 1; }
# shellcheck disable=SC2086
"$CLANG" -O1 "-fsanitize=fuzzer,$CHECKS" $FLAGS -I"$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
    -Ikafkalog/_core/bytes fuzz/driver.c -o fuzzer -L"$LIBRARY" "-l$NAME" -Wl,-rpath,"$LIBRARY" -rdynamic

export PYTHONPATH="$SCRATCH" KAFKALOG_FUZZ_TARGET="$TARGET" KAFKALOG_FUZZ_PYTHON="$PYTHON"
# what an input freed stays poisoned while it runs, and fits the processor's cache: allocation is half of the time
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=1"
export UBSAN_OPTIONS="print_stacktrace=1"
CORPUS="$ROOT/tests/data/corpus/$TARGET"
mkdir -p "$CORPUS"
if [ "$RUNS" = merge ]; then
    mkdir -p "merged/$TARGET"
    rm -f "merged/$TARGET"/*
    ./fuzzer -merge=1 "-max_len=$(( LONGEST > 2048 ? LONGEST : 2048 ))" "merged/$TARGET" "$CORPUS" "found/$TARGET" "$@"
    rm -f "$CORPUS"/*
    cp "merged/$TARGET"/* "$CORPUS"
    exit 0
fi
[ "$RUNS" != 0 ] || RUNS=-1
say "running $TARGET"
# an input that takes ten seconds or asks for 300 MB at once is a finding too
mkdir -p "$ROOT/build"
./fuzzer "-runs=$RUNS" "-max_len=$LONGEST" -len_control=50 -timeout=10 -malloc_limit_mb=300 -rss_limit_mb=2048 \
    -reload=0 -entropic=0 -print_funcs=0 -print_final_stats=1 "-artifact_prefix=$ROOT/build/crash-$TARGET-" \
    "found/$TARGET" "$CORPUS" "seeds/$TARGET" "$@"

#!/usr/bin/env bash
# Builds the compiled modules with the address and undefined behaviour sanitizers in a scratch directory. Sourced, in the
# project's root, by what runs them (ci/asan.sh, ci/fuzz_server.sh): `source ci/sanitizers.sh NAME PATH...`, where NAME
# stands before what it says and the paths are copied there. Sets SCRATCH and LIBRARY, the sanitizer's runtime.
# KAFKALOG_ASAN_DIR: a scratch directory to keep, for a quick second run.
source ci/setup.sh test

SANITIZED_FOR="$1"
shift
say() { printf '%s: %s\n' "$SANITIZED_FOR" "$*" >&2; }

SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all"
COMPILER="${CC%% *}"
SCRATCH="${KAFKALOG_ASAN_DIR:-$(mktemp -d)}"
mkdir -p "$SCRATCH"
[ -n "${KAFKALOG_ASAN_DIR:-}" ] || trap 'rm -rf "$SCRATCH"' EXIT

LIBRARY="$("$COMPILER" -print-file-name=libasan.so)"
# shellcheck disable=SC2086
if [ ! -f "$LIBRARY" ] || ! echo 'int main(void) { return 0; }' | "$COMPILER" $SANITIZE -x c -o "$SCRATCH/probe" - 2>/dev/null
then
    say "the compiler $COMPILER has no address sanitizer: NOTHING WAS CHECKED (gcc with libasan is needed; CC names another)"
    exit 1
fi

say "building in $SCRATCH"
tar cf - --exclude='*.so' --exclude=__pycache__ "$@" | tar xf - -C "$SCRATCH"
# signed overflow has to be an error here, not a wrap: Python's own flags say the latter
(cd "$SCRATCH" && CFLAGS="$SANITIZE -fno-wrapv -fno-omit-frame-pointer" LDFLAGS="$SANITIZE" \
    "$PYTHON" setup.py -q build_ext --inplace -j "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" >build.log 2>&1) \
    || { tail -n 20 "$SCRATCH/build.log" >&2; exit 1; }
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:abort_on_error=1"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:abort_on_error=1"

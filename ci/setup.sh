#!/usr/bin/env bash
# Makes a fresh machine ready and leaves a ready one alone: compiler, Python 3.11 or newer, .venv, the package
# built in place. Sourced by the other scripts: `source ci/setup.sh [run|test]`; "test" adds the tools of the test
# suite and, for the tests beside the real Kafka, a JDK and Maven. Sets ROOT and PYTHON and puts .venv/bin in PATH.
# KAFKALOG_PYTHON names another interpreter to start from; KAFKALOG_NO_SYSTEM=1 installs no system package.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
SETUP_FOR="${1:-run}"
VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"

say() { printf 'setup: %s\n' "$*" >&2; }

may_install() { [ "${KAFKALOG_NO_SYSTEM:-0}" != 1 ] && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >&2
    else sudo -n env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >&2
    fi
}

# install_packages WHAT APT DNF APK: the distribution's packages for WHAT, or one line that says what is missing
install_packages() {
    local what="$1" names
    if command -v apt-get >/dev/null; then names="apt-get install -y --no-install-recommends $2"
    elif command -v dnf >/dev/null; then names="dnf install -y $3"
    elif command -v apk >/dev/null; then names="apk add $4"
    else say "$what is missing; install it with this system's package manager"; return 1
    fi
    if ! may_install; then say "$what is missing; as root: $names"; return 1; fi
    say "installing $what ($names)"
    if [ "${names%% *}" = apt-get ] && [ -z "${APT_UPDATED:-}" ]; then
        as_root apt-get update -q || true
        APT_UPDATED=1
    fi
    # shellcheck disable=SC2086
    as_root $names || { say "$what could not be installed: $names"; return 1; }
}

usable_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${KAFKALOG_PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14 python; do
        if command -v "$candidate" >/dev/null && usable_python "$candidate"; then command -v "$candidate"; return 0; fi
    done
    return 1
}

ensure_venv() {
    local base
    if [ -x "$PYTHON" ] && usable_python "$PYTHON" && "$PYTHON" -m pip --version >/dev/null 2>&1; then return 0; fi
    base="$(find_python)" || {
        install_packages "Python 3.11 or newer" "python3 python3-venv python3-dev" "python3 python3-devel" "python3 python3-dev"
        base="$(find_python)" || { say "Python 3.11 or newer is needed; KAFKALOG_PYTHON may name one"; return 1; }
    }
    say "making .venv with $("$base" --version)"
    "$base" -m venv --clear "$VENV" >/dev/null 2>&1 && return 0
    install_packages "Python's venv module" "python3-venv" "python3" "python3" || return 1
    "$base" -m venv --clear "$VENV"
}

# CC, else the compiler this Python was built with, else any other one
ensure_compiler() {
    local headers candidate found=""
    if [ -z "${CC:-}" ]; then
        for candidate in "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("CC"))')" gcc cc clang; do
            if command -v "${candidate%% *}" >/dev/null; then found="$candidate"; break; fi
        done
        if [ -z "$found" ]; then
            install_packages "a C compiler" "gcc libc6-dev" "gcc glibc-devel" "gcc musl-dev" || return 1
            found=gcc
        fi
        export CC="$found"
    fi
    headers="$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"
    [ -f "$headers" ] || install_packages "Python's C headers" \
        "$("$PYTHON" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')" "python3-devel" "python3-dev"
}

ensure_java() {
    local version
    version="$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)" || true
    if [ "${version:-0}" -lt 17 ] || ! command -v javac >/dev/null; then
        install_packages "a JDK, 17 or newer" "default-jdk-headless" "java-latest-openjdk-devel" "openjdk17-jdk" || return 1
    fi
    command -v mvn >/dev/null || install_packages "Maven" "maven" "maven" "maven"
}

# what the installed packages depend on: the metadata, the interpreter, and what is asked for
wanted_state() { { cat "$ROOT/pyproject.toml"; "$PYTHON" -VV; echo "$ROOT"; } | cksum | tr ' ' '-'; }

# compile [COMMAND...]: runs a build with one compiler per processor
compile() {
    printf '[build_ext]\nparallel = %s\n' "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" >"$VENV/build.cfg"
    (cd "$ROOT" && DIST_EXTRA_CONFIG="$VENV/build.cfg" "$PYTHON" "$@" </dev/null >&2) && : >"$VENV/kafkalog-built"
}

# true when a compiled module is absent or a source is newer than the last build
must_compile() {
    local source suffix
    suffix="$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')"
    for source in "$ROOT"/kafkalog/_core/*.pyx; do
        [ -f "${source%.pyx}$suffix" ] || return 0
    done
    [ ! -f "$VENV/kafkalog-built" ] || [ -n "$(find "$ROOT/setup.py" "$ROOT/kafkalog/_core" \
        -newer "$VENV/kafkalog-built" \( -name '*.py[x]' -o -name '*.pxd' -o -name '*.h' -o -name setup.py \))" ]
}

ensure_package() {
    local extra="" stamp pip="-m pip -q --disable-pip-version-check install"
    [ "$SETUP_FOR" = test ] && extra="[test]"
    stamp="$VENV/kafkalog-$SETUP_FOR-$(wanted_state)"
    if [ ! -f "$stamp" ]; then
        say "installing what the package needs and compiling it"
        # shellcheck disable=SC2086
        "$PYTHON" $pip "setuptools>=77" "setuptools-scm>=8" "Cython>=3.3,<4" </dev/null >&2 \
            && compile $pip --no-build-isolation --config-settings editable_mode=compat -e ".$extra" || return 1
        rm -f "$VENV/kafkalog-$SETUP_FOR"-*
        : >"$stamp"
    elif must_compile; then
        say "compiling what changed"
        compile setup.py -q build_ext --inplace || return 1
    fi
}

setup() {
    ensure_venv && ensure_compiler && ensure_package || return 1
    if [ "$SETUP_FOR" = test ]; then
        ensure_java || say "no JDK and Maven: the tests beside the real Kafka will be skipped"
    fi
    export PATH="$VENV/bin:$PATH"
}

setup || exit 1

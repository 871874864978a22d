#!/usr/bin/env bash
# Makes a fresh machine ready and leaves a ready one alone: compiler, Python 3.11 or newer, .venv, the package
# built in place. Sourced by the other scripts: `source ci/setup.sh [run|test|docs]`; "test" adds the tools of the test
# suite and, for the tests beside the real Kafka, a JDK and Maven, for those of the server
# kcat and Chromium; "docs" adds what builds the site of docs/. Sets ROOT and PYTHON and puts .venv/bin in PATH.
# SPARK=1 adds Spark with "run" too, and a Java for it, and TABLES=1 the packages for tables; where that cannot be, the
# rest is prepared all the same.
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

# need WHAT APT DNF APK: notes that WHAT is missing, and what each package manager calls it
need() { WHAT="${WHAT:+$WHAT, }$1" APT="$APT $2" DNF="$DNF $3" APK="$APK $4"; }

# all that was noted, in one go; where that cannot be, one line that says what to do, and status 1
install_needed() {
    local names
    [ -n "$WHAT" ] || return 0
    if command -v apt-get >/dev/null; then names="apt-get install -y --no-install-recommends$APT"
    elif command -v dnf >/dev/null; then names="dnf install -y$DNF"
    elif command -v apk >/dev/null; then names="apk add$APK"
    else say "missing: $WHAT; install it with this system's package manager"; return 1
    fi
    if ! may_install; then say "missing: $WHAT; as root: $names"; return 1; fi
    say "installing $WHAT, as root: $names (KAFKALOG_NO_SYSTEM=1 leaves this to you)"
    if [ "${names%% *}" = apt-get ]; then as_root apt-get update -q || true; fi
    # shellcheck disable=SC2086
    as_root $names || { say "could not be installed: $WHAT; as root: $names"; return 1; }
}

usable_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${KAFKALOG_PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14 python; do
        if command -v "$candidate" >/dev/null && usable_python "$candidate"; then command -v "$candidate"; return 0; fi
    done
    return 1
}

venv_stands() { [ -x "$PYTHON" ] && usable_python "$PYTHON" && "$PYTHON" -m pip --version >/dev/null 2>&1; }

asks_python() { "$1" -c "import sys, sysconfig; print($2)"; }

# CC, else the compiler this Python was built with, else any other one
find_compiler() {
    local candidate
    if [ -n "${CC:-}" ]; then echo "$CC"; return 0; fi
    for candidate in ${1:+"$(asks_python "$1" 'sysconfig.get_config_var("CC")')"} gcc cc clang; do
        if command -v "${candidate%% *}" >/dev/null; then echo "$candidate"; return 0; fi
    done
    return 1
}

wants_spark() { [ "$SETUP_FOR" = run ] && [ "${SPARK:-0}" != 0 ]; }

wants_tables() { [ "$SETUP_FOR" = run ] && [ "${TABLES:-0}" != 0 ]; }

has_java() { [ "$(java_version || true)" -ge 17 ] 2>/dev/null; }

java_version() { "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1; }

need_for_build() {
    local base
    if venv_stands; then base="$PYTHON"; else base="$(find_python)" || base=""; fi
    if [ -n "$base" ]; then
        [ "$base" = "$PYTHON" ] || "$base" -c 'import ensurepip, venv' 2>/dev/null || need \
            "Python's venv module" python3-venv python3 python3
        [ -f "$(asks_python "$base" 'sysconfig.get_path("include")')/Python.h" ] || need "Python's C headers" \
            "$(asks_python "$base" '"python%d.%d-dev" % sys.version_info[:2]')" python3-devel python3-dev
    else
        need "Python 3.11 or newer" "python3 python3-venv python3-dev" "python3 python3-devel" "python3 python3-dev"
    fi
    find_compiler "$base" >/dev/null || need "a C compiler" "gcc libc6-dev" "gcc glibc-devel" "gcc musl-dev"
}

need_for_reference() {
    if has_java && command -v javac >/dev/null; then :
    else need "a JDK, 17 or newer" default-jdk-headless java-latest-openjdk-devel openjdk17-jdk
    fi
    command -v mvn >/dev/null || need Maven maven maven maven
}

# what the server is tested with: a client that is a program, and a browser for the status page
need_for_server() {
    command -v kcat >/dev/null || need kcat kcat kcat kcat
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || need Chromium chromium chromium chromium
}

need_for_spark() {
    has_java || need "a Java runtime, 17 or newer, for Spark" default-jre-headless java-latest-openjdk-headless \
        openjdk17-jre-headless
}

# what the build needs has to be there; what the real Kafka and Spark need may be absent, and what needs them with it
ensure_system() {
    local WHAT="" APT="" DNF="" APK=""
    need_for_build
    local build="$WHAT"
    if [ "$SETUP_FOR" = test ]; then need_for_reference; fi
    if wants_spark; then need_for_spark; fi
    install_needed && return 0
    if [ -n "$build" ]; then  # without a JDK there is less to test, without these nothing
        may_install && [ "$WHAT" != "$build" ] || return 1
        WHAT="" APT="" DNF="" APK=""
        need_for_build
        install_needed || return 1
    fi
    if [ "$SETUP_FOR" = test ]; then say "the tests beside the real Kafka and those of Spark will be skipped"; fi
}

# by itself, so that what is hard to have takes nothing else with it
ensure_server_tools() {
    local WHAT="" APT="" DNF="" APK=""
    need_for_server
    install_needed && return 0
    command -v kcat >/dev/null || export KAFKALOG_NO_KCAT=1
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || export KAFKALOG_NO_BROWSER=1
    say "the tests with ${WHAT//, / and } will be skipped"
}

ensure_venv() {
    local base
    venv_stands && return 0
    base="$(find_python)" || { say "this system's Python is older than 3.11; KAFKALOG_PYTHON may name one"; return 1; }
    say "making .venv with $("$base" --version)"
    "$base" -m venv --clear "$VENV"
    # the one that comes with Python 3.11 takes more than a minute to choose the versions of what the tests import
    "$PYTHON" -m pip -q --disable-pip-version-check install --upgrade pip </dev/null >&2 || true
}

# what the installed packages depend on: the metadata, the interpreter, and what is asked for
wanted_state() { { cat "$ROOT/pyproject.toml"; "$PYTHON" -VV; echo "$ROOT"; } | cksum | tr ' ' '-'; }

# compile [COMMAND...]: runs a build with one compiler per processor; the C sources are kept for the test of the sdist,
# which has them made again (tests/packaging/test_native_build.py)
compile() {
    printf '[build_ext]\nparallel = %s\n' "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" >"$VENV/build.cfg"
    (cd "$ROOT" && DIST_EXTRA_CONFIG="$VENV/build.cfg" CYTHON_CACHE_DIR="$VENV/cython" "$PYTHON" "$@" </dev/null >&2) \
        && : >"$VENV/kafkalog-built"
}

# true when a compiled module is absent or a source is newer than the last build
must_compile() {
    local source suffix
    suffix="$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')"
    for source in "$ROOT"/kafkalog/_core/*/*.pyi; do
        [ -f "${source%.pyi}$suffix" ] || return 0
    done
    [ ! -f "$VENV/kafkalog-built" ] || [ -n "$(find "$ROOT/setup.py" "$ROOT/kafkalog/_core" \
        -newer "$VENV/kafkalog-built" \( -name '*.py[x]' -o -name '*.pxd' -o -name '*.h' -o -name setup.py \))" ]
}

# a file of settings with which pip compresses no wheel that it builds, such as that of PySpark: it unpacks it at once
plain_wheels() {
    printf '[bdist_wheel]\ncompression = stored\n' >"$VENV/wheels.cfg"
    echo "$VENV/wheels.cfg"
}

# the extra for Spark and for the pipeline's picture; without them there is less to see, and the rest goes on
ensure_spark() {
    local pip="-m pip -q --disable-pip-version-check install" stamp
    stamp="$VENV/kafkalog-spark-$(wanted_state)"
    if [ -f "$stamp" ]; then return 0; fi
    if ! has_java; then say "Spark is left out: java is older than 17, or JAVA_HOME names such a one"; return 0; fi
    say "installing Spark's Python package, which takes a few minutes"
    # shellcheck disable=SC2086
    if DIST_EXTRA_CONFIG="$(plain_wheels)" "$PYTHON" $pip $(extras_of spark viz) </dev/null >&2; then
        rm -f "$VENV/kafkalog-spark"-*
        : >"$stamp"
    else say "could not be installed: Spark's Python package; as this user: $PYTHON -m pip install '$(extras_of spark viz | sed "s/ /' '/g")'"
    fi
}

# the extras for tables and their queries; without them there is less to see
ensure_tables() {
    local pip="-m pip -q --disable-pip-version-check install" list="$VENV/tables.txt" stamp
    stamp="$VENV/kafkalog-tables-$(wanted_state)"
    if [ -f "$stamp" ]; then return 0; fi
    say "installing the Python packages for tables"
    requirements lake sql >"$list"
    # shellcheck disable=SC2086
    if "$PYTHON" $pip -r "$list" </dev/null >&2; then
        rm -f "$VENV/kafkalog-tables"-*
        : >"$stamp"
    else say "could not be installed: the packages for tables; as this user: $PYTHON -m pip install -r $list"
    fi
}

# the requirements of extras, as pyproject.toml has them; without spaces in one, as the shell wants them
extras_of() {
    "$PYTHON" -c '
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
print(*(one.replace(" ", "") for name in sys.argv[2:] for one in extras[name]))' "$ROOT/pyproject.toml" "$@"
}

# all that the package, and with "test" its tests, import: what extras name of ours is what these in turn name
requirements() {
    "$PYTHON" -c '
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
wanted = list(project["dependencies"])
names = sys.argv[2:]
for name in names:
    for one in project["optional-dependencies"][name]:
        if one.startswith("kafkalog["):
            names += one[len("kafkalog["):-1].split(",")
        else:
            wanted.append(one)
print(*dict.fromkeys(wanted), sep="\n")' "$ROOT/pyproject.toml" "$@"
}

# fetch LIST: installs the requirements in a file. Without the byte code of thousands of modules that nothing imports;
# the first import writes it of the others
fetch() {
    DIST_EXTRA_CONFIG="$(plain_wheels)" "$PYTHON" -m pip -q --disable-pip-version-check install --no-compile -r "$1" \
        </dev/null >&2
}

# what it imports is fetched while it compiles: the one waits for the network, and the other does not need it; and PySpark,
# whose wheel is made here, beside the rest
install_and_compile() {
    local pip="-m pip -q --disable-pip-version-check install" list="$VENV/requirements.txt" fetching one status=0
    # shellcheck disable=SC2086
    "$PYTHON" $pip "setuptools>=77" "setuptools-scm>=8" "Cython>=3.3,<4" </dev/null >&2 || return 1
    # shellcheck disable=SC2046
    requirements $([ "$SETUP_FOR" = run ] || echo "$SETUP_FOR") >"$list"
    grep '^pyspark' "$list" >"$VENV/pyspark.txt" || true
    sed -i '/^pyspark/d' "$list"
    fetch "$list" &
    fetching=$!
    fetch "$VENV/pyspark.txt" &
    fetching="$fetching $!"
    trap 'kill $fetching; trap - INT; kill -INT $$' INT
    # shellcheck disable=SC2086
    PYTHONWARNINGS=ignore::UserWarning compile $pip --no-deps --no-build-isolation \
        --config-settings editable_mode=compat -e . || status=1 # setuptools warns of that mode, at length
    for one in $fetching; do wait "$one" || status=1; done
    trap - INT
    return "$status"
}

ensure_package() {
    local stamp
    stamp="$VENV/kafkalog-$SETUP_FOR-$(wanted_state)"
    if [ ! -f "$stamp" ]; then
        say "installing what the package needs and compiling it"
        install_and_compile || return 1
        rm -f "$VENV/kafkalog-$SETUP_FOR"-*
        : >"$stamp"
    elif must_compile; then
        say "compiling what changed"
        compile setup.py -q build_ext --inplace || return 1
    fi
}

setup() {
    ensure_system && ensure_venv || return 1
    CC="$(find_compiler "$PYTHON")" && export CC
    ensure_package || return 1
    if wants_spark; then ensure_spark; fi
    if wants_tables; then ensure_tables; fi
    if [ "$SETUP_FOR" = test ]; then ensure_server_tools; fi
    export PATH="$VENV/bin:$PATH"
}

setup || exit 1

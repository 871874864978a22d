"""The jars of the real Kafka, fetched once per user, and our Java programs, compiled when they changed.

`python -m tests.interop.toolchain` does both ahead of the tests and prints the class path. The cache is
kafkalog-interop under XDG_CACHE_HOME (default ~/.cache), or where KAFKALOG_INTEROP_CACHE says. Which registry
Maven asks is the business of the user's own Maven settings.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
POM = HERE / "pom.xml"
SPARK_POM = HERE / "spark-pom.xml"
OFFSET_MAP_POM = HERE / "offset-map-pom.xml"
TIERED_POM = HERE / "tiered-pom.xml"
KAFKA_39_POM = HERE / "kafka39-pom.xml"
KAFKA_44_POM = HERE / "kafka44-pom.xml"
LAKEHOUSE_POM = HERE / "lakehouse-pom.xml"
LAKEHOUSE_PYTHON = HERE / "lakehouse-requirements.txt"
CLIENTS = HERE / "java_clients"
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Without these, a JVM says on stdout that an archive is of other files."""
_SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Half the processor time of a JVM that ends within seconds."""
SKIP_VARIABLE = "KAFKALOG_NO_INTEROP"


class ToolMissing(RuntimeError):
    """Java or Maven is missing or failed; the message is one line with the remedy."""


def require(tool: str) -> str:
    """Path of java, javac or mvn."""
    found = shutil.which(tool)
    if found is None:
        what = "Maven" if tool == "mvn" else "a JDK, version 17 or newer"
        raise ToolMissing(f"interop: no command {tool}: install {what}, or skip with {SKIP_VARIABLE}=1")
    return found


def kafka_version() -> str:
    """The version of Kafka that pom.xml names."""
    match = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", POM.read_text(encoding="utf-8"))
    assert match is not None, f"{POM} names no kafka.version"
    return match.group(1)


def cache_dir() -> Path:
    """Return the directory that keeps jars and classes between runs."""
    chosen = os.environ.get("KAFKALOG_INTEROP_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(chosen) if chosen else home / "kafkalog-interop") / kafka_version()


@functools.cache
def jars() -> Path:
    """The directory of Kafka's jars and all they need; the first call on a machine downloads about 55 MB."""
    return _fetched(POM, f"Kafka {kafka_version()}")


@functools.cache
def spark_jars() -> tuple[Path, ...]:
    """The jars of Spark's own Kafka source, for `spark.jars`; the first call on a machine downloads about 10 MB."""
    return tuple(sorted(_fetched(SPARK_POM, "Spark's Kafka source").glob("*.jar")))


@functools.cache
def offset_map_jars() -> tuple[Path, ...]:
    """Return the jars of the last Kafka whose offset map has a collision rate; the first call downloads about 11 MB."""
    return tuple(sorted(_fetched(OFFSET_MAP_POM, "the offset map of Kafka 3.9").glob("*.jar")))


@functools.cache
def tiered_jars() -> tuple[Path, ...]:
    """The jar of Kafka's own store of tiered segments; the first call on a machine downloads less than 1 MB."""
    return tuple(sorted(_fetched(TIERED_POM, "Kafka's store of tiered segments").glob("*.jar")))


@functools.cache
def jars_39() -> Path:
    """The directory of the jars of Kafka 3.9's clients and tools; the first call on a machine downloads about 60 MB."""
    return _fetched(KAFKA_39_POM, "Kafka 3.9")


@functools.cache
def jars_44() -> Path:
    """The directory of the jars of Kafka 4.4's broker and tools; the first call on a machine downloads about 45 MB."""
    return _fetched(KAFKA_44_POM, "Kafka 4.4")


def lakehouse_python() -> Path:
    """Return the directory of Spark's Python packages with tables, for PYTHONPATH; it may not exist yet."""
    return cache_dir() / f"python-{sys.version_info.major}.{sys.version_info.minor}-{_digest([LAKEHOUSE_PYTHON])}"


@functools.cache
def lakehouse() -> tuple[Path, tuple[Path, ...]]:
    """The Python packages and jars of that Spark; the first call on a machine downloads about 500 and 75 MB."""
    jars = tuple(sorted(_fetched(LAKEHOUSE_POM, "Iceberg and Delta for Spark").glob("*.jar")))
    target = lakehouse_python()
    if not target.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "-r", str(LAKEHOUSE_PYTHON), "--target"]
        make_once(target, lambda to: _run("install a Spark with tables by pip", [*pip, str(to)]))
    return target, jars


def _fetched(pom: Path, what: str) -> Path:
    target = cache_dir() / f"jars-{_digest([pom])}"
    if not target.is_dir():
        mvn = require("mvn")
        make_once(target, lambda to: _run(f"fetch {what} with Maven", _fetch_command(mvn, pom, to)), "lock")
    return target


def _fetch_command(mvn: str, pom: Path, to: Path) -> list[str]:
    return [mvn, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={to}"]


@functools.cache
def classes(source: Path = HERE / "java", against: Path | None = None) -> Path:
    """The jar of compiled classes of all .java files under source; `against` has the jars, if not Kafka's."""
    files = sorted(source.rglob("*.java"))
    target = cache_dir() / f"program-{source.name}-{_digest([KAFKA_39_POM if against else POM, *files])}"
    if not target.is_dir():
        javac, path = require("javac"), f"{against or jars()}/*"
        command = [javac, *(f"-J{option}" for option in _SHORT), "-nowarn", "-proc:none", "-cp", path]
        make_once(target, lambda to: _compile(command, files, to))
    return target / "classes.jar"


def _compile(command: list[str], files: list[Path], to: Path) -> None:
    with tempfile.TemporaryDirectory(dir=to) as made:
        _run("compile", [*command, "-d", made, *map(str, files)])
        with zipfile.ZipFile(to / "classes.jar", "w") as jar:
            for path in sorted(Path(made).rglob("*.class")):
                jar.write(path, path.relative_to(made))


@functools.cache
def java_release() -> str:
    """Return the version that `java -version` prints."""
    command = [require("java"), "-version"]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True).stderr


def class_archive(
    name: str, class_path: str, train: Callable[[tuple[str, ...]], object], jars: Iterable[Path] = ()
) -> tuple[str, ...]:
    """Options of a JVM that begins with the classes that another one had loaded when it ended: it starts sooner.

    `train` runs that one, with the options it is given, once per user; where it leaves no archive there are no options.
    A JVM silently refuses an archive of jars that were installed again since, so `jars`, if they may be, are part of
    its name; the archive of the former ones goes.
    """

    def fill(to: Path) -> None:
        with contextlib.suppress(RuntimeError, subprocess.SubprocessError):  # of a JVM that does not know the option
            train((f"-XX:ArchiveClassesAtExit={to / archive}",))

    key = f"archive-{name}-{_named(f'{java_release()} {class_path}')}"
    installed = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in sorted(jars)]
    target = cache_dir() / (f"{key}-{_named(str(installed))}" if installed else key)
    archive = "classes.jsa"
    if not target.is_dir():
        make_once(target, fill)
        for former in target.parent.glob(f"{key}*"):
            if installed and former != target and former.is_dir():
                shutil.rmtree(former, ignore_errors=True)
    return (f"-XX:SharedArchiveFile={target / archive}", *_QUIET) if (target / archive).exists() else ()


def _named(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def clients_command(version: str) -> list[str]:
    """Return a command line of the Java clients and tools of a version (java_clients/clients/Main.java)."""
    path = {"3.9": jars_39, "4.3": jars, "4.4": jars_44}[version]()
    own = classes(CLIENTS, path if version == "3.9" else None)
    log_settings = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    return [require("java"), *quick_start(), log_settings, "-cp", f"{own}:{path}/*", "clients.Main"]


def broker_command(
    version: str, *main_and_arguments: str, options: tuple[str, ...] = (), plug_in: Path | None = None
) -> list[str]:
    """A command line that runs a class of the broker of "4.3" or "4.4", with a jar of more classes."""
    path = broker_classes(version) + (f":{plug_in}" if plug_in else "")
    log_settings = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    return [require("java"), *options, log_settings, "-cp", path, *main_and_arguments]


def broker_classes(version: str) -> str:
    """The class path of the broker of "4.3" or "4.4", of files that all working trees share."""
    return f"{classes()}:{jars()}/*" if version == "4.3" else f"{jars_44()}/*"


def java_44_command(*main_and_arguments: str, version: str = "4.4") -> list[str]:
    """A command line that runs one of our classes in java_44, with the clients of 4.4, or of "4.3"."""
    own, path = classes(HERE / "java_44", jars_44()), jars() if version == "4.3" else jars_44()
    log_settings = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    return [require("java"), *quick_start(), log_settings, "-cp", f"{own}:{path}/*", *main_and_arguments]


def java_command(*main_and_arguments: str, source: Path | None = None, options: tuple[str, ...] = ()) -> list[str]:
    """Return a command line that runs a class of the tests (or of Kafka) with the whole class path."""
    own = classes(source) if source else classes()
    log_settings = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    return [require("java"), *options, log_settings, "-cp", f"{own}:{jars()}/*", *main_and_arguments]


def quick_start(heap: str = "512m") -> tuple[str, ...]:
    """Options for a short-lived JVM on a small machine."""
    return (f"-Xmx{heap}", *_SHORT, "-Xshare:auto")


def _digest(files: list[Path]) -> str:
    sha = hashlib.sha256()
    for file in files:
        sha.update(file.name.encode() + b"\0" + file.read_bytes())
    return sha.hexdigest()[:16]


def make_once(target: Path, fill: Callable[[Path], None], lock: str = "") -> None:
    """Fills a directory beside target, then renames it: a broken run leaves nothing half done, a second one waits.

    `lock` is the file of what has to wait for one another: two Mavens at once would write into one repository. Whatever
    else there is to make waits only for itself.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / (lock or f"{target.name}.lock")).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if target.is_dir():  # another run was first
            return
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            fill(made)
            made.rename(target)


def _run(what: str, command: list[str]) -> None:
    environ = {**os.environ, "MAVEN_OPTS": " ".join((*_SHORT, os.environ.get("MAVEN_OPTS", "")))}
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, env=environ)
    if done.returncode:
        said = (done.stdout + done.stderr).splitlines()
        errors = [line for line in said if "ERROR" in line or "error:" in line] or said or ["no message"]
        raise ToolMissing(f"interop: could not {what}: {errors[0]} (skip with {SKIP_VARIABLE}=1)")


if __name__ == "__main__":
    print(f"{classes()}:{jars()}/*")

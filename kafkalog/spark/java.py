"""Java for Spark on this machine: finds one, or raises a one-line error that says what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from glob import glob
from typing import Final, NamedTuple

from kafkalog.errors import MissingRequirement

OLDEST: Final = 17
"""Oldest Java version on which PySpark 4 runs."""
USUAL_PLACES: Final = (
    "/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*", "/opt/jdk*", "~/.sdkman/candidates/java/*", "~/.jdks/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home", "/opt/homebrew/opt/openjdk*",
)  # fmt: skip
PACKAGES: Final = {
    "apt-get": "apt-get install openjdk-17-jre-headless", "dnf": "dnf install java-17-openjdk-headless",
    "yum": "yum install java-17-openjdk-headless", "zypper": "zypper install java-17-openjdk-headless",
    "apk": "apk add openjdk17-jre-headless", "pacman": "pacman -S jre17-openjdk-headless",
    "brew": "brew install openjdk@17",
}  # fmt: skip
"""Command that installs Java, by package manager."""
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)
_PRINTED: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_MAX_RELEASE_CHARS: Final = 1 << 16
_PATIENCE_S: Final = 20.0


class Java(NamedTuple):
    """A Java: its JAVA_HOME directory and its feature version, such as 17."""

    home: str
    version: int


def find_java(environ: Mapping[str, str] = os.environ, places: tuple[str, ...] = USUAL_PLACES) -> Java:
    """Return the first Java of at least version 17: JAVA_HOME's, that on the PATH, the newest in the usual places.

    Raises MissingRequirement, in one line with the distribution's own command, if there is none.
    """
    old: list[Java] = []
    for home in _candidates(environ, places):
        version = version_of(home)
        if version is not None and version >= OLDEST:
            return Java(home, version)
        if version is not None:
            old.append(Java(home, version))
    what = f"Spark needs Java {OLDEST} or newer"
    problem = f"there is only Java {old[0].version} in {old[0].home}" if old else "no Java was found"
    raise MissingRequirement(f"{what}, but {problem}", hint=_how_to_install(environ))


def _candidates(environ: Mapping[str, str], places: tuple[str, ...]) -> Iterator[str]:
    if environ.get("JAVA_HOME"):
        yield environ["JAVA_HOME"]
    command = shutil.which("java", path=environ.get("PATH", ""))
    if command is not None:
        yield os.path.dirname(os.path.dirname(os.path.realpath(command)))
    found = {os.path.realpath(home) for place in places for home in glob(os.path.expanduser(place))}
    homes = [home for home in found if os.access(os.path.join(home, "bin", "java"), os.X_OK)]
    yield from sorted(homes, key=lambda home: (-(version_of(home) or 0), home))


def version_of(home: str) -> int | None:
    """Return the feature version of the Java in a directory, by its release file or its output; None without Java."""
    command = os.path.join(home, "bin", "java")
    if not os.access(command, os.X_OK):
        return None
    try:
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as file:
            match = _RELEASE.search(file.read(_MAX_RELEASE_CHARS))
    except OSError:
        match = None
    if match is None:
        try:
            output = subprocess.run([command, "-version"], capture_output=True, timeout=_PATIENCE_S)
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = _PRINTED.search((output.stderr + output.stdout).decode("utf-8", "replace"))
    if match is None:
        return None
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first  # Java 8 calls itself 1.8


def _how_to_install(environ: Mapping[str, str]) -> str:
    for manager, command in PACKAGES.items():
        if shutil.which(manager, path=environ.get("PATH", "")) is not None:
            return f"{command}, or set JAVA_HOME to an installed one"
    return f"install a Java {OLDEST} runtime with this system's package manager, or set JAVA_HOME to an installed one"

"""ci/setup.sh: what it installs into the system it says before, and leaves alone where that is asked for."""

import os
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[1] / "ci" / "setup.sh"
ASKED = "need Maven maven maven maven; install_needed; echo status $?"


def run_setup(folder: Path, **environment: str) -> tuple[str, str, list[str]]:
    """Return the output of the part that installs Maven, and the calls of an apt-get that only records them."""
    programs = folder / "programs"
    programs.mkdir()
    for name, script in {"id": "echo 0", "apt-get": f'echo "$@" >>{folder}/calls'}.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    functions, _, _ = SETUP.read_text().partition("usable_python() {")
    kept = {name: value for name, value in os.environ.items() if name != "KAFKALOG_NO_SYSTEM"}
    done = subprocess.run(
        ["bash", "-c", f"{functions}\nWHAT= APT= DNF= APK=\n{ASKED}"], capture_output=True, text=True,
        env={**kept, "PATH": f"{programs}:{kept['PATH']}", **environment},
    )  # fmt: skip
    calls = folder / "calls"
    return done.stdout, done.stderr, calls.read_text().splitlines() if calls.exists() else []


def test_it_says_what_it_installs_and_how_not_to(tmp_path: Path) -> None:
    printed, output, calls = run_setup(tmp_path)
    command = "install -y --no-install-recommends maven"
    assert (printed, calls) == ("status 0\n", ["update -q", command])
    expected = f"setup: installing Maven, as root: apt-get {command} (KAFKALOG_NO_SYSTEM=1 leaves this to you)\n"
    assert output == expected


def test_it_installs_nothing_where_it_may_not(tmp_path: Path) -> None:
    printed, output, calls = run_setup(tmp_path, KAFKALOG_NO_SYSTEM="1")
    assert (printed, calls) == ("status 1\n", [])
    assert output == "setup: missing: Maven; as root: apt-get install -y --no-install-recommends maven\n"


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_the_documents_say_how_not_to(document: str) -> None:
    assert "`KAFKALOG_NO_SYSTEM=1`" in (SETUP.parents[1] / document).read_text()

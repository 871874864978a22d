"""On an unsupported platform the build says so in one line that names the supported ones, before it compiles."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "setup.py"
pytestmark = pytest.mark.skipif(not SETUP.is_file(), reason="runs in the source tree")
GOOD = ("cpython", (3, 11, 2), "linux", 64, "little")
REFUSED = {
    "PyPy": (("pypy", *GOOD[1:]), "pypy, whose C API"),
    "GraalPy": (("graalpy", *GOOD[1:]), "graalpy, whose C API"),
    "an old Python": (("cpython", (3, 10, 14), *GOOD[2:]), "Python 3.10"),
    "Windows": (("cpython", (3, 13), "win32", 64, "little"), "win32, which has no POSIX file calls"),
    "a browser": (("cpython", (3, 13), "emscripten", 32, "little"), "emscripten, which has no POSIX"),
    "32 bits": (("cpython", (3, 13), "linux", 32, "little"), "a 32-bit Python"),
    "big-endian": (("cpython", (3, 13), "linux", 64, "big"), "a big-endian machine"),
}
PLAYED = {
    "win32": "sys.platform = 'win32'",
    "a 32-bit": "sys.maxsize = 2**31 - 1",
    "a big-endian": "sys.byteorder = 'big'",
    "pypy": "sys.implementation.name = 'pypy'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unsupported_platform_is_named_beside_the_supported_ones(name: str) -> None:
    asked, expected = REFUSED[name]
    said = runpy.run_path(str(SETUP))["refusal"](*asked)
    assert said.startswith("kafkalog needs CPython 3.11 or newer on a 64-bit, little-endian Linux")
    assert f"This is {expected}" in said
    assert "\n" not in said


@pytest.mark.parametrize("system", ["linux", "darwin", "freebsd14"])
def test_what_may_build_is_not_refused(system: str) -> None:
    """macOS and the BSDs are not tested, and may try."""
    assert runpy.run_path(str(SETUP))["refusal"]("cpython", (3, 14, 0), system, 64, "little") is None


@pytest.mark.parametrize("found", PLAYED)
def test_the_build_ends_with_that_line(found: str) -> None:
    first = "import sys, runpy, setuptools.command.build_ext"
    code = f"{first}; {PLAYED[found]}; runpy.run_path({str(SETUP)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code, "--version"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("kafkalog needs CPython 3.11") and f"This is {found}" in line

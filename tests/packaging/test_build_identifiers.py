"""The wheels that the hosted build makes by cibuildwheel's reading of the configuration, without a container engine."""

import runpy
import subprocess
import sys
import tomllib

import pytest

from tests.trees import SOURCES

pytestmark = pytest.mark.skipif(not (SOURCES / "pyproject.toml").is_file(), reason="runs in the source tree")
VERSIONS = ("311", "312", "313", "314", "315")
EXPECTED = {
    f"cp{version}-{libc}_{machine}"
    for version in (*VERSIONS, "314t")
    for libc in ("manylinux", "musllinux")
    for machine in ("x86_64", "aarch64")
}


def run_module(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m name`, run in the source tree; the test is skipped where the extra `package` is not installed."""
    pytest.importorskip(name, reason="the extra `package` is not installed")
    command = [sys.executable, "-m", name, *arguments]
    return subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=300)


def test_the_wheels_that_are_built() -> None:
    done = run_module(
        "cibuildwheel", "--print-build-identifiers", "--platform", "linux", "--archs", "x86_64,aarch64", "."
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == EXPECTED
    assert len(EXPECTED) == 24


def test_classifiers_name_the_same_versions() -> None:
    project = tomllib.loads((SOURCES / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [one.rpartition(" :: ")[2] for one in project["classifiers"] if "Python :: 3." in one]
    assert named == [f"3.{version[1:]}" for version in VERSIONS]
    assert project["requires-python"] == ">=3.11"


def test_every_module_declares_that_it_needs_no_gil() -> None:
    """In one place: Cython's directive of a module would leave out `shared`, which Cython makes."""
    extensions = runpy.run_path(str(SOURCES / "setup.py"))["extensions"]()
    assert len(extensions) > 80
    assert all(("CYTHON_FREETHREADING_COMPATIBLE", "1") in one.define_macros for one in extensions)
    for path in (SOURCES / "kafkalog" / "_core").rglob("*.p[yx][xd]"):
        assert "freethreading_compatible" not in path.read_text(encoding="utf-8"), path


def test_the_project_file_is_valid() -> None:
    """Misspelt keys too: the schemas of cibuildwheel, setuptools-scm, ruff and mypy are among those looked at."""
    done = run_module("validate_pyproject", "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr

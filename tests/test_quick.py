"""`pytest --quick` leaves out the files whose tests take long, and no others."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.emulation import emulated
from tests.quick import LISTED, find_long_files, long_files
from tests.trees import ROOT


def collected(*options: str) -> set[str]:
    """Return the files of tests/bench that pytest collects."""
    pytest = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    command = [*pytest, *options, "tests/bench"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.partition("::")[0] for line in lines if "::" in line}


def test_only_long_files_are_left_out() -> None:
    whole = collected()
    assert collected("--quick") == whole - long_files() and whole & long_files() and whole - long_files()


def test_files_are_long_by_the_average_of_their_tests_and_by_their_sum(tmp_path: Path) -> None:
    files = {"long": [0.9, 0.3], "quick": [0.01] * 200, "small": [0.2]}
    cases = ""
    for name, times in files.items():
        (tmp_path / f"{name}.py").touch()
        cases += "".join(f'<testcase classname="{name}.TestIt" name="test" time="{each}"/>' for each in times)
    report = tmp_path / "times.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert find_long_files(report, tmp_path) == ["long.py"]


def test_the_list_is_in_order() -> None:
    lines = LISTED.read_text().splitlines()
    assert lines == sorted(set(lines))


def test_only_quick_properties_have_fewer_examples(pytestconfig: pytest.Config) -> None:
    most = 25 if pytestconfig.getoption("quick") else 100
    assert settings().max_examples == (15 if emulated() else most)

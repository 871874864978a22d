"""Directories that several test files of tools begin with."""

import shutil
from pathlib import Path

import pytest

from tests.broker_directory import format_directory, write_metadata_log
from tests.handover_cases import KEEP, write


@pytest.fixture(scope="module", params=["fresh", "running"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics of ours in a directory that was just formatted, and in one in which a controller has been."""
    data = tmp_path_factory.mktemp(request.param) / "data"
    write(data, "orders-0", internal_segment_bytes=2000, cleanup_policy="compact")
    write(data, "orders-1", 3)
    write(data, "small.one-0", **KEEP)
    format_directory(data)
    if request.param == "running":
        write_metadata_log(data)
    return data


@pytest.fixture
def broker_dir(template: Path, tmp_path: Path) -> Path:
    """A copy of the template."""
    return Path(shutil.copytree(template, tmp_path / "data"))

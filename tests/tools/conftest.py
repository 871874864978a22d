"""Directories that several test files of tools begin with."""

import shutil
from pathlib import Path

import pytest

from tests.broker_directory import format_directory, write_metadata_log
from tests.handover_cases import KEEP, write


@pytest.fixture(scope="module", params=["fresh", "fresh 4.4", "fresh 4.4 standalone", "running", "running 4.4"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kafkalog topics in a directory that was just formatted, and in one in which a controller has been."""
    data = tmp_path_factory.mktemp("template") / "data"
    write(data, "orders-0", internal_segment_bytes=2000, cleanup_policy="compact")
    write(data, "orders-1", 3)
    write(data, "small.one-0", **KEEP)
    format_directory(data, by="4.4" if "4.4" in request.param else "4.3", has_voters="standalone" in request.param)
    if "running" in request.param:
        write_metadata_log(data)
    return data


@pytest.fixture
def broker_dir(template: Path, tmp_path: Path) -> Path:
    """A copy of the template."""
    return Path(shutil.copytree(template, tmp_path / "data"))

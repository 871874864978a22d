"""A table of each format for a test that asks for `lake`."""

from pathlib import Path

import pytest

from tests.lake.tables import FORMATS, Lake


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", request.param)

"""The reference's TimeIndex, step by step: results, errors, state and file bytes."""

from pathlib import Path
from typing import Any

import pytest

from kafkalog.storage.index.time_index import TimeIndex
from tests.golden_cases import each_entry
from tests.index_traces import Trace, check_sanity_entry

pytestmark = pytest.mark.golden


@each_entry("time_index")
def test_trace(entry: dict[str, Any], tmp_path: Path) -> None:
    Trace(TimeIndex, tmp_path / "x", entry).run()


@each_entry("time_index", "sanity")
def test_sanity(entry: dict[str, Any], tmp_path: Path) -> None:
    check_sanity_entry(TimeIndex, tmp_path / "x", entry)

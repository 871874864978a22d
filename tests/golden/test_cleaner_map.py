"""The first half of a clean by the reference: what it read for its map, and how far the map reached."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.map_build import build_map
from kafkalog.cleaner.segment_reader import SegmentReader
from kafkalog.cleaner.types import CleanerStats
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.fileio import OS
from tests import golden_cases
from tests.golden_cases import each_entry
from tests.mock_time import MockClock
from tests.storage import logs

pytestmark = pytest.mark.golden
PARTITIONS = {case.name: case for kind in ("logdir", "crash", "legacy") for case in golden_cases.partitions(kind)}


def nothing(*_: Any) -> None:
    pass


@pytest.mark.parametrize("hash", ["md5", "siphash"])
@pytest.mark.parametrize("buffer_bytes", [4096, 1 << 20])
@each_entry("cleaner")
def test_the_map_of_the_first_pass(entry: dict[str, Any], buffer_bytes: int, hash: Any, tmp_path: Path) -> None:
    """CLN-3, CLN-4, CLN-14, CLN-46: the end offset and the records read, whichever hash stands for a key."""
    directory = tmp_path / entry["partition"]
    shutil.copytree(PARTITIONS[entry["partition"]].directory, directory, ignore=shutil.ignore_patterns("*.deleted"))
    log = UnifiedLog.open(directory, logs.config(), clock=MockClock(entry["openClock"]), had_clean_shutdown=True)
    first = entry["passes"][0]
    if first["rolledBefore"]:
        log.roll()
    offset_map, stats = SkimpyOffsetMap(entry["offsetMapMemory"], hash), CleanerStats(0.0)
    build_map(
        log, first["firstDirtyOffset"], first["uncleanableOffset"], offset_map, stats,
        reader=SegmentReader(buffer_bytes, OS), load_factor=entry["dupBufferLoadFactor"], check_done=nothing,
        throttled=nothing,
    )  # fmt: skip
    assert offset_map.latest_offset + 1 == first["result"]["endOffset"]
    assert stats.map_messages_read == first["result"]["mapMessagesRead"]
    log.close()

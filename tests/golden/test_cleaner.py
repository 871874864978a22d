"""The cleaner on copies of a broker's partitions, three passes each, against the reference's own (vector `cleaner`)."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner import pass_
from kafkalog.cleaner.pass_ import clean
from kafkalog.cleaner.retain import Retainer
from kafkalog.cleaner.types import ASKED, LogToClean
from kafkalog.config.topic import LogConfig
from kafkalog.reading.chunks import records
from kafkalog.storage.log import UnifiedLog
from tests.golden.test_recovery import EXPIRATION_MS, partition_directory, state_of, without_file_times
from tests.golden_cases import each_entry, version
from tests.mock_time import MockClock

pytestmark = pytest.mark.golden
COUNTS = ("messagesRead", "messagesWritten", "invalidMessagesRead", "mapMessagesRead")


def opened(entry: dict[str, Any], tmp_path: Path) -> UnifiedLog:
    folder = tmp_path / entry["partition"]
    shutil.copytree(partition_directory(entry["partition"]), folder, ignore=shutil.ignore_patterns("*.deleted"))
    log = UnifiedLog.open(
        folder,
        LogConfig.from_stored(entry["config"]),
        clock=MockClock(entry["openClock"]),
        recovery_point=entry["passes"][0]["state"]["recoveryPoint"],
        producer_expiration_ms=EXPIRATION_MS,
    )
    return log


def contents(log: UnifiedLog) -> dict[int, tuple[Any, ...]]:
    """offset -> timestamp, key, value, headers of every record."""
    found = records(log, log.log_start_offset, log.log_end_offset)
    return {record.offset: (record.timestamp, record.key, record.value, record.headers) for record in found}


def is_compressed(log: UnifiedLog) -> bool:
    return any(table.codec for part in log.segments for table in part.records.tables())


def log_files(log: UnifiedLog) -> list[list[Any]]:
    found = []
    for path in sorted(Path(log.path).iterdir()):
        if path.suffix in (".log", ".txnindex"):
            data = path.read_bytes()
            found.append([path.name, len(data), hashlib.sha256(data).hexdigest()])
    return found


def loosely(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What of segments does not depend on how well a codec packs."""
    found = without_file_times({"segments": segments})["segments"]
    return [{key: one[key] for key in ("baseOffset", "txnIndex", "largestTimestamp")} for one in found]


def keep_empty_batches_as_4_4(log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.3 and ours keep the last batch of each round without records, 4.4 that before the high watermark alone."""

    def make_retainer(*args: Any, **named: Any) -> Retainer:
        return Retainer(*args, **named | {"upper_bound_offset": log.high_watermark})

    monkeypatch.setattr(pass_, "Retainer", make_retainer)


@each_entry("cleaner")
def test_clean(entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLN-3, CLN-7 to CLN-12, CLN-16, CLN-17, CLN-19 to CLN-25, CLN-40, CLN-44, CLN-49: files, indexes, counters.

    Byte for byte where nothing is compressed; else the records and all that does not depend on a codec's library.
    """
    log = opened(entry, tmp_path)
    loose = is_compressed(log)
    if version() >= (4, 4):
        keep_empty_batches_as_4_4(log, monkeypatch)
    for number, one in enumerate(entry["passes"]):
        if one["rolledBefore"]:
            log.roll()
        before = contents(log)
        to_clean = LogToClean.of(log, one["firstDirtyOffset"], one["uncleanableOffset"], ASKED)
        offset_map = SkimpyOffsetMap(entry["offsetMapMemory"], "md5")
        found = clean(to_clean, offset_map, now_ms=one["clock"], load_factor=entry["dupBufferLoadFactor"])
        stats, expected = found.stats, one["result"]
        result = {
            "endOffset": found.end_offset,
            "bytesRead": stats.bytes_read,
            "bytesWritten": stats.bytes_written,
            "messagesRead": stats.messages_read,
            "messagesWritten": stats.messages_written,
            "invalidMessagesRead": stats.invalid_messages_read,
            "mapMessagesRead": stats.map_messages_read,
        }
        state = state_of(log)
        bounds = [name for name in one["state"] if name != "segments"]
        assert {name: state[name] for name in bounds} == {name: one["state"][name] for name in bounds}
        after = contents(log)
        assert all(before[offset] == row for offset, row in after.items())
        if loose:
            same = ("endOffset", *COUNTS) if number else ("endOffset", "bytesRead", *COUNTS)
            assert {name: result[name] for name in same} == {name: expected[name] for name in same}
            assert loosely(state["segments"]) == loosely(one["segments"])
        else:
            assert result == expected
            assert without_file_times(state)["segments"] == without_file_times(one)["segments"]
            assert log_files(log) == one["logFiles"]
    log.close()

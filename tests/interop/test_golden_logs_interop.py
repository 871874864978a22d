"""The capture's partitions under the reference's own log and under ours: the same records, positions and times.

Formats v0 and v1, every codec, wrappers of both timestamp types, gaps, transactions, mixed formats (FILE-1, SEG-7,
LOG-24). Both work on copies: the reference grows the active indexes again when it opens a log.
"""

import shutil
from pathlib import Path
from typing import Literal

import pytest

import kafkalog
from kafkalog.errors import OffsetOutOfRange
from tests.golden_cases import Case, each_partition
from tests.interop import ours
from tests.interop.reference import RecordTuple, Reference

MOST = 400
Mode = Literal["r", "a"]


def user_topic(case: Case) -> bool:
    return not case.name.startswith("__")


def marked_copy(case: Case, to: Path) -> Path:
    """The partition in a separate data directory, stopped well."""
    to.mkdir()
    (to / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return Path(shutil.copytree(case.directory, to / case.name))


def read_by_us(directory: Path, mode: Mode, offset: int | None = None) -> list[RecordTuple]:
    with kafkalog.open(directory, mode) as log:
        return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in log.records(offset)]


@each_partition("legacy", "logdir", where=user_topic)
def test_records_positions_and_times(reference: Reference, tmp_path: Path, case: Case) -> None:
    mine = marked_copy(case, tmp_path / "mine")
    with reference.open(marked_copy(case, tmp_path / "theirs"), clean=True) as log:
        records = log.read()
        state = log.ask("state")
        start, end = state["log_start_offset"], state["log_end_offset"]
        assert read_by_us(mine, "r") == records
        offsets = ours.spread(start, end, MOST) if start < end else []
        assert ours.offsets(mine, offsets) == log.offsets(offsets)
        stamps = sorted({t + d for _, t, _, _, _ in records[:: max(1, len(records) // MOST)] for d in (-1, 0, 1)})
        times = [-1, -2, -3, *(t for t in stamps if t >= 0)]
        for time, found, known in zip(times, ours.times(mine, times), log.times(times), strict=True):
            if known is None and found is not None:
                # the reference stops at the first segment whose largest time is late enough, even where compaction
                # has removed the record that had it
                assert found == next((t, offset) for offset, t, _, _, _ in records if t >= time)
            else:
                assert found == known
        for offset in offsets[:: max(1, len(offsets) // 20)]:
            assert read_by_us(mine, "r", offset) == log.read(offset)
    with kafkalog.open(mine) as log_:
        there = {record[0]: record for record in records}
        for offset in offsets:
            if offset in there:
                record = log_[offset]
                assert (record.timestamp, record.key, record.value) == there[offset][1:4]
            else:
                with pytest.raises(OffsetOutOfRange):
                    _ = log_[offset]
    assert read_by_us(mine, "a") == records

"""A log that was not closed well, whose last batch begins below the end of the one before it: recovery keeps it."""

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, OffsetOutOfRange
from tests.damage.damages import Target, flip
from tests.damage.logs import PARTITION, log_of
from tests.damage.matrix import write_directory

END = 107
"""The last batch, of offsets 105 to 107, says 104 to 106."""


@pytest.fixture(params=["with indexes", "without"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    kind = log_of("v2 none", request.param == "with indexes", "unclean")
    data = write_directory(tmp_path / "data", kind)
    damage = flip(Target(kind, 2, 11), 7, 0)
    (data / kind.segments[2].name).write_bytes(damage.data)
    return data / PARTITION


def test_reads_that_reach_the_end_raise(path: Path) -> None:
    with kafkalog.open(path, "a") as log:
        assert log.end_offset == END
        reads: list[Any] = [
            lambda: log[END], lambda: [*log.records(END)], lambda: [*log.records(END, END + 1)],
            lambda: [*log.batches(END)], lambda: [*log.tail(0, END)], lambda: log.table(start=END), lambda: [*log],
        ]  # fmt: skip
        for read in reads:
            with pytest.raises(CorruptRecord, match="begins at offset 104, below the expected offset 105"):
                read()
        skipped: list[Any] = []
        assert [*log.records(END, on_damage="skip", skipped=skipped)] == [] and skipped[0].offset == 105


def test_reads_behind_it_are_sound_once_something_follows(path: Path) -> None:
    with kafkalog.open(path, "a") as log:
        log.append(b"v")
        assert [record.value for record in log.records(END)] == [b"v"] == [log[END].value]
        with pytest.raises(OffsetOutOfRange):
            log[END + 1]
        with pytest.raises(CorruptRecord):
            list(log)


def test_reads_are_sound_once_it_is_cut_off(path: Path) -> None:
    with kafkalog.open(path, "a") as log:
        log.truncate_to(105)
        log.append([b"v", b"w"])
        assert log.end_offset == END and [record.offset for record in log.records(104)] == [104, 105, 106]
        assert [*log.records(END)] == []

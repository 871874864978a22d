"""Batches with a right checksum whose records have offsets outside them or not rising: no reader ends quietly."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest

import kafkalog
from kafkalog.errors import InvalidRecord
from kafkalog.log.log import Log
from tests import raw_batches
from tests.tools.test_verify_damage import LOG, write_log


@pytest.fixture(params=[[0, 1, 128], [0, 128, 1], [0, 3, 4], [0, 2, 1], [0, 1, 1], [-1, 0, 1]], ids=str)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A partition of three batches; the one in the middle has the offsets 3 to 5 by its header."""
    deltas: list[int] = request.param
    first, second, third = ([(1000, key, b"v")] * 3 for key in (b"a", b"b", b"c"))
    parts = [
        raw_batches.batch(0, first), raw_batches.batch(3, second, deltas=deltas, last_delta=2),
        raw_batches.batch(6, third),
    ]  # fmt: skip
    write_log(tmp_path / "t-0", parts)
    return tmp_path / "t-0"


def offsets(log: Log, start: int, way: str) -> Iterator[int]:
    if way == "records":
        yield from (one.offset for one in log.records(start))
    else:
        for batch in log.scan(["offset"], start=start, batch_rows=2):
            yield from pyarrow.record_batch(batch)["offset"].to_pylist()


@pytest.mark.parametrize("way", ["records", "scan"])
def test_a_reader_gives_what_is_sound_before_it_and_raises(directory: Path, way: str) -> None:
    with kafkalog.open(directory) as log:
        read: list[int] = []
        with pytest.raises(InvalidRecord, match="outside its batch or not above") as caught:
            for offset in offsets(log, 0, way):
                read.append(offset)
        assert caught.value.offset == 3 and caught.value.path == str(directory / LOG)
        assert read[:3] == [0, 1, 2] and set(read[3:]) <= {3, 4, 5}
        assert list(offsets(log, 6, way)) == [6, 7, 8]


def test_a_look_up_by_key_raises(directory: Path) -> None:
    with kafkalog.open(directory) as log, pytest.raises(InvalidRecord, match="outside its batch or not above"):
        log.get(b"b")
    with kafkalog.open(directory) as log, pytest.raises(InvalidRecord, match="outside its batch or not above"):
        log.get_table([b"a", b"x"])

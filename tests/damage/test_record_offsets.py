"""Batches with a right checksum whose records have offsets outside them or not rising: no reader ends quietly."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest

import kafkalog
from kafkalog._core.batch.legacy import MessageSet
from kafkalog.errors import InvalidRecord
from kafkalog.log.log import Log
from kafkalog.records.compression import compress
from tests import raw_batches
from tests.tools.test_verify_damage import LOG

ROWS = {key: [(1000, key, b"v")] * 3 for key in (b"a", b"b", b"c")}


def wrapped(magic: int, first: int, last: int, relative: list[int], key: bytes = b"b") -> bytes:
    """A compressed message of format v0 or v1 with `last` as its offset; the inner offsets are relative in v1."""
    inner, outer = MessageSet(magic), MessageSet(magic)
    for offset in relative:
        inner.append(offset if magic else first + offset, 1000 if magic else -1, key, b"v")
    outer.append(last, 1000 if magic else -1, None, compress(1, inner.build()), attributes=1)
    return bytes(outer.build())


@pytest.fixture(params=[
    (2, [0, 1, 128]), (2, [0, 128, 1]), (2, [0, 3, 4]), (2, [0, 2, 1]), (2, [0, 1, 1]), (2, [-1, 0, 1]),
    (1, [0, 50, 2]), (1, [0, 2, 1]), (1, [1, 0, 2]), (1, [0, 0, 2]), (0, [0, 50, 2]), (0, [0, 1, 128]), (0, [0, 2, 1]),
], ids=str)  # fmt: skip
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A partition of three batches; the one in the middle has the offsets 3 to 5 by its header."""
    magic, deltas = request.param
    if magic == 2:
        parts = [
            raw_batches.batch(0, ROWS[b"a"]), raw_batches.batch(3, ROWS[b"b"], deltas=deltas, last_delta=2),
            raw_batches.batch(6, ROWS[b"c"]),
        ]  # fmt: skip
    else:
        parts = [
            wrapped(magic, 0, 2, [0, 1, 2], b"a"), wrapped(magic, 3, 5, deltas), wrapped(magic, 6, 8, [0, 1, 2], b"c"),
        ]  # fmt: skip
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / LOG).write_bytes(b"".join(parts))
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
        assert caught.value.offset in (3, 5) and caught.value.path == str(directory / LOG)
        assert read[:3] == [0, 1, 2] and set(read[3:]) <= {3, 4, 5}
        assert list(offsets(log, 6, way)) == [6, 7, 8]


def test_a_look_up_by_key_raises(directory: Path) -> None:
    with kafkalog.open(directory) as log, pytest.raises(InvalidRecord, match="outside its batch or not above"):
        log.get(b"b")
    with kafkalog.open(directory) as log, pytest.raises(InvalidRecord, match="outside its batch or not above"):
        log.get_table([b"a", b"x"])

"""Damage that hides the end of a transaction: its records are neither given as committed nor left out in silence."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
import kafkalog.aio
from kafkalog.errors import CorruptRecord
from tests.transactional import Event, index_path, made, marker, snapshot, snapshot_path

EVENTS: list[Event] = [
    ("plain", 0, 2), ("data", 5, 2), ("commit", 5, 0), ("data", 5, 2), ("abort", 5, 0), ("plain", 0, 1),
    ("roll", 0, 0), ("plain", 0, 3),
]  # fmt: skip
"""Offsets 2 and 3 are committed by 4, 5 and 6 aborted by 7."""


def write(directory: Path, events: Iterable[Event], *, has_index: bool = False, has_snapshots: bool = True) -> None:
    """The log's files in a data directory that was closed well."""
    made(list(events)).write(directory)
    for path in directory.iterdir():
        if path.name.endswith("index") and not has_index or path.suffix == ".snapshot" and not has_snapshots:
            path.unlink()
    (directory.parent / ".kafka_cleanshutdown").write_bytes(b"")


def damage_last_byte(path: Path, data: bytes) -> None:
    """Changes the last byte of these bytes in a file."""
    content = bytearray(path.read_bytes())
    content[content.index(data) + len(data) - 1] ^= 1
    path.write_bytes(content)


def read_committed(log: Any, *bounds: int, **options: Any) -> tuple[list[int], str]:
    """The offsets of committed records that a read gives, and the error that ends it."""
    found: list[int] = []
    try:
        for record in log.records(*bounds, isolation="read_committed", **options):
            found.append(record.offset)
    except CorruptRecord as error:
        return found, str(error)
    return found, ""


@pytest.mark.parametrize("mode", ["r", "a"])
def test_records_whose_marker_is_damaged_raise(tmp_path: Path, mode: str) -> None:
    directory = tmp_path / "data" / "t-0"
    write(directory, EVENTS)
    damage_last_byte(directory / f"{0:020d}.log", marker(4, 5, 1))
    with kafkalog.open(directory, mode) as log:  # type: ignore[call-overload]
        found, error = read_committed(log, 0, 4)
        assert found == [0, 1]
        assert "does not match its CRC; the transaction of producer 5 from offset 2 on may end there" in error
        assert read_committed(log, 0, 2) == ([0, 1], "") and read_committed(log, 8) == ([8, 9, 10, 11], "")
        skipped: list[Any] = []
        found = read_committed(log, on_damage="skip", skipped=skipped)
        assert found == ([0, 1, 8, 9, 10, 11], "")  # 7 is the next marker
        assert [piece.offset for piece in skipped] == [4]
        with pytest.raises(CorruptRecord, match="may end there"):
            log.table(stop=4, isolation="read_committed")
        with pytest.raises(CorruptRecord, match="may end there"):
            list(log.batches(0, 4, isolation="read_committed"))


def test_index_decides_where_it_has_the_transaction(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    write(directory, EVENTS, has_index=True)
    damage_last_byte(directory / f"{0:020d}.log", marker(7, 5, 0))
    with kafkalog.open(directory) as log:
        assert read_committed(log, 0, 7) == ([0, 1, 2, 3], "")


def test_read_that_ends_at_a_hidden_marker_raises(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    write(directory, [("plain", 0, 1), ("data", 5, 2), ("commit", 5, 0), ("plain", 0, 1)], has_snapshots=False)
    damage_last_byte(directory / f"{0:020d}.log", marker(3, 5, 1))
    with kafkalog.open(directory) as log:
        assert log._source.last_stable_offset == 1
        found, error = read_committed(log)
        assert found == [0] and "the transaction of producer 5 from offset 1 on may end there" in error
        assert read_committed(log, 0, 1)[0] == [0]


def test_index_of_a_segment_that_was_cut_is_used(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    middle: list[Event] = [("roll", 0, 0), ("abort", 5, 0), ("plain", 0, 1), ("roll", 0, 0)]
    write(directory, [("data", 5, 2), *middle, ("plain", 0, 1)], has_index=True)
    segment = directory / f"{2:020d}.log"
    segment.write_bytes(segment.read_bytes()[:20])
    assert index_path(directory, 2).stat().st_size > 20
    with kafkalog.open(directory) as log:
        assert read_committed(log, on_damage="skip") == ([4], "")


def test_rebuilt_index_has_what_lies_behind_damage(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    write(directory, EVENTS)
    path = directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1  # the first batch
    path.write_bytes(content)
    with kafkalog.open(directory, "a") as log:
        assert read_committed(log, 2) == ([2, 3, 8, 9, 10, 11], "")
        assert [(one.first_offset, one.last_offset) for one in log.aborted_txns] == [(5, 7)]


# name: what follows two records of producer 5 and one of 6 and, in the next segment, a plain one and a COMMIT of 5 that
# is damaged, before a COMMIT of 6; the committed offsets that are left
LOST_ENDS: dict[str, tuple[list[Event], list[int]]] = {
    "no other marker": ([("plain", 0, 1)], [2, 3, 5]),
    "an ABORT of the next transaction": ([("data", 5, 1), ("abort", 5, 0), ("plain", 0, 1)], [2, 3, 7]),
    "a COMMIT of the next transaction": ([("data", 5, 1), ("commit", 5, 0), ("plain", 0, 1)], [0, 1, 2, 3, 5, 7]),
    "a transaction that goes on into the last segment": (
        [("data", 5, 1), ("roll", 0, 0), ("plain", 0, 1), ("commit", 5, 0), ("plain", 0, 1)], [2, 3, 5, 6, 8],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST_ENDS)
def test_transaction_whose_end_is_lost_segments_later(tmp_path: Path, name: str) -> None:
    """The next marker of its producer in the last segment decides; without one its records are left out."""
    more, left = LOST_ENDS[name]
    directory = tmp_path / "data" / "t-0"
    middle: list[Event] = [("roll", 0, 0), ("plain", 0, 1), ("commit", 5, 0), ("roll", 0, 0)]
    write(directory, [("data", 5, 2), ("data", 6, 1), *middle, *more, ("commit", 6, 0)])
    max(directory.glob("*.snapshot")).unlink()  # that of the end: the last segment is scanned
    damage_last_byte(directory / f"{3:020d}.log", marker(4, 5, 1))
    with kafkalog.open(directory) as log:
        assert read_committed(log, on_damage="skip") == (left, "")
        found, error = read_committed(log)
        assert found == [] and "the transaction of producer 5 from offset 0 on may end there" in error


def test_end_of_transaction_that_only_a_snapshot_knows_may_lie_in_damage_behind_it(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    middle: list[Event] = [("roll", 0, 0), ("plain", 0, 1), ("roll", 0, 0)]
    write(directory, [("data", 5, 2), *middle, ("commit", 5, 0), ("plain", 0, 1)])
    max(directory.glob("*.snapshot")).unlink()
    snapshot_path(directory, 3).write_bytes(snapshot({}))
    damage_last_byte(directory / f"{3:020d}.log", marker(3, 5, 1))
    with kafkalog.open(directory) as log:
        found, error = read_committed(log, 0, 2)
        assert found == [] and "the transaction of producer 5 from offset 0 on may end there" in error
        assert read_committed(log, on_damage="skip") == ([2, 4], "")


def test_damage_at_the_logs_end_may_hide_a_marker(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    write(directory, [("plain", 0, 2), ("data", 5, 2), ("roll", 0, 0), ("commit", 5, 0), ("plain", 0, 1)])
    path = directory / f"{4:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    damage_last_byte(path, marker(4, 5, 1))
    with kafkalog.open(directory) as log:
        assert (log.last_stable_offset, log.end_offset) == (2, 4)
        found, error = read_committed(log)
        assert found == [0, 1] and "the transaction of producer 5 from offset 2 on may end there" in error
        assert read_committed(log, 0, 1) == ([0], "")
        assert read_committed(log, on_damage="skip") == ([0, 1], "")
        for read in (
            lambda: log.table(isolation="read_committed"),
            lambda: log.table(where="offset in (0, 5)", isolation="read_committed"),
            lambda: list(log.tail(0, 2, isolation="read_committed")),
            lambda: log.get(b"k", isolation="read_committed"),
            lambda: list(log.history(b"k", isolation="read_committed")),
            lambda: log.latest(in_memory=True, isolation="read_committed"),
        ):
            with pytest.raises(CorruptRecord, match="may end there"):
                read()
        assert len(log.table(where="offset < 1", isolation="read_committed")) == 1
        options: dict[str, Any] = {"store": tmp_path / "cursors", "start": "earliest", "isolation": "read_committed"}
        with log.cursor("c", **options) as cursor, pytest.raises(CorruptRecord, match="may end there"):
            list(cursor)


def test_an_asynchronous_tail_raises_there_too(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    write(directory, [("plain", 0, 2), ("data", 5, 2), ("roll", 0, 0), ("commit", 5, 0), ("plain", 0, 1)])
    path = directory / f"{4:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    damage_last_byte(path, marker(4, 5, 1))

    async def tail() -> None:
        async with await kafkalog.aio.open(directory) as log:
            async for _ in log.tail(0, start=2, isolation="read_committed"):
                pass

    with pytest.raises(CorruptRecord, match="may end there"):
        asyncio.run(tail())

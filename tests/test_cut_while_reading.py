"""Reading a log beside its writer: truncated, rewritten and closed at the worst moment, between two file calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import LogClosed, OffsetOutOfRange
from kafkalog.log.log import Log
from kafkalog.log.open_writable import open_for_append
from kafkalog.util.fileio import FileSystem

pytestmark = pytest.mark.in_memory


class Between(FileSystem):
    """Does `action` once: right after the `nth` read of a file from now on, or right before it for a negative one."""

    def __init__(self) -> None:
        self.arm(0, None)

    def arm(self, nth: int, action: Callable[[], object] | None) -> None:
        self.left, self.before, self.action = abs(nth), nth < 0, action

    def _act(self) -> None:
        action, self.action = self.action, None
        if action is not None:
            action()

    def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
        self.left -= 1
        now = self.left == 0
        if now and self.before:
            self._act()
        data = os.pread(fd, size, position)
        if now:
            self._act()
        return data


@pytest.fixture
def fs() -> Between:
    return Between()


@pytest.fixture
def log(tmp_path: Path, fs: Between) -> Any:
    settings = {"index_interval_bytes": 200, "internal_segment_bytes": 4000}
    opened = open_for_append(tmp_path / "t-0", settings, fs=fs)
    with Log(opened.log, opened) as made:
        for number in range(100):
            made.append((None, b"old %d" % number, number))
        yield made
        fs.arm(0, None)  # a close reads, too


def rewrite(log: Log, offset: int, count: int) -> None:
    """Cut to `offset`, then `count` records in batches of two, longer ones."""
    log.truncate_to(offset)
    for number in range(offset, offset + count, 2):
        log.append([(None, b"new, longer %d" % n, n) for n in (number, number + 1)])


NTH = (-1, 1, -2, 2, 3)
CASES = [(nth, offset, count) for nth in NTH for offset in (1, 55, 97) for count in (0, 2, 40)]


@pytest.mark.parametrize(("nth", "offset", "count"), CASES)
def test_records_go_up_and_are_of_the_log_before_or_after(
    log: Log, fs: Between, nth: int, offset: int, count: int
) -> None:
    """Never a torn batch, never an offset twice; a log that ends earlier now is said to be cut."""
    read = []
    records = log.records(50)
    fs.arm(nth, lambda: rewrite(log, offset, count))
    try:
        read.extend((record.offset, record.value) for record in records)
    except OffsetOutOfRange as cut:
        assert cut.offset is not None and cut.offset >= offset
    offsets = [at for at, _ in read]
    assert offsets == sorted(set(offsets))
    for at, value in read:
        assert value in (b"old %d" % at, b"new, longer %d" % at)
        assert at >= offset or value == b"old %d" % at


@pytest.mark.parametrize("nth", NTH)
@pytest.mark.parametrize("offset", [1, 55, 97])
@pytest.mark.parametrize("count", [0, 2, 40])
def test_a_look_up_is_answered_by_the_log_before_or_after(
    log: Log, fs: Between, nth: int, offset: int, count: int
) -> None:
    fs.arm(nth, lambda: rewrite(log, offset, count))
    try:
        assert log[70].value in (b"old 70", b"new, longer 70")
    except OffsetOutOfRange:
        assert offset + count <= 70
    fs.arm(0, None)
    log.truncate_to(0)
    for number in range(100):
        log.append((None, b"old %d" % number, number))
    fs.arm(nth, lambda: rewrite(log, offset, count))
    found = log.offset_for_time(70)
    assert found is None or (found.offset, found.timestamp) == (70, 70)
    assert found is not None or offset + count <= 70


def test_a_read_beside_a_cut_that_is_going_on_waits_for_it(log: Log, fs: Between) -> None:
    """The engine's read, too: between the file's cut and the new state there is nothing to be seen."""
    cutting, found = threading.Event(), []

    def reader() -> None:
        cutting.wait(60)
        try:
            found.append(log[99].value)
        except OffsetOutOfRange:
            found.append(None)

    thread = threading.Thread(target=reader)
    thread.start()
    fs.arm(-1, cutting.set)
    log.truncate_to(60)
    thread.join(60)
    assert found in ([None], [b"old 99"])


@pytest.mark.parametrize("nth", NTH[:4])
def test_a_log_closed_while_it_is_read_says_so(log: Log, fs: Between, nth: int) -> None:
    """At whichever file call it happens: no bad descriptor is seen, and no segment's name in place of the log's."""
    records = log.records(0)
    fs.arm(nth, log.close)
    with pytest.raises(LogClosed, match="log t-0 is closed"):
        list(records)
        log.append(b"closed before, and no read was left to notice")


@pytest.mark.parametrize("nth", [-1, 1])
@pytest.mark.parametrize("call", [lambda log: log[50], lambda log: log.offset_for_time(50)])
def test_a_look_up_in_a_log_closed_meanwhile_is_answered_or_says_so(
    log: Log, fs: Between, nth: int, call: Callable[[Log], object]
) -> None:
    fs.arm(nth, log.close)
    try:
        call(log)
    except LogClosed as closed:
        assert "log t-0 is closed" in str(closed)
    with pytest.raises(LogClosed, match="log t-0 is closed"):
        call(log)

"""The queue between encoder and logs: written in order, however long packing takes, and nothing after a failure."""

from __future__ import annotations

import random
import threading
import time

import pytest

from kafkalog.errors import InvalidRecord, StorageError
from kafkalog.records.format import CompressionType
from kafkalog.records.packing import PLAIN, Compression
from kafkalog.tools.produce import queue as produce_queue
from kafkalog.tools.produce.queue import WriteQueue
from tests.gates import PATIENCE_S

ZSTD = Compression(CompressionType.ZSTD)


class Journal:
    """A sink that keeps its input, and fails, or is interrupted, on request."""

    def __init__(self, number: int = 0, seen: list[tuple[int, bytes]] | None = None) -> None:
        self.number = number
        self.seen: list[tuple[int, bytes]] = [] if seen is None else seen
        self.packing: dict[bytes, BaseException] = {}
        self.writing: dict[bytes, BaseException] = {}
        self.pause = 0.0
        self.wanted = 0  # so many are packed at once before one is through
        self.reached = threading.Event()
        self.packed_by: set[str] = set()
        self.at_once = 0
        self._working = 0
        self._lock = threading.Lock()

    def pack(self, batches: bytearray, compression: Compression, *, check_records: bool = False) -> bytearray:
        with self._lock:
            self._working += 1
            self.at_once = max(self.at_once, self._working)
            self.packed_by.add(threading.current_thread().name)
            if self.at_once >= self.wanted:
                self.reached.set()
        time.sleep(random.random() * self.pause)
        assert self.reached.wait(PATIENCE_S), "no other group is packed meanwhile"
        with self._lock:
            self._working -= 1
        if bytes(batches) in self.packing:
            raise self.packing[bytes(batches)]
        return batches + (b"+" if check_records else b"")

    def append_packed(self, batches: bytearray) -> object:
        found = self.writing.pop(bytes(batches), None)
        if found is not None:
            raise found
        self.seen.append((self.number, bytes(batches)))
        return None


@pytest.fixture
def sink() -> Journal:
    return Journal()


def fill_queue(sink: Journal, count: int = 20, threads: int = 3) -> WriteQueue:
    queue = WriteQueue([sink], ZSTD, threads=threads)
    for number in range(count):
        queue.put(0, bytearray(b"%d" % number))
    return queue


def groups(*numbers: int) -> list[tuple[int, bytes]]:
    return [(0, b"%d" % number) for number in numbers]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_groups_are_written_in_the_order_they_came(threads: int) -> None:
    seen: list[tuple[int, bytes]] = []
    sinks = [Journal(number, seen) for number in range(3)]
    queue = WriteQueue(sinks, ZSTD, threads=threads)
    given = []
    for number in range(60):
        sinks[number % 3].pause = 0.004
        queue.put(number % 3, bytearray(b"%d" % number))
        given.append((number % 3, b"%d" % number))
        assert queue.waiting <= 2 * threads
    queue.drain()
    queue.close()
    assert seen == given and queue.waiting == 0
    names = set().union(*(sink.packed_by for sink in sinks))
    assert names == {"MainThread"} if threads == 1 else "kafkalog-pack" in names


def test_several_are_packed_at_once(sink: Journal) -> None:
    sink.wanted = 2
    queue = fill_queue(sink, 12, threads=4)
    queue.drain()
    queue.close()
    assert sink.at_once >= 2


def test_large_groups_do_not_pile_up(sink: Journal) -> None:
    """Memory is bounded in bytes too; a group that is larger than the bound waits alone."""
    queue = WriteQueue([sink], ZSTD, threads=8)
    for size, waiting in ((30, 1), (30, 2), (30, 2), (1, 3), (90, 1), (1, 1)):
        queue.put(0, bytearray(size << 20))
        assert queue.waiting == waiting
    queue.drain()
    queue.close()
    assert [len(group) >> 20 for _, group in sink.seen] == [30, 30, 30, 1, 90, 1]


def test_without_a_codec_everything_is_written_at_once(sink: Journal) -> None:
    queue = WriteQueue([sink], PLAIN, threads=4)
    for number in range(3):
        queue.put(0, bytearray(b"%d" % number))
        assert queue.waiting == 0
    queue.close()
    assert sink.seen == groups(0, 1, 2) and sink.packed_by == {"MainThread"}


def test_one_group_needs_no_thread(sink: Journal) -> None:
    before = set(threading.enumerate())
    queue = fill_queue(sink, 1)
    assert set(threading.enumerate()) <= before and queue.waiting == 1
    queue.drain()
    assert sink.seen == groups(0) and sink.packed_by == {"MainThread"}


def test_strict_asks_for_a_look_at_the_records(sink: Journal) -> None:
    queue = WriteQueue([sink], ZSTD, strict=True, threads=1)
    queue.put(0, bytearray(b"0"))
    queue.drain()
    assert sink.seen == [(0, b"0+")]


@pytest.mark.parametrize("threads", [1, 3])
def test_what_packing_meets_is_raised_in_its_turn(sink: Journal, threads: int) -> None:
    sink.packing[b"7"] = InvalidRecord("no key")
    queue = WriteQueue([sink], ZSTD, threads=threads)
    with pytest.raises(InvalidRecord, match="no key"):
        for number in range(40):
            queue.put(0, bytearray(b"%d" % number))
    queue.drain()
    queue.close()
    assert sink.seen == groups(*range(7)), "and nothing that came after it is written"


@pytest.mark.parametrize("threads", [1, 3])
def test_nothing_is_written_after_a_write_that_failed(sink: Journal, threads: int) -> None:
    sink.writing[b"5"] = StorageError("disk full")
    queue = WriteQueue([sink], ZSTD, threads=threads)
    with pytest.raises(StorageError):
        for number in range(40):
            queue.put(0, bytearray(b"%d" % number))
    assert queue.stopped
    queue.drain()
    queue.close()
    assert sink.seen == groups(*range(5))


def test_an_interrupt_while_waiting_loses_nothing(sink: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C: what was read is written then."""
    queue = fill_queue(sink, 6)
    result = produce_queue._Job.result

    def interrupted(job: object) -> object:
        monkeypatch.setattr(produce_queue._Job, "result", result)
        raise KeyboardInterrupt

    monkeypatch.setattr(produce_queue._Job, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.drain()
    assert not queue.stopped
    queue.drain()
    queue.close()
    assert sink.seen == groups(*range(6))


def test_an_interrupt_while_packing_here_loses_nothing(sink: Journal) -> None:
    sink.packing[b"0"] = KeyboardInterrupt()
    queue = fill_queue(sink, 1)
    with pytest.raises(KeyboardInterrupt):
        queue.drain()
    sink.packing.clear()
    queue.drain()
    assert sink.seen == groups(0)


def test_an_interrupt_within_a_write_ends_it(sink: Journal) -> None:
    """The result of that write is unknown here: further writes might leave a gap."""
    queue = fill_queue(sink, 4)
    sink.writing[b"2"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        queue.drain()
    queue.drain()
    queue.close()
    assert sink.seen == groups(0, 1)


def test_close_ends_the_threads(sink: Journal) -> None:
    before = set(threading.enumerate())
    sink.pause = 0.01
    queue = fill_queue(sink, 6)
    assert set(threading.enumerate()) > before
    queue.close()
    assert set(threading.enumerate()) <= before
    queue.close()

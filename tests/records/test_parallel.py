"""Codecs, scan and decode let other threads run: the interpreter lock is given up meanwhile."""

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.compression import compress, decompress
from kafkalog.records.format import CompressionType
from kafkalog.records.tables import record_tables

TEXT = b"a text that repeats itself now and then, %d times; " * 80_000
TRIES = 200


@pytest.fixture(autouse=True)
def no_switching() -> Iterator[None]:
    """Threads change only where one waits or gives up the lock by itself."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def runs_beside_others(work: Callable[[], object]) -> bool:
    """Return True if another thread ran during `work`; retry, since a loaded machine may wake it too late."""
    return any(_once(work) for _ in range(TRIES))


def _once(work: Callable[[], object]) -> bool:
    begin, ready = threading.Event(), threading.Event()
    finished = False
    beside: list[bool] = []

    def other() -> None:
        ready.set()
        begin.wait()
        beside.append(not finished)

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait()
    begin.set()
    work()
    finished = True
    thread.join()
    return beside == [True]


def test_work_that_keeps_the_lock_is_seen() -> None:
    assert not _once(lambda: sum(range(300_000)))


@pytest.mark.parametrize("codec", [c for c in CompressionType if c])
def test_codecs(codec: CompressionType) -> None:
    data = bytes(compress(codec, TEXT))
    assert runs_beside_others(lambda: decompress(codec, data))
    assert runs_beside_others(lambda: compress(codec, TEXT))


def test_scan_and_decode() -> None:
    builder = RecordsBuilder()
    for n in range(10_000):
        builder.append(n, None, b"some value %d" % n)
    data = bytes(builder.build()) * 200
    table = scan(data)
    assert runs_beside_others(lambda: scan(data))
    assert runs_beside_others(lambda: decode(data, table))
    assert len(decode(data, table)) == 2_000_000


@pytest.mark.parametrize("codec", CompressionType)
def test_runs_of_batches(codec: CompressionType) -> None:
    """Four threads, one run of batches each: every thread has its own records, all of them."""
    runs = []
    for n in range(4):
        builder = RecordsBuilder(1000 * n, compression=codec)
        for k in range(1000):
            builder.append(k, b"%d" % n, b"value %d " % k * (n + 1))
        runs.append(bytes(builder.build()) * 20)
    found: list[set[tuple[int, int, bytes | None]]] = [set() for _ in runs]
    counts = [0] * len(runs)

    def read(n: int) -> None:
        for table in record_tables(runs[n], scan(runs[n])):
            counts[n] += len(table)
            found[n] |= {(r.offset, len(r.value or b""), r.key) for r in table}

    threads = [threading.Thread(target=read, args=(n,)) for n in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [20_000] * 4
    for n, rows in enumerate(found):
        assert rows == {(1000 * n + k, len(b"value %d " % k) * (n + 1), b"%d" % n) for k in range(1000)}

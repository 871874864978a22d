"""`log.writer()`: handles, batching by exact size, order, bounded memory, failures, closing."""

from __future__ import annotations

import gc
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import (
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    KafkalogError,
    LogClosed,
    RecordTooLarge,
    StorageError,
)
from tests.faults import FaultFS
from tests.open_logs import open_log

NOW = 1_700_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        yield log


def test_a_handle_gives_the_offset(log: Any) -> None:
    with log.writer() as writer:
        handles = [writer.append(b"%d" % number, key=b"k") for number in range(100)]
        assert [handle.result(60) for handle in handles] == list(range(100))
        assert all(handle.done() for handle in handles)
        assert repr(handles[7]) == "<Pending @7>"
    assert [record.value for record in log] == [b"%d" % number for number in range(100)]


def test_append_keeps_key_time_and_headers(log: Any) -> None:
    with log.writer() as writer:
        writer.append(b"v", b"k", NOW, [("h", b"1"), ("h", None)])
        writer.append(None, b"k")
    first, second = log
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", NOW)
    assert tuple(first.headers) == (("h", b"1"), ("h", None))
    assert second.value is None and second.timestamp > NOW


def test_a_batch_closes_when_the_next_record_would_pass_the_limit(log: Any) -> None:
    """The exact encoded size counts, the 61-byte header with it: one byte more makes a new batch."""
    five = len(encode_batch([b"x" * 20] * 5, timestamp=NOW))
    for limit, batches in ((five, [5, 5]), (five - 1, [4, 4, 2]), (five + 1, [5, 5])):
        start = log.end_offset
        with log.writer(linger_ms=60_000, batch_bytes=limit) as writer:
            for _ in range(10):
                writer.append(b"x" * 20, timestamp=NOW)
        assert [batch.header.count for batch in log.batches(start)] == batches


def test_the_default_limit_is_16384_bytes(log: Any) -> None:
    with log.writer(linger_ms=60_000) as writer:
        for number in range(2000):
            writer.append(b"hello lagou %d" % (number + 1), timestamp=NOW)
    sizes = [batch.header.size for batch in log.batches()]
    assert len(sizes) > 2 and all(16_384 - 30 < size <= 16_384 for size in sizes[:-1])


def test_a_record_larger_than_the_limit_gets_a_batch_of_its_own(log: Any) -> None:
    with log.writer(linger_ms=60_000, batch_bytes=100) as writer:
        writer.append(b"a")
        writer.append(b"b" * 5000)
        writer.append(b"c")
    assert [batch.header.count for batch in log.batches()] == [1, 1, 1]


def test_a_batch_closes_after_the_linger_time(log: Any) -> None:
    with log.writer(linger_ms=1) as writer:
        handle = writer.append(b"v")
        assert handle.result(30) == 0


def test_without_linger_time_nothing_is_written_until_asked(log: Any) -> None:
    with log.writer(linger_ms=600_000) as writer:
        handle = writer.append(b"v")
        with pytest.raises(TimeoutError):
            handle.result(0.02)
        assert not handle.done() and repr(handle) == "<Pending>" and log.end_offset == 0
        writer.flush()
        assert handle.done() and log.end_offset == 1
        writer.flush()


def test_many_threads_keep_each_its_order(log: Any) -> None:
    def run(name: bytes) -> None:
        for number in range(500):
            results[name].append(writer.append(b"%s %d" % (name, number)))

    names = [b"a", b"b", b"c", b"d"]
    results: dict[bytes, list[Any]] = {name: [] for name in names}
    with log.writer(batch_bytes=700) as writer:
        threads = [threading.Thread(target=run, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = [record.value for record in log]
    assert len(stored) == 2000
    for name in names:
        assert [value for value in stored if value.startswith(name)] == [b"%s %d" % (name, n) for n in range(500)]
        offsets = [handle.result(0) for handle in results[name]]
        assert offsets == sorted(offsets)
        assert [stored[offset] for offset in offsets] == [b"%s %d" % (name, n) for n in range(500)]


def test_memory_is_bounded_and_append_then_waits(tmp_path: Path) -> None:
    fs = FaultFS()
    gate = threading.Event()
    with open_log(tmp_path / "t-0", fs=fs) as log:
        real, fs_pwrite = log._opened.append_ready, threading.Event()

        def slow(*args: Any, **named: Any) -> Any:
            fs_pwrite.set()
            gate.wait(30)
            return real(*args, **named)

        log._opened.append_ready = slow
        writer = log.writer(linger_ms=0, batch_bytes=1000, buffer_memory=5000)
        count = 0

        def fill() -> None:
            nonlocal count
            for _ in range(200):
                writer.append(b"x" * 200)
                count += 1

        thread = threading.Thread(target=fill)
        thread.start()
        assert fs_pwrite.wait(30)
        while not count:
            time.sleep(0.001)
        thread.join(0.3)
        assert thread.is_alive() and 0 < count < 60, "append blocks while nothing is written"
        gate.set()
        thread.join(30)
        writer.close()
        assert count == 200 and log.end_offset == 200


def test_a_refused_record_spoils_nothing(tmp_path: Path) -> None:
    with (
        kafkalog.open(tmp_path / "t-0", "a", max_message_bytes=1000, cleanup_policy="compact") as log,
        log.writer(linger_ms=60_000) as writer,
    ):
        writer.append(b"1", b"k")
        with pytest.raises(TypeError, match="encode"):
            writer.append("text", b"k")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            writer.append(b"v", b"k", None, [("h", "text")])  # type: ignore[list-item]
        with pytest.raises(RecordTooLarge, match="1000"):
            writer.append(b"x" * 1000, b"k")
        with pytest.raises(InvalidTimestamp, match="negative"):
            writer.append(b"v", b"k", -5)
        with pytest.raises(InvalidTimestamp):
            writer.append(b"v", b"k", int(time.time() * 1000) + 10**8)
        with pytest.raises(InvalidRecord, match="key"):
            writer.append(b"v")
        assert writer.append(b"2", b"k").result is not None
        writer.flush()
        assert [record.value for record in log] == [b"1", b"2"]


def test_a_failed_write_fails_its_handles_and_all_later_calls(tmp_path: Path) -> None:
    fs = FaultFS()
    log = open_log(tmp_path / "t-0", fs=fs)
    writer = log.writer(linger_ms=60_000)
    written = writer.append(b"good")
    writer.flush()
    fs.fail("pwrite", "pwritev", path=".log", partial=5)
    lost = [writer.append(b"bad"), writer.append(b"bad")]
    with pytest.raises(StorageError) as failure:
        writer.flush()
    assert failure.value.path.endswith(".log")
    fs.heal()
    assert written.result(0) == 0
    for handle in lost:
        assert handle.done() and "StorageError" in repr(handle)
        with pytest.raises(StorageError):
            handle.result(0)
    with pytest.raises(StorageError):
        writer.append(b"more")
    with pytest.raises(StorageError):
        writer.close()
    writer.close()
    try:
        log.close()
    except KafkalogError:
        pass
    with kafkalog.open(log.path) as read:
        assert [record.value for record in read] == [b"good"]


def test_sync_true_has_results_on_disk(tmp_path: Path) -> None:
    fs = FaultFS()
    with open_log(tmp_path / "t-0", fs=fs) as log, log.writer(sync=True) as writer:
        fs.calls.clear()
        writer.append(b"v").result(30)
        ops = [call.op for call in fs.calls if call.path.endswith(".log")]
        assert "pwrite" in ops and ops.index("pwrite") < max(
            at for at, op in enumerate(ops) if op in ("fsync", "fdatasync")
        )


def test_a_failed_sync_fails_the_handle(tmp_path: Path) -> None:
    fs = FaultFS()
    log = open_log(tmp_path / "t-0", fs=fs)
    writer = log.writer(sync=True)
    fs.fail("fsync", "fdatasync", path=".log")
    with pytest.raises(StorageError):
        writer.append(b"v").result(30)
    with pytest.raises(StorageError):
        writer.append(b"v")
    fs.heal()
    with pytest.raises(StorageError):
        writer.close()
    try:
        log.close()
    except KafkalogError:
        pass


def test_a_closed_writer_says_so_and_the_log_stays_open(log: Any) -> None:
    writer = log.writer(linger_ms=60_000)
    handle = writer.append(b"v")
    writer.close()
    writer.close()
    assert writer.closed and handle.result(0) == 0
    with pytest.raises(LogClosed, match="writer of log t-0 is closed"):
        writer.append(b"v")
    log.append(b"w")
    assert log.end_offset == 2
    assert "closed" in repr(writer)


def test_closing_the_log_writes_what_its_writers_hold(tmp_path: Path) -> None:
    log = kafkalog.open(tmp_path / "t-0", "a")
    writer = log.writer(linger_ms=60_000)
    handle = writer.append(b"v")
    log.close()
    assert handle.result(0) == 0 and writer.closed
    with kafkalog.open(tmp_path / "t-0") as read:
        assert [record.value for record in read] == [b"v"]


def test_a_dropped_writer_warns_and_writes_what_it_holds(log: Any) -> None:
    writer = log.writer(linger_ms=60_000)
    handle = writer.append(b"v")
    with pytest.warns(ResourceWarning, match="unclosed writer"):
        del writer
        gc.collect()
    assert handle.result(30) == 0


def test_a_writer_keeps_its_log_open(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a").writer() as writer:
        gc.collect()
        assert writer.append(b"v").result(30) == 0
        log = writer._log
    log.close()


def test_bad_arguments_are_refused(log: Any) -> None:
    for named in (
        {"linger_ms": -1}, {"linger_ms": float("nan")}, {"linger_ms": float("inf")}, {"batch_bytes": -1},
        {"buffer_memory": 0}, {"sync": 0},
    ):  # fmt: skip
        with pytest.raises(IllegalArgument):
            log.writer(**named)


def test_a_time_is_ms_or_a_datetime_and_fits_64_bits(log: Any) -> None:
    """The same rule as for `Log.append`, and nothing is cut off silently."""
    moment = datetime(2026, 11, 20, 12, 0, 0, 1999, tzinfo=UTC)
    with log.writer() as writer:
        writer.append(b"v", timestamp=moment)
        for wrong in (1.5, "2026", True and b"5"):
            with pytest.raises(TypeError, match="a timestamp is a"):
                writer.append(b"v", timestamp=wrong)
        for outside in (2**63, 2**70, -1, -(2**70)):
            with pytest.raises(InvalidTimestamp):
                writer.append(b"v", timestamp=outside)
    log.append((None, b"v", moment))
    with pytest.raises(InvalidTimestamp):
        log.append((None, b"v", 2**63))
    assert [record.timestamp for record in log] == [1795176000001] * 2


def test_leaving_the_block_by_an_error_still_writes(log: Any) -> None:
    with pytest.raises(ZeroDivisionError), log.writer(linger_ms=60_000) as writer:
        writer.append(b"v")
        raise ZeroDivisionError
    assert log.end_offset == 1


@pytest.mark.parametrize("fails", [False, True])
def test_threads_that_append_while_it_ends_are_answered_or_refused(tmp_path: Path, fails: bool) -> None:
    """No handle waits for ever, and every record that has an offset is in the log."""
    for turn in range(20):
        fs = FaultFS()
        log = open_log(tmp_path / f"t-{turn}", fs=fs)
        writer = log.writer(linger_ms=0, batch_bytes=200, buffer_memory=1000)
        handles: list[Any] = []

        def run(writer: Any = writer, handles: list[Any] = handles) -> None:
            try:
                for number in range(10_000):
                    handles.append((number, writer.append(b"%d" % number)))
            except KafkalogError:
                pass

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        while len(handles) < 100 * turn:
            time.sleep(0.001)
        if fails:
            fs.fail("pwrite", "pwritev", path=".log")
        try:
            writer.close() if not fails else writer.flush()
        except KafkalogError:
            pass
        if not fails:
            assert writer.closed
        for thread in threads:
            thread.join(60)
        fs.heal()
        answered = {}
        for number, handle in handles:
            try:
                answered[handle.result(60)] = number
            except KafkalogError:
                assert fails
        assert [record.value for record in log] == [b"%d" % answered[at] for at in range(len(answered))]
        for end in (writer.close, log.close):
            try:
                end()
            except KafkalogError:
                assert fails


def test_appends_beside_a_writer_take_their_turn(log: Any) -> None:
    with log.writer(linger_ms=0) as writer:
        handles = []
        for number in range(200):
            handles.append(writer.append(b"w%d" % number))
            log.append(b"a%d" % number)
    assert log.end_offset == 400
    stored = [record.value for record in log]
    assert [stored[handle.result(0)] for handle in handles] == [b"w%d" % number for number in range(200)]


def test_headers_that_come_from_the_callers_own_code(log: Any) -> None:
    """An iterator may append by itself, and gives what it has only once: also where its record begins a new batch."""
    with log.writer(batch_bytes=200) as writer:

        def headers() -> Any:
            handles.append(writer.append(b"inner"))
            yield "a", b"1"

        handles: list[Any] = []
        for _ in range(20):
            handles.append(writer.append(bytes(40), headers=headers()))
    assert [handle.result() for handle in handles] == list(range(40))
    assert [record.headers for record in log] == [(), (("a", b"1"),)] * 20


def test_a_header_name_that_is_no_text(log: Any) -> None:
    bad = [("\ud800", b"x")]
    with log.writer() as writer:
        with pytest.raises(InvalidRecord, match="surrogates") as refused:
            writer.append(b"v", headers=bad)
        assert refused.value.path == log.path and refused.value.record_errors
        assert writer.append(b"w").result() == 0
    with pytest.raises(InvalidRecord, match="surrogates") as refused:
        log.append([b"v", (None, b"v", NOW, bad)])
    assert refused.value.record_errors[0][0] == 1
    assert [record.value for record in log] == [b"w"]

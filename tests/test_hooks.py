"""`kafkalog.hooks`: listeners get the right events, in order and with the right values, and can harm nothing."""

import errno
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import hooks, metrics
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.storage.log import UnifiedLog
from tests.faults import FaultFS
from tests.storage.logs import append_batches, log, run


@pytest.fixture
def events() -> Iterator[list[hooks.Event]]:
    """Every event, in order."""
    collected: list[hooks.Event] = []
    with ExitStack() as stack:
        for name in hooks.EVENTS:
            stack.enter_context(hooks.on(name, collected.append))
        yield collected


def events_named(events: list[hooks.Event], name: str) -> list[dict[str, Any]]:
    return [dict(event.values) for event in events if event.name == name]


def test_events_of_a_log(tmp_path: Path, events: list[hooks.Event]) -> None:
    a_log = log(tmp_path, internal_segment_bytes=500)
    (opened,) = events_named(events, "open")
    assert opened.pop("duration_ms") > 0
    assert opened == {"recovered": False, "log_start_offset": 0, "log_end_offset": 0}
    append_batches(a_log, times=6)
    assert events_named(events, "append")[5] == {"first_offset": 5, "last_offset": 5, "size": 100}
    assert events_named(events, "roll") == [{"base_offset": 5}]
    a_log.flush()
    assert [event["offset"] for event in events_named(events, "flush")] == [6]
    a_log.delete_before(5)
    assert events_named(events, "delete") == [{"base_offsets": (0,), "size": 500, "reason": "log_start"}]
    append_batches(a_log)
    a_log.truncate_to(6)
    assert events_named(events, "truncate") == [{"offset": 6, "log_end_offset": 7}]
    a_log.close()
    assert events_named(events, "close") == [{"log_end_offset": 6}]
    assert {event.path for event in events} == {str(tmp_path / "topic-0")}
    assert {str(event.topic_partition) for event in events} == {"topic-0"}
    assert set(hooks.EVENTS) - {event.name for event in events} == {"flush_error"}


def test_a_group_of_batches_is_told_write_by_write(tmp_path: Path, events: list[hooks.Event]) -> None:
    a_log = log(tmp_path, internal_segment_bytes=500)
    a_log.append_batches(bytearray(run(0, 7)))
    assert events_named(events, "append") == [
        {"first_offset": 0, "last_offset": 4, "size": 500}, {"first_offset": 5, "last_offset": 6, "size": 200},
    ]  # fmt: skip
    a_log.close()


def test_a_failed_flush_is_told(tmp_path: Path, events: list[hooks.Event]) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log)
    fs.fail("fdatasync", "fsync", code=errno.EIO)
    with pytest.raises(StorageError):
        a_log.flush()
    (failed,) = events_named(events, "flush_error")
    assert failed["error"].errno == errno.EIO
    a_log.close_handlers()


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, GeneratorExit])
def test_a_hook_that_raises_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def bad(event: hooks.Event) -> None:
        raise error

    def count() -> int:
        (row,) = metrics.snapshot()["kafkalog_hook_failures_total"]
        return int(row["value"])

    before, collected = count(), []
    with ExitStack() as stack:
        for name in hooks.EVENTS:
            stack.enter_context(hooks.on(name, bad))
        stack.enter_context(hooks.on("append", collected.append))
        with kafkalog.open(tmp_path / "t-0", "a", sync=True) as a_log:
            for number in range(5):
                assert a_log.append(b"v").first_offset == number
            a_log.roll()
            a_log.truncate_to(2)
    assert count() > before + 10 and len(collected) == 5 and "failed" in caplog.text
    with kafkalog.open(tmp_path / "t-0") as a_log:
        assert [record.offset for record in a_log] == [0, 1] and a_log.verify().ok


def test_ctrl_c_in_a_hook_comes_through_and_the_record_is_there(tmp_path: Path) -> None:
    def interrupted(event: hooks.Event) -> None:
        raise KeyboardInterrupt

    with kafkalog.open(tmp_path / "t-0", "a") as a_log:
        with hooks.on("append", interrupted), pytest.raises(KeyboardInterrupt):
            a_log.append(b"v")
        assert a_log.append(b"w").first_offset == 1 and a_log.end_offset == 2


def test_a_hook_may_use_the_log_and_is_not_told_of_that(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as a_log:
        ends = []

        def copies(event: hooks.Event) -> None:
            ends.append(a_log.end_offset)
            a_log.append(b"from the hook")

        with hooks.on("append", copies):
            a_log.append(b"a")
            a_log.append(b"b")
        assert ends == [1, 3] and a_log.end_offset == 4


def test_removing(tmp_path: Path) -> None:
    collected: list[hooks.Event] = []
    hook = hooks.on("append", collected.append)
    with kafkalog.open(tmp_path / "t-0", "a") as a_log:
        a_log.append(b"v")
        hook.remove()
        hook.remove()
        a_log.append(b"v")
    assert len(collected) == 1 and repr(hook).startswith("<Hook on append")


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(IllegalArgument, match="events are open, append"):
        hooks.on("appended", print)
    with pytest.raises(TypeError, match="must be callable"):
        hooks.on("append", "print")  # type: ignore[arg-type]


def test_every_append_of_many_threads_is_told_once(tmp_path: Path) -> None:
    collected: list[int] = []
    with hooks.on("append", lambda event: collected.append(event.values["first_offset"])):
        with kafkalog.open(tmp_path / "t-0", "a") as a_log:
            threads = [
                threading.Thread(target=lambda: [a_log.append(b"v") for _ in range(200)] and None) for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert sorted(collected) == list(range(800))


def test_without_hooks_nothing_waits_to_be_told(tmp_path: Path) -> None:
    a_log: UnifiedLog = log(tmp_path)
    append_batches(a_log)
    assert a_log._core.after_unlock == []
    a_log.close()

"""`sync=`: what is taken, and the background flush."""

import threading
from typing import Any

import pytest

from kafkalog.errors import IllegalArgument, IllegalState, StorageError
from kafkalog.storage.group_commit import BackgroundFlush, again, check_sync


@pytest.mark.parametrize("sync", [True, False, 1, 0.5, 10_000])
def test_what_is_taken(sync: Any) -> None:
    assert check_sync(sync) is sync


@pytest.mark.parametrize("sync", [0, -1, 2**40, "yes", None, float("nan"), float("inf")])
def test_what_is_not(sync: Any) -> None:
    with pytest.raises(IllegalArgument, match="sync"):
        check_sync(sync)


def test_one_flush_serves_all_that_was_touched_before() -> None:
    flushed, go = threading.Event(), threading.Event()
    count = 0

    def flush() -> None:
        nonlocal count
        count += 1
        flushed.set()
        go.wait(30)

    background = BackgroundFlush(flush, 1, "t-0")
    for _ in range(50):
        background.touch()
    assert flushed.wait(30)
    go.set()
    background.close()
    assert 1 <= count <= 2


def test_without_data_nothing_is_flushed() -> None:
    calls: list[int] = []
    background = BackgroundFlush(lambda: calls.append(1), 1, "t-0")
    background.close()
    assert calls == []


def test_a_failed_flush_is_told_at_every_later_touch() -> None:
    failed = threading.Event()

    def flush() -> None:
        failed.set()
        raise StorageError("no", errno=5, path="x")

    background = BackgroundFlush(flush, 1, "t-0")
    background.touch()
    assert failed.wait(30)
    background._thread.join(30)
    for _ in range(2):
        with pytest.raises(StorageError) as raised:
            background.touch()
        assert raised.value.errno == 5
    background.close()


def test_an_error_told_again_is_a_copy_that_names_its_cause() -> None:
    first = StorageError("full", errno=28, path="x")
    copy = again(first)
    assert isinstance(copy, StorageError) and copy is not first
    assert (copy.errno, copy.path, copy.__cause__) == (28, "x", first)
    other = again(ZeroDivisionError())
    assert isinstance(other, IllegalState) and isinstance(other.__cause__, ZeroDivisionError)

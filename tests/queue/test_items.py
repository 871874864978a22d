"""Items of a queue by themselves, and the names that a queue may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkalog.errors import IllegalArgument, InvalidRecordState, LogClosed
from kafkalog.queue.item import Item
from kafkalog.queue.opening import check_name, connect
from kafkalog.queue.queue import WorkQueue, end_finish, leases_of
from kafkalog.queue.worker import ACCEPT, REJECT, RELEASE, RENEW, Acquired, Lease
from kafkalog.types import TopicPartition


def item(offset: int, finish: Any = None) -> Item:
    record: Any = type("Record", (), {"offset": offset})()
    return Item(Acquired(record, TopicPartition("tasks", 3), 2, Lease(0, 1, 3, offset)), finish)


def test_each_call_of_an_item_finishes_it_in_its_way() -> None:
    calls: list[tuple[int, Sequence[Item]]] = []
    one = item(5, lambda kind, items: calls.append((kind, items)))
    for call in (one.ack, one.release, one.reject, one.renew):
        call()
    assert calls == [(kind, (one,)) for kind in (ACCEPT, RELEASE, REJECT, RENEW)]
    assert repr(one) == "<Item tasks-3 offset 5, delivery 2>"


def test_the_end_of_a_block_finishes_what_is_not_finished() -> None:
    for is_finished, expected in ((False, [ACCEPT, RELEASE]), (True, [])):
        calls: list[int] = []
        one = item(5, lambda kind, items, calls=calls: calls.append(kind))
        one.is_finished = is_finished
        with one:
            pass
        with pytest.raises(KeyError), one:
            raise KeyError
        assert calls == expected


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT, RENEW])
def test_items_of_a_call_that_failed_for_some(kind: int) -> None:
    items = [item(offset) for offset in range(3)]
    leases = leases_of(items)
    assert [one.offset for one in leases] == [0, 1, 2]
    with pytest.raises(InvalidRecordState, match="lost"):
        end_finish(kind, items, [], {leases[1]: InvalidRecordState("lost")})
    assert [one.is_finished for one in items] == [kind != RENEW, False, kind != RENEW]
    finished = [one for one in items if one.is_finished]
    assert leases_of(items) == [one for one, of in zip(leases, items, strict=True) if not of.is_finished]
    if finished:
        with pytest.raises(InvalidRecordState, match="offset 0 of tasks-3 is finished already"):
            end_finish(kind, items, finished, {})
    else:
        end_finish(kind, items, finished, {})
    assert all(one.is_finished for one in items) == (kind != RENEW)


class Asked:
    """What runs a queue without records: it notes what it is asked for."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.asked: list[Any] = []

    def begin_acquire(self, *given: Any) -> str:
        self.asked.append(given)
        return "acquiring"

    def begin_acknowledge(self, kind: int, leases: Sequence[Lease]) -> str:
        self.asked.append((kind, list(leases)))
        return "acknowledging"

    def wait(self, future: str) -> Any:
        if self.error is not None:
            raise self.error
        return [] if future == "acquiring" else {}

    def give_back(self, future: str) -> None:
        self.asked.append(f"given back: {future}")

    def close(self) -> None:
        self.asked.append("closed")


def queue_of(worker: Any) -> WorkQueue:
    return WorkQueue("workers", "tasks", worker)


def test_a_call_without_arguments_takes_up_to_500_records_and_waits_for_none() -> None:
    worker = Asked()
    queue = queue_of(worker)
    assert queue.acquire() == queue.acquire(1, None) == queue.acquire(max_records=7, timeout=0.5) == []
    assert worker.asked == [(500, 0), (1, None), (7, 0.5)]


def test_records_of_a_call_that_was_interrupted_are_given_back() -> None:
    worker = Asked(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        queue_of(worker).acquire()
    assert worker.asked == [(500, 0), "given back: acquiring"]


def test_each_call_of_a_queue_finishes_items_in_its_way() -> None:
    worker, items = Asked(), [item(offset) for offset in range(2)]
    queue, leases = queue_of(worker), leases_of(items)
    for call in (queue.renew, queue.ack, queue.release, queue.reject):
        for one in items:
            one.is_finished = False
        call(iter(items))
        assert [one.is_finished for one in items] == [call != queue.renew] * 2
    assert worker.asked == [(kind, leases) for kind in (RENEW, ACCEPT, RELEASE, REJECT)]


def test_a_queue_is_closed_once() -> None:
    worker = Asked()
    queue = queue_of(worker)
    with queue as entered:
        assert entered is queue and not queue.closed
        assert repr(queue) == "<WorkQueue workers of topic tasks>"
    queue.close()
    assert queue.closed and worker.asked == ["closed"]
    assert repr(queue) == "<WorkQueue workers of topic tasks closed>"
    with pytest.raises(LogClosed), queue:
        pass


def test_names_of_queues_take_up_to_32767_bytes() -> None:
    for name in ("a", "a" * 32_767, "ü" * 16_383 + "a"):
        check_name(name)
    for name, size in (("", 0), ("a" * 32_768, 32_768), ("ü" * 16_384, 32_768)):
        with pytest.raises(IllegalArgument, match=f"1 to 32767 bytes of UTF-8, not {size}"):
            check_name(name)
        with pytest.raises(IllegalArgument, match=f"not {size}"):
            connect("127.0.0.1:1", "tasks", name)

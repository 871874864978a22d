"""Work queues on open data directories: the server's share partitions in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")

import kafkalog
from kafkalog.errors import (
    ConfigError,
    IllegalArgument,
    IllegalState,
    InvalidRecordState,
    InvalidRequest,
    LogClosed,
    ReadOnlyLog,
    UnknownTopicOrPartition,
)
from kafkalog.queue import Item
from kafkalog.server.client.errors import PeerError
from tests.server.nodes import call

SMALL: dict[str, Any] = {"log_cleaner_enable": False}
LONG_S = 60


def values(items: Iterable[Item]) -> list[tuple[bytes | None, int]]:
    """The values of items with their delivery counts."""
    return [(one.value, one.delivery_count) for one in items]


def test_a_record_goes_to_one_worker_until_it_is_finished(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 2)
        dirs["tasks", 0].append([b"a", b"b", b"c", b"d"])
        tasks = dirs["tasks"]
        with tasks.queue("workers") as one, tasks.queue("workers") as other:
            mine = one.acquire(3)
            assert values(mine) == [(b"a", 1), (b"b", 1), (b"c", 1)]
            assert values(other.acquire()) == [(b"d", 1)]
            mine[0].ack()
            mine[1].release()
            mine[2].reject()
            again = other.acquire()
            assert values(again) == [(b"b", 2)]
            with pytest.raises(InvalidRecordState):
                mine[1].ack()
            other.ack(again)
            assert one.acquire() == [] == other.acquire(timeout=0.01)
        # what the other worker had when it left comes again
        with tasks.queue("workers") as later, tasks.queue("others") as another:
            assert values(later.acquire()) == [(b"d", 2)]
            assert [one.value for one in another.acquire()] == [b"a", b"b", b"c", b"d"]


def test_one_that_is_lost_does_not_hold_back_the_others(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs["tasks", 0].append([b"%d" % n for n in range(6)])
        with dirs["tasks"].queue("workers") as queue, dirs["tasks"].queue("workers") as other:
            items = queue.acquire()
            lost = items[2]
            lost.release()
            [again] = other.acquire()
            lost.is_finished = False  # as after its lock has expired
            with pytest.raises(InvalidRecordState):
                queue.ack(items[:4])
            assert [one.is_finished for one in items] == [True, True, False, True, False, False]
            queue.ack([items[4], items[4]])
            with pytest.raises(InvalidRecordState, match="offset 0 of tasks-0 is finished already"):
                queue.release([items[0], items[5]])
            assert values(queue.acquire()) == [(b"5", 2)]
            assert again.offset == 2
        with dirs["tasks"].queue("workers") as queue:
            assert [one.offset for one in queue.acquire()] == [2, 5]


def test_offsets_without_a_record_are_passed_over(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1, {"cleanup.policy": "compact"})
        log = dirs["tasks", 0]
        log.append([(b"key", b"%d" % n) for n in range(20)])
        log.append([(b"other", b"last")])
        log.roll()
        log.compact()
        with dirs["tasks"].queue("workers") as queue:
            assert [one.offset for one in queue.acquire(1)] == [19]
            assert [one.offset for one in queue.acquire(5)] == [20]
            assert queue.acquire() == []


def test_a_session_that_the_server_ended_hides_no_records(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs["tasks", 0].append([b"a", b"b"])
        with dirs["tasks"].queue("workers") as queue:
            [first] = queue.acquire(1)
            worker: Any = queue._worker
            shares, member = worker._links._local.node.shares, worker._member.id
            worker._loop.call(in_loop(lambda: shares.member_left("workers", member)))  # as after a long pause
            assert values(queue.acquire()) == [(b"a", 2), (b"b", 1)]
            with pytest.raises(InvalidRecordState, match="its session has ended"):
                first.ack()


def test_records_of_a_session_that_ended_are_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog.sharing.session._EXACT", 0)  # a broker that acquires whole batches
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs["tasks", 0].append([b"a", b"b", b"c"])
        with dirs["tasks"].queue("workers") as queue:
            [first] = queue.acquire(1)
            worker: Any = queue._worker
            shares, member = worker._links._local.node.shares, worker._member.id
            worker._loop.call(in_loop(lambda: shares.member_left("workers", member)))
            with pytest.raises(InvalidRecordState):
                first.ack()
            for value in (b"a", b"b", b"c"):
                [item] = queue.acquire(1)
                assert (item.value, item.delivery_count) == (value, 2)
                item.ack()


def test_too_many_sessions_are_no_empty_queue(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs["tasks", 0].append([b"a"])
        with dirs["tasks"].queue("workers") as queue:
            worker: Any = queue._worker
            sessions = worker._links._local.node.shares.sessions
            sessions._most = 0
            with pytest.raises(PeerError, match="limit"):
                queue.acquire()
            sessions._most = 1
            assert values(queue.acquire()) == [(b"a", 1)]


def test_requests_are_counted_up_to_the_largest_number(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        with dirs["tasks"].queue("workers") as queue:
            assert queue.acquire(1 << 40) == []
            worker: Any = queue._worker
            [own] = worker._member._sessions.values()
            [served] = worker._links._local.node.shares.sessions._sessions.values()
            assert own._epoch == served.epoch == 1
            own._epoch = served.epoch = 2**31 - 1
            dirs["tasks", 0].append([b"a"])
            [item] = queue.acquire()
            item.ack()
            assert (own._epoch, served.epoch, own.generation) == (2, 2, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_neither_uses_nor_closes_it(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs["tasks", 0].append([b"a"])
        with dirs["tasks"].queue("workers") as queue:
            [item] = queue.acquire()
            child = os.fork()
            if not child:
                try:
                    with pytest.raises(IllegalState, match="belongs to the process that opened it"):
                        queue.acquire()
                    queue.close()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            item.ack()


async def in_loop(call: Callable[[], object]) -> None:
    """Call a function on an event loop."""
    call()


@pytest.mark.parametrize("has_another", [False, True])
def test_closing_ends_the_wait_of_another_thread(tmp_path: Path, has_another: bool) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs, ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        dirs.create_topic("tasks", 1)
        if has_another:
            stack.enter_context(dirs["tasks"].queue("workers"))
        queue = dirs["tasks"].queue("workers")
        waiting = pool.submit(queue.acquire, timeout=None)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        queue.close()
        with pytest.raises(LogClosed, match="queue workers is closed"):
            waiting.result(LONG_S)


def test_what_is_done_stays_done_after_a_restart(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs["tasks", 0].append([b"%d" % n for n in range(6)])
        with dirs["tasks", 0].queue("workers") as queue:
            items = queue.acquire()
            queue.ack(items[:2] + items[3:4])
            queue.reject(items[4:5])
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs["tasks", 0].append([b"6"])
        with dirs["tasks"].queue("workers") as queue:
            assert values(queue.acquire()) == [(b"2", 2), (b"5", 2), (b"6", 1)]


def test_the_end_of_the_block_decides(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs["tasks", 0].append([b"a", b"b", b"c"])
        with dirs["tasks"].queue("workers") as queue:
            first, second, third = queue.acquire()
            with first:
                pass
            with pytest.raises(ZeroDivisionError), second:
                1 / 0  # noqa: B018
            with third:
                third.reject()
            assert [one.is_finished for one in (first, second, third)] == [True] * 3
            assert values(queue.acquire()) == [(b"b", 2)]


def test_a_worker_waits_for_what_the_process_appends(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs, ThreadPoolExecutor(1) as pool:
        dirs.create_topic("tasks", 1)
        with dirs["tasks"].queue("workers") as queue:
            waiting = pool.submit(queue.acquire, timeout=LONG_S)
            dirs["tasks", 0].append([b"late"])
            [item] = waiting.result(LONG_S)
            waiting = pool.submit(queue.acquire, timeout=LONG_S)
            item.release()
            assert values(waiting.result(LONG_S)) == [(b"late", 2)]


def test_the_last_delivery_ends_in_a_dead_letter(tmp_path: Path) -> None:
    settings = {"share.delivery.count.limit": 2, "errors.deadletterqueue.topic.name": "dlq.tasks"}
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs.create_topic("dlq.tasks", 1, {"errors.deadletterqueue.group.enable": True})
        dirs["tasks", 0].append([b"poison"])
        with dirs["tasks"].queue("workers", settings=settings) as queue:
            for count in (1, 2):
                [item] = queue.acquire()
                assert item.delivery_count == count
                item.release()
            assert queue.acquire() == []
            letter = next(dirs["dlq.tasks", 0].tail(LONG_S, start=0))
        assert dict(letter.headers)["__dlq.errors.offset"] == b"0"
        assert dict(letter.headers)["__dlq.errors.delivery.count"] == b"2"


def test_where_a_new_queue_begins(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs["tasks", 0].append([b"old"])
        with dirs["tasks"].queue("late", start="latest") as queue:
            assert queue.acquire() == []
            dirs["tasks", 0].append([b"new"])
            assert [one.value for one in queue.acquire(timeout=LONG_S)] == [b"new"]
        with dirs["tasks"].queue("late") as queue:  # it has begun: `start` does not move it
            assert [one.value for one in queue.acquire()] == [b"new"]


def test_a_queue_that_cannot_be(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "lone" / "tasks-0", "a") as log, pytest.raises(IllegalState, match="open_dirs"):
        log.queue("workers")
    with kafkalog.open_dirs(tmp_path / "data", "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        with pytest.raises(TypeError, match="did you mean start"):
            dirs["tasks", 0].queue("workers", starts="latest")  # type: ignore[arg-type]
        with pytest.raises((ConfigError, InvalidRequest), match="share.delivery.count.limit"):
            dirs["tasks"].queue("workers", settings={"share.delivery.count.limit": 1000})
        for start in ("middle", 5, "\ud800"):
            with pytest.raises((ConfigError, InvalidRequest), match=r"share\.auto\.offset\.reset"):
                dirs["tasks"].queue("workers", start=start)  # type: ignore[arg-type]
        for settings in ({5: 1}, {"\ud800": 1}):
            with pytest.raises(ConfigError, match="workers"):
                dirs["tasks"].queue("workers", settings=settings)  # type: ignore[arg-type]
        for name, words in (
            ("", "1 to 32767 bytes of UTF-8, not 0"), ("ü" * 20_000, "not 40000"), ("\ud800", "is text, not '"),
            (None, "is text, not None"),
        ):  # fmt: skip
            with pytest.raises(IllegalArgument, match=f"the name of a queue .*{words}"):
                dirs["tasks"].queue(name)  # type: ignore[arg-type]
        queue = dirs["tasks"].queue("workers")
        with pytest.raises(IllegalArgument, match="max_records"):
            queue.acquire(0)
        with pytest.raises(TypeError):
            queue.acquire(1.5)  # type: ignore[arg-type]
        assert queue.acquire(1) == queue.acquire(2**40) == []
        with pytest.raises(IllegalArgument, match="timeout"):
            queue.acquire(timeout=-1)
        queue.close()
        queue.close()
        with pytest.raises(LogClosed, match="queue workers is closed"):
            queue.acquire()
        late = dirs["tasks"].queue("workers")
    with pytest.raises(LogClosed):
        late.acquire()
    late.close()
    with kafkalog.open_dirs(tmp_path / "data") as dirs, pytest.raises(ReadOnlyLog):
        dirs["tasks"].queue("workers")


def test_topics_that_come_and_go_while_a_queue_is_open(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        with dirs["tasks"].queue("workers"):
            for count in (1, 2):
                dirs.create_topic("later", count)
                dirs["later", 0].append([b"%d" % count])
                with dirs["later"].queue("workers") as queue:
                    assert values(queue.acquire(1)) == [(b"%d" % count, 1)]
                    dirs.delete_topic("later")
                    with pytest.raises(UnknownTopicOrPartition):
                        queue.acquire(timeout=LONG_S)
            dirs["tasks", 0].append([b"a"])
        with dirs["tasks"].queue("workers") as queue:
            assert values(queue.acquire()) == [(b"a", 1)]


def test_a_worker_leaves_its_group_though_its_topic_is_gone(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs.create_topic("later", 1)
        with dirs["tasks"].queue("workers") as other:
            with dirs["later"].queue("workers") as queue:
                assert queue.acquire() == []
                dirs.delete_topic("later")
            worker: Any = other._worker
            asked = call(worker._links._local.node, "share_group_describe", 1, {
                "group_ids": ["workers"], "include_authorized_operations": False,
            })  # fmt: skip
            assert [one.member_id for one in worker._loop.call(asked).groups[0].members] == [worker._member.id]


def test_partitions_and_a_topic_for_letters_that_are_added_meanwhile(tmp_path: Path) -> None:
    settings = {"errors.deadletterqueue.topic.name": "dlq.tasks"}
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        with dirs["tasks"].queue("workers", settings=settings) as queue:
            dirs.create_topic("dlq.tasks", 1, {"errors.deadletterqueue.group.enable": True})
            dirs.alter_topic("tasks", partitions=2)
            dirs["tasks", 1].append([b"in the new one"])
            worker: Any = queue._worker
            worker._loop.call(worker._member.beat())  # as every few seconds
            [item] = queue.acquire()
            assert (item.topic_partition.partition, item.value) == (1, b"in the new one")
            item.reject()
            letter = next(dirs["dlq.tasks", 0].tail(LONG_S, start=0))
            assert dict(letter.headers)["__dlq.errors.partition"] == b"1"


def test_records_of_an_ended_session_are_not_acknowledged_with_later_ones(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        with dirs["tasks"].queue("workers") as queue:
            dirs["tasks", 0].append([b"a"])
            [lost] = queue.acquire()
            worker: Any = queue._worker
            for session in worker._member._sessions.values():
                session.end()  # as after a connection that broke
            dirs["tasks", 0].append([b"b"])
            [later] = queue.acquire()
            with pytest.raises(InvalidRecordState):
                queue.ack([lost, later])
            with pytest.raises(InvalidRecordState):
                later.ack()  # it is acknowledged

"""Work queues in an event loop: as the plain ones, and what is cancelled or interrupted leaves nothing acquired."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")

import kafkalog
import kafkalog.aio
from kafkalog.aio.queue import connect, wrap
from kafkalog.errors import IllegalArgument, InvalidRecordState, LogClosed
from kafkalog.server.client.errors import PeerError
from kafkalog.sharing.loop import LoopThread
from kafkalog.testing import KafkaServer, kafka_server
from tests.queue.test_remote import put

SMALL: dict[str, Any] = {"log_cleaner_enable": False}
LONG_S = 60


def run(path: Path, scenario: Callable[[Any], Awaitable[None]], *values: bytes) -> None:
    """Run a scenario on open directories with a topic `tasks` of one partition."""
    with kafkalog.open_dirs(path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        if values:
            dirs["tasks", 0].append(list(values))
        asyncio.run(asyncio.wait_for(scenario(dirs), LONG_S))


def test_items_are_finished_in_all_ways(tmp_path: Path) -> None:
    async def scenario(dirs: Any) -> None:
        async with await kafkalog.aio.wrap(dirs["tasks", 0]).queue("workers") as queue:
            items = await queue.acquire(4)
            assert [one.value for one in items] == [b"a", b"b", b"c", b"d"]
            await items[0].ack()
            await items[1].release()
            await items[2].reject()
            await items[3].renew()
            with pytest.raises(InvalidRecordState):
                await queue.ack(items[:1])
            with pytest.raises(IllegalArgument):
                await queue.acquire(0)
            again = await queue.acquire()
            assert [(one.offset, one.delivery_count) for one in again] == [(1, 2)]
            with pytest.raises(ZeroDivisionError):
                async with again[0]:
                    raise ZeroDivisionError
            async with (await queue.acquire())[0] as item:
                assert item.delivery_count == 3
            assert item.is_finished and await queue.acquire() == []
        assert queue.closed
        with pytest.raises(LogClosed):
            await queue.acquire()
        async with wrap(dirs["tasks"].queue("workers")) as queue:
            assert [one.offset for one in await queue.acquire()] == [3]

    run(tmp_path, scenario, b"a", b"b", b"c", b"d")


def test_a_cancelled_acquire_leaves_nothing_acquired(tmp_path: Path) -> None:
    async def scenario(dirs: Any) -> None:
        log = dirs["tasks", 0]
        async with wrap(dirs["tasks"].queue("workers")) as queue, wrap(dirs["tasks"].queue("workers")) as other:
            for number in range(20):
                waiting = asyncio.create_task(queue.acquire(timeout=None))
                await asyncio.sleep(0.001 * number)
                log.append(b"%d" % number)
                waiting.cancel()
                try:
                    found = await waiting
                except asyncio.CancelledError:
                    found = await other.acquire(timeout=LONG_S / 4)  # less than the time of a lock
                assert [one.value for one in found] == [b"%d" % number]
                await (found[0].ack())

    run(tmp_path, scenario)


@pytest.mark.parametrize("way", ["ack", "reject", "release"])
def test_a_cancelled_end_of_an_item_stays_a_cancellation(tmp_path: Path, way: str) -> None:
    async def work(item: Any) -> None:
        async with item:
            await getattr(item, way)()

    async def scenario(dirs: Any) -> None:
        async with wrap(dirs["tasks"].queue("workers")) as queue:
            for item in reversed(await queue.acquire()):  # else each ack would complete all offsets before the next
                working = asyncio.create_task(work(item))
                await asyncio.sleep(0)
                working.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await working
                assert item.is_finished
        async with wrap(dirs["tasks"].queue("workers")) as queue:  # what was begun went on to its end
            assert len(await queue.acquire()) == (5 if way == "release" else 0)

    run(tmp_path, scenario, *[b"a"] * 5)


def test_several_tasks_wait_without_a_thread_each(tmp_path: Path) -> None:
    async def scenario(dirs: Any) -> None:
        async with wrap(dirs["tasks"].queue("workers")) as queue:
            threads = threading.active_count()
            waiting = [asyncio.create_task(queue.acquire(1, timeout=LONG_S)) for _ in range(20)]
            await asyncio.sleep(0.01)
            assert threading.active_count() <= threads + 4  # those of the server's node
            dirs["tasks", 0].append([b"%d" % number for number in range(20)])
            found = [item for one in await asyncio.gather(*waiting) for item in one]
            assert sorted(one.offset for one in found) == list(range(20))
            await queue.ack(found)

    run(tmp_path, scenario)


def test_queue_of_a_server() -> None:
    async def scenario(bootstrap: str) -> None:
        async with await connect(bootstrap, "tasks", "workers") as queue:
            assert (queue.name, queue.topic, await queue.acquire()) == ("workers", "tasks", [])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await queue.acquire(timeout=None)
            assert await queue.acquire(timeout=0.01) == []

    with kafka_server(topics="tasks") as server:
        asyncio.run(asyncio.wait_for(scenario(server.bootstrap), LONG_S))


def test_closing_while_the_server_is_silent_is_no_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is in a task that goes on."""
    async def scenario(server: KafkaServer) -> None:
        queue = await connect(server.bootstrap, "tasks", "workers")
        [item] = await queue.acquire(1, timeout=LONG_S)
        with server.fault("ShareFetch", silent=True) as fault:
            waiting = asyncio.create_task(queue.acquire(timeout=None))
            await asyncio.to_thread(server.wait_for, until=lambda: fault.fired)
            await queue.close()
            with pytest.raises(LogClosed):
                await waiting
        queue = await connect(server.bootstrap, "tasks", "workers")
        [item] = await queue.acquire(1, timeout=LONG_S)
        with server.fault("ShareAcknowledge", silent=True) as fault:
            acknowledging = asyncio.create_task(item.ack())
            await asyncio.to_thread(server.wait_for, until=lambda: fault.fired)
            await queue.close()
            with pytest.raises((LogClosed, PeerError)):
                await acknowledging
            assert not item.is_finished

    monkeypatch.setattr("kafkalog.sharing.member._LEAVE_S", 0.01)
    with kafka_server(topics="tasks") as server:
        put(server, "tasks", b"a")
        asyncio.run(asyncio.wait_for(scenario(server), LONG_S))


def test_ctrl_c_when_the_loop_has_the_call_leaves_nothing_acquired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller has no future of its call then."""
    submit = LoopThread.submit

    def interrupted(loop: LoopThread, work: Any) -> None:
        monkeypatch.undo()
        submit(loop, work)
        raise KeyboardInterrupt

    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        with dirs["tasks"].queue("workers") as queue, dirs["tasks"].queue("workers") as other:
            assert queue.acquire() == other.acquire() == []
            dirs["tasks", 0].append([b"x"])
            monkeypatch.setattr(LoopThread, "submit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                queue.acquire(timeout=None)
            assert [one.value for one in other.acquire(timeout=LONG_S / 4)] == [b"x"]


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.02])
def test_ctrl_c_in_acquire_leaves_nothing_acquired(tmp_path: Path, delay_s: float) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        with dirs["tasks"].queue("workers") as queue, dirs["tasks"].queue("workers") as other:
            assert queue.acquire() == other.acquire() == []
            earlier = signal.signal(signal.SIGALRM, interrupt)
            try:
                for number in range(10):
                    appending = threading.Timer(0.02, dirs["tasks", 0].append, [b"%d" % number])
                    appending.start()
                    found = []
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0.02 + delay_s)
                        found = queue.acquire(timeout=None)
                        while True:
                            time.sleep(1)
                    except Interrupted:
                        pass
                    appending.join()
                    found = found or other.acquire(timeout=LONG_S / 4)  # less than the time of a lock
                    assert [one.value for one in found] == [b"%d" % number]
                    found[0].ack()
            finally:
                signal.signal(signal.SIGALRM, earlier)

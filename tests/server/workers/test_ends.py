"""What the main process and a worker do when one of them ends, is paused, or cannot start."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog._version import version
from kafkalog.errors import DirectoryLocked, IllegalState, StorageError
from kafkalog.manager.new_partitions import NewPartitions
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.txns.markers import Marker
from kafkalog.server.workers import spread_store
from kafkalog.server.workers import workers as module
from kafkalog.server.workers.child import Child
from kafkalog.server.workers.link import LinkLost, Message
from kafkalog.server.workers.spread_store import SpreadStore
from kafkalog.server.workers.worker_process import WorkerProcess
from kafkalog.server.workers.workers import Workers
from kafkalog.types import TopicPartition

MARKER = Marker(1, 0, True, 0, 2)


def workers_of_two(topics: Mapping[str, Any] | None = None) -> Workers:
    made = Workers(ServerConfig(), ["a", "b"], 2)
    made._node = SimpleNamespace(  # type: ignore[assignment]
        node_id=1, store=SimpleNamespace(topics=topics or {}, logs={}, offline=())
    )
    return made


def found(*partitions: tuple[str, int, int], **more: Any) -> dict[str, Any]:
    return {"problem": "", "partitions": partitions, "topics": [], "paths": {}, "producer_id": 0,
            "is_offline": False, **more}  # fmt: skip


def test_a_worker_that_is_asked_twice_to_stop_ends_once_it_has_stopped() -> None:
    """A service manager sends SIGTERM to all processes, and the main process stops its workers."""

    async def run() -> None:
        child, may_end, stops = Child(str), asyncio.Event(), []

        async def stop() -> None:
            stops.append(1)
            await may_end.wait()

        child._server = SimpleNamespace(stop=stop)  # type: ignore[assignment]
        asked = [asyncio.ensure_future(child._stop(None)) for _ in range(2)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert stops == [1] and not child.ended.done() and not any(one.done() for one in asked)
        may_end.set()
        await asyncio.gather(*asked)
        assert stops == [1] and child.ended.done()

    asyncio.run(run())


def test_a_process_that_cannot_be_started_counts_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(12, "no memory")

    async def run() -> None:
        monkeypatch.setattr(subprocess, "Popen", fail)
        process = WorkerProcess(1, None)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="no memory"):
            process.start({})
        assert process.ended.done()
        await process.end()

    asyncio.run(run())


def test_a_worker_that_ends_at_each_start_is_started_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def run() -> None:
        workers, ended = workers_of_two(), asyncio.get_running_loop().create_future()
        ended.set_result(None)

        async def nothing(*_: object) -> None:
            pass

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 9:
                raise asyncio.CancelledError

        workers._processes[1] = SimpleNamespace(ended=ended, end=nothing)  # type: ignore[assignment]
        monkeypatch.setattr(workers, "_start_again", nothing)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await workers._keep(1)

    asyncio.run(run())
    assert waits[:3] == [0.1, 0.2, 0.4] and waits[-1] == module.MOST_AGAIN_SECONDS


def test_a_paused_worker_does_not_hold_the_end_of_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        workers, keys = workers_of_two(), [TopicPartition("t", 0)]

        async def call(*_: object) -> None:
            await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(workers, "call", call)
        monkeypatch.setattr(module, "PUSH_SECONDS", 0.01)
        async with asyncio.timeout(60):
            assert await workers.mark(keys, MARKER) == frozenset(keys)

    asyncio.run(run())


def test_a_state_that_is_as_before_is_sent_while_another_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        workers, state = workers_of_two(), [{"acl": 0}]
        sent: list[object] = []
        may_answer = asyncio.Event()

        async def call(_: int, __: str, values: object) -> None:
            sent.append(values)
            await may_answer.wait()

        monkeypatch.setattr(module, "state_of", lambda _: state[0])
        monkeypatch.setattr(workers, "call", call)
        workers._pushed = {"acl": 0}
        pushes = []
        for value in (1, 0):
            state[0] = {"acl": value}
            pushes.append(asyncio.ensure_future(workers._push_state()))
            await asyncio.sleep(0)
        may_answer.set()
        await asyncio.gather(*pushes)
        assert sent == [{"acl": 1}, {"acl": 0}]
        await workers._push_state()
        assert len(sent) == 2

    asyncio.run(run())


def test_partitions_that_may_lie_in_an_offline_directory_of_a_worker_are_not_created_again() -> None:
    workers = workers_of_two()
    workers._take(1, found(("t", 0, 3), ("t", 1, 3)))
    workers._take(1, found(("t", 0, 4), is_offline=True))
    assert workers.owners == {TopicPartition("t", 0): (1, 4), TopicPartition("t", 1): (1, 3)}
    assert workers.offline == {1}
    workers._take(1, found(("t", 0, 5), ("t", 1, 3)))
    assert workers.offline == set()


def test_no_part_of_a_topic_is_deleted_while_a_worker_with_others_does_not_run() -> None:
    store = SimpleNamespace(config_of=None, fs=None)
    workers = SimpleNamespace(having=lambda _: [1, 2], takes_changes=lambda worker: worker == 1)
    failures = SpreadStore(store, workers, None).delete_topics(["t"])  # type: ignore[arg-type]
    assert list(failures) == ["t"] and isinstance(failures["t"], LinkLost) and "worker 2" in str(failures["t"])


def test_a_worker_that_does_not_answer_a_change_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would make the change once it continues, after its client was told that it failed."""
    killed: list[int] = []

    async def call(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    async def run() -> None:
        store = SimpleNamespace(config_of=None, fs=None)
        workers = SimpleNamespace(call=call, kill=killed.append)
        spread = SpreadStore(store, workers, asyncio.get_running_loop())  # type: ignore[arg-type]
        monkeypatch.setattr(spread_store, "CALL_SECONDS", 0.01)
        with pytest.raises(StorageError, match="worker 1 did not answer"):
            await asyncio.to_thread(spread._ask, 1, "create", {})

    asyncio.run(run())
    assert killed == [1]


def test_a_partition_that_a_worker_may_have_created_before_it_ended_is_given_to_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither of two workers with the same partition could start again."""
    asked: list[int] = []
    down: set[int] = set()

    async def call(worker: int, *_: object) -> Message:
        asked.append(worker)
        if len(asked) == 1 or worker in down:
            raise LinkLost("it has ended")
        return Message({"failures": {}})

    async def run() -> None:
        topics = SimpleNamespace(get=lambda _: SimpleNamespace(partitions=1), settings_of=lambda _: {})
        store = SimpleNamespace(
            config_of=None, fs=None, logs={TopicPartition("t", 0): 0}, topics=topics,
            create_partitions=lambda *_, **__: {},
        )  # fmt: skip
        workers = Workers(ServerConfig(), ["a", "b", "c"], 3)
        monkeypatch.setattr(workers, "call", call)
        monkeypatch.setattr(workers, "takes_changes", lambda worker: worker not in down)
        spread = SpreadStore(store, workers, asyncio.get_running_loop())  # type: ignore[arg-type]

        async def create() -> list[str]:
            new = NewPartitions("t", "id", (1,), {}, 2)
            return [*await asyncio.to_thread(spread.create_partitions, [new], between_batches=lambda: None)]

        assert await create() == ["t"]
        down.add(1)
        assert await create() == ["t"]
        down.clear()
        assert await create() == []
        assert asked == [1, 1, 1] and workers.owners == {TopicPartition("t", 1): (1, 0)}

    asyncio.run(run())


@pytest.mark.parametrize("failure", [DirectoryLocked("locked", hint="stop it"), ValueError("locked: stop it")])
def test_what_keeps_a_worker_from_opening_its_directories_is_reported_with_one_hint(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        child, said = Child(str), {}

        def locked(_: object) -> None:
            raise failure

        async def call(_: str, values: dict[str, Any]) -> Message:
            said.update(values)
            return Message({})

        child._configuration = {"directories": [str(tmp_path)], "version": version}
        monkeypatch.setattr(child, "_open_store", locked)
        monkeypatch.setattr(child.link, "call", call)
        await child._open()
        with pytest.raises(Exception, match="locked") as raised:
            workers_of_two()._take(1, said)
        assert str(raised.value).count("stop it") == 1

    asyncio.run(run())


def test_a_worker_of_another_version_than_the_main_process_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts again is a new interpreter, and imports what was installed meanwhile."""

    async def run() -> None:
        child, said = Child(str), dict[str, Any]()

        async def call(_: str, values: dict[str, Any]) -> Message:
            said.update(values)
            return Message({})

        child._configuration = {"directories": [str(tmp_path / "data")], "version": "0.0.1"}
        monkeypatch.setattr(child.link, "call", call)
        await child._open()
        with pytest.raises(IllegalState, match=r"main process runs 0\.0\.1.*start the server again"):
            workers_of_two()._take(1, said)
        assert not (tmp_path / "data").exists()

    asyncio.run(run())

"""Requests that wait over one timer: each is answered at its own limit, whichever came first, and counted by kind."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.delayed_delete import Deletion
from tests.server.replica.partitions import (
    T0,
    T1,
    Replicas,
    consumer_params,
    error_codes,
    fetch_as_follower,
    make_batch,
    request_at,
    run,
    settle,
)


def waiting(replicas: Replicas) -> tuple[int, int, int]:
    kinds = replicas.waiting
    return kinds.fetch.delayed, kinds.produce.delayed, kinds.deletion.delayed


def test_each_kind_is_answered_at_its_own_limit(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        replicas.with_followers(T0, 2, isr=(2,))
        await replicas.produce(T0, data=make_batch(3))
        await fetch_as_follower(replicas, T0, 2, 3)
        fetch = asyncio.create_task(replicas.fetch(consumer_params(30_000), [request_at(T1, 0)]))
        await settle()
        deletion = asyncio.create_task(replicas.deleted_everywhere({T0: 2}, 20_000))
        await settle()
        produce = asyncio.create_task(replicas.produce(T0, acks=-1, timeout_ms=10_000))
        await settle()
        assert waiting(replicas) == (1, 1, 1)
        for task, left in ((produce, (1, 0, 1)), (deletion, (1, 0, 0)), (fetch, (0, 0, 0))):
            await replicas.time.passes(9_999)
            assert not task.done()
            await replicas.time.passes(1)
            assert task.done() and waiting(replicas) == left
        assert error_codes(await produce) == [ErrorCode.REQUEST_TIMED_OUT]
        assert await deletion == {T0: Deletion(ErrorCode.REQUEST_TIMED_OUT)}
        assert [result.size for result in await fetch] == [0]
        assert not replicas.time.timers, "nothing waits: nothing ticks"

    run(tmp_path, body)


def test_a_stop_leaves_no_timer(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        fetch = asyncio.create_task(replicas.fetch(consumer_params(60_000), [request_at(T1, 0)]))
        await settle()
        assert [timer.callback is not None for timer in replicas.time.timers] == [True]
        await replicas.stop()
        await fetch
        assert [timer.callback is not None for timer in replicas.time.timers] == [False]

    run(tmp_path, body)

"""Calls to a loop that ends."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalog.errors import LogClosed
from kafkalog.sharing.loop import LoopThread

LONG_S = 60


def test_the_end_of_a_loop_ends_its_calls() -> None:
    loop = LoopThread("kafkalog-test")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(loop.call, asyncio.sleep(LONG_S)) for _ in range(2)]
        loop.call(asyncio.sleep(0))
        loop.stop()
        for one in waiting:
            with pytest.raises(LogClosed):
                one.result(LONG_S)
    with pytest.raises(LogClosed):
        loop.call(asyncio.sleep(0))


def test_errors_of_a_call_are_raised() -> None:
    loop = LoopThread("kafkalog-test")
    with pytest.raises(TimeoutError):
        loop.call(asyncio.wait_for(asyncio.sleep(LONG_S), 0.01))
    loop.stop()

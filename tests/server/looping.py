"""Tests that are coroutines."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
LIMIT_S = 300


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test in a separate loop, which ends with it."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(_awaited(test(*args, **named)), LIMIT_S))

    return run


def pass_time(seconds: float) -> None:
    """Let this time pass for the timers of the running loop, that of `LIMIT_S` among them."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]


async def turns_during(work: Awaitable[T]) -> tuple[T, int]:
    """The result of some work, and how often others had their turn meanwhile."""
    turns, is_over = 0, False

    async def count() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count())
    try:
        return await work, turns
    finally:
        is_over = True
        await others


async def _awaited(awaitable: Awaitable[None]) -> None:
    await awaitable

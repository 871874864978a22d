"""Tests that are coroutines."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

LIMIT_S = 300


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test in a loop of its own, which ends with it."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(_awaited(test(*args, **named)), LIMIT_S))

    return run


async def _awaited(awaitable: Awaitable[None]) -> None:
    await awaitable

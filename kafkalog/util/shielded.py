"""Waiting for work on an event loop that goes on if the one who waits is cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


async def shielded(work: asyncio.Future[T]) -> T:
    """Return the result of work that several may wait for; if this call is cancelled, the work goes on.

    Its error is then of no interest. `asyncio.shield` of Python 3.14 reports it to the event loop, which logs it as an
    error with a traceback.
    """
    import asyncio

    try:
        if not work.done():
            work.add_done_callback(_look)
            await asyncio.wait((work,))
        return work.result()
    finally:
        del work  # else it, its error and this frame keep each other alive


def _look(work: asyncio.Future[Any]) -> None:
    """Take note of an error, else Python reports it when the work is dropped."""
    if not work.cancelled():
        work.exception()

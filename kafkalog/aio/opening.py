"""Opening in a thread, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar


class _Closable(Protocol):
    def close(self) -> object: ...


C = TypeVar("C", bound=_Closable)


async def open_in_thread(call: Callable[[], C]) -> C:
    """Return what `call`, run in a thread of its own, opens; close it again if this call is cancelled meanwhile."""
    opener = ThreadPoolExecutor(1, thread_name_prefix="kafkalog-aio-open")
    opening = opener.submit(call)
    opener.shutdown(wait=False)
    try:
        return await asyncio.wrap_future(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise
    finally:
        del opening  # else it, its error and this frame keep each other alive


def _close(opening: Future[C]) -> None:
    """Close what a cancelled call opened, if it did."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()

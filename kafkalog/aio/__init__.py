"""A log for asyncio: its calls as coroutines, run in a small thread pool, and `async for` over records."""

from kafkalog.aio.log import AsyncLog, open, wrap

__all__ = ["AsyncLog", "open", "wrap"]

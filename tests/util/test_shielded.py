"""Work on an event loop that goes on if the one who waits is cancelled."""

import asyncio
import gc
from typing import Any

import pytest

from kafkalog.util.shielded import shielded
from tests.cycles import left_to_collector


async def cancelled(waiting: asyncio.Task[Any]) -> None:
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("fails", [False, True])
def test_work_goes_on_and_its_error_is_for_those_who_wait_still(fails: bool) -> None:
    """From Python 3.14 on, `asyncio.shield` reports the error to the event loop if one who waited was cancelled."""
    reports: list[dict[str, Any]] = []

    async def run(*, others: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))
        gate = asyncio.Event()

        async def work() -> int:
            await gate.wait()
            if fails:
                raise OSError("the disk failed")
            return 7

        working = asyncio.ensure_future(work())
        first, *more = (asyncio.ensure_future(shielded(working)) for _ in range(1 + others))
        await cancelled(first)
        assert not working.done()
        gate.set()
        found = await asyncio.gather(*more, return_exceptions=True)
        assert [str(one) for one in found] == ["the disk failed" if fails else "7"] * others
        await asyncio.wait((working,))
        if others:  # it is over: the next one does not wait
            again = await asyncio.gather(shielded(working), return_exceptions=True)
            assert str(again[0]) == str(found[0])

    for others in (0, 2):
        asyncio.run(run(others=others))
        gc.collect()
    assert reports == []


def test_work_that_is_cancelled_cancels_those_who_wait() -> None:
    async def run() -> None:
        working = asyncio.ensure_future(asyncio.Event().wait())
        waiting = asyncio.ensure_future(shielded(working))
        await asyncio.sleep(0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await shielded(working)

    asyncio.run(run())


def test_an_error_leaves_nothing_to_the_collector() -> None:
    async def run() -> None:
        async def fail() -> None:
            await asyncio.sleep(0)
            raise OSError("the disk failed")

        with pytest.raises(OSError, match="the disk failed"):
            await shielded(asyncio.ensure_future(fail()))

    asyncio.run(run())
    with left_to_collector() as left:
        asyncio.run(run())
    assert [one for one in left if isinstance(one, (OSError, asyncio.Task))] == []

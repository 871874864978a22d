"""The threads for long calls: what a call that fails leaves behind."""

import asyncio
import weakref
from types import FrameType

import pytest

from kafkalog.server.node.pool import CallPool
from tests.cycles import left_to_collector, replace_threads


class Buffer:
    """Stands for memory that a call takes."""


def test_a_call_that_fails_frees_its_buffers_before_its_error_is_seen() -> None:
    made: list[weakref.ref[Buffer]] = []

    def unpack() -> None:
        buffer = Buffer()
        made.append(weakref.ref(buffer))
        try:
            raise KeyError("inside")
        except KeyError as error:
            cause = Buffer()
            made.append(weakref.ref(cause))
            raise ValueError("refused") from error

    async def main() -> None:
        pool = CallPool(1)
        with pytest.raises(ValueError, match="refused") as caught:
            await pool.run(unpack)
        assert [one() for one in made] == [None, None]
        assert "unpack" in [entry.name for entry in caught.traceback]  # the traceback still shows the origin
        await asyncio.to_thread(pool.close)

    with left_to_collector():
        asyncio.run(main())


def test_a_call_that_fails_leaves_no_cycle() -> None:
    def refuse() -> None:
        raise ValueError("refused")

    async def main() -> None:
        pool = CallPool(1)
        await pool.run(int)  # what the first call imports and starts
        with left_to_collector() as left:
            for _ in range(3):
                try:
                    await pool.run(refuse)
                except ValueError:
                    pass
            replace_threads(pool)
        assert [one for one in left if isinstance(one, FrameType | ValueError | asyncio.Future)] == []
        await asyncio.to_thread(pool.close)

    asyncio.run(main())

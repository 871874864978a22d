"""A named cursor in an event loop: as the plain one, and a cancelled wait loses nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CursorInUse, IllegalArgument, LogClosed

Scenario = Callable[[Any], Awaitable[None]]


def run(path: Path, scenario: Scenario) -> None:
    async def session() -> None:
        async with kafkalog.aio.wrap(kafkalog.open(path, "a")) as log:
            for number in range(6):
                await log.append(b"%d" % number)
            await asyncio.wait_for(scenario(log), 60)

    asyncio.run(session())


def test_calls_give_what_the_cursor_gives(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        async with await log.cursor("c") as cursor:
            assert [record.offset for record in await cursor.poll(2)] == [0, 1]
            assert (cursor.position, cursor.committed, await cursor.lag()) == (2, 0, 4)
            assert await cursor.commit() == 2 and await cursor.seek(-1) == 5
            assert [record.offset async for record in cursor] == [5]
            with pytest.raises(CursorInUse):
                await log.cursor("c")
            assert (cursor.name, str(cursor.topic_partition), cursor.lost) == ("c", "t-0", None)
            assert repr(cursor) == "<AsyncCursor c of t-0 at 6 committed 2>"
            with pytest.raises(IllegalArgument):
                await cursor.poll(timeout=-1)
        assert [(info.name, info.position) for info in await log.cursors()] == [("c", 6)]

    run(tmp_path / "t-0", scenario)


def test_a_position_is_committed_while_it_iterates(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        async with await log.cursor("c", auto_commit_ms=0) as cursor:
            assert [(record.offset, cursor.committed) async for record in cursor] == [(n, n) for n in range(6)]
            assert cursor.committed == 6

    run(tmp_path / "t-0", scenario)


def test_iteration_ends_where_the_log_ended_at_its_start(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        async with await log.cursor("c") as cursor:
            seen = []
            async for record in cursor:
                await log.append(b"more")
                seen.append(record.offset)
                assert len(seen) < 20
            assert seen == list(range(6)) and (cursor.position, await cursor.lag()) == (6, 6)
            assert len([record async for record in cursor]) == 6

    run(tmp_path / "t-0", scenario)


def test_a_record_counts_when_the_next_one_is_asked_for(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            async with await log.cursor("c") as cursor:
                async for record in cursor:
                    if record.offset == 3:
                        raise ZeroDivisionError
        async with await log.cursor("c") as cursor:
            assert cursor.position == 3
            async for record in cursor:
                if record.offset == 4:
                    break
        async with await log.cursor("c") as cursor:
            assert cursor.position == 5
            async for _ in cursor:
                await cursor.seek(2)
                break
            assert [record.offset async for record in cursor] == [2, 3, 4, 5]

    run(tmp_path / "t-0", scenario)


def test_a_cancelled_wait_loses_no_record(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        async with await log.cursor("c", start="latest") as cursor:
            seen = []
            for number in range(30):
                await log.append(b"%d" % number)
                try:
                    seen += await asyncio.wait_for(cursor.poll(timeout=None), 0.0002 if number % 3 else 30)
                except TimeoutError:
                    pass
            seen += await cursor.poll(timeout=0)
            assert [record.value for record in seen] == [b"%d" % number for number in range(30)]

    run(tmp_path / "t-0", scenario)


def test_tail_waits_and_ends(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        async with await log.cursor("c", start=4) as cursor:
            tail = cursor.tail(timeout=30)
            assert [(await anext(tail)).offset for _ in range(2)] == [4, 5]
            await log.append(b"new")
            assert (await anext(tail)).offset == 6
            assert [record async for record in cursor.tail(timeout=0.01)] == []
            assert await cursor.poll(timeout=0.01) == []

    run(tmp_path / "t-0", scenario)


def test_a_cursor_outlives_its_log_to_keep_its_position(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        cursor = await log.cursor("c")
        await cursor.poll(3)
        cursor.cursor.processed()
        await log.close()
        with pytest.raises(LogClosed):
            await cursor.poll()
        await cursor.close()
        with kafkalog.open(log.log.path) as reader, reader.cursor("c") as after:
            assert after.position == 3

    run(tmp_path / "t-0", scenario)

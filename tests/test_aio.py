"""`kafkalog.aio`: a log's calls as coroutines, and `async for` over what comes."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import (
    IllegalArgument,
    IllegalState,
    LogClosed,
    OffsetOutOfRange,
    PartitionNotFound,
    ReadOnlyLog,
    UnsupportedCompression,
)
from kafkalog.reading.tail import Waiting
from kafkalog.records.control import ControlType
from tests.cycles import left_to_collector
from tests.storage.test_log_transactions import append_marker, build_batch
from tests.transactional import made, marker

Scenario = Callable[[Any], Awaitable[None]]


def run(path: Path, scenario: Scenario, mode: Any = "a") -> None:
    async def session() -> None:
        async with kafkalog.aio.wrap(kafkalog.open(path, mode)) as log:
            await asyncio.wait_for(scenario(log), 60)

    asyncio.run(session())


def test_calls_give_what_the_log_gives(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        info = await log.append([b"a", (b"k", b"b"), b"c"])
        assert (info.first_offset, info.last_offset) == (0, 2)
        assert (await log.start_offset(), await log.end_offset()) == (0, 3)
        assert (await log.record_at(1)).value == b"b" and (await log.record_at(-1)).value == b"c"
        assert (await log.offset_for_time(-1)).offset == 3
        assert await log.roll() == 3
        await log.flush()
        assert (await log.verify(deep=True)).ok
        assert await log.truncate_to(2) is True
        assert await log.delete_before(1) == 1
        assert [record.offset async for record in log.records()] in ([1], [])
        assert [record async for record in log] == [record async for record in log.records()] == [*log.log]
        assert str(log.topic_partition) == "t-0" and repr(log).startswith("<AsyncLog <Log t-0")
        with pytest.raises(OffsetOutOfRange):
            await log.record_at(7)
        with pytest.raises(TypeError):
            await log.append("text")

    run(tmp_path / "t-0", scenario)


def test_look_ups_by_key_give_what_the_log_gives(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        await log.append([(b"k%d" % (n % 7), b"v%d" % n) for n in range(3000)])
        await log.roll()
        await log.append([(b"k1", None)])
        wanted = [b"k0", b"k1", b"nobody"]
        assert [await log.get(key) for key in wanted] == [log.log.get(key) for key in wanted]
        assert await log.get_many(wanted) == log.log.get_many(wanted)
        assert (await log.get_table(wanted, ["offset"]))["offset"].to_pylist() == [2996, 3000, None]
        assert [one.offset async for one in log.history(b"k1")] == [*range(1, 3000, 7), 3000]
        assert (await log.get(b"k1", isolation="read_committed")).value is None
        for wrong in (0, "k1", None):
            with pytest.raises(TypeError, match="key"):
                await log.get(wrong)
        with pytest.raises(IllegalArgument):
            await log.get_many(wanted, isolation="later")

    run(tmp_path / "t-0", scenario)


def test_appends_are_compressed_side_by_side(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        lines = [b"hello lagou %d" % number for number in range(500)]
        names = ["gzip", "snappy", "lz4", "zstd:9"]
        infos = await asyncio.gather(*(log.append(lines, compression=name) for name in names * 5))
        assert sorted(info.first_offset for info in infos) == list(range(0, 10_000, 500))
        found = [batch.header.compression async for batch in log.batches()]
        assert sorted(found) == [codec for codec in (1, 2, 3, 4) for _ in range(5)]
        assert [record.value async for record in log.records()] == lines * 20
        with pytest.raises(UnsupportedCompression):
            await log.append(b"v", compression="zst")

    run(tmp_path / "t-0", scenario)


def test_records_and_batches_come_in_order_over_many_hops(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        for start in range(0, 5000, 50):
            await log.append([b"%d" % number for number in range(start, start + 50)])
        assert [record.offset async for record in log.records()] == list(range(5000))
        assert [record.offset async for record in log.records(1020, 3000)] == list(range(1020, 3000))
        assert [batch.base_offset async for batch in log.batches(75)] == list(range(50, 5000, 50))

    run(tmp_path / "t-0", scenario)


def test_an_error_comes_after_the_records_before_it(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for number in range(10):
            log.append(b"%d" % number)
        log.roll()
        log.append(b"later")
    path = tmp_path / "t-0" / "00000000000000000000.log"
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)

    async def scenario(log: Any) -> None:
        seen = []
        with pytest.raises(kafkalog.errors.CorruptRecord):
            async for record in log.records():
                seen.append(record.offset)
        assert seen == list(range(9))

    run(tmp_path / "t-0", scenario, "r")


def test_tail_reports_damage_at_the_end_of_the_log(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append(b"first")
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1])

    async def scenario(log: Any) -> None:
        with pytest.raises(kafkalog.errors.CorruptRecord):
            assert [record async for record in log.tail(timeout=0)] == []

    run(tmp_path / "t-0", scenario, "r")


def test_tail_begins_at_the_log_start_if_the_last_stable_offset_lies_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(log: Any) -> None:
        plain = log.log
        plain.append_bytes(build_batch(7, 0, 3, txn=True))
        plain.append(b"plain")
        plain.delete_before(1)
        assert plain.last_stable_offset == 0, "the batch of the open transaction begins there"

        async def commit(_: object) -> bool:
            append_marker(plain._source, ControlType.COMMIT, 7)
            return True

        monkeypatch.setattr("kafkalog.aio.log.waited", commit)
        waiting, following = (one.tail(timeout=30, isolation="read_committed") for one in (plain, log))
        assert ((await anext(following)).offset, next(waiting).offset) == (1, 1)
        await following.aclose()

    run(tmp_path / "t-0", scenario)


def test_tail_sees_what_is_appended_meanwhile(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        seen: list[int] = []

        async def follow() -> None:
            async for record in log.tail(start=0):
                seen.append(record.offset)
                if record.offset == 299:
                    return

        follower = asyncio.create_task(follow())
        for _ in range(30):
            await log.append([b"v"] * 10)
            await asyncio.sleep(0)
        await follower
        assert seen == list(range(300))

    run(tmp_path / "t-0", scenario)


def test_tail_of_committed_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records held back by an open transaction come with its marker, and not before; aborted records never come."""
    log_made = made([("plain", 0, 1), ("data", 5, 2), ("plain", 0, 1)])
    directory = tmp_path / "t-0"
    log_made.write(directory)

    async def scenario(log: Any) -> None:
        assert await log.last_stable_offset() == 1
        assert (await log.offset_for_time(-1, isolation="read_committed")).offset == 1
        assert [r.offset async for r in log.tail(0, 0, isolation="read_committed")] == [0]
        assert [r.offset async for r in log.tail(0.01, 3, isolation="read_committed")] == []
        read = log.tail(20, isolation="read_committed")
        waits, real = asyncio.Event(), kafkalog.aio.log.waited

        async def noted(waiting: Waiting) -> bool:
            waits.set()
            return await real(waiting)

        monkeypatch.setattr("kafkalog.aio.log.waited", noted)
        coming = asyncio.ensure_future(anext(read))
        await waits.wait()  # from here on it begins behind what it has seen
        with (directory / f"{0:020d}.log").open("ab") as file:
            file.write(marker(4, 5, 0))
        assert (await coming).offset == 3
        await read.aclose()

    run(directory, scenario, "r")


def test_tail_ends_after_its_timeout_and_when_cancelled(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        await log.append([b"a", b"b"])
        assert [record.value async for record in log.tail(timeout=0, start=0)] == [b"a", b"b"]
        assert [record.value async for record in log.tail(timeout=0, start=-1)] == [b"b"]
        assert [record.value async for record in log.tail(timeout=0.01)] == []
        for wrong in (-1, float("nan")):
            with pytest.raises(IllegalArgument, match="timeout is"):
                await anext(log.tail(timeout=wrong))

        async def forever() -> None:
            async for _ in log.tail():
                raise AssertionError("nothing was appended")

        task = asyncio.create_task(forever())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(tmp_path / "t-0", scenario)


def test_tail_is_told_when_the_log_is_cut(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        await log.append([b"a"])
        await log.append([b"b"])
        tail = log.tail(start=0)
        assert [(await anext(tail)).offset, (await anext(tail)).offset] == [0, 1]
        await log.truncate_to(1)
        with pytest.raises(OffsetOutOfRange):
            await anext(tail)

    run(tmp_path / "t-0", scenario)


def test_many_tasks_append_at_once(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        infos = await asyncio.gather(*(log.append(b"%d" % number) for number in range(200)))
        offsets = [info.first_offset for info in infos]
        assert sorted(offsets) == list(range(200))
        stored = [record.value async for record in log.records()]
        assert [stored[offset] for offset in offsets] == [b"%d" % number for number in range(200)]

    run(tmp_path / "t-0", scenario)


def test_the_loop_goes_on_while_a_call_waits(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        for _ in range(20):
            await log.append([b"x" * 100] * 1000)
        counter.cancel()
        assert turns > 20

    run(tmp_path / "t-0", scenario)


def test_open_gives_the_log_and_its_errors(tmp_path: Path) -> None:
    async def session() -> None:
        async with await kafkalog.aio.open(tmp_path / "t-0", "a", segment_bytes=1 << 20) as log:
            assert (await log.append(b"v")).first_offset == 0
        async with await kafkalog.aio.open(tmp_path / "t-0") as log:
            assert [record.value async for record in log.records()] == [b"v"]
            with pytest.raises(ReadOnlyLog):
                await log.append(b"v")
        with pytest.raises(PartitionNotFound):
            await kafkalog.aio.open(tmp_path / "u-0")
        with pytest.raises(TypeError, match="did you mean sync"):
            await kafkalog.aio.open(tmp_path / "t-0", "a", snyc=True)

    asyncio.run(session())


def test_an_opening_that_is_cancelled_closes_the_log_again(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    begun, may_go_on = threading.Event(), threading.Event()

    def recovered(_: object) -> None:
        begun.set()
        may_go_on.wait(60)

    async def session() -> None:
        opening = asyncio.ensure_future(kafkalog.aio.open(tmp_path / "t-0", "a", progress=recovered))
        assert await asyncio.to_thread(begun.wait, 60)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        may_go_on.set()
        (opener,) = [one for one in threading.enumerate() if one.name.startswith("kafkalog-aio-open")]
        await asyncio.to_thread(opener.join, 60)

    asyncio.run(session())
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert log[0].value == b"v"


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    async def session() -> None:
        log = kafkalog.aio.wrap(kafkalog.open(tmp_path / "t-0", "a"))
        await log.append(b"v")
        await log.close()
        await log.close()
        with pytest.raises(LogClosed):
            await log.append(b"v")
        assert log.log.closed

    asyncio.run(session())


def test_a_fork_s_child_is_refused_and_does_not_wait_for_threads_that_it_has_not(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        wrapped = kafkalog.aio.wrap(log)
        asyncio.run(wrapped.append([b"a"]))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(IllegalState):
                    asyncio.run(asyncio.wait_for(wrapped.end_offset(), 60))
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        asyncio.run(wrapped.close())


def test_a_call_that_fails_leaves_no_cycle(tmp_path: Path) -> None:
    async def scenario(log: Any) -> None:
        await log.end_offset()
        with left_to_collector() as left:
            for _ in range(3):
                try:
                    await log.record_at(5)
                except OffsetOutOfRange:
                    pass
        assert [one for one in left if isinstance(one, FrameType | OffsetOutOfRange)] == []

    run(tmp_path / "t-0", scenario)

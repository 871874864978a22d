"""Fetches of what lay on disk when a log was opened: checked in the pool, once, up to the first damage."""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.results import FetchResult
from tests.faults import FaultFS
from tests.raw_batches import batch as raw_batch
from tests.server.replica.partitions import (
    T0,
    Replicas,
    consumer_params,
    make_batch,
    offsets_in,
    request_at,
    run,
)
from tests.storage.damage_cases import damage
from tests.storage.logs import run as batches

COUNT, SIZE = 60, 10_000
LARGE_READ = 100_000
OLDER = 40
"""So many batches are in the first of two segments."""


class WatchedReads(FaultFS):
    """Notes the thread of each read that is larger than a look at headers, and calls `at_large_read` before it."""

    def __post_init__(self) -> None:
        self.large: list[int] = []
        self.is_watching = True
        self.at_large_read: Callable[[], object] = lambda: None
        super().__post_init__()

    def real(self, op: str) -> Callable[..., Any]:
        if op != "pread":
            return super().real(op)

        def pread(fd: int, size: int, position: int) -> bytes:
            if size > LARGE_READ and self.is_watching:
                self.large.append(threading.get_ident())
                self.at_large_read()
            return os.pread(fd, size, position)

        return pread


def with_old_records(
    tmp_path: Path, body: Callable[[Replicas, WatchedReads], Awaitable[None]], *, kind: str | None = None
) -> None:
    """Call `body` with replicas that were opened on batches of one record.

    Number 30 is damaged, in the first of two segments, where a kind is given.
    """

    async def write(replicas: Replicas) -> None:
        for number in range(COUNT):
            replicas.find(T0).log.append_as_leader(bytearray(batches(0, 1, SIZE)))
            if kind is not None and number + 1 == OLDER:
                replicas.find(T0).log.roll()

    run(tmp_path, write)
    if kind is not None:
        damage(tmp_path / "t-0" / "00000000000000000000.log", 30, kind)
    fs = WatchedReads()

    async def use(replicas: Replicas) -> None:
        fs.large.clear()  # those of the opening
        await body(replicas, fs)

    run(tmp_path, use, fs=fs)


async def fetch_one(replicas: Replicas, offset: int, max_bytes: int = 1 << 20) -> FetchResult:
    (result,) = await replicas.fetch(consumer_params(max_bytes=max_bytes), [request_at(T0, offset, max_bytes)])
    return result


async def offsets_from(replicas: Replicas, fs: WatchedReads, offset: int, max_bytes: int = 1 << 20) -> list[int]:
    """The base offsets that a fetch gets; to find them in its data is no read of the server."""
    result = await fetch_one(replicas, offset, max_bytes)
    fs.is_watching = False
    found = offsets_in(result)
    fs.is_watching = True
    return found


def test_old_records_are_read_for_their_check_in_the_pool(tmp_path: Path) -> None:
    async def body(replicas: Replicas, fs: WatchedReads) -> None:
        assert await offsets_from(replicas, fs, 0) == list(range(COUNT))
        assert fs.large and threading.get_ident() not in fs.large

    with_old_records(tmp_path, body)


def test_checked_records_are_not_read_again(tmp_path: Path) -> None:
    async def body(replicas: Replicas, fs: WatchedReads) -> None:
        await fetch_one(replicas, 0)
        fs.large.clear()
        for first, max_bytes in ((0, 1 << 20), (17, 1 << 20), (17, 25 * SIZE), (COUNT - 1, 1)):
            count = max(1, min(COUNT - first, max_bytes // SIZE))
            assert await offsets_from(replicas, fs, first, max_bytes) == list(range(first, first + count))
        assert not fs.large

    with_old_records(tmp_path, body)


def test_parts_that_were_checked_one_by_one_count_together(tmp_path: Path) -> None:
    async def body(replicas: Replicas, fs: WatchedReads) -> None:
        for first in (40, 20, 0):
            assert await offsets_from(replicas, fs, first, 20 * SIZE) == list(range(first, first + 20))
        assert fs.large
        fs.large.clear()
        assert await offsets_from(replicas, fs, 0) == list(range(COUNT))
        assert not fs.large

    with_old_records(tmp_path, body)


def test_new_records_behind_checked_ones_come_with_them(tmp_path: Path) -> None:
    async def body(replicas: Replicas, fs: WatchedReads) -> None:
        await fetch_one(replicas, 0)
        await replicas.produce(T0, data=batches(0, 1, SIZE))
        fs.large.clear()
        assert await offsets_from(replicas, fs, 50) == list(range(50, COUNT + 1))
        assert not fs.large

    with_old_records(tmp_path, body)


def test_after_a_cut_nothing_counts_as_checked(tmp_path: Path) -> None:
    async def body(replicas: Replicas, fs: WatchedReads) -> None:
        await fetch_one(replicas, 0)
        replicas.find(T0).log.truncate_to(COUNT - 1)
        damage(tmp_path / "t-0" / "00000000000000000000.log", 30, "base offset higher")
        assert await offsets_from(replicas, fs, 0) == list(range(30))

    with_old_records(tmp_path, body)


def test_a_cut_during_the_check_is_no_damage(tmp_path: Path) -> None:
    async def body(replicas: Replicas, fs: WatchedReads) -> None:
        log = replicas.find(T0).log

        def cut() -> None:
            fs.at_large_read = lambda: None
            log.truncate_to(10)
            for _ in range(20):
                log.append_as_leader(bytearray(batches(0, 1, SIZE // 3)))

        fs.at_large_read = cut
        assert await offsets_from(replicas, fs, 0) == list(range(30))
        assert log.metrics.damaged_reads == 0

    with_old_records(tmp_path, body)


@pytest.mark.parametrize("kind", ["size too large for the file", "size negative", "base offset higher"])
def test_fetches_at_once_end_before_damage_and_log_it_once(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(replicas: Replicas, fs: WatchedReads) -> None:
        for first in (0, 20):
            for result in await asyncio.gather(*(fetch_one(replicas, first) for _ in range(5))):
                assert offsets_in(result) == list(range(first, 30))
        results = await asyncio.gather(*(fetch_one(replicas, 30) for _ in range(5)))
        assert [result.error_code for result in results] == [2] * 5
        assert replicas.find(T0).log.metrics.damaged_reads == 5

    with caplog.at_level(logging.ERROR, "kafkalog.server.replica.fetch_check"):
        with_old_records(tmp_path, body, kind=kind)
    assert sum("a fetch found damage" in one.message for one in caplog.records) == 1


def test_a_log_that_begins_inside_a_batch_is_read_after_a_restart(tmp_path: Path) -> None:
    async def write(replicas: Replicas) -> None:
        for _ in range(3):
            replicas.find(T0).log.append_as_leader(bytearray(make_batch(4)))
        replicas.find(T0).delete_records(6)

    async def read(replicas: Replicas) -> None:
        assert replicas.find(T0).log.log_start_offset == 6
        for offset, found in ((6, [4, 8]), (7, [4, 8]), (8, [8])):
            result = await fetch_one(replicas, offset)
            assert (result.error_code, offsets_in(result)) == (0, found), offset
        assert (await fetch_one(replicas, 5)).error_code == 1

    run(tmp_path, write)
    run(tmp_path, read)


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_batch_of_the_last_segment_that_claims_more_than_there_is_is_no_end(tmp_path: Path, max_bytes: int) -> None:
    """A reader that gets nothing there waits for ever, though records follow."""
    with_old_records(tmp_path, lambda replicas, fs: asyncio.sleep(0))
    damage(tmp_path / "t-0" / "00000000000000000000.log", 30, "size too large for the file")

    async def body(replicas: Replicas) -> None:
        assert replicas.find(T0).log.log_end_offset == COUNT
        assert (await fetch_one(replicas, 30, max_bytes)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert replicas.find(T0).log.metrics.damaged_reads == 1
        assert offsets_in(await fetch_one(replicas, 31, 1)) == [31]

    run(tmp_path, body)


def test_records_behind_such_a_batch_that_no_index_leads_to_are_no_end(tmp_path: Path) -> None:
    async def write(replicas: Replicas) -> None:
        for _ in range(COUNT):
            replicas.find(T0).log.append_as_leader(bytearray(make_batch()))

    async def read(replicas: Replicas) -> None:
        assert offsets_in(await fetch_one(replicas, 29, 1)) == [29]
        for offset in (30, 31):
            assert (await fetch_one(replicas, offset)).error_code == ErrorCode.CORRUPT_MESSAGE

    run(tmp_path, write)
    damage(tmp_path / "t-0" / "00000000000000000000.log", 30, "size too large for the file")
    run(tmp_path, read)


def test_offsets_that_a_damaged_batch_no_longer_claims_are_not_passed_over_after_its_fetch(tmp_path: Path) -> None:
    """Its reader sees that the checksum differs; one that begins behind it would go on at the next batch."""
    async def write(replicas: Replicas) -> None:
        for offset in (0, 10, 20):
            rows = [(5, None, b"v"), (5, None, b"v")]
            replicas.find(T0).log.append_as_follower(raw_batch(offset, rows, deltas=(0, 9)), 0)
        replicas.find(T0).log.roll()
        await replicas.produce(T0)

    async def read(replicas: Replicas) -> None:
        assert offsets_in(await fetch_one(replicas, 0, size)) == [0]
        assert offsets_in(await fetch_one(replicas, 10, size)) == [10]
        assert (await fetch_one(replicas, 17)).error_code == ErrorCode.CORRUPT_MESSAGE

    run(tmp_path, write)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 3
    data[size + 26] = 1  # the last offset of the batch, by its first one
    path.write_bytes(data)
    run(tmp_path, read)

"""Fetches of a log with a damaged batch: sound batches are served, the damage is an error and logged once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafkalog.server.error_codes import ErrorCode
from tests.server.looping import in_loop
from tests.server.replica.partitions import T0, Replicas, consumer_params, offsets_in, replicas_in, request_at
from tests.storage.damage_cases import DAMAGE

COUNT, DAMAGED = 6, 2
RAISED = {"base offset higher by one": lambda data, position: data.__setitem__(position + 7, DAMAGED + 1)}
CORRUPT = int(ErrorCode.CORRUPT_MESSAGE)
INDEXED = 1
"""Bytes between entries of the index: with an entry for each batch, reads begin behind the damage."""


@asynccontextmanager
async def damaged_in(path: Path, kind: str, interval: int = 4096) -> AsyncIterator[tuple[Replicas, int]]:
    """Partitions of which the first has a closed segment of six batches, one of them damaged; the size of each."""
    settings = {"log_index_interval_bytes": interval}
    async with replicas_in(path, **settings) as replicas:
        for _ in range(COUNT):
            await replicas.produce(T0)
        replicas.find(T0).log.roll()
        await replicas.produce(T0)
    file = path / str(T0) / f"{0:020}.log"
    size = file.stat().st_size // COUNT
    data = bytearray(file.read_bytes())
    (DAMAGE | RAISED)[kind](data, DAMAGED * size)
    file.write_bytes(data)
    async with replicas_in(path, **settings) as replicas:
        yield replicas, size


async def fetch_offsets(replicas: Replicas, offset: int, max_bytes: int = 1 << 20) -> list[int] | int:
    """The base offsets that come, or the error code."""
    [result] = await replicas.read(consumer_params(), [request_at(T0, offset, max_bytes)])
    return offsets_in(result) or result.error_code


@pytest.mark.parametrize("kind", DAMAGE)
@in_loop
async def test_what_is_sound_before_and_behind_damage_comes_and_the_damage_is_an_error(
    tmp_path: Path, kind: str
) -> None:
    async with damaged_in(tmp_path, kind, INDEXED) as (replicas, size):
        seen_whole = list(range(COUNT)) if kind == "bytes" else [0, 1]
        assert await fetch_offsets(replicas, 0) == seen_whole, "checksums are compared by the client"
        assert await fetch_offsets(replicas, 1) == seen_whole[1:]
        assert await fetch_offsets(replicas, DAMAGED) == (seen_whole[DAMAGED:] or CORRUPT)
        for offset in range(DAMAGED + 1, COUNT):
            assert await fetch_offsets(replicas, offset) == list(range(offset, COUNT))
        assert await fetch_offsets(replicas, COUNT) == [COUNT], "the segment behind"
        assert await fetch_offsets(replicas, 0, 3 * size) == seen_whole[:3]
        assert await fetch_offsets(replicas, 0, 2 * size) == [0, 1]


@pytest.mark.parametrize("kind", DAMAGE)
@in_loop
async def test_without_an_index_damage_hides_what_is_behind_it_only_where_it_leads_astray(
    tmp_path: Path, kind: str
) -> None:
    """A walk begins at the segment's first batch. A damaged size or base offset that looks sound ends it
    with an error; sound batches behind are never passed over.
    """
    async with damaged_in(tmp_path, kind) as (replicas, _):
        is_passed = kind in ("base offset negative", "bytes")
        for offset in range(DAMAGED + 1, COUNT):
            assert await fetch_offsets(replicas, offset) == (list(range(offset, COUNT)) if is_passed else CORRUPT)
        assert await fetch_offsets(replicas, COUNT) == [COUNT]


@in_loop
async def test_a_base_offset_that_the_next_batch_contradicts_is_not_sent(tmp_path: Path) -> None:
    """It looks like a gap that compaction left; sent as the last one of an answer it would lead the client astray."""
    async with damaged_in(tmp_path, "base offset higher by one", INDEXED) as (replicas, size):
        for max_bytes in (1 << 20, 4 * size, 3 * size, 2 * size):
            assert await fetch_offsets(replicas, 0, max_bytes) == [0, 1]
        assert await fetch_offsets(replicas, DAMAGED) == CORRUPT


@pytest.mark.parametrize("kind", DAMAGE)
@in_loop
async def test_damage_that_fetches_meet_is_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.ERROR)
    async with damaged_in(tmp_path, kind, INDEXED) as (replicas, size):
        for _ in range(3):
            assert await fetch_offsets(replicas, DAMAGED) == CORRUPT
        assert replicas.find(T0).log.metrics.damaged_reads == 3
        [line] = [message for message in caplog.messages if message.startswith("t-0: a fetch found damage: ")]
        assert f"{0:020}.log" in line and f"position {DAMAGED * size}" in line

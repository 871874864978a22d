"""A follower when it has nothing to do, or cannot: how long it waits, what wakes it, what is next."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.records.legacy import LegacyBuilder
from kafkalog.server.client.errors import PeerUnreachable
from kafkalog.server.replica.following import FetchLimits
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop, pass_time
from tests.server.replica.copies import make_follower, make_leader, pair_in, until

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
PATIENT = FetchLimits(max_wait_ms=50, backoff_ms=600_000, least_backoff_ms=5)


async def many_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@in_loop
async def test_a_partition_that_comes_ends_the_wait(tmp_path: Path) -> None:
    async with pair_in(tmp_path, PATIENT) as pair:
        pair.fetcher.start()
        for key in (T0, T1):
            await many_turns()
            pair.begin(key)
            pair.append(key, b"0")
            await pair.until_same(key)
            await pair.fetcher.leave([key])


@in_loop
async def test_a_leader_that_is_gone_is_asked_after_pauses_that_grow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair_in(tmp_path, FetchLimits(least_backoff_ms=1_000, backoff_ms=600_000)) as pair:
        errors = [ValueError("a fault of its own"), *(PeerUnreachable("it is gone") for _ in range(9))]
        asked: list[Exception] = []

        async def refused() -> Any:
            asked.append(errors[len(asked)])
            raise asked[-1]

        pair.fetcher._connect = refused
        pair.fetcher.start()
        for count, seconds in ((1, 1), (2, 1), (2, 1), (3, 3), (3, 1), (4, 0)):
            await many_turns()
            assert len(asked) == count
            pass_time(seconds)
        assert str(pair.fetcher.peer_error) == "it is gone"
        [logged] = [one for one in caplog.records if "following a leader" in one.getMessage()]
        assert logged.getMessage() == "following a leader failed; retrying"
        assert logged.exc_info is not None and logged.exc_info[1] is errors[0]
        assert not [message for message in caplog.messages if "lost contact" in message], "it is known"


@in_loop
async def test_a_cut_for_an_earlier_epoch_is_not_made_in_a_later_one(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        own = pair.own.replicas.find(T0).log
        builder = LegacyBuilder(0, magic=1)
        for value in (b"0", b"1", b"2"):
            builder.append(1, None, value)
        own.append_as_follower(builder.build(), None)
        own.high_watermark_follows_end = False
        own.update_high_watermark(1)
        pair.fetcher.follow(make_follower(pair.own, T0, 0, make_leader(pair.leader, T0, 0)), 0)
        assert [*pair.fetcher._new] == [T0]
        own.update_high_watermark(3)
        pair.fetcher.follow(make_follower(pair.own, T0, 1, make_leader(pair.leader, T0, 1)), 1)
        assert not pair.fetcher._new


@in_loop
async def test_partitions_that_gave_records_come_last(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        pair.begin(T0, T1)
        pair.fetcher.start()
        for key, other in ((T0, T1), (T1, T0)):
            pair.append(key, b"0")
            await pair.until_same(key)
            await until(lambda key=key, other=other: [*pair.fetcher.states] == [other, key])  # type: ignore[misc]


@in_loop
async def test_how_long_a_follower_waits_if_nothing_is_due(tmp_path: Path) -> None:
    async with pair_in(tmp_path, PATIENT) as pair:
        fetcher = pair.fetcher
        assert (fetcher._idle_ms(1000, 0), fetcher._idle_ms(1000, 70)) == (600_000, 70)
        pair.begin(T0, T1)
        for key, due_ms in ((T0, 1030), (T1, 10**9)):
            fetcher.states[key] = fetcher.states[key]._replace(not_before_ms=due_ms)
        assert [fetcher._idle_ms(1000, throttled_ms) for throttled_ms in (0, 10, 50)] == [30, 10, 30]
        assert [fetcher._idle_ms(now_ms, 0) for now_ms in (1029, 1030, 2000)] == [1, 600_000, 600_000]
        await fetcher.leave([T0])
        assert fetcher._idle_ms(1000, 0) == 600_000

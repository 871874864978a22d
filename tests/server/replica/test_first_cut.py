"""What a follower truncates before its first fetch in an epoch, because no later answer shows where the logs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.types import TopicPartition
from tests.builder import R, batch
from tests.server.looping import in_loop
from tests.server.replica.copies import make_follower, make_leader, pair_in

T0 = TopicPartition("t", 0)


@in_loop
async def test_records_without_an_epoch_that_could_not_be_cut_are_cut_before_anything_is_fetched(
    tmp_path: Path,
) -> None:
    failures = [StorageError("the disk is full")] * 2
    async with pair_in(tmp_path) as pair:
        cutting = pair.fetcher._cutting

        @contextmanager
        def cutting_on_a_full_disk(ends: Mapping[TopicPartition, int]) -> Iterator[None]:
            if failures:
                raise failures.pop()
            with cutting(ends):
                yield

        pair.fetcher._cutting = cutting_on_a_full_disk
        for log, value in zip(pair.logs(T0), (b"the leader's", b"its own"), strict=True):
            builder = LegacyBuilder(0, magic=1)
            for each in (b"of both", value):
                builder.append(1, None, each)
            log.append_as_follower(builder.build(), None)
        leader = make_leader(pair.leader, T0, 0)
        own = make_follower(pair.own, T0, 0, leader)
        own.log.update_high_watermark(1)
        pair.fetcher.follow(own, 0)
        pair.fetcher.start()
        await pair.until_same(T0)
        assert failures == []


@in_loop
async def test_records_without_an_epoch_behind_the_leaders_end_are_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are below the follower's high watermark, so that nothing is cut before it asks."""
    async with pair_in(tmp_path) as pair:
        for log, count in zip(pair.logs(T0), (1, 3), strict=True):
            builder = LegacyBuilder(0, magic=1)
            for number in range(count):
                builder.append(1, None, b"%d" % number)
                log.append_as_follower(builder.build(), None)
                builder = LegacyBuilder(number + 1, magic=1)
        own = make_follower(pair.own, T0, 0, make_leader(pair.leader, T0, 0))
        own.log.update_high_watermark(3)
        pair.fetcher.follow(own, 0)
        pair.fetcher.start()
        await pair.until_same(T0)
        assert "t-0: the leader has offsets 0 to 1; the log is truncated to its end" in caplog.messages


@in_loop
async def test_a_log_that_the_leader_has_deleted_up_to_the_middle_of_a_batch_restarts_there(tmp_path: Path) -> None:
    """The follower led for a while, and no epoch of the leader's log shows any more where the two differ."""
    async with pair_in(tmp_path) as pair:
        for log, epoch, sizes in zip(pair.logs(T0), (2, 1), ((5,), (1, 1, 1, 1)), strict=True):
            for size in (1, *sizes):
                rows = [R(b"of epoch %d" % epoch)] * size
                log.append_as_leader(bytearray(batch(rows)), leader_epoch=epoch if log.log_end_offset else 0)
        pair.begin(T0, epoch=2)
        leader, own = pair.logs(T0)
        leader.maybe_increment_log_start_offset(3)
        pair.fetcher.start()
        await pair.until_same(T0)
        assert (own.log_start_offset, own.log_end_offset) == (3, 6)

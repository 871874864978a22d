"""A follower begins the leader's epoch once its log is like the leader's up to there, and counts from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.replica.following import TruncateTo, TruncateToEpoch
from kafkalog.server.replica.following_disk import FollowerTask, run_tasks
from kafkalog.server.replica.results import FetchResult
from kafkalog.server.replica.roles import Role, epoch_to_begin
from tests.server.replica.partitions import NODE, T0, Replicas, consumer_params, request_at, run


@pytest.mark.parametrize(("plan", "epochs"), [(TruncateToEpoch(0, 2), [(0, 0), (4, 2)]), (TruncateTo(2), [(0, 0)])])
def test_an_epoch_that_begins_where_a_log_is_cut_was_begun_all_the_same(
    tmp_path: Path, plan: Any, epochs: list[tuple[int, int]]
) -> None:
    """EPOCH-5: the epoch's acknowledged records lie before the cut; unconfirmed ones are removed."""
    async def body(replicas: Replicas) -> None:
        for _ in range(2):
            await replicas.produce(T0, acks=1)
        partition = replicas.find(T0)
        partition.become_leader(Role(NODE, 4, 1, (NODE, 2), (NODE,)))
        await replicas.produce(T0, acks=1)
        partition.become_follower(Role(2, 7, 2, (NODE, 2), (2,)))
        (done,) = run_tasks([FollowerTask(T0, partition, plan, 7)], replicas.store.cutting)
        assert done.error is None and partition.log.log_end_offset == 2
        assert list(partition.log.leader_epochs) == epochs
        assert partition.log.state.leader_epoch == epochs[-1][0]

    run(tmp_path, body)


def test_who_has_not_begun_the_leaders_epoch_counts_for_nothing(tmp_path: Path) -> None:
    """PART-2: records of earlier epochs are safe once they lie below a begin of this one."""
    async def body(replicas: Replicas) -> None:
        await replicas.produce(T0, acks=1)
        partition = replicas.find(T0)
        partition.log.update_high_watermark(0)
        partition.become_leader(Role(NODE, 5, 1, (NODE, 2), (NODE, 2)))
        place = partition.log.convert_to_offset_metadata(1)
        result = FetchResult(log_end_offset=1, place=place)
        assert not partition.follower_fetched(2, result, 0, 0) and partition.high_watermark == 0
        asked = request_at(T0, 1, last_fetched_epoch=0)
        answer = partition.read(consumer_params(replica_id=2, isolation="log_end"), asked, 1000, True)
        assert answer.diverging_epoch == (5, 1)  # at once: it has to begin it
        assert partition.follower_fetched(2, result, 0, 5) and partition.high_watermark == 1

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "start", "begins"),
    [
        (7, 3, 0, (5, 7)),
        (7, 5, 0, None),
        (6, 3, 0, None),  # it lacks what came before
        (7, -1, 0, (5, 7)),
        (9, -1, 9, (5, 9)),  # an empty log that begins in the epoch
        (9, -1, 0, None),
        (9, 3, 9, None),
        (9, 0, 9, None),  # it has an epoch, though the first one
    ],
)
def test_a_follower_begins_an_epoch_where_it_has_all_from_before(
    offset: int, last_epoch: int, start: int, begins: tuple[int, int] | None
) -> None:
    assert epoch_to_begin((5, 7), offset, last_epoch, start) == begins


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverges"),
    [
        (-1, 3, False), (0, 2, False), (0, 3, True), (3, 2, True), (3, 1, True), (4, 3, False), (4, 4, True),
        (9, 3, True),  # an epoch that is not known here
    ],
)  # fmt: skip
def test_a_fetch_that_waits_is_answered_when_its_last_epoch_ended_elsewhere(
    tmp_path: Path, last_epoch: int, offset: int, diverges: bool
) -> None:
    """FLOW-13."""
    async def body(replicas: Replicas) -> None:
        for _ in range(2):
            await replicas.produce(T0, acks=1)
        partition = replicas.find(T0)
        partition.become_leader(Role(NODE, 4, 1, (NODE, 2), (NODE,)))
        await replicas.produce(T0, acks=1)
        assert list(partition.log.leader_epochs) == [(0, 0), (4, 2)]
        assert partition.diverges(request_at(T0, offset, last_fetched_epoch=last_epoch)) is diverges

    run(tmp_path, body)

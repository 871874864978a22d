"""A follower begins the leader's epoch once its log is like the leader's up to there, and counts from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.server.replica.results import FetchResult
from kafkalog.server.replica.roles import Role, epoch_to_begin
from tests.server.replica.partitions import NODE, T0, Replicas, at, consumer, run


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
        asked = at(T0, 1, last_fetched_epoch=0)
        told = partition.read(consumer(replica_id=2, isolation="log_end"), asked, 1000, True)
        assert told.diverging_epoch == (5, 1)  # at once: it has to begin it
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
    ],
)
def test_a_follower_begins_an_epoch_where_it_has_all_from_before(
    offset: int, last_epoch: int, start: int, begins: tuple[int, int] | None
) -> None:
    assert epoch_to_begin((5, 7), offset, last_epoch, start) == begins

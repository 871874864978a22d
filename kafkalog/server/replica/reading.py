"""One fetch over many partitions: how many bytes each may have, and whether the answer waits (FLOW-11, FLOW-12)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kafkalog.server.replica.append_results import code_for_reader
from kafkalog.server.replica.fetch_check import MustReadData
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult
from kafkalog.server.replica.throttle import ReplicationRate, is_throttled
from kafkalog.server.turns import Turns
from kafkalog.types import TopicPartition

Run = Callable[..., Awaitable[Any]]
HeldBack = Callable[[Partition, int | None], bool]
"""Whether a partition's follower gets no records now; given a size, so many bytes count as replicated before."""


def held_back_by(throttle: ReplicationRate, node_id: int, replica_id: int) -> HeldBack:
    """How the leader's limit holds back a follower: in partitions that are throttled, while it is not in sync
    (FLOW-19)."""

    def held_back(partition: Partition, size: int | None) -> bool:
        replicas = partition.log.config.leader_replication_throttled_replicas
        if not replicas or not is_throttled(replicas, partition.topic_partition.partition, node_id):
            return False
        if size is not None:
            throttle.record(size)
        return throttle.is_exceeded and replica_id not in partition.role.isr

    return held_back


async def read_partitions(
    params: FetchParams,
    asked: Sequence[FetchPartition],
    find: Callable[[TopicPartition], Partition],
    run: Run,
    held_back: HeldBack | None = None,
    before: Sequence[FetchResult] = (),
) -> list[FetchResult]:
    """What the partitions give, in order; others are served in between.

    A partition has what is left of the whole, at most its own limit. The first one with records gives one batch at
    least, whatever the limits; those after it only whole batches that fit. One that is held back gives none. `before`
    are results of the same a moment ago: those of partitions in which nothing has changed since stand. `run` takes a
    read that may wait for the disk to the pool.
    """
    left, min_one_message = params.max_bytes, True
    results = []
    turns = Turns()
    for index, one in enumerate(asked):
        await turns.row()
        try:
            partition = find(one.topic_partition)
            if before and partition.reads_as(before[index]):
                results.append(before[index])
                continue
            partition.check_topic_id(one.topic_id)
            if held_back is not None and held_back(partition, None):
                result = partition.read(params, one, 0, False)
            else:
                asked_now = params, one, max(0, min(one.max_bytes, left)), min_one_message
                try:
                    result = partition.read(*asked_now, may_block=False)
                except MustReadData:
                    result = await run(partition.read, *asked_now)
                if held_back is not None and result.size:
                    held_back(partition, result.size)
        except Exception as error:
            result = FetchResult(code_for_reader(error, one.topic_partition))
        size = result.size
        if size:
            min_one_message = False
            left = max(0, left - size)
        results.append(result)
    return results


def must_wait(params: FetchParams, results: Sequence[FetchResult]) -> bool:
    """Whether there is not enough yet, and nothing that has to be told at once."""
    if params.max_wait_ms <= 0 or not results:
        return False
    size = 0
    for result in results:
        if result.error_code or result.diverging_epoch is not None:
            return False
        size += result.size
    return size < params.min_bytes

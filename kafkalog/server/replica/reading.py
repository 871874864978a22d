"""One fetch over many partitions: the bytes that each may return, and whether the answer waits (FLOW-11, FLOW-12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from threading import get_ident
from typing import TYPE_CHECKING

from kafkalog.server.replica.append_results import code_for_reader
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult
from kafkalog.server.replica.throttle import ReplicationRate, is_throttled
from kafkalog.server.requests.cooperative_yield import TURNS
from kafkalog.types import TopicPartition
from kafkalog.util.waiting import AT_ONCE, MustWait

if TYPE_CHECKING:
    from kafkalog.server.node.pool import Run

HeldBack = Callable[[Partition, int | None], bool]
"""Function: True if a partition's follower gets no records now. A given size is first recorded as replicated."""


def held_back_by(throttle: ReplicationRate, node_id: int, replica_id: int) -> HeldBack:
    """Return the function that applies the leader's limit to a follower (FLOW-19).

    It holds back throttled partitions in which the follower is not in sync, while the limit is exceeded.
    """

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
    requests: Sequence[FetchPartition],
    known: Mapping[TopicPartition, Partition],
    find: Callable[[TopicPartition], Partition],
    run: Run,
    held_back: HeldBack | None = None,
    before: Sequence[FetchResult] = (),
) -> list[FetchResult]:
    """Read the partitions and return their results in order, yielding to other tasks in between.

    A partition may return the bytes left of the whole limit, at most its own limit. The first one with records returns
    at least one batch, whatever the limits; those after it return only whole batches that fit. A partition that is held
    back returns none. `before` holds the results of the same read a moment ago, which are reused for unchanged
    partitions. `run` repeats in the pool a read that would have to wait for the disk or a lock.
    """
    left, min_one_message = params.max_bytes, True
    results: list[FetchResult] = []
    result: FetchResult | None
    turns, thread = cycle(TURNS), get_ident()
    for index, one in enumerate(requests):
        if next(turns):
            await asyncio.sleep(0)
        try:
            partition = known.get(one.topic_partition)
            if partition is None or partition.log.closed:
                partition = find(one.topic_partition)
            if before and partition.reads_as(before[index]):
                results.append(before[index])
                continue
            if one.topic_id is not partition.topic_id:
                partition.check_topic_id(one.topic_id)
            if held_back is not None and held_back(partition, None):
                arguments = params, one, 0, False
            else:
                arguments = params, one, max(0, min(one.max_bytes, left)), min_one_message
            AT_ONCE.add(thread)  # as `at_once`, without its call
            try:
                result = partition.read(*arguments)
            except MustWait:
                result = None
            finally:
                AT_ONCE.discard(thread)
            if result is None:
                result = await run(partition.read, *arguments)
            if held_back is not None and result.size:
                held_back(partition, result.size)
        except Exception as error:
            result = FetchResult(code_for_reader(error, one.topic_partition))
        if result.records is not None and result.records.size:
            min_one_message = False
            left = max(0, left - result.records.size)
        results.append(result)
    return results


def must_wait(params: FetchParams, results: Sequence[FetchResult]) -> bool:
    """Return True if there is too little data and no result that must be sent at once."""
    if params.max_wait_ms <= 0 or not results:
        return False
    size = 0
    for result in results:
        if result.error_code or result.diverging_epoch is not None:
            return False
        if result.records is not None:
            size += result.records.size
    return size < params.min_bytes

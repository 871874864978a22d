"""One fetch over many partitions: how many bytes each may have, and whether the answer waits (FLOW-11, FLOW-12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalog.server.replica.append_results import code_for_reader
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult
from kafkalog.server.turns import Turns
from kafkalog.types import TopicPartition

HeldBack = Callable[[Partition, int | None], bool]
"""Whether a partition's follower gets no records now; given a size, so many bytes count as replicated before."""


async def read_partitions(
    params: FetchParams,
    asked: Sequence[FetchPartition],
    find: Callable[[TopicPartition], Partition],
    held_back: HeldBack | None = None,
) -> list[FetchResult]:
    """What the partitions give, in order; others are served in between.

    A partition has what is left of the whole, at most its own limit. The first one with records gives one batch at
    least, whatever the limits; those after it only whole batches that fit. One that is held back gives none.
    """
    left, min_one_message = params.max_bytes, True
    results = []
    turns = Turns()
    for one in asked:
        await turns.row()
        try:
            partition = find(one.topic_partition)
            partition.check_topic_id(one.topic_id)
            if held_back is not None and held_back(partition, None):
                result = partition.read(params, one, 0, False)
            else:
                result = partition.read(params, one, max(0, min(one.max_bytes, left)), min_one_message)
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

"""Copying the records that a voter has and a candidate lacks: like a follower, from a node that leads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkalog.manager.log_remover import Cutting
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.following import UNKNOWN, FetchLimits
from kafkalog.server.replica.following_session import SessionRequest
from kafkalog.server.replica.leader_source import Answers, Bounds, LeaderSource
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.replica_fetcher import ReplicaFetcher
from kafkalog.server.replica.results import DEBUGGER
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.pool import Run

LIMITS: Final = FetchLimits(max_wait_ms=0, min_bytes=0)
"""Limits without a wait: a voter's log does not grow meanwhile."""


class VoterSource(LeaderSource):
    """A voter that grants access to its logs. Requests carry no leader epoch, since no node leads."""

    is_dry = False
    """True if the last answer had nothing new. A log with more records has some in every answer that has room."""

    async def fetch(self, ask: SessionRequest, ids: Mapping[str, UUID | None]) -> Answers:
        """Fetch once, without a leader epoch. Set `is_dry`. Otherwise like `LeaderSource.fetch`."""
        rows = {key: row._replace(leader_epoch=UNKNOWN) for key, row in ask.rows.items()}
        answers = await super().fetch(ask._replace(rows=rows), ids)
        self.is_dry = not answers.error_code and not any(
            one.records or one.diverging or one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE for _, one in answers.rows
        )
        return answers

    async def bounds(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, Bounds]:
        """Return the bounds as `LeaderSource.bounds` does, requested as a reader that may use any replica."""
        anyone = LeaderSource(self.connection, DEBUGGER, LIMITS)
        return await anyone.bounds(dict.fromkeys(epochs, UNKNOWN))


async def copy_ahead(
    source: VoterSource,
    partitions: Iterable[tuple[Partition, int]],
    *,
    run: Run,
    cutting: Cutting,
    monotonic_ms: Callable[[], int],
    on_appended: Callable[[Partition], object],
) -> None:
    """Copy partitions until the voter has nothing more of them; each comes with the last epoch of the voter's log.

    A log is truncated where it diverges from the voter's, as a follower's is, and then has the voter's records and
    epochs. Partitions that cannot be copied stay unchanged. Errors as in `LeaderSource.fetch`. On return, nothing is
    being written.
    """

    async def again() -> LeaderSource:
        return source

    fetcher = ReplicaFetcher(
        again, run=run, cutting=cutting, monotonic_ms=monotonic_ms, limits=LIMITS, on_appended=on_appended
    )
    for partition, last_epoch in partitions:
        fetcher.follow(partition, last_epoch)
    try:
        while fetcher.states and not source.is_dry:
            await fetcher.fetch_once(source)
    finally:
        await fetcher.settled()

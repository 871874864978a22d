"""Descriptions of the topics at both ends of a copy: values, read before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

INTERNAL: Final = frozenset({
    "__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata", "__cluster_metadata",
})  # fmt: skip
"""Topics in which a cluster keeps its own state. They are never copied: each cluster has its own."""


class Survey(NamedTuple):
    """Properties of the batches of a partition, read from their headers."""

    has_gaps: bool = False
    has_old_formats: bool = False
    has_append_time: bool = False
    has_transactions: bool = False
    has_producers: bool = False


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """A partition of the source: the offsets [start, stop) that are copied, and its log end.

    `stop` is below `end` if a transaction is open there. `survey` is None if only a read of all records would show it.
    """

    start: int
    stop: int
    end: int
    survey: Survey | None = None


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the source; `settings` is None if they are unknown."""

    name: str
    topic_id: str | None
    settings: Mapping[str, str] | None
    partitions: Mapping[int, SourcePartition]

    @property
    def partition_count(self) -> int:
        """Number of partitions, including those that the source lacks."""
        return max(self.partitions, default=-1) + 1

    @property
    def is_compacted(self) -> bool:
        """True if the topic's cleanup policy includes compaction."""
        return "compact" in (self.settings or {}).get("cleanup.policy", "")


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic that the target already has: its settings, and the end offset of each partition.

    `copied` are offsets of the source up to which earlier runs copied partitions, as far as they are known.
    """

    settings: Mapping[str, str]
    ends: Mapping[int, int] = field(default_factory=dict)
    copied: Mapping[int, int] = field(default_factory=dict)


class TargetTraits(NamedTuple):
    """Capabilities of a target.

    `keeps_log`: it takes logs as they are, with gaps, markers, epochs and producers, as a follower does. `settings` are
    the names that it supports; None if it checks them itself. `at_once` partitions are copied at the same time.
    """

    name: str
    keeps_log: bool
    settings: frozenset[str] | None = None
    at_once: int = 1

"""Values shared by the layers: partitions, offsets, positions, results of appends and reads.

Types created once per append or read are compiled (`_core/log/values.pyx`) and only imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from kafkalog._core.log.values import LogAppendInfo, LogOffsetMetadata, OffsetPosition, TimestampOffset

if TYPE_CHECKING:
    from collections.abc import Sequence

    class Aborted(Protocol):
        """An aborted transaction: its producer, its first offset, and its marker's offset."""

        @property
        def producer_id(self) -> int: ...
        @property
        def first_offset(self) -> int: ...
        @property
        def last_offset(self) -> int: ...


__all__ = [
    "EARLIEST_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "MAX_TIMESTAMP",
    "NO_TIMESTAMP",
    "FetchDataInfo",
    "Isolation",
    "LogAppendInfo",
    "LogOffsetMetadata",
    "OffsetAndTimestamp",
    "OffsetPosition",
    "TimestampOffset",
    "TopicPartition",
]

Isolation = Literal["log_end", "high_watermark", "committed"]

NO_TIMESTAMP: Final = -1
LATEST_TIMESTAMP: Final = -1
"""As a requested time: the log end offset."""
EARLIEST_TIMESTAMP: Final = -2
"""As a requested time: the log start offset."""
MAX_TIMESTAMP: Final = -3
"""As a requested time: the record with the largest timestamp."""


class TopicPartition(NamedTuple):
    """One partition of a topic; `str()` is its directory name. Orders by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndTimestamp(NamedTuple):
    """A record found by time: its offset, its timestamp (ms) and its leader epoch (-1: unknown)."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class FetchDataInfo:
    """Result of a read, before any record byte is read.

    `fetch_offset_metadata` is the start of the data, `records` the FileSlice that holds it (of size 0 if there is
    none). `first_entry_incomplete` is True if not even one batch fits whole. `aborted_transactions` is None unless the
    read was for committed records.
    """

    fetch_offset_metadata: LogOffsetMetadata
    records: Any
    first_entry_incomplete: bool = False
    aborted_transactions: Sequence[Aborted] | None = None

    def __repr__(self) -> str:
        incomplete = ", first_entry_incomplete=True" if self.first_entry_incomplete else ""
        return f"FetchDataInfo({self.fetch_offset_metadata!r}, {self.records!r}{incomplete})"

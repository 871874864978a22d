"""Tiered segments of a partition as `__remote_log_metadata` gives them: events in, segments and their states out."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog.errors import InvalidRecord
from kafkalog.records.internal import MetadataRecord
from kafkalog.records.schema import Message
from kafkalog.storage.leader_epoch import EpochEntry

SEGMENT, UPDATE, PARTITION_DELETE = 0, 1, 2
"""Types of the records."""
COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)
"""States of a segment."""
_NEXT: Final = {
    COPY_STARTED: {COPY_FINISHED, DELETE_STARTED},
    COPY_FINISHED: {DELETE_STARTED},
    DELETE_STARTED: {DELETE_FINISHED},
    DELETE_FINISHED: set[int](),
}


class RemoteSegment(NamedTuple):
    """A copy of a segment: offsets `start` to `end`, both included.

    epochs: each leader epoch in it and its first offset there. custom: bytes of the store's plugin.
    """

    segment_id: str
    start: int
    end: int
    size_bytes: int
    max_timestamp: int
    epochs: tuple[EpochEntry, ...]
    custom: bytes | None = None
    is_txn_index_empty: bool = False
    broker_id: int = -1

    def range_in(self, epoch: int) -> tuple[int, int] | None:
        """Return the first offset of `epoch` in this segment, and that behind its last; None without the epoch."""
        for number, entry in enumerate(self.epochs):
            if entry.epoch == epoch:
                following = self.epochs[number + 1].start_offset if number + 1 < len(self.epochs) else self.end + 1
                return entry.start_offset, following
        return None


class Copies(NamedTuple):
    """Copies of a partition's segments after `version` events.

    finished: those that count, in the order in which they were finished. deleted: those that are deleted or being
    deleted. unfinished: those that were begun and not finished. deleting: those whose deletion is not finished.
    """

    version: int
    finished: tuple[RemoteSegment, ...]
    deleted: tuple[RemoteSegment, ...]
    unfinished: tuple[RemoteSegment, ...] = ()
    deleting: tuple[RemoteSegment, ...] = ()


class RemoteLog:
    """The copies of one partition's segments, as the events say; one thread at a time."""

    def __init__(self) -> None:
        self._version = 0
        self._segments: dict[str, RemoteSegment] = {}
        self._states: dict[str, int] = {}
        self._finished: dict[str, None] = {}  # in the order in which the copies were finished

    def copies(self) -> Copies:
        """Return the copies as they are now."""
        return Copies(
            self._version, tuple(self._segments[one] for one in self._finished),
            self._in_states(DELETE_STARTED, DELETE_FINISHED), self._in_states(COPY_STARTED),
            self._in_states(DELETE_STARTED),
        )  # fmt: skip

    def _in_states(self, *states: int) -> tuple[RemoteSegment, ...]:
        return tuple(one for key, one in self._segments.items() if self._states[key] in states)

    def apply(self, record: MetadataRecord) -> None:
        """Apply one event; raise InvalidRecord for impossible offsets, epochs or states.

        As in the broker, an event that does not fit the state of its segment changes nothing.
        """
        self._version += 1
        if record.type == SEGMENT:
            segment, state = parse_segment(record.data), _state(record.data)
            if segment.segment_id not in self._segments:
                self._segments[segment.segment_id] = segment
                self._states[segment.segment_id] = COPY_STARTED
                self._move(segment.segment_id, state)
        elif record.type == UPDATE:
            segment_id = record.data["remoteLogSegmentId"]["id"]
            state = _state(record.data)
            if segment_id in self._segments:
                if record.data["customMetadata"] is not None:
                    self._segments[segment_id] = self._segments[segment_id]._replace(
                        custom=record.data["customMetadata"]
                    )
                self._move(segment_id, state)

    def _move(self, segment_id: str, state: int) -> None:
        if state not in _NEXT[self._states[segment_id]]:
            return
        self._states[segment_id] = state
        if state == COPY_FINISHED:
            self._finished[segment_id] = None
        else:
            self._finished.pop(segment_id, None)


def parse_segment(data: Message) -> RemoteSegment:
    """Return the segment of a RemoteLogSegmentMetadataRecord; raise InvalidRecord for impossible values."""
    entries = sorted({one["leaderEpoch"]: one["offset"] for one in data["segmentLeaderEpochs"]}.items())
    return checked_segment(
        RemoteSegment(
            data["remoteLogSegmentId"]["id"], data["startOffset"], data["endOffset"], data["segmentSizeInBytes"],
            data["maxTimestampMs"], tuple(EpochEntry(*entry) for entry in entries), data["customMetadata"],
            bool(data.get("txnIndexEmpty")), data["brokerId"],
        )
    )  # fmt: skip


def checked_segment(segment: RemoteSegment) -> RemoteSegment:
    """Return the segment, with its first epoch from its beginning on; raise InvalidRecord for impossible values.

    That epoch begins before the segment, or behind its beginning: the leader had removed records before that, or those
    there are of old formats, which have no epoch.
    """
    start, end = segment.start, segment.end
    if not 0 <= start <= end < 2**63 - 1 or segment.size_bytes < 0:
        raise InvalidRecord(f"a tiered segment of offsets {start} to {end}, {segment.size_bytes} bytes", offset=start)
    epochs = [one._replace(start_offset=max(one.start_offset, start)) for one in segment.epochs]
    offsets = [one.start_offset for one in epochs]
    if not offsets or any(low >= high for low, high in zip(offsets, [*offsets[1:], end + 1], strict=True)):
        raise InvalidRecord(f"the leader epochs of a tiered segment do not fit offsets {start} to {end}", offset=start)
    return segment._replace(epochs=(epochs[0]._replace(start_offset=start), *epochs[1:]))


def _state(data: Message) -> int:
    state: int = data["remoteLogSegmentState"]
    if state not in _NEXT:
        raise InvalidRecord(f"a tiered segment is in the unknown state {state}")
    return state

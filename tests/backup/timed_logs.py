"""Logs of several producers with times out of order, and what they held at a moment by a plain model of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import kafkalog
from kafkalog.control import ControlType, marker_batch
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder

SETTINGS = {"internal.segment.bytes": 700, "index.interval.bytes": 100}
PLAIN, DATA, COMMIT, ABORT = "plain", "data", "commit", "abort"


class Row(NamedTuple):
    """A record or a marker of the model; `first` is the offset at which its transaction began, -1 without one."""

    offset: int
    time: int
    kind: str
    producer: int
    first: int


@dataclass(frozen=True)
class Event:
    """One batch: its kind, its producer, the times of its records (a marker has one), codec and format."""

    kind: str
    producer: int
    times: tuple[int, ...]
    codec: int = 0
    magic: int = 2


def value_of(offset: int) -> bytes:
    return b"value %d" % offset


class TimedLog:
    """The rows of a log, built event by event, and the bytes that a leader would send of it."""

    def __init__(self, events: list[Event]) -> None:
        self.rows: list[Row] = []
        self.batches: list[bytes] = []
        self._open: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        for event in events:
            self._add(event)

    @property
    def end(self) -> int:
        return len(self.rows)

    def _add(self, event: Event) -> None:
        if event.kind in (COMMIT, ABORT):
            first = self._open.pop(event.producer, -1)
            if first < 0:
                return
            kind = ControlType.COMMIT if event.kind == COMMIT else ControlType.ABORT
            time = event.times[0]
            self.batches.append(
                bytes(marker_batch(kind, event.producer, 0, 7, timestamp=time, base_offset=self.end, leader_epoch=3))
            )
            self.rows.append(Row(self.end, time, event.kind, event.producer, first))
            return
        self.batches.append(self._data(event))
        first = self._open.setdefault(event.producer, self.end) if event.kind == DATA else -1
        for time in event.times:
            time = -1 if event.kind == PLAIN and event.magic == 0 else time
            self.rows.append(Row(self.end, time, event.kind, event.producer, first))

    def _data(self, event: Event) -> bytes:
        codec = CompressionType(event.codec)
        if event.kind == PLAIN and event.magic < 2:
            codec = CompressionType.GZIP if codec == CompressionType.ZSTD else codec
            legacy = LegacyBuilder(self.end, magic=event.magic, compression=codec)
            for number, time in enumerate(event.times):
                legacy.append(time if event.magic else -1, b"k", value_of(self.end + number))
            return bytes(legacy.build())
        fields = {}
        if event.kind == DATA:
            sequence = self._sequences.get(event.producer, 0)
            self._sequences[event.producer] = sequence + len(event.times)
            fields = {"producer_id": event.producer, "producer_epoch": 0, "base_sequence": sequence}
        builder = RecordsBuilder(
            self.end, compression=codec, leader_epoch=3, is_transactional=event.kind == DATA, **fields
        )
        for number, time in enumerate(event.times):
            builder.append(time, b"k", value_of(self.end + number), [("h\u00e9", b"x")])
        return bytes(builder.build())

    def write(self, partition: Path) -> None:
        """Write the log as a follower does, batch by batch."""
        with kafkalog.open(partition, "a", **SETTINGS) as log:
            for batch in self.batches:
                log.replicate(batch)

    def kept(self, at: int, by: str) -> list[Row]:
        """The rows at the moment: records, and markers with which transactions were decided."""
        if by == "time":
            return [row for row in self.rows if row.time <= at]
        later = next((number for number, row in enumerate(self.rows) if row.time > at), self.end)
        return self.rows[:later]

    def all_offsets(self, at: int, by: str) -> list[int]:
        return [row.offset for row in self.kept(at, by) if row.kind in (PLAIN, DATA)]

    def committed_offsets(self, at: int, by: str) -> list[int]:
        kept = self.kept(at, by)
        decided = {row.first for row in kept if row.kind == COMMIT}
        return [row.offset for row in kept if row.kind == PLAIN or row.kind == DATA and row.first in decided]

"""The scan of one task: a range of offsets, with the options' rules for what is gone and what is damaged."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from errno import ENOENT
from typing import TYPE_CHECKING, Final

from kafkalog.chunks import Chunk, batch_chunks
from kafkalog.engine import refresh
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    KafkalogError,
    NotAPartition,
    OffsetOutOfRange,
    PartitionNotFound,
    StorageError,
    UnsupportedForFormat,
)
from kafkalog.log_scan import LogScan
from kafkalog.spark.damage import Damage, DataLoss, Skipped
from kafkalog.spark.salvage import salvaged
from kafkalog.storage.names import parse_base_offset

if TYPE_CHECKING:
    from kafkalog.api import Log
    from kafkalog.spark.options import SourceOptions
    from kafkalog.storage.view import LogView

__all__ = ["IN_A_BATCH", "LOST_HINT", "RangeScan", "after_damage", "is_loss", "tell_loss"]

LOST_HINT: Final = (
    "retention, a delete or a cut took these records; set failOnDataLoss to false to go on with what is there"
)
IN_A_BATCH: Final = (CorruptRecord, InvalidRecord, UnsupportedForFormat, IllegalArgument)
"""What a batch with a right checksum may hold that nobody can decode."""


def is_loss(error: KafkalogError) -> bool:
    """True for an error that says that records, which were there when a read was planned, are there no more."""
    if isinstance(error, StorageError):
        return error.errno == ENOENT
    return isinstance(error, (OffsetOutOfRange, PartitionNotFound, NotAPartition))


def tell_loss(name: str, start: int, following: int, error: KafkalogError) -> None:
    """A DataLoss warning: the offsets [start, following) of a partition are gone, as `error` says."""
    warnings.warn(
        f"data loss in {name}: offsets {start} to {following - 1} are gone: {error.message}", DataLoss, stacklevel=3
    )


class RangeScan(LogScan):
    """A scan of [start, stop) of a log in mode "r" by a read's options; `damage` is told what is left out.

    Records that are gone meanwhile are an error or, by `fail_on_data_loss`, passed over with a DataLoss warning. Bytes
    that are no sound batch are CorruptRecord or, by `skip_corrupt`, passed over; damage inside a batch ends the scan in
    any case: `after_damage` then says where another one goes on.
    """

    __slots__ = ("_damage", "_options")

    def __init__(
        self,
        log: Log,
        start: int,
        stop: int,
        columns: tuple[str, ...],
        options: SourceOptions,
        damage: Damage,
        *,
        batch_rows: int,
        batch_bytes: int,
    ) -> None:
        super().__init__(
            log, start, stop, columns, isolation=options.isolation, batch_rows=batch_rows, batch_bytes=batch_bytes
        )
        self._options = options
        self._damage = damage

    @property
    def _view(self) -> LogView:
        return self.log._engine  # type: ignore[return-value]  # a log in mode "r"

    def _chunks(self) -> Iterator[Chunk]:
        start = self.start
        is_boundary = False  # whether a batch is known to begin at `start`, or none to hold it
        while start < self.stop:
            bound = self._bound()
            try:
                try:
                    for chunk in self._plain_chunks(start, bound):
                        yield chunk
                        start, is_boundary = chunk.next_offset, True
                    if start >= self.stop or bound == self.stop:
                        return  # what is missing are gaps
                    trouble = self._view.damage
                    if trouble is None or (trouble.offset or 0) > bound:
                        continue  # there is more than there was before
                    lowest = trouble.offset
                except CorruptRecord as error:
                    if not self._options.skip_corrupt:
                        raise
                    trouble, lowest = error, start if is_boundary else None
                for chunk in self._salvaged(trouble, start, lowest):
                    yield chunk
                    start = chunk.next_offset
            except KafkalogError as error:
                start, is_boundary = self._after_loss(error, start), False
                continue
            following = self._segment_behind(trouble, start)
            if following is None:
                return
            start, is_boundary = following, False

    def _bound(self) -> int:
        """How far plain reading goes: to the damage at the view's end, where what lies behind it is looked for."""
        view = self._view
        if self._options.skip_corrupt and view.damage is not None:
            return min(self.stop, view.log_end_offset)
        return self.stop

    def _plain_chunks(self, start: int, stop: int) -> Iterator[Chunk]:
        return batch_chunks(
            self._view, start, stop, self.log, sequential=True, check_crc=self._options.verify_crc
        )

    def _salvaged(self, trouble: CorruptRecord, start: int, lowest: int | None) -> Iterator[Chunk]:
        segment = self._view.segments.get(_base_offset(trouble))
        if segment is not None:
            trouble.path = segment.path  # where it is by now: a cleaned file loses its suffix
        if lowest is not None:
            start = max(start, lowest)
        return salvaged(
            trouble, start, self.stop, self._damage, lowest=lowest, check_crc=self._options.verify_crc
        )

    def _segment_behind(self, trouble: CorruptRecord, start: int) -> int | None:
        """Where the segment after the damaged one begins, at `start` or later; None where there is none."""
        higher = self._view.segments.higher(_base_offset(trouble))
        return None if higher is None else max(start, higher.base_offset)

    def _after_loss(self, error: KafkalogError, start: int) -> int:
        """Where to go on after records that are gone. Raises where that is an error."""
        if not is_loss(error):
            raise error
        view = self._view
        if self._options.fail_on_data_loss:
            error.hint = LOST_HINT
            raise error
        try:
            refresh(view)
            following = view.log_start_offset
        except KafkalogError as gone:
            if not is_loss(gone):
                raise
            following = start
        following = min(following, self.stop) if following > start else self.stop
        tell_loss(self.log.name, start, following, error)
        return following


def _base_offset(trouble: CorruptRecord) -> int:
    """Where the segment with the damage begins; its file may have another name by now."""
    return parse_base_offset(os.path.basename(trouble.path or "")) or 0


def after_damage(log: Log, error: KafkalogError, start: int, options: SourceOptions, damage: Damage) -> int:
    """The offset after the batch that `error` says cannot be decoded, which is noted in `damage` from `start` on.

    The error itself where the batch is not found.
    """
    if error.offset is not None:
        there = RangeScan(
            log, error.offset, error.offset + 1, ("offset",), options, Damage(), batch_rows=1, batch_bytes=1
        )
        for chunk in there._chunks():
            for row in range(chunk.first, chunk.last):
                if chunk.batches.base_offset(row) == error.offset:
                    following = chunk.batches.last_offset_of(row) + 1
                    place = chunk.path, chunk.batches.position(row), chunk.batches.size(row)
                    damage.note(Skipped(*place, max(error.offset, start), following, error.message))
                    return following
    raise error

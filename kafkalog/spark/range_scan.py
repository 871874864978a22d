"""Scan of one task: a range of offsets, with the options' rules for missing and damaged records."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from errno import ENOENT
from typing import TYPE_CHECKING, Final

from kafkalog.errors import (
    CorruptCheckpoint,
    KafkalogError,
    NotAPartition,
    OffsetOutOfRange,
    PartitionNotFound,
    StorageError,
)
from kafkalog.log.pruning import possible_chunks
from kafkalog.log.scan import LogScan
from kafkalog.reading.chunks import Chunk, batch_chunks, batch_of_error
from kafkalog.reading.source import refresh
from kafkalog.spark.damage import DataLoss
from kafkalog.storage.damage import Skipped, note_skipped
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.util.fileio import OS
from kafkalog.where.bounds import EVERY, Spans

if TYPE_CHECKING:
    from kafkalog.exchange.ranges import OffsetRange
    from kafkalog.log.log import Log
    from kafkalog.spark.options import SourceOptions
    from kafkalog.storage.readonly.view import LogView

LOST_HINT: Final = (
    "retention, deletion or truncation removed these records; set failOnDataLoss to false to read the existing ones"
)


def known_topic_id(directory: str) -> str | None:
    """Return the id of a partition's topic; None if the file with it is missing or malformed."""
    try:
        return read_partition_metadata(OS, directory)
    except CorruptCheckpoint:
        return None


def check_topic(part: OffsetRange) -> None:
    """Raise OffsetOutOfRange if another topic of the same name has replaced the one for which a range was planned."""
    found = None if part.topic_id is None else known_topic_id(part.directory)
    if found is not None and found != part.topic_id:
        raise OffsetOutOfRange(
            f"the topic was deleted and created again: its id was {part.topic_id} and is {found}",
            path=part.directory, offset=part.start, hint=LOST_HINT,
        )  # fmt: skip


def is_loss(error: KafkalogError) -> bool:
    """Return True for an error that means that records which existed at planning are missing now."""
    if isinstance(error, StorageError):
        return error.errno == ENOENT
    return isinstance(error, (OffsetOutOfRange, PartitionNotFound, NotAPartition))


def warn_of_loss(name: str, start: int, following: int, error: KafkalogError) -> None:
    """Issue a DataLoss warning: the offsets [start, following) of a partition are missing because of `error`."""
    warnings.warn(
        f"data loss in {name}: offsets {start} to {following - 1} are missing: {error.message}", DataLoss, stacklevel=3
    )


class RangeScan(LogScan):
    """Scan of [start, stop) of a log in mode "r" by a read's options; `skipped` receives what is left out.

    Records deleted meanwhile raise an error or, by `fail_on_data_loss`, are skipped with a DataLoss warning. Bytes that
    are not a sound batch raise CorruptRecord or, by `on_damage`, are skipped. Damage inside a batch always ends the
    scan; `after_damage` then returns where another scan can continue. Batches whose header rules out `times` are left
    out.
    """

    __slots__ = ("_options", "_times")

    def __init__(
        self,
        log: Log,
        start: int,
        stop: int,
        columns: tuple[str, ...],
        options: SourceOptions,
        skipped: list[Skipped],
        *,
        batch_rows: int,
        batch_bytes: int,
        times: Spans = EVERY,
    ) -> None:
        super().__init__(
            log, start, stop, columns, isolation=options.isolation, batch_rows=batch_rows, batch_bytes=batch_bytes,
            on_damage=options.on_damage, skipped=skipped if options.on_damage == "skip" else None,
        )  # fmt: skip
        self._options = options
        self._times = times

    @property
    def _view(self) -> LogView:
        return self.log._source  # type: ignore[return-value]  # a log in mode "r"

    def _chunks(self) -> Iterator[Chunk]:
        found = self._existing_chunks()
        return found if self._times == EVERY else possible_chunks(found, self._times)

    def _existing_chunks(self) -> Iterator[Chunk]:
        start = self.start
        while start < self.stop:
            try:
                for chunk in batch_chunks(
                    self._view, start, self.stop, self.log,
                    sequential=True, check_crc=self._options.verify_crc, skipped=self._skipped,
                ):  # fmt: skip
                    yield chunk
                    start = chunk.next_offset
                return
            except KafkalogError as error:
                start = self._after_loss(error, start)

    def _after_loss(self, error: KafkalogError, start: int) -> int:
        """Return the offset at which to continue after missing records; raise the error if it must not be skipped."""
        if not is_loss(error):
            raise error
        view = self._view
        if self._options.fail_on_data_loss:
            error.hint = LOST_HINT
            raise error
        try:
            refresh(view)
            following = view.log_start_offset
        except KafkalogError as second:
            if not is_loss(second):
                raise
            following = start
        following = min(following, self.stop) if following > start else self.stop
        warn_of_loss(self.log.name, start, following, error)
        return following


def after_damage(log: Log, error: KafkalogError, start: int, options: SourceOptions, skipped: list[Skipped]) -> int:
    """Return the offset after the batch that `error` could not decode, and note it in `skipped` from `start` on.

    Raises `error` itself if the batch is not found.
    """
    if error.offset is not None:
        first = max(error.offset, log.start_offset)  # the log may begin inside the batch
        scan = RangeScan(log, first, first + 1, ("offset",), options, [], batch_rows=1, batch_bytes=1)
        found = batch_of_error(scan._chunks(), error, start)
        if found is not None:
            note_skipped(skipped, found)
            return found.next_offset
    raise error

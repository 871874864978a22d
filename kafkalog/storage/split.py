"""Splitting a segment that holds offsets too far from its base (KAFKA-6264, LOG-78, LOAD-17)."""

from __future__ import annotations

import logging
from typing import Final

from kafkalog._core.scan import BatchTable, scan
from kafkalog.config import LogConfig
from kafkalog.errors import IllegalArgument
from kafkalog.storage.names import CLEANED_SUFFIX
from kafkalog.storage.replace import replace_files
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

_LOG: Final = logging.getLogger(__name__)


def split_segment(
    segment: LogSegment, directory: str, config: LogConfig, fs: FileSystem, clock: Clock
) -> list[LogSegment]:
    """The segments that hold the batches of `segment` now, in file order; its own files are renamed to `.deleted`.

    Each begins with the base offset of its first batch and takes batches as long as their offsets fit. The files stay
    open. IllegalArgument for a segment all of whose offsets fit; StorageError.
    """
    if not has_overflow(segment):
        raise IllegalArgument("only a segment with offsets that do not fit it can be split", path=segment.path)
    _LOG.warning("%s has offsets that do not fit it: split", segment.path)
    made = share_out(segment, directory, config, fs, clock)
    try:
        replace_files(directory, made, (segment,), fs)
    except BaseException:
        for part in made:
            part.close_handlers()
        raise
    return made


def share_out(
    segment: LogSegment, directory: str, config: LogConfig, fs: FileSystem, clock: Clock
) -> list[LogSegment]:
    """What `split_segment` puts in the place of `segment`, as `.cleaned` files that are on disk; StorageError."""
    made: list[LogSegment] = []
    try:
        for data, table in segment.records.slice(0, segment.size).scanned():
            _share_out(data, table, made, directory, config, fs, clock)
        for part in made:
            part.on_become_inactive()
            part.flush()
    except BaseException:
        for part in made:
            part.close_handlers()
        raise
    return made


def has_overflow(segment: LogSegment) -> bool:
    """True when a batch has an offset that the segment cannot hold."""
    base = segment.base_offset
    return any(
        not base <= batch.last_offset <= base + MAX_RELATIVE_OFFSET
        for table in segment.records.tables()
        for batch in table
    )


def _share_out(
    data: bytes,
    table: BatchTable,
    made: list[LogSegment],
    directory: str,
    config: LogConfig,
    fs: FileSystem,
    clock: Clock,
) -> None:
    """Append the batches of one chunk, run by run, to the last segment made, or to a new one where they do not fit."""
    start, row = table.position(0), 0
    while row < len(table):
        base = made[-1].base_offset if made else None
        stop = row
        while stop < len(table) and base is not None and 0 <= table.last_offset_of(stop) - base <= MAX_RELATIVE_OFFSET:
            stop += 1
        if stop == row:
            made.append(
                LogSegment.open(directory, table.base_offset(row), config, fs=fs, clock=clock, suffix=CLEANED_SUFFIX)
            )
            continue
        end = table.position(stop - 1) + table.size(stop - 1)
        piece = memoryview(data)[table.position(row) - start : end - start]
        made[-1].append(piece, scan(piece, check_crc=False, file_mode=True))
        row = stop

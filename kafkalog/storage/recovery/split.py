"""Splitting a segment that holds offsets too far from its base (KAFKA-6264, LOG-78, LOAD-17)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptRecord, IllegalArgument, IllegalState, KafkalogError
from kafkalog.storage.index.aborted_txns import AbortedTxn
from kafkalog.storage.names import CLEANED_SUFFIX
from kafkalog.storage.replace import replace_files
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

_LOG: Final = logging.getLogger(__name__)
HINT: Final = "no broker writes such offsets: restore the segment from a replica or a backup"


def split_segment(
    segment: LogSegment, directory: str, config: LogConfig, fs: FileSystem, clock: Clock
) -> list[LogSegment]:
    """Split `segment` and return the new segments, in file order; its own files are renamed to `.deleted`.

    Each begins with the base offset of its first batch and takes batches while their offsets fit. The files stay
    open. IllegalArgument for a segment all of whose offsets fit; StorageError.
    """
    if not has_overflow(segment):
        raise IllegalArgument("only a segment with offsets that do not fit it can be split", path=segment.path)
    _LOG.warning("splitting %s, which has offsets that do not fit it", segment.path)
    parts = write_parts(segment, directory, config, fs, clock)
    try:
        replace_files(directory, parts, (segment,), fs)
    except BaseException:
        for part in parts:
            part.close_handlers()
        raise
    return parts


def write_parts(
    segment: LogSegment,
    directory: str,
    config: LogConfig,
    fs: FileSystem,
    clock: Clock,
    aborted: Sequence[AbortedTxn] = (),
) -> list[LogSegment]:
    """Return synced `.cleaned` segments that hold the batches of `segment` and have its modification time.

    Each entry of its transaction index, `aborted`, is added to the part with the marker. An error leaves no file.
    CorruptRecord if a batch fits no segment, or two parts would have one name; IllegalState if such a `.cleaned`
    file exists; StorageError.
    """
    modified_ns = segment.records.last_modified_ns()
    parts: list[LogSegment] = []
    try:
        for data, table in segment.records.slice(0, segment.size).scanned(whole=True):
            _append_to_parts(segment.path, data, table, parts, directory, config, fs, clock)
        for entry in aborted:
            _part_of(parts, entry.last_offset).add_aborted(entry)
        for part in parts:
            part.on_become_inactive()
            part.set_last_modified(modified_ns, fs)
            part.flush()
    except BaseException:
        for part in parts:
            _discard(part)
        raise
    return parts


def _part_of(parts: Sequence[LogSegment], offset: int) -> LogSegment:
    """Return the part with the greatest base at or below the offset; the first one if there is none."""
    return max((part for part in parts if part.base_offset <= offset), key=lambda p: p.base_offset, default=parts[0])


def _discard(part: LogSegment) -> None:
    """Delete the part's files; any that cannot be deleted stay until the next opening or clean."""
    with suppress(KafkalogError):
        part.delete_if_exists()  # which closes them first


def has_overflow(segment: LogSegment) -> bool:
    """Return True if a batch has an offset that the segment cannot hold."""
    base = segment.base_offset
    return any(
        not base <= batch.last_offset <= base + MAX_RELATIVE_OFFSET
        for table in segment.records.tables()
        for batch in table
    )


def _append_to_parts(
    path: str,
    data: bytes,
    table: BatchTable,
    parts: list[LogSegment],
    directory: str,
    config: LogConfig,
    fs: FileSystem,
    clock: Clock,
) -> None:
    """Append the batches of one chunk, run by run, to the last new segment, or to another one if they do not fit."""
    start, row = table.position(0), 0
    while row < len(table):
        stop = _end_of_run(table, row, parts[-1].base_offset) if parts else row
        if stop == row:
            base = table.base_offset(row)
            if not _fits(table, row, base) or any(part.base_offset == base for part in parts):
                raise CorruptRecord(
                    f"the batch of offsets {base} to {table.last_offset_of(row)} does not fit any segment",
                    path=path,
                    offset=base,
                    position=table.position(row),
                    hint=HINT,
                )
            parts.append(_new_part(directory, base, config, fs, clock))
            continue
        end = table.position(stop - 1) + table.size(stop - 1)
        piece = memoryview(data)[table.position(row) - start : end - start]
        parts[-1].append(piece, scan(piece, check_crc=False, file_mode=True))
        row = stop


def _fits(table: BatchTable, row: int, base_offset: int) -> bool:
    return 0 <= table.last_offset_of(row) - base_offset <= MAX_RELATIVE_OFFSET


def _end_of_run(table: BatchTable, row: int, base_offset: int) -> int:
    """Return the first row from `row` on that a segment with this base cannot hold."""
    while row < len(table) and _fits(table, row, base_offset):
        row += 1
    return row


def _new_part(directory: str, base_offset: int, config: LogConfig, fs: FileSystem, clock: Clock) -> LogSegment:
    part = LogSegment.open(directory, base_offset, config, fs=fs, clock=clock, suffix=CLEANED_SUFFIX)
    if part.size:  # the existing data does not belong to this split
        part.close_handlers()
        raise IllegalState("a file with this name already exists", path=part.path)
    return part

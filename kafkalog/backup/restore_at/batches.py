"""The batches of a log that a restore at a moment keeps: whole, or divided if some of their records are later."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kafkalog._core.batch.repack import with_payload
from kafkalog._core.batch.scan import BatchHeader
from kafkalog._core.bytes.varint import decode_varint
from kafkalog.records.batch import RecordBatch
from kafkalog.records.compression import compress
from kafkalog.records.control import ControlType
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, MAGIC_V2, CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.plain_runs import plain_run
from kafkalog.storage.leader_epoch import EpochEntry
from kafkalog.storage.log_walk import log_chunks
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.segment_reader import Chunk

_LAST_DELTA: Final = struct.Struct(">i"), 23
_MAX_TIMESTAMP: Final = struct.Struct(">q"), 35
_COUNT: Final = struct.Struct(">i"), 57
IsKept = Callable[[int, int], bool]
"""Decides about a record by its offset and its timestamp (ms)."""


class LateMarker(NamedTuple):
    """A transaction marker that was written after the moment."""

    offset: int
    kind: ControlType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    leader_epoch: int


def first_batch(view: LogView, offset: int) -> tuple[int, list[int]]:
    """Return the first offset of the batch that holds `offset` or comes next, and the offsets of its records.

    The header of a wrapper of format v0 or v1 has only the last offset.
    """
    chunk = next(log_chunks(view, offset, view.log_end_offset))
    records = chunk.batch_table(chunk.first)
    offsets = list(records.offsets)
    is_legacy = chunk.batches.magic(chunk.first) < MAGIC_V2
    return offsets[0] if is_legacy else chunk.batches.base_offset(chunk.first), offsets


def epochs_of(view: LogView, stop: int) -> list[EpochEntry]:
    """Return the leader epochs of the batches below `stop`; one of format v0 or v1 has none and clears those before it.

    CorruptRecord, StorageError.
    """
    found: list[EpochEntry] = []
    for chunk in log_chunks(view, view.log_start_offset, stop):
        for row in range(chunk.first, chunk.last):
            epoch = chunk.batches.leader_epoch(row)
            if chunk.batches.base_offset(row) >= stop:
                return found
            if chunk.batches.magic(row) < MAGIC_V2:
                found.clear()
            elif epoch > (found[-1].epoch if found else -1):
                found.append(EpochEntry(epoch, chunk.batches.base_offset(row)))
    return found


def kept_batches(
    view: LogView, start: int, at_ms: int, is_kept: IsKept, piece_bytes: int, *, first_only: bool = False
) -> Iterator[bytes | LateMarker]:
    """Yield the kept batches of a log from `start` on, in pieces of about `piece_bytes`, and late markers.

    Batches without a record after `at_ms` are kept unread. With `first_only` the batch that holds `start` is the last.
    CorruptRecord, InvalidRecord, StorageError.
    """
    for chunk in log_chunks(view, start, view.log_end_offset):
        piece = bytearray()
        for row in range(chunk.first, chunk.first + 1 if first_only else chunk.last):
            found = _kept(chunk, row, at_ms, is_kept)
            if piece and (isinstance(found, LateMarker) or len(piece) + len(found) > piece_bytes):
                yield bytes(piece)
                piece = bytearray()
            if isinstance(found, LateMarker):
                yield found
            else:
                piece += found
        if piece:
            yield bytes(piece)
        if first_only:
            return


def _kept(chunk: Chunk, row: int, at_ms: int, is_kept: IsKept) -> bytes | LateMarker:
    batch = chunk.batches[row]
    begin = batch.position - chunk.position
    data = chunk.data[begin : begin + batch.size]
    if batch.max_timestamp <= at_ms:
        return data
    if batch.is_control:
        return _late_marker(data, chunk, row, batch)
    divided = _divided_v2 if batch.magic == MAGIC_V2 else _divided_legacy
    return divided(chunk, row, batch, is_kept)


def _late_marker(data: bytes, chunk: Chunk, row: int, batch: BatchHeader) -> bytes | LateMarker:
    """Return the marker of a control batch; no bytes for another control record, which is left out."""
    found = RecordBatch(data, chunk.batches.alone(row), 0).control
    if found is None or not found.type.is_marker:
        return b""
    return LateMarker(
        batch.base_offset, found.type, batch.producer_id, batch.producer_epoch, found.coordinator_epoch or 0,
        batch.leader_epoch,
    )  # fmt: skip


def _divided_v2(chunk: Chunk, row: int, batch: BatchHeader, is_kept: IsKept) -> bytes:
    """Return the batch with only its kept records, whose bytes stay as they are; no bytes if there are none.

    Base offset and base timestamp stay, so the deltas in the records remain right. The batch ends at its last record.
    """
    records = chunk.batch_table(row)
    flags = [is_kept(*one) for one in zip(records.offsets, records.timestamps, strict=True)]
    if all(flags):
        return bytes(chunk.data[batch.position - chunk.position :][: batch.size])
    if not any(flags):
        return b""
    run = plain_run(chunk.data, chunk.batches, row, row + 1, base_position=chunk.position)
    at = run.table.position(run.first) - run.base_position
    plain = bytes(memoryview(run.data)[at : at + run.table.size(run.first)])
    payload, at = bytearray(), BATCH_OVERHEAD_BYTES
    for flag in flags:
        size, begin = decode_varint(plain, at)
        if flag:
            payload += plain[at : begin + size]
        at = begin + size
    kept = [one for one, flag in zip(zip(records.offsets, records.timestamps, strict=True), flags, strict=True) if flag]
    header = bytearray(plain[:BATCH_OVERHEAD_BYTES])
    for (field, place), value in (
        (_LAST_DELTA, kept[-1][0] - batch.base_offset), (_MAX_TIMESTAMP, max(time for _, time in kept)),
        (_COUNT, len(kept)),
    ):  # fmt: skip
        field.pack_into(header, place, value)
    return bytes(with_payload(header, compress(batch.compression, payload), batch.compression))


def _divided_legacy(chunk: Chunk, row: int, batch: BatchHeader, is_kept: IsKept) -> bytes:
    """Return a wrapper of format v0 or v1, or a message, with only its kept records; no bytes if there are none."""
    records = chunk.batch_table(row)
    kept = [record for record in records if is_kept(record.offset, record.timestamp)]
    if not kept:
        return b""
    if len(kept) == len(records):
        return bytes(chunk.data[batch.position - chunk.position :][: batch.size])
    by_log = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    builder = LegacyBuilder(
        kept[0].offset, magic=batch.magic, compression=CompressionType(batch.compression),
        timestamp_type=TimestampType.LOG_APPEND_TIME if by_log else TimestampType.CREATE_TIME,
        log_append_time=batch.max_timestamp if by_log else -1,
    )  # fmt: skip
    for record in kept:
        builder.append(record.timestamp, record.key, record.value, offset=record.offset)
    return bytes(builder.build())



"""The dump tool's text of `.txnindex` and `.snapshot` files (format.md section 13, A9)."""

from __future__ import annotations

import os
from typing import BinaryIO

from kafkalog.errors import CorruptSnapshot
from kafkalog.storage.producer_snapshot import ProducerEntry, read_snapshot
from kafkalog.storage.txn_index import read_aborted_txns
from kafkalog.util.fileio import FileSystem

MAX_SEQUENCE = 2**31 - 1


def dump_txn_index(path: str, out: BinaryIO, *, fs: FileSystem) -> None:
    """Writes a line for each aborted transaction; FormatError, before the first, for an entry of another version."""
    for entry in read_aborted_txns(path, fs=fs):
        out.write(
            f"version: {entry.version} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}\n".encode()
        )


def dump_snapshot(path: str, out: BinaryIO, err: BinaryIO, *, fs: FileSystem) -> None:
    """Writes a line for each producer of a snapshot; a damaged one is a line on `err` (DUMP-8)."""
    try:
        entries = read_snapshot(path, fs=fs)
    except CorruptSnapshot as error:
        err.write(os.fsencode(f"{error.message}\n"))
        return
    for entry in entries:
        out.write(f"{producer_text(entry)}\n".encode())


def producer_text(entry: ProducerEntry) -> str:
    """One producer; without batch data the line ends after lastTimestamp."""
    first = entry.current_txn_first_offset
    text = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {'OptionalLong.empty' if first < 0 else f'OptionalLong[{first}]'} "
        f"lastTimestamp: {entry.timestamp}"
    )
    if entry.last_offset < 0:
        return text
    return text + (
        f" firstSequence: {first_sequence(entry)} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
    )


def first_sequence(entry: ProducerEntry) -> int:
    """The sequence number of the first record of a producer's newest batch.

    Before 0 comes 2147483647; numbers no broker writes wrap as 32 bits do in the reference.
    """
    sequence, delta = entry.last_sequence, entry.offset_delta
    first = sequence - delta if sequence >= delta else MAX_SEQUENCE - (delta - sequence) + 1
    return (first + 2**31) % 2**32 - 2**31

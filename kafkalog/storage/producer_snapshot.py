"""Producer snapshots: the producers of a log up to the offset in the file's name (format.md section 7)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import CorruptSnapshot
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors

VERSION: Final = 1
_VERSION: Final = struct.Struct(">h")
_HEADER: Final = struct.Struct(">hIi")
_CRC: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">i")
_CHECKED_FROM: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")
MAX_SNAPSHOT_BYTES: Final = 1 << 30


class ProducerEntry(NamedTuple):
    """The newest batch of one producer and its open transaction.

    last_offset below 0: known only from a marker, without data. current_txn_first_offset -1: no transaction is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def read_snapshot(path: str | os.PathLike[str], *, fs: FileSystem = OS) -> list[ProducerEntry]:
    """Return the producers of a `.snapshot` file, in file order; CorruptSnapshot or StorageError otherwise."""
    with os_errors("read the producer snapshot", path):
        data = fs.read_file(path, MAX_SNAPSHOT_BYTES)
    return parse_snapshot(data, os.fspath(path))


def parse_snapshot(data: bytes, path: str | None = None) -> list[ProducerEntry]:
    """Return the producers in a snapshot's bytes; CorruptSnapshot, with the reference's message, if invalid.

    Bytes behind the last entry are accepted if the checksum covers them (as in the reference).
    """
    if len(data) >= _VERSION.size and _VERSION.unpack_from(data)[0] != VERSION:
        version = _VERSION.unpack_from(data)[0]
        raise _corrupt(f"failed schema validation: Snapshot contained an unknown file version {version}", path)
    if len(data) < _HEADER.size:
        raise _corrupt("failed schema validation: null", path)
    _, stored, count = _HEADER.unpack_from(data)
    remaining = len(data) - _HEADER.size
    if count < 0:
        raise _corrupt("failed schema validation: non-nullable field producerEntries was serialized as null", path)
    if count > remaining:
        raise _corrupt(
            f"failed schema validation: Tried to allocate a collection of size {count}, but there are only {remaining} "
            "bytes remaining.",
            path,
        )
    if count * _ENTRY.size > remaining:
        raise _corrupt("failed schema validation: null", path)
    computed = crc32c(memoryview(data)[_CHECKED_FROM:])
    if computed != stored:
        raise _corrupt(f"is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}", path)
    end = _HEADER.size + count * _ENTRY.size
    return [ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEADER.size : end])]


def format_snapshot(entries: Iterable[tuple[int, ...]]) -> bytes:
    """Return the bytes of a snapshot; each entry has the fields of ProducerEntry, in their order (PSM-36)."""
    packed = b"".join([_ENTRY.pack(*entry) for entry in entries])
    checked = _COUNT.pack(len(packed) // _ENTRY.size) + packed
    return _VERSION.pack(VERSION) + _CRC.pack(crc32c(checked)) + checked


def _corrupt(what: str, path: str | None) -> CorruptSnapshot:
    return CorruptSnapshot(f"Snapshot {what}", path=path)

"""Manifests of the plugin for object stores: how the chunks and indexes of one segment are stored.

A manifest is a JSON object of version "1". A segment's `.log` object is its bytes in chunks of equal size, each
compressed (zstd), or encrypted, or both, or neither; the chunk index has the sizes of stored chunks. The `.indexes`
object has the segment's indexes back to back, encrypted but not compressed. All sizes are checked here.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final, NamedTuple

from kafkalog.errors import InvalidRecord
from kafkalog.records.compression import decompress
from kafkalog.records.format import CompressionType
from kafkalog.records.message import MessageError, Source

MOST_MANIFEST_BYTES: Final = 16 << 20
MOST_CHUNK_BYTES: Final = 1 << 30
_MOST_INDEX_BYTES: Final = 256 << 20
_MOST_CHUNK_SIZES_BYTES: Final = 10 << 20
_MAX_INT: Final = 2**31 - 1
INDEXES: Final[Mapping[str, str]] = {
    ".index": "offset", ".timeindex": "timestamp", ".snapshot": "producerSnapshot",
    "leader-epoch-checkpoint": "leaderEpoch", ".txnindex": "transaction",
}  # fmt: skip
"""Names of the indexes in a manifest by the suffix of their file."""


class Chunk(NamedTuple):
    """A chunk: its place in the segment, and its place in the `.log` object."""

    position: int
    size: int
    stored_position: int
    stored_size: int


class ChunkIndex:
    """Sizes of a segment's chunks: `chunk_bytes` each in the segment, the last one shorter."""

    def __init__(self, chunk_bytes: int, segment_bytes: int, stored: int | list[int], last_stored: int) -> None:
        """Keep the sizes; `stored` is the size of each stored chunk but the last, or a list of all sizes.

        Raises ValueError if they contradict each other.
        """
        self.chunk_bytes = chunk_bytes
        self.segment_bytes = segment_bytes
        self.count = -(-segment_bytes // chunk_bytes)
        self._stored = stored if isinstance(stored, int) else -1
        self._last_stored = last_stored
        self._ends: list[int] = []
        if isinstance(stored, list):
            if len(stored) != self.count:
                raise ValueError(f"{len(stored)} chunks instead of {self.count} for {segment_bytes} bytes")
            self._ends = list(accumulate(stored))

    def chunk_at(self, position: int) -> Chunk:
        """Return the chunk with the segment's byte `position`."""
        number = position // self.chunk_bytes
        is_last = number == self.count - 1
        size = self.segment_bytes - number * self.chunk_bytes if is_last else self.chunk_bytes
        if self._ends:
            begin = self._ends[number - 1] if number else 0
            return Chunk(number * self.chunk_bytes, size, begin, self._ends[number] - begin)
        stored = self._last_stored if is_last else self._stored
        return Chunk(number * self.chunk_bytes, size, number * self._stored, stored)


class Encryption(NamedTuple):
    """Encryption of a segment: the id of the key pair, the data key wrapped by it, and the authenticated data."""

    key_id: str
    wrapped_key: bytes
    authenticated_data: bytes


class Manifest(NamedTuple):
    """A manifest; `indexes` has position and size of each index in the `.indexes` object, by the suffix of its file."""

    chunks: ChunkIndex
    indexes: Mapping[str, tuple[int, int]]
    is_compressed: bool
    encryption: Encryption | None
    segment: Mapping[str, Any] | None


def parse_manifest(content: bytes) -> Manifest:
    """Parse a manifest; raise ValueError for anything else, and for sizes that contradict each other."""
    document = json.loads(content)
    if not isinstance(document, dict) or document.get("version") != "1":
        raise ValueError("it is not a manifest of version 1")
    compression, encryption = document.get("compression"), document.get("encryption")
    if not isinstance(compression, bool):
        raise ValueError("compression is neither true nor false")
    chunks = _chunk_index(_object(document, "chunkIndex"))
    if compression or encryption is not None:
        if chunks.chunk_bytes > MOST_CHUNK_BYTES and chunks.segment_bytes > MOST_CHUNK_BYTES:
            raise ValueError(f"chunks of {chunks.chunk_bytes} bytes, at most {MOST_CHUNK_BYTES} expected")
    listed = _object(document, "segmentIndexes")
    indexes = {}
    for suffix, name in INDEXES.items():
        if listed.get(name) is not None:
            place = _object(listed, name)
            indexes[suffix] = _whole(place, "position"), _whole(place, "size", most=_MOST_INDEX_BYTES)
    segment = document.get("remoteLogSegmentMetadata")
    return Manifest(
        chunks, indexes, compression, None if encryption is None else _encryption(_object(document, "encryption")),
        segment if isinstance(segment, dict) else None,
    )  # fmt: skip


def _chunk_index(index: Mapping[str, Any]) -> ChunkIndex:
    chunk_bytes, segment_bytes = _whole(index, "originalChunkSize", least=1), _whole(index, "originalFileSize")
    kind = index.get("type")
    if kind == "fixed":
        stored, last = _whole(index, "transformedChunkSize"), _whole(index, "finalTransformedChunkSize")
        return ChunkIndex(chunk_bytes, segment_bytes, stored, last)
    if kind != "variable":
        raise ValueError(f"a chunk index of the unknown type {kind!r}")
    sizes = chunk_sizes(_base64(index, "transformedChunks"))
    return ChunkIndex(chunk_bytes, segment_bytes, sizes, 0)


def chunk_sizes(compressed: bytes) -> list[int]:
    """Return the sizes of stored chunks: count, lowest size, bytes for each, differences from the lowest, last size."""
    try:
        data = decompress(CompressionType.ZSTD, compressed, limit_bytes=_MOST_CHUNK_SIZES_BYTES)
        (count,) = struct.unpack_from(">i", data)
        if count <= 1:
            sizes = [] if count == 0 else list(struct.unpack_from(">i", data, 4))
            wanted = 4 + 4 * count
        else:
            lowest, width = struct.unpack_from(">iB", data, 4)
            wanted = 9 + (count - 1) * width + 4
            if not 1 <= width <= 4 or len(data) != wanted:
                raise ValueError(f"{len(data)} bytes of chunk sizes instead of {wanted}")
            differences = range(9, wanted - 4, width)
            sizes = [lowest + int.from_bytes(data[at : at + width], "big") for at in differences]
            sizes += struct.unpack_from(">i", data, wanted - 4)
    except (InvalidRecord, struct.error) as error:
        raise ValueError(f"the chunk sizes cannot be read: {error}") from None
    if count < 0 or len(data) != wanted or any(not 0 <= size <= _MAX_INT for size in sizes):
        raise ValueError("the chunk sizes cannot be right")
    return sizes


def _encryption(document: Mapping[str, Any]) -> Encryption:
    text = document.get("dataKey")
    key_id, colon, _ = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not key_id or not colon:
        raise ValueError("dataKey is not <id of the key pair>:<wrapped key>")
    wrapped = _decoded(str(text)[len(key_id) + 1 :], "dataKey")
    return Encryption(key_id, wrapped, _base64(document, "aad"))


def _object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not an object")
    return found


def _whole(document: Mapping[str, Any], name: str, *, least: int = 0, most: int = _MAX_INT) -> int:
    found = document.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise ValueError(f"{name} is {str(found)[:40]}, not a number from {least} to {most}")
    return found


def _base64(document: Mapping[str, Any], name: str) -> bytes:
    text = document.get(name)
    if not isinstance(text, str):
        raise ValueError(f"{name} is not text")
    return _decoded(text, name)


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64") from None


class CustomFields(NamedTuple):
    """Fields that the plugin keeps in `__remote_log_metadata`; None for those it was not configured to keep.

    size: bytes of all objects of the segment.
    """

    prefix: str | None = None
    key: str | None = None
    size: int | None = None


def parse_custom(data: bytes | None) -> CustomFields:
    """Parse a segment's custom metadata: tagged fields 0 (size), 1 (prefix), 2 (key); ValueError if it is malformed."""
    if not data:
        return CustomFields()
    source = Source(data)
    found: dict[int, bytes] = {}
    try:
        for _ in range(source.uvarint()):
            tag, size = source.uvarint(), source.uvarint()
            begin = len(data) - source.left
            if not 0 <= size <= source.left:
                raise ValueError("a field is longer than the data")
            found[tag] = data[begin : begin + size]
            source = Source(data, begin + size)
    except (MessageError, struct.error) as error:
        raise ValueError(f"the fields cannot be read: {error}") from None
    return CustomFields(_compact_text(found.get(1)), _compact_text(found.get(2)), _varlong(found.get(0)))


def custom_metadata(fields: CustomFields, size: int | None) -> bytes | None:
    """Return the custom metadata of a segment with these fields, its size if they have one; None without any field."""
    found: dict[int, bytes] = {}
    if fields.size is not None and size is not None:
        found[0] = _uvarint(size << 1)
    for tag, text in ((1, fields.prefix), (2, fields.key)):
        if text is not None:
            found[tag] = _uvarint(len(text.encode()) + 1) + text.encode()
    if not found:
        return None
    parts = (_uvarint(tag) + _uvarint(len(field)) + field for tag, field in found.items())
    return _uvarint(len(found)) + b"".join(parts)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _varlong(field: bytes | None) -> int | None:
    """Return the number in a field, in zigzag code and groups of 7 bits; raise ValueError for anything else."""
    if field is None:
        return None
    value = sum((byte & 0x7F) << 7 * n for n, byte in enumerate(field))
    if not 0 < len(field) <= 10 or field[-1] & 0x80 or not all(byte & 0x80 for byte in field[:-1]):
        raise ValueError("a number cannot be read")
    return value >> 1 ^ -(value & 1)


def _compact_text(field: bytes | None) -> str | None:
    if field is None:
        return None
    source = Source(field)
    try:
        size = source.uvarint() - 1
    except (MessageError, struct.error) as error:
        raise ValueError(f"a field cannot be read: {error}") from None
    if size != source.left:
        raise ValueError("a text is shorter or longer than its field")
    return field[len(field) - size :].decode()


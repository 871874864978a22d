"""Objects of a tiered segment, written in the layout of its topic: the plugin's, or that of Kafka's own file store.

The order is the plugin's: data, indexes, manifest. An object is visible once it is complete. Readers find a segment
after the event that its copy is finished, or by its last object if they have no events.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkalog.errors import KafkalogError, StorageError
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.tiered.keys import IV_BYTES, TAG_BYTES, Encrypt, KeyRing
from kafkalog.tiered.manifest import INDEXES, custom_metadata, parse_custom
from kafkalog.tiered.segment_bytes import (
    LOG,
    MANIFEST,
    OWN_NAMES,
    ObjectStore,
    TieredPartition,
)
from kafkalog.tiered.segment_metadata import RemoteSegment
from kafkalog.util.fileio import File
from kafkalog.util.object_writes import write_object
from kafkalog.util.os_errors import os_errors
from kafkalog.util.remote_files import as_os_error

_PARTIAL: Final = ".partial"
_PIECE_BYTES: Final = 1 << 20
_PLUGIN_SUFFIXES: Final = (LOG, ".indexes", MANIFEST)
_OWN_SUFFIXES: Final = (LOG, *(OWN_NAMES.get(suffix, suffix) for suffix in INDEXES))


class Layout(NamedTuple):
    """The form of a segment's objects: size of its chunks, compression, and the id of the key pair that encrypts it.

    None for a key pair: the objects are not encrypted.
    """

    chunk_bytes: int
    is_compressed: bool
    key_id: str | None


class SegmentWriter:
    """Writes and deletes the objects of segments in a store. Threads: one at a time."""

    def __init__(self, store: ObjectStore, keys: KeyRing) -> None:
        self._store = store
        self._keys = keys
        self._is_local = store.fs.root in ("/file:", "/local:")

    def put(
        self, partition: TieredPartition, segment: RemoteSegment, layout: Layout | None, data: File,
        indexes: Mapping[str, bytes | None], event_ms: int,
    ) -> bytes | None:  # fmt: skip
        """Write the objects of a segment and return its custom metadata, with the fields that `segment.custom` has.

        `data` has the `size_bytes` of the segment; StorageError if it has fewer. `indexes` are by the suffix of their
        files. A `layout` of None is that of Kafka's own file store. StorageError; errors of a key pair as for
        `KeyRing.decryption`.
        """
        stem = self._store.stem_of(partition, segment)
        if layout is None:
            for suffix, content in indexes.items():
                if content is not None:
                    self._write(stem + OWN_NAMES.get(suffix, suffix), [content])
            self._write(stem + LOG, _Pieces(data, segment.size_bytes, _PIECE_BYTES))
            return segment.custom
        encrypt, encryption = (None, None) if layout.key_id is None else self._keys.encryption(layout.key_id)
        chunks = _StoredChunks(_Pieces(data, segment.size_bytes, layout.chunk_bytes), layout, encrypt)
        self._write(stem + LOG, chunks)
        places, stored = _stored_indexes(indexes, encrypt)
        self._write(stem + ".indexes", [stored])
        document: dict[str, Any] = {
            "version": "1", "chunkIndex": chunks.index(), "segmentIndexes": places, "compression": layout.is_compressed,
        }  # fmt: skip
        if encryption is not None:
            document["encryption"] = encryption
        document["remoteLogSegmentMetadata"] = _described(partition, segment, event_ms)
        manifest = json.dumps(document, separators=(",", ":")).encode()
        self._write(stem + MANIFEST, [manifest])
        fields = parse_custom(segment.custom)
        return custom_metadata(fields, sum(chunks.sizes) + len(stored) + len(manifest))

    def named(self, partition: TieredPartition, old: RemoteSegment, segment_id: str) -> RemoteSegment:
        """Return the segment that replaces `old`, under another id, with the custom metadata that names its objects."""
        segment = old._replace(segment_id=segment_id)
        fields = parse_custom(old.custom)
        if fields.key is None:
            return segment
        name = f"{partition.topic}-{partition.topic_id}/{partition.partition}/{old.start:020d}-{segment_id}"
        return segment._replace(custom=custom_metadata(fields._replace(key=name), fields.size))

    def delete(self, stem: str) -> None:
        """Delete all objects of a segment, its data first, and what a killed run left of them. StorageError."""
        for path in self._paths(stem):
            self._remove(path)

    def _paths(self, stem: str) -> list[str]:
        suffixes = dict.fromkeys((*_PLUGIN_SUFFIXES, *_OWN_SUFFIXES))
        partial = [stem + suffix + _PARTIAL for suffix in suffixes] if self._is_local else []
        return [*(stem + suffix for suffix in suffixes), *partial]

    def _write(self, path: str, pieces: Any) -> None:
        fs = self._store.fs
        place = fs.remote_path(path)

        def fill(target: Any) -> None:
            for piece in pieces:
                target.write(piece)

        try:
            write_object(fs.remote, place, fill, place + _PARTIAL if self._is_local else None)
        except KafkalogError:
            raise
        except Exception as error:
            raise self._failed(error, "write an object of a tiered segment", path) from error

    def _remove(self, path: str) -> None:
        fs = self._store.fs
        try:
            fs.remote.rm_file(fs.remote_path(path))
        except FileNotFoundError:
            pass
        except Exception as error:
            raise self._failed(error, "delete an object of a tiered segment", path) from error

    def _failed(self, error: Exception, doing: str, path: str) -> StorageError:
        return StorageError.from_os(as_os_error(error, path), doing, path=self._store.fs.url_of(path))


class _Pieces:
    """The first `total` bytes of a file, in pieces of `size`; StorageError if the file has fewer."""

    def __init__(self, data: File, total: int, size: int) -> None:
        self._data = data
        self._size = size
        self.total = total

    def __iter__(self) -> Any:
        for at in range(0, self.total, self._size):
            size = min(self._size, self.total - at)
            with os_errors("read a segment", self._data.path, at):
                piece = self._data.pread(size, at)
            if len(piece) < size:
                raise StorageError(
                    f"the segment has {at + len(piece)} bytes in place of {self.total}: it was cut off meanwhile",
                    path=self._data.path, position=at + len(piece), hint="run the command again",
                )  # fmt: skip
            yield piece


class _StoredChunks:
    """The chunks of a segment as they are stored; `sizes` are those of the chunks that were written."""

    def __init__(self, plain: _Pieces, layout: Layout, encrypt: Encrypt | None) -> None:
        self.sizes: list[int] = []
        self._layout = layout
        self._encrypt = encrypt
        self._plain = plain

    def __iter__(self) -> Any:
        for plain in self._plain:
            stored = compress(CompressionType.ZSTD, plain) if self._layout.is_compressed else plain
            if self._encrypt is not None:
                stored = self._encrypt(bytes(stored))
            self.sizes.append(len(memoryview(stored)))
            yield stored

    def index(self) -> dict[str, object]:
        """Return the chunk index for the manifest."""
        chunk_bytes = self._layout.chunk_bytes
        sizes: dict[str, object] = {"originalChunkSize": chunk_bytes, "originalFileSize": self._plain.total}
        if self._layout.is_compressed:
            text = base64.b64encode(compress(CompressionType.ZSTD, packed_sizes(self.sizes))).decode()
            return {"type": "variable", **sizes, "transformedChunks": text}
        extra = 0 if self._encrypt is None else IV_BYTES + TAG_BYTES
        last = self.sizes[-1]
        return {
            "type": "fixed", **sizes, "transformedChunkSize": chunk_bytes + extra, "finalTransformedChunkSize": last,
        }  # fmt: skip


def packed_sizes(sizes: Sequence[int]) -> bytes:
    """Return the sizes as `manifest.chunk_sizes` reads them."""
    if len(sizes) == 1:
        return struct.pack(">ii", 1, sizes[0])
    lowest = min(sizes[:-1])
    width = max(1, ((max(sizes[:-1]) - lowest).bit_length() + 7) // 8)
    differences = b"".join((size - lowest).to_bytes(width, "big") for size in sizes[:-1])
    return struct.pack(">iiB", len(sizes), lowest, width) + differences + struct.pack(">i", sizes[-1])


def _stored_indexes(
    indexes: Mapping[str, bytes | None], encrypt: Callable[[bytes], bytes] | None
) -> tuple[dict[str, object], bytes]:
    """Return the places of the indexes by their names in a manifest, and the object that has them."""
    places: dict[str, object] = {}
    stored = bytearray()
    for suffix, name in INDEXES.items():
        content = indexes.get(suffix)
        if content is None:
            places[name] = None
            continue
        piece = content if encrypt is None or not content else encrypt(content)
        places[name] = {"position": len(stored), "size": len(piece)}
        stored += piece
    return places, bytes(stored)


def _described(partition: TieredPartition, segment: RemoteSegment, event_ms: int) -> dict[str, object]:
    """Return the part of a manifest that says which segment it is of."""
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": partition.topic_id,
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
            },
            "id": segment.segment_id,
        },
        "startOffset": segment.start, "endOffset": segment.end, "maxTimestampMs": segment.max_timestamp,
        "brokerId": segment.broker_id, "eventTimestampMs": event_ms,
        "segmentLeaderEpochs": {str(one.epoch): one.start_offset for one in segment.epochs},
    }  # fmt: skip

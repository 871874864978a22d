"""Objects of tiered segments in a store, and the bytes of the segment and its indexes that they hold.

Two layouts are supported (docs/tiered.md): that of the plugin for object stores, and that of Kafka's own file store.
All errors of objects are StorageError with the object's URL and the segment's first offset.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from kafkalog.errors import IllegalArgument, InvalidRecord, StorageError
from kafkalog.records.compression import decompress
from kafkalog.records.format import CompressionType
from kafkalog.storage.names import base_name, validate_topic
from kafkalog.storage.remote import locate
from kafkalog.tiered.description import Description
from kafkalog.tiered.keys import Decrypt, KeyRing
from kafkalog.tiered.manifest import MOST_MANIFEST_BYTES, Chunk, Manifest, parse_custom, parse_manifest
from kafkalog.tiered.read_ahead import ReadAhead, RunReader
from kafkalog.tiered.segment_metadata import RemoteSegment
from kafkalog.util.fileio import File
from kafkalog.util.os_errors import os_errors
from kafkalog.util.remote_files import RemoteFileSystem

LOG: Final = ".log"
MANIFEST: Final = ".rsm-manifest"
EPOCHS: Final = "leader-epoch-checkpoint"
_MOST_INDEX_BYTES: Final = 256 << 20
_CACHE_BYTES: Final = 64 << 20
_HINT: Final = (
    "check URL and prefix of the store; if they are right, something else has deleted or overwritten the object"
)
OWN_NAMES: Final = {EPOCHS: ".leader_epoch_checkpoint"}
"""Suffixes of objects in Kafka's own file store, where they differ from those of files."""


class TieredPartition(NamedTuple):
    """A partition and its topic's id."""

    topic: str
    partition: int
    topic_id: str


class ChunkCache:
    """Plain bytes of the chunks used last, up to a number of bytes. Threads: safe."""

    def __init__(self, limit_bytes: int = _CACHE_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._chunks: OrderedDict[tuple[str, int], memoryview] = OrderedDict()  # guarded by self._lock
        self._bytes = 0  # guarded by self._lock

    def get(self, path: str, position: int, read: Callable[[], memoryview]) -> memoryview:
        """Return the chunk at `position` of an object; `read` returns it if it is not in the cache."""
        found = self.known(path, position)
        if found is not None:
            return found
        chunk = read()
        self.put(path, position, chunk)
        return chunk

    def known(self, path: str, position: int) -> memoryview | None:
        """Return the chunk at `position` of an object, if it is in the cache."""
        key = path, position
        with self._lock:
            found = self._chunks.get(key)
            if found is not None:
                self._chunks.move_to_end(key)
            return found

    def put(self, path: str, position: int, chunk: memoryview) -> None:
        """Keep a chunk, instead of those that were used longest ago."""
        key = path, position
        with self._lock:
            if key not in self._chunks:
                self._chunks[key] = chunk
                self._bytes += len(chunk)
            while self._bytes > self._limit and len(self._chunks) > 1:
                self._bytes -= len(self._chunks.popitem(last=False)[1])


class ObjectStore:
    """The store of a description: finds the objects of segments. Threads: safe."""

    def __init__(self, description: Description) -> None:
        """Connect to the store; errors as for `storage.remote.locate`."""
        self.fs, self._root = locate(description.store, description.options)
        self._prefix = description.prefix
        self.keys = KeyRing(description.keys)
        self._chunks = ChunkCache()
        self._ahead = ReadAhead()
        self._has_own_layout: dict[TieredPartition, bool] = {}

    def content(self, partition: TieredPartition, segment: RemoteSegment) -> SegmentContent:
        """Return the content of a segment; nothing is read before it is used. Raises StorageError."""
        stem = self.stem_of(partition, segment)
        is_own = self._is_own_layout(partition, self._own_directory(partition))
        make = self.plain_segment if is_own else self.plugin_segment
        return make(stem, segment.start, segment.size_bytes)

    def found_in(self, partition: TieredPartition) -> dict[str, SegmentContent | None]:
        """Return all segments of a partition of which the store has data, also those that do not count, by their stems.

        None for an object of the plugin without a manifest, which says how its bytes are stored. StorageError.
        """
        directory = self._own_directory(partition)
        is_own = self._is_own_layout(partition, directory)
        if not is_own:
            name = f"{validate_topic(partition.topic)}-{partition.topic_id}/{partition.partition}"
            directory = os.path.join(self._root, self._prefix + name)
        try:
            listed = self.fs.found_in(directory)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise StorageError.from_os(error, "read the tiered store", path=self.fs.url_of(directory)) from error
        found: dict[str, SegmentContent | None] = {}
        for name, status in sorted(listed.items()):
            stem = os.path.join(directory, name.removesuffix(LOG))
            if not name.endswith(LOG) or not name[:20].isdecimal():
                continue
            if is_own:
                found[stem] = self.plain_segment(stem, int(name[:20]), status.size)
            else:
                has_manifest = name.removesuffix(LOG) + MANIFEST in listed
                found[stem] = self.plugin_segment(stem, int(name[:20]), None) if has_manifest else None
        return found

    def stem_of(self, partition: TieredPartition, segment: RemoteSegment) -> str:
        """Return the path of a segment's objects without suffix. Raises StorageError."""
        name = f"{base_name(segment.start)}-{segment.segment_id}"
        own = self._own_directory(partition)
        if self._is_own_layout(partition, own):
            return os.path.join(own, name)
        return self._plugin_stem(partition, segment, name)

    def plain_segment(self, stem: str, first_offset: int, size_bytes: int) -> PlainSegment:
        """Return the content of the segment in the objects `<stem>.log`, `<stem>.index` and so on."""
        return PlainSegment(self.fs, stem, first_offset, size_bytes, self._chunks)

    def plugin_segment(self, stem: str, first_offset: int, size_bytes: int | None) -> PluginSegment:
        """Return the content of the segment in the plugin's objects `<stem>.log`, `<stem>.indexes` and so on."""
        return PluginSegment(self.fs, stem, first_offset, size_bytes, self.keys, self._chunks, self._ahead)

    def has_own_layout(self, partition: TieredPartition) -> bool:
        """Return True if Kafka's own file store has the partition. Raises StorageError."""
        return self._is_own_layout(partition, self._own_directory(partition))

    def topic_in(self, path: str, name: str) -> str:
        """Return the topic of the partition at `path`, whose directory says `name`: the prefix may end within it."""
        if not path.startswith(os.path.join(self._root, self._prefix)):
            return name
        return name.removeprefix(self._prefix.rpartition("/")[2]) or name

    def _own_directory(self, partition: TieredPartition) -> str:
        name = f"{validate_topic(partition.topic)}-{partition.partition}-{partition.topic_id}"
        return os.path.join(self._root, name)

    def _is_own_layout(self, partition: TieredPartition, directory: str) -> bool:
        found = self._has_own_layout.get(partition)
        if found is None:
            found = self._has_own_layout[partition] = not self._prefix and self._has_directory(directory)
        return found

    def _has_directory(self, path: str) -> bool:
        with os_errors("read the tiered store", self.fs.url_of(path)), suppress(FileNotFoundError, NotADirectoryError):
            return stat.S_ISDIR(self.fs.stat(path).st_mode)
        return False

    def _plugin_stem(self, partition: TieredPartition, segment: RemoteSegment, name: str) -> str:
        """Return the path of a segment's objects without suffix.

        The key that the plugin kept for the segment takes precedence; so does the prefix, if the description has one.
        """
        directory = f"{validate_topic(partition.topic)}-{partition.topic_id}/{partition.partition}"
        try:
            custom = parse_custom(segment.custom)
        except ValueError as error:
            raise StorageError(
                f"the plugin's metadata of segment {segment.segment_id} cannot be read: {error}", offset=segment.start
            ) from None
        prefix = self._prefix if custom.prefix is None or not self._prefix else custom.prefix
        key = prefix + (custom.key or f"{directory}/{name}")
        if any(part in ("", ".", "..") for part in key.split("/")):
            raise StorageError(f"{ascii(key[:200])} is not the name of an object", offset=segment.start)
        return os.path.join(self._root, key)


class PlainSegment:
    """A segment in Kafka's own file store: one object for each file, unchanged."""

    def __init__(
        self, fs: RemoteFileSystem, stem: str, first_offset: int, size_bytes: int, chunks: ChunkCache
    ) -> None:
        self._object = _ObjectReader(fs, first_offset)
        self._stem = stem
        self._size = size_bytes
        self._chunks = chunks

    @property
    def url(self) -> str:
        """URL of the object with the segment's data."""
        return self._object.place_of(self._stem + LOG)[0]

    @property
    def log_bytes(self) -> int:
        """Size of the segment's data."""
        return self._size

    def read_log(self, position: int, size: int) -> bytes:
        """Return bytes of the segment's data; fewer only at its end."""
        return self._object.blocks(self._stem + LOG, position, size, self._size)

    def index(self, suffix: str) -> bytes | None:
        """Return the bytes of an index; None if the segment has none."""
        path = self._stem + OWN_NAMES.get(suffix, suffix)
        try:
            return bytes(self._chunks.get(path, 0, lambda: self._object.whole(path, _MOST_INDEX_BYTES)))
        except FileNotFoundError as error:
            if suffix == ".txnindex":
                return None
            raise self._object.from_os(path, error) from error


class PluginSegment:
    """A segment in the plugin's objects: chunks, indexes and a manifest."""

    def __init__(
        self, fs: RemoteFileSystem, stem: str, first_offset: int, size_bytes: int | None, keys: KeyRing,
        chunks: ChunkCache, ahead: ReadAhead,
    ) -> None:  # fmt: skip
        """`size_bytes` is the segment's size if it is known; the manifest has to agree then."""
        self._object = _ObjectReader(fs, first_offset)
        self._stem = stem
        self._size = size_bytes
        self._keys = keys
        self._chunks = chunks
        self._lock = threading.Lock()
        self._ahead = ahead
        self._known: tuple[Manifest, Decrypt | None] | None = None  # guarded by self._lock
        self._reader: RunReader | None = None  # guarded by self._lock

    @property
    def url(self) -> str:
        """URL of the object with the segment's data."""
        return self._object.place_of(self._stem + LOG)[0]

    @property
    def log_bytes(self) -> int:
        """Size of the segment's data."""
        return self.manifest.chunks.segment_bytes if self._size is None else self._size

    @property
    def manifest(self) -> Manifest:
        """The segment's manifest, read on first use."""
        return self._opened()[0]

    def manifest_error(self, why: Exception) -> StorageError:
        """Return the error for a manifest that cannot be right."""
        return self._object.error(self._stem + MANIFEST, f"the manifest is damaged: {why}")

    def _opened(self) -> tuple[Manifest, Decrypt | None]:
        with self._lock:
            if self._known is None:
                self._known = self._open()
            return self._known

    def _open(self) -> tuple[Manifest, Decrypt | None]:
        path = self._stem + MANIFEST
        try:
            manifest = parse_manifest(bytes(self._object.whole(path, MOST_MANIFEST_BYTES)))
            if self._size is not None and manifest.chunks.segment_bytes != self._size:
                raise ValueError(f"it says {manifest.chunks.segment_bytes} bytes, the topic's metadata {self._size}")
        except FileNotFoundError as error:
            raise self._object.from_os(path, error) from error
        except (ValueError, RecursionError) as error:
            raise self.manifest_error(error) from None
        if manifest.encryption is None:
            return manifest, None
        try:
            return manifest, self._keys.decryption(manifest.encryption)
        except IllegalArgument as error:
            if error.path is None:  # no file was given for the key pair
                error.path, error.offset = self._object.place_of(path)
            raise
        except ValueError as error:
            raise self._object.error(
                path, str(error), hint="give the private key of the key pair that the broker used for this segment"
            ) from None

    def read_log(self, position: int, size: int) -> bytes:
        """Return bytes of the segment's data; fewer only at its end."""
        manifest, decrypt = self._opened()
        end = min(position + size, manifest.chunks.segment_bytes)
        path = self._stem + LOG
        if not manifest.is_compressed and decrypt is None:
            return self._object.blocks(path, position, end - position, manifest.chunks.segment_bytes)
        parts = []
        while position < end:
            chunk = manifest.chunks.chunk_at(position)
            data = self._chunks.known(path, chunk.position) or self._read(path, position, manifest, decrypt)
            parts.append(data[position - chunk.position : end - chunk.position])
            position = chunk.position + chunk.size
        return b"".join(parts)

    def _read(self, path: str, position: int, manifest: Manifest, decrypt: Decrypt | None) -> memoryview:
        """Return the plain bytes of the chunk at `position`; keep it, and those behind it that came with it.

        Damage in one of the latter is an error when it is read itself.
        """
        with self._lock:
            if self._reader is None:
                fetch = partial(self._object.range, path)
                self._reader = RunReader(path, manifest.chunks, fetch, self._ahead)
            reader = self._reader
        (first, stored), *others = reader.read(manifest.chunks.chunk_at(position).position)
        found = self._decoded(path, first, stored, manifest, decrypt)
        self._chunks.put(path, first.position, found)
        for chunk, data in others:
            with suppress(StorageError):
                self._chunks.put(path, chunk.position, self._decoded(path, chunk, data, manifest, decrypt))
        return found

    def _decoded(
        self, path: str, chunk: Chunk, stored: bytes, manifest: Manifest, decrypt: Decrypt | None
    ) -> memoryview:
        """Return the plain bytes of a chunk."""
        try:
            data = stored if decrypt is None else decrypt(stored)
            if manifest.is_compressed:
                plain = decompress(CompressionType.ZSTD, data, limit_bytes=chunk.size)
            else:
                plain = memoryview(data)
            if len(plain) != chunk.size:
                raise ValueError(f"{len(plain)} bytes instead of {chunk.size}")
        except (ValueError, InvalidRecord) as error:
            where = f"bytes {chunk.stored_position} to {chunk.stored_position + chunk.stored_size}"
            raise self._object.error(path, f"the chunk in {where} is damaged: {error}") from None
        return plain

    def index(self, suffix: str) -> bytes | None:
        """Return the bytes of an index; None if the segment has none."""
        manifest, decrypt = self._opened()
        place = manifest.indexes.get(suffix)
        if place is None:
            return None
        path = self._stem + ".indexes"
        if not place[1]:
            return b""

        def read() -> memoryview:
            stored = self._object.range(path, *place)
            try:
                return memoryview(stored if decrypt is None else decrypt(stored))
            except ValueError as error:
                raise self._object.error(path, f"the index {suffix} is damaged: {error}") from None

        return bytes(self._chunks.get(path, place[0], read))


SegmentContent = PlainSegment | PluginSegment
"""The bytes of one tiered segment. Threads: safe."""


class _ObjectReader:
    """Reads objects of one segment; errors name the object and the segment's first offset."""

    def __init__(self, fs: RemoteFileSystem, first_offset: int) -> None:
        self._fs = fs
        self._first_offset = first_offset
        self._file: File | None = None  # of the segment's data, if it is stored unchanged

    def error(self, path: str, text: str, hint: str = _HINT) -> StorageError:
        """Return the error for an object."""
        return StorageError(text, path=self._fs.url_of(path), offset=self._first_offset, hint=hint)

    def place_of(self, path: str) -> tuple[str, int]:
        """Return the URL and the offset that an error names."""
        return self._fs.url_of(path), self._first_offset

    def from_os(self, path: str, error: OSError) -> StorageError:
        """Return the error for a failure of the store."""
        if isinstance(error, FileNotFoundError):
            return self.error(path, "an object of a tiered segment is missing")
        return self.error(path, f"cannot read an object of a tiered segment: {error.strerror or error}", "try again")

    def range(self, path: str, start: int, size: int) -> bytes:
        """Return `size` bytes of an object from `start`, by one request."""
        try:
            data = self._fs.read_range(path, start, start + size)
        except OSError as error:
            raise self.from_os(path, error) from error
        return data

    def whole(self, path: str, limit_bytes: int) -> memoryview:
        """Return the whole object; raise FileNotFoundError for a missing one."""
        try:
            return memoryview(self._fs.read_file(path, limit_bytes))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self.from_os(path, error) from error

    def blocks(self, path: str, position: int, size: int, expected_bytes: int) -> bytes:
        """Return bytes of an unchanged object of `expected_bytes`, through the blocks that the store's reader keeps."""
        try:
            file = self._file
            if file is None:
                file = self._fs.open_file(path, "r")
                if file.size() != expected_bytes:
                    raise self.error(path, f"the object has {file.size()} bytes instead of {expected_bytes}")
                self._file = file
            return file.pread(size, position)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise self.from_os(path, error) from error

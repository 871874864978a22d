"""Writers of tiered storage for tests, by no code of the package: a log of leader epochs, its copies, their events.

The objects are those of the plugin for object stores (chunks compressed with zstd, encrypted with AES-256-GCM under a
data key that RSA wraps) or those of Kafka's own file store.
"""

import base64
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha3_512
from pathlib import Path
from typing import Any, NamedTuple

import zstandard
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.builder import uvarint
from tests.raw_batches import batch, index_entries, write_segment

TOPIC_ID = "oAtiIQ95REujbuzNd_lkLQ"
STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)


def make_id(number: int) -> str:
    """A segment id."""
    return base64.urlsafe_b64encode(b"segment " + struct.pack(">q", number)).decode().rstrip("=")


# A log


class Batch(NamedTuple):
    """A batch of records with offsets [first, stop), written under a leader epoch."""

    first: int
    stop: int
    epoch: int
    data: bytes


def make_batch(first: int, count: int, epoch: int, text: str = "", pad: int = 30) -> Batch:
    """A batch whose values name offset and epoch, so that no other leader's batch has the same bytes."""
    rows = [
        (1_700_000_000_000 + n, b"k%d" % n, f"{text}{n} of {epoch} ".encode() + b"." * pad)
        for n in range(first, first + count)
    ]
    return Batch(first, first + count, epoch, batch(first, rows, epoch=epoch))


def epochs_of(batches: Iterable[Batch]) -> list[tuple[int, int]]:
    """The leader epochs of a log, each with its first offset."""
    found: dict[int, int] = {}
    for one in batches:
        found.setdefault(one.epoch, one.first)
    return sorted(found.items())


def values_of(batches: Iterable[Batch]) -> list[tuple[int, bytes]]:
    """The offsets and values that a reader has to find."""
    from kafkalog._core.batch.scan import scan
    from kafkalog.records.tables import batch_table

    return [(r.offset, r.value or b"") for one in batches for r in batch_table(one.data, scan(one.data), 0)]


def write_partition(directory: Path, segments: Sequence[Sequence[Batch]], epochs: Sequence[tuple[int, int]]) -> Path:
    """A broker's directory of a partition: local segments, the topic's id, and the leader epochs of the whole log."""
    directory.mkdir(parents=True, exist_ok=True)
    for one in segments:
        write_segment(directory, one[0].first, [part.data for part in one], interval=200)
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    lines = [f"{epoch} {offset}" for epoch, offset in epochs]
    (directory / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return directory


def write_log_start(data: Path, offsets: Mapping[str, int]) -> None:
    """The checkpoint of log starts, by `<topic> <partition>`."""
    lines = [f"{name} {offset}" for name, offset in offsets.items()]
    (data / "log-start-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))


# Events


def _text(value: str) -> bytes:
    return uvarint(len(value.encode()) + 1) + value.encode()


def _uuid(value: str) -> bytes:
    return base64.urlsafe_b64decode(value + "==")


def _segment_id(topic: str, partition: int, segment_id: str) -> bytes:
    of_partition = _text(topic) + _uuid(TOPIC_ID) + struct.pack(">i", partition) + b"\0"
    return of_partition + _uuid(segment_id) + b"\0"


class Copy(NamedTuple):
    """A copy of the segment `batches`, which ends at `stop`."""

    segment_id: str
    batches: Sequence[Batch]
    topic: str = "orders"
    partition: int = 0

    @property
    def first(self) -> int:
        """First offset."""
        return self.batches[0].first

    @property
    def stop(self) -> int:
        """Offset behind the last one."""
        return self.batches[-1].stop

    @property
    def data(self) -> bytes:
        """Bytes of the segment."""
        return b"".join(one.data for one in self.batches)

    def started(self, state: int = STARTED, custom: bytes | None = None, size: int | None = None) -> bytes:
        """The event that a copy begins."""
        epochs = epochs_of(self.batches)
        out = b"\x01\x00\x00" + _segment_id(self.topic, self.partition, self.segment_id)
        out += struct.pack(">qqiqq", self.first, self.stop - 1, 1, 1_700_000_000_000 + self.stop, 1_700_000_000_000)
        out += uvarint(len(epochs) + 1) + b"".join(struct.pack(">iq", *entry) + b"\0" for entry in epochs)
        out += struct.pack(">i", len(self.data) if size is None else size) + _custom(custom)
        return out + struct.pack(">b", state) + b"\0"

    def update(self, state: int, custom: bytes | None = None) -> bytes:
        """The event of a later state."""
        out = b"\x01\x01\x00" + _segment_id(self.topic, self.partition, self.segment_id)
        out += struct.pack(">iq", 1, 1_700_000_000_001) + _custom(custom)
        return out + struct.pack(">b", state) + b"\0"


def _custom(data: bytes | None) -> bytes:
    return b"\0" if data is None else uvarint(len(data) + 1) + data


def custom_metadata(prefix: str | None = None, key: str | None = None) -> bytes:
    """Fields that the plugin keeps in events: remote size, prefix, key."""
    fields = [(0, b"\x80\x02")] + [(n, _text(one)) for n, one in ((1, prefix), (2, key)) if one is not None]
    return uvarint(len(fields)) + b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in fields)


def write_events(data: Path, events: Sequence[bytes], partition: int = 0) -> Path:
    """The directory of a partition of the metadata topic, with one batch for each event."""
    parts = [batch(offset, [event]) for offset, event in enumerate(events)]
    write_segment(data / f"__remote_log_metadata-{partition}", 0, parts)
    return data / f"__remote_log_metadata-{partition}"


# Objects


class KeyPair:
    """An RSA key pair that wraps data keys with OAEP of SHA3-512."""

    def __init__(self, key_id: str = "key1") -> None:
        self.key_id = key_id

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:  # takes a while, and modules that make a pair are collected everywhere
        return rsa.generate_private_key(65537, 2048)

    def write(self, path: Path) -> Path:
        """Write the private key as PEM."""
        path.write_bytes(self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return path

    def wrapped(self, data_key: bytes, *, first: bytes = b"\0", label: bytes = b"", mark: bytes = b"\1") -> bytes:
        """Return the data key, padded (RFC 8017, 7.1.1) and encrypted; the defaults are those of sound padding."""
        public = self._key.public_key().public_numbers()
        size, seed = (public.n.bit_length() + 7) // 8, os.urandom(64)
        block = sha3_512(label).digest() + bytes(size - len(data_key) - 130) + mark + data_key
        masked = bytes(a ^ b for a, b in zip(block, _mask(seed, len(block)), strict=True))
        padded = first + bytes(a ^ b for a, b in zip(seed, _mask(masked, 64), strict=True)) + masked
        return pow(int.from_bytes(padded, "big"), public.e, public.n).to_bytes(size, "big")


def _mask(seed: bytes, size: int) -> bytes:
    out, number = b"", 0
    while len(out) < size:
        out += sha3_512(seed + struct.pack(">I", number)).digest()
        number += 1
    return out[:size]


class PluginStore:
    """Writes copies as the plugin does, into the directory `root`, whose objects begin with `prefix`."""

    def __init__(
        self, root: Path, *, prefix: str = "", chunk_bytes: int = 500, compressed: bool = False,
        keys: KeyPair | None = None,
    ) -> None:  # fmt: skip
        self.root, self.prefix, self.chunk_bytes = root, prefix, chunk_bytes
        self.compressed, self.keys = compressed, keys
        root.mkdir(parents=True, exist_ok=True)

    def path(self, copy: Copy, suffix: str) -> Path:
        """Path of an object."""
        place = f"{copy.topic}-{TOPIC_ID}/{copy.partition}/{copy.first:020d}-{copy.segment_id}"
        return self.root / (self.prefix + place + suffix)

    def put(self, copy: Copy, transactions: bytes | None = None, snapshot: bytes | None = None) -> None:
        """Write the three objects of a copy, with a transaction index and a snapshot of producers."""
        offsets, times = index_entries(copy.first, [one.data for one in copy.batches], 200)
        epochs = epochs_of(copy.batches)
        lines = ["0", str(len(epochs)), *(f"{epoch} {offset}" for epoch, offset in epochs), ""]
        parts = {
            "offset": offsets, "timestamp": times, "producerSnapshot": snapshot or _EMPTY_SNAPSHOT,
            "leaderEpoch": "\n".join(lines).encode(), "transaction": transactions,
        }  # fmt: skip
        metadata = {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": TOPIC_ID, "topicPartition": {"topic": copy.topic, "partition": copy.partition},
                },
                "id": copy.segment_id,
            },
            "startOffset": copy.first, "endOffset": copy.stop - 1, "maxTimestampMs": 1_700_000_000_000 + copy.stop,
            "brokerId": 1, "eventTimestampMs": 1_700_000_000_000,
            "segmentLeaderEpochs": {str(epoch): offset for epoch, offset in epochs},
        }  # fmt: skip
        self.put_objects(str(self.path(copy, "")), copy.data, parts, metadata)

    def put_objects(
        self, stem: str, data: bytes, parts: Mapping[str, bytes | None], metadata: Mapping[str, object] | None
    ) -> None:
        """Write the objects of a segment: its data, and its indexes by the names that a manifest has for them."""
        data_key, aad, size = os.urandom(32), os.urandom(32), self.chunk_bytes

        def stored(piece: bytes, compressed: bool) -> bytes:
            if compressed:
                piece = zstandard.ZstdCompressor().compress(piece)
            if self.keys is not None:
                iv = os.urandom(12)
                piece = iv + AESGCM(data_key).encrypt(iv, piece, aad)
            return piece

        chunks = [stored(data[at : at + size], self.compressed) for at in range(0, len(data), size)]
        index: dict[str, object] = {"originalChunkSize": size, "originalFileSize": len(data)}
        if self.compressed:
            index = {"type": "variable", **index, "transformedChunks": _chunk_sizes([len(one) for one in chunks])}
        else:
            extra, last = 0 if self.keys is None else 28, len(chunks[-1])
            index = {"type": "fixed", **index, "transformedChunkSize": size + extra, "finalTransformedChunkSize": last}
        places: dict[str, object] = {}
        indexes = b""
        for name, part in parts.items():
            piece = None if part is None else stored(part, False) if part else b""
            places[name] = None if piece is None else {"position": len(indexes), "size": len(piece)}
            indexes += piece or b""
        manifest: dict[str, Any] = {
            "version": "1", "chunkIndex": index, "segmentIndexes": places, "compression": self.compressed,
        }  # fmt: skip
        if self.keys is not None:
            wrapped = f"{self.keys.key_id}:{base64.b64encode(self.keys.wrapped(data_key)).decode()}"
            manifest["encryption"] = {"dataKey": wrapped, "aad": base64.b64encode(aad).decode()}
        if metadata is not None:
            manifest["remoteLogSegmentMetadata"] = metadata
        Path(stem).parent.mkdir(parents=True, exist_ok=True)
        Path(stem + ".log").write_bytes(b"".join(chunks))
        Path(stem + ".indexes").write_bytes(indexes)
        Path(stem + ".rsm-manifest").write_text(json.dumps(manifest))


def _chunk_sizes(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        data = struct.pack(">ii", 1, sizes[0])
    else:
        lowest = min(sizes[:-1])
        width = max(1, (max(sizes[:-1]) - lowest).bit_length() + 7 >> 3)
        data = struct.pack(">iiB", len(sizes), lowest, width)
        data += b"".join((one - lowest).to_bytes(width, "big") for one in sizes[:-1]) + struct.pack(">i", sizes[-1])
    return base64.b64encode(zstandard.ZstdCompressor().compress(data)).decode()


class OwnStore:
    """Writes copies as Kafka's own file store does."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, copy: Copy, suffix: str) -> Path:
        """Path of an object."""
        place = f"{copy.topic}-{copy.partition}-{TOPIC_ID}/{copy.first:020d}-{copy.segment_id}"
        return self.root / (place + suffix)

    def put(self, copy: Copy, transactions: bytes | None = None) -> None:
        """Write the objects of a copy."""
        self.path(copy, ".log").parent.mkdir(parents=True, exist_ok=True)
        offsets, times = index_entries(copy.first, [one.data for one in copy.batches], 200)
        parts = {".log": copy.data, ".index": offsets, ".timeindex": times, ".snapshot": _EMPTY_SNAPSHOT}
        if transactions is not None:
            parts[".txnindex"] = transactions
        for suffix, part in parts.items():
            self.path(copy, suffix).write_bytes(part)


def _snapshot() -> bytes:
    import crc32c

    checked = struct.pack(">i", 0)
    return struct.pack(">hI", 1, crc32c.crc32c(checked)) + checked


_EMPTY_SNAPSHOT = _snapshot()

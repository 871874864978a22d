"""Requests that were recorded, made wrong: bytes, lengths, counts, ends, calls and versions, and batches of records."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import cramjam
import crc32c

from kafkalog.manager.topics import MAX_PARTITIONS_AT_ONCE
from kafkalog.server.wire.definitions import FieldPlan, StructPlan, request_plan
from kafkalog.server.wire.header import read_header
from kafkalog.server.wire.versions import APIS
from kafkalog.server.wire.writer import write_request
from tests.raw_batches import batch, framed
from tests.server.fuzzing.plausible import CALLS, Plausible
from tests.server.hostile import Hostile
from tests.wire_cases import FILES, as_tree, frames, read_request

TOPICS: Final = ("t", "u")
"""Topics that are there; those of the recording are taken for them."""
_PRODUCE, _SASL, _QUOTAS, _CONFIGS = 0, (17, 36), 49, (33, 44)
_TOPICS: Final = (19, 37)
MOST_PARTITIONS: Final = 50
"""More are not asked for, as they take minutes to make, unless it is more than a server makes."""
_BROKER: Final = 4
_BOMB_BYTES: Final = 32 << 20
_NUMBERS: Final = (0, 1, -1, 127, -128, 255, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**24)
_VARINTS: Final = (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\xff", b"\x80\x80\x80\x80\x00")
_OTHERS: Final = (
    b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    b"SSH-2.0-OpenSSH_9.2\r\n", b"\r\n" * 50, bytes(64), b"\xff" * 64, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)  # fmt: skip


class Mutator:
    """Frames out of a seed, with their lengths. `topic_ids` are those of `TOPICS`, `paths` the data directories."""

    def __init__(self, seed: int, topic_ids: list[bytes], paths: Sequence[str] = ()) -> None:
        self.random = random.Random(seed)
        self._seeds = _seeds(tuple(topic_ids))
        self._logins = [one for one in self._seeds if struct.unpack_from(">h", one)[0] in _SASL]
        self._produces = [one for one in self._seeds if one[:2] == b"\0\0"]
        self._hostile = Hostile(seed, list(_batches()), topic_ids)
        self._plausible = Plausible(seed, list(_batches()), topic_ids, paths)
        self._served = list(APIS.values())
        self._conversing = [api for name in CALLS for api in APIS.values() if api.name == name]
        self._kinds: list[Callable[[bytearray], object]] = [
            self._flip, self._flip, self._noise, self._number, self._number, self._varint, self._cut, self._insert,
            self._double, self._drop, self._splice, self._call, self._version,
        ]  # fmt: skip

    def frame(self, *, is_login: bool = False) -> bytes:
        """The next one; of a login where that is asked for."""
        chance = self.random.random()
        if chance < 0.005:
            return self.random.choice(_OTHERS)
        if is_login:
            body = self._mutated(bytearray(self.random.choice(self._logins)))
        elif chance < 0.25:
            api = self.random.choice(self._served)
            body = self._hostile.request(api, self.random.randint(max(api.oldest, api.first_served), api.newest))
        elif chance < 0.45:
            api = self.random.choice(self._conversing)
            body = self._plausible.request(api, self.random.randint(max(api.oldest, api.first_served), api.newest))
            body = self._mutated(body) if self.random.random() < 0.1 else body
        elif chance < 0.56:
            body = self._produce()
        elif chance < 0.62:
            body = bytearray(self.random.choice(self._seeds))
        else:
            body = self._mutated(bytearray(self.random.choice(self._seeds)))
        if _shuts_out(body):
            body = bytearray(self.random.choice(self._seeds))
        return self._length(len(body)) + bytes(body)

    def _length(self, size: int) -> bytes:
        if self.random.random() < 0.01:
            size = self.random.choice((size - 1, size + 1, size + self.random.randint(2, 300), *_NUMBERS[:10]))
        return struct.pack(">i", size)

    def _mutated(self, body: bytearray) -> bytearray:
        for _ in range(self.random.choice((1, 1, 1, 2, 3, 6))):
            if body:
                self.random.choice(self._kinds)(body)
        return body

    def _at(self, body: bytearray) -> int:
        # the header is a small part of most requests, and without it none of the rest is read
        first = min(8, len(body) - 1) if self.random.random() < 0.95 else 0
        return self.random.randrange(first, len(body))

    def _flip(self, body: bytearray) -> None:
        body[self._at(body)] ^= 1 << self.random.randrange(8)

    def _noise(self, body: bytearray) -> None:
        at = self._at(body)
        size = min(self.random.randint(1, 16), len(body) - at)
        body[at : at + size] = self.random.randbytes(size)

    def _number(self, body: bytearray) -> None:
        at, size = self._at(body), self.random.choice((1, 2, 4, 4, 8))
        value = self.random.choice(_NUMBERS) & (1 << 8 * size) - 1
        body[at : at + size] = value.to_bytes(size, "big")

    def _varint(self, body: bytearray) -> None:
        at = self._at(body)
        body[at : at + self.random.choice((1, 1, 2, 5))] = self.random.choice(_VARINTS)

    def _cut(self, body: bytearray) -> None:
        del body[self._at(body) :]

    def _insert(self, body: bytearray) -> None:
        at = self._at(body)
        body[at:at] = self.random.randbytes(self.random.randint(1, 40))

    def _double(self, body: bytearray) -> None:
        at = self._at(body)
        piece = body[at : at + self.random.randint(1, 64)]
        body[at:at] = piece * self.random.choice((1, 1, 2, 30))

    def _drop(self, body: bytearray) -> None:
        at = self._at(body)
        del body[at : at + self.random.randint(1, 12)]

    def _splice(self, body: bytearray) -> None:
        other = self.random.choice(self._seeds)
        body[self._at(body) :] = other[self.random.randrange(len(other)) :]

    def _call(self, body: bytearray) -> None:
        body[:2] = struct.pack(">h", self.random.choice((self.random.randint(-1, 100), *APIS)))

    def _version(self, body: bytearray) -> None:
        body[2:4] = struct.pack(">h", self.random.randint(-1, 20))

    def _produce(self) -> bytearray:
        """A request that is as it should be, around records that are not; their checksum mostly fits."""
        seed = bytearray(self.random.choice(self._produces))
        version = struct.unpack_from(">h", seed, 2)[0]
        start = read_header(seed).body
        tree = as_tree(read_request(_PRODUCE, version, seed, start))
        for topic in tree["topic_data"]:
            for partition in topic["partition_data"]:
                partition["index"] = self.random.choice((0, 1))
                partition["records"] = self._records()
        return seed[:start] + write_request(_PRODUCE, version, tree)

    def _records(self) -> bytes:
        if self.random.random() < 0.003:
            return self.random.choice(_bombs())
        data = bytearray(self.random.choice(_batches()))
        for _ in range(self.random.choice((0, 1, 1, 2, 4))):
            at = self.random.choice((self.random.randrange(len(data)), self.random.randrange(21, 61)))
            if at < len(data):
                self.random.choice((self._flip_at, self._number_at))(data, at)
        if self.random.random() < 0.9 and len(data) > 21:
            if self.random.random() < 0.8:
                struct.pack_into(">i", data, 8, len(data) - 12)
            struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
        return bytes(data * self.random.choice((1, 1, 1, 2)))

    def _flip_at(self, data: bytearray, at: int) -> None:
        data[at] ^= 1 << self.random.randrange(8)

    def _number_at(self, data: bytearray, at: int) -> None:
        size = min(self.random.choice((1, 2, 4, 8)), len(data) - at)
        data[at : at + size] = (self.random.choice(_NUMBERS) & (1 << 8 * size) - 1).to_bytes(size, "big")


@cache
def _seeds(topic_ids: tuple[bytes, ...]) -> list[bytes]:
    """The recorded requests that are served, each once, with names and ids of what is there."""
    found: dict[bytes, None] = {}
    for path in FILES:
        for frame in frames(path):
            if not frame.is_served:
                continue
            start = read_header(frame.request).body
            try:
                tree = as_tree(read_request(frame.key, frame.version, frame.request, start))
            except Exception:  # some were recorded because they are wrong
                found[bytes(frame.request)] = None
                continue
            _name(request_plan(frame.key, frame.version), tree, topic_ids)
            head = struct.pack(">hhih", frame.key, frame.version, 7, 1) + b"f"
            head += b"\0" if APIS[frame.key].is_flexible(frame.version) else b""
            found[head + write_request(frame.key, frame.version, tree)] = None
    return list(found)


def _name(plan: StructPlan, tree: dict[str, Any], topic_ids: tuple[bytes, ...]) -> None:
    for field in (*plan.plain, *plan.tagged):
        value = tree[field.name]
        if field.struct is not None and value is not None:
            for one in value if field.is_array else [value]:
                _name(field.struct, one, topic_ids)
        elif isinstance(value, list):
            tree[field.name] = [_named(field, one, topic_ids) for one in value]
        else:
            tree[field.name] = _named(field, value, topic_ids)


def _named(field: FieldPlan, value: Any, topic_ids: tuple[bytes, ...]) -> Any:
    from uuid import UUID

    if field.kind == "uuid" and value is not None:
        return UUID(bytes=topic_ids[value.int % len(topic_ids)])
    if field.kind != "string" or not value:
        return value
    number = crc32c.crc32c(value.encode())
    if field.name in ("topic", "topics", "topic_names", "subscribed_topic_names") or value.endswith("-t"):
        return TOPICS[number % len(TOPICS)]
    if field.name == "group_id":
        return f"g{number % 8}"
    return f"x{number % 8}" if field.name == "transactional_id" else value


@cache
def _batches() -> tuple[bytes, ...]:
    """Batches that may be sent: plain, of each codec, of a producer with a number, in a transaction, old messages."""
    plain = batch(0, [(1000 + n, b"k%d" % n, b"a value " * n) for n in range(5)])
    made = [batch(0, [b"one"]), plain, batch(0, [b"x" * 3000]), *_recorded_batches()]
    made += [_packed(plain, codec) for codec in (1, 2, 3, 4)]
    for attributes in (0, 0x10):
        numbered = bytearray(plain)
        struct.pack_into(">h", numbered, 21, attributes)
        struct.pack_into(">qhi", numbered, 43, 1, 0, 0)
        made.append(framed(0, bytes(numbered[21:])))
    return tuple(made)


def _recorded_batches() -> Iterator[bytes]:
    found: dict[bytes, None] = {}
    for path in FILES:
        for frame in frames(path):
            if frame.key == _PRODUCE and frame.is_served:
                request = read_request(frame.key, frame.version, frame.request, read_header(frame.request).body)
                for topic in request.topic_data:
                    for partition in topic.partition_data:
                        if partition.records is not None and 61 < len(partition.records) < 5000:
                            found[bytes(partition.records)] = None
    return iter(list(found)[:200])


def _packed(plain: bytes, codec: int) -> bytes:
    payload = plain[61:]
    pack = {
        1: cramjam.gzip.compress, 2: cramjam.snappy.compress_raw, 3: cramjam.lz4.compress, 4: cramjam.zstd.compress,
    }[codec]  # fmt: skip
    return framed(0, struct.pack(">h", codec) + plain[23:61] + bytes(pack(payload)))


@cache
def _bombs() -> tuple[bytes, ...]:
    """A few kilobytes that are `_BOMB_BYTES` once they are unpacked."""
    plain = batch(0, [b"x"])
    return tuple(_packed(plain[:61] + bytes(_BOMB_BYTES), codec) for codec in (1, 2, 3, 4))


def _shuts_out(body: bytearray) -> bool:
    """Return True if an administrator could lock others out with it (settings, huge topics): not a fault."""
    if len(body) < 12:
        return False
    key, version = struct.unpack_from(">hh", body)
    if key == _QUOTAS:
        return b"connection_creation_rate" in body
    if key not in (*_CONFIGS, *_TOPICS) or not APIS[key].serves(version):
        return False
    try:
        asked = read_request(key, version, body, read_header(body).body)
    except Exception:
        return False
    if key in _CONFIGS:
        return any(resource.resource_type == _BROKER for resource in asked.resources)
    counts = [one.count if key == _TOPICS[1] else one.num_partitions for one in asked.topics or ()]
    return any(MOST_PARTITIONS < count <= MAX_PARTITIONS_AT_ONCE for count in counts)

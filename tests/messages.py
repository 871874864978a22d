"""A plain writer of Kafka's messages by schema table, with random content: the bytes that readers are tried on."""

import struct
from random import Random
from typing import Any

from kafkalog.records.schema import Field, Schema
from tests.builder import uvarint

NUMBERS = {"i8": ">b", "i16": ">h", "u16": ">H", "i32": ">i", "u32": ">I", "i64": ">q"}
TEXTS = ["", "a", "orders", 'quote " and \\', "tab\tand\x01", "π€🎉", "x" * 40]
DOUBLES = [0.0, -0.0, 1.5, 1e7, 123456.789, 1e-3, 1e-4, -2.5e10, float("nan"), float("inf")]


class Writer:
    """Writes one message in one version; `random` decides every value."""

    def __init__(self, schema: Schema, version: int, random: Random) -> None:
        self.version = version
        self.random = random
        self.flexible = version >= schema.flexible_from
        self.schema = schema

    def message(self) -> bytes:
        """The fields of the whole message."""
        return self.struct(self.schema.fields)

    def struct(self, fields: tuple[Field, ...]) -> bytes:
        present = [f for f in fields if f.first <= self.version <= f.last]
        out = b"".join(self.field(f) for f in present if f.tag is None)
        if not self.flexible:
            return out
        tagged = {f.tag: f for f in present if f.tag is not None and self.random.random() < 0.6}
        parts = [(tag, self.field(tagged[tag])) for tag in sorted(tagged)]
        if self.random.random() < 0.2:
            parts.append((99, b"from a newer release"))
        return out + uvarint(len(parts)) + b"".join(uvarint(tag) + uvarint(len(p)) + p for tag, p in parts)

    def field(self, field: Field) -> bytes:
        null = field.nullable and self.random.random() < 0.3
        if field.array:
            if null:
                return self.size(-1)
            count = self.random.choice([0, 1, 1, 2, 3])
            return self.size(count) + b"".join(self.item(field, False) for _ in range(count))
        return self.item(field, null)

    def item(self, field: Field, null: bool) -> bytes:
        """One value of the field's type."""
        random = self.random
        if field.type in NUMBERS:
            code = NUMBERS[field.type]
            bits = 8 * struct.calcsize(code)
            low, high = (0, 2**bits - 1) if code[1].isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            return struct.pack(code, random.choice([low, high, 0, 1, 7, random.randint(low, high)]))
        if field.type == "bool":
            return bytes([random.choice([0, 1])])
        if field.type == "f64":
            return struct.pack(">d", random.choice(DOUBLES))
        if field.type == "uuid":
            return random.choice([bytes(16), random.randbytes(16)])
        if field.type == "{}":
            inner = b"" if null else self.struct(field.fields)
            if not field.nullable or field.array:
                return inner
            if field.tag is not None:
                return uvarint(0) if null else uvarint(len(inner) + 1) + inner
            return b"\xff" if null else b"\x01" + inner
        if field.type == "string":
            data = random.choice(TEXTS).encode()
            size = -1 if null else len(data)
            head = uvarint(size + 1) if self.flexible else struct.pack(">h", size)
        else:
            data = random.randbytes(random.choice([0, 1, 5]))
            head = self.size(-1 if null else len(data))
        return head if null else head + data

    def size(self, n: int) -> bytes:
        """The size of an array or of bytes; -1 is null."""
        return uvarint(n + 1) if self.flexible else struct.pack(">i", n)


def message(schema: Schema, version: int, random: Random) -> bytes:
    """A random message of that version."""
    return Writer(schema, version, random).message()


def coordinator_parts(
    keys: dict[int, Schema], values: dict[int, Schema], random: Random, each: int
) -> list[tuple[bytes, bytes | None]]:
    """(key, value) of random records of every type and version, tombstones among them."""
    rows: list[tuple[bytes, bytes | None]] = []
    for number, schema in keys.items():
        value = values[number]
        for version in range(value.lowest, value.highest + 1):
            for _ in range(each):
                key = struct.pack(">h", number) + message(schema, 0, random)
                rows.append((key, struct.pack(">h", version) + message(value, version, random)))
        rows.append((struct.pack(">h", number) + message(schema, 0, random), None))
    return rows


def framed(records: dict[int, Schema], random: Random, each: int) -> list[bytes]:
    """Values of random records with a frame version, of every type and version."""
    return [
        uvarint(1) + uvarint(number) + uvarint(version) + message(schema, version, random)
        for number, schema in records.items()
        for version in range(schema.lowest, schema.highest + 1)
        for _ in range(each)
    ]


def cut_and_changed(data: bytes, random: Random) -> bytes:
    """The bytes cut short, or with one of them changed."""
    if not data or random.random() < 0.4:
        return data[: random.randrange(len(data) + 1)]
    at = random.randrange(len(data))
    changed: Any = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
    return data[:at] + bytes([changed]) + data[at + 1 :]

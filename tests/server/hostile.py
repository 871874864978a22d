"""Requests generated from the schemas with values that no client sends: any number, null, internal topics, bad ends."""

from __future__ import annotations

import random
import struct
from typing import Any

from kafkalog.server.wire.definitions import FieldPlan, StructPlan, request_plan
from kafkalog.server.wire.versions import Api, unsigned_varint

NUMBERS = (0, 1, -1, 2, 5, 100, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
NAMES = ("t", "u", "g", "", "__consumer_offsets", "__transaction_state", "a" * 250, "ü", "..", "t-0", "(((a+)+)+)$")
FORMS = {
    "int8": ">b", "int16": ">h", "error_code": ">h", "int32": ">i", "timedelta_i32": ">i", "int64": ">q",
    "timedelta_i64": ">q", "datetime_i64": ">q", "uint16": ">H",
}  # fmt: skip
DOUBLES = (0.0, -1.0, 1e300, float("nan"), float("inf"), 1000.0)


class Hostile:
    """Requests out of a seed. `batches` are record batches that may be sent, `ids` ids of topics."""

    def __init__(self, seed: int, batches: list[bytes], ids: list[bytes]) -> None:
        self.random = random.Random(seed)
        self._batches = batches
        self._ids = ids

    def request(self, api: Api, version: int) -> bytearray:
        """A whole request, without its length."""
        head = struct.pack(">hhi", api.key, version, 7) + b"\0\1c" + (b"\0" if api.is_flexible(version) else b"")
        body = self._struct(request_plan(api.key, version))
        return bytearray(head + body)

    def _struct(self, plan: StructPlan) -> bytes:
        out = b"".join(self._field(field, plan.is_flexible) for field in plan.plain)
        if not plan.is_flexible:
            return out
        tags = sorted((field.tag or 0, field) for field in plan.tagged if self.random.random() < 0.3)
        out += unsigned_varint(len(tags))
        for tag, field in tags:
            value = self._field(field, True)
            out += unsigned_varint(tag) + unsigned_varint(len(value)) + value
        return out

    def _field(self, field: FieldPlan, is_flexible: bool) -> bytes:
        if not field.is_array:
            return self._one(field, is_flexible, field.is_nullable)
        if field.is_nullable and self.random.random() < 0.2:
            return b"\0" if is_flexible else b"\xff" * 4
        count = self.random.choice((0, 1, 1, 1, 2, 3, 5 if field.struct is not None else 60))
        head = unsigned_varint(count + 1) if is_flexible else struct.pack(">i", count)
        return head + b"".join(self._one(field, is_flexible, False) for _ in range(count))

    def _one(self, field: FieldPlan, is_flexible: bool, may_be_null: bool) -> bytes:
        if field.struct is not None:
            if not may_be_null or field.tag is not None:
                return self._struct(field.struct)
            return b"\xff" if self.random.random() < 0.3 else b"\1" + self._struct(field.struct)
        kind = field.kind
        if kind in FORMS:
            return self._number(FORMS[kind])
        if kind == "bool":
            return bytes([self.random.randint(0, 1)])
        if kind == "float64":
            return struct.pack(">d", self.random.choice(DOUBLES))
        if kind == "uuid":
            return self.random.choice([bytes(16), self.random.randbytes(16), *self._ids])
        if may_be_null and self.random.random() < 0.3:
            return b"\0" if is_flexible else b"\xff\xff" if kind == "string" else b"\xff" * 4
        data = self.random.choice(NAMES).encode() if kind == "string" else self._bytes()
        form: Any = ">h" if kind == "string" else ">i"
        return (unsigned_varint(len(data) + 1) if is_flexible else struct.pack(form, len(data))) + data

    def _number(self, form: str) -> bytes:
        bits = struct.calcsize(form) * 8
        low, high = (0, 2**bits - 1) if form.isupper() or form == ">H" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        value = self.random.choice(NUMBERS) if self.random.random() < 0.7 else self.random.randint(-3, 10)
        return struct.pack(form, max(low, min(high, value)))

    def _bytes(self) -> bytes:
        batch = self.random.choice(self._batches)
        damaged = bytearray(batch)
        damaged[self.random.randrange(len(damaged))] ^= 1 << self.random.randrange(8)
        noise = self.random.randbytes(self.random.randint(0, 200))
        return self.random.choice([b"", noise, bytes(61), batch, batch[:-3], batch + batch, bytes(damaged)])

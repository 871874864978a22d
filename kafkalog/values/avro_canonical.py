"""Avro's canonical form of a schema, and the fingerprint that a single object begins with."""

from __future__ import annotations

import json
from functools import cache
from typing import Final

from kafkalog.values.avro_schema import AvroType

_EMPTY: Final = 0xC15D213AA4D7A795


def canonical_form(schema: AvroType) -> str:
    """Return the schema as Avro's "Parsing Canonical Form": full names, no attributes that do not matter for reading.

    >>> from kafkalog.values.avro_schema import parse_avro
    >>> canonical_form(parse_avro({"type": "fixed", "name": "Id", "namespace": "a", "size": 16, "doc": "?"}))
    '{"name":"a.Id","type":"fixed","size":16}'
    """
    return _written(schema, set())


def _written(kind: AvroType, known: set[str]) -> str:
    if kind.kind == "union":
        return f"[{','.join(_written(part, known) for part in kind.parts)}]"
    if kind.kind == "array":
        return f'{{"type":"array","items":{_written(kind.parts[0], known)}}}'
    if kind.kind == "map":
        return f'{{"type":"map","values":{_written(kind.parts[0], known)}}}'
    if not kind.name:
        return _quoted(kind.kind)
    if kind.name in known:
        return _quoted(kind.name)
    known.add(kind.name)
    head = f'{{"name":{_quoted(kind.name)},"type":"{kind.kind}"'
    if kind.kind == "fixed":
        return f'{head},"size":{kind.size}}}'
    if kind.kind == "enum":
        return f'{head},"symbols":[{",".join(map(_quoted, kind.symbols))}]}}'
    fields = [f'{{"name":{_quoted(one.name)},"type":{_written(one.type, known)}}}' for one in kind.fields]
    return f'{head},"fields":[{",".join(fields)}]}}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@cache
def _table() -> tuple[int, ...]:
    made = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (_EMPTY & -(number & 1))
        made.append(number)
    return tuple(made)


def crc_64(data: bytes) -> int:
    """Return the CRC-64-AVRO of bytes, as a signed number.

    >>> hex(crc_64(b'"null"') & (1 << 64) - 1)
    '0x63dd24e7cc258f8a'
    """
    table, crc = _table(), _EMPTY
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc - (1 << 64) if crc >> 63 else crc

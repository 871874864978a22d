"""Encoding of Kafka's messages by schema: the reverse of `Schema.read`, with the reference's exact bytes.

A message is a dict by field name, as `Schema.read` returns it. A value that the schema does not accept raises
IllegalArgument, which names the field; nothing is truncated or left out.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import cache

from kafkalog._core.messages.writer import REQUIRED, MessageWriter
from kafkalog.errors import IllegalArgument
from kafkalog.records.schema import Field, Schema, kind_of


def encoded(schema: Schema, message: Mapping[str, object], version: int) -> bytes:
    """Encode `message` in `version` of its schema; `schema.read` returns an equal message.

    The message must hold every field of that version; tagged fields only where they differ from their default. Raises
    IllegalArgument for a version that the schema does not have, for a field that is missing or not in that version, and
    for a value that does not fit its type.
    """
    return _message_writer(schema, version).write(message)


@cache
def _message_writer(schema: Schema, version: int) -> MessageWriter:
    if not schema.lowest <= version <= schema.highest:
        raise IllegalArgument(
            f"{schema.name} has no version {version}", hint=f"versions are {schema.lowest} to {schema.highest}"
        )
    return _writer(schema, schema.name, schema.fields, version)


def _writer(schema: Schema, name: str, fields: tuple[Field, ...], version: int) -> MessageWriter:
    flexible = version >= schema.flexible_from
    rows = [
        (
            field.name, kind_of(field), field.array, field.nullable, field.tag,
            _writer(schema, field.name, field.fields, version) if field.fields else None,
            REQUIRED if field.tag is None else field.default,
        )
        for field in fields
        if field.first <= version <= field.last and (flexible or field.tag is None)
    ]  # fmt: skip
    return MessageWriter(
        name, flexible, rows, lambda words, hint: IllegalArgument(words, hint=hint), raw_id, str(version)
    )


def raw_id(value: object) -> bytes | None:
    """Decode the 22 characters of a Kafka uuid to 16 bytes; return None for anything else."""
    try:
        return base64.b64decode(f"{value}==", altchars=b"-_", validate=True) if isinstance(value, str) else None
    except binascii.Error:
        return None

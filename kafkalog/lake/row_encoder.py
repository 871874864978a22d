"""Rows of a table as values in a schema: the part common to Avro and Protobuf."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.values.row_bytes import joined, scalar, sizes
from kafkalog.values.row_plan import Plan
from kafkalog.values.schemas.directory import MOST_ID, SchemaDirectory
from kafkalog.values.schemas.source import SchemaSource

if TYPE_CHECKING:
    import pyarrow

_ID_BYTES: Final = 4


class RowSchema(NamedTuple):
    """The schema of values that a caller gives; the names are those of a scan."""

    schema: Any = None
    schemas: str | os.PathLike[str] | SchemaSource | None = None
    framing: str | None = None
    message: str | None = None


class RowEncoder(NamedTuple):
    """An encoder of rows: it takes `columns`, and puts `head`, or the size as `size` writes it, before each value."""

    columns: tuple[str, ...]
    plan: Plan
    head: bytes = b""
    size: Callable[[Any], pyarrow.Array] | None = None

    def encode(self, rows: pyarrow.RecordBatch) -> pyarrow.Array:
        """Return the value of each row; InvalidRecord for a value outside of its type in the schema."""
        import pyarrow as pa

        try:
            values = self.plan(rows.to_struct_array())
        except (ValueError, OverflowError, NotImplementedError, pa.ArrowException) as error:
            raise InvalidRecord(
                f"a row does not fit the schema: {error}",
                hint="give a schema with a wider type, or one whose field may be null",
            ) from None
        if self.size is not None:
            return joined(len(values), [self.size(sizes(values)), values])
        return joined(len(values), [scalar(self.head), values]) if self.head else values


def checked_framing(given: str | None, source: SchemaSource | None, known: tuple[str, ...]) -> str:
    """Return the framing, by default that of a place with schemas; IllegalArgument for an unknown one."""
    framing = given or ("raw" if source is None else "registry")
    if framing not in known:
        raise IllegalArgument(f"unknown framing {framing!r}", hint=f"the framings are {', '.join(known)}")
    return framing


def stored(content: bytes, suffix: str, source: SchemaSource | None) -> int:
    """Return the id of a schema in a directory; store it there as a file if it has none."""
    if not isinstance(source, SchemaDirectory):
        raise IllegalArgument(
            "the framing 'registry' needs the id of a schema",
            hint="give schema=ID of one in schemas, or a directory, in which the schema is stored, as schemas",
        )
    return source.stored_id(content, suffix)


def registry_head(number: int | None) -> bytes:
    """Return the header of a schema's values as a registry's clients write it."""
    if number is None or not 0 <= number <= MOST_ID:
        raise IllegalArgument(f"a value cannot name schema {number}", hint=f"ids go up to {MOST_ID}")
    return b"\0" + number.to_bytes(_ID_BYTES, "big")

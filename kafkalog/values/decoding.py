"""Decoders of columns: the base of all, and what they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.arrow.input import BadArrow
from kafkalog._core.values.builder import Builder
from kafkalog._core.values.value_column import ValueColumn
from kafkalog.errors import IllegalArgument
from kafkalog.util.packages import needed

if TYPE_CHECKING:
    import pyarrow

    from kafkalog._core.values.builder import ArrowValues, Field

MOST_BYTES: Final = 1 << 30
"""Default for the memory of the columns that one call of `decode` fills."""
MOST_ITEMS: Final = 1 << 20
"""Default for the items without bytes in one value: a few bytes can claim any number of them."""


class NoJsonValue(IllegalArgument):
    """A sample from which the types of JSON are to follow has no JSON in it."""


class Decoded(NamedTuple):
    """A decoded column.

    `values` has a row for each value: null where that was null, or could not be decoded. `errors` says why for the
    rows that could not, and is null for the others; it is None if no row failed. `failed` is the number of those rows.
    """

    values: pyarrow.Array
    errors: pyarrow.StringArray | None
    failed: int


class ValueDecoder(ABC):
    """A decoder of columns of keys or values. Any number of threads may use it.

    >>> import pyarrow
    >>> from kafkalog import values
    >>> decoder = values.decoder("int32")
    >>> decoder.name, str(decoder.arrow_type), decoder.needs_keys, decoder.settled
    ('int32', 'int32', False, {})
    >>> decoder.decode(pyarrow.array([bytes([0, 0, 0, 7]), b"?"])).errors.to_pylist()
    [None, 'it takes 4 bytes, and there are 1']
    """

    name: str
    needs_keys: bool = False
    """True if `decode` takes the column of keys as a second argument."""

    @property
    @abstractmethod
    def arrow_type(self) -> pyarrow.DataType:
        """Type of the decoded column."""

    @property
    def settled(self) -> dict[str, Any]:
        """Options that give another decoder of this name the same columns, in place of those that led to them.

        IllegalArgument while the columns depend on values that are yet to be seen.
        """
        return {}

    @abstractmethod
    def decode(self, column: pyarrow.Array) -> Decoded:
        """Decode a binary or string column; IllegalArgument for another, or if its columns exceed the memory limit."""

    def only(self, paths: Iterable[Sequence[str]]) -> ValueDecoder:
        """Return a decoder of these fields of the column alone, by the same schemas; itself if it knows no way to.

        Other fields are checked but not kept: a value is an error for each of these decoders, or for none.

        >>> from kafkalog import values
        >>> fields = [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}]
        >>> decoder = values.decoder("avro", schema={"type": "record", "name": "Order", "fields": fields})
        >>> str(decoder.only([("note",)]).arrow_type)
        'struct<note: string>'
        """
        return self

    def _schemas_with(self, names: Sequence[str], subject: str | None) -> Iterator[int]:
        """Yield the ids of a subject's schemas that have a field, the latest first, where they are found in a place.

        Errors are those of the place.
        """
        return iter(())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def import_pyarrow() -> Any:
    """Return pyarrow; MissingPackage if it is not installed."""
    return needed("pyarrow", "decoded columns need pyarrow ({})", "arrow")


def arrow_array(made: ArrowValues) -> pyarrow.Array:
    """Return what a builder made as an array of pyarrow."""
    array: pyarrow.Array = import_pyarrow().array(made)
    return array


def arrow_type(tree: Field) -> pyarrow.DataType:
    """Return the type of the column that a builder makes of a tree."""
    return arrow_array(Builder(tree).values()).type


def value_column(column: Any) -> ValueColumn:
    """Return a column for compiled decoders; IllegalArgument for what is no binary or string column."""
    join = getattr(column, "combine_chunks", None)  # a ChunkedArray of pyarrow
    try:
        return ValueColumn(column if join is None else join())
    except (BadArrow, TypeError) as error:
        hint = error.hint if isinstance(error, BadArrow) else None
        raise IllegalArgument(f"the column cannot be decoded: {error}", hint=hint) from None


def decoded(builder: Builder, rows: int, most_bytes: int) -> Decoded:
    """Return the rows of a builder that has taken all `rows` of a column; IllegalArgument if it stopped before."""
    if builder.stopped == 1:
        raise MemoryError("no memory for the decoded columns")
    if builder.stopped:
        raise IllegalArgument(
            f"the decoded columns of these {rows} rows take more than {most_bytes} bytes",
            hint="decode fewer rows at a time, or give a larger most_bytes",
        )
    if builder.rows != rows:
        raise IllegalArgument(f"the column contradicts itself in row {builder.rows}")
    failed = builder.failed
    errors = builder.errors()
    return Decoded(arrow_array(builder.values()), None if errors is None else arrow_array(errors), failed)

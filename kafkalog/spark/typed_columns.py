"""Decoded keys and values in Spark: their types are settled when a query is planned, for all of its tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow.compute import CastOptions

from kafkalog.dirs.scan import with_decoders
from kafkalog.errors import IllegalArgument
from kafkalog.log.selection import Selection
from kafkalog.log.settled import LogsInTurn, Settled, decoders_of, settled_of
from kafkalog.log.typed_keywords import selection_of
from kafkalog.spark.file_systems import file_system
from kafkalog.spark.partitions import find_partitions
from kafkalog.spark.row_schema import arrow_schema
from kafkalog.values.named import WITH_SCHEMA

if TYPE_CHECKING:
    from kafkalog.spark.options import SourceOptions

DECODED: Final = ("key", "value")
_WIDER: Final = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
}  # fmt: skip


class TypedColumns:
    """The columns of a read of which some are decoded; it is pickled for tasks.

    `schema` has them in Arrow's types that Spark knows, with `key_error` and `value_error` if what does not decode is
    null. `given` are the keywords of a scan, `settled` what settles the decoders' columns.
    """

    def __init__(self, columns: tuple[str, ...], given: Mapping[str, Any], settled: Settled) -> None:
        self.columns = columns
        self.given = dict(given)
        self.settled = settled
        self._made: Selection | None = None
        types = self.selection.schema
        plain = arrow_schema([name for name in columns if name not in settled])
        names = [*columns, *(name for name in types.names if name not in columns)]
        self.schema = pa.schema([
            plain.field(name) if name in plain.names else pa.field(name, fitting(types.field(name).type))
            for name in names
        ])  # fmt: skip

    def __reduce__(self) -> tuple[type[TypedColumns], tuple[Any, ...]]:
        return type(self), (self.columns, self.given, self.settled)

    @property
    def selection(self) -> Selection:
        """The selection of the columns, made at the first use."""
        if self._made is None:
            self._made = selection_of(self.columns, {**self.lenient, **decoders_of(self.settled, self.given)})
        return self._made

    @property
    def lenient(self) -> dict[str, Any]:
        """The keyword of a scan that says what becomes of a key or value that does not decode."""
        return {name: self.given[name] for name in ("on_undecodable",) if name in self.given}

    def fit(self, found: pa.RecordBatch, plain: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
        """Return the wanted columns of a batch of the selection, in Spark's types; `plain` has the others of them.

        Raises pyarrow's ArrowInvalid for times that microseconds cannot express.
        """
        arrays, fields = [], []
        for name in columns:
            if name in plain.schema.names:
                arrays.append(plain.column(plain.schema.get_field_index(name)))
                fields.append(plain.schema.field(name))
                continue
            field = self.schema.field(name)
            column = found.column(found.schema.get_field_index(name))
            if column.type != field.type:
                # numbers and bytes become wider; nanoseconds are cut off, as nothing in Spark has them
                column = column.cast(options=CastOptions(field.type, allow_time_truncate=True))
            arrays.append(column)
            fields.append(field)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def fitting(type: pa.DataType) -> pa.DataType:
    """Return the type that Spark has for a column: the same, or one with room for its values.

    Unsigned numbers become wider ones, times of a day the numbers that they are, times microseconds.

    >>> fitting(pa.struct([("n", pa.uint32()), ("at", pa.list_(pa.timestamp("ns", "UTC")))]))
    StructType(struct<n: int64, at: list<element: timestamp[us, tz=UTC]>>)
    """
    if pa.types.is_struct(type):
        return pa.struct([one.with_type(fitting(one.type)) for one in type])
    if pa.types.is_list(type):
        return pa.list_(pa.field("element", fitting(type.value_type)))
    if pa.types.is_map(type):
        return pa.map_(fitting(type.key_type), fitting(type.item_type))
    if pa.types.is_timestamp(type):
        return pa.timestamp("us", None if type.tz is None else "UTC")
    if pa.types.is_duration(type):
        return pa.duration("us")
    if pa.types.is_fixed_size_binary(type):
        return pa.binary()
    if pa.types.is_time(type):
        return pa.int32() if pa.types.is_time32(type) else pa.int64()
    return _WIDER.get(type, type)


def plan_types(options: SourceOptions, columns: Iterable[str]) -> TypedColumns | None:
    """Return the columns of a read, of which the options decode some; None if they are all bytes.

    Types that no schema gives are those of the first keys or values of all partitions. Raises IllegalArgument for
    decoders that do not fit, for several topics with types of their own, and if there is nothing yet to take the types
    from; as `find_partitions` does; RegistryUnavailable.
    """
    names = tuple(columns)
    given = dict(options.decoding)
    wanted = [root for root in DECODED if root in given and root in names]
    if not wanted:
        return None
    found = find_partitions(options.paths, options.subscription)
    topics = list(dict.fromkeys(one.topic for one in found))
    refuse_other_types(given, topics, wanted)
    topic = topics[0] if topics else ""
    reading = {"isolation": options.isolation, "on_damage": options.on_damage}
    made = with_decoders(topic, LogsInTurn(found.values(), file_system(options)), list(names), {**given, **reading})
    settled = settled_of({root: made[root] for root in wanted if not isinstance(made[root], str)})
    missing = [root for root in wanted if root not in settled]
    if missing:
        raise IllegalArgument(
            f"there is no {missing[0]} yet from which its types follow",
            hint="give a schema, or begin when there are records",
        )
    return TypedColumns(names, given, settled)


def refuse_other_types(given: Mapping[str, str], topics: Collection[str], roots: Iterable[str] = DECODED) -> None:
    """Raise IllegalArgument for several topics if those of one settle the types of the columns `roots`."""
    of_topic = [root for root in roots if root in given and _is_of_topic(root, given)]
    if len(topics) > 1 and of_topic:
        names = ", ".join(sorted(topics)[:5]) + ", …" * (len(topics) > 5)
        raise IllegalArgument(
            f"{of_topic[0]} is given for {len(topics)} topics, which may have types of their own: {names}",
            hint="read one topic at a time, or give a schema",
        )


def _is_of_topic(root: str, given: Mapping[str, str]) -> bool:
    """Return True if the types of a column may be different for another topic."""
    of_schema = "value" if "value" in given else "key"
    has_schema = root == of_schema and ("schema" in given or "subject" in given)
    return given[root] in WITH_SCHEMA and not has_schema

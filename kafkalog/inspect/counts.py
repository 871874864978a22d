"""Counts of records and bytes by a value: `kafkalog stats --by`. They are exact, in bounded memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.inspect.rows import Column, Rows
from kafkalog.inspect.width import escape_bytes
from kafkalog.util.text import human_size, plural

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.storage.damage import Skipped

TOP_VALUES: Final = 20
"""Number of values that have a row, by default."""
MOST_VALUES: Final = 100_000
"""Most different values that are counted; more are an error."""
MOST_BYTES: Final = 64 << 20
"""Most bytes of different values and their counts; more are an error."""
_PENDING_ROWS: Final = 50_000
_SHOWN_BYTES: Final = 1 << 12

Cells = tuple[str | bytes | None, int, int]
"""A row for display: the value, its records and their bytes."""


class ValueCount(NamedTuple):
    """A value (None for null or a missing field), the number of its records, and the bytes of their keys and values."""

    value: Any
    records: int
    bytes: int


class PathCounts(NamedTuple):
    """Counts of the records of a topic by the value of `path`, most records first.

    `top` has the values with most records, `rest` the sum of the other `distinct - len(top)` values. `undecodable` are
    records whose key or value does not decode, with the first `reason`; they are not among `records`. `where` is the
    condition that the records fulfil, and `unfiltered` the number of keys and values that did not decode for it.
    `damage` has the damaged places that were passed over.
    """

    topic: str
    path: str
    where: str | None
    records: int
    bytes: int
    distinct: int
    top: tuple[ValueCount, ...]
    rest: ValueCount
    undecodable: ValueCount
    reason: str | None
    unfiltered: int
    damage: tuple[Skipped, ...]

    @property
    def notes(self) -> list[str]:
        """Lines on the counts as a whole."""
        condition = "" if self.where is None else f" where {self.where}"
        found = [f"{plural(self.records, 'record')}{condition}; {plural(self.distinct, 'different value')}"]
        if self.undecodable.records:
            found.append(f"{plural(self.undecodable.records, 'record')} not decoded, the first one: {self.reason}")
        if self.unfiltered:
            found.append(f"{plural(self.unfiltered, 'key or value')} not decoded for the condition, which is not true")
        if self.damage:
            size = human_size(sum(one.size_bytes for one in self.damage))
            found.append(f"{plural(len(self.damage), 'damaged place')} ({size}) not counted: {self.damage[0].reason}")
        return found

    def cells(self) -> list[Cells]:
        """Return the rows for display: value, records and bytes; then the other values, and those not decoded."""
        found = [(_shown(one.value), one.records, one.bytes) for one in self.top]
        if others := self.distinct - len(self.top):
            found.append((f"({plural(others, 'other value')})", self.rest.records, self.rest.bytes))
        if self.undecodable.records:
            found.append(("(not decoded)", self.undecodable.records, self.undecodable.bytes))
        return found

    @property
    def rows(self) -> Rows[Cells]:
        """Table of the values."""
        total = max(self.records + self.undecodable.records, 1)
        columns = (
            Column("value", lambda one: one[0], "key"),
            Column("records", lambda one: one[1], "number"),
            Column("share", lambda one: one[1] / total, "share"),
            Column("part", lambda one: one[1] / total, "bar"),
            Column("bytes", lambda one: one[2], "size"),
        )
        return Rows(self.cells(), columns, title=f"{self.topic}: {self.path}", notes=self.notes)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for JSON: bytes as escaped text, values without a JSON type as text."""
        return {
            "topic": self.topic, "by": self.path, "where": self.where, "records": self.records, "bytes": self.bytes,
            "distinct": self.distinct, "values": [{**one._asdict(), "value": _plain(one.value)} for one in self.top],
            "rest": {"values": self.distinct - len(self.top), "records": self.rest.records, "bytes": self.rest.bytes},
            "undecodable": {
                "records": self.undecodable.records, "bytes": self.undecodable.bytes, "reason": self.reason,
            },
            "unfiltered": self.unfiltered, "damage": [one._asdict() for one in self.damage],
        }  # fmt: skip


class ValueTally:
    """Sums of records and bytes by value, one batch of columns at a time.

    The sums are Arrow tables: no record is a Python object. IllegalArgument beyond `most_values` different values, or
    `most_bytes` of them.
    """

    def __init__(self, name: str, most_values: int = MOST_VALUES, most_bytes: int = MOST_BYTES) -> None:
        self._name = name
        self._most_values = most_values
        self._most_bytes = most_bytes
        self._sums: list[pyarrow.Table] = []
        self._pending = self._pending_bytes = self._distinct = 0

    def add(self, values: pyarrow.Array, sizes: pyarrow.Array) -> None:
        """Count the rows of a batch, with their bytes."""
        import pyarrow

        if not len(values):
            return
        if pyarrow.types.is_null(values.type):
            values = values.cast(pyarrow.string())
        rows = pyarrow.table({"value": values, "bytes": sizes})
        try:
            found = rows.group_by("value").aggregate([([], "count_all"), ("bytes", "sum")])
        except pyarrow.ArrowNotImplementedError:
            raise IllegalArgument(f"{self._name} is {values.type}, which is not counted by value") from None
        self._sums.append(found.select(["value", "count_all", "bytes_sum"]))
        self._pending += found.num_rows
        self._pending_bytes += found.nbytes
        if self._pending >= max(_PENDING_ROWS, self._distinct) or self._pending_bytes > self._most_bytes:
            self._merge()

    def counts(self, convert: Callable[[Any], tuple[Hashable, Any]] | None = None) -> list[ValueCount]:
        """Return the counts, most records first.

        `convert` returns the identity of a value, and the value to show: values of one identity are one.
        """
        self._merge()
        if not self._sums:
            return []
        columns = [_python_values(column) for column in self._sums[0].columns]
        found = [ValueCount(*row) for row in zip(*columns, strict=True)]
        if convert is not None:
            found = _joined(found, convert)
        return sorted(found, key=lambda one: (-one.records, str(type(one.value)), str(one.value)))

    def _merge(self) -> None:
        import pyarrow

        if self._pending:
            joined = pyarrow.concat_tables(self._sums)
            found = joined.group_by("value").aggregate([("count_all", "sum"), ("bytes_sum", "sum")])
            found = found.select(["value", "count_all_sum", "bytes_sum_sum"])
            self._sums = [found.rename_columns(["value", "count_all", "bytes_sum"])]
            self._distinct, self._pending, self._pending_bytes = found.num_rows, 0, 0
            self._check(found)

    def _check(self, found: pyarrow.Table) -> None:
        limit = ""
        if found.num_rows > self._most_values:
            limit = f"has more than {self._most_values:,} different values"
        elif found.nbytes > self._most_bytes:
            limit = f"has more than {human_size(self._most_bytes)} of different values"
        if limit:
            raise IllegalArgument(
                f"{self._name} {limit}",
                hint="give a path with fewer values, narrow the condition (--where), or use `kafkalog sql`",
            )


def _python_values(column: pyarrow.ChunkedArray) -> list[Any]:
    """Return the values of a column; numbers for times that Python's calendar does not have."""
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        found = column.cast("int32" if column.type == "date32" else "int64").to_pylist()
    return found


def _joined(found: list[ValueCount], convert: Callable[[Any], tuple[Hashable, Any]]) -> list[ValueCount]:
    joined: dict[Hashable, ValueCount] = {}
    for one in found:
        identity, value = convert(one.value)
        before = joined.get(identity, ValueCount(value, 0, 0))
        joined[identity] = ValueCount(before.value, before.records + one.records, before.bytes + one.bytes)
    return list(joined.values())


def json_value(text: str | None) -> tuple[Hashable, Any]:
    r"""Return the identity of a JSON text and its value; an object or a list stays text.

    Two texts of one value have one identity: other escapes in a string, another notation of a number, another order of
    names.

    >>> json_value('"Z\\u00fcrich"')[1], json_value("1.0")[0] == json_value("1")[0], json_value('{"b":1,"a":2}')[1]
    ('Zürich', True, '{"a":2,"b":1}')
    """
    if text is None:
        return ("null",), None
    try:
        exact = json.loads(text, parse_int=Decimal, parse_float=Decimal)
        if isinstance(exact, Decimal):
            return ("number", exact), _number(exact)
        if isinstance(exact, str | bool):
            return (type(exact).__name__, exact), exact
        plain = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError, ArithmeticError):  # beyond what Python's parser takes
        plain = text
    return ("text", plain), plain


def _number(exact: Decimal) -> int | float:
    number = float(exact)
    is_small = exact.adjusted() <= 18 if exact else True
    return int(exact) if is_small and exact == exact.to_integral_value() else number


def _shown(value: Any) -> str | bytes | None:
    if value is None or isinstance(value, str | bytes):
        return value
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return escape_bytes(value, _SHOWN_BYTES)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

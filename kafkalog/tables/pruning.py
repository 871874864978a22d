"""Bounds of partition, offset and time that follow from a filter, so that a query reads only what it can match.

The filter is a pyarrow Expression, which shows nothing of its inside. So Arrow is asked: "can a row with an offset
below 1000 match?" It simplifies the filter with that guarantee, as it does to skip the files of a data set, and answers
no only where it is certain. Bisection over such questions finds the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow

LATEST_MS: Final = 1 << 43
"""Times above this one (in the year 2248) are not used for bounds."""
LATEST_OFFSET: Final = (1 << 63) - 1
SINGLE_PARTITIONS: Final = 64
"""Up to so many partitions get bounds of their own; more of them share theirs."""


class Limits(NamedTuple):
    """Offsets in [first, stop) and times in [since, until), in ms, that a row can have; None is no bound."""

    first: int = 0
    stop: int = LATEST_OFFSET
    since: int | None = None
    until: int | None = None


ALL: Final = Limits()


def mentioned(filter: pyarrow.compute.Expression | None, names: Iterable[str]) -> list[str]:
    """Return the columns that a filter may use: those whose names occur in its text.

    >>> import pyarrow.compute
    >>> mentioned(pyarrow.compute.field("offset") > 5, ["key", "offset"])
    ['offset']
    """
    text = "" if filter is None else str(filter)
    return [name for name in names if name in text]


def limits_of(
    filter: pyarrow.compute.Expression | None, schema: pyarrow.Schema, topic: str, partitions: Iterable[int]
) -> dict[int, Limits]:
    """Return the limits of the partitions that can have rows which match; a partition that cannot is left out.

    >>> import pyarrow
    >>> from pyarrow.compute import field
    >>> schema = pyarrow.schema([("partition", pyarrow.int32()), ("offset", pyarrow.int64())])
    >>> limits_of((field("partition") == 1) & (field("offset") >= 5), schema, "orders", range(3))
    {1: Limits(first=5, stop=9223372036854775807, since=None, until=None)}
    """
    if filter is None:
        return dict.fromkeys(partitions, ALL)
    asked = _Asked(filter, schema)
    named = asked.equals("topic", topic)
    found = [number for number in partitions if asked.may_match(named, asked.equals("partition", number))]
    if "partition" in asked.used and len(found) <= SINGLE_PARTITIONS:
        return {number: asked.limits(asked.equals("partition", number)) for number in found}
    return dict.fromkeys(found, asked.limits() if found else ALL)


class _Asked:
    """A filter of which it can be asked whether rows with some guarantee can match."""

    def __init__(self, filter: pyarrow.compute.Expression, schema: pyarrow.Schema) -> None:
        import pyarrow
        import pyarrow.compute
        from pyarrow.dataset import FileSystemDataset, IpcFileFormat
        from pyarrow.fs import LocalFileSystem

        self._pa = pyarrow
        self._filter = filter
        self._schema = schema
        self._dataset = FileSystemDataset
        self._format = IpcFileFormat()
        self._files = LocalFileSystem()
        self.used = mentioned(filter, schema.names)

    def equals(self, name: str, value: object) -> Any:
        """Return the guarantee that a column has this value; None if the filter does not use it."""
        if name not in self.used:
            return None
        scalar = self._pa.scalar(value, self._schema.field(name).type)
        return self._pa.compute.field(name) == scalar

    def may_match(self, *guarantees: Any) -> bool:
        """Return False if no row for which all guarantees hold can match; a guarantee None says nothing."""
        given = [one for one in guarantees if one is not None]
        if not given:
            return True
        guarantee = given[0]
        for one in given[1:]:
            guarantee = guarantee & one
        # no file is opened: only the guarantee of this one is compared with the filter
        fragment = self._format.make_fragment("-", filesystem=self._files, partition_expression=guarantee)
        dataset = self._dataset([fragment], self._schema, self._format)
        try:
            return any(True for _ in dataset.get_fragments(filter=self._filter))
        except self._pa.ArrowException:  # a filter that Arrow cannot apply fails where the rows are filtered
            return True

    def limits(self, *guarantees: Any) -> Limits:
        """Return the limits of the rows for which the guarantees hold."""
        first, stop, since, until = ALL
        if "offset" in self.used:
            first, stop = self._range("offset", LATEST_OFFSET, guarantees)
        if "timestamp" in self.used:
            low, high = self._range("timestamp", LATEST_MS, guarantees)
            since = low if low > 0 else None
            until = high if high < LATEST_MS else None
        return Limits(first, stop, since, until)

    def _range(self, name: str, most: int, guarantees: Iterable[Any]) -> tuple[int, int]:
        """Return [low, high) in which the values of matching rows lie; 0 and `most` where there is no bound."""
        column = self._pa.compute.field(name)
        kind = self._schema.field(name).type

        def below(value: int) -> bool:
            return self.may_match(*guarantees, column < self._pa.scalar(value, kind))

        def at_least(value: int) -> bool:
            return self.may_match(*guarantees, column >= self._pa.scalar(value, kind))

        low = 0 if below(0) else _last_without(below, most)
        high = most if at_least(most) else most - _last_without(lambda back: at_least(most - back), most)
        return low, high


def _last_without(may_match: Callable[[int], bool], most: int) -> int:
    """Return a number in [0, most] for which nothing can match, as large as bisection finds it."""
    low, high = 0, most
    while low < high:
        middle = high - (high - low) // 2
        if may_match(middle):
            high = middle - 1
        else:
            low = middle
    return low


def columns_to_read(
    columns: Iterable[str], filter: pyarrow.compute.Expression | None, known: list[str]
) -> Iterator[str]:
    """Yield the columns that a query with this filter needs, in the order of `known`."""
    needed = {*columns, *mentioned(filter, known)}
    yield from (name for name in known if name in needed)

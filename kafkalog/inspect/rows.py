"""Rows: a tuple of items displayed as a table, aligned in a terminal and as HTML in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, SupportsIndex, TypeVar, overload

from kafkalog.errors import IllegalArgument
from kafkalog.inspect.values import Kind
from kafkalog.util.text import plural

T = TypeVar("T", covariant=True)
SHOWN_ROWS: Final = 40
"""Rows in a repr, half from the start and half from the end."""


class Column(NamedTuple):
    """A column: its name, the function that gets its value from a row, and its format (`values.Kind`)."""

    name: str
    get: Callable[[Any], Any]
    kind: Kind = "text"


class Rows(tuple[T, ...], Generic[T]):
    """A tuple of items displayed as a table: `repr` aligns it for the terminal's width, a notebook shows HTML.

    `rows[n]` is an item, `rows[a:b]` fewer rows, `rows["name"]` one column as a list. `text(width)` and `html()` return
    the whole table. Displaying reads nothing: the values are those at creation. Immutable, so any thread may use it.

    >>> name, size = Column("topic", lambda row: row[0]), Column("size", lambda row: row[1], "size")
    >>> rows = Rows([("orders", 12), ("日本", 4096)], (name, size))
    >>> rows
    TOPIC      SIZE
    orders     12 B
    日本    4.0 KiB
    >>> rows["size"], rows[1][0]
    ([12, 4096], '日本')
    """

    columns: tuple[Column, ...]
    title: str
    notes: tuple[str, ...]

    def __new__(
        cls, things: Iterable[T], columns: Iterable[Column], *, title: str = "", notes: Iterable[str] = ()
    ) -> Rows[T]:
        """Create the table of `things`; `notes` are lines below it."""
        rows = super().__new__(cls, things)
        rows.columns = tuple(columns)
        rows.title = title
        rows.notes = tuple(notes)
        return rows

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def cells(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of values, in the order of the columns."""
        return [tuple(column.get(thing) for column in self.columns) for thing in self]

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of values by column name."""
        return [dict(zip(self.names, row, strict=True)) for row in self.cells()]

    @overload
    def __getitem__(self, key: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> Rows[T]: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> T | Rows[T] | list[Any]:
        if isinstance(key, str):
            for column in self.columns:
                if column.name == key:
                    return [column.get(thing) for thing in self]
            raise IllegalArgument(f"there is no column {key!r}", hint=f"the columns are {', '.join(self.names)}")
        if isinstance(key, slice):
            return Rows(super().__getitem__(key), self.columns, title=self.title)
        return super().__getitem__(key)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.names)

    def text(self, width: int | None = None, *, most: int | None = None, ascii_only: bool | None = None) -> str:
        """Return the table as lines of at most `width` columns, with title and notes.

        `width` None means the terminal's width or COLUMNS, and no limit if stdout is a file or a pipe. If the columns
        are too wide, names are cut; if that is not enough, the columns are split over several tables, each beginning
        with the first column. With `most`, rows in the middle are replaced by a line with their number. `ascii_only`
        draws with ASCII and escapes all else; None decides by stdout's encoding.
        """
        from kafkalog.inspect.text import lines

        return "\n".join(lines(self, width, most=most, ascii_only=ascii_only))

    def html(self) -> str:
        """Return the table as HTML, for light and dark pages; all text in it is escaped."""
        from kafkalog.inspect.html import table

        return table(self)

    def __repr__(self) -> str:
        return self.text(most=SHOWN_ROWS)

    def _repr_html_(self) -> str:
        from kafkalog.inspect.html import fragment

        return fragment([self], most=10 * SHOWN_ROWS)

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (tuple(self),)

    def left_out(self, most: int | None) -> tuple[tuple[T, ...], tuple[T, ...], str]:
        """Return the first and last rows if there are more than `most`, and a line on those between; else all rows."""
        if most is None or len(self) <= most:
            return tuple(self), (), ""
        head, tail = most - most // 2, most // 2
        return tuple(self)[:head], tuple(self)[len(self) - tail :], f"... {plural(len(self) - most, 'more row')} ..."

"""A topic as a pyarrow data set, the form in which DuckDB hands over the columns and the filter of a query."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

    from kafkalog.tables.topic_table import TopicTable


def dataset_of(table: TopicTable, owner: object = None) -> pyarrow.dataset.Dataset:
    """Return a data set that reads `table`; `to_table`, `to_batches`, `head` and `count_rows` work as for others.

    It and its readers keep `owner` alive, which may close what the table reads when nothing refers to it.
    """
    made: pyarrow.dataset.Dataset = _dataset_class()(table, owner)
    return made


def _owned(batches: Iterator[pyarrow.RecordBatch], owner: object) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches; a generator refers to its arguments until its end."""
    yield from batches


class TopicScanner:
    """The rows of one query, read once and in the thread that asks for them.

    pyarrow's own scanner would read ahead in its threads, also behind a LIMIT and while the interpreter ends.
    """

    def __init__(self, schema: pyarrow.Schema, batches: Iterator[pyarrow.RecordBatch]) -> None:
        self.projected_schema = self.dataset_schema = schema
        self._batches = batches

    def to_batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield the record batches."""
        return self._batches

    def to_reader(self) -> pyarrow.RecordBatchReader:
        """Return a reader of the record batches."""
        import pyarrow

        return pyarrow.RecordBatchReader.from_batches(self.projected_schema, self._batches)

    def to_table(self) -> pyarrow.Table:
        """Return all rows in memory."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pyarrow.Table:
        """Return the first rows."""
        import pyarrow

        found: list[pyarrow.RecordBatch] = []
        left = num_rows
        for batch in self._batches:
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
            if left <= 0:
                break
        return pyarrow.Table.from_batches(found, self.projected_schema)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return sum(batch.num_rows for batch in self._batches)


@cache
def _dataset_class() -> Any:
    """Return the class of these data sets, made at the first use since pyarrow is imported late."""
    import pyarrow
    import pyarrow.dataset

    class TopicDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]
        """A topic as a data set."""

        def __init__(self, table: TopicTable, owner: object) -> None:
            self._table = table
            self._owner = owner

        @property
        def schema(self) -> pyarrow.Schema:
            return self._table.schema

        def scanner(self, columns: Any = None, filter: Any = None, **options: object) -> Any:
            """Return the rows that match `filter`, read on use; options on memory and threads have no effect."""
            schema, batches = self._table.batches(columns, filter)
            return TopicScanner(schema, _owned(batches, self._owner))

        def __reduce__(self) -> NoReturn:
            raise TypeError("a topic of open directories cannot be pickled")

        def __repr__(self) -> str:
            return f"<TopicDataset {self._table.topic}>"

    return TopicDataset

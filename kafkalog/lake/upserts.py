"""Upserts: the latest record of each key of some rows, and the files of a table without the rows of those keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.lake.table import LiveFile

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.lake.files import TableFiles
    from kafkalog.lake.rows import Piece
    from kafkalog.lake.table import LakeTable

KEY: Final = "key"
PARTITION: Final = "partition"
_LATER: Final = "__kafkalog_is_tombstone"


class Latest:
    """The latest record of each key of the added pieces, by partition. `nbytes` is their approximate memory."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[pyarrow.Table]] = {}
        self.nbytes = 0
        self.rows = 0

    def add(self, piece: Piece, rows: pyarrow.RecordBatch) -> None:
        """Add the rows of a piece, as the table has them; raise InvalidRecord for a record without a key."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = piece.raw.column(KEY)
        if keys.null_count:
            at = pc.index(keys.is_null(), True).as_py()
            raise InvalidRecord(
                "the record has no key, so it replaces nothing", offset=piece.raw.column("offset")[at].as_py(),
                hint="sync the topic without upsert",
            )  # fmt: skip
        if rows.column(KEY).null_count:
            at = pc.index(rows.column(KEY).is_null(), True).as_py()
            raise InvalidRecord(
                "the key does not decode, so it identifies nothing", offset=piece.raw.column("offset")[at].as_py(),
                hint="leave keys as bytes",
            )  # fmt: skip
        marked = rows.append_column(_LATER, piece.raw.column("value").is_null())
        found = self._pieces.setdefault(piece.partition, [])
        found.append(_last_of_each(pa.Table.from_batches([marked])))
        self.rows += rows.num_rows
        self.nbytes += found[-1].nbytes

    def latest(self) -> Mapping[int, pyarrow.Table]:
        """Return the latest row of each key by partition, with a mark of tombstones as the last column."""
        import pyarrow as pa

        return {number: _last_of_each(pa.concat_tables(pieces)) for number, pieces in self._pieces.items()}

    def keys(self) -> dict[int, pyarrow.ChunkedArray]:
        """Return the keys by partition."""
        return {number: rows.column(KEY) for number, rows in self.latest().items()}

    def kept(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield the latest rows except tombstones, by partition and offset."""
        import pyarrow.compute as pc

        for rows in self.latest().values():
            is_kept = pc.invert(rows.column(_LATER))
            yield from rows.filter(is_kept).drop_columns([_LATER]).combine_chunks().to_batches()


def _last_of_each(rows: pyarrow.Table) -> pyarrow.Table:
    """Return the last row of each key, in the order of the rows.

    No step combines the chunks of a column, which may exceed the 2 GiB of one array.
    """
    import numpy as np
    import pyarrow as pa

    chunks = rows.column(KEY).dictionary_encode().unify_dictionaries().chunks
    if len(chunks[-1].dictionary) == rows.num_rows:
        return rows
    last = np.zeros(len(chunks[-1].dictionary), np.int64)
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
    np.maximum.at(last, codes, np.arange(rows.num_rows))
    is_last = np.zeros(rows.num_rows, bool)
    is_last[last] = True
    return rows.filter(pa.array(is_last))


def check_identity(schema: pyarrow.Schema, project: object = None) -> None:
    """Raise IllegalArgument for columns that cannot identify rows: without key and partition, or with a nested key.

    A projection may compute the key, but not the partition.
    """
    import pyarrow as pa

    if isinstance(project, Mapping) and project.get(PARTITION, PARTITION) != PARTITION:
        raise IllegalArgument(
            f"an upsert needs the partition in its column, which has {project[PARTITION]}",
            hint="a row is replaced by partition and key: give the field another name",
        )

    missing = [name for name in (KEY, PARTITION) if name not in schema.names]
    if missing:
        raise IllegalArgument(
            f"an upsert needs the column {missing[0]}", hint="a row is replaced by partition and key: project both"
        )
    kind = schema.field(KEY).type
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        raise IllegalArgument(f"an upsert cannot compare keys of {kind}", hint="leave keys as bytes")


def rewrite_files(table: LakeTable, keys: Mapping[int, pyarrow.ChunkedArray], files: TableFiles) -> list[LiveFile]:
    """Rewrite the files that have some of `keys` without those rows, and return the old files."""
    replaced = []
    for live in table.live_files():
        if not any(_matches(batch, keys).true_count for batch in table.read_file(live, [KEY, PARTITION])):
            continue
        for batch in table.read_file(live):
            files.add(batch.filter(_inverted(_matches(batch, keys))))
        replaced.append(live)
    return replaced


def _inverted(mask: pyarrow.BooleanArray) -> pyarrow.BooleanArray:
    import pyarrow.compute as pc

    return pc.invert(mask)


def _matches(batch: pyarrow.RecordBatch, keys: Mapping[int, pyarrow.ChunkedArray]) -> pyarrow.BooleanArray:
    """Return a mask of the rows that have one of the keys of their partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    partitions, column = batch.column(PARTITION), batch.column(KEY)
    found = pa.repeat(False, batch.num_rows)
    for number, wanted in keys.items():
        of_partition = pc.fill_null(pc.equal(partitions, number), False)
        if of_partition.true_count:
            found = pc.or_(found, pc.and_(of_partition, pc.is_in(column, value_set=wanted)))
    return found


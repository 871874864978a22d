"""TypedScan: columns of a log as a predicate, decoders and a projection leave them, read on use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError
from kafkalog.log.pruning import PrunedScan
from kafkalog.log.scan import ArrowScan, LogScan
from kafkalog.log.selection import Selection
from kafkalog.log.typed_keywords import selection_of

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.log.log import Log

SAMPLE_ROWS: Final = 1000
SAMPLE_BYTES: Final = 16 << 20
"""Values that tell the types that no schema tells, and their bytes, but for those of one piece of a scan."""


def typed_scan(
    log: Log,
    start: int,
    stop: int,
    columns: Iterable[str] | None,
    typed: Mapping[str, Any],
    options: Mapping[str, Any],
) -> TypedScan:
    """Return the typed scan of [start, stop) of a log for its typed keywords and the options of a `LogScan`."""
    reading = {name: options[name] for name in ("isolation", "on_damage") if name in options}

    def sample(root: str) -> list[bytes]:
        return first_values([LogScan(log, start, stop, [root], batch_rows=SAMPLE_ROWS, **reading)], root)

    selection = selection_of(columns, typed, sample, log.topic)
    if selection.expression is None:
        return TypedScan(LogScan(log, start, stop, selection.columns, **options), selection)
    scan = PrunedScan(log, start, stop, selection.columns, selection.bounds, selection.keys, **options)
    return TypedScan(scan, selection)


def first_values(scans: Iterable[LogScan], root: str) -> list[bytes]:
    """Return the first keys or values of scans that are not null; the typed scan itself meets damage behind them."""
    found: list[bytes] = []
    size = 0
    for scan in scans:
        try:
            for piece in scan:
                some = [one for one in piece[root] if one is not None]
                found += some
                size += sum(map(len, some))
                if len(found) >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
                    return found[:SAMPLE_ROWS]
        except KafkalogError:
            continue
    return found


class TypedScan(ArrowScan):
    """The records of a scan that pass a predicate, as typed columns, read on use; `log.scan` returns it.

    It has the interface of a `LogScan`: iteration yields record batches, here those of pyarrow, and DuckDB, Polars and
    pyarrow read it in bounded memory, any number of times. `undecodable` is the number of keys and values that did not
    decode, in the reading that began last.

    >>> scan = log.scan(where="key == 'u-1'", project=["offset", "size"])
    >>> scan
    <TypedScan orders-0 [0, 2): offset, size where key == 'u-1'>
    >>> scan.table().to_pydict(), scan.columns, scan.undecodable
    ({'offset': [0], 'size': [5]}, ('offset', 'size'), 0)
    >>> scan.schema.field("size").type, scan.start, scan.stop, scan.scan
    (DataType(int32), 0, 2, <LogScan orders-0 [0, 2): key, value, offset>)
    >>> scan.to_pandas()["offset"].tolist(), scan.to_polars()["size"].to_list(), scan.selection.expression
    ([0], [5], <Expression key == 'u-1'>)
    """

    __slots__ = ("scan", "selection")

    def __init__(self, scan: LogScan, selection: Selection) -> None:
        self.scan = scan
        self.selection = selection

    @property
    def start(self) -> int:
        """First offset that is read."""
        return self.scan.start

    @property
    def stop(self) -> int:
        """Offset before which reading ends."""
        return self.scan.stop

    @property
    def schema(self) -> pyarrow.Schema:
        """Schema of the record batches."""
        return self.selection.schema

    @property
    def undecodable(self) -> int:
        """Number of keys and values that did not decode, in the reading that began last."""
        return self.selection.undecodable

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        selection = self.selection
        selection.undecodable = 0
        for piece in self.scan.as_now().with_values_of(selection.keys_of_values):
            batch = selection.batch(pyarrow.record_batch(piece))
            if batch.num_rows:
                yield batch

    def __repr__(self) -> str:
        scan = self.scan
        where = "" if self.selection.expression is None else f" where {self.selection.expression}"
        return f"<TypedScan {scan.log.name} [{scan.start}, {scan.stop}): {', '.join(self.columns)}{where}>"

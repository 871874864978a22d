"""JSON lines of decoded records: those of `kafkalog consume -J`, with keys and values as JSON in place of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from kafkalog.log.typed_scan import typed_scan
from kafkalog.records.json_text import json_text
from kafkalog.tools.consume.decoded import Serdes, render
from kafkalog.tools.consume.templates import json_lines
from kafkalog.util.python_rows import python_rows

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.exchange.planning import ExportTask
    from kafkalog.log.log import Log

COLUMNS: Final = ("key", "value", "headers", "timestamp", "timestampType", "offset")
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 1 << 20
"""Most records, and most bytes of them, of which there are Python objects at once."""


class Lines(NamedTuple):
    """Lines of `records` records with offsets from `first` to `last`, and what writes them to a file."""

    first: int
    last: int
    records: int
    write: Callable[[BinaryIO], object]


class _Row(NamedTuple):
    """A record as the writer of JSON lines takes one; a decoded key or value that is not null is b""."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def typed_lines(log: Log, task: ExportTask, options: Mapping[str, Any]) -> Iterator[Lines]:
    """Yield the lines of a task's records, with `key_error` and `value_error` where one does not decode.

    Raises as a typed scan does; InvalidRecord for a time that has no text.
    """
    part = task.range
    pieces = json_lines(topic=part.topic, partition=part.partition)
    typed = {"where": task.settings.where, **task.typed}
    scan = typed_scan(
        log, part.start, part.stop, COLUMNS, typed, {**options, "batch_rows": BATCH_ROWS, "batch_bytes": BATCH_BYTES}
    )
    for batch in scan:
        offsets = batch.column("offset")
        text = b"".join(_line(row, typed, pieces, log.path) for row in _rows(batch))
        yield Lines(offsets[0].as_py(), offsets[-1].as_py(), batch.num_rows, _writer(text))
    task.not_decoded.append(scan.undecodable)


def _writer(text: bytes) -> Callable[[BinaryIO], object]:
    return lambda out: out.write(text)


def _rows(batch: pyarrow.RecordBatch) -> Iterator[dict[str, Any]]:
    """Return the rows as Python objects, maps as dicts."""
    import pyarrow

    at = batch.schema.get_field_index("timestamp")
    batch = batch.set_column(at, "timestamp", batch.column(at).cast(pyarrow.int64()))
    return python_rows(batch, hint="export Parquet, which has any time", maps_as_dicts=True)


def _line(row: dict[str, Any], typed: Mapping[str, Any], pieces: Any, path: str) -> bytes:
    key, value = row["key"], row["value"]
    has_key, has_value = typed.get("key") is not None, typed.get("value") is not None
    record = _Row(
        row["offset"], row["timestamp"], row["timestampType"], b"" if has_key and key is not None else key,
        b"" if has_value and value is not None else value, [(one["key"], one["value"]) for one in row["headers"]],
    )  # fmt: skip
    serdes = Serdes((lambda _: key) if has_key else None, (lambda _: value) if has_value else None)
    line = render(record, pieces, serdes, path)  # type: ignore[arg-type]  # it has what is asked of a record
    errors = {name: row[name] for name in ("key_error", "value_error") if row.get(name) is not None}
    if not errors:
        return line
    return line[:-2] + f",{json_text(errors)[1:]}\n".encode(errors="replace")

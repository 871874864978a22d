"""`kafkalog consume --where` and `--project`: only the records that match, or only the wanted fields of them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from kafkalog.cli import common
from kafkalog.cli.decoder_options import keywords_for
from kafkalog.util.times import datetime_text

if TYPE_CHECKING:
    from kafkalog.cli.decoder_options import DecoderGiven
    from kafkalog.log.log import Log
    from kafkalog.log.typed_scan import TypedScan
    from kafkalog.storage.damage import Skipped
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.tools.consume.decoded import Serdes
    from kafkalog.tools.consume.templates import Pieces
    from kafkalog.tools.consume.text import Written

_OFFSET: Final = ""
"""Name of a column of offsets beside the wanted fields."""
_FIELD: Final = re.compile(r'(?:"(?:[^"]|"")*"|[^",])+')


def split_fields(text: str) -> list[str]:
    """Return the fields of a comma-separated list; a name in double quotes may contain commas.

    >>> split_fields('offset, value."a,b"')
    ['offset', 'value."a,b"']
    """
    return [one.strip() for one in _FIELD.findall(text)]


class Filter:
    """The condition and the projection of one run of the command.

    Keys and values that the condition or the projection looks into are decoded as `-s` says. What does not decode is
    null, and counted in `undecodable`.
    """

    def __init__(self, where: str | None, project: str | None, given: DecoderGiven) -> None:
        from kafkalog.where import parse, parse_field

        with common.usage_of("--where"):
            self.expression = None if where is None else parse(where)
        with common.usage_of("--project"):
            self.project = None if project is None else split_fields(project)
            fields = [] if self.project is None else [parse_field(one) for one in self.project]
        roots = set() if self.expression is None else set(self.expression.typed_roots)
        self.typed = keywords_for(roots | {one.root for one in fields}, given)
        self.undecodable = 0
        self._logs: dict[str, Log] = {}  # an unreferenced log closes its files

    def write(
        self,
        view: LogView,
        out: BinaryIO,
        pieces: Pieces,
        serdes: Serdes | None,
        *,
        first_offset: int,
        end_offset: int,
        max_records: int,
        isolation: str | None,
        skipped: list[Skipped] | None,
        tell: Callable[[int, int], None],
    ) -> Written:
        """Write the matching records with offsets in [first_offset, end_offset), as `write_records` does."""
        from kafkalog.log.log import Log
        from kafkalog.log.typed_scan import typed_scan
        from kafkalog.tools.consume.text import Written

        if max_records == 0 or first_offset >= end_offset:
            return Written(0, first_offset)
        options = {
            "isolation": isolation, "skipped": skipped, "on_damage": "raise" if skipped is None else "skip",
        }  # fmt: skip
        typed = {**self.typed, "where": self.expression}
        if (log := self._logs.get(view.path)) is None:
            log = self._logs[view.path] = Log(view, None)
        if self.project is not None:
            typed["project"] = {**{one: one for one in self.project}, _OFFSET: "offset"}
            scan = typed_scan(log, first_offset, end_offset, None, typed, options)
            written = _write_fields(scan, self.project, out, max_records)
        else:
            scan = typed_scan(log, first_offset, end_offset, ["offset"], typed, options)
            written = _write_rows(scan, out, pieces, serdes, max_records, tell)
        self.undecodable += scan.undecodable
        return written if written.next_offset else Written(written.records, end_offset)


def _write_rows(
    scan: TypedScan,
    out: BinaryIO,
    pieces: Pieces,
    serdes: Serdes | None,
    max_records: int,
    tell: Callable[[int, int], None],
) -> Written:
    """Write the records of a scan of offsets; `next_offset` is 0 unless `max_records` ended it."""
    from kafkalog.log.matching import matching_rows
    from kafkalog.tools.consume.text import Written, write_rows

    count, end = 0, 0
    for found in matching_rows(scan, tell):
        left = len(found.rows) if max_records < 0 else max_records - count
        found = found._replace(rows=found.rows[:left])
        if serdes is None:
            write_rows(found.table, found.rows, out, pieces)
        else:
            from kafkalog.tools.consume.decoded import render

            out.write(b"".join(render(found.table[row], pieces, serdes, found.path) for row in found.rows))
        count += len(found.rows)
        if count == max_records:
            end = found.table.offsets[found.rows[-1]] + 1
            break
    return Written(count, end)


def _write_fields(scan: TypedScan, fields: list[str], out: BinaryIO, max_records: int) -> Written:
    """Write the rows as JSON objects, one a line."""
    from kafkalog.records.json_text import json_text
    from kafkalog.tools.consume.text import Written
    from kafkalog.util.python_rows import python_rows

    count, end = 0, 0
    for batch in scan:
        if max_records >= 0:
            batch = batch.slice(0, max_records - count)
        hint = "export Parquet, which has any time"
        for row in python_rows(batch, hint=hint, offset=_OFFSET, maps_as_dicts=True):
            out.write(json_text({name: _as_json(row[name]) for name in fields}).encode(errors="replace") + b"\n")
        count += batch.num_rows
        if count == max_records:
            end = row[_OFFSET] + 1
            break
    return Written(count, end)


def _as_json(value: Any) -> Any:
    """Return a value as JSON has it: bytes as text, in base64 if they are not UTF-8; times in ISO-8601."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(name): _as_json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(one) for one in value]
    if isinstance(value, datetime):
        return datetime_text(value)
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def check_formats(given: Mapping[str, Any]) -> None:
    """Raise UsageError for options of the output that do not go with --project."""
    if given["project"] is not None and (given["fmt"] is not None or given["as_json"] or given["key_delimiter"]):
        raise click.UsageError("--project prints JSON objects of its own: omit -f, -J and -K")

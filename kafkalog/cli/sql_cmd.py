"""`kafkalog sql`: a query over topics, by DuckDB."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Unpack

import click

from kafkalog.cli import common
from kafkalog.cli.decoder_options import COLUMN_DECODERS, DecoderGiven, schema_options, serdes_option, typed_keywords
from kafkalog.util.times import datetime_text

if TYPE_CHECKING:
    import duckdb

    from kafkalog.dirs.log_dirs import LogDirs
    from kafkalog.tables.topics import TopicTables

    class _Given(DecoderGiven):
        """Values of the options."""

        query: str
        dirs: tuple[str, ...]
        topics: tuple[str, ...]
        as_json: bool
        as_csv: bool
        group: str | None
        commit: bool
        cursors: str | None
        lateness_ms: int | None
        time_ranges: str | None
        isolation_level: str | None
        on_damage: str
        tiered: str | None


PAGE_ROWS: Final = 10_000
_DOTTED: Final = "a topic's name with dots or dashes is written in double quotes, such as {}"
_BARE_OFFSET: Final = re.compile(r"(?<![\w\"])offset(?![\w\"])", re.IGNORECASE)
_QUOTED: Final = re.compile(r'[,"\r\n]')
_Row = tuple[Any, ...]


@click.command("sql")
@click.argument("query", metavar="SQL")
@common.dir_option
@common.topics_option
@common.json_option("Print one JSON object for each row.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values with a line of names.")
@common.group_option("Only records after the positions stored under NAME (see --commit).")
@click.option("--commit", is_flag=True, help="With -G: store where the queried topics ended, once all is printed.")
@common.cursors_option
@click.option(
    "--lateness-ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="No record is older by more than MS than one before it in its partition: reading stops at an upper bound of "
    "time. Default: records of any age are expected.",
)
@click.option(
    "--time-ranges",
    metavar="DIR",
    help="Keep the times of segments in this directory: the next query with an upper bound of time reads only the "
    "parts that it may match. Not a data directory; it is created.",
)
@serdes_option(
    "With -t: decode keys and values to typed columns: key=NAME or value=NAME; NAME is "
    f"{COLUMN_DECODERS}. What does not decode is null, and value_error says why."
)
@schema_options
@common.isolation_option
@common.on_damage_option
@common.tiered_option
@common.quiet_options
def command(**given: Unpack[_Given]) -> int:
    """Run one query over the topics of data directories, each a table of its name; `-` reads it from stdin.

    The columns are key, value, topic, partition, offset, timestamp, timestampType and headers. Keys and values are
    bytes: `decode(value)` is text, `decode(value)::JSON` a document. `offset` is a word of SQL and needs double quotes,
    as do topics with dots and dashes. Times are in UTC. A query reads only the columns, partitions, offsets and times
    that it needs. The command takes no lock and changes nothing; a broker may be running.

    Example: kafkalog sql -d data 'SELECT partition, count(*), max("offset") FROM orders GROUP BY ALL'

    Example: kafkalog sql -d data -t orders -s value=json 'SELECT sum(value.cents) FROM orders'

    Exit status: 0 all was printed, 1 damage, or the query failed (also with --on-damage skip), 2 wrong usage, or SQL
    that is not valid.
    """
    isolation = common.isolation_level(given["isolation_level"])
    if given["as_json"] and given["as_csv"]:
        raise click.UsageError("-J and --csv are two formats: give only one")
    if given["commit"] and given["group"] is None:
        raise click.UsageError("--commit stores positions under a name: give -G NAME")
    typed = typed_keywords(given["serdes"], given["schemas"], given["schema"], given["message"])
    if typed and not given["topics"]:
        raise click.UsageError("-s decodes the topics of -t: give -t TOPIC")
    query = given["query"]
    if query == "-":
        query = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    from kafkalog.duckdb import register

    duckdb = _duckdb()
    skipped: list[Any] = []
    damage: dict[str, Any] = {"on_damage": "skip", "skipped": skipped} if given["on_damage"] == "skip" else {}
    cursors = None if given["group"] is None else given["cursors"]
    dirs = common.need_dirs(given["dirs"])
    with _opened(dirs, given["tiered"]) as opened, duckdb.connect(
        config={"autoinstall_known_extensions": False}
    ) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        with register(
            connection, opened, given["topics"] or None, cursor=given["group"], cursors=cursors,
            lateness_ms=given["lateness_ms"], time_ranges=given["time_ranges"], isolation=isolation, **damage,
            **typed,
        ) as tables:  # fmt: skip
            _run(connection, query, tables, _printer(given))
            if any(table.has_undecodable for table in tables.tables.values()):
                common.note("kafkalog: note: what does not decode is null; key_error and value_error say why")
            if given["commit"]:
                sys.stdout.flush()
                tables.commit()
    common.report_skipped(skipped)
    return 1 if skipped else 0


@contextmanager
def _opened(dirs: list[str], tiered: str | None) -> Iterator[list[str] | LogDirs]:
    """Yield the data directories, open with the tiered segments if a store is given."""
    if tiered is None:
        yield dirs
        return
    import kafkalog

    with kafkalog.open_dirs(dirs, tiered=tiered) as opened:
        yield opened


def _duckdb() -> Any:
    from kafkalog.util.packages import needed

    return needed("duckdb", "a query needs duckdb ({})", "sql")


def _run(connection: duckdb.DuckDBPyConnection, query: str, tables: TopicTables, show: _Printer) -> None:
    """Run the query and print its rows; an error is kafkalog's, whatever DuckDB makes of it."""
    import duckdb

    from kafkalog.errors import IllegalArgument

    try:
        query.encode()
    except UnicodeEncodeError:
        raise IllegalArgument("the query is not UTF-8", hint="decode(key) and decode(value) compare as text") from None
    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise IllegalArgument("this is not one query", hint="give one SELECT; nothing else is run")
        with _interruptible(connection):
            connection.execute(statements[0])
            show.begin([column[0] for column in connection.description or ()])
            for page in iter(lambda: connection.fetchmany(PAGE_ROWS), []):
                show.page(page)
            show.end()
    except duckdb.Error as error:
        _raise(error, query, tables)


@contextmanager
def _interruptible(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Make a Ctrl-C in the block end the running query: DuckDB would report an exception in its reading as an error."""
    before = signal.getsignal(signal.SIGINT)
    is_interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        connection.interrupt()

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if not is_interrupted:
            raise
    finally:
        signal.signal(signal.SIGINT, before)
    if is_interrupted:
        raise KeyboardInterrupt


def _raise(error: duckdb.Error, query: str, tables: TopicTables) -> NoReturn:
    import duckdb

    from kafkalog.errors import IllegalArgument, JobFailed

    if tables.failure is not None:
        raise tables.failure from None
    text = str(error).strip()
    if isinstance(error, duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException):
        is_offset = isinstance(error, duckdb.ParserException) and _BARE_OFFSET.search(query)
        bare = [one for one in tables.names.values() if re.search(rf'(?<![\w".-]){re.escape(one)}(?![\w".-])', query)]
        quoted = next((f'"{one}"' for one in bare if not one.replace("_", "").isalnum()), None)
        hint = 'offset is a word of SQL: write it in double quotes, "offset"' if is_offset else None
        hint = hint or (_DOTTED.format(quoted) if quoted else None)
        raise IllegalArgument(text, hint=hint) from None
    raise JobFailed(text) from None


class _Printer:
    """Prints rows as tables, each of at most PAGE_ROWS."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.pages = 0

    def begin(self, names: list[str]) -> None:
        """Start the output of rows with these columns."""
        self.names = names

    def page(self, rows: Sequence[_Row]) -> None:
        """Print some rows."""
        from kafkalog.inspect.rows import Column, Rows

        if self.pages:
            print()
        self.pages += 1
        columns = []
        for number, name in enumerate(self.names):
            values = [row[number] for row in rows[:100] if row[number] is not None]
            is_number = values and all(isinstance(value, int | float) for value in values)
            kind: Any = "count" if is_number else "key" if any(isinstance(one, bytes) for one in values) else "text"
            columns.append(Column(name, partial(_cell, number), kind))
        print(Rows(rows, columns).text())

    def end(self) -> None:
        """End the output; a result without rows still has the names of its columns."""
        if not self.pages:
            self.page([])


class _JsonPrinter(_Printer):
    """Prints rows as JSON lines."""

    def page(self, rows: Sequence[_Row]) -> None:
        from kafkalog.records.json_text import json_text

        for row in rows:
            print(json_text({name: _plain(value) for name, value in zip(self.names, row, strict=True)}))

    def end(self) -> None:
        """End the output, which is empty for a result without rows."""


class _CsvPrinter(_Printer):
    """Prints rows as comma-separated values."""

    def begin(self, names: list[str]) -> None:
        self._write([names])

    def page(self, rows: Sequence[_Row]) -> None:
        self._write([_flat(value) for value in row] for row in rows)

    def _write(self, rows: Iterable[list[Any]]) -> None:
        for row in rows:
            is_alone = len(row) == 1  # an empty line is no row for many readers
            print(",".join('""' if value is None and is_alone else _field(value) for value in row))

    def end(self) -> None:
        """End the output, which has at least the line of names."""


def _printer(given: _Given) -> _Printer:
    return _JsonPrinter() if given["as_json"] else _CsvPrinter() if given["as_csv"] else _Printer()


def _plain(value: Any) -> Any:
    """Return a value with text for its bytes, as `consume` prints them, and ISO-8601 for its times."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, datetime):
        return datetime_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {_plain(name): _plain(one) for name, one in value.items()}
    return value


def _flat(value: Any) -> Any:
    """Return a value with a single text in place of lists and records: their JSON."""
    from kafkalog.records.json_text import json_text

    plain = _plain(value)
    return json_text(plain) if isinstance(plain, list | dict) else plain


def _field(value: Any) -> str:
    """Return a field of a CSV line: nothing for null, and empty text in quotes."""
    if value is None:
        return ""
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if not text or _QUOTED.search(text) else text


def _cell(number: int, row: _Row) -> Any:
    """Return the value of a column of a row for a cell of a table."""
    value = row[number]
    if isinstance(value, bytes):
        return value
    return str(flat) if (flat := _flat(value)) is not None else None

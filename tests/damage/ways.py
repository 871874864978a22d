"""Every way to read a log: each gives what a range of offsets holds."""

import inspect
import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute

import kafkalog
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.reading import arrow_batches
from kafkalog.storage.damage import Skipped
from tests.damage.logs import FIRST_TIME, STEP_MS, LogKind, Row
from tests.damage.oracle import NO_END, Oracle

CAN_SKIP = "on_damage" in inspect.signature(kafkalog.Log.records).parameters
_NAMES = count()
COLUMNS = ("offset", "timestamp", "key", "value")
SLOW = 0.12
"""How often a way that takes as long as ten others is among those to pick from."""
COMMITTED: dict[str, Any] = {"isolation": "read_committed"}


class Read(NamedTuple):
    """One read: its name as a caller writes it, what it asks for, and the call.

    `kind` says what it gives: "rows", "batches", "one" (the row at an offset), "committed" (rows without those of
    aborted transactions), "time" or "end".
    """

    text: str
    kind: str
    start: int
    stop: int
    call: Callable[[kafkalog.Log], Iterable[Any]]


def row_of(record: Any) -> Row:
    """A record of any face as a row."""
    return Row(record.offset, record.timestamp, record.key, record.value)


def rows_of(records: Iterable[Any]) -> Iterator[Row]:
    """Records as rows."""
    return map(row_of, records)


def table_rows(table: Any) -> Iterator[Row]:
    """The rows of a table with our columns."""
    return map(Row._make, zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def scan_rows(scan: Any) -> Iterator[Row]:
    """The rows of a scan, piece by piece."""
    for piece in scan:
        yield from table_rows(piece)


def arrow_rows(scan: Any) -> Iterator[Row]:
    """The rows of a scan as pyarrow reads it: its times are datetimes, so the log's number is taken from its column."""
    for batch in pyarrow.RecordBatchReader.from_stream(scan):
        columns = [batch.column("offset"), batch.column("timestamp").cast(pyarrow.int64())]
        columns += [batch.column("key"), batch.column("value")]
        yield from map(Row._make, zip(*(column.to_pylist() for column in columns), strict=True))


def pandas_rows(frame: Any) -> Iterator[Row]:
    """The rows of a data frame."""
    times = [-1 if time is None or time != time else time.value // 10**6 for time in frame["timestamp"]]
    return map(Row._make, zip(frame["offset"].tolist(), times, frame["key"], frame["value"], strict=True))


def cursor_rows(log: kafkalog.Log, start: int, store: Path, isolation: str | None = None) -> Iterator[Row]:
    """The rows that a new cursor meets."""
    given: dict[str, Any] = {"start": start, "auto_commit_ms": None, "sync": False, "store": store}
    with log.cursor(f"c{next(_NAMES)}", isolation=isolation, **given) as cursor:
        yield from rows_of(cursor)


def url_rows(log: kafkalog.Log) -> Iterator[Row]:
    """The rows of the log behind a URL."""
    with kafkalog.open(f"file://{log.path}") as remote:
        yield from rows_of(remote.records())


def dirs_rows(log: kafkalog.Log, start: int | None) -> Iterator[Row]:
    """The rows that the whole data directory gives, opened beside the log."""
    with kafkalog.open_dirs(Path(log.path).parent) as dirs:
        yield from rows_of(dirs["t", 0].records(start))


def spark_rows(log: kafkalog.Log, start: int | None = None, stop: int | None = None, **options: str) -> Iterator[Row]:
    """The rows that Spark's source gives, planned and read without Spark."""
    for name, offset in (("startingOffsets", start), ("endingOffsets", stop)):
        if offset is not None:
            options[name] = json.dumps({log.topic_partition.topic: {str(log.topic_partition.partition): offset}})
    given = {"path": log.path, "failOnDataLoss": "false", **options}
    parsed = SourceOptions.parse(given, streaming=False)
    for one in plan_batch(parsed):
        for batch in arrow_batches(one, COLUMNS, parsed):
            columns = [batch.column(name) for name in COLUMNS]
            columns[1] = pyarrow.compute.divide(columns[1].cast(pyarrow.int64()), 1000)
            yield from map(Row._make, zip(*(column.to_pylist() for column in columns), strict=True))


def batch_ends(batches: Iterable[Any]) -> Iterator[int]:
    """Last offsets of batches."""
    return (batch.last_offset for batch in batches)


def points(kind: LogKind, oracle: Oracle, rng: random.Random, wanted: int) -> list[int]:
    """Offsets to read at: around the damage, at segments' ends, and anywhere."""
    end = kind.end
    near = [offset for span in oracle.broken for offset in (span.first - 1, span.first, span.stop - 1, span.stop)]
    near += [offset for claim in oracle.guessed for offset in (claim.batch.base, claim.batch.last)]
    edges = [offset for segment in kind.segments for offset in (segment.base - 1, segment.base)]
    some = rng.sample(near, min(len(near), wanted // 2)) + [rng.choice(edges)]
    some += [rng.randrange(end) for _ in range(wanted - len(some))]
    return [min(max(offset, 0), end - 1) for offset in some]


def whole_reads(store: Path, is_dirs_read: bool) -> list[Read]:
    """Reads of all of a log."""
    every: list[tuple[str, str, Callable[[kafkalog.Log], Iterable[Any]]]] = [
        ("records()", "rows", lambda log: rows_of(log.records())),
        ("log[:]", "rows", lambda log: rows_of(log[:])),
        ("batches()", "batches", lambda log: batch_ends(log.batches())),
        ("table()", "rows", lambda log: table_rows(log.table())),
        ("scan()", "rows", lambda log: scan_rows(log.scan())),
        ("scan() by pyarrow", "rows", lambda log: arrow_rows(log.scan(COLUMNS))),
        ("to_pandas()", "rows", lambda log: pandas_rows(log.to_pandas())),
        ("tail(0, 0)", "rows", lambda log: rows_of(log.tail(0, 0))),
        ("cursor", "rows", lambda log: cursor_rows(log, 0, store)),
        ("end_offset", "end", lambda log: [log.end_offset]),
        ("offset_for_time(-1)", "end", lambda log: [found.offset if (found := log.offset_for_time(-1)) else 0]),
    ]
    every += [
        (f"{name} of committed", "committed", call)
        for name, call in (
            ("records()", lambda log: rows_of(log.records(**COMMITTED))),
            ("scan()", lambda log: scan_rows(log.scan(**COMMITTED))),
            ("table()", lambda log: table_rows(log.table(**COMMITTED))),
            ("tail(0, 0)", lambda log: rows_of(log.tail(0, 0, **COMMITTED))),
            ("cursor", lambda log: cursor_rows(log, 0, store, **COMMITTED)),
        )
    ]
    if is_dirs_read:
        every.append(("open_dirs", "rows", lambda log: dirs_rows(log, None)))
        every.append(("spark", "rows", spark_rows))
        every.append(("spark of committed", "committed", lambda log: spark_rows(log, isolationLevel="read_committed")))
        every.append(("file://", "rows", lambda log: url_rows(log)))
    return [Read(text, kind, 0, NO_END, call) for text, kind, call in every]


def reads_from(start: int, stop: int, store: Path, is_dirs_read: bool = False) -> list[Read]:
    """Reads of the offsets from `start` on, or up to `stop`."""
    time = FIRST_TIME + start * STEP_MS
    to_end: list[tuple[str, str, Callable[[kafkalog.Log], Iterable[Any]]]] = [
        (f"records({start})", "rows", lambda log: rows_of(log.records(start))),
        (f"batches({start})", "batches", lambda log: batch_ends(log.batches(start))),
        (f"tail(0, {start})", "rows", lambda log: rows_of(log.tail(0, start))),
        (f"cursor at {start}", "rows", lambda log: cursor_rows(log, start, store)),
        (f"offset_for_time({time})", "time", lambda log: [log.offset_for_time(time)]),
    ]
    between: list[tuple[str, str, Callable[[kafkalog.Log], Iterable[Any]]]] = [
        (f"records({start}, {stop})", "rows", lambda log: rows_of(log.records(start, stop))),
        (f"log[{start}:{stop}]", "rows", lambda log: rows_of(log[start:stop])),
        (f"table(start={start}, stop={stop})", "rows", lambda log: table_rows(log.table(start=start, stop=stop))),
        (f"batches({start}, {stop})", "batches", lambda log: batch_ends(log.batches(start, stop))),
    ]
    committed: list[tuple[str, str, Callable[[kafkalog.Log], Iterable[Any]]]] = [
        (f"{name}({start}, {stop}) of committed", "committed", call)
        for name, call in (
            ("records", lambda log: rows_of(log.records(start, stop, **COMMITTED))),
            ("table", lambda log: table_rows(log.table(start=start, stop=stop, **COMMITTED))),
        )
    ]
    if is_dirs_read:
        between.append((f"spark({start}, {stop})", "rows", lambda log: spark_rows(log, start, stop)))
    return [
        Read(f"log[{start}]", "one", start, start + 1, lambda log: [row_of(log[start])]),
        *(Read(text, kind, start, NO_END, call) for text, kind, call in to_end),
        *(Read(text, kind, start, stop, call) for text, kind, call in (*between, *committed)),
    ]


def _without_slow(reads: list[Read], rng: random.Random) -> list[Read]:
    """The reads, most often without those that take as long as ten others."""
    return [read for read in reads if not read.text.startswith(("spark", "file://")) or rng.random() < SLOW]


def pick_reads(kind: LogKind, oracle: Oracle, rng: random.Random, store: Path, mode: str) -> list[Read]:
    """About 22 reads of a damaged log: some of all of it, some at offsets, most of these near the damage."""
    reads = rng.sample(_without_slow(whole_reads(store, mode == "r"), rng), 6)
    for start in points(kind, oracle, rng, 6):
        stop = min(start + rng.choice((1, 2, 4, 10, 50)), kind.end)
        some = reads_from(start, stop, store, mode == "r")
        reads += [some[0], *rng.sample(_without_slow(some[1:], rng), 2)]
    if kind.magic == 0:
        reads = [read for read in reads if read.kind != "time"]  # its records have no times
    return reads


# Reads that skip damage

Skipping = Callable[[kafkalog.Log, str, int | None, int | None, list[Any]], Iterable[Any]]


def _skipping(log: Any, call: str, start: int | None, stop: int | None, skipped: list[Any]) -> Iterable[Any]:
    given = {"on_damage": "skip", "skipped": skipped}
    match call:
        case "records":
            return rows_of(log.records(start, stop, **given))
        case "committed":
            return rows_of(log.records(start, stop, **given, **COMMITTED))
        case "batches":
            return batch_ends(log.batches(start, stop, **given))
        case "tail":
            return rows_of(log.tail(0, start or 0, **given))
        case "table":
            return table_rows(log.table(start=start, stop=stop, **given))
        case "to_pandas":
            return pandas_rows(log.to_pandas(start=start, stop=stop, **given))
        case "spark":
            return spark_skipping(log, start, stop, skipped)
    return scan_rows(log.scan(start=start, stop=stop, **given))


def spark_skipping(log: Any, start: int | None, stop: int | None, skipped: list[Any]) -> Iterator[Row]:
    """The rows that Spark's source gives with `onDamage`, and what its reports say was left out."""
    with tempfile.TemporaryDirectory() as folder:
        yield from spark_rows(log, start, stop, onDamage="skip", corruptReport=folder)
        for path in sorted(Path(folder).iterdir()):
            for line in path.read_text().splitlines():
                one = json.loads(line)
                place = one["file"], one["position"], one["bytes"], one["offset"], one["next_offset"], one["reason"]
                skipped.append(Skipped(*place))


def pick_skips(kind: LogKind, oracle: Oracle, rng: random.Random, skipped: list[Any], mode: str) -> list[Read]:
    """About six reads that skip damage; what they leave out is appended to `skipped`."""

    def read(call: str, start: int | None, stop: int | None) -> Read:
        text = f"{call}({start}, {stop}, skip)"
        kind = call if call in ("batches", "committed") else "rows"
        end = NO_END if stop is None else stop
        return Read(text, kind, start or 0, end, lambda log: _skipping(log, call, start, stop, skipped))

    calls = ["records", "batches", "committed", "scan", "table", "to_pandas", "tail"]
    calls += ["spark"] if mode == "r" and rng.random() < SLOW else []
    reads = [read(call, None, None) for call in rng.sample(calls, 3)]
    for start in points(kind, oracle, rng, 3):
        call = rng.choice(calls)
        stop = None if call == "tail" or rng.random() < 0.5 else min(start + rng.choice((2, 10, 50)), kind.end)
        reads.append(read(call, start, stop))
    return reads

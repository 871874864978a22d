"""Ways out of a damaged log that copy it, sum it up or show it, each with its verdict.

They cost more than a read, so each is tried in a few cases of a hundred.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import fsspec

import kafkalog
from kafkalog.backup import create_backup, restore_backup
from kafkalog.backup.damage import DAMAGED
from kafkalog.browse.batches import Place, after, before
from kafkalog.browse.levels import segment_level
from kafkalog.errors import KafkalogError
from kafkalog.exchange.export import IncompleteExport, export_records
from kafkalog.exchange.import_ import import_records
from kafkalog.exchange.kafka_dir import export_directory, import_directory
from kafkalog.inspect.report import page
from kafkalog.inspect.stats import LogStats
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.report import make_report
from tests.damage.judge import Result, Verdict, is_out_of_sight, is_typed, judge, run
from tests.damage.logs import PARTITION, TOPIC, Row
from tests.damage.oracle import NO_END, Claim, Oracle
from tests.damage.ways import Read, rows_of

MANY = 1_000_000


class Damaged(NamedTuple):
    """A damaged log, open, with its directory and room for copies."""

    log: kafkalog.Log
    oracle: Oracle
    path: Path
    room: Path
    rng: random.Random


Judged = tuple[str, Verdict, str]
"""What was asked for, and the verdict with the reason for a bad one."""


def whole_read(text: str) -> Read:
    """A read of all records, whose call is not used."""
    return Read(text, "rows", 0, NO_END, lambda log: [])


def seen(oracle: Oracle) -> list[Claim]:
    """The damaged batches that a look at the headers and checksums shows."""
    every = Read("headers", "batches", 0, NO_END, lambda log: [])
    return [span.claim for span in oracle.broken if not is_out_of_sight(span.claim, every)]


# Figures


def stats(given: Damaged) -> Iterator[Judged]:
    """`log.stats()`, whole and as a sample."""
    for most in (None, given.rng.choice((500, 2000))):
        found = given.log.stats(keys=given.rng.random() < 0.3, sample_bytes=most)
        yield (f"stats(sample_bytes={most})", *_judge_stats(found, given))


def report(given: Damaged) -> Iterator[Judged]:
    """`kafkalog report`: the figures, and whether the page has the damage."""
    made = make_report([str(given.path / PARTITION)])
    if not made.logs:
        yield "report", Verdict.RAISED, made.problems[0]
        return
    verdict, why = _judge_stats(made.logs[0], given)
    if made.logs[0].damage and "damaged place" not in page(made):
        verdict, why = Verdict.UNREPORTED, "the page shows no damage"
    yield "report", verdict, why


def _judge_stats(found: LogStats, given: Damaged) -> tuple[Verdict, str]:
    oracle = given.oracle
    places = [(Path(one.segment).name, one.position, one.position + one.size) for one in found.damage]
    for claim in seen(oracle):
        segment = found.segments[claim.segment] if claim.segment < len(found.segments) else None
        was_read = found.sample.is_whole or segment is not None and segment.read_bytes >= segment.size
        name = Path(oracle.kind.segments[claim.segment].name).name
        if was_read and not any(one[0] == name for one in places):
            return Verdict.UNREPORTED, f"{name} was checked, and its damage at {claim.position} is no damaged place"
    if not found.sample.is_whole:
        return Verdict.COMPLETE, ""
    if oracle.kind.is_wrapped:  # headers do not show the number of inner records
        return Verdict.COMPLETE, ""
    counts = {sum(len(claim.rows) for claim in reading) for reading in oracle.readings}
    if found.records not in counts:
        return Verdict.WRONG, f"{found.records} records counted, {sorted(counts)} are sound"
    return Verdict.EXACT, ""


def browse(given: Damaged) -> Iterator[Judged]:
    """The batches that the browser lists, down and up."""
    with LogView(given.path / PARTITION) as view:
        first, last = view.segments.first, view.active_segment
        assert first is not None
        down = after(view, Place(first.base_offset, 0), MANY)
        up = before(view, Place(last.base_offset, last.size), MANY)
        note = segment_level(view).note
    if down != up:
        yield "browse", Verdict.WRONG, "rows upwards are others than rows downwards"
        return
    bases = [segment.base for segment in given.oracle.kind.segments]
    shown = {(row.place.segment, row.place.position, row.last_offset) for row in down if row.is_batch}
    for reading in given.oracle.readings:
        missing = [one for one in reading if (bases[one.segment], one.position, one.last) not in shown]
        if not missing:
            break
    else:
        yield "browse", Verdict.LOSS, f"no row for the batch of offset {missing[0].base}"
        return
    is_reported = any(row.problem for row in down) or "problem" in note
    if seen(given.oracle) and not is_reported:
        yield "browse", Verdict.UNREPORTED, "no row with a problem"
        return
    yield "browse", Verdict.COMPLETE, ""


# Copies


def backup(given: Damaged) -> Iterator[Judged]:
    """A backup, restored and read: as the original, with a note of damage."""
    made = create_backup(given.path, given.room / "backups")
    restore_backup(given.room / "backups", given.room / "restored")
    with kafkalog.open(given.path / PARTITION) as log, kafkalog.open(given.room / "restored" / PARTITION) as copy:
        read = Read("records()", "rows", 0, NO_END, lambda log: rows_of(log.records()))
        original, restored = run(read, log), run(read, copy)
        same = original.items == restored.items
    noted = [note for note in made.manifest.notes if note.startswith(DAMAGED)]
    if not same:
        yield "backup", Verdict.LOSS, f"{len(original.items)} records, {len(restored.items)} in the restored copy"
    elif (restored.error is None) != (original.error is None) and not noted:
        yield "backup", Verdict.UNREPORTED, f"original: {original.error}; copy: {restored.error}; no note"
    elif seen(given.oracle) and original.error is not None and not noted:
        yield "backup", Verdict.UNREPORTED, "no note of damage"
    else:
        yield "backup", Verdict.COMPLETE, ""


def export(given: Damaged) -> Iterator[Judged]:
    """An export of rows in each format, and an import of what it wrote."""
    format = given.rng.choice(("parquet", "arrow", "jsonl"))
    target = given.room / "out"
    error: Exception | None = None
    try:
        export_records(given.path, target, format, topics=[TOPIC])
    except IncompleteExport as damage:
        error = damage
    rows: list[Row] = []
    if any(target.glob(f"topic={TOPIC}/*")):
        import_records(target, given.room / "into")
        with kafkalog.open(given.room / "into" / PARTITION) as copy:
            rows = list(rows_of(copy.records()))
    yield (f"export {format}", *judge(whole_read("export"), Result(rows, error), given.oracle))


def kafka_dir(given: Damaged) -> Iterator[Judged]:
    """An export of the directory, and an import of it."""
    try:
        export_directory(given.path, given.room / "copy")
    except KafkalogError as error:
        yield ("export kafka-dir", *judge(whole_read("table"), Result([], error), given.oracle))
        return
    import_directory(given.room / "copy", given.room / "into")
    with kafkalog.open(given.room / "into" / PARTITION) as copy:
        read = Read("records() of an exported copy", "rows", 0, NO_END, lambda log: rows_of(log.records()))
        yield ("export kafka-dir", *judge(read, run(read, copy), given.oracle))


def remote(given: Damaged) -> Iterator[Judged]:
    """The directory in a store that fsspec knows, read by its URL."""
    store = fsspec.filesystem("memory")
    name = f"/damage-{given.room.name}"
    store.put(str(given.path), name, recursive=True)
    try:
        with kafkalog.open(f"memory:/{name}/{PARTITION}") as log:
            read = Read("memory:// records()", "rows", 0, NO_END, lambda log: rows_of(log.records()))
            yield (read.text, *judge(read, run(read, log), given.oracle))
            start = given.rng.randrange(given.oracle.kind.end)
            read = Read(f"memory:// log[{start}]", "one", start, start + 1, lambda log: rows_of([log[start]]))
            yield (read.text, *judge(read, run(read, log), given.oracle))
    finally:
        store.rm(name, recursive=True)


Exit = Callable[[Damaged], Iterator[Judged]]
FOR_BOTH: dict[Exit, float] = {stats: 0.15, browse: 0.15, report: 0.03, backup: 0.03}
"""How often each is tried in a case; a log that is open for writing may be summed up and backed up too."""
FOR_READERS: dict[Exit, float] = {export: 0.03, kafka_dir: 0.03, remote: 0.05}


def pick_exits(given: Damaged, mode: str, *, every: bool = False) -> Iterator[Judged]:
    """Some of them, by chance; an error of another kind than ours is a verdict as well."""
    chances = FOR_BOTH | (FOR_READERS if mode == "r" else {})
    for way, chance in chances.items():
        if given.rng.random() >= chance and not every:
            continue
        given.room.mkdir()
        try:
            yield from way(given)
        except Exception as error:
            verdict = Verdict.RAISED if given.oracle.broken else Verdict.RAISED_APART
            yield way.__name__, verdict if is_typed(error) else Verdict.UNTYPED, f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(given.room)


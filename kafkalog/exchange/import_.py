"""`import_records`: writes Parquet, Arrow and JSON lines, exported or of the same form, to topics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import kafkalog
from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.errors import IllegalArgument, IllegalState, MissingPackage, PartitionNotFound
from kafkalog.exchange.kafka_dir import is_exported
from kafkalog.exchange.sums import check_complete
from kafkalog.landing.targets import StagedFor, no_time, place_all
from kafkalog.records.packing import Compression, choose, parse_compression
from kafkalog.storage.names import validate_topic
from kafkalog.storage.remote import refuse_urls
from kafkalog.tools.directories import Path, path_list
from kafkalog.types import TopicPartition
from kafkalog.util.os_errors import walk

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.exchange.row_files import ParquetFacts
    from kafkalog.log.log import Log
    from kafkalog.records.placer import TopicTarget

SUFFIXES: Final = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json")
OFFSETS: Final = ("auto", "keep", "new")
MAX_NEW_PARTITIONS: Final = 10_000
"""Most partitions of a new topic: the count comes from the highest number in the files, which anyone can write."""
_HIDDEN: Final = ("_", ".")


class ImportReport(NamedTuple):
    """Result of one run; `kept` is True if offsets are those of the files; `before` counts records already there."""

    records: int
    files: int
    partitions: int
    kept: bool
    before: int


def import_records(
    sources: Path | Iterable[Path],
    data: Path,
    topic: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    offsets: str = "auto",
    partitions: int = 1,
    compression: str | None = None,
    resume: bool = False,
    progress: Callable[[int], object] | None = None,
) -> ImportReport:
    """Write the records of files, or of all files below directories, to the data directory `data`.

    The file names select the formats. `columns` maps the parts (value, key, headers, timestamp, timestampType, topic,
    partition, offset) to the names of Parquet and Arrow columns that differ. The topic is `topic`, else the row's, else
    that of a directory `topic=NAME`. Keys, values, headers and timestamps are restored exactly, including nulls and
    timestamps of -1.

    If all rows have topic, partition and offset and all their partitions are empty, the rows keep their offsets and
    gaps; "keep" requires that, "new" appends. With `resume` a partition may already hold the first of the records,
    which are not written again. `partitions` is the least number of partitions of a new topic.

    Raises IllegalArgument for a missing column or one of a wrong type, a duplicate offset, or a non-empty partition
    that was to keep offsets; IllegalState for a partition with records other than the files'; FormatError,
    StorageError, DirectoryLocked, RecordTooLarge, PartitionNotFound; MissingPackage without pyarrow.

    >>> with open("users.jsonl", "w") as file:
    ...     print('{"key": "u-1", "payload": "first"}', file=file)
    >>> import_records("users.jsonl", "data", "users")
    ImportReport(records=1, files=1, partitions=1, kept=False, before=0)
    """
    if offsets not in OFFSETS:
        raise IllegalArgument(f"offsets is {offsets!r}", hint=f"give {', '.join(OFFSETS)}")
    if topic is not None:
        validate_topic(topic)
    codec = None if compression is None else parse_compression(compression)
    try:
        from kafkalog.exchange.row_files import survey
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"an import needs {error.name}, which is not installed", hint="pip install 'kafkalog[arrow]'"
        ) from None
    facts = [survey(path, columns or {}, topic) for path in files_of(path_list(sources))]
    with kafkalog.open_dirs(os.fspath(data), "a") as dirs:
        run = _Import(dirs, facts, codec, partitions, progress)
        keeps_offsets = run.keeps_offsets(offsets, resume)
        records, before = run.write_with_offsets() if keeps_offsets else (run.append(), 0)
    return ImportReport(records, len(facts), len(run.touched), keeps_offsets, before)


def files_of(paths: Iterable[str]) -> list[str]:
    """Return the files of these paths; a directory stands for all files below it, except names that begin with _ or .

    Raises PartitionNotFound for a path that does not exist, IllegalArgument if no file is found or one is of another
    kind; FormatError for an export with missing files; StorageError.
    """
    found: list[str] = []
    for path in paths:
        refuse_urls(path)
        if not os.path.exists(path):
            raise PartitionNotFound("there is no such file or directory", path=path, hint="check the path")
        if not os.path.isdir(path):
            if not path.lower().endswith(SUFFIXES):
                hint = f"supported suffixes are {', '.join(SUFFIXES)}"
                raise IllegalArgument("the file name does not show the format", path=path, hint=hint)
            found.append(path)
            continue
        if is_exported(path):
            hint = "pass it alone to `kafkalog import`, which copies it"
            raise IllegalArgument("this is an exported data directory, not a directory of rows", path=path, hint=hint)
        check_complete(path)
        for below, directories, names in walk(path):
            directories[:] = sorted(name for name in directories if not name.startswith(_HIDDEN))
            wanted = (name for name in sorted(names) if not name.startswith(_HIDDEN))
            found += [os.path.join(below, name) for name in wanted if name.lower().endswith(SUFFIXES)]
    if not found:
        raise IllegalArgument("no files to import", hint=f"supported suffixes are {', '.join(SUFFIXES)}")
    return found


class _Import:
    """One import: the surveyed files and the topics they go to."""

    def __init__(
        self,
        dirs: LogDirs,
        facts: list[ParquetFacts],
        compression: Compression | None,
        partitions: int,
        progress: Callable[[int], object] | None,
    ) -> None:
        self.touched: set[TopicPartition] = set()
        self._dirs = dirs
        self._facts = facts
        self._compression = compression
        self._partitions = partitions
        self._progress = progress
        self._topic_partitions = sorted({where for one in facts for where in one.topic_partitions})

    def keeps_offsets(self, offsets: str, resume: bool) -> bool:
        """Return True if offsets are kept; raise IllegalArgument if that was required but is impossible."""
        ordered = bool(self._topic_partitions) and all(one.is_ordered for one in self._facts)
        non_empty = [where for where in self._topic_partitions if where in self._dirs and self._dirs[where].end_offset]
        if offsets == "new":
            if resume:
                raise IllegalArgument("only an import that keeps offsets can resume", hint="omit one of the two")
            return False
        if ordered and (resume or not non_empty):
            return True
        if offsets == "auto" and not resume:
            return False
        if not ordered:
            raise IllegalArgument(
                "some rows lack topic, partition or offset", hint="give --offsets new, without --resume, to append"
            )
        hint = "continue an import with --resume, or append with --offsets new"
        raise IllegalArgument(f"{non_empty[0]} is not empty", hint=hint)

    def write_with_offsets(self) -> tuple[int, int]:
        """Write the missing records with their offsets; return (records written, records already there)."""
        from kafkalog.exchange.offset_batches import batches_with_offsets
        from kafkalog.exchange.row_files import ordered_rows

        counts: dict[str, int] = {}
        for where in self._topic_partitions:
            counts[where.topic] = max(counts.get(where.topic, self._partitions), where.partition + 1)
        for topic, count in counts.items():
            self._ensure_topic(topic, count)
        records = before = 0
        for where in self._topic_partitions:
            log = self._dirs[where]
            skip = _RowSkipper(log)
            rows = skip.remaining_rows(self._report_progress(ordered_rows(where, self._facts)))
            for batches in batches_with_offsets(rows, where.topic, self._staged_for(where.topic, log)):
                log.replicate(batches)
            log.flush()
            self.touched.add(where)
            records, before = records + skip.written, before + skip.skipped
        return records, before

    def append(self) -> int:
        """Append all rows in the order of the files; return their number."""
        from kafkalog.exchange.row_files import unordered_rows
        from kafkalog.records.placer import Placer

        records = 0
        for facts in self._facts:
            names = {part: part if part in facts.columns else None for part in ("value", "key", "headers", "timestamp")}
            names["topic"] = "topic" if "topic" in facts.columns and facts.topic is None else None
            names["partition"] = "partition" if "partition" in facts.columns else None
            if facts.topic is None and names["topic"] is None:
                raise IllegalArgument("the rows have no topic", path=facts.path, hint="give -t TOPIC")
            placer = Placer(self._target_of, topic=facts.topic, columns=names, batch_bytes=1 << 17, now_ms=no_time)
            for placed in place_all(placer, self._report_progress(unordered_rows(facts))):
                where = TopicPartition(placed.topic, placed.partition)
                self._dirs[where].append_bytes(placed.batches)
                self.touched.add(where)
            records += placer.records
        for where in self.touched:
            self._dirs[where].flush()
        return records


    def _target_of(self, topic: str) -> TopicTarget:
        least = max((w.partition + 1 for w in self._topic_partitions if w.topic == topic), default=self._partitions)
        self._ensure_topic(topic, max(least, self._partitions))
        log = self._dirs[topic, 0]
        return self._staged_for(topic, log).as_written()

    def _staged_for(self, topic: str, log: Any) -> StagedFor:
        config = log._source.config
        return StagedFor(len(self._dirs.topics[topic].partitions), config, choose(config, self._compression))

    def _ensure_topic(self, topic: str, count: int) -> None:
        existing = len(self._dirs.topics[topic].partitions) if topic in self._dirs.topics else 0
        if count > max(existing, self._partitions, MAX_NEW_PARTITIONS):
            raise IllegalArgument(
                f"the rows name partition {count - 1} of {topic}, which needs {count} partitions",
                hint=f"give --partitions {count} if that is intended",
            )
        if not existing:
            self._dirs.create_topic(topic, count, {})
        elif existing < count:
            self._dirs.alter_topic(topic, partitions=count)

    def _report_progress(self, tables: Iterable[pyarrow.Table]) -> Iterator[pyarrow.Table]:
        for table in tables:
            yield table
            if self._progress is not None:
                self._progress(table.nbytes)


class _RowSkipper:
    """Skips rows that the log already has: `skipped` counts them, `written` counts the others."""

    def __init__(self, log: Log) -> None:
        self.skipped = 0
        self.written = 0
        self._log = log
        self._end = log.end_offset
        self._last: Any = None

    def remaining_rows(self, tables: Iterable[pyarrow.Table]) -> Iterator[pyarrow.Table]:
        """Yield the rows from the log's end on; raise IllegalState if the row before them is not the log's last."""
        for table in tables:
            known = int(table["offset"].to_numpy().searchsorted(self._end))
            if known:
                self.skipped += known
                self._last = table.slice(known - 1, 1).to_pylist()[0]
            if known < table.num_rows:
                self._check()
                self.written += table.num_rows - known
                yield table.slice(known)
        self._check()

    def _check(self) -> None:
        last, self._last = self._last, None
        if not self._end or (last is None and (self.skipped or self.written)):
            return
        record = None if last is None or last["offset"] != self._end - 1 else self._log[self._end - 1]
        if record is None or (record.value, record.key) != (last["value"], last.get("key")):
            raise IllegalState(
                f"{self._log.name} ends with a record at offset {self._end - 1} that is not in the files",
                path=self._log.path, offset=self._end - 1, hint="it is a different log: import into another directory",
            )  # fmt: skip

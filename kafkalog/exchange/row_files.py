"""Input files of an import: the partitions in their row groups, and rows in the order of offsets.

Parquet has row groups, Arrow files have record batches, and some thousand JSON lines count as one group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkalog.errors import FormatError, IllegalArgument, StorageError
from kafkalog.exchange.line_rows import line_tables, read_lines
from kafkalog.exchange.sums import check_exported
from kafkalog.storage.names import validate_partition, validate_topic
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from kafkalog.util.keywords import closest_match
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RECORD_COLUMNS: Final = ("value", "key", "headers", "timestamp", "timestampType", "topic", "partition", "offset")
ARROW: Final = ".arrow"
LINES: Final = (".jsonl", ".ndjson", ".json")
MAX_HELD_BYTES: Final = 1 << 30
"""Most bytes of rows held back for offset order, when files overlap in offsets as those of several dates do."""
BATCH_ROWS: Final = 65_536
MAX_OFFSET: Final = 2**63 - 2
"""Highest offset: a log's end is one more, and must fit in 64 bits."""
_TOPIC: Final = re.compile(r"(?:^|/)topic=([^/]+)/")
_WHOLE: Final = {"offset": pa.int64(), "partition": pa.int32(), "timestampType": pa.int32()}
_KINDS: Final = {
    "value": ("binary", "string", "large_binary", "large_string", "null"),
    "key": ("binary", "string", "large_binary", "large_string", "null"),
    "partition": ("int8", "int16", "int32", "int64"),
    "offset": ("int32", "int64"),
    "timestampType": ("int8", "int16", "int32", "int64"),
    "topic": ("string", "large_string"),
}


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A row group: its number in the file, its partitions, and its first offset (-1 without offsets)."""

    number: int
    topic_partitions: tuple[TopicPartition, ...]
    first_offset: int


@dataclass(frozen=True, slots=True)
class ParquetFacts:
    """A file: its columns (names by part), its topic if its path has one, and its row groups that have rows.

    `places` are the bytes [start, stop) of each group in a file of lines. `version` is the file's size and time (ns).
    """

    path: str
    columns: Mapping[str, str]
    topic: str | None
    groups: tuple[GroupFacts, ...]
    places: tuple[tuple[int, int], ...] = ()
    version: tuple[int, int] | None = None

    @property
    def topic_partitions(self) -> set[TopicPartition]:
        """Partitions of the rows that state theirs."""
        return {where for group in self.groups for where in group.topic_partitions}

    @property
    def is_ordered(self) -> bool:
        """True if each row has topic, partition and offset."""
        return {"offset", "partition"} <= self.columns.keys() and all(one.topic_partitions for one in self.groups)


def survey(path: str, names: Mapping[str, str], topic: str | None) -> ParquetFacts:
    """Return the facts about a file; `names` maps parts to columns with other names.

    The suffix selects the format: `.arrow`; `.jsonl`, `.ndjson` and `.json`; otherwise Parquet. Raises FormatError for
    a file of another format, and for one that is not as its export wrote it; IllegalArgument for columns that are
    missing or of wrong types; StorageError.
    """
    version = _version(path)
    check_exported(path)
    look = _survey_parquet
    if path.lower().endswith(LINES):
        look = _survey_lines
    elif path.lower().endswith(ARROW):
        look = _survey_arrow
    return replace(look(path, names, topic), version=version)


def _survey_parquet(path: str, names: Mapping[str, str], topic: str | None) -> ParquetFacts:
    with _parquet_file(path) as file:
        columns = _columns(file.schema_arrow, names, path)
        file_topic = topic or _topic_of(path, columns)
        numbers = (one for one in range(file.num_row_groups) if file.metadata.row_group(one).num_rows)
        groups = tuple(_group_facts(file, number, columns, file_topic) for number in numbers)
    return ParquetFacts(path, columns, file_topic, groups)


def _survey_arrow(path: str, names: Mapping[str, str], topic: str | None) -> ParquetFacts:
    with _arrow_file(path) as file:
        columns = _columns(file.schema, names, path)
        file_topic = topic or _topic_of(path, columns)
        tables = (_arrow_group(file, number, path) for number in range(file.num_record_batches))
        found = ((number, table) for number, table in enumerate(tables) if table.num_rows)
        groups = tuple(_table_facts(number, table, columns, file_topic) for number, table in found)
    return ParquetFacts(path, columns, file_topic, groups)


def _survey_lines(path: str, names: Mapping[str, str], topic: str | None) -> ParquetFacts:
    if names:
        raise IllegalArgument("the field names of JSON lines are fixed", path=path, hint="omit --column")
    columns = {part: part for part in RECORD_COLUMNS}
    topic = topic or _topic_of_lines(path)
    groups: list[GroupFacts] = []
    places: list[tuple[int, int]] = []
    for start, stop, table in line_tables(path):
        groups.append(_table_facts(len(groups), table, columns, topic))
        places.append((start, stop))
    return ParquetFacts(path, columns, topic, tuple(groups), tuple(places))


def _topic_of(path: str, columns: Mapping[str, str]) -> str | None:
    found = _TOPIC.search(path)
    return validate_topic(found[1]) if found and "topic" not in columns else None


def _topic_of_lines(path: str) -> str | None:
    """Return the topic in the path of a file of lines, none of which names its own; None without one."""
    topic = _topic_of(path, {})
    has_own = topic is None or any(table["topic"].null_count < table.num_rows for _, _, table in line_tables(path))
    return None if has_own else topic


def _table_facts(number: int, table: pa.Table, columns: Mapping[str, str], topic: str | None) -> GroupFacts:
    """Return the facts about a group's rows."""
    first = pc.min(table[columns["offset"]]).as_py() if "offset" in columns else None
    missing = "offset" in columns and table[columns["offset"]].null_count
    topic_partitions = () if missing or "partition" not in columns else _partitions_in_table(table, columns, topic)
    return GroupFacts(number, topic_partitions, -1 if first is None else int(first))


def _columns(schema: pa.Schema, names: Mapping[str, str], path: str) -> dict[str, str]:
    columns = {}
    for part in RECORD_COLUMNS:
        name = names.get(part, part)
        if name not in schema.names:
            if part in names or part == "value":
                nearest = closest_match(name, schema.names)
                meant = f"did you mean {nearest}? " if nearest else ""
                raise IllegalArgument(
                    f"there is no column {name!r} for the {part}", path=path,
                    hint=f"{meant}columns are {', '.join(schema.names[:20])}",
                )  # fmt: skip
            continue
        if schema.names.count(name) > 1:
            raise IllegalArgument(
                f"there are {schema.names.count(name)} columns {name!r}", path=path, hint="give each its own name"
            )
        kind = schema.field(name).type
        is_valid = str(kind) in _KINDS[part] if part in _KINDS else True
        if part == "timestamp":
            is_valid = pa.types.is_timestamp(kind) or pa.types.is_int64(kind)
            _ = getattr(kind, "tz", None)  # raises for a damaged zone, which is read later too
        if not is_valid:
            raise IllegalArgument(
                f"column {name!r} of type {kind} cannot be the {part}", path=path, hint="cast it, or name another"
            )
        if f"{name}_error" in schema.names and name == part and part in ("key", "value"):
            raise IllegalArgument(
                f"column {name!r} was exported decoded: it is null where the bytes did not decode", path=path,
                hint="import an export without decoders",
            )  # fmt: skip
        columns[part] = name
    return columns


def _group_facts(file: pq.ParquetFile, number: int, columns: Mapping[str, str], topic: str | None) -> GroupFacts:
    """Return the facts about a row group by its rows: pyarrow ends the process at damaged statistics that are asked."""
    wanted = [columns[part] for part in ("offset", "partition", "topic") if part in columns]
    if not wanted:
        return GroupFacts(number, (), -1)
    return _table_facts(number, file.read_row_group(number, list(dict.fromkeys(wanted))), columns, topic)


def _partitions_in_table(table: pa.Table, columns: Mapping[str, str], topic: str | None) -> tuple[TopicPartition, ...]:
    """Return the partitions of the rows in a table; empty if the rows do not state them."""
    parts = _place_columns(columns, topic)
    if parts is None:
        return ()
    return _partitions_in_rows(table.select(parts).group_by(parts).aggregate([]).to_pylist(), columns, topic)


def _place_columns(columns: Mapping[str, str], topic: str | None) -> list[str] | None:
    """Return the columns with topic and partition; None without a column for the topic."""
    if topic is not None:
        return [columns["partition"]]
    return [columns["topic"], columns["partition"]] if "topic" in columns else None


def _partitions_in_rows(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], topic: str | None
) -> tuple[TopicPartition, ...]:
    found = set()
    for row in rows:
        row_topic = topic if topic is not None else row[columns["topic"]]
        if row_topic is None or row[columns["partition"]] is None:
            return ()
        found.add(TopicPartition(validate_topic(row_topic), validate_partition(int(row[columns["partition"]]))))
    return tuple(sorted(found))


def unordered_rows(facts: ParquetFacts) -> Iterator[pa.Table]:
    """Yield all rows of a file as tables with the columns of records, in file order."""
    if facts.path.lower().endswith((*LINES, ARROW)):
        for group in facts.groups:
            yield _as_records(read_group(facts, group.number), facts)
        return
    _check_version(facts)
    with _parquet_file(facts.path) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=list(facts.columns.values())):
            yield _as_records(pa.Table.from_batches([batch]), facts)


def read_group(facts: ParquetFacts, number: int) -> pa.Table:
    """Return the rows of one group as a table with the mapped columns.

    FormatError, also for a file that was changed or replaced since its survey; StorageError.
    """
    _check_version(facts)
    names = list(dict.fromkeys(facts.columns.values()))
    if facts.path.lower().endswith(LINES):
        return read_lines(facts.path, *facts.places[number]).select(names)
    if facts.path.lower().endswith(ARROW):
        with _arrow_file(facts.path) as file:
            return _arrow_group(file, number, facts.path).select(names)
    with _parquet_file(facts.path) as file:
        return file.read_row_group(number, columns=names)


def ordered_rows(where: TopicPartition, files: Iterable[ParquetFacts]) -> Iterator[pa.Table]:
    """Yield the rows of one partition in all files, in the order of their offsets, as tables.

    Row groups that overlap in offsets are merged. Raises IllegalArgument for a duplicate offset, and if files overlap
    so much that the waiting rows exceed MAX_HELD_BYTES.
    """
    groups = sorted(
        ((group.first_offset, facts.path, group.number, facts) for facts in files for group in facts.groups
         if where in group.topic_partitions),
        key=lambda one: one[:3],
    )  # fmt: skip
    pending: pa.Table | None = None
    last = -1
    for n, (_, path, number, facts) in enumerate(groups):
        table = _rows_of(where, read_group(facts, number), facts)
        pending = table if pending is None else pa.concat_tables([pending, table], promote_options="permissive")
        pending = pending.sort_by("offset")
        next_first = groups[n + 1][0] if n + 1 < len(groups) else 1 << 63
        offsets = pending["offset"].to_numpy()
        ready = int(offsets.searchsorted(next_first)) if next_first < 1 << 63 else len(offsets)
        out, pending = pending.slice(0, ready), pending.slice(ready)
        if ready:
            _check_rising(offsets[:ready], last, where, path)
            last = int(offsets[ready - 1])
            yield out
        if pending.nbytes > MAX_HELD_BYTES:
            raise IllegalArgument(
                f"rows of {where} are spread over files in no order of offsets", path=path,
                hint="sort the files by offset, or import without offsets",
            )  # fmt: skip


def _check_rising(offsets: NDArray[np.int64], last: int, where: TopicPartition, path: str) -> None:
    for offset in (int(offsets[0]), int(offsets[-1])):
        if not 0 <= offset <= MAX_OFFSET:
            raise IllegalArgument(
                f"{where} has a row with the invalid offset {offset}", path=path, offset=offset,
                hint="import without offsets: --offsets new",
            )  # fmt: skip
    if offsets[0] <= last or (offsets[1:] <= offsets[:-1]).any():
        duplicates = offsets[1:][offsets[1:] <= offsets[:-1]]
        offset = int(offsets[0] if offsets[0] <= last else duplicates[0])
        raise IllegalArgument(
            f"{where} has a duplicate offset", path=path, offset=offset, hint="omit files with the same records"
        )


def _rows_of(where: TopicPartition, table: pa.Table, facts: ParquetFacts) -> pa.Table:
    """Return the rows of the partition in a table, as columns of records."""
    mask = pc.equal(table[facts.columns["partition"]], where.partition)
    if facts.topic is None:
        mask = pc.and_(mask, pc.equal(table[facts.columns["topic"]], where.topic))
    return _as_records(table.filter(mask), facts, but=("topic", "partition"))


def _as_records(rows: pa.Table, facts: ParquetFacts, but: tuple[str, ...] = ()) -> pa.Table:
    """Return the mapped columns, except those in `but`, under their names, with the types of records and ms."""
    table = pa.table({part: rows[name] for part, name in facts.columns.items() if part not in but})
    for at, part in enumerate(table.schema.names):
        try:
            table = table.set_column(at, part, _as_part(part, table[part]))
        except pa.ArrowInvalid as error:
            raise IllegalArgument(
                f"column {facts.columns[part]!r} has a value that cannot be a {part}: {error}", path=facts.path,
                hint="correct it, or leave the column out",
            ) from None  # fmt: skip
    return table


def _as_part(part: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with the type of a part of records; pyarrow.ArrowInvalid for a value beyond it."""
    if part in _WHOLE:
        return column.cast(_WHOLE[part])
    if part in ("key", "value"):  # bytes, which are compared with those of a log
        is_large = column.type in (pa.large_string(), pa.large_binary())
        return column.cast(pa.large_binary() if is_large else pa.binary())
    if part == "timestamp" and pa.types.is_timestamp(column.type):
        unit = pa.timestamp("ms", column.type.tz)
        return column.cast(unit, safe=column.type.unit == "s").cast(pa.int64())  # finer times are cut
    return column


@contextmanager
def _reading(path: str, kind: str) -> Iterator[None]:
    """Raise FormatError or StorageError for an error of Arrow or the system while a file is read."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise FormatError(f"not {kind} file: {error}", path=path, hint="check the file") from None
    except OSError as error:
        if error.errno is None:  # Arrow's own, about the bytes
            raise FormatError(f"the file is damaged: {error}", path=path, hint="write it again") from None
        raise StorageError.from_os(error, "read the input", path=path) from error


@contextmanager
def _parquet_file(path: str) -> Iterator[pq.ParquetFile]:
    """Open a file; its pages are compared with their checksums, if it has them, as those of an export have."""
    with _reading(path, "a Parquet"), pa.OSFile(os.fsencode(path), "rb") as source:
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            yield file


@contextmanager
def _arrow_file(path: str) -> Iterator[pa.ipc.RecordBatchFileReader]:
    with _reading(path, "an Arrow"), pa.OSFile(os.fsencode(path), "rb") as source, pa.ipc.open_file(source) as file:
        yield file


def _arrow_group(file: pa.ipc.RecordBatchFileReader, number: int, path: str) -> pa.Table:
    """Return a record batch of a file as a table; FormatError for offsets at which Arrow would read outside of it."""
    batch = file.get_batch(number)
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise FormatError(f"the file is damaged: {error}", path=path, hint="write it again") from None
    return pa.Table.from_batches([batch])


def _version(path: str) -> tuple[int, int]:
    with os_errors("read the input", path):
        status = OS.stat(path)
    return status.st_size, status.st_mtime_ns


def _check_version(facts: ParquetFacts) -> None:
    """Raise FormatError if a file is not the one that was surveyed: it may have other groups, which would be missed."""
    if facts.version is not None and _version(facts.path) != facts.version:
        raise FormatError(
            "the file was changed after the import had looked at it", path=facts.path,
            hint="run the import again while no one writes to its input",
        )  # fmt: skip

"""The manifest of an export: it lists what the directory holds of each partition, so that nothing is written twice.

An export's directory contains `_kafkalog_export` (readers of tables skip names with an underscore). In it are
`manifest.jsonl`, `lock`, and `staging/<run>/` with files that tasks are writing. A task writes and syncs its Parquet
files there, then one small `.done` file with their names and the range of offsets that they hold. The driver adds such
ranges to the manifest (synced: this is the commit), renames their files into place, and records that in the manifest.

The next run recovers from any kill. It renames the files of ranges in the manifest, adds ranges with a `.done` file to
the manifest, and deletes and re-exports everything else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import DirectoryLocked, FormatError, IllegalArgument
from kafkalog.exchange.intervals import OffsetSet
from kafkalog.exchange.last_records import LastRecord
from kafkalog.exchange.settled_types import parsed_types, types_document
from kafkalog.storage.names import validate_partition, validate_topic
from kafkalog.types import TopicPartition
from kafkalog.util.closing import Closing
from kafkalog.util.file_lock import open_locked
from kafkalog.util.fileio import OS, File, FileSystem, atomic_write, make_directories
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.log.settled import Settled

VERSION: Final = 1
OWN: Final = "_kafkalog_export"
MANIFEST: Final = "manifest.jsonl"
DONE_SUFFIX: Final = ".done"
MAX_BYTES: Final = 1 << 30
"""Largest manifest that is read: a range of 100 MB takes about 300 bytes in it."""
_PLACE: Final = re.compile(r"topic=[\w.-]+/(?:date=[\w-]+/)?[\w.-]+\.(?:parquet|arrow|jsonl)", re.ASCII)
_STAGED: Final = re.compile(r"[\w-]+/[\w.-]+\.(?:parquet|arrow|jsonl)", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Settings that must be the same in all runs of one export."""

    columns: tuple[str, ...]
    isolation: str
    by_date: bool
    format: str = "parquet"
    where: str | None = None
    key: str | None = None
    value: str | None = None
    on_undecodable: str | None = None


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """An exported file: its place below the export's directory, its place in staging, its records and bytes.

    Exports of earlier versions have no checksums.
    """

    place: str
    staged: str
    records: int
    bytes: int
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class ExportedRange:
    """Offsets [start, stop) of a partition, `log_bytes` of log, and the files with their records.

    A range may have no files: all its records were aborted or compacted away. `topic_id` is None if the partition's
    directory does not state it. `last` is its last record, None if there was none to be had, or in exports of earlier
    versions.
    """

    topic: str
    partition: int
    start: int
    stop: int
    log_bytes: int
    topic_id: str | None
    files: tuple[ExportedFile, ...]
    last: LastRecord | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition of the range."""
        return TopicPartition(self.topic, self.partition)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(file.records for file in self.files)


class ExportDirectory(Closing):
    """Directory of one export, opened by the only driver that may write to it; a context manager that closes it.

    `ranges` are the committed ranges, `exported` their offsets; `types` has by topic what settles the columns of its
    decoders. Only one thread may use it.
    """

    def __init__(self, path: str, settings: ExportSettings, *, fs: FileSystem = OS) -> None:
        """Open the export in `path`, or begin one if there is nothing; finish what a killed run left.

        Raises StorageError; DirectoryLocked if another driver exports to it; IllegalArgument for a directory that holds
        something else, or an export with other settings; FormatError for an unreadable manifest.
        """
        self.path = os.path.abspath(path)
        self.settings = settings
        self.ranges: list[ExportedRange] = []
        self.exported: dict[TopicPartition, OffsetSet] = {}
        self.types: dict[str, Settled] = {}
        self._fs = fs
        self._own = os.path.join(self.path, OWN)
        self._published = 0
        self._end = 0
        self.run = uuid.uuid4().hex
        with os_errors("open the export's directory", self.path):
            self._check_is_export()
            make_directories(fs, self._own)
            self._lock = self._take_lock()
        try:
            self._open_locked()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Delete this run's staged files and release the directory's lock."""
        if not self._lock.closed:
            shutil.rmtree(self.staging, ignore_errors=True)
            self._lock.close()

    @property
    def staging(self) -> str:
        """Directory in which the tasks of this run write."""
        return os.path.join(self._own, "staging", self.run)

    def commit_staged(self) -> list[ExportedRange]:
        """Commit the ranges that tasks have finished and return them; ranges already exported are left out."""
        with os_errors("move files into the export", self.path):
            return self._commit(self._staged_ranges())

    def add_types(self, types: Mapping[str, Settled]) -> None:
        """Note what settles the columns of topics, for the runs to come; raise StorageError."""
        new = {topic: settled for topic, settled in types.items() if settled.keys() - self.types.get(topic, {}).keys()}
        if new:
            with os_errors("write the export's manifest", self.path):
                self._append(b"".join(_line(types_document(topic, settled)) for topic, settled in new.items()))
            self.types |= new

    def _check_is_export(self) -> None:
        if is_export(self.path, fs=self._fs) or not self._fs.exists(self.path):
            return
        unknown = sorted(name for name in self._fs.names(self.path) if name != OWN)
        if unknown:
            raise IllegalArgument(
                f"the directory has {_some_of(unknown)} and is not an export of kafkalog",
                path=self.path,
                hint="choose a missing or empty directory, or an export to continue",
            )

    def _take_lock(self) -> File:
        file = open_locked(self._fs, os.path.join(self._own, "lock"), "create")
        if file is None:
            raise DirectoryLocked(
                "another job is exporting into this directory", path=self.path, hint="wait, or choose another directory"
            )
        return file

    def _open_locked(self) -> None:
        with os_errors("open the export", self.path):
            if is_export(self.path, fs=self._fs):
                self._read()
            else:
                self._create()
            self._publish()
            self._commit(self._staged_ranges())
            shutil.rmtree(os.path.join(self._own, "staging"), ignore_errors=True)
            make_directories(self._fs, self.staging)

    # The manifest

    @property
    def manifest(self) -> str:
        """Path of the manifest."""
        return os.path.join(self._own, MANIFEST)

    def _create(self) -> None:
        settings = {name: value for name, value in asdict(self.settings).items() if value is not None}
        line = _line({"kafkalog_export": VERSION, **settings})
        atomic_write(self._fs, self.manifest, line)
        self._end = len(line)

    def _read(self) -> None:
        content = self._fs.read_file(self.manifest, MAX_BYTES)
        lines = _whole_lines(content, self.manifest)
        self._end = sum(map(len, lines)) + len(lines)
        for number, line in enumerate(lines, 1):
            try:
                document = json.loads(line)
                if number == 1:
                    self._check_settings(document)
                elif "published" in document:
                    self._published = _whole_number(document, "published", len(self.ranges))
                elif "types" in document:
                    self.types.update([parsed_types(document)])
                else:
                    self._add(_range(document))
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                if number == 1 and isinstance(error, IllegalArgument):
                    raise
                raise _unreadable(number, error, self.manifest) from None

    def _check_settings(self, document: Any) -> None:
        if document["kafkalog_export"] != VERSION:
            raise ValueError(f"version {document['kafkalog_export']!r} is not supported, {VERSION} is")
        stored = {"columns": tuple(document["columns"]), **{n: document[n] for n in ("isolation", "by_date")}}
        stored["format"] = document.get("format", "parquet")  # earlier versions did not store it
        stored |= {name: document.get(name) for name in ("where", "key", "value", "on_undecodable")}
        for name, value in asdict(self.settings).items():
            if stored[name] != value:
                there, here = _format_value(stored[name]), _format_value(value)
                raise IllegalArgument(
                    f"the directory has an export with {name} {there}, not {here}",
                    path=self.path,
                    hint=f"use the same {name}, or export into another directory",
                )

    def _add(self, one: ExportedRange) -> None:
        self.exported.setdefault(one.topic_partition, OffsetSet()).add(one.start, one.stop)
        self.ranges.append(one)

    def _append(self, lines: bytes) -> None:
        with self._fs.open_file(self.manifest, "rw") as file:
            file.truncate(self._end)
            file.pwrite(lines, self._end)
            file.sync()
        self._end += len(lines)

    # From staging to the manifest, and to the places

    def _staged_ranges(self) -> list[ExportedRange]:
        """Return the ranges that tasks of this run and of dead runs have finished, in the order of offsets."""
        found = []
        staging = os.path.join(self._own, "staging")
        for run in sorted(self._fs.names(staging)) if self._fs.exists(staging) else ():
            directory = os.path.join(staging, run)
            for name in sorted(self._fs.names(directory)):
                if name.endswith(DONE_SUFFIX):
                    found.append(self._done_range(os.path.join(directory, name)))
        return sorted(found, key=lambda one: (one.topic_partition, one.start, one.stop))

    def _done_range(self, path: str) -> ExportedRange:
        try:
            return _range(json.loads(self._fs.read_file(path, MAX_BYTES)))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise FormatError(
                f"the file of a finished task cannot be read: {error}", path=path,
                hint="delete it: the next run exports its records again",
            ) from None  # fmt: skip

    def _commit(self, staged: Iterable[ExportedRange]) -> list[ExportedRange]:
        """Commit ranges; of two tasks that finished the same range (a retry, speculation) the first counts."""
        seen: dict[TopicPartition, OffsetSet] = {}
        accepted = []
        for one in staged:
            where = one.topic_partition
            known = seen.setdefault(where, OffsetSet(self.exported.get(where, ())))
            if not known.overlaps(one.start, one.stop):
                known.add(one.start, one.stop)
                accepted.append(one)
        if accepted:
            self._append(b"".join(_line(asdict(one)) for one in accepted))
            for one in accepted:
                self._add(one)
        self._publish()
        return accepted

    def _publish(self) -> None:
        """Rename the files of committed ranges into place; some may be in place since before a crash or failure."""
        if self._published == len(self.ranges):
            return
        directories = set()
        for file in (file for one in self.ranges[self._published :] for file in one.files):
            place = os.path.join(self.path, file.place)
            directory = os.path.dirname(place)
            if directory not in directories:
                make_directories(self._fs, directory)
                directories.add(directory)
            try:
                self._fs.rename(os.path.join(self._own, "staging", file.staged), place)
            except FileNotFoundError:
                if not self._fs.exists(place):
                    raise FormatError(
                        f"{file.staged}, which a killed run left in staging, is missing",
                        path=self.path,
                        hint="it was removed: export into another directory",
                    ) from None
        for directory in directories:
            self._fs.fsync_dir(directory)
        self._append(_line({"published": len(self.ranges)}))
        self._published = len(self.ranges)


def is_export(path: str, *, fs: FileSystem = OS) -> bool:
    """Return True if the directory has an export's manifest."""
    return fs.exists(manifest_path(path))


def manifest_path(path: str) -> str:
    """Return the path of the manifest of an export in `path`."""
    return os.path.join(path, OWN, MANIFEST)


def exported_files(path: str, *, fs: FileSystem = OS) -> dict[str, ExportedFile]:
    """Return the files of the export in `path` by their places; raise OSError, and FormatError for its manifest."""
    manifest = manifest_path(path)
    found = {}
    for number, line in enumerate(_whole_lines(fs.read_file(manifest, MAX_BYTES), manifest), 1):
        try:
            document = json.loads(line)
            if "files" in document:
                found.update({file.place: file for file in _range(document).files})
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise _unreadable(number, error, manifest) from None
    return found


def _whole_lines(content: bytes, manifest: str) -> list[bytes]:
    """Return the lines of a manifest; raise FormatError without any: its first one is there from the start."""
    lines = content.split(b"\n")
    lines.pop()  # a line truncated by a crash was never committed
    if not lines:
        raise _unreadable(1, ValueError("it is cut off"), manifest)
    return lines


def write_done(staging: str, name: str, exported: ExportedRange) -> None:
    """Record, for a task, that the files of a range are staged, complete and synced."""
    atomic_write(OS, os.path.join(staging, name + DONE_SUFFIX), _line(asdict(exported)))


def _some_of(names: list[str]) -> str:
    """Return three of the names, and the number of the others."""
    text = ", ".join(names[:3])
    return f"{text} and {len(names) - 3} more" if len(names) > 3 else text


def _unreadable(number: int, error: Exception, manifest: str) -> FormatError:
    return FormatError(
        f"line {number} of the export's manifest cannot be read: {error}", path=manifest,
        hint="restore the manifest, or export into another directory: its content is unknown without it",
    )  # fmt: skip


def _line(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _range(document: Any) -> ExportedRange:
    """Parse a range; raise ValueError, TypeError or LookupError for an invalid document."""
    files = tuple(
        ExportedFile(
            _checked_name(_PLACE, file["place"]), _checked_name(_STAGED, file["staged"]),
            _whole_number(file, "records"), _whole_number(file, "bytes"),
            None if file.get("crc32c") is None else _whole_number(file, "crc32c"),
        )
        for file in document["files"]
    )  # fmt: skip
    topic_id = document["topic_id"]
    if not (topic_id is None or isinstance(topic_id, str)):
        raise ValueError("topic_id is not a string")
    start = _whole_number(document, "start")
    stop = _whole_number(document, "stop")
    if stop <= start:
        raise ValueError(f"the range [{start}, {stop}) is empty")
    topic, partition = validate_topic(document["topic"]), validate_partition(document["partition"])
    found = document.get("last")
    last = None if found is None else LastRecord(_whole_number(found, "offset"), _whole_number(found, "crc32c"))
    return ExportedRange(topic, partition, start, stop, _whole_number(document, "log_bytes"), topic_id, files, last)


def _whole_number(document: Mapping[str, object], name: str, limit: int = 2**63 - 1) -> int:
    value = document[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise ValueError(f"{name} is {value!r}")
    return value


def _checked_name(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None or "/../" in f"/{value}/":
        raise ValueError(f"{value!r} is not a file name of an export")
    return value

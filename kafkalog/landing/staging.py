"""Staged files: output of one attempt of a task, in the data directory until a commit appends it.

    kafkalog-stage.<job>.<batch>.<task>.<attempt>.<random>      (with .tmp while it is being written)

    magic, 8 bytes
    sections: v2 batches back to back, of one partition each; those of a partition are in the order of its records
    index: JSON, a list of [topic, partition, position, size, records, crc32c]
    trailer, 32 bytes: position and size of the index, its crc32c, 4 zero bytes, magic

They are plain files: a broker, and kafkalog's own passes over a data directory, ignore them.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import CorruptStagedFile, IllegalArgument, KafkalogError, StorageError
from kafkalog.storage.names import validate_partition, validate_topic
from kafkalog.types import TopicPartition
from kafkalog.util.closing import Closing
from kafkalog.util.fileio import OS, TMP_SUFFIX, File, FileSystem
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.util.buffers import Data

SECTION_BYTES: Final = 4 << 20
"""Bytes of one partition that are collected before they are written as a section."""
BUFFERED_BYTES: Final = 64 << 20
"""Bytes of all partitions of a task that are collected before all are written."""
MAX_INDEX_BYTES: Final = 256 << 20
MAX_SECTION_BYTES: Final = 1 << 31
ONLY_BATCH: Final = 0
"""Number of the batch in a job with only one."""
MAGIC: Final = b"KLSTAGE1"
_TRAILER: Final = struct.Struct(">qqI4x8s")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,120}")
_NAME: Final = re.compile(
    r"kafkalog-stage\.(?P<kind>query|job)-(?P<id>[A-Za-z0-9_-]{1,120})\.(?P<batch>\d{1,19})\.\d{1,10}\.\d{1,19}\."
    r"[0-9a-f]{8}(?:\.tmp)?"
)


class Job(NamedTuple):
    """A writer: a streaming query by its id, or a batch write by its job's id."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.id}"

    @classmethod
    def query(cls, query_id: str) -> Job:
        """Return the streaming query with that id; raise IllegalArgument for an id that a file name cannot contain."""
        return cls("query", _checked_id(query_id))

    @classmethod
    def batch(cls, job_id: str) -> Job:
        """Return the batch write with that id; raise IllegalArgument as `query` does."""
        return cls("job", _checked_id(job_id))


def _checked_id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise IllegalArgument(
            f"{ascii(text[:80])} is not a job id", hint="jobId has 1 to 120 of a-z A-Z 0-9 _ and -, as a UUID has"
        )
    return text


def parse_job(text: str) -> Job:
    """Parse the text of a job, as `str` returns it; raise ValueError for anything else."""
    kind, dash, name = text.partition("-")
    if kind not in ("query", "job") or not dash or not _ID.fullmatch(name):
        raise ValueError(f"{ascii(text[:80])} is not a job")
    return Job(kind, name)


class StagedName(NamedTuple):
    """Job and batch in a staged file's name."""

    job: Job
    batch_id: int


def parse_name(name: str) -> StagedName | None:
    """Return the job and batch of a staged file's name; None for any other name."""
    found = _NAME.fullmatch(name)
    return None if found is None else StagedName(Job(found["kind"], found["id"]), int(found["batch"]))


class StagedFile(NamedTuple):
    """A finished staged file, as a commit message and an intent name it; the index's checksum covers all of it."""

    name: str
    size: int
    index_crc: int
    records: int


class Section(NamedTuple):
    """Batches of one partition, back to back: their place in the staged file, and their checksum."""

    topic_partition: TopicPartition
    position: int
    size: int
    records: int
    crc: int


class StageWriter:
    """One attempt's staged file, created for the first batches. Only one thread at a time may use it."""

    def __init__(
        self, directory: str, job: Job, batch_id: int, task: int, attempt: int, *, fs: FileSystem = OS
    ) -> None:
        self.name = f"kafkalog-stage.{job}.{batch_id}.{task}.{attempt}.{os.urandom(4).hex()}"
        if parse_name(self.name) is None:
            raise IllegalArgument(f"{ascii(self.name)} is not a name for a staged file")
        self.directory = directory
        self.records = 0
        self._path = os.path.join(directory, self.name)
        self._fs = fs
        self._file: File | None = None
        self._end = 0
        self._waiting: dict[TopicPartition, list[Data]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        self._records: dict[TopicPartition, int] = {}
        self._buffered = 0
        self._sections: list[Section] = []

    def add(self, topic_partition: TopicPartition, batches: Any, records: int | None = None) -> None:
        """Add v2 batches of a partition, back to back, after its earlier ones; the buffer is kept, not copied.

        `records` is their number; None has them counted. Raises StorageError (also for a full disk), after which only
        `abandon` may be called.
        """
        size = len(batches)
        if not size:
            return
        if records is None:
            records = scan(batches, check_crc=False).record_count
        self._records[topic_partition] = self._records.get(topic_partition, 0) + records
        self._waiting.setdefault(topic_partition, []).append(batches)
        gathered = self._bytes[topic_partition] = self._bytes.get(topic_partition, 0) + size
        self._buffered += size
        if gathered >= SECTION_BYTES:
            self._write((topic_partition,))
        elif self._buffered >= BUFFERED_BYTES:
            self._write(tuple(self._waiting))

    def finish(self) -> StagedFile | None:
        """Finish and sync the file under its name and return it; None if nothing was added. Raises StorageError."""
        self._write(tuple(self._waiting))
        file = self._file
        if file is None:
            return None
        index = json.dumps([[*one.topic_partition, *one[1:]] for one in self._sections], separators=(",", ":")).encode()
        crc = crc32c(index)
        try:
            file.pwrite(index, self._end)
            size = self._end + len(index)
            size += file.pwrite(_TRAILER.pack(self._end, len(index), crc, MAGIC), size)
            file.sync()
            file.close()
            self._fs.rename(self._path + TMP_SUFFIX, self._path)
            self._fs.fsync_dir(self.directory)
        except OSError as error:
            raise self._failed(error) from error
        return StagedFile(self.name, size, crc, self.records)

    def abandon(self) -> None:
        """Delete what was written; files that cannot be deleted expire later. May be called at any time."""
        file, self._file = self._file, None
        with suppress(OSError):
            if file is not None:
                file.close()
            self._fs.unlink_if_exists(self._path + TMP_SUFFIX)
            self._fs.unlink_if_exists(self._path)

    def _write(self, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            buffers = self._waiting.pop(key)
            size = self._bytes.pop(key)
            records = self._records.pop(key)
            self._buffered -= size
            try:
                file = self._file
                if file is None:
                    file = self._file = self._fs.open_file(self._path + TMP_SUFFIX, "exclusive")
                    self._end = file.pwrite(MAGIC, 0)
                start, crc = self._end, 0
                for buffer in buffers:
                    crc = crc32c(buffer, crc)
                    self._end += file.pwrite(buffer, self._end)
            except OSError as error:
                raise self._failed(error) from error
            self.records += records
            self._sections.append(Section(key, start, size, records, crc))

    def _failed(self, error: OSError) -> StorageError:
        return StorageError.from_os(error, "stage records", path=self._path)


class StageReader(Closing):
    """A staged file that a commit reads. Only one thread at a time may use it."""

    def __init__(self, directory: str, staged: StagedFile, *, fs: FileSystem = OS) -> None:
        """Open the file; raise CorruptStagedFile if it is missing or changed since the task, or StorageError."""
        self.path = os.path.join(directory, staged.name)
        try:
            self._file = fs.open_file(self.path, "r")
        except FileNotFoundError:
            raise self._damaged("the staged file is missing") from None
        except OSError as error:
            raise StorageError.from_os(error, "read a staged file", path=self.path) from error
        try:
            self.sections = self._read_index(staged)
        except BaseException:
            self._file.close()
            raise

    def read(self, section: Section) -> bytearray:
        """Return the batches of a section; raise CorruptStagedFile or StorageError."""
        data = self._bytes(section.size, section.position)
        if crc32c(data) != section.crc:
            raise self._damaged(
                f"the checksum of the section of {section.size} bytes for {section.topic_partition} does not match",
                position=section.position,
            )
        return data

    def close(self) -> None:
        """Close the descriptor."""
        self._file.close()

    def _read_index(self, staged: StagedFile) -> tuple[Section, ...]:
        with os_errors("read a staged file", self.path):
            size = self._file.size()
        if size != staged.size:
            raise self._damaged(f"the staged file has {size} bytes, but its task wrote {staged.size}")
        at = size - _TRAILER.size
        if at < len(MAGIC) or self._bytes(len(MAGIC), 0) != MAGIC:
            raise self._damaged("it does not begin like a staged file", position=0)
        position, length, crc, magic = _TRAILER.unpack(self._bytes(_TRAILER.size, at))
        if magic != MAGIC or not 0 <= length <= MAX_INDEX_BYTES or position + length != at or crc != staged.index_crc:
            raise self._damaged("the trailer of the staged file differs from what its task wrote", position=at)
        index = self._bytes(length, position)
        if crc32c(index) != crc:
            raise self._damaged("the checksum of the staged file's index does not match", position=position)
        try:
            return tuple(_sections(json.loads(index), position))
        except (ValueError, TypeError, RecursionError, KafkalogError) as error:
            raise self._damaged(f"the index of the staged file: {error}", position=position) from None

    def _bytes(self, size: int, position: int) -> bytearray:
        data = bytearray(size)
        with os_errors("read a staged file", self.path):
            read = self._file.pread_into(data, position)
        if read != size:
            raise self._damaged(f"the staged file ends after {position + read} bytes", position=position)
        return data

    def _damaged(self, message: str, *, position: int | None = None) -> CorruptStagedFile:
        return CorruptStagedFile(message, path=self.path, position=position)


def _sections(found: Any, end: int) -> Iterator[Section]:
    """Yield the sections in an index; raise ValueError, TypeError or a KafkalogError for anything no task writes."""
    at = len(MAGIC)
    for topic, partition, position, size, records, crc in found:
        if not all(type(number) is int and number >= 0 for number in (partition, position, size, records, crc)):
            raise ValueError("a field is not a number")
        if position != at or not 0 < size <= MAX_SECTION_BYTES or position + size > end:
            raise ValueError(f"a section of {size} bytes at {position}, but the next begins at {at}")
        at += size
        yield Section(
            TopicPartition(validate_topic(topic), validate_partition(partition)), position, size, records, crc
        )
    if at != end:
        raise ValueError(f"the sections end at {at}, but the index begins at {end}")


def sweep(
    directory: str, *, landed: StagedName | None = None, before_s: float | None = None,
    keep: frozenset[str] = frozenset(), fs: FileSystem = OS,
) -> int:  # fmt: skip
    """Delete staged files of a job up to the batch `landed`, and those older than `before_s`; return their number.

    `before_s` is in seconds since 1970; `keep` are names that stay. Files that cannot be deleted stay for the next
    sweep. The caller holds the directory's lock.
    """
    removed = 0
    try:
        names = fs.names(directory)
    except OSError:
        return 0
    for name in names:
        whose = parse_name(name)
        if whose is None or name in keep:
            continue
        path = os.path.join(directory, name)
        try:
            is_landed = landed is not None and whose.job == landed.job and whose.batch_id <= landed.batch_id
            if is_landed or (before_s is not None and fs.stat(path).st_mtime < before_s):
                removed += fs.unlink_if_exists(path)
        except OSError:
            continue
    return removed

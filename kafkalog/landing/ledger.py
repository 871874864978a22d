"""The ledger: a file in the data directory that lists the batches that landed and the one that is about to.

    {"version": 1, "producer": [id, epoch], "marks": {"query-...": [batch, ms], "job-...": [0, ms]}, "intent": null}
    crc32c of the line above, 8 hex digits

The holder of the directory's lock replaces and syncs the whole file. An intent names staged files and, for each
partition, the log's end when the intent was written. From then on the batch will land: the next holder of the lock
appends what is missing before anything else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import CorruptCheckpoint, KafkalogError
from kafkalog.landing.staging import Job, StagedFile, parse_job, parse_name
from kafkalog.manager.topics import check_partitions
from kafkalog.storage.names import validate_partition, validate_topic
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors, read_if_present

LEDGER_FILE: Final = "kafkalog.spark-ledger.json"
VERSION: Final = 1
MAX_MARKS: Final = 10_000
"""Most jobs remembered, those that landed last."""
MAX_FILE_BYTES: Final = 64 << 20
MAX_EPOCH: Final = 2**15 - 1
_MAX_LONG: Final = 2**63 - 1
_HINT: Final = (
    "restore it from a copy, or move it away once no staged files are left: without it, a committed batch "
    "that is run again after a crash is written twice"
)


class Producer(NamedTuple):
    """Producer of the batches of one commit: no two commits have the same id and epoch."""

    id: int
    epoch: int

    def next(self) -> Producer:
        """Return the producer of the next commit: its epoch is new, so that its sequences begin at 0 everywhere."""
        return fresh_producer() if self.epoch >= MAX_EPOCH else Producer(self.id, self.epoch + 1)


def fresh_producer() -> Producer:
    """Return a producer that no log knows: its id is random, and far from those that a broker assigns."""
    return Producer(2**62 + int.from_bytes(os.urandom(8), "big") % 2**62, 0)


class Mark(NamedTuple):
    """Last batch of a job that landed, and its time (ms)."""

    batch_id: int
    committed_ms: int


class Target(NamedTuple):
    """A partition of an intent: `records` will land in it, of which `landed` are before `start_offset` already.

    `start_offset` is the log end when the intent was written: the batch's next record, if it landed, has that offset.
    """

    topic_partition: TopicPartition
    start_offset: int
    landed: int
    records: int


class Intent(NamedTuple):
    """A batch that is about to land. `make` is the partitions that topics must have, `keep` requests a mark."""

    job: Job
    batch_id: int
    keep: bool
    producer: Producer
    files: tuple[StagedFile, ...]
    targets: tuple[Target, ...]
    make: Mapping[str, int]


class Ledger(NamedTuple):
    """Content of the file. A batch landed if the mark of its job has its number or a higher one."""

    producer: Producer
    marks: Mapping[Job, Mark]
    intent: Intent | None = None

    def landed(self, job: Job, batch_id: int) -> bool:
        """Return True if all of a batch is in the logs."""
        mark = self.marks.get(job)
        return mark is not None and batch_id <= mark.batch_id

    def intending(self, intent: Intent) -> Ledger:
        """Return this ledger with a batch that is about to land."""
        return self._replace(producer=intent.producer, intent=intent)

    def done(self, now_ms: int) -> Ledger:
        """Return this ledger after its intent was written to the logs and synced."""
        intent = self.intent
        assert intent is not None
        done = self._replace(intent=None)
        return done.marked(intent.job, intent.batch_id, now_ms) if intent.keep else done

    def marked(self, job: Job, batch_id: int, now_ms: int) -> Ledger:
        """Return this ledger with a mark for a batch that landed."""
        marks = {one: mark for one, mark in self.marks.items() if one != job}
        marks[job] = Mark(batch_id, now_ms)
        return self._replace(marks=newest_marks(marks))


def newest_marks(marks: Mapping[Job, Mark]) -> dict[Job, Mark]:
    """Return the `MAX_MARKS` marks set last, by their order and not by their times."""
    return dict(list(marks.items())[-MAX_MARKS:])


def ledger_path(directory: str) -> str:
    """Return the path of a data directory's ledger."""
    return os.path.join(directory, LEDGER_FILE)


def read_ledger(directory: str, *, fs: FileSystem = OS) -> Ledger:
    """Read the ledger of a data directory, an empty one if it is missing. Raises CorruptCheckpoint, StorageError."""
    path = ledger_path(directory)
    content = read_if_present(path, MAX_FILE_BYTES, "read the sink's ledger", fs)
    if content is None:
        return Ledger(fresh_producer(), {})
    try:
        return parse_ledger(content)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, KafkalogError) as error:
        raise CorruptCheckpoint(f"the sink's ledger is damaged: {error}", path=path, hint=_HINT) from None


def write_ledger(directory: str, ledger: Ledger, *, fs: FileSystem = OS) -> None:
    """Replace the ledger; a crash leaves either the old one or this one, complete.

    Raises StorageError: then the old ledger is in place, or this one if only its name could not be synced, and
    `read_ledger` returns which. The caller holds the directory's lock.
    """
    path = ledger_path(directory)
    with os_errors("write the sink's ledger", path):
        atomic_write(fs, path, format_ledger(ledger))


def format_ledger(ledger: Ledger) -> bytes:
    """Return the file's content."""
    found = {
        "version": VERSION,
        "producer": ledger.producer,
        "marks": {str(job): mark for job, mark in ledger.marks.items()},
        "intent": None if ledger.intent is None else _intent_fields(ledger.intent),
    }
    line = json.dumps(found, separators=(",", ":")).encode()
    return b"%b\n%08x\n" % (line, crc32c(line))


def _intent_fields(intent: Intent) -> dict[str, object]:
    return {
        "job": str(intent.job),
        "batch": intent.batch_id,
        "keep": intent.keep,
        "producer": intent.producer,
        "files": intent.files,
        "targets": [[*one.topic_partition, *one[1:]] for one in intent.targets],
        "make": dict(intent.make),
    }


def parse_ledger(content: bytes) -> Ledger:
    """Parse a file's content.

    Raises ValueError, TypeError, LookupError, AttributeError or a KafkalogError for anything that `format_ledger` does
    not write.
    """
    line, _, rest = content.partition(b"\n")
    if rest != b"%08x\n" % crc32c(line):
        raise ValueError("its checksum does not match")
    found = json.loads(line)
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValueError(f"its version is not {VERSION}")
    marks = {parse_job(job): Mark(*numbers(mark, 2)) for job, mark in found["marks"].items()}
    intent = found["intent"]
    return Ledger(_producer(found["producer"]), marks, None if intent is None else _intent(intent))


def _producer(fields: Iterable[Any]) -> Producer:
    producer = Producer(*numbers(fields, 2))
    if producer.epoch > MAX_EPOCH:
        raise ValueError(f"{producer.epoch} is not a producer epoch")
    return producer


def _intent(found: Any) -> Intent:
    (batch_id,) = numbers([found["batch"]], 1)
    return Intent(
        parse_job(found["job"]),
        batch_id,
        found["keep"] is True,
        _producer(found["producer"]),
        tuple(staged_file(fields) for fields in found["files"]),
        tuple(_target(fields) for fields in found["targets"]),
        {validate_topic(topic): partition_count(count) for topic, count in found["make"].items()},
    )


def staged_file(fields: Any) -> StagedFile:
    """Return the staged file with these fields; raise ValueError or TypeError for invalid ones."""
    name, *rest = fields
    if not isinstance(name, str) or parse_name(name) is None:
        raise ValueError(f"{ascii(name)[:80]} is not the name of a staged file")
    return StagedFile(name, *numbers(rest, 3))


def _target(fields: Any) -> Target:
    topic, *rest = fields
    partition, start, landed, records = numbers(rest, 4)
    if landed > records:
        raise ValueError(f"{landed} of {records} records landed")
    return Target(TopicPartition(validate_topic(topic), validate_partition(partition)), start, landed, records)


def partition_count(count: Any) -> int:
    """Return the stored number of partitions; raise InvalidPartitions for anything else."""
    check_partitions(count)
    return int(count)


def numbers(fields: Iterable[Any], count: int) -> list[int]:
    """Return `count` whole numbers of at least 0 that fit 63 bits; raise ValueError for anything else."""
    found = list(fields)
    if len(found) != count or not all(type(one) is int and 0 <= one <= _MAX_LONG for one in found):
        raise ValueError(f"{ascii(found)[:80]}: expected {count} whole numbers")
    return found

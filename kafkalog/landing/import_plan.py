"""Plan of an import that keeps offsets: a file in the data directory that decides what will land.

    kafkalog-import.<job>.json
    {"targets": [[topic, partition, first, end, [name, size, crc32c, records]], ...], "partitions": {"topic": count},
     "keep": whether the ledger remembers the job}

The file is written once all is staged, and deleted once all is in the logs and synced. Until then the staged files that
it names are kept.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkalog.errors import FormatError, KafkalogError, StorageError
from kafkalog.landing.ledger import numbers, partition_count, staged_file
from kafkalog.landing.staging import Job, StagedFile, parse_job
from kafkalog.storage.names import validate_partition, validate_topic
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors

MAX_BYTES: Final = 256 << 20
_NAME: Final = re.compile(r"kafkalog-import\.(job-[A-Za-z0-9_-]{1,120})\.json")


class KeptTarget(NamedTuple):
    """Offsets [first, end) of a partition, and the staged file with their batches, in order."""

    topic_partition: TopicPartition
    first: int
    end: int
    file: StagedFile


class ImportPlan(NamedTuple):
    """An import: `partitions` is the number that each topic must have; `keep` requests a mark in the ledger."""

    job: Job
    targets: tuple[KeptTarget, ...]
    partitions: Mapping[str, int]
    keep: bool

    @property
    def files(self) -> frozenset[str]:
        """Names of its staged files."""
        return frozenset(target.file.name for target in self.targets)


def has_plans(directory: str, *, fs: FileSystem = OS) -> bool:
    """Return True if an import is decided but not completely in the logs; raise StorageError."""
    return bool(_names(directory, fs))


def read_plans(directory: str, *, fs: FileSystem = OS) -> list[ImportPlan]:
    """Return the open plans in order of their job names; raise StorageError, and FormatError for a damaged plan."""
    return [_read(os.path.join(directory, name), parse_job(job), fs) for name, job in sorted(_names(directory, fs))]


def write_plan(directory: str, plan: ImportPlan, *, fs: FileSystem = OS) -> None:
    """Decide an import by writing its plan. Raises StorageError. The caller holds the directory's lock."""
    found = {
        "targets": [[*one.topic_partition, one.first, one.end, one.file] for one in plan.targets],
        "partitions": dict(plan.partitions), "keep": plan.keep,
    }  # fmt: skip
    path = _path(directory, plan)
    with os_errors("write the import plan", path):
        atomic_write(fs, path, json.dumps(found).encode())


def remove_plan(directory: str, plan: ImportPlan, *, fs: FileSystem = OS) -> None:
    """Delete the plan of an import that is in the logs. Raises StorageError. The caller holds the directory's lock."""
    path = _path(directory, plan)
    with os_errors("remove the import plan", path):
        fs.unlink_if_exists(path)
        fs.fsync_dir(directory)


def _path(directory: str, plan: ImportPlan) -> str:
    return os.path.join(directory, f"kafkalog-import.{plan.job}.json")


def _names(directory: str, fs: FileSystem) -> list[tuple[str, str]]:
    """Return the names of the plans' files, each with its job's name."""
    with os_errors("look for import plans", directory):
        names = fs.names(directory)
    return [(found[0], found[1]) for found in map(_NAME.fullmatch, names) if found is not None]


def _read(path: str, job: Job, fs: FileSystem) -> ImportPlan:
    try:
        found = json.loads(fs.read_file(path, MAX_BYTES))
        targets = tuple(
            KeptTarget(TopicPartition(validate_topic(topic), validate_partition(number)), first, end, staged_file(file))
            for topic, number, *bounds, file in found["targets"]
            for first, end in [numbers(bounds, 2)]
        )
        partitions = {validate_topic(topic): partition_count(count) for topic, count in found["partitions"].items()}
        return ImportPlan(job, targets, partitions, found["keep"] is True)
    except OSError as error:
        raise StorageError.from_os(error, "read the import plan", path=path) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, KafkalogError) as error:
        raise FormatError(
            f"the import plan is damaged: {error}", path=path,
            hint="restore it; or delete it and the partitions that the import started to write, and import again",
        ) from None  # fmt: skip

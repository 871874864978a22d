"""Staged batches that keep their offsets, into partitions that were empty: by the driver, under the directory's lock.

What lands is written down first, in `kafkalog-import.<job>.json` in the data directory. From then on it lands: a batch
that is in its log already is known by its offset, so whoever comes next goes on where the log ends. The file goes when
all is in the logs and on disk, and the sink's ledger remembers the job.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kafkalog._core.scan import BatchTable, scan
from kafkalog.api import open as open_log
from kafkalog.creating import check_name_is_free
from kafkalog.errors import FormatError, IllegalState, KafkalogError, StorageError
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.topics import TopicStore
from kafkalog.opening import open_for_append
from kafkalog.spark.jobs.task_stage import ONLY_BATCH, check_partitions_wanted
from kafkalog.spark.ledger import Mark, numbers, read_ledger, write_ledger
from kafkalog.spark.staging import Job, StagedFile, StagedName, StageReader, parse_job, parse_name, sweep
from kafkalog.spark.topic_layout import partition_path
from kafkalog.storage.names import validate_partition, validate_topic
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS, atomic_write

__all__ = ["KeptTarget", "finish_imports", "is_empty", "land_with_offsets"]

APPEND_BYTES: Final = 1 << 20
MOST_BYTES: Final = 256 << 20
_NAME: Final = re.compile(r"kafkalog-import\.(job-[A-Za-z0-9_-]{1,120})\.json")


class KeptTarget(NamedTuple):
    """Offsets [first, end) of a partition, and the staged file that has their batches, in order."""

    topic_partition: TopicPartition
    first: int
    end: int
    file: StagedFile


def is_empty(directory: str, where: TopicPartition) -> bool:
    """Whether a partition is missing, or has no record and never had one."""
    path = partition_path(directory, where)
    if not os.path.isdir(path):
        return True
    with open_log(path) as log:
        return log.end_offset == 0


def land_with_offsets(directory: str, job: Job, targets: Sequence[KeptTarget], partitions: dict[str, int]) -> int:
    """How many offsets landed; `partitions` is how many each topic has to have.

    IllegalState where a target is not empty any more, TopicExists; nothing is changed then. StorageError: from the
    moment that the plan is written the rest lands with the next import.
    """
    with LogDir.acquire(directory):
        for target in targets:
            if not is_empty(directory, target.topic_partition):
                raise IllegalState(
                    f"{target.topic_partition} is not empty any more: its records cannot have offsets of their own",
                    path=directory, hint="import without offsets, or into another directory",
                )  # fmt: skip
        for topic in partitions:
            check_name_is_free([directory], topic, directory, OS)
        plan = {"targets": [[*one.topic_partition, one.first, one.end, one.file] for one in targets],
                "partitions": partitions}  # fmt: skip
        path = os.path.join(directory, f"kafkalog-import.{job}.json")
        _write(path, json.dumps(plan).encode())
        _finish(directory, job, path, targets, partitions)
    return sum(one.end - one.first for one in targets)


def finish_imports(directory: str) -> None:
    """Lands what a killed import had decided; errors as for `land_with_offsets`, FormatError for a damaged plan."""
    if not any(_NAME.fullmatch(name) for name in OS.names(directory)):
        return
    with LogDir.acquire(directory):
        for name in sorted(OS.names(directory)):
            found = _NAME.fullmatch(name)
            if found is not None:
                path = os.path.join(directory, name)
                targets, partitions = _read(path)
                _finish(directory, parse_job(found[1]), path, targets, partitions)


def _write(path: str, content: bytes) -> None:
    try:
        atomic_write(OS, path, content)
    except OSError as error:
        raise StorageError.from_os(error, "write the plan of the import", path=path) from error


def _read(path: str) -> tuple[list[KeptTarget], dict[str, int]]:
    try:
        found = json.loads(OS.read_file(path, MOST_BYTES))
        targets = [
            KeptTarget(TopicPartition(validate_topic(topic), validate_partition(number)), first, end, _file(file))
            for topic, number, *bounds, file in found["targets"]
            for first, end in [numbers(bounds, 2)]
        ]
        return targets, {validate_topic(topic): check_partitions_wanted(n) for topic, n in found["partitions"].items()}
    except OSError as error:
        raise StorageError.from_os(error, "read the plan of an import", path=path) from error
    except (ValueError, TypeError, LookupError, RecursionError, KafkalogError) as error:
        raise FormatError(
            f"the plan of an import is damaged: {error}", path=path,
            hint="restore it; or delete it and the partitions that the import had begun, and import again",
        ) from None  # fmt: skip


def _file(fields: Any) -> StagedFile:
    name, *rest = fields
    if not isinstance(name, str) or parse_name(name) is None:
        raise ValueError(f"{ascii(name)[:80]} names no staged file")
    return StagedFile(name, *numbers(rest, 3))


def _finish(
    directory: str, job: Job, path: str, targets: Sequence[KeptTarget], partitions: dict[str, int]
) -> None:
    """Appends what is not in the logs yet, remembers the job, and sweeps."""
    for topic, count in sorted(partitions.items()):
        TopicStore(directory).ensure(topic, partitions=count)
        for number in range(count):
            where = TopicPartition(topic, number)
            opened = open_for_append(partition_path(directory, where))
            try:
                for target in targets:
                    if target.topic_partition == where:
                        _append(directory, opened, target)
            finally:
                opened.close()
    ledger = read_ledger(directory)
    write_ledger(directory, ledger._replace(marks={**ledger.marks, job: Mark(ONLY_BATCH, SYSTEM_CLOCK.milliseconds())}))
    try:
        OS.unlink_if_exists(path)
        OS.fsync_dir(directory)
    except OSError as error:
        raise StorageError.from_os(error, "remove the plan of the import", path=path) from error
    sweep(directory, landed=StagedName(job, ONLY_BATCH))


def _append(directory: str, opened: Any, target: KeptTarget) -> None:
    log = opened.log
    if log.log_end_offset == 0 and target.first > 0:
        log.truncate_fully_and_start_at(target.first)
    end = log.log_end_offset
    if not target.first <= end <= target.end:
        raise _strange(target, end, log.path)
    with StageReader(directory, target.file) as reader:
        for section in reader.sections:
            data = reader.read(section)
            table = scan(data, check_crc=False)
            for first, stop in _groups(table, end):
                if first == stop:
                    raise _strange(target, end, reader.path)
                at = table.position(first)
                last = table.position(stop - 1) + table.size(stop - 1)
                log.append_as_follower(bytes(memoryview(data)[at:last]), 0)


def _groups(table: BatchTable, end: int) -> Iterator[tuple[int, int]]:
    """Rows [first, stop) of about APPEND_BYTES each, of the batches from the offset `end` on.

    An empty group where a batch is there in part: it is not the one that the plan has.
    """
    first = 0
    while first < table.count and table.last_offset_of(first) < end:
        first += 1
    if first < table.count and table.base_offset(first) < end:
        yield first, first
        return
    while first < table.count:
        stop, size = first, 0
        while stop < table.count and (stop == first or size + table.size(stop) <= APPEND_BYTES):
            size += table.size(stop)
            stop += 1
        yield first, stop
        first = stop


def _strange(target: KeptTarget, end: int, path: str) -> IllegalState:
    return IllegalState(
        f"{target.topic_partition} ends at {end}, which is not where an import of offsets {target.first} to "
        f"{target.end - 1} can go on",
        path=path, offset=end,
        hint="somebody wrote to it since the import was killed: delete the partition and the plan, and import again",
    )  # fmt: skip

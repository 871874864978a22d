"""Batches for the sink without Spark: staged like tasks do, committed, and identified in the logs by their values."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.landing.commit import StagedTask, StagedTopic
from kafkalog.landing.staging import Job, StagedFile, StageWriter
from kafkalog.landing.topic_layout import read_layout
from kafkalog.manager.log_dir import LogDir
from kafkalog.records.packing import PLAIN, Compression, pack, parse_compression
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem

NOW_MS = 1_700_000_000_000
QUERY = Job.query("5f2c1b7e-0000-4000-8000-000000000001")
OTHER = Job.query("5f2c1b7e-0000-4000-8000-000000000002")
Records = Mapping[TopicPartition, Sequence[Sequence[bytes]]]
"""For each partition its batches, each the values of its records."""


def key(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def values(name: str, batches: int, each: int = 3) -> list[list[bytes]]:
    """Return so many batches of records, each with a unique value."""
    return [[b"%s %d.%d" % (name.encode(), batch, n) for n in range(each)] for batch in range(batches)]


def stage(
    directory: Path, job: Job, batch_id: int, tasks: Iterable[Records], *, compression: str = "none",
    partitions: int = 1, timestamp_ms: int = NOW_MS, fs: FileSystem = OS,
) -> list[StagedTask]:  # fmt: skip
    """Stage like tasks do; a missing topic is to be created with `partitions`, or as many as are named."""
    codec = PLAIN if compression == "none" else parse_compression(compression)
    staged = []
    for at, task in enumerate(tasks):
        writer = StageWriter(str(directory), job, batch_id, at, at, fs=fs)
        try:
            staged.append(StagedTask(*_written(writer, directory, task, codec, partitions, timestamp_ms, fs)))
        except BaseException:
            writer.abandon()
            raise
    return staged


def _written(
    writer: StageWriter, directory: Path, task: Records, codec: Compression, partitions: int, timestamp_ms: int,
    fs: FileSystem,
) -> tuple[StagedFile | None, dict[str, StagedTopic]]:  # fmt: skip
    topics = {}
    for target, batches in task.items():
        layout = read_layout(str(directory), target.topic, fs=fs)
        most = max(one.partition for one in task if one.topic == target.topic) + 1
        topics[target.topic] = StagedTopic(layout.partitions or max(partitions, most), layout.rules)
        for records in batches:
            plain = encode_batch([(b"k", value) for value in records], timestamp=timestamp_ms)
            packed = pack(plain, codec, limit_bytes=1 << 20) if codec else plain
            writer.add(target, bytearray(packed))
    return writer.finish(), topics


def found(directory: Path, topic: str, partition: int = 0) -> list[bytes]:
    """The values of a partition; none where it is missing."""
    path = directory / f"{topic}-{partition}"
    if not path.exists():
        return []
    with kafkalog.open(path) as log:
        return [bytes(record.value or b"") for record in log]


def flat(batches: Iterable[Iterable[bytes]]) -> list[bytes]:
    return [value for batch in batches for value in batch]


def staged_names(directory: Path) -> list[str]:
    """The staged files that lie there."""
    return sorted(name for name in os.listdir(directory) if name.startswith("kafkalog-stage."))


def _hold(directory: str, held: Any, done: Any) -> None:
    log_dir = LogDir.acquire(directory)
    held.set()
    done.wait(60)
    log_dir.release()


@contextmanager
def locked_elsewhere(directory: Path) -> Iterator[Callable[[], None]]:
    """Another process has the lock of a data directory, until what comes is called."""
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(str(directory), held, done))
    process.start()
    try:
        assert held.wait(60)
        yield done.set
    finally:
        done.set()
        process.join()

"""Tasks that read text: each line that begins in a range of bytes becomes a record, in file order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kafkalog._core.batch.scan import scan
from kafkalog._core.text.ingest import LineEncoder
from kafkalog.errors import FormatError, IllegalArgument, RecordTooLarge
from kafkalog.exchange.sums import check_complete
from kafkalog.landing.commit import StagedTask
from kafkalog.landing.task_stage import Landing, TaskStage
from kafkalog.records.packing import most_plain_bytes, pack
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS, File
from kafkalog.util.os_errors import os_errors, walk

SPLIT_BYTES: Final = 64 << 20
CHUNK_BYTES: Final = 256 << 10
READY_BYTES: Final = 128 << 10
BATCH_BYTES: Final = 16_384
PACKED: Final = (".gz", ".bz2", ".zst", ".xz", ".zip", ".lz4", ".snappy")
"""Suffixes of compressed files, whose bytes are not lines."""


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Options that turn lines into records; see `ingest`."""

    topic: str
    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    batch_bytes: int = BATCH_BYTES


@dataclass(frozen=True, slots=True)
class TextTask:
    """The lines that begin in bytes [start, stop) of a file; `number` is the task's index among all."""

    number: int
    path: str
    start: int
    stop: int
    options: TextOptions
    landing: Landing


def text_tasks(
    paths: Iterable[str], options: TextOptions, landing: Landing, split_bytes: int = SPLIT_BYTES
) -> list[TextTask]:
    """Return tasks for all lines of the files, in their order, which a commit in the order of tasks preserves.

    Raises StorageError for an unreadable file, FormatError for a compressed one.
    """
    tasks: list[TextTask] = []
    for path in paths:
        if path.lower().endswith(PACKED):
            raise FormatError("lines cannot be read from a compressed file", path=path, hint="decompress it first")
        with os_errors("read the input", path), OS.open_file(path, "r") as file:
            size = file.size()
        step = max(size, 1) if overlaps_itself(options.delimiter) else split_bytes
        for start in range(0, size, step):
            tasks.append(TextTask(len(tasks), path, start, min(start + step, size), options, landing))
    return tasks


def stage_lines(task: TextTask) -> StagedTask:
    """Stage the lines of a task. RecordTooLarge names the file and the position of the line; raises StorageError."""
    options = task.options
    with TaskStage(task.landing, task.number) as stage:
        topic = stage.topic(options.topic)
        limit = topic.config.max_message_bytes
        encoder = LineEncoder(
            topic.partitions,
            batch_bytes=min(options.batch_bytes, most_plain_bytes(topic.compression, limit)),
            chunk_bytes=CHUNK_BYTES,
            delimiter=options.delimiter,
            key_delimiter=options.key_delimiter,
        )
        wheres = [TopicPartition(options.topic, number) for number in range(topic.partitions)]

        def stage_ready(least: int) -> None:
            for number, where in enumerate(wheres):
                if encoder.ready_bytes(number) >= least:
                    batches = pack(encoder.take(number), topic.compression, limit_bytes=limit)
                    if scan(batches, check_crc=False).max_batch_size > limit:
                        raise _too_large(task.path, limit)
                    stage.add(where, batches)

        for _ in _feed_file(encoder, task, limit):
            stage_ready(READY_BYTES)
        encoder.seal()
        stage_ready(1)
        return stage.finish()


def _feed_file(encoder: LineEncoder, task: TextTask, limit: int) -> Iterator[None]:
    """Feed the lines of a task to the encoder and yield after each chunk."""
    with os_errors("read the input", task.path), OS.open_file(task.path, "r") as file:
        file.expect_whole_read()
        start, stop = line_bounds(file, task)
        yield from _feed(encoder, file, start, stop, limit)


def _feed(encoder: LineEncoder, file: File, start: int, stop: int, limit: int) -> Iterator[None]:
    buffer = bytearray(CHUNK_BYTES)
    have = 0
    at = start
    while at < stop:
        if have == len(buffer):
            if have > limit:
                raise _too_large(file.path, limit, at - have)
            buffer.extend(bytes(len(buffer)))
        want = min(len(buffer) - have, stop - at)
        with memoryview(buffer) as view:
            read = file.pread_into(view[have : have + want], at)
        if read < want:
            raise shorter(file.path, at + read)
        at += read
        have += read
        used = encoder.feed(buffer, have, SYSTEM_CLOCK.milliseconds(), final=at == stop)
        have -= used
        buffer[:have] = buffer[used : used + have]
        yield


def line_bounds(file: File, task: TextTask) -> tuple[int, int]:
    """Return the bytes [start, stop) of a task's lines; raise FormatError if the file shrank since it was planned."""
    size = file.size()
    if size < task.stop:
        raise FormatError(
            f"the file has {size} bytes, but had at least {task.stop} when the job was planned",
            path=task.path, hint="run the job again while no one writes to its input",
        )  # fmt: skip
    delimiter = task.options.delimiter
    return line_start(file, task.start, size, delimiter), line_start(file, task.stop, size, delimiter)


def shorter(path: str, position: int) -> FormatError:
    """Return the error for a file that ends before the lines of a task."""
    return FormatError("the file shrank while it was read", path=path, position=position)


def line_start(file: File, at: int, size: int, delimiter: bytes) -> int:
    """Return the start of the first line at or after `at`; `size` without one."""
    if at == 0 or at >= size:
        return min(at, size)
    position = max(0, at - len(delimiter))
    kept = b""
    while position < size:
        data = kept + file.pread(min(CHUNK_BYTES, size - position), position)
        base = position - len(kept)
        found = data.find(delimiter)
        if found >= 0:
            return base + found + len(delimiter)
        position = base + len(data)
        kept = data[len(data) - len(delimiter) + 1 :] if len(delimiter) > 1 else b""
    return size


def overlaps_itself(delimiter: bytes) -> bool:
    """Return True if matches of the delimiter depend on where the search begins; such text is read from its start."""
    return any(delimiter.startswith(delimiter[n:]) for n in range(1, len(delimiter)))


def _too_large(path: str, limit: int, position: int | None = None) -> RecordTooLarge:
    return RecordTooLarge(
        f"a line needs a batch of more than {limit} bytes (max.message.bytes)", path=path, position=position,
        hint="check the delimiter, or raise max.message.bytes of the topic",
    )  # fmt: skip


def check_text(options: TextOptions, split_bytes: int) -> None:
    """Raise IllegalArgument for options with which no text can be read."""
    if not options.delimiter or options.key_delimiter == b"":
        raise IllegalArgument("a delimiter is empty", hint="give at least one character")
    if split_bytes < 1:
        raise IllegalArgument(f"split_bytes is {split_bytes}", hint="give 1 or more")
    if not 512 <= options.batch_bytes <= 1 << 30:
        raise IllegalArgument(f"batch_bytes is {options.batch_bytes}", hint="give 512 to 1073741824")



def files_of(paths: Iterable[str]) -> list[str]:
    """Return the files that paths name: files as given, and all files below directories, by name.

    Names that begin with `_` or `.` are skipped, as in Spark. Raises StorageError; FormatError for a directory without
    files, and for an export with missing files.
    """
    found: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        before = len(found)
        check_complete(path)
        for folder, folders, names in walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
            found += (os.path.join(folder, name) for name in sorted(names) if not name.startswith(("_", ".")))
        if len(found) == before:
            raise FormatError("the directory has no files", path=path, hint="name files, or a directory with files")
    return found

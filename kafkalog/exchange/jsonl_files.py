"""One task of an export: a range of a log to JSON lines, as `kafkalog consume -J` prints records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from kafkalog.errors import StorageError
from kafkalog.exchange.manifest import ExportedFile, ExportedRange
from kafkalog.exchange.planning import ExportTask
from kafkalog.reading.chunks import Chunk, batch_chunks, visible_chunks
from kafkalog.reading.source import skipped_of
from kafkalog.storage.damage import Skipped
from kafkalog.tools.consume.templates import json_lines
from kafkalog.tools.consume.text import write_records, write_rows
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from kafkalog.exchange.typed_lines import Lines
    from kafkalog.log.log import Log


def export_lines(task: ExportTask, skipped: list[Skipped] | None = None) -> ExportedRange:
    """Write and sync the files of a range and record it; raise as `Log.records` does, and StorageError.

    `skipped` receives what the task's `on_damage` leaves out.
    """
    name = task.new_name()
    paths: list[str] = []
    try:
        return task.record_done(name, _files(task, name, paths, skipped_of(task.on_damage, skipped)))
    except BaseException as error:
        for path in paths:
            with suppress(OSError):  # the next run that opens the export removes it
                os.unlink(path)
        if isinstance(error, OSError):
            raise StorageError.from_os(error, "write JSON lines", path=task.staging) from error
        raise


def _selected_files(
    task: ExportTask, name: str, paths: list[str], skipped: list[Skipped] | None
) -> Iterator[ExportedFile]:
    """Write the records that match the export's condition, or all of them decoded, and yield the files."""
    from kafkalog.exchange.typed_lines import typed_lines

    with task.open_log() as log:
        options = {"isolation": task.reader_isolation, "on_damage": task.on_damage, "skipped": skipped}
        found = typed_lines(log, task, options) if task.typed else _matching_lines(log, task, options)
        is_done = False
        while not is_done:
            paths.append(os.path.join(task.staging, f"{name}-{len(paths):04d}.jsonl"))
            first, last, records = -1, -1, 0
            with open(paths[-1], "wb", buffering=1 << 20) as out:
                is_done = True
                for lines in found:
                    first = lines.first if first < 0 else first
                    last, records = lines.last, records + lines.records
                    lines.write(out)
                    if out.tell() >= task.file_bytes:
                        is_done = False
                        break
                out.flush()
                OS.fsync(out.fileno())
                size = out.tell()
            if records:
                yield task.staged_file(paths[-1], first, last, records, size)
            else:
                os.unlink(paths.pop())


def _matching_lines(log: Log, task: ExportTask, options: Mapping[str, Any]) -> Iterator[Lines]:
    """Yield the lines of the records that match, as they are stored."""
    from kafkalog.exchange.typed_lines import Lines
    from kafkalog.log.matching import matching_rows
    from kafkalog.log.typed_scan import typed_scan

    part = task.range
    pieces = json_lines(topic=part.topic, partition=part.partition)
    scan = typed_scan(log, part.start, part.stop, ["offset"], {"where": task.settings.where}, options)
    for found in matching_rows(scan):
        offsets, rows = found.table.offsets, found.rows
        yield Lines(
            offsets[rows[0]], offsets[rows[-1]], len(rows), partial(write_rows, found.table, rows, pieces=pieces)
        )


def _files(
    task: ExportTask, name: str, paths: list[str], skipped: list[Skipped] | None
) -> Iterator[ExportedFile]:
    if task.settings.where is not None or task.typed:
        yield from _selected_files(task, name, paths, skipped)
        return
    part = task.range
    pieces = json_lines(topic=part.topic, partition=part.partition)
    committed = task.settings.isolation == "committed"
    with task.open_log() as log:
        chunks = batch_chunks(log._source, part.start, part.stop, skipped=skipped)
        chunks = visible_chunks(log._source, chunks, committed, part.stop, skipped)
        first = part.start
        while first < part.stop:
            paths.append(os.path.join(task.staging, f"{name}-{len(paths):04d}.jsonl"))
            with open(paths[-1], "wb", buffering=1 << 20) as out:
                limited = _Limited(chunks, out, task.file_bytes)
                written = write_records(limited, out, pieces, first_offset=first, end_offset=part.stop)
                out.flush()
                OS.fsync(out.fileno())
                size = out.tell()
            stop = part.stop if limited.is_done else max(first + 1, written.next_offset)
            if written.records:
                yield task.staged_file(paths[-1], first, stop - 1, written.records, size)
            else:
                os.unlink(paths.pop())
            first = stop


class _Limited:
    """Chunks until their output fills a file; `is_done` is True once there are none left."""

    def __init__(self, chunks: Iterator[Chunk], out: BinaryIO, most: int) -> None:
        self.is_done = False
        self._chunks = chunks
        self._out = out
        self._most = most

    def __iter__(self) -> Iterator[Chunk]:
        while self._out.tell() < self._most:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.is_done = True
                return
            yield chunk

"""Export of one part, or of the records before its damage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalog.errors import CorruptRecord, InvalidRecord, KafkalogError, MissingPackage
from kafkalog.exchange.jsonl_files import export_lines
from kafkalog.log.scan import LogScan
from kafkalog.reading.chunks import IN_A_BATCH, batch_chunks, batch_of_error
from kafkalog.storage.damage import Skipped, note_skipped
from kafkalog.storage.undecided import HiddenEnd

if TYPE_CHECKING:
    from kafkalog.exchange.planning import ExportTask


_UNDECODABLE_HINT: Final = (
    "export into another directory with a schema that fits, or with on_undecodable='null', which gives null, and the "
    "reason in a column of its own"
)


def export_part(task: ExportTask, skipped: list[Skipped] | None) -> CorruptRecord | None:
    """Write the files of a part; at damage, write the records before it and return the error.

    `skipped` receives what the task's `on_damage` leaves out: also batches with a right checksum that break the format.
    Raises InvalidRecord for a record that does not decode, or breaks the format, and writes nothing then, or only what
    lies behind a batch left out; as `Log.records` does; StorageError; MissingPackage without pyarrow.
    """
    try:
        _write_around(task, skipped)
    except InvalidRecord as error:
        if error.path is None:
            error.path = task.range.directory
        if "on_undecodable" in (error.hint or ""):
            error.hint = _UNDECODABLE_HINT  # an export has one such setting
        raise
    except CorruptRecord as error:
        _write_before(task, error, skipped)
        return error
    return None


def _write_around(task: ExportTask, skipped: list[Skipped] | None) -> None:
    """Write a part, around the batches that its `on_damage` leaves out because they break the format.

    The last piece is written first, so that nothing before an error is written: the caller may write that.
    """
    before: list[tuple[ExportTask, ExportTask]] = []
    rest = task
    while rest.range:
        try:
            _write(rest, skipped)
            break
        except IN_A_BATCH as error:
            found = None if skipped is None else _broken_batch(rest, error)
            if skipped is None or found is None:
                raise
            note_skipped(skipped, found)
            stop = min(found.next_offset, task.range.stop)
            before.append((_piece(rest, rest.range.start, found.offset), _piece(rest, found.offset, stop)))
            rest = _piece(rest, stop, task.range.stop)
    for piece, broken in reversed(before):
        broken.record_done(broken.new_name(), [])
        if piece.range:
            _write(piece, skipped)


def _piece(task: ExportTask, start: int, stop: int) -> ExportTask:
    """Return the part of a task with the offsets [start, stop), and its share of the bytes."""
    log_bytes = task.log_bytes * (stop - start) // len(task.range)
    return replace(task, range=replace(task.range, start=start, stop=stop), log_bytes=log_bytes)


def _broken_batch(task: ExportTask, error: KafkalogError) -> Skipped | None:
    """Return the batch that breaks the format, if that is what `error` says; None for another error of a record."""
    part = task.range
    with task.open_log() as log:
        first = max(part.start, error.offset or 0, log.start_offset)
        if error.offset is None or first >= part.stop:
            return None
        found = batch_of_error(batch_chunks(log._source, first, first + 1, skipped=[]), error, part.start)
        if found is not None:
            try:
                for _ in LogScan(log, first, min(found.next_offset, part.stop), on_damage="skip", skipped=[]):
                    pass
            except IN_A_BATCH:
                return found
    return None


def _write_before(task: ExportTask, damage: CorruptRecord, skipped: list[Skipped] | None) -> None:
    if isinstance(damage, HiddenEnd):  # its transaction may begin where committed records end, and that end raises
        if task.range.start < damage.first_offset <= task.range.stop:
            _write(replace(task, range=replace(task.range, stop=damage.first_offset), on_damage="skip"), [])
        return
    end = damage.offset if damage.offset is not None else task.range.start
    if task.range.start < end < task.range.stop:
        _write(replace(task, range=replace(task.range, stop=end)), skipped)
    elif end == task.range.stop:  # the damage follows the log's end, and every read up to the end meets it
        _write(replace(task, on_damage="skip"), [])


def _write(task: ExportTask, skipped: list[Skipped] | None) -> None:
    if task.settings.format == "jsonl":
        export_lines(task, skipped)
        return
    try:
        from kafkalog.exchange.parquet_files import export_range
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"{task.settings.format} files need {error.name}, which is not installed",
            hint="pip install 'kafkalog[arrow]'",
        ) from None
    export_range(task, skipped)

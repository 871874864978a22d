"""Export of one part, or of the records before its damage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalog.errors import CorruptRecord, InvalidRecord, MissingPackage
from kafkalog.exchange.jsonl_files import export_lines

if TYPE_CHECKING:
    from kafkalog.exchange.planning import ExportTask
    from kafkalog.storage.damage import Skipped


_UNDECODABLE_HINT: Final = (
    "export into another directory with a schema that fits, or with on_undecodable='null', which gives null, and the "
    "reason in a column of its own"
)


def export_part(task: ExportTask, skipped: list[Skipped] | None) -> CorruptRecord | None:
    """Write the files of a part; at damage, write the records before it and return the error.

    `skipped` receives what the task's `on_damage` leaves out. Raises InvalidRecord for a record that does not decode,
    or breaks the format, and writes nothing then; as `Log.records` does; StorageError; MissingPackage without pyarrow.
    """
    try:
        _write(task, skipped)
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


def _write_before(task: ExportTask, damage: CorruptRecord, skipped: list[Skipped] | None) -> None:
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

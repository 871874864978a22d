"""Removal of files that are no longer part of a log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.segment import LogSegment
from kafkalog.util.os_errors import os_errors

DELETE_TASK: Final = "delete-file"


class LogRemover:
    """Removes files of a log, with a delay if it has a scheduler."""

    __slots__ = ("_core",)

    def __init__(self, core: LogCore) -> None:
        self._core = core

    def drop_snapshot_locked(self, segment: LogSegment) -> None:
        """Discard the snapshot at the base of a segment that is removed, and its file (LOG-69)."""
        marked = self._core.producers.snapshots.mark_deleted(segment.base_offset)
        if marked is not None:
            self._core.after_unlock.append(lambda: self.delete_later((), (marked,)))

    def delete_later(self, segments: Iterable[LogSegment], files: Iterable[str] = ()) -> None:
        """Delete the files of segments renamed to .deleted, after file.delete.delay.ms if there is a scheduler.

        They stay open for readers that hold an older state of the log.
        """
        core = self._core

        def delete() -> None:
            for segment in segments:
                segment.unlink_files()
            for path in files:
                with os_errors("delete the producer snapshot", path):
                    core.fs.unlink_if_exists(path)

        if core.scheduler is None:
            delete()
        else:
            core.scheduler.schedule(DELETE_TASK, delete, delay_ms=core.config.file_delete_delay_ms)

"""High watermarks as they were when a node of a replica set stopped.

Alone, a log's high watermark is its end. In a set what lies above the checkpoint's may be taken back by the leader, so
that nobody may read it before the leader has told how far it is (PART-12).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, OffsetCheckpoint

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager


def restore_high_watermarks(store: LogManager) -> None:
    """Set each log's high watermark to that of its directory's checkpoint, within the log; its start without one.

    To be called before jobs write the checkpoint anew. CorruptCheckpoint, StorageError.
    """
    known = {
        one.path: OffsetCheckpoint(os.path.join(one.path, HIGH_WATERMARK_FILE), fs=store.fs).read()
        for one in store.online
    }
    for key, log in store.logs.items():
        marks = known.get(os.path.dirname(log.path), {})
        log.high_watermark_follows_end = False
        log.update_high_watermark(marks.get(key, 0))

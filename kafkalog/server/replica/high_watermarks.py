"""High watermarks that a replica set's node had when it stopped.

On a single node, a log's high watermark is its end. In a replica set, the leader may discard records above the
checkpoint's high watermark. So no one may read them before the leader reports its own (PART-12).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, OffsetCheckpoint

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager


def restore_high_watermarks(store: LogManager) -> None:
    """Set each log's high watermark to the one in its directory's checkpoint, within the log; its start without one.

    Call this before jobs rewrite the checkpoint. CorruptCheckpoint, StorageError.
    """
    known = {
        one.path: OffsetCheckpoint(os.path.join(one.path, HIGH_WATERMARK_FILE), fs=store.fs).read()
        for one in store.online
    }
    for key, log in store.logs.items():
        marks = known.get(os.path.dirname(log.path), {})
        log.high_watermark_follows_end = False
        log.update_high_watermark(marks.get(key, 0))

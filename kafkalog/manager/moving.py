"""Move of a partition to another data directory: its future log replaces the current one (MGR-9).

    stop     the current log takes no more writes; the future one must have the same end
    rename   `-future` loses its suffix, then the old directory becomes `-delete`
A failure before the second rename undoes the first, so that there is always one directory of that name. A crash between
the two leaves two complete copies, and the next start reports them.
"""

from __future__ import annotations

import logging
from typing import Final

from kafkalog.errors import CorruptCheckpoint, IllegalState, StorageError
from kafkalog.manager.checkpoints import move_cleaner_offset, record_log_start
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.deletion import rename_for_delete
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import partition_dir_name

_LOG: Final = logging.getLogger(__name__)


def swap(
    source: DataDirectory, target: DataDirectory, current: UnifiedLog, future: UnifiedLog
) -> list[tuple[DataDirectory, Exception]]:
    """Replace `current`, in `source`, by `future`, in `target`; `current` is renamed for its delete.

    High watermark, log start and cleaner offset move with it. IllegalState: the future log does not end where the
    current one does. StorageError, CorruptCheckpoint: nothing was changed. The returned errors occurred after the swap.
    """
    key, name = current.topic_partition, current.name
    future.flush()
    cause = StorageError(f"{key} is moving to another directory: get its log from the manager again", path=current.path)
    current.stop_writes(cause)
    try:
        if future.log_end_offset != current.log_end_offset:
            raise IllegalState(
                f"the future log of {key} ends at {future.log_end_offset}, the current one at {current.log_end_offset}",
                path=future.path,
                hint="copy the rest first",
            )
        future.update_high_watermark(current.high_watermark)
        record_log_start(target.path, future, fs=target.fs)  # after a crash no deleted record may reappear
        unsynced = _rename(source, target, current, future)
    finally:
        if current.name == name:
            current.resume_writes(cause)
    source.unregister((key,))
    target.unregister((key,), is_future=True)
    target.register((future,))
    failures: list[tuple[DataDirectory, Exception]] = [] if unsynced is None else [(source, unsynced)]
    try:
        move_cleaner_offset(source.path, target.path, key, fs=target.fs)
    except (StorageError, CorruptCheckpoint) as error:  # the log is then cleaned from its beginning
        failures.append((source if source.contains(error.path) else target, error))
    _LOG.info("moved %s to %s", key, future.path)
    return failures


def _rename(
    source: DataDirectory, target: DataDirectory, current: UnifiedLog, future: UnifiedLog
) -> StorageError | None:
    before, name = future.name, partition_dir_name(future.topic_partition)
    try:
        future.rename_dir(name)
        unsynced = rename_for_delete(source, current)
    except BaseException:
        if future.name == name:
            future.rename_dir(before)
        raise
    if target.log_dir is not None:
        target.log_dir.partition_closed(before, True)
        target.log_dir.partition_opened(name, True)
    return unsynced

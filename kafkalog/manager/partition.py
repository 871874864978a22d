"""A partition directory of a locked data directory: opened, recovered, or created."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptRecord, NotAPartition, StorageError
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.topics import TopicEntry, TopicStore
from kafkalog.storage.damage import lost_end
from kafkalog.storage.failure import Report
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, parse_base_offset
from kafkalog.storage.partition_metadata import read_partition_metadata, write_partition_metadata
from kafkalog.storage.producer_state import EXPIRATION_MS
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.recovery.kept import KEPT_DIRECTORY
from kafkalog.storage.recovery.next_opening import refuse_loss
from kafkalog.storage.recovery.recover_log import Progress
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors
from kafkalog.util.scheduler import Schedules

_LOG: Final = logging.getLogger(__name__)
_KNOWN_FILES: Final = frozenset({PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT})


class Found(NamedTuple):
    """State of a partition before opening: cleanly closed or not, and its offsets in the directory's checkpoints."""

    is_clean: bool
    log_start_offset: int = 0
    recovery_point: int = 0


NEW: Final = Found(True)


def open_partition(
    log_dir: LogDir,
    path: str,
    config: LogConfig,
    found: Found,
    *,
    make: Callable[[str], object] | None = None,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
    scheduler: Schedules | None = None,
    producer_expiration_ms: int = EXPIRATION_MS,
    progress: Progress | None = None,
    on_disk_failure: Report | None = None,
    keeps_begun_epochs: bool = False,
    refuses_loss: bool = False,
) -> UnifiedLog:
    """Open the log of a partition directory in `log_dir`; recover it if it was not closed cleanly.

    The directory's clean-shutdown marker is removed first. With `make`, which creates the directory at its path, the
    partition is new; if that fails, what was created is removed again. `keeps_begun_epochs` and errors as for
    `UnifiedLog.open`; DirectoryLocked. With `refuses_loss`, missing batches, and those that recovery would discard, are
    looked for before anything changes.
    """
    name = os.path.basename(path)
    if refuses_loss and make is None:
        _refuse_loss(log_dir, path, found, fs)
    # a recovered partition is known as fully as one created here
    log_dir.partition_opened(name, make is not None or not found.is_clean)
    before = frozenset(fs.names(path)) if make is not None and fs.exists(path) else None
    try:
        if make is not None:
            make(path)
        log = UnifiedLog.open(
            path,
            config,
            fs=fs,
            clock=clock,
            scheduler=scheduler,
            log_start_offset=found.log_start_offset,
            recovery_point=0 if found.is_clean else found.recovery_point,
            had_clean_shutdown=found.is_clean,
            producer_expiration_ms=producer_expiration_ms,
            progress=progress,
            on_disk_failure=on_disk_failure,
            keeps_begun_epochs=keeps_begun_epochs,
            high_watermark_follows_end=not keeps_begun_epochs,  # in a replica set, the log start until it is set
            refuses_loss=refuses_loss,
        )
        if make is None and found.recovery_point > log.log_end_offset:
            _LOG.warning("%s: %s", path, lost_end(path, found.recovery_point, log.log_end_offset).message)
        return log
    except BaseException:
        # no record was written: existing data is as complete as before, and a new partition is removed
        log_dir.partition_closed(name, found.is_clean if make is None else _removed(path, before, fs))
        raise


def begin_partition(
    log_dir: LogDir,
    path: str,
    config: LogConfig,
    epoch: int,
    put_id: Callable[[str], object],
    *,
    fs: FileSystem,
    clock: Clock,
    scheduler: Schedules | None,
    producer_expiration_ms: int,
    on_disk_failure: Report,
) -> UnifiedLog:
    """Create a partition directory in `log_dir`, to which `put_id` writes its topic's id, and return its log.

    No directory entry is synced, not even the parent's. Arguments and errors as for `UnifiedLog.begin`; StorageError
    also (EEXIST) if that name exists. After an error, what was created is removed. DirectoryLocked.
    """
    name = os.path.basename(path)
    log_dir.partition_opened(name, True)
    is_made = False
    try:
        fs.mkdir(path)
        is_made = True
        put_id(path)
        return UnifiedLog.begin(
            path, config, epoch, fs=fs, clock=clock, scheduler=scheduler,
            producer_expiration_ms=producer_expiration_ms, on_disk_failure=on_disk_failure,
        )  # fmt: skip
    except BaseException as error:
        log_dir.partition_closed(name, not is_made or _removed(path, None, fs))
        if isinstance(error, OSError):
            raise StorageError.from_os(error, "create the partition directory", path=path) from error
        raise


def _refuse_loss(log_dir: LogDir, path: str, found: Found, fs: FileSystem) -> None:
    """Raise CorruptRecord if batches are missing, or recovery would discard sound ones.

    No marker may vouch for that partition later.
    """
    try:
        refuse_loss(
            path, fs, is_clean=found.is_clean, recovery_point=found.recovery_point,
            log_start_offset=found.log_start_offset,
        )  # fmt: skip
        end = _end_on_disk(path, fs)
        if found.recovery_point > end:
            error = lost_end(path, found.recovery_point, end)
            error.hint = "nothing was changed; a replica or a backup may have them; on_damage='recover' opens without"
            raise error
    except CorruptRecord:
        log_dir.partition_closed(os.path.basename(path), found.is_clean)
        raise


def _end_on_disk(path: str, fs: FileSystem) -> int:
    """Return the offset behind the last sound batch; 0 without segments. StorageError."""
    try:
        with LogView(path, fs=fs) as view:
            return view.log_end_offset
    except NotAPartition:
        return 0


def ensure_topic(
    store: TopicStore,
    topic_partition: TopicPartition,
    siblings: Iterable[tuple[TopicPartition, str]],
    *,
    settings: Mapping[str, object] | None = None,
    topic_id: str | None = None,
    fs: FileSystem = OS,
) -> TopicEntry:
    """Return the topic's entry in the topics file, created or extended so that it has the partition.

    `siblings` are the topic's existing partitions with their directories: a topic that a broker created has partitions
    but no entry, and its id is theirs.
    """
    name, count = topic_partition.topic, topic_partition.partition + 1
    topic = store.get(name)
    if topic is not None:
        return store.ensure(name, partitions=count)
    existing = tuple(siblings)
    if topic_id is None:
        ids = (read_partition_metadata(fs, path) for _, path in existing)
        topic_id = next((one for one in ids if one is not None), None)
    count = max([count, *(other.partition + 1 for other, _ in existing)])
    return store.ensure(name, partitions=count, settings=settings, topic_id=topic_id)


def holds_segments(path: str, fs: FileSystem) -> bool:
    """Return True if `path` is a directory with segment files; False if it is missing or effectively empty.

    NotAPartition for a file, and for a directory that holds other things but no segment.
    """
    try:
        names = fs.names(path)
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise NotAPartition(
            "a file has the name of the partition directory", path=path, hint="move it away, or use another name"
        ) from None
    except OSError as error:
        raise StorageError.from_os(error, "read the partition directory", path=path) from error
    if any(parse_base_offset(name) is not None or name == KEPT_DIRECTORY for name in names):
        return True  # a crash may come after all segments were moved away and before the first new one exists
    unknown = sorted(name for name in names if name.removesuffix(".tmp") not in _KNOWN_FILES)
    if unknown:
        raise NotAPartition(
            f"the directory has no segment files but contains {ascii(unknown[0])}"
            + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""),
            path=path,
            hint="kafkalog writes only into partition directories and empty ones",
        )
    return False


def _removed(path: str, before: frozenset[str] | None, fs: FileSystem) -> bool:
    """Remove a partition that could not be created, except the files `before`; return True on success."""
    try:
        if fs.exists(path):
            for name in fs.names(path):
                if before is None or name not in before:
                    fs.unlink(os.path.join(path, name))
            if before is None:
                fs.rmdir(path)
        return True
    except OSError:
        return False


def make_directory(path: str, topic_id: str, fs: FileSystem) -> None:
    """Create a partition directory with its partition.metadata, and sync the parent's entries as well. StorageError."""
    with os_errors("create the partition directory", path):
        with suppress(FileExistsError):
            fs.mkdir(path)
        fs.fsync_dir(os.path.dirname(path))
    write_partition_metadata(fs, path, topic_id)

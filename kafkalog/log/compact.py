"""The part of `Log` that compacts it: one clean, requested by its owner."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple, Never

from kafkalog.errors import CleaningAborted, IllegalState
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.keywords import unknown_keyword
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.cleaner.types import CleanResult, Progress
    from kafkalog.log.log import Log
    from kafkalog.log.writable import WritableLog
    from kafkalog.util.fileio import FileSystem

_OPTIONS: Final = ("from_start", "roll", "dry_run", "offset_map_bytes", "progress")
OFFSET_MAP_BYTES: Final = 128 << 20
"""log.cleaner.dedupe.buffer.size for one thread; at most the memory that the dirty offsets can need is used."""


def compact(
    log: Log,
    *,
    from_start: bool = False,
    roll: bool = False,
    dry_run: bool = False,
    offset_map_bytes: int = OFFSET_MAP_BYTES,
    progress: Progress | None = None,
    **unknown: Never,
) -> CleanResult:
    """Compact the log, keeping the last record of each key; return the end of the clean part and counters.

    The clean ends before the active segment, the last stable offset, and records that `min.compaction.lag.ms`
    protects, regardless of how dirty the log is; with `roll` the active segment is rolled first. The dirty part
    starts at the offset in the data directory's cleaner checkpoint, which the clean then updates; without such a
    file, or with `from_start`, it starts at the log start. `dry_run` counts the data to be read and written, and
    changes nothing. The map of keys has at most `offset_map_bytes`: if it gets full, the clean ends early, and
    another call continues it. `progress` is called with the counters between chunks. Appends and reads continue
    meanwhile.

    Raises IllegalArgument for a map too small for any key; IllegalState if cleanup.policy lacks compact (records
    without a key would be lost), and while the log is already being cleaned; CorruptRecord, with the log unchanged
    from there on; CleaningAborted if the log was truncated or closed meanwhile; StorageError.

    >>> with kafkalog.open("data/users-0", "a", cleanup_policy="compact") as users:
    ...     info = users.append([(b"u-1", b"old"), (b"u-2", b"only"), (b"u-1", b"new")])
    ...     result = users.compact(roll=True)
    ...     [(record.key, record.value) for record in users]
    [(b'u-2', b'only'), (b'u-1', b'new')]
    """
    if unknown:
        raise unknown_keyword("compact", unknown, _OPTIONS)
    opened = log.opened_for_append()
    return opened.compact(CompactOptions(from_start, roll, dry_run, offset_map_bytes, progress))


class CompactOptions(NamedTuple):
    """Arguments of `Log.compact`."""

    from_start: bool
    roll: bool
    dry_run: bool
    offset_map_bytes: int
    progress: Progress | None


def compact_writable(opened: WritableLog, options: CompactOptions) -> CleanResult:
    """Compact an open partition as `Log.compact` does; it is not closed meanwhile."""
    interrupts = deferred_interrupts()
    with interrupts:  # Ctrl-C takes effect between chunks only, where the log can be released
        if not opened.being_compacted.acquire(blocking=False):
            if opened.closed:
                opened.refuse()
            raise IllegalState(f"log {opened.topic_partition} is already being cleaned", path=opened.path)
        try:
            return _compact(opened, options, interrupts)
        finally:
            opened.being_compacted.release()


def _compact(opened: WritableLog, options: CompactOptions, interrupts: deferred_interrupts) -> CleanResult:
    """Clean the log; split first any segment that needs it."""
    from kafkalog._core.clean.offset_map import SkimpyOffsetMap
    from kafkalog.cleaner.choosing import candidate
    from kafkalog.cleaner.pass_ import LOAD_FACTOR, clean
    from kafkalog.cleaner.splits import after_splits
    from kafkalog.cleaner.types import check_map_bytes
    from kafkalog.manager.checkpoints import read_cleaner_offsets, record_cleaner_offset
    from kafkalog.util.checkpoint import CLEANER_OFFSET_FILE

    log = opened.log
    check_map_bytes(options.offset_map_bytes, LOAD_FACTOR)
    if not log.config.compact:
        hint = 'open it with cleanup_policy="compact"; a clean then removes records without a key'
        raise IllegalState(f"cleanup.policy of {opened.topic_partition} lacks compact", path=opened.path, hint=hint)
    if options.roll and log.active_segment.size:
        log.roll()
    directory, fs, truncations = os.path.dirname(opened.path), log.fs, log.truncation_count_when_idle()
    has_checkpoint = _exists(os.path.join(directory, CLEANER_OFFSET_FILE), fs)
    known = read_cleaner_offsets(directory, fs=fs).get(opened.topic_partition) if has_checkpoint else None
    now_ms = opened.milliseconds()
    to_clean = candidate(log, None if options.from_start else known, now_ms)[0].log
    dirty = max(to_clean.first_uncleanable_offset - to_clean.first_dirty_offset, 1)
    memory = min(options.offset_map_bytes, 24 * (int(dirty / LOAD_FACTOR) + 2))

    def check_done() -> None:
        interrupts.run_pending()
        if opened.closed:
            raise CleaningAborted(f"log {opened.topic_partition} was closed while it was being cleaned")

    def clean_once() -> CleanResult:
        return clean(
            to_clean, SkimpyOffsetMap(memory), now_ms=now_ms, check_done=check_done, progress=options.progress,
            dry_run=options.dry_run,
        )  # fmt: skip

    result = after_splits(clean_once)
    if has_checkpoint and not options.dry_run:
        key, end = opened.topic_partition, result.end_offset

        def is_unchanged() -> bool:
            return log.truncation_count == truncations

        if not record_cleaner_offset(directory, key, end, fs=fs, is_still_valid=is_unchanged):
            reason = f"log {key} was truncated while it was being cleaned"
            raise CleaningAborted(reason, path=opened.path, hint="clean it again")
    return result


def _exists(path: str, fs: FileSystem) -> bool:
    with os_errors("find the cleaner checkpoint", path):
        return fs.exists(path)

"""`kafkalog.open`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from kafkalog.config.topic import key_for
from kafkalog.errors import IllegalArgument, UnknownConfig
from kafkalog.log.keyed import set_key_index, set_key_memory
from kafkalog.log.log import Log
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.keywords import closest_match, not_for_reading

if TYPE_CHECKING:
    from kafkalog.log.open_writable import OnDamage
    from kafkalog.storage.group_commit import Sync
    from kafkalog.storage.recovery.recover_log import RecoveryProgress

_READING: Final = ("path", "mode", "key_index", "key_memory_bytes", "time_ranges", "tiered")
"""Keywords of both modes."""


def open(
    path: str | bytes | os.PathLike[str],
    mode: Literal["r", "a"] = "r",
    *,
    sync: Sync = False,
    on_damage: OnDamage = "recover",
    progress: Callable[[RecoveryProgress], object] | None = None,
    key_index: bool | str | os.PathLike[str] = False,
    key_memory_bytes: int | None = None,
    time_ranges: bool | str | os.PathLike[str] = False,
    tiered: str | os.PathLike[str] | None = None,
    **settings: object,
) -> Log:
    """Open the partition directory `path` (`<data directory>/<topic>-<number>`) and return a `Log`.

    Mode "r" reads: it takes no lock, repairs nothing and never writes; it follows a directory that a broker writes to.
    A URL such as `s3://bucket/data/orders-0` is read in place (docs/remote.md).

    Mode "a" creates the partition or opens it for writing and holds the data directory's lock. It recovers a log that
    was not closed cleanly. Topic settings are keywords (`segment_bytes=1 << 20`, `cleanup_policy="compact"`). `sync` is
    when appends are forced to disk: False (as Kafka: the page cache), True (each append), or an interval in
    milliseconds.

    A background thread flushes rolled segments, and deletes the files of removed segments `file_delete_delay_ms` after
    they were renamed, or when the log is closed. Other background jobs belong to `open_dirs` (docs/config.md).

    `key_index` is a directory for key indexes (docs/keys.md), which look-ups and `build_key_index` then use; default:
    beside the segments. In mode "a" a path, or True, also builds the index of each segment in the background when the
    log rolls. `key_memory_bytes` limits the memory for the keys of the active segment; default: 256 MiB, 8 million
    records; any beyond are searched. `time_ranges` is a directory where queries with an upper bound of time keep the
    times of segments (docs/sql.md), and a background thread in mode "a"; there also True, beside them. Default: memory.

    `tiered`, in mode "r", is the URL or description of a tiered store: the log is read whole (docs/tiered.md).

    Mode "a" creates a missing data directory, but not its parent; if the open fails, it removes the directory again.
    `progress` is called while a log is recovered, with segments and bytes done and in total. If recovery cuts the log
    at damage, it saves intact batches that follow it; with `on_damage="refuse"` the call raises CorruptRecord instead
    and changes nothing (docs/recovery.md).

    Raises PartitionNotFound, NotAPartition, StorageError (permissions); in mode "a" also DirectoryLocked, ConfigError,
    CorruptRecord, CorruptCheckpoint. Raises TypeError for a keyword that is not a setting, with similar names.

    >>> with kafkalog.open("data/clicks-0", "a", segment_bytes=1 << 20) as clicks:
    ...     info = clicks.append([b"first", b"second"])
    >>> with kafkalog.open("data/clicks-0") as clicks:
    ...     [record.value for record in clicks]
    [b'first', b'second']
    """
    if mode == "r":
        given = ["sync"] * (sync is not False) + ["on_damage"] * (on_damage != "recover")
        given += ["progress"] * (progress is not None)
        _refuse_writers([*given, *settings])
        return with_sidecars(Log(_view(path, tiered), None), key_index, time_ranges, key_memory_bytes)
    if mode != "a":
        raise IllegalArgument(f"mode is {mode!r}", hint="use 'r' to read, or 'a' to create or append")
    if tiered is not None:
        raise IllegalArgument("a tiered topic can be opened only for reading", hint="open it with mode 'r'")
    if isinstance(path, str) and "://" in path:
        from kafkalog.storage.remote import refuse_to_write

        refuse_to_write(path)
    from kafkalog.log.background import process_scheduler
    from kafkalog.log.open_writable import open_for_append

    for name in settings:
        _check_setting(name)
    opened = open_for_append(
        path, settings, sync=sync, on_damage=on_damage, progress=progress, scheduler=process_scheduler()
    )
    return with_sidecars(Log(opened.log, opened), key_index, time_ranges, key_memory_bytes)


def with_sidecars(
    log: Log,
    key_index: bool | str | os.PathLike[str],
    time_ranges: bool | str | os.PathLike[str],
    key_memory_bytes: int | None = None,
) -> Log:
    """Return the log with the places of its key indexes and time ranges set; close it if one is refused."""
    try:
        if key_memory_bytes is not None:
            set_key_memory(log, key_memory_bytes)
        if key_index is not False:
            set_key_index(log, key_index)
        if time_ranges is not False:
            from kafkalog.log.pruning import set_time_ranges

            set_time_ranges(log, time_ranges)
    except BaseException:
        log.close()
        raise
    return log


def _refuse_writers(given: list[str]) -> None:
    """Raise IllegalArgument for keywords of mode "a" in mode "r"."""
    if given:
        raise not_for_reading("open", given[0], _READING)


def _view(path: str | bytes | os.PathLike[str], tiered: str | os.PathLike[str] | None) -> LogView:
    if tiered is not None:
        from kafkalog.tiered.open import tiered_view

        return tiered_view(path, tiered)
    if isinstance(path, str) and "://" in path:
        from kafkalog.storage.remote import is_url, view_of

        if is_url(path):
            from kafkalog.tiered.open import place_view

            return place_view(path) or view_of(path)
    return LogView(path)


def _check_setting(name: str) -> None:
    """Raise UnknownConfig (a TypeError) for a keyword that is not a topic setting; suggest a similar name."""
    try:
        key_for(name)
    except UnknownConfig as error:
        nearest = closest_match(name, (*_READING, "sync", "on_damage", "progress"))
        if nearest is not None:
            error.hint = f"did you mean {nearest}?"
        raise

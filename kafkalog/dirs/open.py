"""`kafkalog.open_dirs`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from kafkalog.config.broker import BROKER_TABLE
from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.dirs.sidecars import Sidecars
from kafkalog.errors import IllegalArgument, UnknownConfig
from kafkalog.storage.group_commit import Sync, check_sync
from kafkalog.tools.directories import path_list, refuse_partition
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.keywords import closest_match, not_for_reading
from kafkalog.util.paths import real_path

if TYPE_CHECKING:
    from kafkalog.log.open_writable import OnDamage
    from kafkalog.manager.loading import LoadProgress

Path = str | os.PathLike[str]
_READING: Final = ("dirs", "mode", "key_index", "time_ranges", "tiered")
"""Keywords of both modes."""
_KEYWORDS: Final = (*_READING, "sync", "on_damage", "progress")


def open_dirs(
    dirs: Path | Iterable[Path],
    mode: Literal["r", "a"] = "r",
    *,
    sync: Sync = False,
    on_damage: OnDamage = "recover",
    progress: Callable[[LoadProgress], object] | None = None,
    key_index: bool | Path = False,
    time_ranges: bool | Path = False,
    tiered: Path | None = None,
    **settings: object,
) -> LogDirs:
    """Open the topics in one or several data directories and return a `LogDirs`.

    Mode "r" reads: it takes no lock, repairs nothing and never writes; it follows directories that a broker writes to.
    Directories at URLs (`s3://bucket/data`) are read in place (docs/remote.md).

    Mode "a" opens every partition for writing and holds the directories' locks. It creates missing directories,
    recovers directories that were not closed cleanly, and runs the jobs of a broker: retention, flushing, checkpoints,
    cleaning of compacted topics. Settings are keywords by their broker names (`log_retention_hours=24`,
    `log_segment_bytes=1 << 26`, `log_cleaner_enable=False`); `sync` and `on_damage` are as for `kafkalog.open`.
    `progress` gets a `LoadProgress` while logs are loaded. Logs with copies on other nodes keep their high watermarks.

    `key_index` and `time_ranges` are directories for the sidecars of all logs, as for `kafkalog.open`; in mode "a" also
    True, beside the segments. In mode "a" jobs then build those of closed segments.

    `tiered`, in mode "r", is the URL or description of a tiered store: each partition is read whole (docs/tiered.md).

    Topics have their own settings: from the topics file, or a broker's metadata (`__cluster_metadata-0`). Retention
    skips a topic that is in neither, unless the call sets a retention (`log_retention_*`).

    Raises PartitionNotFound (mode "r": no such directory), NotAPartition, StorageError; in mode "a" also
    DirectoryLocked, ConfigError, CorruptCheckpoint, CorruptRecord (damaged metadata), IllegalState (a partition in two
    directories). Raises TypeError for a keyword that is not a setting, with similar names.

    >>> with open_dirs(["disk1", "disk2"], "a", log_retention_hours=24) as opened:
    ...     opened.create_topic("orders", 4).partitions
    (0, 1, 2, 3)
    """
    sidecars = Sidecars(key_index, time_ranges)
    if tiered is not None:
        return _open_tiered(path_list(dirs), mode, sidecars, tiered)
    if any("://" in path for path in path_list(dirs)):
        return _open_urls(path_list(dirs), mode, sidecars)
    paths = list(dict.fromkeys(real_path(_path_text(path)) for path in path_list(dirs)))
    if not paths:
        raise IllegalArgument("no data directory was given", hint="give at least one path")
    sidecars.check(paths, mode)
    if mode == "r":
        given = ["sync"] * (sync is not False) + ["on_damage"] * (on_damage != "recover")
        given += ["progress"] * (progress is not None)
        if settings or given:
            raise not_for_reading("open_dirs", [*settings, *given][0], _READING)
        return _open_to_read(OS, paths, sidecars)
    if mode != "a":
        raise IllegalArgument(f"mode is {mode!r}", hint="use 'r' to read, or 'a' to create, append and delete")
    check_sync(sync)
    for name in settings:
        _check_setting(name)
    for path in paths:
        with suppress(OSError):  # reported when it is opened
            refuse_partition(path, OS.names(path))
    from kafkalog.dirs.writable import LogStore

    store = LogStore.open(paths, settings, sync=sync, on_damage=on_damage, progress=progress, sidecars=sidecars)
    try:
        return LogDirs(paths, store)
    except BaseException:  # a Ctrl-C
        store.close()
        raise


def _open_urls(urls: list[str], mode: str, sidecars: Sidecars) -> LogDirs:
    from kafkalog.storage.remote import locate_directories, refuse_to_write

    if mode != "r":
        refuse_to_write(*urls)
    fs, paths = locate_directories(urls)
    sidecars.check(paths, mode)
    return _open_to_read(fs, paths, sidecars)


def _open_to_read(fs: FileSystem, paths: list[str], sidecars: Sidecars) -> LogDirs:
    from kafkalog.dirs.readonly import DirsView

    return LogDirs(paths, DirsView(paths, fs=fs, sidecars=sidecars))


def _open_tiered(given: list[str], mode: str, sidecars: Sidecars, tiered: Path) -> LogDirs:
    from kafkalog.tiered.open import located

    if mode != "r":
        raise IllegalArgument("tiered topics can be opened only for reading", hint="open them with mode 'r'")
    if not given:
        raise IllegalArgument("no data directory was given", hint="give at least one path")
    fs, paths = located([_path_text(one) for one in given], tiered)
    sidecars.check(paths, mode)
    return _open_to_read(fs, paths, sidecars)


def _path_text(path: Path) -> str:
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip():
        raise IllegalArgument(f"{path!r} is not a path of a data directory")
    return text


def _check_setting(name: str) -> None:
    """Raise UnknownConfig (a TypeError) for a keyword that is not a setting of a store; suggest a similar name."""
    try:
        BROKER_TABLE.find(name)
    except UnknownConfig as error:
        nearest = closest_match(name, _KEYWORDS)
        if nearest is not None and name.replace("_", ".") not in BROKER_TABLE.refused:
            error.hint = f"did you mean {nearest}?"
        raise

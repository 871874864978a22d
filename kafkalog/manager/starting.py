"""Opening of data directories: their paths, locks, partitions, and logs (MGR-2, MGR-3)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Final

from kafkalog.errors import ConfigError, DirectoryLocked, StorageError
from kafkalog.manager.clean_shutdown import read_broker_epoch
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.inventory import (
    Inventory,
    IsStray,
    PartitionPlace,
    check_no_duplicates,
    set_aside,
    take_inventory,
    without_strays,
)
from kafkalog.manager.loading import DIRECTORY_ERRORS, DirectoryLoader, LoadRules, load_all
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.meta_properties import MetaProperties, check_one_node, read_meta_properties
from kafkalog.util.fileio import FileSystem
from kafkalog.util.filesystems import warn_if_unsafe
from kafkalog.util.interrupts import deferred_interrupts

_LOG: Final = logging.getLogger(__name__)


def directory_paths(dirs: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the real, absolute paths of data directories, each once; ConfigError for an empty one, or none at all."""
    paths = []
    for directory in dirs:
        text = os.fspath(directory)
        if not text.strip():
            raise ConfigError("a data directory's path is empty", hint="give the paths of directories")
        paths.append(os.path.realpath(text))
    if not paths:
        raise ConfigError("no data directory is given", hint="give the path of at least one")
    return list(dict.fromkeys(paths))


def take_directories(dirs: Iterable[str | os.PathLike[str]], fs: FileSystem) -> tuple[DataDirectory, ...]:
    """Lock the directories, creating missing ones; each is then locked or offline.

    DirectoryLocked if one is held elsewhere, IllegalArgument if they belong to different nodes; no lock is kept then.
    StorageError if all are offline.
    """
    directories = tuple(DataDirectory(path, fs=fs) for path in directory_paths(dirs))
    for directory in directories:
        warn_if_unsafe(directory.path, durable=False)
    try:
        for directory in directories:
            try:
                directory.log_dir = LogDir.acquire(directory.path, fs=fs, create=True, exclusive=True)
            except DirectoryLocked:
                raise
            except OSError as error:
                take_offline(directory, error)
        _read_identities(directories)
        check_some_online(directories)
    except BaseException:
        release_all(directories)
        raise
    return directories


def _read_identities(directories: Iterable[DataDirectory]) -> None:
    found: dict[str, MetaProperties] = {}
    for directory in directories:
        if directory.is_online:
            try:
                meta = read_meta_properties(directory.path, directory.fs)
                directory.broker_epoch = read_broker_epoch(directory.path, directory.fs)
            except DIRECTORY_ERRORS as error:
                take_offline(directory, error)
                continue
            if meta is not None:
                directory.directory_id = meta.directory_id
                found[directory.path] = meta
    check_one_node(found)


def take_offline(directory: DataDirectory, error: Exception | None = None) -> None:
    """Take a directory out of use because of `error` (None: already noted); its logs close as a crash would leave them.
    """
    if error is not None:
        directory.note_failure(error)
    _LOG.error("the data directory %s is offline: %s", directory.path, directory.offline_error)
    directory.take_offline()


def check_some_online(directories: Sequence[DataDirectory]) -> None:
    """Raise StorageError, with the reason of each directory, unless a directory is in use."""
    if any(directory.is_online for directory in directories):
        return
    reasons = "; ".join(str(directory.offline_error) for directory in directories)
    error = directories[0].unavailable()
    if len(directories) > 1:
        error = StorageError(f"no data directory can be used: {reasons}", errno=error.errno, hint=error.hint)
    raise error from directories[0].offline_error


def load_directories(
    directories: Sequence[DataDirectory],
    rules: LoadRules,
    strays_in: Callable[[DataDirectory], IsStray | None] = lambda _: None,
) -> dict[str, Inventory]:
    """Open the logs of each directory in use and return the inventories by path.

    Partitions that the rule of `strays_in` selects are renamed first. A directory whose disk fails goes offline.
    NotAPartition, IllegalState (a partition in two directories): nothing was changed. StorageError if no directory is
    left.

    A Ctrl-C drops the logs that no thread has begun with. A second one also waits for the threads: they write into
    directories whose locks are released once this has raised.
    """
    inventories: dict[str, Inventory] = {}
    strays: dict[str, tuple[PartitionPlace, ...]] = {}
    for directory in directories:
        if directory.is_online:
            try:
                found = take_inventory(directory.path, directory.fs)
                inventories[directory.path], strays[directory.path] = without_strays(
                    found, strays_in(directory), directory.fs
                )
            except DIRECTORY_ERRORS as error:
                take_offline(directory, error)
    check_no_duplicates(inventories.values())
    loaders: list[DirectoryLoader] = []
    for directory in directories:
        if directory.is_online:
            try:
                found = set_aside(inventories[directory.path], strays[directory.path], directory.fs)
                inventories[directory.path] = found
                loader = DirectoryLoader(directory, found, rules)
                loader.begin()
                loaders.append(loader)
            except DIRECTORY_ERRORS as error:
                take_offline(directory, error)
    interrupts = deferred_interrupts()
    with interrupts:
        try:
            load_all(loaders, rules.threads, interrupts.run_pending)
        except BaseException:
            for loader in loaders:
                loader.abandon()
            raise
        for loader in loaders:
            _finish(loader)
    check_some_online(directories)
    return {one.path: inventories[one.path] for one in directories if one.is_online}


def _finish(loader: DirectoryLoader) -> None:
    loader.directory.logs = MappingProxyType(loader.logs)
    loader.directory.future_logs = MappingProxyType(loader.future_logs)
    loader.directory.problems = MappingProxyType(loader.problems)
    if loader.failure is not None:
        take_offline(loader.directory, loader.failure)
        return
    try:
        loader.end()
    except DIRECTORY_ERRORS as error:
        take_offline(loader.directory, error)


def release_all(directories: Iterable[DataDirectory]) -> None:
    """Release the locks, even after errors; no marker is written."""
    with deferred_interrupts():
        for directory in directories:
            log_dir, directory.log_dir = directory.log_dir, None
            if log_dir is not None:
                log_dir.withhold_marker()
                log_dir.release()

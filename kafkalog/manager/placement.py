"""Choice of the data directory for a new partition (MGR-4, MGR-7, MGR-8)."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from kafkalog.errors import ConfigError, IllegalArgument, StorageError
from kafkalog.manager.data_directory import DataDirectory


def find_directory(directories: Sequence[DataDirectory], path_or_id: str | os.PathLike[str]) -> DataDirectory | None:
    """Return the directory with that path or directory id; None for an unknown id.

    IllegalArgument for a path that is no data directory of this manager.
    """
    text = os.fspath(path_or_id)
    for directory in directories:
        is_path = "\0" not in text and os.path.realpath(text) == directory.path
        if is_path or text and text == directory.directory_id:
            return directory
    if len(text) == 22 and os.sep not in text:
        return None
    raise IllegalArgument(
        f"{text!r} is not a data directory of this manager",
        hint="it has " + ", ".join(directory.path for directory in directories),
    )


def check_cordoned(cordoned: Collection[str], directories: Sequence[DataDirectory]) -> None:
    """Raise ConfigError if cordoned.log.dirs names any other directory than these; `*` stands for all."""
    known = {one.path for one in directories}
    unknown = [path for path in cordoned if path != "*" and ("\0" in path or os.path.realpath(path) not in known)]
    if unknown:
        raise ConfigError(
            f"cordoned.log.dirs names {unknown[0]}, which is not a data directory here",
            hint=f"the directories are {', '.join(sorted(known))}",
        )


def directories_in_order(
    directories: Sequence[DataDirectory], cordoned: Collection[str] = ()
) -> list[DataDirectory]:
    """Return the directories that take new partitions, the one with the fewest logs first (future ones count, MGR-4).

    StorageError if none is in use, or if all in use are cordoned.
    """
    closed = {os.path.realpath(path) for path in cordoned}
    online = [directory for directory in directories if directory.is_online]
    if not online:
        raise StorageError("no data directory is online", hint="check the disks, then restart")
    taking = [directory for directory in online if directory.path not in closed and "*" not in cordoned]
    if not taking:
        raise StorageError(
            "every online data directory is cordoned", hint="remove one from cordoned.log.dirs, or add a directory"
        )
    return sorted(taking, key=lambda directory: len(directory.logs) + len(directory.future_logs))

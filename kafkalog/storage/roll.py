"""Starting a new segment: which files give way to it, and what it is called (LOG-16 to LOG-19)."""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

from kafkalog._core.state import LogState
from kafkalog.errors import IllegalState, StorageError
from kafkalog.storage.names import index_file_name, log_file_name, time_index_file_name, txn_index_file_name
from kafkalog.util.fileio import FileSystem

_FILE_NAMES: Final = (log_file_name, index_file_name, time_index_file_name, txn_index_file_name)


class RollPlan(NamedTuple):
    """The new segment's base offset, and the empty active segment that it takes the place of, if there is one."""

    base_offset: int
    replaced: Any | None


def plan_roll(state: LogState, expected_offset: int | None = None) -> RollPlan:
    """The plan of a roll: the base is the log end, or `expected_offset` where that is higher (LOG-17).

    An empty active segment with that base is replaced, so that there is never a moment without one (KAFKA-6388,
    KAFKA-12875). IllegalState guards against a base that is taken, or below the active segment's.
    """
    base = state.log_end_offset if expected_offset is None else max(expected_offset, state.log_end_offset)
    active = state.segments.active
    if base in state.segments:
        if active.base_offset == base and active.size == 0:
            return RollPlan(base, active)
        raise IllegalState("a segment with this base offset exists", path=active.path, offset=base)
    if base < active.base_offset:
        raise IllegalState(
            f"a new segment cannot begin below the active one's base {active.base_offset}",
            path=active.path,
            offset=base,
        )
    return RollPlan(base, None)


def remove_stale_files(directory: str, base_offset: int, fs: FileSystem) -> None:
    """Delete files that lie around under the new segment's names (LOG-19); StorageError names one that stays."""
    for name_of in _FILE_NAMES:
        path = os.path.join(directory, name_of(base_offset))
        try:
            fs.unlink_if_exists(path)
        except OSError as error:
            raise StorageError.from_os(error, "delete the stale file", path=path) from error

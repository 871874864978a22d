"""Starting a new segment: its base offset and the removal of stale files (LOG-16 to LOG-19)."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import IllegalState
from kafkalog.storage.names import INDEX_SUFFIXES, LOG_SUFFIX, base_name
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State
    from kafkalog.storage.segment import LogSegment

_LOG: Final = logging.getLogger(__name__)


class RollPlan(NamedTuple):
    """The new segment's base offset, and the empty active segment that it replaces, if any."""

    base_offset: int
    replaced: LogSegment | None


def plan_roll(state: State, expected_offset: int | None = None) -> RollPlan:
    """Plan a roll: the base is the log end, or `expected_offset` if that is higher (LOG-17).

    An empty active segment with that base is replaced, so that there is always one (KAFKA-6388, KAFKA-12875).
    IllegalState for a base that exists or is below the active segment's.
    """
    base = state.log_end_offset if expected_offset is None else max(expected_offset, state.log_end_offset)
    active = state.segments.active
    if base in state.segments:
        if active.base_offset == base and active.size == 0:
            return RollPlan(base, active)
        raise IllegalState("a segment with this base offset already exists", path=active.path, offset=base)
    if base < active.base_offset:
        raise IllegalState(
            f"a new segment cannot begin below the active one's base {active.base_offset}",
            path=active.path,
            offset=base,
        )
    return RollPlan(base, None)


def remove_stale_files(directory: str, base_offset: int, fs: FileSystem, *, level: int = logging.WARNING) -> None:
    """Delete existing files with the new segment's names, and log each (LOG-19).

    StorageError names a file that could not be deleted. `level` is lower for files left by a failed roll of this
    process.
    """
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        path = os.path.join(directory, base_name(base_offset) + suffix)
        with os_errors("delete the stale file", path):
            was_there = fs.unlink_if_exists(path)
        if was_there:
            _LOG.log(level, "removed stale %s: a new segment takes its name", path)

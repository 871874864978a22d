"""Rebuilding the leader epochs of a log whose `leader-epoch-checkpoint` is missing, from its batches (LOG-59)."""

from __future__ import annotations

import logging
from typing import Final

from kafkalog.errors import CorruptRecord
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log_walk import bound_of, sound_chunks
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.segments import LogSegments

_LOG: Final = logging.getLogger(__name__)


def rebuild_epochs(epochs: LeaderEpochCache, segments: LogSegments[LogSegment], log_start_offset: int) -> None:
    """Assign the epochs of all sound batches, and create the file if there are none. StorageError.

    The reference goes on with an empty file: until a leader is elected, its replica has no epoch. A log that is
    opened here gives its own appends an epoch, which must not be below those of its batches.
    """
    epochs.truncate_from_end(0)  # recovery has assigned those of the last segments
    for segment in segments if segments.size_in_bytes else ():
        base, bound = segment.base_offset, bound_of(segments, segment.base_offset)
        extent = Extent(base, segment.records.slice(0, segment.size), bound, True, segment.offset_index)
        for chunk in sound_chunks(extent, base, bound, _log_damage):
            table = chunk.batches
            for row in range(chunk.first, chunk.last):
                epoch = table.leader_epoch(row)
                if table.magic(row) < 2:
                    epochs.clear()
                elif epoch > epochs.latest_epoch:
                    epochs.assign(epoch, max(table.base_offset(row), base))
    epochs.truncate_from_start(log_start_offset)
    if epochs.entries:
        _LOG.warning("%s was missing: rebuilt from the batches", epochs.path)
    if not epochs.has_changed:
        epochs.create_file()


def _log_damage(damage: CorruptRecord) -> None:
    _LOG.warning("ignoring any leader epochs there: %s", damage)

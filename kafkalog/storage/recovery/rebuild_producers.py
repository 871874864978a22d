"""Rebuilding the producers of a log from its newest snapshot and the batches behind it (LOAD-20 to LOAD-25)."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from kafkalog.errors import CorruptRecord
from kafkalog.storage.log_walk import bound_of, sound_chunks
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.segments import LogSegments

_LOG: Final = logging.getLogger(__name__)


def rebuild_producers(
    producers: ProducerStateManager,
    segments: LogSegments[LogSegment],
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    *,
    clean: bool,
    sync: bool = True,
    snapshots_at: Sequence[int] = (),
) -> list[LogSegment]:
    """Bring `producers` to `last_offset` and write a snapshot if it is new; with `sync`, sync it.

    Bases in `snapshots_at` get one on the way, by default those of the last two segments. Return the segments whose
    transaction index lacks a transaction that was found: it must be rebuilt.

    An empty log gets its snapshots at once. Without any snapshot the whole log is read. The reference treats such a
    log as written before producers existed, and forgets those in it (LOAD-21). It also reads nothing if no producer is
    known at a later end; but those of a transaction may have expired since, which is open again, or is by the snapshot.
    """
    marks = [*(snapshots_at or segments.base_offsets[-2:]), last_offset]
    if clean and producers.snapshots.latest is None and not segments.size_in_bytes:
        for offset in marks:
            producers.map_end_offset = offset
            producers.take_snapshot(sync=sync)
        return []
    lagging: list[LogSegment] = []
    producers.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > producers.map_end_offset:
        for segment in segments.values(producers.map_end_offset, last_offset):
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start
            if segment.base_offset in marks:
                producers.take_snapshot(sync=sync)
            if not _read(producers, segments, segment, start, last_offset):
                lagging.append(segment)
    producers.map_end_offset = last_offset
    producers.take_snapshot(sync=sync)
    return lagging


def snapshot_bases(segments: Iterable[int], unindexed: Iterable[int]) -> list[int]:
    """Return where a recovery writes snapshots on the way: at the log's last two bases (LOAD-27).

    The reference recovers a segment without index twice, the first time as if it were the log's last one.
    """
    bases = sorted(segments)
    ends = (len(bases), *(bases.index(base) for base in unindexed))
    return [base for end in ends for base in bases[max(end - 2, 0) : end]]


def _read(
    producers: ProducerStateManager,
    segments: LogSegments[LogSegment],
    segment: LogSegment,
    start: int,
    last_offset: int,
) -> bool:
    """Apply the sound batches of a segment from offset `start` on, up to the one that holds `last_offset`.

    Return False if the segment's index lacks an aborted transaction among them. Damage between them is logged.
    """
    data = segment.records.slice(0, segment.size)
    extent = Extent(segment.base_offset, data, bound_of(segments, segment.base_offset), True, segment.offset_index)
    aborted = -1
    for chunk in sound_chunks(extent, start, last_offset, _log_damage):
        stop = bisect_left(chunk.batches.base_offsets, last_offset, chunk.first, chunk.last)
        done = producers.replay(chunk.batches, chunk.data, chunk.first, stop)
        aborted = max([aborted, *(txn.last_offset for txn, _ in done if txn.is_aborted)])
    return aborted <= segment.txn_index.last_offset


def _log_damage(damage: CorruptRecord) -> None:
    _LOG.warning("ignoring any producer batches there: %s", damage)

"""Opening the segments of a directory that was closed well.

No record is deleted and nothing is recovered: the caller knows, by the clean-shutdown marker, that every file is whole.
What an unclean end leaves behind is refused where data could be in it, and left lying where it cannot:

* `.deleted` files wait for their delete; they hold nothing of the log.
* `.cleaned` files are the unfinished output of a cleaner; the segments they were made from are still there.
* `.swap` files are a finished output whose segments may be gone: UncleanShutdown, so that nothing is lost.
* an index that is missing, or does not fit itself or its `.log`, is made anew from the `.log`: index trouble is
  never fatal (KAFKA-1112, KAFKA-13603), and the data is only read for it.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from kafkalog._core.scan import scan
from kafkalog.config import LogConfig
from kafkalog.errors import CorruptRecord, NotAPartition, StorageError, UncleanShutdown
from kafkalog.storage.names import SWAP_SUFFIX, index_file_name, is_log_file, parse_base_offset, time_index_file_name
from kafkalog.storage.rebuild import last_entries_agree, offset_index_fits, rebuild_indexes, time_index_fits
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from kafkalog.storage.segments import LogSegments
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

_LOG: Final = logging.getLogger(__name__)
_UNCLEAN_HINT: Final = 'mode "r" reads it; a broker recovers it at its next start'


def load_segments(
    directory: str, config: LogConfig, fs: FileSystem, clock: Clock, first_offset: int
) -> tuple[LogSegments[LogSegment], int]:
    """The segments of the directory with the next offset; a new one at `first_offset` where there is none.

    The last segment is ready for appends. NotAPartition, StorageError, UncleanShutdown, CorruptIndex, CorruptRecord.
    """
    names = _names(directory, fs)
    swapped = sorted(name for name in names if name.endswith(SWAP_SUFFIX))
    if swapped:
        raise UncleanShutdown(
            "a replacement of segments was not finished", path=os.path.join(directory, swapped[0]), hint=_UNCLEAN_HINT
        )
    bases = sorted(base for base in map(parse_base_offset, filter(is_log_file, names)) if base is not None)
    opened: list[LogSegment] = []
    try:
        for base in bases:
            opened.append(LogSegment.open(directory, base, config, fs=fs, clock=clock, file_already_exists=True))
        _ensure_indexes(directory, opened, fs)
        _drop_hiding(opened)
        if not opened:
            opened.append(_first_segment(directory, config, fs, clock, first_offset))
        next_offset = opened[-1].become_active()
        _check_end(opened[-1], next_offset)
        return LogSegments(opened), next_offset
    except BaseException:
        for segment in opened:
            segment.close_handlers()
        raise


def _drop_hiding(segments: list[LogSegment]) -> None:
    """Take out empty segments that begin below the end of the one before: they would hide its records.

    Such a file is left by a roll that failed and could not be undone, or was cut short by a crash. It holds nothing,
    so it is removed.
    """
    for at in range(len(segments) - 1, 0, -1):
        empty, before = segments[at], segments[at - 1]
        if not empty.size and before.size and before.read_next_offset() > empty.base_offset:
            _LOG.warning("%s is empty and overlaps the segment before it: removed", empty.path)
            empty.delete_if_exists()
            del segments[at]


def _first_segment(
    directory: str, config: LogConfig, fs: FileSystem, clock: Clock, first_offset: int
) -> LogSegment:
    return LogSegment.open(
        directory,
        first_offset,
        config,
        fs=fs,
        clock=clock,
        init_file_size=config.init_file_size,
        preallocate=config.preallocate,
    )


def _names(directory: str, fs: FileSystem) -> list[str]:
    try:
        return fs.listdir(directory)
    except NotADirectoryError as error:
        raise NotAPartition("a file where a partition directory is meant", path=directory) from error
    except OSError as error:
        raise StorageError.from_os(error, "read the partition directory", path=directory) from error


def _ensure_indexes(directory: str, segments: list[LogSegment], fs: FileSystem) -> None:
    """Make an index anew that is missing or contradicts itself or the data; sound ones are not even opened.

    Those of the last segment are looked at more closely: the log end is found through them.
    """
    for at, segment in enumerate(segments):
        base = segment.base_offset
        end = segments[at + 1].base_offset if at + 1 < len(segments) else None
        offsets = MAX_RELATIVE_OFFSET + 1 if end is None else end - base
        sound = (
            offset_index_fits(fs, os.path.join(directory, index_file_name(base)), segment.size, offsets)
            and time_index_fits(fs, os.path.join(directory, time_index_file_name(base)), offsets)
            and (end is not None or last_entries_agree(segment))
        )
        if not sound:
            if segment.size:
                _LOG.warning("the indexes of %s are missing or damaged: they are made anew", segment.path)
            rebuild_indexes(segment)


def _check_end(segment: LogSegment, next_offset: int) -> None:
    """CorruptRecord when the active segment does not end with a whole, sound batch: then it was not closed well."""
    position = segment.offset_index.lookup(max(next_offset - 1, segment.base_offset)).position
    data = segment.records.read(position, segment.size - position)
    table = scan(data, file_mode=True, base_position=position)
    if table.valid_bytes == len(data) and table.first_invalid < 0:
        return
    at = table.stop_position if table.first_invalid < 0 else table.position(table.first_invalid)
    raise CorruptRecord(
        "the last segment does not end with a whole, undamaged batch",
        path=segment.path,
        offset=next_offset,
        position=at,
        hint=_UNCLEAN_HINT,
    )

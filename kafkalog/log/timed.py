"""The part of `Log` that notes the times of segments on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from kafkalog.reading.source import refreshed, retried_if_replaced
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from kafkalog.log.log import Log


def build_time_ranges(log: Log, **unknown: Never) -> int:
    """Note the times of the segments that lack them, and return the number of segments that were read for it.

    From then on queries with an upper bound of time read only what may match, also the first one. The notes are kept
    where `time_ranges` of `kafkalog.open` said, by default in memory as long as the log is open. The active segment is
    among them if nothing has been written to it for two seconds.

    Raises CorruptRecord or InvalidRecord for a damaged segment, after the others were noted; StorageError.

    >>> log.roll(), log.build_time_ranges(), log.build_time_ranges()
    (2, 1, 0)
    """
    if unknown:
        raise unknown_keyword("build_time_ranges", unknown, ())
    from kafkalog.log.pruning import time_ranges_of

    return retried_if_replaced(refreshed(log._source), time_ranges_of(log).build)

"""All metrics: name, meaning, and the function that reads it from logs, jobs and cursors of this process.

Names follow the conventions of Prometheus (base units, `_total` for counters); a metric means the same as the broker's
metric in `kafka`, if any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kafkalog.cleaner.cleaner import LogCleaner
from kafkalog.cursors.cursor import CURSORS, Cursor
from kafkalog.manager.directory_set import STORES
from kafkalog.manager.job import JOBS, Job
from kafkalog.manager.log_remover import LogRemover
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.log_counters import LOGS, REASONS
from kafkalog.storage.names import DELETE_DIR_SUFFIX
from kafkalog.util import events
from kafkalog.util.prometheus import Histogram, Kind, Labels

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.storage.readonly.view import LogView

    LogSource: TypeAlias = UnifiedLog | LogView
    AnyLog: TypeAlias = Log | LogSource
    Read = Callable[[AnyLog | None], Iterable[tuple[Labels, Any]]]

Reading = tuple[Labels, Any]
_REJECTED: Final = (
    "invalid_checksums", "invalid_magic", "invalid_offset", "invalid_sequence", "no_key_compacted_topic",
)  # fmt: skip


class Source(NamedTuple):
    """A metric; `read(of)` returns its labels and values, of one log or of all (None)."""

    name: str
    kind: Kind
    unit: str
    help: str
    kafka: str
    read: Read


def sources() -> tuple[Source, ...]:
    """Return all metrics in display order."""
    return _SOURCES


def _labels(log: LogSource) -> Labels:
    mode = "a" if isinstance(log, UnifiedLog) else "r"
    key = log.topic_partition
    directory = os.path.dirname(log.path)
    return (("topic", key.topic), ("partition", str(key.partition)), ("directory", directory), ("mode", mode))


def _logs_of(of: Any) -> Iterable[LogSource]:
    """Return the logs to read: all that are open and not deleted, or that of the `Log` `of`."""
    if of is not None:
        return [getattr(of, "_source", of)]
    return [log for log in LOGS.all() if not (log.closed or log.name.endswith(DELETE_DIR_SUFFIX))]


def _every(value: Callable[[LogSource], float]) -> Read:
    """Return a reader of `value` for each log and view."""
    return lambda of: [(_labels(log), value(log)) for log in _logs_of(of)]


def _own(value: Callable[[UnifiedLog], float | Histogram]) -> Read:
    """Return a reader of `value` for each log that is open for writing."""
    return lambda of: [(_labels(log), value(log)) for log in _logs_of(of) if isinstance(log, UnifiedLog)]


def _by_reason(reasons: Iterable[str], value: Callable[[UnifiedLog, str], float]) -> Read:
    names = tuple(reasons)
    return lambda of: [
        ((*_labels(log), ("reason", reason)), value(log, reason))
        for log in _logs_of(of)
        if isinstance(log, UnifiedLog)
        for reason in names
    ]


def _durations(log: UnifiedLog) -> Histogram:
    flushes = log.metrics.flushes
    buckets = tuple(flushes.buckets())
    return Histogram(buckets[-1][1], flushes.total_s, buckets)  # the count of the buckets, so that both always agree


def _of_jobs(value: Callable[[Job], float | None]) -> Read:
    def read(of: AnyLog | None) -> list[Reading]:
        found = [((("job", job.name),), value(job)) for job in JOBS.all()] if of is None else []
        return [reading for reading in found if reading[1] is not None]

    return read


def _of_cursors(value: Callable[[Cursor], float]) -> Read:
    def read(of: AnyLog | None) -> list[Reading]:
        engine = None if of is None else getattr(of, "_source", of)
        return [
            ((("cursor", cursor.name), *_labels(cursor.engine)), value(cursor))
            for cursor in CURSORS.all()
            if engine in (None, cursor.engine) and not cursor.closed
        ]

    return read


def _directories(of: AnyLog | None) -> list[Reading]:
    open_stores = [store for store in STORES.all() if not store.closed] if of is None else []
    return [((("directory", one.path),), int(not one.is_online)) for store in open_stores for one in store.directories]


def _stores(of: AnyLog | None) -> list[LogRemover]:
    """Return the stores that are open for writing; each has a cleaner."""
    return [store for store in STORES.all() if isinstance(store, LogRemover) and not store.closed] if of is None else []


def _of_cleaners(value: Callable[[LogCleaner], float | None]) -> Read:
    """Return a reader of `value` for the cleaner of each store, labelled with its first data directory."""

    def read(of: AnyLog | None) -> list[Reading]:
        found = [((("store", store.directories[0].path),), value(store.cleaner)) for store in _stores(of)]
        return [reading for reading in found if reading[1] is not None]

    return read


def _by_directory(value: Callable[[LogRemover, str], int]) -> Read:
    """Return a reader of `value` for each data directory of each store that is open for writing."""
    return lambda of: [
        ((("directory", one.path),), value(store, one.path)) for store in _stores(of) for one in store.directories
    ]


def _uncleanable(store: LogRemover, directory: str) -> int:
    return sum(one.directory == directory for one in store.cleaner.manager.uncleanable)


def _open_logs(of: AnyLog | None) -> list[Reading]:
    modes = [dict(_labels(log))["mode"] for log in _logs_of(of)]
    return [((("mode", mode),), modes.count(mode)) for mode in ("a", "r")] if of is None else []


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


_SOURCES: Final = (
    Source(
        "kafkalog_appends_total", "counter", "1", "Writes of one or more batches.",
        "kafka.server:BrokerTopicMetrics,TotalProduceRequestsPerSec", _own(lambda log: log.state.appends),
    ),
    Source(
        "kafkalog_append_batches_total", "counter", "1", "Batches written.", "",
        _own(lambda log: log.state.appended_batches),
    ),
    Source(
        "kafkalog_append_records_total", "counter", "1", "Records written, counted by their offsets.",
        "kafka.server:BrokerTopicMetrics,MessagesInPerSec", _own(lambda log: log.state.appended_offsets),
    ),
    Source(
        "kafkalog_append_bytes_total", "counter", "bytes", "Bytes of batches written.",
        "kafka.server:BrokerTopicMetrics,BytesInPerSec", _own(lambda log: log.state.appended_bytes),
    ),
    Source(
        "kafkalog_rejected_appends_total", "counter", "1", "Appends refused by validation, by reason.",
        "kafka.server:BrokerTopicMetrics,InvalidMagicNumberRecordsPerSec, InvalidMessageCrcRecordsPerSec, "
        "InvalidOffsetOrSequenceRecordsPerSec, NoKeyCompactedTopicRecordsPerSec",
        _by_reason(_REJECTED, lambda log, reason: getattr(log.validator_metrics, reason)),
    ),
    Source(
        "kafkalog_reads_total", "counter", "1", "Chunks of batches read.",
        "kafka.server:BrokerTopicMetrics,TotalFetchRequestsPerSec", _every(lambda log: log.metrics.reads.count),
    ),
    Source(
        "kafkalog_read_bytes_total", "counter", "bytes", "Bytes of batches read.",
        "kafka.server:BrokerTopicMetrics,BytesOutPerSec", _every(lambda log: log.metrics.reads.total),
    ),
    Source(
        "kafkalog_damaged_reads_total", "counter", "1", "Fetches answered with an error because of damage.", "",
        _own(lambda log: log.metrics.damaged_reads),
    ),
    Source(
        "kafkalog_flush_seconds", "histogram", "seconds", "Duration of syncing data to disk.",
        "kafka.log:LogFlushStats,LogFlushRateAndTimeMs", _own(_durations),
    ),
    Source(
        "kafkalog_flush_failures_total", "counter", "1", "Failed flushes; after one, the log rejects writes.", "",
        _own(lambda log: log.metrics.flush_failures),
    ),
    Source(
        "kafkalog_segment_rolls_total", "counter", "1", "New active segments.", "", _own(lambda log: log.metrics.rolls)
    ),
    Source(
        "kafkalog_truncations_total", "counter", "1", "Truncations of the log.", "",
        _own(lambda log: log.metrics.truncations),
    ),
    Source(
        "kafkalog_deleted_segments_total", "counter", "1", "Segments deleted, by reason.", "",
        _by_reason(REASONS, lambda log, reason: log.metrics.deleted_segments[reason]),
    ),
    Source(
        "kafkalog_deleted_bytes_total", "counter", "bytes", "Bytes of deleted segments, by reason.", "",
        _by_reason(REASONS, lambda log, reason: log.metrics.deleted_bytes[reason]),
    ),
    Source(
        "kafkalog_load_seconds", "gauge", "seconds", "Duration of opening the log.", "",
        _own(lambda log: log.metrics.load_s),
    ),
    Source(
        "kafkalog_recovered", "gauge", "1", "1 if the log was recovered after an unclean shutdown.", "",
        _own(lambda log: int(log.metrics.recovered)),
    ),
    Source(
        "kafkalog_failed", "gauge", "1", "1 if the log rejects writes after an earlier failure.", "",
        _own(lambda log: int(log.failed)),
    ),
    Source(
        "kafkalog_log_start_offset", "gauge", "1", "The first offset that can be read.",
        "kafka.log:Log,LogStartOffset", _every(lambda log: log.log_start_offset),
    ),
    Source(
        "kafkalog_log_end_offset", "gauge", "1", "The offset of the next record.",
        "kafka.log:Log,LogEndOffset", _every(lambda log: log.log_end_offset),
    ),
    Source(
        "kafkalog_high_watermark", "gauge", "1", "The offset below which all records are replicated.", "",
        _every(lambda log: log.high_watermark),
    ),
    Source(
        "kafkalog_last_stable_offset", "gauge", "1", "The offset below which every transaction is decided.", "",
        _own(lambda log: log.last_stable_offset),
    ),
    Source(
        "kafkalog_recovery_point", "gauge", "1", "The offset below which all records are on disk.", "",
        _own(lambda log: log.recovery_point),
    ),
    Source(
        "kafkalog_log_size_bytes", "gauge", "bytes", "Bytes of the segments' data.", "kafka.log:Log,Size",
        _every(lambda log: log.size),
    ),
    Source(
        "kafkalog_log_segments", "gauge", "1", "Segments.", "kafka.log:Log,NumLogSegments",
        _every(lambda log: len(log.segments)),
    ),
    Source("kafkalog_open_logs", "gauge", "1", "Open logs, by mode.", "", _open_logs),
    Source(
        "kafkalog_cursor_position", "gauge", "1", "The next offset that an open cursor reads.", "",
        _of_cursors(lambda cursor: cursor.position),
    ),
    Source(
        "kafkalog_cursor_committed_offset", "gauge", "1", "Committed position of an open cursor.", "",
        _of_cursors(lambda cursor: cursor.committed),
    ),
    Source(
        "kafkalog_cursor_lag", "gauge", "1", "Offsets between an open cursor and the last known log end.",
        "kafka.consumer:consumer-fetch-manager-metrics,records-lag",
        _of_cursors(lambda cursor: max(0, cursor.engine.log_end_offset - cursor.position)),
    ),
    Source(
        "kafkalog_directory_offline", "gauge", "1", "1 if a data directory is offline since its disk failed.",
        "kafka.log:LogManager,LogDirectoryOffline", _directories,
    ),
    Source("kafkalog_job_runs_total", "counter", "1", "Runs of a background job.", "", _of_jobs(lambda job: job.runs)),
    Source(
        "kafkalog_job_failed", "gauge", "1", "1 if the last run of a job failed.", "",
        _of_jobs(lambda job: int(job.last_error is not None)),
    ),
    Source(
        "kafkalog_job_last_run_timestamp_seconds", "gauge", "seconds", "Start time of the last run of a job.", "",
        _of_jobs(lambda job: _seconds(job.last_run_ms)),
    ),
    Source(
        "kafkalog_job_last_run_seconds", "gauge", "seconds", "Duration of the last run of a job.", "",
        _of_jobs(lambda job: _seconds(job.last_duration_ms)),
    ),
    Source(
        "kafkalog_cleaner_cleans_total", "counter", "1", "Completed cleans of compacted logs.", "",
        _of_cleaners(lambda cleaner: cleaner.book.totals.cleans),
    ),
    Source(
        "kafkalog_cleaner_failures_total", "counter", "1", "Failed cleans.", "",
        _of_cleaners(lambda cleaner: cleaner.book.totals.failures),
    ),
    Source(
        "kafkalog_cleaner_thread_failures_total", "counter", "1", "Failed rounds of cleaner threads.",
        "kafka.log:LogCleaner,DeadThreadCount", _of_cleaners(lambda cleaner: cleaner.book.totals.thread_failures),
    ),
    Source(
        "kafkalog_cleaner_read_bytes_total", "counter", "bytes", "Bytes of batches that cleans read to copy them.",
        "kafka.log:LogCleaner,cleaner-recopy-percent", _of_cleaners(lambda cleaner: cleaner.book.totals.bytes_read),
    ),
    Source(
        "kafkalog_cleaner_written_bytes_total", "counter", "bytes", "Bytes of batches that cleans kept.",
        "kafka.log:LogCleaner,cleaner-recopy-percent", _of_cleaners(lambda cleaner: cleaner.book.totals.bytes_written),
    ),
    Source(
        "kafkalog_cleaner_io_bytes_total", "counter", "bytes", "Bytes that cleans read and wrote, as throttled.",
        "kafka.utils:Throttler,cleaner-io", _of_cleaners(lambda cleaner: cleaner.throttle.total_bytes),
    ),
    Source(
        "kafkalog_cleaner_throttled_seconds_total", "counter", "seconds", "Time that cleans slept to limit their rate.",
        "", _of_cleaners(lambda cleaner: _seconds(cleaner.throttle.slept_ms)),
    ),
    Source(
        "kafkalog_cleaner_map_utilization_ratio", "gauge", "1", "Highest use of the offset maps in the last cleans.",
        "kafka.log:LogCleaner,max-buffer-utilization-percent",
        _of_cleaners(lambda cleaner: max((one.stats.buffer_utilization for one in cleaner.book.last), default=0.0)),
    ),
    Source(
        "kafkalog_cleaner_last_clean_seconds", "gauge", "seconds", "Longest duration of the last cleans.",
        "kafka.log:LogCleaner,max-clean-time-secs",
        _of_cleaners(lambda cleaner: max((one.stats.elapsed_s for one in cleaner.book.last), default=0.0)),
    ),
    Source(
        "kafkalog_cleaner_longest_delay_seconds", "gauge", "seconds", "Excess over max.compaction.lag.ms.",
        "kafka.log:LogCleaner,max-compaction-delay-secs",
        _of_cleaners(lambda cleaner: _seconds(cleaner.manager.choice.longest_delay_ms)),
    ),
    Source(
        "kafkalog_cleaner_dirtiest_ratio", "gauge", "1", "Dirty ratio of the dirtiest log at the last check.",
        "kafka.log:LogCleanerManager,max-dirty-percent",
        _of_cleaners(lambda cleaner: cleaner.manager.choice.dirtiest_ratio),
    ),
    Source(
        "kafkalog_cleaner_last_look_timestamp_seconds", "gauge", "seconds", "Time of the last check for dirty logs.",
        "kafka.log:LogCleanerManager,time-since-last-run-ms",
        _of_cleaners(lambda cleaner: _seconds(cleaner.manager.last_look_ms)),
    ),
    Source(
        "kafkalog_cleaner_uncleanable_partitions", "gauge", "1", "Partitions excluded from cleaning after an error.",
        "kafka.log:LogCleanerManager,uncleanable-partitions-count", _by_directory(_uncleanable),
    ),
    Source(
        "kafkalog_cleaner_uncleanable_bytes", "gauge", "bytes", "Dirty bytes of the partitions excluded from cleaning.",
        "kafka.log:LogCleanerManager,uncleanable-bytes",
        _by_directory(
            lambda store, directory: store.cleaner.manager.uncleanable_bytes(directory, store.ages.milliseconds())
        ),
    ),
    Source(
        "kafkalog_hook_failures_total", "counter", "1", "Event hook calls that raised an exception.", "",
        lambda of: [((), events.failures())] if of is None else [],
    ),
)  # fmt: skip

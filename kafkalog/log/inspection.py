"""The part of `Log` for inspection: segments, indexes, producers, epochs and transactions as tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Never

from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.inspect.segment import SEGMENT_COLUMNS, Segment
from kafkalog.reading.source import refreshed
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from kafkalog._core.log.producer import ProducerState
    from kafkalog.inspect.parts import Epoch, IndexSummary
    from kafkalog.inspect.plot import LogPlot
    from kafkalog.inspect.rows import Rows
    from kafkalog.inspect.stats import LogStats
    from kafkalog.log.log import Log
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.index.aborted_txns import AbortedTxn

_STATS: Final = ("sizes", "keys", "sample_bytes", "progress")


def repr_html(log: Log) -> str:
    """Return the content of `repr` as an HTML table, from memory."""
    from kafkalog.util.text import html_table, human_size

    engine = log._engine
    if engine.closed:
        return html_table(("log", "state"), [(log.topic_partition, "closed")])
    start, end = engine.log_start_offset, engine.log_end_offset
    names = ("log", "offsets", "segments", "size", "high watermark", "leader epoch", "path")
    row = (log.topic_partition, f"[{start}, {end})", len(engine.segments), human_size(engine.size),
           engine.high_watermark, engine.leader_epoch if engine.leader_epoch >= 0 else "-", log.path)  # fmt: skip
    return html_table(names, [row])


def segments(log: Log) -> Rows[Segment]:
    """Return what `Log.segments` is."""
    from kafkalog.inspect.rows import Rows

    engine = refreshed(log._engine)
    found = [*engine.segments]
    ends = [one.base_offset for one in found[1:]] + [engine.log_end_offset]
    made = [Segment(one, end) for one, end in zip(found, ends, strict=True)]
    return Rows(made, SEGMENT_COLUMNS, title=f"{log.topic_partition}: segments")


def index(log: Log) -> Rows[IndexSummary]:
    """Return what `Log.index` is."""
    from kafkalog.inspect.parts import index_summaries

    engine = refreshed(log._engine)
    return index_summaries(str(log.topic_partition), engine.path, engine.segments, engine.fs)


def producers(log: Log) -> Rows[ProducerState]:
    """Return what `Log.producers` is."""
    from kafkalog.inspect.parts import producers

    engine = refreshed(log._engine)
    name = str(log.topic_partition)
    if not isinstance(engine, LogView):
        return producers(name, engine.producers)
    from kafkalog.tools.seen_producers import seen_producers

    try:
        return producers(name, seen_producers(engine, 0, engine.fs))  # at time 0 no producer has expired
    except KafkalogError as error:
        return producers(name, (), [f"not known: {error}"])


def epochs(log: Log) -> Rows[Epoch]:
    """Return what `Log.epochs` is."""
    from kafkalog.inspect.parts import epochs

    engine = refreshed(log._engine)
    known = None if isinstance(engine, LogView) else engine.leader_epochs
    return epochs(str(log.topic_partition), engine.path, engine.log_end_offset, known, engine.fs)


def aborted_txns(log: Log) -> Rows[AbortedTxn]:
    """Return what `Log.aborted_txns` is."""
    from kafkalog.inspect.parts import aborted_txns

    engine = refreshed(log._engine)
    return aborted_txns(str(log.topic_partition), engine.path, engine.segments, engine.fs)


def stats(
    log: Log,
    *,
    sizes: bool = False,
    keys: bool = False,
    sample_bytes: int | None = -1,
    progress: Callable[[float], object] | None = None,
    **unknown: Never,
) -> LogStats:
    """Return the log's figures: records, batches, bytes, rates, compression, batch sizes, index density.

    They come from batch headers, without decoding records; `sizes` adds sizes of keys and values, `keys` the
    distribution of records over keys. All data in the segments' files counts, also below the log start. A log of
    more than 128 MiB is sampled, which `sample` and the tables show; `sample_bytes` sets another limit, None for
    none. `progress` is called repeatedly with the share that is read, up to 1. Unreadable data is listed in
    `problems`, and not raised. Raises LogClosed.

    >>> stats = log.stats(keys=True)
    >>> stats.records, stats.batches, stats.sample.is_whole, stats.keys.distinct
    (2, 1, True, 2)
    """
    from kafkalog.inspect.sample import SAMPLE_BYTES
    from kafkalog.inspect.survey import Wanted, survey
    from kafkalog.tools.damage import damage_locator

    if unknown:
        raise unknown_keyword("stats", unknown, _STATS)
    if sample_bytes is not None and sample_bytes < -1:
        raise IllegalArgument(f"sample_bytes is {sample_bytes}", hint="give bytes from 0 on, or None for all")
    most = SAMPLE_BYTES if sample_bytes == -1 else sample_bytes
    engine = refreshed(log._engine)
    first_dirty = _first_dirty_offset(engine)
    details = {} if most is not None else {"detail_bytes": None}
    wanted = Wanted(most, sizes=sizes, keys=keys, first_dirty_offset=first_dirty, **details)
    return survey(engine, log.topic_partition, wanted, progress, locate=damage_locator(engine))


def plot(log: Log, *kinds: str, stats: LogStats | None = None) -> LogPlot:
    """Plot the log's figures: rate, segments, batches, compression, keys, dirty, index; default: all with data.

    `stats` are figures computed before; by default the result of `stats`. A notebook displays the returned plot;
    `save(path)` writes it, `figure` is matplotlib's. Raises MissingPackage if matplotlib is not installed,
    IllegalArgument for an unknown plot.

    >>> log.plot("rate", "batches")
    <LogPlot orders-0: rate, batches; .save(path) writes it>
    """
    from kafkalog.inspect.plot import check_kinds, plot

    chosen = check_kinds(kinds)
    return plot(log.stats(keys="keys" in chosen) if stats is None else stats, kinds)


def browse(log: Log) -> None:
    """Browse segments, batches and records in the terminal; search by key, offset and time (docs/browse.md).

    Returns when the user leaves the browser. Raises MissingPackage if Textual is not installed, IllegalState
    without a terminal.
    """
    from kafkalog.browse.start import browse
    from kafkalog.tools.directories import PartitionPath

    engine = refreshed(log._engine)
    browse([PartitionPath(log.topic_partition, engine.path)], engine.fs)


def _first_dirty_offset(engine: LogSource) -> int | None:
    """Return the first dirty offset of a compacted log; None for a topic not known to be compacted."""
    from kafkalog.manager.checkpoints import read_offset
    from kafkalog.manager.known_topics import read_known_topics
    from kafkalog.util.checkpoint import CLEANER_OFFSET_FILE

    directory = os.path.dirname(engine.path)
    try:
        if isinstance(engine, LogView):
            settings = read_known_topics([directory], fs=engine.fs).settings_of(engine.topic_partition.topic) or {}
            is_compacted = "compact" in settings.get("cleanup.policy", "")
        else:
            is_compacted = engine.config.compact
        if not is_compacted:
            return None
        return read_offset(directory, CLEANER_OFFSET_FILE, engine.topic_partition, fs=engine.fs)
    except KafkalogError:
        return None

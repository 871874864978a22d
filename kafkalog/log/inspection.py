"""The part of `Log` for inspection: segments, indexes, producers, epochs and transactions as tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never

from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.inspect.segment import SEGMENT_COLUMNS, Segment
from kafkalog.reading.source import refreshed
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from kafkalog._core.log.producer_state import ProducerState
    from kafkalog.inspect.counts import PathCounts
    from kafkalog.inspect.parts import Epoch, IndexSummary
    from kafkalog.inspect.plot import LogPlot
    from kafkalog.inspect.rows import Rows
    from kafkalog.inspect.stats import LogStats
    from kafkalog.log.log import Log
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.index.aborted_txns import AbortedTxn
    from kafkalog.where import Expression

_STATS: Final = ("sizes", "keys", "sample_bytes", "progress")


def repr_html(log: Log) -> str:
    """Return the content of `repr` as an HTML table, from memory."""
    from kafkalog.util.text import html_table, human_size

    source = log._source
    if source.closed:
        return html_table(("log", "state"), [(log.topic_partition, "closed")])
    start, end = source.log_start_offset, source.log_end_offset
    names = ("log", "offsets", "segments", "size", "high watermark", "leader epoch", "path")
    row = (log.topic_partition, f"[{start}, {end})", len(source.segments), human_size(source.size),
           source.high_watermark, source.leader_epoch if source.leader_epoch >= 0 else "-", log.path)  # fmt: skip
    return html_table(names, [row])


def segments(log: Log) -> Rows[Segment]:
    """Return what `Log.segments` is."""
    from kafkalog.inspect.rows import Rows

    source = refreshed(log._source)
    found = [*source.segments]
    ends = [one.base_offset for one in found[1:]] + [source.log_end_offset]
    views = [Segment(one, end) for one, end in zip(found, ends, strict=True)]
    return Rows(views, SEGMENT_COLUMNS, title=f"{log.topic_partition}: segments")


def index(log: Log) -> Rows[IndexSummary]:
    """Return what `Log.index` is."""
    from kafkalog.inspect.parts import index_summaries

    source = refreshed(log._source)
    return index_summaries(str(log.topic_partition), source.path, source.segments, source.fs)


def producers(log: Log) -> Rows[ProducerState]:
    """Return what `Log.producers` is."""
    from kafkalog.inspect.parts import producers

    source = refreshed(log._source)
    name = str(log.topic_partition)
    if not isinstance(source, LogView):
        return producers(name, source.producers)
    from kafkalog.tools.seen_producers import seen_producers

    try:
        return producers(name, seen_producers(source, 0, source.fs))  # at time 0 no producer has expired
    except KafkalogError as error:
        return producers(name, (), [f"not known: {error}"])


def epochs(log: Log) -> Rows[Epoch]:
    """Return what `Log.epochs` is."""
    from kafkalog.inspect.parts import epochs

    source = refreshed(log._source)
    known = None if isinstance(source, LogView) else source.leader_epochs
    return epochs(str(log.topic_partition), source.path, source.log_end_offset, known, source.fs)


def aborted_txns(log: Log) -> Rows[AbortedTxn]:
    """Return what `Log.aborted_txns` is."""
    from kafkalog.inspect.parts import aborted_txns

    source = refreshed(log._source)
    return aborted_txns(str(log.topic_partition), source.path, source.segments, source.fs)


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
    from kafkalog.inspect.survey import SurveyOptions, survey
    from kafkalog.tools.damage import damage_locator

    if unknown:
        raise unknown_keyword("stats", unknown, _STATS)
    if sample_bytes is not None and sample_bytes < -1:
        raise IllegalArgument(f"sample_bytes is {sample_bytes}", hint="give 0 or more bytes, or None for all")
    limit = SAMPLE_BYTES if sample_bytes == -1 else sample_bytes
    source = refreshed(log._source)
    first_dirty = _first_dirty_offset(source)
    details = {} if limit is not None else {"detail_bytes": None}
    request = SurveyOptions(limit, sizes=sizes, keys=keys, first_dirty_offset=first_dirty, **details)
    return survey(source, log.topic_partition, request, progress, locate=damage_locator(source))


def count_by(
    log: Log,
    path: str,
    *,
    where: str | Expression | None = None,
    top: int = 20,
    progress: Callable[[float], object] | None = None,
    **typed: Any,
) -> PathCounts:
    """Return the numbers of records, and the bytes of their keys and values, by a field of them, most records first.

    `path` is a field as in conditions (docs/where.md): `key`, `partition`, `header.trace`, or a path into a decoded key
    or value, for which `key`, `value`, `schema`, `schemas`, `registry`, `subject`, `message` and `framing` are as for
    `scan`. With `where` only the records for which the condition is true are counted. The `top` values are listed, the
    others summed up. `progress` is called repeatedly with the share that is read, up to 1. Every record that can be
    read is counted once; damage is skipped and listed.

    Raises IllegalArgument for a path or condition that does not fit, and for more than 100,000 different values.

    >>> counts = log.count_by("key", where="offset < 10")
    >>> counts.records, counts.distinct, counts.top[0]
    (2, 2, ValueCount(value=b'u-1', records=1, bytes=8))
    """
    from kafkalog.log.counting import count_logs_by

    return count_logs_by([log], path, where, top, progress, typed)


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


def browse(
    log: Log,
    *,
    key: str | None = None,
    value: str | None = None,
    schemas: str | None = None,
    schema: str | int | None = None,
    message: str | None = None,
    **unknown: Never,
) -> None:
    """Browse segments, batches and records in the terminal; search by key, offset and time (docs/browse.md).

    `key` and `value` are names of decoders, as for `kafkalog.decoders.decoder`, and so are `schemas`, `schema` and
    `message`, those of the values if these are decoded: what they decode is shown as a tree.
    Returns when the user leaves the browser. Raises MissingPackage if Textual is not installed, IllegalArgument for an
    unknown decoder, IllegalState without a terminal.
    """
    if unknown:
        raise unknown_keyword("browse", unknown, ("key", "value", "schemas", "schema", "message"))
    from kafkalog.browse.start import BrowseOptions, browse
    from kafkalog.tools.consume.decoded import parse_serdes
    from kafkalog.tools.directories import PartitionPath

    source = refreshed(log._source)
    named = [f"{part}={name}" for part, name in (("key", key), ("value", value)) if name is not None]
    select = None
    if named:
        from kafkalog.log.typed_keywords import select_matching

        given = {"key": key, "value": value, "schemas": schemas, "schema": schema, "message": message}
        select = partial(select_matching, given)
    options = BrowseOptions(parse_serdes(named, schemas, schema, message), log._key_store, select)
    browse([PartitionPath(log.topic_partition, source.path)], source.fs, options)


def _first_dirty_offset(source: LogSource) -> int | None:
    """Return the first dirty offset of a compacted log; None for a topic not known to be compacted."""
    from kafkalog.manager.checkpoints import read_offset
    from kafkalog.manager.known_topics import read_known_topics
    from kafkalog.util.checkpoint import CLEANER_OFFSET_FILE

    directory = os.path.dirname(source.path)
    try:
        if isinstance(source, LogView):
            settings = read_known_topics([directory], fs=source.fs).settings_of(source.topic_partition.topic) or {}
            is_compacted = "compact" in settings.get("cleanup.policy", "")
        else:
            is_compacted = source.config.compact
        if not is_compacted:
            return None
        return read_offset(directory, CLEANER_OFFSET_FILE, source.topic_partition, fs=source.fs)
    except KafkalogError:
        return None

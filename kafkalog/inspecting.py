"""The part of `Log` for inspection: segments, indexes, producers, epochs and transactions as tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument, KafkalogError, StorageError
from kafkalog.keywords import unknown_keyword
from kafkalog.segment_face import SEGMENT_COLUMNS, Segment
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE, log_file_name
from kafkalog.storage.view import LogView

if TYPE_CHECKING:
    from kafkalog._core.producer import ProducerState
    from kafkalog.engine import Engine
    from kafkalog.inspect.damage import Locate
    from kafkalog.inspect.parts import Epoch, IndexSummary
    from kafkalog.inspect.plot import LogPlot
    from kafkalog.inspect.rows import Rows
    from kafkalog.inspect.stats import LogStats
    from kafkalog.storage.aborted_txns import AbortedTxn
    from kafkalog.types import TopicPartition

__all__ = ["InspectMixin"]
_STATS: Final = ("sizes", "keys", "sample_bytes", "progress")


class InspectMixin:
    """Tables of a log's parts. Each is a tuple that prints as a table (`kafkalog.inspect.rows.Rows`)."""

    __slots__ = ()
    path: str
    topic_partition: TopicPartition

    _engine: Engine

    def _looked(self) -> Engine:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return the content of `repr` as an HTML table, from memory."""
        from kafkalog.shown import html_table, human_size

        engine = self._engine
        if engine.closed:
            return html_table(("log", "state"), [(self.topic_partition, "closed")])
        start, end = engine.log_start_offset, engine.log_end_offset
        names = ("log", "offsets", "segments", "size", "high watermark", "leader epoch", "path")
        row = (self.topic_partition, f"[{start}, {end})", len(engine.segments), human_size(engine.size),
               engine.high_watermark, engine.leader_epoch if engine.leader_epoch >= 0 else "-", self.path)  # fmt: skip
        return html_table(names, [row])

    @property
    def segments(self) -> Rows[Segment]:
        """Segments, lowest offset first.

        >>> log.segments[0].base_offset, log.segments["base offset"]
        (0, [0])
        """
        from kafkalog.inspect.rows import Rows

        engine = self._looked()
        found = [*engine.segments]
        ends = [one.base_offset for one in found[1:]] + [engine.log_end_offset]
        made = [Segment(one, end) for one, end in zip(found, ends, strict=True)]
        return Rows(made, SEGMENT_COLUMNS, title=f"{self.topic_partition}: segments")

    @property
    def index(self) -> Rows[IndexSummary]:
        """Indexes of each segment: number of entries, density, last offset, and problems.

        >>> log.index[0].offset_entries
        0
        """
        from kafkalog.inspect.parts import index_summaries

        engine = self._looked()
        return index_summaries(str(self.topic_partition), engine.path, engine.segments, engine.fs)

    @property
    def producers(self) -> Rows[ProducerState]:
        """Producers with a producer id, as of the log end: last sequence, offset, open transaction.

        In mode "r" they come from the newest producer snapshot and the batches after it.

        >>> len(log.producers)
        0
        """
        from kafkalog.inspect.parts import producers

        engine = self._looked()
        name = str(self.topic_partition)
        if not isinstance(engine, LogView):
            return producers(name, engine.producers)
        from kafkalog.tools.seen_producers import seen_producers

        try:
            return producers(name, seen_producers(engine, 0, engine.fs))  # at time 0 no producer has expired
        except KafkalogError as error:
            return producers(name, (), [f"not known: {error}"])

    @property
    def epochs(self) -> Rows[Epoch]:
        """Leader epochs and the offsets written in each.

        >>> log.epochs[0].epoch
        0
        """
        from kafkalog.inspect.parts import epochs

        engine = self._looked()
        known = None if isinstance(engine, LogView) else engine.leader_epochs
        return epochs(str(self.topic_partition), engine.path, engine.log_end_offset, known, engine.fs)

    @property
    def aborted_txns(self) -> Rows[AbortedTxn]:
        """Aborted transactions in the segments' transaction indexes, in the order of their markers.

        >>> list(log.aborted_txns)
        []
        """
        from kafkalog.inspect.parts import aborted_txns

        engine = self._looked()
        return aborted_txns(str(self.topic_partition), engine.path, engine.segments, engine.fs)

    def stats(
        self,
        *,
        sizes: bool = False,
        keys: bool = False,
        sample_bytes: int | None = -1,
        progress: Callable[[float], object] | None = None,
        **unknown: Any,
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

        if unknown:
            raise unknown_keyword("stats", unknown, _STATS)
        if sample_bytes is not None and sample_bytes < -1:
            raise IllegalArgument(f"sample_bytes is {sample_bytes}", hint="give bytes from 0 on, or None for all")
        most = SAMPLE_BYTES if sample_bytes == -1 else sample_bytes
        engine = self._looked()
        first_dirty = _first_dirty_offset(engine)
        details = {} if most is not None else {"detail_bytes": None}
        wanted = Wanted(most, sizes=sizes, keys=keys, first_dirty_offset=first_dirty, **details)
        return survey(engine, self.topic_partition, wanted, progress, locate=damage_locator(engine))


    def plot(self, *kinds: str, stats: LogStats | None = None) -> LogPlot:
        """Plot the log's figures: rate, segments, batches, compression, keys, dirty, index; default: all with data.

        `stats` are figures computed before; by default the result of `stats`. A notebook displays the returned plot;
        `save(path)` writes it, `figure` is matplotlib's. Raises MissingPackage if matplotlib is not installed,
        IllegalArgument for an unknown plot.

        >>> log.plot("rate", "batches")
        <LogPlot orders-0: rate, batches; .save(path) writes it>
        """
        from kafkalog.inspect.plot import check_kinds, plot

        chosen = check_kinds(kinds)
        return plot(self.stats(keys="keys" in chosen) if stats is None else stats, kinds)

    def browse(self) -> None:
        """Browse segments, batches and records in the terminal; search by key, offset and time (docs/browse.md).

        Returns when the user leaves the browser. Raises MissingPackage if Textual is not installed, IllegalState
        without a terminal.
        """
        from kafkalog.browse.start import browse
        from kafkalog.tools.directories import PartitionPath

        engine = self._looked()
        browse([PartitionPath(self.topic_partition, engine.path)], engine.fs)


def _first_dirty_offset(engine: Engine) -> int | None:
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


def damage_locator(engine: Engine) -> Locate:
    """Return a function that finds the damage of a segment of the log, for `survey`.

    In a directory that was closed cleanly, bytes after the last intact batch are damage too.
    """
    from kafkalog.inspect.damage import DamagedPlace, SegmentDamage
    from kafkalog.tools.verify_report import Findings, Severity
    from kafkalog.tools.verify_segment import SegmentPass

    is_clean = engine.fs.exists(os.path.join(os.path.dirname(engine.path), CLEAN_SHUTDOWN_FILE))

    def locate(segment: Any, next_base_offset: int | None) -> SegmentDamage:
        path = os.path.join(engine.path, log_file_name(segment.base_offset))
        findings = Findings(path)
        try:
            with engine.fs.open_file(path, "r") as file:
                is_last = next_base_offset is None
                facts = SegmentPass(
                    file, segment.base_offset, findings, fs=engine.fs, length=file.size(), is_last=is_last,
                    is_live=is_last and not is_clean, is_clean=is_clean, next_base_offset=next_base_offset,
                ).run()  # fmt: skip
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError.from_os(error, "read the segment", path=path) from error
        places = [
            DamagedPlace(
                path, one.position or 0, one.size or 0, one.last_sound_offset, one.next_sound_offset, one.kind,
                one.where, one.what,
            )
            for one in findings.all()
            if one.severity == Severity.DAMAGE or is_clean and one.kind.startswith("tail-")
        ]  # fmt: skip
        return SegmentDamage(tuple(places), tuple(facts.kept))

    return locate

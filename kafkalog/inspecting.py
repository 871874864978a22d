"""The part of `Log` that is for looking: segments, indexes, producers, epochs and transactions as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import KafkalogError
from kafkalog.segment_face import SEGMENT_COLUMNS, Segment
from kafkalog.storage.view import LogView

if TYPE_CHECKING:
    from kafkalog._core.producer import ProducerState
    from kafkalog.engine import Engine
    from kafkalog.inspect.parts import Epoch, IndexSummary
    from kafkalog.inspect.rows import Rows
    from kafkalog.storage.aborted_txns import AbortedTxn
    from kafkalog.types import TopicPartition

__all__ = ["InspectMixin"]


class InspectMixin:
    """Tables of what a log consists of. Each is a tuple that shows itself as a table (`kafkalog.inspect.rows.Rows`)."""

    __slots__ = ()
    path: str
    topic_partition: TopicPartition

    def _looked(self) -> Engine:
        raise NotImplementedError

    @property
    def segments(self) -> Rows[Segment]:
        """The segments, lowest offset first.

        >>> log.segments[0].base_offset, log.segments["base offset"]
        (0, [0])
        """
        from kafkalog.inspect.rows import Rows

        engine = self._looked()
        found = tuple(engine.segments)
        ends = [one.base_offset for one in found[1:]] + [engine.log_end_offset]
        made = [Segment(one, end) for one, end in zip(found, ends, strict=True)]
        return Rows(made, SEGMENT_COLUMNS, title=f"{self.topic_partition}: segments")

    @property
    def index(self) -> Rows[IndexSummary]:
        """The indexes of each segment: how many entries, how dense, how far they go, and what is wrong with them.

        >>> log.index[0].offset_entries
        0
        """
        from kafkalog.inspect.parts import index_summaries

        engine = self._looked()
        return index_summaries(str(self.topic_partition), engine.path, engine.segments)

    @property
    def producers(self) -> Rows[ProducerState]:
        """Who wrote with a producer id, as the log knows them at its end: last sequence, offset, open transaction.

        In mode "r" they come from the newest producer snapshot and the batches behind it.

        >>> len(log.producers)
        0
        """
        from kafkalog.inspect.parts import producers

        engine = self._looked()
        name = str(self.topic_partition)
        if not isinstance(engine, LogView):
            return producers(name, engine.producers)
        from kafkalog.tools.seen_producers import seen_producers
        from kafkalog.util.fileio import OS

        try:
            return producers(name, seen_producers(engine, 0, OS))  # at 0 nobody has been idle for too long
        except KafkalogError as error:
            return producers(name, (), [f"not known: {error}"])

    @property
    def epochs(self) -> Rows[Epoch]:
        """The leader epochs and the offsets written under each.

        >>> log.epochs[0].epoch
        0
        """
        from kafkalog.inspect.parts import epochs

        engine = self._looked()
        known = None if isinstance(engine, LogView) else engine.leader_epochs
        return epochs(str(self.topic_partition), engine.path, engine.log_end_offset, known)

    @property
    def aborted_txns(self) -> Rows[AbortedTxn]:
        """The aborted transactions that the segments' transaction indexes list, in the order of their markers.

        >>> list(log.aborted_txns)
        []
        """
        from kafkalog.inspect.parts import aborted_txns

        engine = self._looked()
        return aborted_txns(str(self.topic_partition), engine.path, engine.segments)

"""The copy's own marker in a target cluster: an offset that the group `kafkalog-copy` committed for a partition.

    committed offset    offset in the source up to which everything is copied
    metadata            JSON: the source topic, the target's end there, the producer with its next sequence

It is committed before the first batch is sent and after every few megabytes. A batch between the marker and the
target's end was written by the run that was killed. Its sequence follows from its place: the next run sends the same
sequences with the same producer id, so a request of the killed run that arrives late is a duplicate, not a record.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from kafkalog.copy.cluster_groups import Committed

GROUP: Final = "kafkalog-copy"
_VERSION: Final = 1
_MAX: Final = 2**63 - 1


class Marker(NamedTuple):
    """Position of a copy: its start and its current place at both ends, the producer with its next sequence.

    `identity` is that of the source topic. `is_kept` is True if all records so far have the offsets of the source.
    """

    source_start: int
    target_start: int
    source_offset: int
    target_offset: int
    producer_id: int
    epoch: int
    sequence: int
    identity: str
    is_kept: bool

    def encode(self) -> Committed:
        """Return the marker as a committed offset with metadata."""
        document = {
            "v": _VERSION, "id": self.identity, "from": self.source_start, "to": self.target_start,
            "end": self.target_offset, "producer": self.producer_id, "epoch": self.epoch, "sequence": self.sequence,
            "kept": self.is_kept,
        }  # fmt: skip
        return Committed(self.source_offset, json.dumps(document, separators=(",", ":")))


def parse_marker(found: Committed | None) -> Marker | None:
    """Return the marker in a committed offset; None if there is none, or if it is not a copy's.

    >>> marker = Marker(2, 0, 5, 3, 1000, 0, 3, "id", False)
    >>> parse_marker(marker.encode()) == marker, parse_marker(Committed(5, "by hand")), parse_marker(None)
    (True, None, None)
    """
    if found is None:
        return None
    try:
        document = json.loads(found.metadata)
        numbers = [document[name] for name in ("from", "to", "end", "producer", "epoch", "sequence")]
        if document["v"] != _VERSION or any(type(one) is not int or not 0 <= one <= _MAX for one in numbers):
            return None
        start, first, end, producer_id, epoch, sequence = numbers
        if start > found.offset or first > end:
            return None
        producer = producer_id, epoch, sequence
        return Marker(start, first, found.offset, end, *producer, str(document["id"]), document["kept"] is True)
    except (ValueError, TypeError, LookupError, RecursionError):
        return None

"""Arithmetic of producer sequence numbers, as the package does it where it reads batches and snapshots."""

from kafkalog._core.batch.scan import scan
from kafkalog.storage.producer_snapshot import ProducerEntry
from kafkalog.tools.dump.printer import first_sequence
from tests.builder import frame


def increment_sequence(sequence: int, by: int) -> int:
    """The last sequence number of a batch that begins with `sequence` and has `by` more offsets."""
    (header,) = scan(frame(b"", count=0, last_delta=by, base_sequence=sequence, producer_id=1))
    return header.last_sequence


def decrement_sequence(sequence: int, by: int) -> int:
    """The first sequence number of a batch in a snapshot that ends with `sequence` and has `by` more offsets."""
    return first_sequence(ProducerEntry(1, 0, sequence, by, by, 0, 0, -1))

"""Number of records of an intent that are in a log, found from the log itself despite later appends and deletes.

An intent is written under the directory's lock, and no one else appends while it is held. So what landed before a crash
begins at `start_offset` and has as many offsets as records, and a recovery truncates logs at the end. Others may append
afterwards; producer id and epoch identify the writer of a batch.

If retention or compaction removed batches, offsets still bound what landed: at least up to the last batch of this
commit, at most up to the first batch of another writer. Only if these differ is the log's producer state used, which
expires after a day. If records were counted as landed before, the log is synced up to `start_offset`: a log that ends
below it has lost records, and no one knows which.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkalog.errors import IllegalState
from kafkalog.landing.ledger import Producer, Target

SEQUENCES: Final = 2**31
"""Number of sequences: they run from 0 to one less, then start again at 0."""


class Found(NamedTuple):
    """A batch of the log: its offsets [base_offset, next_offset), and its producer (-1 without one)."""

    base_offset: int
    next_offset: int
    producer_id: int
    producer_epoch: int


class LogBounds(NamedTuple):
    """Start and end of a log, and its state of the intent's producer: epoch and last sequence, or None."""

    start: int
    end: int
    known: tuple[int, int] | None


def bounds_of_landed(target: Target, producer: Producer, log: LogBounds, batches: Iterable[Found]) -> tuple[int, int]:
    """Return the least and the most records landed since the intent was written; `batches` are those from there on.

    Batches after the first one of another writer are not read.
    """
    start, left = target.start_offset, target.records - target.landed
    ours_to, others_from = start, max(log.end, start)
    for batch in batches:
        if (batch.producer_id, batch.producer_epoch) != producer:
            others_from = max(batch.base_offset, start)
            break
        ours_to = batch.next_offset
    return min(ours_to - start, left), min(max(others_from, ours_to) - start, left)


def landed_records(
    target: Target, producer: Producer, log: LogBounds, batches: Iterable[Found], *, path: str | None = None
) -> int:
    """Return the number of a target's records that are in its log, including those counted in `target.landed`.

    Raises IllegalState if the log no longer shows it: its batches from there on were deleted and the producer expired,
    or it ends below the offset up to which landed records were counted.
    """
    if target.landed and log.end < target.start_offset:
        raise _unknown(
            f"{target.topic_partition} ends at {log.end}, but {target.landed} records had landed below "
            f"{target.start_offset}: some of them are lost",
            target,
            path,
        )
    least, most = bounds_of_landed(target, producer, log, batches)
    if least == most:
        return target.landed + least
    if log.known is not None and most - least < SEQUENCES:
        epoch, last_sequence = log.known
        if epoch != producer.epoch:
            if least == 0:
                return target.landed
        else:
            since = least + (last_sequence + 1 - target.landed - least) % SEQUENCES
            if since <= most:
                return target.landed + since
    raise _unknown(
        f"between {least} and {most} of {target.records - target.landed} records landed in {target.topic_partition} "
        f"from offset {target.start_offset} on: the batches there were deleted, and the producer expired",
        target,
        path,
    )


def _unknown(message: str, target: Target, path: str | None) -> IllegalState:
    """Return the error for a log that no longer shows what landed."""
    return IllegalState(
        message,
        path=path,
        offset=target.start_offset,
        hint="kafkalog.landing.commit.give_up(directory) discards the batch; then run it again under another id, "
        "or abandon it, whichever loses less",
    )

"""How much of an intent is in a log already: told by the log itself, whatever was appended or deleted since.

An intent is written under the directory's lock, and nobody else appends while it is held. So what landed before a crash
lies at `start_offset` and has as many offsets as records; a recovery cuts logs from the end. Then others append. Whose
a batch is, its producer id and epoch tell. Where retention or compaction took batches away, offsets still bound what
landed: it reaches at least to the last batch of ours, at most to the first of somebody else. Only where these differ
the log's memory of producers is asked, which forgets after a day. Where records of ours were counted already the log is
on disk up to `start_offset`: one that ends below it has lost some, and nobody knows which.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkalog.errors import IllegalState
from kafkalog.spark.ledger import Producer, Target

SEQUENCES: Final = 2**31
"""Sequences go from 0 to one less, then again from 0."""


class Found(NamedTuple):
    """A batch of the log: its offsets, [base_offset, next_offset), and who wrote it (-1: nobody who says so)."""

    base_offset: int
    next_offset: int
    producer_id: int
    producer_epoch: int


class LogBounds(NamedTuple):
    """A log's start and end, and what it knows of the intent's producer: its epoch and last sequence, or None."""

    start: int
    end: int
    known: tuple[int, int] | None


def bounds_of_landed(target: Target, producer: Producer, log: LogBounds, batches: Iterable[Found]) -> tuple[int, int]:
    """At least and at most so many records landed since the intent was written; `batches` are those from there on.

    No batch behind the first one of somebody else is looked at.
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
    """How many records of a target are in its log, those counted in `target.landed` with them.

    IllegalState where the log cannot tell any more: its batches from there on were deleted, and the producer forgotten;
    or it ends below the offset that records which landed were counted to.
    """
    if target.landed and log.end < target.start_offset:
        raise _unknown(
            f"{target.topic_partition} ends at {log.end}, and {target.landed} records had landed below "
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
        f"from offset {target.start_offset} on: what was there is deleted, and its producer forgotten",
        target,
        path,
    )


def _unknown(message: str, target: Target, path: str | None) -> IllegalState:
    """The error for a log that cannot tell what landed."""
    return IllegalState(
        message,
        path=path,
        offset=target.start_offset,
        hint="kafkalog.spark.commit.give_up(directory) forgets the batch as it is; then run it again under another id, "
        "or leave it, whichever loses less",
    )

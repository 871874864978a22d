"""Rows of a task as batches of their partitions, in a staged file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkalog.landing.commit import StagedTask
from kafkalog.landing.targets import place_all
from kafkalog.landing.task_stage import Landing, TaskStage
from kafkalog.records.placer import Placer
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    import pyarrow

BATCH_BYTES: Final = 128 << 10
"""Uncompressed size at which batches are closed."""
WAITING_BYTES: Final = 16 << 20
"""Bytes that all partitions of a task collect before finished batches are taken out."""
_MAX_FIRST: Final = 2**31 - 1


def stage_rows(
    batches: Iterable[pyarrow.RecordBatch],
    landing: Landing,
    topic: str | None,
    batch_id: int,
    task: int,
    attempt: int,
    *,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> StagedTask:
    """Stage and sync the rows of one attempt of a task; an error leaves no file.

    Without `topic` the rows name theirs. Raises the errors of `Placer` for rows, InvalidTopic for an invalid name;
    StorageError.
    """
    with TaskStage(landing, task, batch_id=batch_id, attempt=attempt, fs=fs) as stage:
        placer = Placer(
            stage.target, topic=topic, batch_bytes=BATCH_BYTES, waiting_bytes=WAITING_BYTES,
            first_partition=(task + batch_id) & _MAX_FIRST, now_ms=clock.milliseconds,
        )  # fmt: skip
        stage.add_placed(place_all(placer, (batch for batch in batches if batch.num_rows)))
        return stage.finish()

"""Reports on what a read goes on without: damaged bytes, and records that are gone."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalog.errors import StorageError
from kafkalog.util.fileio import OS, atomic_write

if TYPE_CHECKING:
    from kafkalog.exchange.ranges import OffsetRange
    from kafkalog.storage.damage import Skipped

__all__ = ["DataLoss", "report_to"]


class DataLoss(UserWarning):
    """Records that were to be read are gone, and the read goes on without them: `failOnDataLoss` is false."""


def report_to(directory: str | None, wanted: OffsetRange, skipped: Sequence[Skipped]) -> None:
    """Writes what a task left out as one file of JSON lines, named for its range; nothing where nothing was left out.

    A task that runs again writes the same file again. StorageError.
    """
    if directory is None or not skipped:
        return
    name = f"{wanted.topic_partition}.{wanted.start}-{wanted.stop}.json"
    head = {"topic": wanted.topic, "partition": wanted.partition}
    lines = [json.dumps({**head, **_row(one)}) + "\n" for one in skipped]
    try:
        os.makedirs(directory, exist_ok=True)
        atomic_write(OS, os.path.join(directory, name), "".join(lines).encode())
    except OSError as error:
        raise StorageError.from_os(error, "write the report on damage", path=directory) from error


def _row(one: Skipped) -> dict[str, object]:
    return {
        "file": one.path,
        "position": one.position,
        "bytes": one.size_bytes,
        "offset": one.offset,
        "next_offset": one.next_offset,
        "reason": one.reason,
    }

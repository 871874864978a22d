"""What a read goes on without: damaged bytes, counted, logged and, if asked for, reported; records that are gone."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import StorageError
from kafkalog.util.fileio import OS, atomic_write

if TYPE_CHECKING:
    from kafkalog.exchange.ranges import OffsetRange

__all__ = ["Damage", "DataLoss", "Skipped", "report_to"]

_LOG: Final = logging.getLogger("kafkalog.spark")


class DataLoss(UserWarning):
    """Records that were to be read are gone, and the read goes on without them: `failOnDataLoss` is false."""


class Skipped(NamedTuple):
    """A piece of a segment file that was left out: `bytes` from `position`; offsets [offset, next_offset) lie in it.

    Gaps may lie there too, and a last piece of a log may have held more: `next_offset` is where reading went on.
    """

    file: str
    position: int
    bytes: int
    offset: int
    next_offset: int
    reason: str


class Damage:
    """What one task left out, in the order in which it came to it. Threads: one at a time."""

    def __init__(self) -> None:
        self.skipped: list[Skipped] = []

    def note(self, one: Skipped) -> None:
        """Counts a piece that was left out, and logs it; the same one again is counted once."""
        if one in self.skipped:
            return
        self.skipped.append(one)
        _LOG.warning(
            "skipped %d damaged bytes of %s from position %d, offsets %d to %d: %s",
            one.bytes, one.file, one.position, one.offset, one.next_offset - 1, one.reason,
        )  # fmt: skip


def report_to(directory: str | None, wanted: OffsetRange, damage: Damage) -> None:
    """Writes what a task left out as one file of JSON lines, named for its range; nothing where nothing was left out.

    A task that runs again writes the same file again. StorageError.
    """
    if directory is None or not damage.skipped:
        return
    name = f"{wanted.topic_partition}.{wanted.start}-{wanted.stop}.json"
    head = {"topic": wanted.topic, "partition": wanted.partition}
    lines = [json.dumps({**head, **one._asdict()}) + "\n" for one in damage.skipped]
    try:
        os.makedirs(directory, exist_ok=True)
        atomic_write(OS, os.path.join(directory, name), "".join(lines).encode())
    except OSError as error:
        raise StorageError.from_os(error, "write the report on damage", path=directory) from error

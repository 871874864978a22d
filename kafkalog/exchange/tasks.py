"""One part of an export, written by one call in any format."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog.exchange.manifest import ExportSettings
from kafkalog.exchange.ranges import OffsetRange

__all__ = ["ExportTask"]


@dataclass(frozen=True, slots=True)
class ExportTask:
    """A range of a partition, `log_bytes` of log, to files of about `file_bytes` in the directory `staging`."""

    range: OffsetRange
    log_bytes: int
    topic_id: str | None
    settings: ExportSettings
    compression: str
    file_bytes: int
    staging: str
    on_damage: str = "raise"

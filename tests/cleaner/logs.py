"""Logs for the cleaner's tests: appended records with keys, and a log's content batch by batch."""

from pathlib import Path
from typing import Any

from kafkalog.reading.chunks import records
from kafkalog.storage.log import UnifiedLog
from tests.builder import R, batch
from tests.storage import logs

Pair = tuple[bytes | None, bytes | None]


def open_log(path: Path, **more: Any) -> UnifiedLog:
    """The log of `path`/topic-0 with the policy compact; settings and arguments as for `tests.storage.logs.log`."""
    return logs.log(path, **{"cleanup_policy": "compact", **more})


def append(log: UnifiedLog, *pairs: Pair, timestamp: int = logs.NOW, **fields: int) -> int:
    """Append one batch with these keys and values; its base offset. `fields` are header fields of `tests.builder`."""
    rows = [R(value, key, timestamp=timestamp) for key, value in pairs]
    info = log.append_as_leader(bytearray(batch(rows, **fields)))
    first: int = info.first_offset
    return first


def read_records(log: UnifiedLog) -> dict[int, Pair]:
    """offset -> key and value of every record of the log, control records left out."""
    found = records(log, log.log_start_offset, log.log_end_offset)
    return {record.offset: (record.key, record.value) for record in found}


def keys_and_offsets(log: UnifiedLog) -> list[tuple[bytes | None, int]]:
    """The keys of the log's records in order, with their offsets."""
    return [(key, offset) for offset, (key, _) in sorted(read_records(log).items())]

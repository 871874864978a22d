"""Logs and segments for the storage tests: batches of an exact size, logs in a fresh directory, what an index holds."""

import os
from pathlib import Path
from typing import Any

from kafkalog.config.topic import LogConfig
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.segment import LogSegment
from kafkalog.util.fileio import OS, FileSystem
from tests.mock_time import MockClock
from tests.raw_batches import batch

NOW = 1_700_000_000_000
SMALL_INDEX = 1000


def sized_batch(
    size: int, count: int = 1, *, base: int = 0, timestamp: int = NOW, epoch: int = -1, **more: Any
) -> bytes:
    """A batch of exactly `size` bytes: `count` records, the last value takes the slack; record i has `timestamp`."""

    def made(slack: int) -> bytes:
        rows = [(timestamp, b"k", b"")] * (count - 1) + [(timestamp, b"k", b"." * slack)]
        return batch(base, rows, epoch=epoch, **more)

    slack = max(0, size - len(made(0)) - 4)
    while len(made(slack)) < size:
        slack += 1
    data = made(slack)
    assert len(data) == size, f"no batch of {count} records has {size} bytes"
    return data


def run(first: int, count: int, size: int = 100, *, timestamp: int = NOW, step: int = 1, epoch: int = 0) -> bytes:
    """`count` batches of one record and `size` bytes each, offsets from `first` on, times `step` ms apart."""
    parts = [sized_batch(size, base=first + i, timestamp=timestamp + i * step, epoch=epoch) for i in range(count)]
    return b"".join(parts)


def config(**values: Any) -> LogConfig:
    """A configuration with small indexes and segments of any size."""
    values.setdefault("segment_index_bytes", SMALL_INDEX)
    values.setdefault("message_timestamp_after_max_ms", 2**62)
    return LogConfig(**values)


def segment(
    path: Path,
    base: int = 0,
    *,
    fs: FileSystem = OS,
    clock: MockClock | None = None,
    exists: bool = False,
    **values: Any,
) -> LogSegment:
    """A segment in `path`, made unless it `exists`; settings as for `config`."""
    return LogSegment.open(
        path, base, config(**values), fs=fs, clock=clock or MockClock(NOW), file_already_exists=exists
    )


def log(path: Path, *, clock: MockClock | None = None, fs: FileSystem = OS, **more: Any) -> UnifiedLog:
    """Return the log of `path`/topic-0, created if missing. Settings may be mixed with arguments of `open`."""
    directory = path / "topic-0"
    directory.mkdir(exist_ok=True)
    names = (
        "scheduler", "log_start_offset", "recovery_point", "leader_epoch", "high_watermark_follows_end",
        "had_clean_shutdown", "verify_transactions", "producer_expiration_ms",
    )  # fmt: skip
    arguments = {name: more.pop(name) for name in names if name in more}
    return UnifiedLog.open(directory, config(**more), fs=fs, clock=clock or MockClock(NOW), **arguments)


def append_batches(a_log: UnifiedLog, size: int = 100, count: int = 1, *, timestamp: int = NOW, times: int = 1) -> None:
    """Append `times` client batches of `size` bytes with `count` records."""
    for _ in range(times):
        a_log.append_as_leader(bytearray(sized_batch(size, count, timestamp=timestamp)))


def offset_entries(a_segment: LogSegment) -> list[tuple[int, int]]:
    index = a_segment.offset_index
    return [(index.entry(n).offset, index.entry(n).position) for n in range(index.entries)]


def time_entries(a_segment: LogSegment) -> list[tuple[int, int]]:
    index = a_segment.time_index
    return [(index.entry(n).timestamp, index.entry(n).offset) for n in range(index.entries)]


def bases(a_log: UnifiedLog) -> list[int]:
    return [one.base_offset for one in a_log.segments]


def files(path: Path) -> dict[str, int]:
    """Name -> length of the files in a directory."""
    return {name: os.path.getsize(path / name) for name in sorted(os.listdir(path))}


def make_overflowed(folder: Path) -> int:
    """A log whose first segment has offsets too far apart for it, four batches; one batch follows. Returns 2^31.

    The indexes look sound, so that the loader takes it as it is.
    """
    folder.mkdir()
    far = 2**31
    data = b"".join(sized_batch(100, base=offset, epoch=0) for offset in (0, 5, far + 1, far + 3))
    (folder / f"{0:020d}.log").write_bytes(data)
    (folder / f"{far + 9:020d}.log").write_bytes(sized_batch(100, base=far + 9, epoch=0))
    for base in (0, far + 9):
        (folder / f"{base:020d}.index").touch()
        (folder / f"{base:020d}.timeindex").write_bytes(NOW.to_bytes(8, "big") + b"\0\0\0\0")
    return far

"""Benchmarks of maintenance: recovery after a crash, compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.bench.meter import Deadline, Meter
from kafkalog.bench.result import Result
from kafkalog.bench.writing import fill
from kafkalog.log.open import open as open_log
from kafkalog.util.readahead import usable_cores

if TYPE_CHECKING:
    from kafkalog.bench.data import Data
    from kafkalog.bench.place import Place
    from kafkalog.bench.settings import Settings
    from kafkalog.log.log import Log


def recover(place: Place, path: str) -> Result:
    """Time the opening of an unclosed log for writing: every byte of it is checked, on all cores."""
    place.forget_clean_end()
    meter = Meter(Deadline(None))
    opened: list[Log] = []
    try:
        meter.once(lambda: opened.append(open_log(path, "a")))
        meter.records, meter.bytes = opened[0].end_offset, opened[0].size
    finally:
        for log in opened:
            log.close()
    cores = usable_cores()
    return Result.of("recover", "recovery", 1, [meter], notes=(f"{cores} core{'' if cores == 1 else 's'}",))


def compact(path: str, settings: Settings, data: Data) -> Result:
    """Time one clean of a log with two records of each key, created in the empty directory `path`."""
    keys = max(1, settings.num // 2)
    fill("fillbatch", path, settings, data, Deadline(settings.seconds), keys=keys)
    meter = Meter(Deadline(None))
    with open_log(path, "a") as log:
        meter.records, meter.bytes = log.end_offset, log.size
        meter.once(lambda: log.compact(roll=True))
        left = sum(1 for _ in log)
    return Result.of("compact", "clean", 1, [meter], notes=(f"{left:,} records left",))

"""Cleaning a compacted log in the page cache, where every key lies twice: bytes for each second of CPU; its map alone.

The reference's Cleaner gets the same log, buffers of the same size and as much memory for its map, after another log to
warm up on.
"""

import shutil
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kafkalog
from asv_benchmarks.measure import Row, per_item
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.pass_ import clean
from kafkalog.cleaner.throttle import Throttle
from kafkalog.cleaner.types import ASKED, LogToClean

NOW = 1_700_000_000_000
MAP_BYTES = 128 << 20
LOAD = 0.75
BATCH = 100
ROUNDS = 3
PUTS = 1 << 16
BARS = {100: 500.0, 1024: 1885.0}
"""MB/s by the size of a value: five times the 100 and 377 of the reference on an idle machine of this kind."""
SETTINGS = {"cleanup_policy": "compact", "segment_bytes": 256 << 20}
BESIDE_BYTES = 32_000_000
BESIDE_BYTES_PER_S = 20_000_000
MIX = 0x9E3779B97F4A7C15


def key(number: int) -> bytes:
    """Return 16 bytes that are unique to a number."""
    return struct.pack(">QQ", number * MIX % 2**64, number)


def make_log(path: Path, value_bytes: int, total_bytes: int) -> None:
    """Create a log of about that size whose second half repeats the keys of the first, in batches of 100."""
    keys = total_bytes // (value_bytes + 26) // 2 // BATCH * BATCH
    value = (bytes(range(32, 127)) * (value_bytes // 95 + 1))[:value_bytes]
    with kafkalog.open(path, "a", **SETTINGS) as log:
        for half in range(2):
            for first in range(0, keys, BATCH):
                at = NOW + half * keys + first
                log.append([(key(first + i), value, at + i) for i in range(BATCH)])
        log.roll()


def cleaned_once(path: Path) -> float:
    """Clean the log once; return MB per second of CPU. Raise RuntimeError if it did not shrink to half."""
    with kafkalog.open(path, "a") as log:
        before = log.size
        clock = time.process_time()
        log.compact()
        spent = time.process_time() - clock
        if not 0.45 * before < log.size < 0.55 * before:
            raise RuntimeError(f"the clean left {log.size} of {before} bytes")
    return before / spent / 1e6


def median_clean(made: Path) -> float:
    """Return the median of a few cleans, each of a separate copy."""
    rates = []
    for _ in range(ROUNDS):
        copy = made.parent.with_name("copy") / made.name
        shutil.copytree(made.parent, copy.parent)
        rates.append(cleaned_once(copy))
        shutil.rmtree(copy.parent)
    return sorted(rates)[ROUNDS // 2]


def map_put() -> float:
    """CPU ns for each key of 16 bytes, put until three quarters of a map's slots are taken."""
    offset_map = SkimpyOffsetMap(MAP_BYTES)
    wanted = int(offset_map.slots * LOAD)
    runs = [b"".join(key(n) for n in range(at, min(at + PUTS, wanted))) for at in range(0, wanted, PUTS)]

    def fill() -> int:
        offset_map.clear()
        for number, run in enumerate(runs):
            offset_map.put_run(run, 16, number * PUTS)
        return offset_map.size

    return per_item(fill, rounds=3) * 1e9


def share_left(directory: Path, work: Callable[[kafkalog.Log], int]) -> float:
    """Return the rate of `work` beside a throttled clean, in % of its rate alone."""
    path = directory / "beside-0"
    make_log(path, 100, BESIDE_BYTES)
    with kafkalog.open(path, "a") as log:
        engine = log.opened_for_append().log
        to_clean = LogToClean.of(engine, 0, log.segments[-1].base_offset, ASKED)
        throttle = Throttle(BESIDE_BYTES_PER_S).throttle
        alone = _rate(lambda: work(log), lambda: False)
        with ThreadPoolExecutor(1) as threads:
            cleaned = threads.submit(clean, to_clean, SkimpyOffsetMap(MAP_BYTES), now_ms=NOW, throttled=throttle)
            beside = _rate(lambda: work(log), lambda: not cleaned.done())
            cleaned.result()
    shutil.rmtree(path)
    return 100 * beside / alone


def _rate(work: Callable[[], int], goes_on: Callable[[], bool]) -> float:
    """Return items per second, measured for at least a second."""
    items, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < 1.0 or goes_on():
        items += work()
    return items / spent


def append(log: kafkalog.Log) -> int:
    """Append 20 batches of 100 records; return their number."""
    rows = [(key(i), b"v" * 100, NOW) for i in range(BATCH)]
    for _ in range(20):
        log.append(rows)
    return 20


def read(log: kafkalog.Log) -> int:
    """Read the log's last batches; return their bytes."""
    size = 0
    for batch in log.batches(max(log.start_offset, log.end_offset - 200 * BATCH)):
        size += batch.size
    return size


def rows(directory: Path, megabytes: int, reference: bool) -> list[Row]:
    """Return a row for each size of records and one for the map, beside the reference if it is available."""
    found = {"offset_map_put": Row("offset map, put, filled to 0.75", map_put(), 150, "ns", True)}
    groups = ["map"]
    if reference:
        warm = directory / "warm" / "warm-0"
        make_log(warm, 100, min(300, megabytes) * 1_000_000)
        groups.append(f"warm={warm}")
    for value_bytes, bar in BARS.items():
        made = directory / f"made{value_bytes}" / f"values{value_bytes}-0"
        make_log(made, value_bytes, megabytes * 1_000_000)
        work = f"clean, values of {value_bytes} bytes"
        found[f"clean/{made.name}"] = Row(work, median_clean(made), bar, "MB/s", False)
        groups.append(f"clean={made}")
    if reference:
        _beside_kafka(found, groups, directory)
    rate = f"beside a clean at {BESIDE_BYTES_PER_S // 10**6} MB/s"
    beside = [
        Row(f"{what} {rate}", share_left(directory, work), 70, "%", False)
        for what, work in (("appends", append), ("reads", read))
    ]
    return [*found.values(), *beside]


def _beside_kafka(found: dict[str, Row], groups: list[str], directory: Path) -> None:
    from asv_benchmarks.peers import kafka_embedded

    work = directory / "peer"
    work.mkdir()
    for result in kafka_embedded.measure(groups, heap="2g", directory=work):
        row = found[result["name"]]
        row.peers["Kafka"] = float(result["cpu"]) * (1.0 if row.unit == "ns" else 1e-6)

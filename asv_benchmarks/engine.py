"""One log inside this process: append, scan, iterate, look up; items a CPU second or ns of CPU each."""

import random
import shutil
from functools import partial
from pathlib import Path

import numpy as np

import kafkalog
from asv_benchmarks.benchmarks.common import NOW, batch, batches, values
from asv_benchmarks.hot_paths.appending import repeated
from asv_benchmarks.hot_paths.reading import PER_BATCH, each, timed_log
from asv_benchmarks.measure import Peers, Row, per_item, scaled
from asv_benchmarks.peers import limit, python_peers
from kafkalog._core.bytes.crc import crc32c
from kafkalog.reading.chunks import record_tables
from kafkalog.storage.index.offset_index import OffsetIndex

MILLION = 1e6


def _c(job: str, key: str, *arguments: str | Path, scale: float = MILLION) -> Peers:
    peer = limit.ask(job, *arguments)
    return {"C": peer[key][1] / peer[key][0] / scale} if peer else {"C": "no compiler"}


def append_rows(directory: Path) -> list[Row]:
    """Return the rows of ready batches of 1, 100 and 1000 records, and of a Python list of 1000 values."""
    found = []
    for count, bar in ((1, 0.3), (100, 9), (1000, 16)):
        with kafkalog.open(directory / f"ready{count}-0", "a", segment_bytes=1 << 29) as log:
            ready, times = bytearray(batch(count)), max(1, 2000 // count)

            work = repeated(log, times, partial(log.append_bytes, ready), count)
            rate = 1 / per_item(work.once, between=work.prepare) / MILLION
        peers = _c("append", "append", directory, str(count))
        found.append(Row(f"append of ready batches of {count}", rate, bar, "M/s", False, peers))
        _clear(directory)
    with kafkalog.open(directory / "list-0", "a", segment_bytes=1 << 29) as log:
        some = values(1000)
        work = repeated(log, 1, lambda: log.append(some), len(some))
        rate = 1 / per_item(work.once, between=work.prepare) / MILLION
    peers = scaled(python_peers.aiokafka_build(some) | python_peers.lmdb_append(some), MILLION)
    found.append(Row("append of a list of 1000 bytes", rate, 8, "M/s", False, peers))
    _clear(directory)
    return found


def scan_rows(directory: Path) -> list[Row]:
    """Return the rows of reading a file to columns with checksums, and records whose value is read."""
    path = directory / "scan-0"
    with kafkalog.open(path, "a") as log:
        log.append_bytes(batches(1000, 100 << 20))
        end = log.end_offset
    segment = min(path.glob("*.log"))

    def columns() -> int:
        with kafkalog.open(path) as log:
            return sum(len(table) for table in record_tables(log._source, 0, end))

    def touched() -> int:
        seen = 0
        with kafkalog.open(path) as log:
            for record in log.records():
                record.value  # noqa: B018
                seen += 1
        return seen

    assert touched() == end
    scanned, iterated = 1 / per_item(columns) / MILLION, 1 / per_item(touched, rounds=3) / MILLION
    others = python_peers.aiokafka_iterate(batches(1000, 1 << 20)) | python_peers.lmdb_scan(values(1000))
    found = [
        Row("scan a file to columns with CRC", scanned, 40, "M/s", False, _c("scan", "scan", segment)),
        Row("iterate as Record, value touched", iterated, 6, "M/s", False, scaled(others, MILLION)),
    ]
    _clear(directory)
    return found


def lookup_rows(directory: Path) -> list[Row]:
    """Return the rows of the offset index, called from Python one at a time and with arrays."""
    index = OffsetIndex(directory / "00000000000000000000.index", 0, 10 << 20)
    entries = index.max_entries
    for i in range(entries):
        index.append(3 * i + 1, 100 * i)
    rng = np.random.default_rng(3)
    targets = rng.integers(0, 3 * entries, 200_000)
    some, last = [int(n) for n in targets[:50_000]], 3 * entries - 50

    def many() -> int:
        index.lookup_many(targets)
        return len(targets)

    lookups = limit.ask("lookup")
    peer = {k: v[0] / v[1] * 1e9 for k, v in lookups.items()}
    rows = []
    for name, work, bar, job in (
        ("warm", each(index.lookup, [last] * 10_000).once, 130, "lookup_tail"),
        ("random", each(index.lookup, some).once, 400, "lookup_random"),
        ("arrays", many, 100, "lookup_random"),
    ):
        others = {"C": peer.get(job, "no compiler")}
        rows.append(Row(f"index lookup, {name}", per_item(work) * 1e9, bar, "ns", True, others))
    index.close()
    return rows


def read_rows(directory: Path) -> list[Row]:
    """Return the rows of random reads by offset and by time, in batches of 100."""
    path, some, count = directory / "read-0", values(PER_BATCH), 20_000
    timed_log(path, count)
    rng = random.Random(5)
    offsets = [rng.randrange(count * PER_BATCH) for _ in range(2000)]
    times = [NOW + rng.randrange(count) for _ in range(2000)]
    with kafkalog.open(path) as log:
        by_offset = 1 / per_item(each(log.__getitem__, offsets).once) / 1000
        by_time = 1 / per_item(each(log.offset_for_time, times).once) / 1000
    _clear(directory)
    stores = (python_peers.lmdb_read, python_peers.sqlite_read)
    peers: Peers = {}
    for store in stores:
        peers |= scaled(store(some, count * PER_BATCH, offsets), 1000)
    return [
        Row("random read by offset, batches of 100", by_offset, 150, "k/s", False, peers),
        Row("lookup by time, batches of 100", by_time, 150, "k/s", False),
    ]


def crc_rows() -> list[Row]:
    """Return the row of CRC-32C over 64 KiB, called from Python."""
    data = bytes(65536)

    def once() -> int:
        for _ in range(100):
            crc32c(data)
        return 100 * len(data)

    from kafkalog._core.bytes.crc import implementation

    bar = 35 if "512" in implementation() else 22
    peers = scaled(python_peers.crc32c_package(data), 1e9) | _c("crc", "crc", scale=1e9)
    return [Row(f"CRC-32C over 64 KiB ({implementation()})", 1 / per_item(once) / 1e9, bar, "GB/s", False, peers)]


def _clear(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()

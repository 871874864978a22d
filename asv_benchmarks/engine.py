"""One log inside this process: append, scan, iterate, look up; items a CPU second or ns of CPU each."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kafkalog
from asv_benchmarks.benchmarks.common import NOW, batch, batches, values
from asv_benchmarks.measure import Row, per_item
from asv_benchmarks.peers import limit, python_peers
from kafkalog._core.bytes.crc import crc32c
from kafkalog.reading.chunks import record_tables
from kafkalog.storage.index.offset_index import OffsetIndex

MILLION = 1e6


def _c(job: str, key: str, *arguments: str | Path, scale: float = MILLION) -> dict[str, float | str]:
    told = limit.ask(job, *arguments)
    return {"C": told[key][1] / told[key][0] / scale} if told else {"C": "no compiler"}


def append_rows(directory: Path) -> list[Row]:
    """Ready batches of 1, 100 and 1000 records, and a Python list of 1000 values."""
    found = []
    for count, bar in ((1, 0.3), (100, 9), (1000, 16)):
        with kafkalog.open(directory / f"ready{count}-0", "a", segment_bytes=1 << 29) as log:
            ready, times = bytearray(batch(count)), max(1, 2000 // count)

            def once(log: kafkalog.Log = log, ready: bytearray = ready, times: int = times, count: int = count) -> int:
                for _ in range(times):
                    log.append_bytes(ready)
                return times * count

            rate = 1 / per_item(once, between=lambda log=log: log.truncate_to(0)) / MILLION
        found.append(
            Row(
                f"append of ready batches of {count}",
                rate,
                bar,
                "M/s",
                False,
                _c("append", "append", directory, str(count)),
            )
        )
        _clear(directory)
    with kafkalog.open(directory / "list-0", "a", segment_bytes=1 << 29) as log:
        some = values(1000)

        def lists() -> int:
            log.append(some)
            return 1000

        rate = 1 / per_item(lists, between=lambda: log.truncate_to(0)) / MILLION
    peers = _millions(python_peers.aiokafka_build(some)) | _millions(python_peers.lmdb_append(some))
    found.append(Row("append of a list of 1000 bytes", rate, 8, "M/s", False, peers))
    _clear(directory)
    return found


def scan_rows(directory: Path) -> list[Row]:
    """A file to columns with checksums, and records with the value touched."""
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

    found = [
        Row(
            "scan a file to columns with CRC",
            1 / per_item(columns) / MILLION,
            40,
            "M/s",
            False,
            _c("scan", "scan", segment),
        ),
        Row("iterate as Record, value touched", 1 / per_item(touched, rounds=3) / MILLION, 6, "M/s", False),
    ]
    assert touched() == end
    found[1].peers |= _millions(python_peers.aiokafka_iterate(batches(1000, 1 << 20)))
    found[1].peers |= _millions(python_peers.lmdb_scan(values(1000)))
    _clear(directory)
    return found


def lookup_rows(directory: Path) -> list[Row]:
    """The offset index from Python, one at a time and in arrays."""
    index = OffsetIndex(directory / "00000000000000000000.index", 0, 10 << 20)
    entries = index.max_entries
    for i in range(entries):
        index.append(3 * i + 1, 100 * i)
    rng = np.random.default_rng(3)
    targets = rng.integers(0, 3 * entries, 200_000)
    some, last = [int(n) for n in targets[:50_000]], 3 * entries - 50
    lookup = index.lookup

    def warm() -> int:
        for _ in range(10_000):
            lookup(last)
        return 10_000

    def scattered() -> int:
        for target in some:
            lookup(target)
        return len(some)

    def many() -> int:
        index.lookup_many(targets)
        return len(targets)

    told = limit.ask("lookup")
    peer = {k: v[0] / v[1] * 1e9 for k, v in told.items()}
    rows = [
        Row("index lookup, warm", per_item(warm) * 1e9, 130, "ns", True, {"C": peer.get("lookup_tail", "no compiler")}),
        Row(
            "index lookup, random",
            per_item(scattered) * 1e9,
            400,
            "ns",
            True,
            {"C": peer.get("lookup_random", "no compiler")},
        ),
        Row(
            "index lookup, arrays",
            per_item(many) * 1e9,
            100,
            "ns",
            True,
            {"C": peer.get("lookup_random", "no compiler")},
        ),
    ]
    index.close()
    return rows


def read_rows(directory: Path) -> list[Row]:
    """Random reads by offset and by time, batches of 100."""
    path, some, count = directory / "read-0", values(100), 20_000
    with kafkalog.open(path, "a", segment_bytes=1 << 28) as log:
        for i in range(count):
            log.append([(None, value, NOW + i) for value in some])
    rng = random.Random(5)
    offsets = [rng.randrange(count * 100) for _ in range(2000)]
    times = [NOW + rng.randrange(count) for _ in range(2000)]
    with kafkalog.open(path) as log:

        def each(work: Callable[[int], object], asked: list[int]) -> Callable[[], int]:
            def once() -> int:
                for what in asked:
                    work(what)
                return len(asked)

            return once

        by_offset = 1 / per_item(each(log.__getitem__, offsets)) / 1000
        by_time = 1 / per_item(each(log.offset_for_time, times)) / 1000
    _clear(directory)
    stores = (python_peers.lmdb_read, python_peers.sqlite_read)
    peers = {name: found for store in stores for name, found in _thousands(store(some, count * 100, offsets)).items()}
    return [
        Row("random read by offset, batches of 100", by_offset, 150, "k/s", False, peers),
        Row("lookup by time, batches of 100", by_time, 150, "k/s", False),
    ]


def crc_rows() -> list[Row]:
    """CRC-32C over 64 KiB, called from Python."""
    data = bytes(65536)

    def once() -> int:
        for _ in range(100):
            crc32c(data)
        return 100 * len(data)

    from kafkalog._core.bytes.crc import implementation

    bar = 35 if "512" in implementation() else 22
    peers = {name: v / 1e9 if isinstance(v, float) else v for name, v in python_peers.crc32c_package(data).items()}
    peers |= _c("crc", "crc", scale=1e9)
    return [Row(f"CRC-32C over 64 KiB ({implementation()})", 1 / per_item(once) / 1e9, bar, "GB/s", False, peers)]


def _thousands(peer: python_peers.Peer) -> python_peers.Peer:
    return {name: v / 1000 if isinstance(v, float) else v for name, v in peer.items()}


def _millions(peer: python_peers.Peer) -> python_peers.Peer:
    return {name: v / MILLION if isinstance(v, float) else v for name, v in peer.items()}


def _clear(directory: Path) -> None:
    import shutil

    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()

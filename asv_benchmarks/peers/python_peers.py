"""Python packages as peers: aiokafka's record code, LMDB and SQLite as embedded stores, the crc32c package."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from asv_benchmarks.benchmarks.common import NOW
from asv_benchmarks.measure import Peers, per_item


def _try(name: str, work: Callable[[], float]) -> Peers:
    try:
        return {name: work()}
    except ImportError as missing:
        return {name: f"not installed ({missing.name})"}


def aiokafka_build(values: Sequence[bytes]) -> Peers:
    """Return records per CPU second that aiokafka's batch builder takes."""

    def work() -> float:
        from aiokafka.record.default_records import DefaultRecordBatchBuilder as Builder

        def once() -> int:
            builder = Builder(
                magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
                batch_size=1 << 30,
            )  # fmt: skip
            for i, value in enumerate(values):
                builder.append(i, NOW, None, value, [])
            builder.build()
            return len(values)

        return 1 / per_item(once)

    return _try("aiokafka", work)


def aiokafka_iterate(data: bytes) -> Peers:
    """Return records per CPU second that aiokafka reads, checksum and value touched."""

    def work() -> float:
        from aiokafka.record.memory_records import MemoryRecords

        def once() -> int:
            records, seen = MemoryRecords(data), 0
            while (batch := records.next_batch()) is not None:
                batch.validate_crc()
                for record in batch:
                    record.value  # noqa: B018
                    seen += 1
            return seen

        return 1 / per_item(once)

    return _try("aiokafka", work)


def aiokafka_to_arrow(data: bytes) -> Peers:
    """Return records per CPU second that aiokafka reads and pyarrow makes columns of."""

    def work() -> float:
        import pyarrow as pa
        from aiokafka.record.memory_records import MemoryRecords

        def once() -> int:
            records, rows = MemoryRecords(data), []
            while (batch := records.next_batch()) is not None:
                batch.validate_crc()
                rows += [(record.key, record.value, record.offset, record.timestamp) for record in batch]
            keys, values, offsets, times = zip(*rows, strict=True)
            table = pa.table(
                [
                    pa.array(keys, pa.binary()),
                    pa.array(values, pa.binary()),
                    pa.array(offsets, pa.int64()),
                    pa.array(times, pa.timestamp("ms", "UTC")),
                ],
                names=["key", "value", "offset", "timestamp"],
            )
            return table.num_rows

        return 1 / per_item(once)

    return _try("aiokafka, pyarrow", work)


@contextmanager
def _lmdb(values: Sequence[bytes], count: int) -> Iterator[Any]:
    """Yield an LMDB environment without syncs, with `count` values under their numbers."""
    import lmdb

    with (
        tempfile.TemporaryDirectory() as directory,
        lmdb.open(directory, map_size=1 << 33, sync=False, metasync=False) as env,
    ):
        with env.begin(write=True) as transaction:
            for i in range(count):
                transaction.put(i.to_bytes(8, "big"), values[i % len(values)], append=True)
        yield env


def lmdb_append(values: Sequence[bytes]) -> Peers:
    """Return records per CPU second that LMDB appends, one transaction for all values, no sync."""

    def work() -> float:
        with _lmdb(values, 0) as env:
            at = 0

            def once() -> int:
                nonlocal at
                with env.begin(write=True) as transaction:
                    for i, value in enumerate(values, at):
                        transaction.put(i.to_bytes(8, "big"), value, append=True)
                at += len(values)
                return len(values)

            return 1 / per_item(once)

    return _try("lmdb", work)


def lmdb_scan(values: Sequence[bytes]) -> Peers:
    """Return records per CPU second that an LMDB cursor gives."""

    def work() -> float:
        with _lmdb(values, 100_000) as env:

            def once() -> int:
                with env.begin() as transaction:
                    return sum(1 for _ in transaction.cursor())

            return 1 / per_item(once)

    return _try("lmdb", work)


def lmdb_read(values: Sequence[bytes], count: int, asked: Sequence[int]) -> Peers:
    """Return values per CPU second that LMDB gives by number, of `count`, a transaction for each."""

    def work() -> float:
        with _lmdb(values, count) as env:

            def once() -> int:
                for i in asked:
                    with env.begin() as transaction:
                        assert transaction.get(i.to_bytes(8, "big")) is not None
                return len(asked)

            return 1 / per_item(once)

    return _try("lmdb", work)


def sqlite_read(values: Sequence[bytes], count: int, asked: Sequence[int]) -> Peers:
    """Return values per CPU second that SQLite gives by number, of `count`, a query for each."""
    with (
        tempfile.TemporaryDirectory() as directory,
        closing(sqlite3.connect(Path(directory) / "log.db", isolation_level=None)) as store,
    ):
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("CREATE TABLE log (n INTEGER PRIMARY KEY, value BLOB)")
        store.execute("BEGIN")
        store.executemany("INSERT INTO log VALUES (?, ?)", ((i, values[i % len(values)]) for i in range(count)))
        store.execute("COMMIT")

        def once() -> int:
            for i in asked:
                assert store.execute("SELECT value FROM log WHERE n = ?", (i,)).fetchone() is not None
            return len(asked)

        return {"SQLite": 1 / per_item(once)}


def crc32c_package(data: bytes) -> Peers:
    """Return bytes per CPU second of the crc32c package."""

    def work() -> float:
        from crc32c import crc32c

        def once() -> int:
            for _ in range(100):
                crc32c(data)
            return 100 * len(data)

        return 1 / per_item(once)

    return _try("crc32c", work)

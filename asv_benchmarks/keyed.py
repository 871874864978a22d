"""Look-ups by key in a log with a key index, warm: single ones and arrays, beside LMDB and SQLite on the same data.

All three hold the same keys and values, in the page cache, and give each value as bytes. LMDB and SQLite do not check
what they read; kafkalog verifies the checksum of each record's batch. `get_table` takes and gives Arrow columns.

What appends of small batches left in the page cache is copied at half the speed of what the system read from the disk.
So the look-ups are measured after the appends, beside the peers, and once more after the log was read from the disk, as
after a start. KEYS is the number of keys (default 10,000,000).
"""

import os
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import kafkalog
from asv_benchmarks.measure import Peers, Row, per_item

KEYS = int(os.environ.get("KEYS", "10000000"))
VALUE = bytes(range(32, 102))
BATCH = 100
ASKED = 100_000
ARRAY = 1_000_000
ROUNDS = 3
LOOKUPS = (
    ("get, one key at a time", 400, "k/s"),
    ("get_many, lists of 1 M keys", 3, "M/s"),
    ("get_table, Arrow arrays of 1 M keys", 3, "M/s"),
)


def key(number: int) -> bytes:
    """Return the key of a number, 16 bytes."""
    return b"user-%011d" % number


def shuffled(count: int) -> list[int]:
    """Return the numbers below `count` in a random order."""
    numbers = list(range(count))
    random.Random(7).shuffle(numbers)
    return numbers


def rows(directory: Path) -> list[Row]:
    """Return the rows of building and looking up, each with its peers."""
    import pyarrow

    numbers = shuffled(KEYS)
    path = directory / "keyed-0"
    with kafkalog.open(path, "a", segment_bytes=1 << 30) as log:
        for first in range(0, KEYS, BATCH):
            log.append([(key(number), VALUE) for number in numbers[first : first + BATCH]])
        log.roll()
    rng = random.Random(8)
    asked = [key(rng.randrange(KEYS)) for _ in range(min(ASKED, KEYS))]
    array = [key(rng.randrange(KEYS)) for _ in range(min(ARRAY, KEYS))]
    with kafkalog.open(path, "a") as log:
        found = [_building(log, numbers, directory)]

        def one_by_one() -> int:
            for one in asked:
                log.get(one).value  # type: ignore[union-attr]  # noqa: B018
            return len(asked)

        def together() -> int:
            return sum(record is not None and record.value is not None for record in log.get_many(array))

        in_arrow = pyarrow.array(array, pyarrow.binary())

        def as_columns() -> int:
            table = pyarrow.table(log.get_table(in_arrow, ["offset", "timestamp", "key", "value"]))
            return len(table) - table["offset"].null_count

        appended = _log_rates(one_by_one, together, as_columns)
        _read_from_disk(path)
        read = _log_rates(one_by_one, together, as_columns)
    peers = [_lmdb(directory, numbers, asked, array), _sqlite(directory, numbers, asked, array)]
    for at, (name, bar, unit) in enumerate(LOOKUPS):
        beside = _named(peers, min(at, 1), 1e-3 if unit == "k/s" else 1e-6)
        found.append(Row(name, appended[at], bar, unit, peers=beside))
    found += [Row(f"{name}, read from a disk", read[at], bar, unit) for at, (name, bar, unit) in enumerate(LOOKUPS)]
    return found


def _building(log: kafkalog.Log, numbers: Sequence[int], directory: Path) -> Row:
    def once() -> int:
        return sum(info.records for info in log.build_key_index(rebuild=True))

    value = 1e-6 / per_item(once, rounds=ROUNDS)
    size = sum(info.size for info in log.key_index())
    row = Row("build a key index", value, 15, "M/s")
    row.remark = f"{size / len(numbers):.2f} bytes a record"
    return row


def _log_rates(one: Callable[[], int], many: Callable[[], int], columns: Callable[[], int]) -> tuple[float, ...]:
    arrays = [1e-6 / per_item(work, rounds=ROUNDS) for work in (many, columns)]
    return 1e-3 / per_item(one, rounds=ROUNDS), *arrays


def _read_from_disk(path: Path) -> None:
    """Drop what the appends left of a log in the page cache, and read it from the disk."""
    for segment in path.glob("*.log"):
        with segment.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(1 << 20):
                pass


Lookups = tuple[str, float | str, float | str]


def _named(peers: Sequence[Lookups], at: int, scale: float) -> Peers:
    named: Peers = {}
    for name, *rates in peers:
        rate = rates[at]
        named[name] = rate * scale if isinstance(rate, float) else rate
    return named


def _rates(name: str, one: Callable[[bytes], object], many: Callable[[], int], asked: Sequence[bytes]) -> Lookups:
    def one_by_one() -> int:
        for wanted in asked:
            one(wanted)
        return len(asked)

    return name, 1 / per_item(one_by_one, rounds=ROUNDS), 1 / per_item(many, rounds=ROUNDS)


def _lmdb(directory: Path, numbers: Sequence[int], asked: Sequence[bytes], array: Sequence[bytes]) -> Lookups:
    try:
        import lmdb
    except ImportError:
        reason = "not installed (lmdb)"
        return "LMDB", reason, reason
    with lmdb.open(str(directory / "lmdb"), map_size=1 << 34, sync=False, metasync=False) as env:
        with env.begin(write=True) as transaction:
            for number in range(len(numbers)):
                transaction.put(key(number), VALUE, append=True)
        with env.begin() as transaction, transaction.cursor() as cursor:
            return _rates("LMDB", transaction.get, lambda: len(cursor.getmulti(array)), asked)


def _sqlite(directory: Path, numbers: Sequence[int], asked: Sequence[bytes], array: Sequence[bytes]) -> Lookups:
    with closing(sqlite3.connect(directory / "keyed.sqlite", isolation_level=None)) as con:
        con.execute("PRAGMA journal_mode = OFF")
        con.execute("PRAGMA synchronous = OFF")
        con.execute("CREATE TABLE latest (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        con.execute("BEGIN")
        con.executemany("INSERT INTO latest VALUES (?, ?)", ((key(number), VALUE) for number in range(len(numbers))))
        con.execute("COMMIT")
        con.execute("CREATE TEMP TABLE wanted (key BLOB)")
        con.executemany("INSERT INTO wanted VALUES (?)", ((one,) for one in array))

        def one(wanted: bytes) -> object:
            return con.execute("SELECT value FROM latest WHERE key = ?", (wanted,)).fetchone()

        def many() -> int:
            joined = con.execute("SELECT latest.key, value FROM wanted JOIN latest ON latest.key = wanted.key")
            return sum(1 for _ in joined)

        return _rates("SQLite", one, many, asked)

"""Scans for keys read only the batches that hold them, and lose no row, whatever the indexes and the log are."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import polars
import pyarrow
import pyarrow.compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import values
from kafkalog._core.keys.key_index import KeyIndex
from kafkalog._core.keys.key_walk import hash_key
from kafkalog.errors import StorageError
from kafkalog.keys import parts as key_parts
from kafkalog.keys import ranges
from kafkalog.keys.place import KeyIndexPlace
from tests.fuzz_cases import KINDS
from tests.memory import memory
from tests.transactional import made
from tests.where.logs import Batch, write_log

KEYS = [b"k0", b"k1", b"k2", b"k3", b"", None]
WHERE = {
    "key == 'k1'": {b"k1"}, "key in ('k0', x'6b33', null)": {b"k0", b"k3"}, "key == ''": {b""},
    "not key != 'k2'": {b"k2"}, "not (key != 'k2' or size > 10000)": {b"k2"}, "key == 'nobody'": set(),
    "key == 'k1' and key == 'k2'": set(), "key == 'k1' or key == 'k2'": {b"k1", b"k2"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def cheap_ranges(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each record that is found is read by itself, in these small segments too."""
    monkeypatch.setattr(ranges, "RANGE_BYTES", 0)
    monkeypatch.setattr(ranges, "NEAR_OFFSETS", 0)
    yield


def check(log: kafkalog.Log, isolation: str | None = None, conditions: Iterable[str] = tuple(WHERE)) -> None:
    """The rows of each condition are those among all records."""
    records = [*log.records(isolation=isolation)]
    for where in conditions:
        keys = WHERE[where]
        expected = [one.offset for one in records if one.key in keys]
        assert log.scan(["offset"], where=where, isolation=isolation).table()["offset"].to_pylist() == expected, where
        assert [one.offset for one in log.records(where=where, isolation=isolation)] == expected
        found = log.scan(["offset"], where=where, key="string", on_undecodable="null", isolation=isolation)
        if "x'" not in where:
            assert found.table()["offset"].to_pylist() == expected
        bounded = [offset for offset in expected if 3 <= offset < 9]
        where = f"({where}) and offset >= 3 and offset < 9"
        assert [one.offset for one in log.records(where=where, isolation=isolation)] == bounded


BATCHES = st.builds(
    lambda kind, times: Batch(*kind, tuple(times)), st.sampled_from(KINDS), st.lists(st.just(5), min_size=1, max_size=5)
)


@settings(max_examples=40)
@given(st.lists(BATCHES, min_size=1, max_size=8), st.integers(1, 4))
def test_no_row_is_lost_in_any_format(batches: list[Batch], per_segment: int) -> None:
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        path, store = Path(folder) / "data" / "t-3", Path(folder) / "store"
        write_log(path, batches, per_segment)
        with kafkalog.open(path, key_index=store) as log:
            log.build_key_index()
            check(log)


def damage(file: Path, how: str, others: list[Path]) -> None:
    """Make an index missing, cut, flipped, or that of another segment."""
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        at = len(data) * 2 // 3
        file.write_bytes(data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :])
    elif how == "swapped" and others[0] != file:
        shutil.copy(others[0], file)


@settings(max_examples=60)
@given(st.data())
def test_no_row_is_lost_while_log_and_indexes_change(data: st.DataObject) -> None:
    """Appends, rolls, truncations, deletions, cleans; indexes that are stale, damaged or missing for some segments."""
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        path, store = Path(folder) / "data" / "t-0", Path(folder) / "indexes"
        path.parent.mkdir()
        options = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "file_delete_delay_ms": 0}
        with (
            kafkalog.open(path, "a", **options) as log,
            kafkalog.open(path) as reader,
            kafkalog.open(path, key_index=store) as stored,
        ):
            for _ in range(data.draw(st.integers(1, 12))):
                steps = ["append", "append", "append", "roll", "build", "damage", "truncate", "delete", "compact"]
                step = data.draw(st.sampled_from(steps))
                if step == "append":
                    keys = data.draw(st.lists(st.sampled_from(KEYS[:-1]), min_size=1, max_size=6))
                    log.append([(key, b"-" * 20) for key in keys])
                elif step == "roll":
                    log.roll()
                elif step == "build":
                    log.build_key_index()
                    stored.build_key_index()
                elif step == "damage":
                    for file in sorted(Path(folder).rglob("*.keyindex")):
                        how = data.draw(st.sampled_from(["", "missing", "cut", "flipped", "swapped"]))
                        damage(file, how, sorted(path.glob("*.keyindex")) or [file])
                elif step == "truncate":
                    log.truncate_to(max(log.start_offset, log.end_offset - data.draw(st.integers(0, 8))))
                elif step == "delete":
                    log.delete_before(min(log.start_offset + data.draw(st.integers(0, 4)), log.end_offset))
                else:
                    log.compact()
                some = data.draw(st.sets(st.sampled_from([*WHERE]), min_size=2, max_size=2))
                for one in (log, reader, stored):
                    check(one, conditions=some)


def test_committed_reads(tmp_path: Path) -> None:
    events = [("data", 7, 3), ("plain", 0, 2), ("abort", 7, 0), ("data", 8, 2), ("commit", 8, 0), ("plain", 0, 1)]
    made(events).write(tmp_path / "t-0")
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k1", b"")])
        log.roll()
        log.build_key_index()
        check(log, "read_committed")


ROWS = 40_000


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 8 MB in 1 MiB segments, with indexes; the key `rare` has three records."""
    path = tmp_path_factory.mktemp("data") / "orders-0"
    with kafkalog.open(path, "a", segment_bytes=1 << 20) as log:
        for start in range(0, ROWS, 50):
            numbers = range(start, start + 50)
            log.append([(b"rare" if n in (5, 20_017, 20_018) else b"k%d" % n, b"%d" % n + b"v" * 180) for n in numbers])
        log.roll()
        log.append([(b"rare", b"at the end")])
        assert len(log.build_key_index()) > 6
    return path


def bytes_read(log: kafkalog.Log) -> int:
    return int(log._source.metrics.reads.total)


def test_only_batches_that_hold_the_key_are_read(long_log: Path) -> None:
    with kafkalog.open(long_log) as log:
        found = [one.offset for one in log.records(where="key == 'rare'")]
        assert found == [5, 20_017, 20_018, ROWS]
        before = bytes_read(log)
        assert [one.offset for one in log.records(where="key == 'rare' and size < 1000")] == found
        assert bytes_read(log) - before < 0.05 * log.size
        before = bytes_read(log)
        assert log.scan(["offset"], where="key == 'k7' or key == 'k39000'").table()["offset"].to_pylist() == [7, 39_000]
        assert bytes_read(log) - before < 0.05 * log.size


def test_queries_of_engines_read_only_batches_that_hold_the_key(long_log: Path) -> None:
    with kafkalog.open_dirs(long_log.parent) as dirs, duckdb.connect() as sql:
        log = dirs["orders", 0]
        with kafkalog.duckdb.register(sql, dirs):
            before = bytes_read(log)
            query = "SELECT orders.offset FROM orders WHERE key = 'rare'::BLOB ORDER BY ALL"
            assert [row[0] for row in sql.execute(query).fetchall()] == [5, 20_017, 20_018, ROWS]
            assert bytes_read(log) - before < 0.05 * log.size
        before = bytes_read(log)
        frame = kafkalog.polars.scan(dirs, "orders").filter(polars.col("key") == b"rare").select("offset").collect()
        assert frame["offset"].sort().to_list() == [5, 20_017, 20_018, ROWS]
        assert bytes_read(log) - before < 0.05 * log.size
        with kafkalog.duckdb.register(sql, dirs, {"orders": "typed"}, key="string"):
            before = bytes_read(log)
            assert len(sql.execute("SELECT value FROM typed WHERE key = 'rare'").fetchall()) == 4
            assert bytes_read(log) - before < 0.05 * log.size


def test_a_key_of_most_records_is_read_with_whole_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "RANGE_BYTES", 64 << 10)
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k%d" % (n % 200), b"v" * 100) for n in range(4000)])
        log.roll()
        log.build_key_index()
        lookup = kafkalog.log.keyed.lookup_of(log)
        assert [*ranges.KeyRanges(lookup, frozenset([b"k7"])).possible(0, 4000)] == [(0, 4000)]
        assert [*ranges.KeyRanges(lookup, frozenset([b"nobody"])).possible(0, 4000)] == []
        many = frozenset(b"n%d" % n for n in range(ranges.MOST_KEYS + 1))
        assert [*ranges.KeyRanges(lookup, many).possible(0, 4000)] == [(0, 4000)]


def test_a_key_with_too_many_records_to_list_is_read_with_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "MOST_OFFSETS", 1000)
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"many" if n % 2 else b"k%d" % (n % 50), b"v") for n in range(5000)])
        log.roll()
        log.build_key_index()
        lookup = kafkalog.log.keyed.lookup_of(log)
        (part,) = lookup.parts.indexed()
        assert isinstance(part.index, KeyIndex)
        for key, count in ((b"many", 2500), (b"k48", 100), (b"nobody", 0)):
            hashed = hash_key(part.secret, key)
            found = part.index.find_all(hashed, 0, 5000)
            assert found is not None and len(found) >= count
            assert part.index.find_all(hashed, 0, 5000, 9) == found[:10]
        assert [*ranges.KeyRanges(lookup, frozenset([b"many"])).possible(0, 5000)] == [(0, 5000)]
        assert [*ranges.KeyRanges(lookup, frozenset([b"k48", b"nobody"])).possible(0, 60)] == [(48, 49)]
        check(log)


def test_a_segment_changed_in_place_is_read(tmp_path: Path) -> None:
    """By another process, in a way that leaves its name and size: the index was that of other records."""
    path, store = tmp_path / "data" / "t-0", tmp_path / "indexes"
    path.parent.mkdir()
    for key, folder in ((b"old", path), (b"new", tmp_path / "other" / "t-0")):
        folder.parent.mkdir(exist_ok=True)
        with kafkalog.open(folder, "a") as log:
            log.append([(key, b"v", 5)])
            log.roll()
            log.append([(b"k", b"v", 5)])
    with kafkalog.open(path, key_index=store) as log:
        log.build_key_index()
        assert [one.offset for one in log.records(where="key == 'old'")] == [0]
        scan = log.scan(["offset"], where="key == 'new'")
        assert scan.table()["offset"].to_pylist() == []
        time.sleep(0.01)
        file = f"{0:020}.log"
        with open(path / file, "r+b") as target:
            target.write((tmp_path / "other" / "t-0" / file).read_bytes())
        os.utime(path / file)
        assert scan.table()["offset"].to_pylist() == [0]
        assert [one.offset for one in log.records(where="key == 'new'")] == [0]


class UpperCase:
    """A decoder of a caller's, which happens to have the name of one that leaves keys as they are."""

    name = "string"
    arrow_type = pyarrow.string()

    def decode(self, column: pyarrow.Array) -> values.Decoded:
        return values.Decoded(pyarrow.compute.utf8_upper(column.cast(pyarrow.string())), None, 0)


def test_keys_of_a_callers_decoder_are_not_looked_up(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"a", b"1"), (b"b", b"2")])
        log.roll()
        log.build_key_index()
        assert log.scan(["offset"], where="key == 'A'", key=UpperCase()).table()["offset"].to_pylist() == [0]


def test_a_store_that_cannot_be_listed_costs_no_row(
    long_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: KeyIndexPlace) -> list[int]:
        raise StorageError("no list")

    monkeypatch.setattr(KeyIndexPlace, "base_offsets", fail)
    with kafkalog.open(long_log) as log:
        assert len([*log.records(where="key == 'rare'")]) == 4


def test_a_truncation_meanwhile_loses_no_row(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for _ in range(2):
            log.append([(b"k1" if n in (2, 8) else b"k", b"v") for n in range(10)])
            log.roll()
        log.build_key_index()
        parts = ranges.KeyRanges(kafkalog.log.keyed.lookup_of(log), frozenset([b"k1"])).possible(0, 20)
        assert [next(parts), next(parts)] == [(2, 3), (8, 9)]
        log.truncate_to(10)
        log.append([(b"k1", b"v")] * 10)
        assert [*parts] == [(10, 20)]


def test_pages_of_indexes_that_scans_alone_use_are_given_back(long_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafkalog.open(long_log) as log:
        assert len([*log.records(where="key == 'rare'")]) == 4
        parts = kafkalog.log.keyed.lookup_of(log).parts
        held = [part.index for _, _, part in parts._closed.values()]
        assert sum(one.held_bytes for one in held) > 0
        monkeypatch.setattr(key_parts, "PAGES_BYTES", 0)
        parts.indexed()
        assert sum(one.held_bytes for one in held) == 0

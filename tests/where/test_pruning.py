"""Pruning loses no row: logs of all formats and codecs with times in any order, compacted logs; what is not read."""

import gzip
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import where
from kafkalog._core.batch.legacy import wrapper
from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import CorruptRecord
from kafkalog.log.log import Log
from kafkalog.log.pruning import PrunedScan
from kafkalog.log.scan import LogScan
from kafkalog.where.nodes import And, Compare, In, IsNull, Literal, Node, Not, Or
from tests.builder import message_v1
from tests.fuzz_cases import KINDS
from tests.memory import memory
from tests.transactional import made
from tests.where.expressions import evaluate, fields
from tests.where.logs import Batch, as_row, write_log

T = 1_700_000_000_000
MOMENTS = st.one_of(st.just(-1), st.integers(0, 20).map(lambda n: T + n))
BATCHES = st.builds(
    lambda kind, times, stamped: Batch(*kind, tuple(times), T + 7 if stamped and kind[0] == 2 else None),
    st.sampled_from(KINDS), st.lists(MOMENTS, min_size=1, max_size=4), st.booleans(),
)  # fmt: skip
SIGNS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
TERMS: st.SearchStrategy[Node] = st.one_of(
    st.builds(Compare, SIGNS, fields([("time",)]), st.integers(-2, 22).map(lambda n: Literal(T + n))),
    st.builds(Compare, SIGNS, fields([("offset",)]), st.integers(-1, 30).map(Literal)),
    st.builds(In, fields([("offset",)]), st.lists(st.integers(0, 30).map(Literal), min_size=1, max_size=3).map(tuple)),
    st.builds(Compare, SIGNS, fields([("partition",)]), st.integers(2, 4).map(Literal)),
    st.builds(Compare, SIGNS, fields([("key",)]), st.just(Literal("k1"))),
    st.builds(IsNull, fields([("header", "trace")])),
)
NODES = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.builds(Not, inner), st.tuples(inner, inner).map(And), st.tuples(inner, inner).map(And),
        st.tuples(inner, inner).map(Or),
    ),  # fmt: skip
    max_leaves=5,
)


def check(log: Log, node: Node, **bounds: int) -> None:
    """The rows of a scan and of `records` are those records for which the expression is true."""
    expression = where.Expression(node)
    expected = [one for one in log.records(**bounds) if evaluate(node, as_row(log, one)) is True]
    assert list(log.records(where=expression, **bounds)) == expected
    found = log.scan(["offset", "key"], where=expression, **bounds).table()
    assert found["offset"].to_pylist() == [one.offset for one in expected]
    assert found["key"].to_pylist() == [one.key for one in expected]


@settings(max_examples=150)
@given(st.lists(BATCHES, min_size=1, max_size=8), st.integers(1, 4), st.lists(NODES, min_size=1, max_size=4))
def test_no_row_is_lost_in_any_format(batches: list[Batch], per_segment: int, nodes: list[Node]) -> None:
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        write_log(Path(folder) / "t-3", batches, per_segment)
        with kafkalog.open(Path(folder) / "t-3") as log:
            for node in nodes:
                check(log, node)
            check(log, nodes[0], start=min(2, log.end_offset), stop=-1)


@settings(max_examples=40)
@given(st.lists(st.tuples(MOMENTS, st.booleans()), min_size=1, max_size=25), st.lists(NODES, min_size=1, max_size=4))
def test_no_row_is_lost_with_indexes_and_after_compaction(
    written: list[tuple[int, bool]], nodes: list[Node]
) -> None:
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        options = {"index_interval_bytes": 1, "cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}
        with kafkalog.open(Path(folder) / "t-3", "a", **options) as log:
            for number, (time, rolls) in enumerate(written):
                log.append([(b"k%d" % (number % 5), b"v%d" % number, time)])
                if rolls:
                    log.roll()
            for node in nodes:
                check(log, node)
            log.compact()
            for node in nodes:
                check(log, node)
        with kafkalog.open(Path(folder) / "t-3") as log:
            for node in nodes:
                check(log, node)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """40 batches of 100 records in four segments, a record a second."""
    directory = tmp_path / "t-3"
    with kafkalog.open(directory, "a") as log:
        for base in range(0, 4000, 100):
            log.append([(b"k%d" % (n % 7), b"v" * 100, T + 1000 * n) for n in range(base, base + 100)])
            if base in (900, 1900, 2900):
                log.roll()
    return directory


def decoded(scan: LogScan) -> int:
    """The number of offsets in the batches that a scan decodes."""
    chunks = list(scan._chunks())
    rows = [(one.batches, n) for one in chunks for n in range(one.first, one.last)]
    return sum(batches.last_offset_of(n) + 1 - batches.base_offset(n) for batches, n in rows)


@pytest.mark.parametrize(
    ("text", "expected", "most"),
    [
        ("offset >= 3950", range(3950, 4000), 100),
        ("offset in (5, 1500, 3999)", [5, 1500, 3999], 300),
        (f"time >= {T + 3_950_000}", range(3950, 4000), 100),
        ("time >= '2023-11-14T23:19:10Z'", range(3950, 4000), 100),
        (f"time >= {T + 3_950_000} and offset < 3960", range(3950, 3960), 100),
        (f"time > {T + 4_000_000}", [], 0),
        ("partition == 2", [], 0),
        ("offset > 10 and offset < 5", [], 0),
        ("key == 'k1' and offset < 10", [1, 8], 100),
    ],
)
def test_what_headers_and_indexes_rule_out_is_not_read(
    path: Path, text: str, expected: list[int] | range, most: int
) -> None:
    with kafkalog.open(path) as log:
        scan = log.scan(["offset"], where=text)
        assert scan.table()["offset"].to_pylist() == list(expected)
        assert isinstance(scan.scan, PrunedScan) and decoded(scan.scan) <= most


def test_batches_of_log_append_time_are_left_out_above_too(tmp_path: Path) -> None:
    batches = [Batch(2, KINDS[-5][1], (T, T, T), T + n) for n in range(10)]
    write_log(tmp_path / "t-3", batches, 20)
    with kafkalog.open(tmp_path / "t-3") as log:
        scan = log.scan(["offset"], where=f"time == {T + 4}")
        assert scan.table()["offset"].to_pylist() == [12, 13, 14]
        assert isinstance(scan.scan, PrunedScan) and decoded(scan.scan) == 3


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_the_largest_time_is_a_time(kind: str, tmp_path: Path) -> None:
    largest = 2**63 - 1
    with kafkalog.open(tmp_path / "orders-0", "a", message_timestamp_after_max_ms=largest) as log:
        log.append([(None, b"far", largest)])
    if kind == "LogAppendTime":
        _mark_log_append_time(tmp_path / "orders-0" / f"{0:020}.log")
    with kafkalog.open(tmp_path / "orders-0") as log:
        for condition in ("time > 5", f"time == {largest}", f"time >= {largest}", f"not time < {largest}"):
            assert [record.value for record in log.records(where=condition)] == [b"far"], condition
        assert list(log.records(where=f"time < {largest}")) == []


def _mark_log_append_time(path: Path) -> None:
    """Set the flag of the first batch that its records have its largest time."""
    data = bytearray(path.read_bytes())
    data[22] |= 0x08
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    path.write_bytes(data)


def test_damage_is_raised_after_the_rows_before_it(path: Path) -> None:
    segment = path / f"{2000:020d}.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with kafkalog.open(path) as log:
        found = []
        with pytest.raises(CorruptRecord, match="offset"):
            for record in log.records(where="key == 'k1'"):
                found.append(record.offset)
        assert found[-1] > 2000
        skipped: list[kafkalog.Skipped] = []
        rest = [one.offset for one in log.records(where="key == 'k1'", on_damage="skip", skipped=skipped)]
        assert rest[: len(found)] == found and rest[-1] == 3998 and len(skipped) == 1
        assert log.scan(["offset"], where="offset == 3999").table()["offset"].to_pylist() == [3999]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_damage_at_the_logs_end_is_met_where_its_offsets_may_match(path: Path, codec: str) -> None:
    """Its records may have had any time and key."""
    with kafkalog.open(path, "a") as log:
        log.append([(b"k1", b"v", T), (b"k2", b"v", T)], compression=codec)
        size = log.segments[-1].size
    os.truncate(path / f"{3000:020d}.log", size - 1)
    with kafkalog.open(path) as log:
        assert log.end_offset == 4000
        for text, before in (
            ("offset == 4000", []), ("offset in (5, 4001)", [5]), ("offset in (3998, 4005)", [3998]),
            (f"time < {T + 2000}", [0, 1]), (f"key == 'k1' and time <= {T + 1000}", [1]),
        ):  # fmt: skip
            found = []
            with pytest.raises(CorruptRecord, match="middle of a batch"):
                for record in log.records(where=text):
                    found.append(record.offset)
            assert found == before
            with pytest.raises(CorruptRecord, match="middle of a batch"):
                log.table(["offset"], where=text)
            skipped: list[kafkalog.Skipped] = []
            rest = log.table(["offset"], where=text, on_damage="skip", skipped=skipped)
            assert rest["offset"].to_pylist() == before and [one.offset for one in skipped] == [4000]
        for text in ("offset < 3999", "offset in (5, 3998)", "partition == 2", "offset > 9 and offset < 5"):
            expected = {"offset < 3999": 3999, "offset in (5, 3998)": 2}.get(text, 0)
            assert len(log.table(["offset"], where=text)) == len([*log.records(where=text)]) == expected


def test_committed_reads(tmp_path: Path) -> None:
    events = [("plain", 0, 2), ("data", 7, 3), ("data", 8, 2), ("abort", 7, 0), ("commit", 8, 0), ("data", 9, 1)]
    written = made(events)
    written.write(tmp_path / "t-3")
    with kafkalog.open(tmp_path / "t-3") as log:
        wanted = written.committed()
        assert wanted == [0, 1, 5, 6]
        for text in ("offset >= 0", "time > 0", "value like 'v%'"):
            assert [one.offset for one in log.records(where=text, isolation="read_committed")] == wanted
            scan = log.scan(["offset"], where=text, isolation="read_committed")
            assert scan.table()["offset"].to_pylist() == wanted


def test_scans_are_equal_by_what_they_read(path: Path) -> None:
    with kafkalog.open(path) as log:
        one, same, other = (log.scan(where=text).scan for text in ("offset > 5", "offset > 5", "offset > 6"))
        assert one == same and hash(one) == hash(same) and one != other


def test_old_formats_read_beyond_a_span_come_once(tmp_path: Path) -> None:
    """Where a message of an old format ends is known from inside: a read for one span has what the next ones want."""
    parts = [message_v1(1000 * n, b"v" * 4000, timestamp=1000) for n in range(30)]
    inner = message_v1(0, b"v" * 4000, timestamp=1000)
    parts[27] = bytes(wrapper(gzip.compress(inner), magic=1, codec=1, offset=27_000, timestamp=1000))
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(parts))
    kafkalog.open(tmp_path / "t-0", "a").close()  # which makes the index
    with kafkalog.open(tmp_path / "t-0") as log:
        condition = "offset <= 6000 or offset == 20000 or offset >= 26000"
        expected = [*range(0, 7000, 1000), 20_000, *range(26_000, 30_000, 1000)]
        assert log.scan(["offset"], where=condition).table()["offset"].to_pylist() == expected
        assert [record.offset for record in log.records(where=condition)] == expected

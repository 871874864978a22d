"""Arrays of keys in, columns out: each row is the record that `get` gives, or null where it gives none."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._core.arrow.columns import KIND_NAMES
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from kafkalog._core.keys.given_keys import GivenKeys
from kafkalog._core.keys.key_columns import KeyColumns
from kafkalog._core.keys.key_records import KeyRecords
from kafkalog.errors import CorruptRecord, IllegalArgument
from kafkalog.keys import lookup
from kafkalog.records.table import Table
from tests.arrow_abi import Node, Streamed
from tests.builder import R, batch, message_v1, seal
from tests.keys.test_key_lookups import hash_keys

NUMBERS = ("partition", "offset", "timestamp", "timestampType")
SIZES = st.sampled_from([None, 0, 1, 90, 1000, 5000])
Rows = st.lists(st.tuples(st.integers(0, 25), SIZES, st.integers(0, 2)), min_size=1, max_size=30)


def row_of(record: kafkalog.Record | None, key: bytes, topic: str = "t") -> dict[str, Any]:
    """The row of a table for this record."""
    if record is None:
        return dict.fromkeys(KIND_NAMES)
    return {
        "key": key, "value": record.value, "topic": topic, "partition": 0, "offset": record.offset,
        "timestamp": record.timestamp, "timestampType": record.timestamp_type, "headers": record.headers,
    }  # fmt: skip


def check(log: kafkalog.Log, keys: list[bytes], **options: Any) -> None:
    """A table of these keys against `get`, as Python sees it and as Arrow does."""
    expected = [row_of(log.get(key, **options), key) for key in keys]
    table = log.get_table(keys, **options)
    assert list(table) == expected
    rows = pyarrow.table(table).to_pylist()
    for row, wanted in zip(rows, expected, strict=True):
        if row["timestamp"] is not None:
            row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
        if row["headers"] is not None:
            row["headers"] = tuple((one["key"], one["value"]) for one in row["headers"])
        assert row == wanted
    part = table[1:-1]
    assert pyarrow.table(part).to_pylist() == pyarrow.table(table).to_pylist()[1:-1]


@given(
    batches=st.lists(Rows, min_size=1, max_size=4), codec=st.sampled_from(["uncompressed", "zstd", "lz4"]),
    indexed=st.booleans(), stamped=st.booleans(), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_rows_are_the_records_of_the_keys(
    new_path: Callable[[str], Path], batches: list[list[tuple[int, int | None, int]]], codec: str, indexed: bool,
    stamped: bool, seed: int,
) -> None:  # fmt: skip
    """Tombstones, empty and large values, headers, any codec; keys asked for twice, in any order, and ones nowhere."""
    rng = random.Random(seed)
    kind = "LogAppendTime" if stamped else "CreateTime"
    with kafkalog.open(new_path("many") / "t-0", "a", message_timestamp_type=kind, compression_type=codec) as log:
        for rows in batches:
            log.append([
                kafkalog.Record(
                    None if size is None else rng.randbytes(size), b"k%d" % n, headers=[("h", b"x"), ("", None)][:more]
                )
                for n, size, more in rows
            ])  # fmt: skip
            if rng.random() < 0.5:
                log.roll()
        if indexed:
            log.build_key_index()
        check(log, [b"k%d" % rng.randrange(28) for _ in range(60)])
        check(log, [])


def test_keys_of_every_layout(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"a", b"1"), (b"b", b"2"), (b"", b"3"), (b"a key of some length", b"4")])
        wanted = ["b", "x", "", "a key of some length", "b"]
        expected = [1, None, 2, 3, 1]
        string = pyarrow.array(["padding", *wanted, "more"]).slice(1, 5)
        types = ("string", "binary", "large_string", "large_binary", "string_view", "binary_view")
        arrays = [string.cast(kind) for kind in types] + [string.dictionary_encode()]
        arrays += [pyarrow.chunked_array([string[:2], string[:0], string[2:]])]
        arrays += [log.get_table(wanted_bytes := [one.encode() for one in wanted])[:0]["key"]]
        for array in arrays[:-1]:
            assert log.get_table(array)["offset"].to_pylist() == expected
            assert [one and one.offset for one in log.get_many(array)] == expected
        assert len(log.get_table(arrays[-1])) == 0
        assert log.get_table(log.table()["key"])["offset"].to_pylist() == [0, 1, 2, 3]
        assert log.get_table(iter(wanted_bytes), ["offset"])["offset"].to_pylist() == expected


def test_keys_that_are_none(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"a", b"1")])
        for wrong in (pyarrow.array([b"a", None]), [b"a", None], ["a"], b"a", "a", 5, pyarrow.array([1]), log.table()):
            with pytest.raises(TypeError, match="key"):
                log.get_table(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="key 1 is null"):
            log.get_table(pyarrow.array([b"a", None]))  # type: ignore[arg-type]
        with pytest.raises(IllegalArgument, match="did you mean offset"):
            log.get_table([b"a"], ["ofset"])
        with pytest.raises(IllegalArgument):
            log.get_table([b"a"], isolation="later")


@pytest.mark.parametrize("ends", [(0, 3, 2), (0, -1, 2), (1, 0, 2), (0, 9, 2)])
def test_keys_that_contradict_themselves(tmp_path: Path, ends: tuple[int, ...]) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"a", b"1"), (b"b", b"2")])
        sound = Node(b"z", 2, [None, struct.pack("<3i", 0, 1, 2), b"ab"])
        assert log.get_table(Streamed([sound]))["offset"].to_pylist() == [0, 1]  # type: ignore[arg-type]
        assert sorted(sound.released) == ["array", "schema"]
        for bad in (Node(b"z", 2, [None, struct.pack("<3i", *ends), b"ab"]), Node(b"z", 2, [None, None, b"ab"])):
            with pytest.raises(IllegalArgument, match="the keys cannot be read"):
                log.get_table(bad)  # type: ignore[arg-type]
            with pytest.raises(IllegalArgument, match="the keys cannot be read"):
                log.get_many(Streamed([bad], [0, 5], b"no more"))  # type: ignore[arg-type]


def test_layouts_that_a_consumer_asks_for_have_the_null_rows(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([kafkalog.Record(b"v" * n, b"k%d" % n, 1000 + n, [("h", b"x")]) for n in range(40)])
        table = log.get_table([b"k%d" % (7 * n % 60) for n in range(60)])
        plain = pyarrow.table(table)
        asked = plain.schema.set(0, pyarrow.field("key", pyarrow.large_binary()))
        asked = asked.set(1, pyarrow.field("value", pyarrow.binary_view()))
        asked = asked.set(2, pyarrow.field("topic", pyarrow.large_string()))
        asked = asked.set(5, pyarrow.field("timestamp", pyarrow.timestamp("us", "UTC")))
        for first, last in ((0, 60), (13, 60), (21, 22), (30, 51)):
            reader = pyarrow.RecordBatchReader.from_stream(table[first:last], asked)
            found = reader.read_all()
            found.validate(full=True)
            assert found.cast(plain.schema).to_pylist() == plain.slice(first, last - first).to_pylist()
        assert plain["offset"].null_count == 20 and table.offsets.tolist().count(-1) == 20
        plain.validate(full=True)


def test_many_pieces_become_one_for_numpy_and_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    keys = [b"k%d" % n for n in range(50)]
    sent = [R(b"v" * n, key, headers=[("h", b"%d" % n)] * (n % 3)) for n, key in enumerate(keys)]
    data = batch(sent, base_offset=100)
    numbers = random.Random(3).sample(range(50), 50)
    offsets = b"".join(((100 + n) if n % 5 else -1).to_bytes(8, "little", signed=True) for n in numbers)
    made = []
    for rows, size in ((7, 1 << 20), (50, 60), (50, 1 << 20)):
        picker = KeyColumns(GivenKeys([keys[n] for n in numbers]), offsets, 0)
        assert picker.take(data, scan(data), 0, 1) and not picker.missed
        made.append(Table(picker.finish(bytes(range(8)), topic=b"t", most_rows=rows, most_bytes=size)))
    assert [len(table._columns.piece_ends) > 1 for table in made] == [True, True, False]
    for table in made:
        assert list(table) == list(made[-1]) and len(table) == 50
        assert table.offsets.tolist() == [100 + n if n % 5 else -1 for n in numbers]
        assert pyarrow.table(table).to_pylist() == pyarrow.table(made[-1]).to_pylist()
        frame = table.to_pandas()
        assert frame["offset"].isna().tolist() == [n % 5 == 0 for n in numbers]
        assert frame["timestamp"].isna().tolist() == frame["topic"].isna().tolist() == frame["offset"].isna().tolist()
        assert frame["offset"].dtype == "Int64"
        assert frame["timestamp"].dropna().unique() == [pandas.Timestamp(R().timestamp, unit="ms", tz="UTC")]


@pytest.mark.parametrize("is_steady", [True, False])
def test_more_copies_than_a_cache_holds(is_steady: bool) -> None:
    """They lie in parts; where the first records do not show how large the others are, some lie behind the parts."""
    count = 20_000
    keys = [b"key-%d" % n for n in range(count)]
    values = [b"%d" % n * (150 if is_steady else n // 65) for n in range(count)]
    numbers = random.Random(6).sample(range(count), count) + [5, 5, count - 1]
    given = GivenKeys([keys[n] for n in numbers])
    offsets = b"".join((n if n % 9 else -1).to_bytes(8, "little", signed=True) for n in numbers)
    few, many = KeyRecords(given, offsets, 0, 9 << 20), KeyRecords(given, offsets, 0)
    columns = KeyColumns(given, offsets, 0)
    for first in range(0, count, 1000):
        sent = [R(values[n], keys[n]) for n in range(first, first + 1000)]
        data = batch(sent, base_offset=first)
        for picker in (columns, few, many):
            assert picker.take(data, scan(data), 0, 1)
    expected = [values[n] if n % 9 else None for n in numbers]
    made = columns.finish(bytes(range(8)), topic=b"t")
    assert made is not None and pyarrow.table(Table(made))["value"].to_pylist() == expected
    for records in (few, many):
        records.finish()
        assert not records.missed
        assert [record and record.value for record in records.records] == expected


def test_one_large_record_of_an_old_format_among_many_small_ones() -> None:
    """It finds no room when that for all others is made, in parts that are each smaller than it."""
    count, small, large = 40_000, 256, b"V" * 9_000_000
    keys = [b"k%06d" % n for n in range(count)]
    messages = [message_v1(n, b"v" * 200, keys[n]) for n in range(small)]
    data = b"".join([*messages, message_v1(small, large, keys[small])])
    found = b"".join(n.to_bytes(8, "little") for n in range(count))
    columns = KeyColumns(GivenKeys(keys), found, 0)
    assert columns.take(data, scan(data), 0, small + 1)
    columns.pass_over(count)
    assert columns.missed == list(range(small + 1, count))
    made = columns.finish(bytes(range(8)), topic=b"t")
    assert made is not None
    values = pyarrow.table(Table(made))["value"]
    assert values[small - 1].as_py() == b"v" * 200 and values[small].as_py() == large
    assert values.null_count == count - small - 1


def test_old_formats(tmp_path: Path) -> None:
    path = tmp_path / "data" / "t-0"
    path.mkdir(parents=True)
    messages = [message_v1(n, None if n == 7 else b"v%d" % n, b"k%d" % (n % 9), 1000 + n) for n in range(30)]
    (path / "00000000000000000000.log").write_bytes(b"".join(messages) + batch([R(b"new", b"k3")], base_offset=30))
    with kafkalog.open(path) as log:
        check(log, [b"k%d" % n for n in (3, 8, 0, 7, 3, 9)])
        assert log.get_many([b"k1", b"k3"]) == [log[28], log[30]]


def test_two_keys_of_one_hash_and_a_record_that_is_not_where_the_index_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of the record decides; then the row is what `get` gives."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([kafkalog.Record(b"1", b"a", headers=[("h", None)]), (b"b", None), (b"c", b"3")])
        log.roll()
        log.build_key_index()
        expected = [row_of(log.get(key), key) for key in (b"b", b"a", b"x", b"c")]
        monkeypatch.setattr(lookup, "hash_keys", lambda secret, keys: hash_keys(secret, [b"c"] * len(keys)))
        assert list(log.get_table([b"b", b"a", b"x", b"c"])) == expected


def test_damage_is_raised_or_skipped(tmp_path: Path) -> None:
    """A damaged batch between the others, with an index: what does not need it is found."""
    path = tmp_path / "t-0"
    with kafkalog.open(path, "a") as log:
        for first in range(0, 400, 100):
            log.append([(b"k%d" % n, b"v" * 40) for n in range(first, first + 100)])
        log.roll()
        log.build_key_index()
        name = log.segments[0].path
    data = bytearray(Path(name).read_bytes())
    position = scan(bytes(data)).position(1)
    data[position + 300] ^= 1
    Path(name).write_bytes(data)
    keys = [b"k%d" % n for n in range(0, 300, 3)]
    with kafkalog.open(path) as log:
        assert [info.state for info in log.key_index()] == ["ok"]
        assert log.get_table(keys[:30])["offset"].to_pylist() == list(range(0, 90, 3))
        with pytest.raises(CorruptRecord) as corrupt:
            log.get_table(keys)
        error = corrupt.value
        assert (error.path, error.position, error.offset) == (name, position, 100)
        skipped: list[Any] = []
        found = log.get_table(keys, ["offset"], on_damage="skip", skipped=skipped)["offset"].to_pylist()
        assert found == [n if not 100 <= n < 200 else None for n in range(0, 300, 3)] and skipped


def test_damage_inside_a_batch_whose_checksum_is_right() -> None:
    data = batch([R(b"v", b"k%d" % n) for n in range(9)])
    damaged = bytearray(data)
    size = 10  # of a record
    damaged[61 + 5 * size] = 0xFF
    picker = KeyColumns(GivenKeys([b"k2", b"k7"]), (2).to_bytes(8, "little") + (7).to_bytes(8, "little"), 0)
    sealed = seal(bytes(damaged))
    assert not picker.take(sealed, scan(sealed), 0, 1)
    assert picker.error_batch == 0 and picker.error_record == 5 and picker.error_position == 61 + 5 * size
    assert "record" in picker.error_text and picker.status
    with pytest.raises(ValueError, match="outside"):
        picker.take(sealed[:-1], scan(sealed), 0, 1)


def test_a_log_that_is_cleaned_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is read after the clean that moved it: the rows are those of after it, and none is lost."""
    with kafkalog.open(tmp_path / "t-0", "a", cleanup_policy="compact", file_delete_delay_ms=0) as log:
        for value in (b"1", b"2", b"3"):
            log.append([(b"k%d" % n, value) for n in range(50)])
            log.roll()
        log.build_key_index()
        keys = [b"k%d" % n for n in range(50)]
        before = lookup.KeyLookup._pick

        def late(self: Any, *arguments: Any) -> None:
            monkeypatch.undo()
            log.append([(b"k%d" % n, b"4") for n in range(0, 50, 2)])
            log.compact(roll=True)
            before(self, *arguments)

        monkeypatch.setattr(lookup.KeyLookup, "_pick", late)
        values = log.get_table(keys)["value"].to_pylist()
        assert values == [b"4" if n % 2 == 0 else b"3" for n in range(50)]


@pytest.mark.parametrize("kind", [KeyColumns, KeyRecords])
def test_records_given_one_by_one_keep_no_chunk(kind: type[KeyColumns | KeyRecords]) -> None:
    """A million keys far from each other would hold as many chunks, or as many decompressed batches."""
    sent = [R(b"a", b"k0"), R(None, b"k1", headers=[("h", b"x")]), R(b"", b"k2"), R(b"d", b"k3", headers=[("h", None)])]
    data = batch(sent) + message_v1(4, b"e", b"k4", 1000)
    keys = [b"k%d" % n for n in range(5)]
    expected = list(decode(data, scan(data)))
    chunk = bytearray(data + bytes(100))
    table = decode(chunk, scan(chunk))
    picker = kind(GivenKeys(keys), b"".join(n.to_bytes(8, "little") for n in range(5)), 0)
    for record in list(table)[:3]:
        picker.take_one(record)
    picker.pass_over(4)
    picker.take_one(table[4])
    assert picker.missed == [3]
    picker.give(3, table[3])
    del record, table
    chunk.clear()  # a BufferError while somebody uses it
    if isinstance(picker, KeyColumns):
        assert list(Table(picker.finish(bytes(range(8)), topic=b"t"))) == list(map(row_of, expected, keys))
    else:
        assert picker.records == expected
        assert [one.timestamp_type for one in picker.records if one] == [one.timestamp_type for one in expected]
        assert [one.leader_epoch for one in picker.records if one] == [one.leader_epoch for one in expected]

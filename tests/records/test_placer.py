"""Arrow rows placed into v2 batches: read back they are the rows, in order, in the partitions that Kafka chooses."""

from collections.abc import Callable
from random import Random
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.murmur import partition_for_key
from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    KafkalogError,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from kafkalog.records.packing import parse_compression
from kafkalog.records.placer import Placed, Placer, TopicTarget
from tests.arrow_rows import HEADERS, LAYOUTS, NOW, Got, only, placed, records_of, targets
from tests.builder import R, batch

blobs = st.binary(max_size=40)
maybe = st.none() | blobs
times = st.none() | st.integers(0, NOW)
header_lists = st.none() | st.lists(st.tuples(st.text(max_size=8), maybe), max_size=3)
names = st.sampled_from(["t", "u.v", "w"])
one_row = st.tuples(maybe, maybe, times, header_lists, names, st.none() | st.integers(0, 2))
Row = tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]] | None, str, int | None]


def table_of(rows: list[Row], layout: str = "plain") -> pa.Table:
    kinds = LAYOUTS[layout]
    key, value, timestamp, headers, topic, partition = zip(*rows, strict=True) if rows else [()] * 6
    structs = [None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers]
    return pa.table(
        {
            "offset": pa.array(range(len(rows)), pa.int64()),
            "headers": pa.array(structs, HEADERS).cast(kinds["headers"]),
            "key": pa.array(key, kinds["bytes"]),
            "timestamp": pa.array(timestamp, pa.timestamp("ms", "UTC")),
            "value": pa.array(value, kinds["bytes"]),
            "topic": pa.array(topic, kinds["text"]),
            "partition": pa.array(partition, pa.int32()),
        }
    )


def expected_row(row: Row) -> Got:
    key, value, timestamp, headers, _, _ = row
    return Got(key, value, NOW if timestamp is None else timestamp, tuple(headers or ()))


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(one_row, max_size=40),
    layout=st.sampled_from(list(LAYOUTS)),
    cuts=st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40)),
    sizes=st.tuples(st.integers(61, 2000), st.integers(1, 9), st.integers(1, 3000)),
)
def test_what_goes_in_comes_out(rows: list[Row], layout: str, cuts: Any, sizes: Any) -> None:
    """Slices, chunks, layouts and bounds of any size change neither the records nor their order."""
    first, last = sorted(cuts[:2])
    data = table_of(rows, layout).slice(first, last - first)
    chunks: list[Any] = data.to_batches(max_chunksize=cuts[2])
    rows = rows[first:last]
    found = records_of(
        placed(
            chunks, topics=targets(3), columns={"topic": "topic"}, batch_bytes=sizes[0], batch_rows=sizes[1],
            waiting_bytes=sizes[2],
        )
    )  # fmt: skip
    assert sum(map(len, found.values())) == len(rows)
    for topic in {row[4] for row in rows}:
        for number in range(3):
            got = found.get((topic, number), [])
            sure = [expected_row(r) for r in rows if r[4] == topic and expected_partition(r) == number]
            free = [expected_row(r) for r in rows if r[4] == topic and expected_partition(r) is None]
            rest = iter(got)
            assert all(record in rest for record in sure), "in order, each of them"
            assert len(got) >= len(sure)
            assert all(record in sure or record in free for record in got)


def expected_partition(row: Row) -> int | None:
    """The partition that a row must go to; None where any will do."""
    if row[5] is not None:
        return row[5]
    return None if row[0] is None else partition_for_key(row[0], 3)


def test_the_bytes_are_those_of_the_format() -> None:
    """Against the plain encoder of the tests: header, deltas, null and empty, headers."""
    rows: list[Row] = [
        (b"k", b"value", 1000, [("h", b"1"), ("", None)], "t", None),
        (None, None, 900, None, "t", None),
        (b"", b"", 5000, [], "t", None),
        (b"k" * 300, b"v" * 70_000, NOW + 1000, [("long" * 50, b"")], "t", None),
    ]
    (part,) = placed(table_of(rows))
    expected = batch([R(v, k, t or 0, h or ()) for k, v, t, h, _, _ in rows], base_offset=0)
    assert bytes(part.batches) == expected
    assert (part.topic, part.partition, part.records, part.batch_count) == ("t", 0, 4, 1)
    assert part.max_timestamp == NOW + 1000


def test_batches_close_at_the_byte() -> None:
    """The next record opens a batch when its exact size would pass the limit; a larger one has a batch of its own."""
    values = pa.table({"value": [b"x" * 30] * 3 + [b"y" * 200] + [b"z" * 30] * 2})
    size = len(batch([R(b"x" * 30)] * 2))
    exact = [h.count for part in placed(values, batch_bytes=size) for h in scan(part.batches)]
    assert exact == [2, 1, 1, 2]
    below = [h.count for part in placed(values, batch_bytes=size - 1) for h in scan(part.batches)]
    assert below == [1] * 6
    assert [h.count for part in placed(values, batch_rows=4) for h in scan(part.batches)] == [4, 2]


def test_max_message_bytes_bounds_batches_too() -> None:
    values = pa.table({"value": [b"x" * 90] * 50})
    (part,) = placed(values, topics=targets(1, 1000))
    assert scan(part.batches).max_batch_size <= 1000
    assert part.batch_count == 6


@pytest.mark.parametrize("partitions", [1, 2, 7, 50])
def test_keys_go_where_the_default_partitioner_sends_them(partitions: int) -> None:
    keys = [b"key-%d" % n for n in range(300)] + [b""]
    found = records_of(placed(pa.table({"key": keys, "value": keys}), topics=targets(partitions)))
    for (_, number), records in found.items():
        assert {partition_for_key(r.key or b"", partitions) for r in records} == {number}
    assert sum(map(len, found.values())) == 301


def test_rows_without_a_key_stay_for_a_while_and_move_on() -> None:
    values = pa.table({"value": [b"%04d" % n for n in range(100)]})
    found = records_of(placed(values, topics=targets(3), sticky_bytes=120, first_partition=4))
    first = [r.value for r in found["t", 1]]
    assert first[:2] == [b"0000", b"0001"]  # 61 of the header and 11 a record
    assert found["t", 2][0].value == b"%04d" % (len([v for v in first if v and v < found["t", 2][0].value]))
    counts = sorted(len(rows) for rows in found.values())
    assert len(counts) == 3
    assert counts[-1] - counts[0] <= 12


def test_rows_without_a_key_begin_at_the_first_partition() -> None:
    found = records_of(placed(pa.table({"value": [b"a"]}), topics=targets(3)))
    assert list(found) == [("t", 0)]


def test_the_partition_of_a_row_beats_its_key() -> None:
    data = pa.table({"value": [b"a", b"b"], "key": [b"k", b"k"], "partition": pa.array([5, None], pa.int32())})
    found = records_of(placed(data, topics=targets(6)))
    assert [r.value for r in found["t", 5]] == [b"a"] + [b"b"] * (partition_for_key(b"k", 6) == 5)


def test_the_topic_option_beats_the_column() -> None:
    data = pa.table({"value": [b"a", b"b"], "topic": ["x", None]})
    assert set(records_of(placed(data, topic="mine"))) == {("mine", 0)}


def test_each_topic_is_asked_for_once() -> None:
    asked: list[str] = []

    def topics(name: str) -> TopicTarget:
        asked.append(name)
        return TopicTarget(1 + len(asked) % 2, LogConfig())

    names = [f"t{n * 7 % 40}" for n in range(400)]
    found = records_of(placed(pa.table({"value": names, "topic": names}), topics=topics, columns={"topic": "topic"}))
    assert asked == list(dict.fromkeys(names))
    assert all({r.value for r in rows} == {topic.encode()} for (topic, _), rows in found.items())


@pytest.mark.parametrize(
    ("unit", "zone", "values", "expected"),
    [
        ("s", None, [0, 5], [0, 5000]),
        ("ms", "Europe/Berlin", [0, 5, -1], [0, 5, NOW]),
        ("us", None, [0, 1999, 1_000_000, -1000], [0, 1, 1000, NOW]),
        ("ns", "UTC", [0, 999_999, 2**60, -1_000_000], [0, 0, 2**60 // 10**6, NOW]),
    ],
)
def test_times_of_every_unit(unit: str, zone: str | None, values: list[int], expected: list[int]) -> None:
    moments = pa.array([*values, None], pa.timestamp(unit, zone))
    data = pa.table({"value": [b""] * len(moments), "timestamp": moments})
    assert [r.timestamp for r in only(placed(data))] == [*expected, NOW]


def test_whole_numbers_are_milliseconds() -> None:
    data = pa.table({"value": [b"", b"", b""], "timestamp": pa.array([7, -1, None], pa.int64())})
    assert [r.timestamp for r in only(placed(data))] == [7, NOW, NOW]


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64"])
def test_partitions_of_every_width(name: str) -> None:
    data = pa.table({"value": [b"a", b"b"], "partition": pa.array([2, 0], getattr(pa, name)())})
    assert set(records_of(placed(data, topics=targets(3)))) == {("t", 2), ("t", 0)}


def test_columns_of_type_null_are_nulls() -> None:
    names = ("key", "partition", "headers", "timestamp")
    data = pa.table({"value": [b"a"], **{name: pa.nulls(1) for name in names}})
    assert only(placed(data)) == [Got(None, b"a", NOW, ())]


def test_columns_of_other_names() -> None:
    data = pa.table({"value": [b"not this"], "payload": [b"this"], "id": [b"k"], "key": [b"nor this"]})
    got = only(placed(data, topic="t", columns={"value": "payload", "key": "id"}))
    assert got == [Got(b"k", b"this", NOW, ())]
    assert only(placed(data, topic="t", columns={"key": None})) == [Got(None, b"not this", NOW, ())]


def test_data_of_duckdb_and_polars() -> None:
    frame = polars.DataFrame(
        {"value": ["short", "a text longer than twelve bytes", None], "key": [b"k", None, b"a key longer than a view"],
         "headers": [[{"key": "h", "value": b"1"}], [], None]},
    )  # fmt: skip
    expected = [
        Got(b"k", b"short", NOW, (("h", b"1"),)),
        Got(None, b"a text longer than twelve bytes", NOW, ()),
        Got(b"a key longer than a view", None, NOW, ()),
    ]
    assert only(placed(frame)) == expected
    relation = duckdb.sql("SELECT 'v' || i::VARCHAR AS value, i::INT % 3 AS partition FROM range(5000) r(i)")
    found = records_of(placed(relation, topics=targets(3)))
    assert [len(found["t", n]) for n in range(3)] == [1667, 1667, 1666]
    assert found["t", 1][1].value == b"v4"


def test_compression() -> None:
    values = pa.table({"value": [b"x" * 1000] * 100})
    lz4 = parse_compression("lz4")
    (part,) = placed(values, topics=lambda name: TopicTarget(1, LogConfig(), lz4), batch_bytes=20_000)
    table = scan(part.batches)
    assert {h.compression for h in table} == {lz4.codec}
    assert sum(h.count for h in table) == part.records == 100
    assert table.stop_position == len(memoryview(part.batches)) < 20_000
    assert not memoryview(part.batches).readonly


def test_a_row_that_is_too_large_only_before_compression_is_taken() -> None:
    target = TopicTarget(1, LogConfig(max_message_bytes=2000), parse_compression("gzip"))
    (part,) = placed(pa.table({"value": [b"x" * 9000, b"y"]}), topics=lambda name: target)
    assert part.records == 2
    noise = bytes(n * n * 7 % 251 ^ n >> 3 & 255 for n in range(9000))
    with pytest.raises(RecordTooLarge, match="t-0 makes a batch of"):
        placed(pa.table({"value": [noise]}), topics=lambda name: target)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_required_codec_that_makes_a_batch_larger_keeps_to_the_limit(codec: str) -> None:
    config = LogConfig(compression_type=codec, max_message_bytes=100_000)
    rng = Random(codec)
    rows = pa.table({"value": [rng.randbytes((100_000 - 61) // 2 - 11) for _ in range(30)]})
    parts = placed(rows, topics=lambda name: TopicTarget.of(config, 1))
    assert max(scan(part.batches).max_batch_size for part in parts) <= 100_000
    alone = pa.table({"value": [rng.randbytes(100_000 - 61 - 11)]})
    with pytest.raises(RecordTooLarge, match="when compressed"):
        placed(alone, topics=lambda name: TopicTarget.of(config, 1))


def test_a_target_goes_by_the_topic() -> None:
    config = LogConfig(compression_type="zstd", max_message_bytes=5000)
    codec = parse_compression("zstd").codec
    target = TopicTarget.of(config, 3)
    assert target == (3, config, (codec, config.compression_zstd_level, True))
    assert target.limit_bytes == 5000
    asked = parse_compression("gzip:9")
    assert TopicTarget.of(LogConfig(), 1, asked).compression == asked


def test_little_waits() -> None:
    """Finished batches are returned on the way: memory does not grow with the data."""
    rows = pa.table({"value": [b"x" * 500] * 20_000})
    placer = Placer(targets(40), topic="t", waiting_bytes=1 << 16, now_ms=lambda: NOW)
    largest = max(len(memoryview(part.batches)) for part in placer.add(rows))
    assert largest < 1 << 17
    rest = list(placer.finish())
    assert sum(len(memoryview(part.batches)) for part in rest) < 1 << 17
    assert placer.records == 20_000


def test_nothing_gives_nothing() -> None:
    for data in (pa.table({"value": pa.array([], pa.binary())}), table_of([])):
        assert placed(data) == []


def test_many_partitions_with_little_in_each() -> None:
    """All pending records are in open batches: these are closed, so that some can be returned."""
    keys = [b"%d" % n for n in range(3000)]
    parts = placed(pa.table({"value": keys, "key": keys}), topics=targets(1000), waiting_bytes=1)
    assert sum(len(rows) for rows in records_of(parts).values()) == 3000


# What is refused


def catch_error(data: Any, kind: type[KafkalogError], match: str, **options: Any) -> KafkalogError:
    with pytest.raises(kind, match=match) as caught:
        placed(data, **options)
    return caught.value


V = [b"a", b"b", b"c"]
BAD_TYPES: list[tuple[str, Callable[[], pa.Array], str]] = [
    ("value", lambda: pa.array([1, 2, 3]), "'value' is int64, and value must be binary or string"),
    ("value", lambda: pa.nulls(3), "is null"),
    ("value", lambda: pa.array(V, pa.binary(1)), "fixed_size_binary"),
    ("value", lambda: pa.array(["a"] * 3).dictionary_encode(), "dictionary"),
    ("key", lambda: pa.array([1.5] * 3), "float64"),
    ("topic", lambda: pa.array(V), "'topic' is binary, and topic must be string"),
    ("topic", lambda: pa.array(["a"] * 3).dictionary_encode(), "dictionary"),
    ("partition", lambda: pa.array(["1"] * 3), "and partition must be int32"),
    ("partition", lambda: pa.array([1] * 3, pa.uint32()), "uint32"),
    ("timestamp", lambda: pa.array(["2020"] * 3), "timestamp must be timestamp"),
    ("timestamp", lambda: pa.array([1] * 3, pa.int32()), "int32"),
    ("timestamp", lambda: pa.array([1] * 3, pa.date32()), "date32"),
    ("headers", lambda: pa.array([{"a": 1}] * 3), "struct"),
    ("headers", lambda: pa.array([[("a", b"1")]] * 3, pa.map_(pa.string(), pa.binary())), "map"),
    ("headers", lambda: pa.array([["a"]] * 3), "list"),
    ("headers", lambda: pa.array([[{"name": "a", "value": b""}]] * 3), "key: string"),
    ("headers", lambda: pa.array([[{"key": b"a", "value": b""}]] * 3), "key: string"),
    ("headers", lambda: pa.array([[{"key": "a", "value": 1}]] * 3), "value: binary"),
]


@pytest.mark.parametrize(("column", "made", "match"), BAD_TYPES)
def test_a_column_of_a_wrong_type(column: str, made: Callable[[], pa.Array], match: str) -> None:
    options = {"columns": {"topic": "topic"}} if column == "topic" else {}
    error = catch_error(pa.table({"value": V} | {column: made()}), IllegalArgument, match, **options)
    assert "cast it" in str(error)
    assert repr(column) in str(error)


def test_a_column_that_is_missing() -> None:
    error = catch_error(pa.table({"Value": V, "k": V}), IllegalArgument, "no column 'value' for the value")
    assert "the columns are 'Value', 'k'" in str(error)
    catch_error(pa.table({"value": V}), IllegalArgument, "no column 'id' for the key", topic="t", columns={"key": "id"})
    catch_error(pa.table({"value": V}), IllegalArgument, "no column 'topic'", columns={"key": None})
    catch_error(pa.table({"value": V}), IllegalArgument, "no parts of a record", topic="t", columns={"valeu": "value"})
    catch_error(pa.table([V, V], ["value", "value"]), IllegalArgument, "2 columns are named 'value'")
    catch_error(pa.array(V), IllegalArgument, "is binary, no table")


def test_what_is_no_arrow_data() -> None:
    for thing in ([b"a"], b"a", None, {"value": V}):
        placer = Placer(targets(), topic="t")
        with pytest.raises(TypeError, match="is no Arrow data: give a table"):
            list(placer.add(thing))


def test_a_null_topic_names_its_row() -> None:
    data = pa.table({"value": V, "topic": ["t", "t", None]})
    catch_error([data[:2], data], IllegalArgument, "row 4 has no topic", columns={"topic": "topic"})
    nulls = pa.table({"value": V, "topic": pa.nulls(3)})
    catch_error(nulls, IllegalArgument, "row 0 has no topic", columns={"topic": "topic"})


def test_an_unknown_topic_is_the_resolvers_error() -> None:
    def topics(name: str) -> TopicTarget:
        raise UnknownTopicOrPartition(f"no topic {name}")

    catch_error(pa.table({"value": V}), UnknownTopicOrPartition, "no topic t", topics=topics)


@pytest.mark.parametrize("number", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_partition_that_there_is_not(number: int) -> None:
    data = pa.table({"value": V, "partition": pa.array([0, None, number], pa.int32())})
    error = catch_error(data, UnknownTopicOrPartition, f"row 2 is for partition {number} of 't'", topics=targets(3))
    assert "partitions 0 to 2" in str(error)


@pytest.mark.parametrize(
    ("unit", "value"), [("s", -1), ("s", 2**60), ("ms", -2), ("us", -1), ("us", -999), ("us", -1001), ("ns", -(2**63))]
)
def test_times_before_1970_or_beyond_all_bounds(unit: str, value: int) -> None:
    data = pa.table({"value": V, "timestamp": pa.array([1, value, 2], pa.timestamp(unit))})
    catch_error(data, InvalidTimestamp, "row 1 has a timestamp before 1970")


def test_headers_that_are_null() -> None:
    for bad in ([None], [{"key": None, "value": b""}]):
        data = pa.table({"value": V, "headers": pa.array([[], None, bad], HEADERS)})
        catch_error(data, InvalidRecord, "row 2 has a header that is null")


def test_a_row_that_is_too_large() -> None:
    data = pa.table({"value": [b"a", b"x" * 1000]})
    match = r"row 1 makes a batch of 107\d bytes, and 't' takes 1000"
    error = catch_error(data, RecordTooLarge, match, topics=targets(1, 1000))
    assert "raise max.message.bytes" in str(error)


def test_what_the_settings_of_the_topic_refuse() -> None:
    compacted, recent = LogConfig(cleanup_policy="compact"), LogConfig(message_timestamp_before_max_ms=1000)
    keyless = pa.table({"value": V, "key": [b"k", None, b"k"]})
    catch_error(keyless, InvalidRecord, "key", topics=lambda name: TopicTarget(1, compacted))
    times = pa.array([NOW, NOW - 500, NOW - 1001], pa.timestamp("ms"))
    old = pa.table({"value": V, "timestamp": times})
    catch_error(old, InvalidTimestamp, "(?i)timestamp", topics=lambda name: TopicTarget(1, recent))
    assert len(only(placed(old[:2], topics=lambda name: TopicTarget(1, recent)))) == 2


def test_rows_that_are_null_themselves() -> None:
    structs = pa.array([{"value": b"a"}, None])
    catch_error(structs, IllegalArgument, "itself is null")
    assert only(placed(structs[:1])) == [Got(None, b"a", NOW, ())]


def test_the_error_of_a_reader_is_told() -> None:
    def batches() -> Any:
        yield pa.record_batch({"value": V})
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.binary())]), batches())
    catch_error(reader, IllegalArgument, "the disk is gone")


def test_a_placer_that_failed_takes_no_more() -> None:
    placer = Placer(targets(), topic="t")
    with pytest.raises(IllegalArgument):
        list(placer.add(pa.table({"value": V, "headers": [1, 2, 3]})))
    list(placer.add(pa.table({"value": V})))  # nothing of it had been taken
    with pytest.raises(UnknownTopicOrPartition):
        list(placer.add(pa.table({"value": V, "partition": pa.array([0, 1, 9])})))
    with pytest.raises(RuntimeError, match="not whole"):
        list(placer.add(pa.table({"value": V})))
    with pytest.raises(RuntimeError, match="not whole"):
        list(placer.finish())


def test_a_placer_whose_batches_were_refused_gives_out_no_more() -> None:
    placer = Placer(lambda name: TopicTarget(1, LogConfig(cleanup_policy="compact")), topic="t")
    list(placer.add(pa.table({"value": V})))
    with pytest.raises(InvalidRecord, match="t-0"):
        list(placer.finish())
    for goes_on in (placer.finish, lambda: placer.add(pa.table({"value": V}))):
        with pytest.raises(RuntimeError, match="incomplete"):
            list(goes_on())


def test_options_that_can_never_be() -> None:
    for options in ({"batch_rows": 0}, {"waiting_bytes": 0}, {"sticky_bytes": 0}, {"first_partition": -1}):
        with pytest.raises(IllegalArgument):
            Placer(targets(), topic="t", **options)
    catch_error(pa.table({"value": V}), IllegalArgument, "batch limit", batch_bytes=60)
    catch_error(pa.table({"value": V}), RecordTooLarge, "takes 1", topics=targets(1, 0))


def test_what_is_placed_outlives_what_it_came_from() -> None:
    parts: list[Placed] = placed(pa.table({"value": [b"%d" % n for n in range(1000)]}), waiting_bytes=2000)
    del parts[0]
    later = placed(pa.table({"value": [b"z" * 50] * 1000}), waiting_bytes=2000)
    assert scan(parts[-1].batches).first_invalid < 0
    assert scan(later[0].batches).first_invalid < 0

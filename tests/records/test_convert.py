"""Whole buffers in another format: what stays, what is lost, what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import convert
from kafkalog._core.batch.scan import scan
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord, KafkalogError, UnsupportedCompression
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.convert import rebuild, repack
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.memory import MemoryRecords
from tests.builder import R, batch, message_v1

T = 1_700_000_000_000
CODECS = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
Row = tuple[int, int, bytes | None, bytes | None]


def read_records(data: bytes | bytearray) -> list[Row]:
    assert scan(data).first_invalid == -1
    return [(r.offset, r.timestamp, r.key, r.value) for b in MemoryRecords(data).batches() for r in b]


def drop_times(rows: list[Row]) -> list[Row]:
    return [(offset, -1, key, value) for offset, _, key, value in rows]


def build_batches(magic: int, codec: CompressionType, rows: list[Row], **more: Any) -> bytes:
    first = rows[0][0]
    options: dict[str, Any] = {"compression": codec, **more}
    builder = RecordsBuilder(first, **options) if magic == 2 else LegacyBuilder(first, magic=magic, **options)
    for offset, time, key, value in rows:
        builder.append(time, key, value, offset=offset)
    return bytes(builder.build())


ROWS: list[Row] = [(40, T, b"k", b"v"), (41, T + 500, None, b""), (47, T - 3, b"", None)]


def test_it_is_part_of_the_face() -> None:
    assert "convert" in kafkalog.__all__
    with pytest.raises(TypeError, match="only_down"):
        convert(b"", 1, only_up=True)  # type: ignore[call-arg]
    with pytest.raises(IllegalArgument):
        convert(b"", 3)
    assert convert(b"", 2) == b""


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("to", [0, 1, 2])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_offsets_and_codec_stay(magic: int, to: int, codec: CompressionType) -> None:
    """VAL-19: gaps within a batch too; v0 has no times."""
    data = build_batches(magic, codec, ROWS)
    out = convert(data, to)
    assert read_records(out) == (drop_times(ROWS) if 0 in (magic, to) else ROWS)
    table = scan(out)
    assert {h.magic for h in table} == {to} and table.codec == codec
    assert table.last_offset == 47
    if magic == to:
        assert out == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("magic", "to"), [(1, 2), (2, 1)])
def test_times_that_a_log_stamped_stay_its_own(magic: int, to: int, codec: CompressionType) -> None:
    stamp: dict[str, Any] = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": T + 9}
    out = convert(build_batches(magic, codec, ROWS, **stamp), to)
    assert [row[1] for row in read_records(out)] == [T + 9] * 3
    assert {h.timestamp_type for h in scan(out)} == {1}


def test_downwards_headers_producers_and_control_batches_are_lost() -> None:
    """As brokers up to 3.9 did for old consumers."""
    producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    data = batch([R(b"v", b"k", T, (("h", b"1"),))], base_offset=3, attributes=0x10, **producer)
    data += batch([R(b"\0" * 6, b"\0\0\0\1", T)], base_offset=4, attributes=0x30)
    data += batch([], last_delta=2, base_offset=5)
    for magic in (0, 1):
        out = convert(data, magic)
        assert read_records(out) == [(3, T if magic else -1, b"k", b"v")]
    assert convert(data, 2) == data


@pytest.mark.parametrize("append_time", [-1, 0, T + 9])
@pytest.mark.parametrize("codec", [*CODECS, CompressionType.ZSTD])
@pytest.mark.parametrize("times", [[T, T + 7], [-1, -1], [-1, 0]])
def test_fresh_records_are_repacked_as_they_are_rebuilt(
    codec: CompressionType, append_time: int, times: list[int]
) -> None:
    """VAL-8: by all that is known of the batch, too."""
    producer = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 5, "attributes": 0x10}
    data = batch([R(b"v" * 99, b"k", time) for time in times], base_offset=3, leader_epoch=7, **producer)
    options: dict[str, Any] = {"codec": codec, "first_offset": 70, "append_time": append_time}
    short = repack(data, scan(data), max_timestamp=max(times), **options)
    assert short == rebuild(data, scan(data), **options)
    assert scan(short.data).first_invalid == -1 and scan(short.data)[0].leader_epoch == -1


def test_only_down() -> None:
    v0, v1, v2 = build_batches(0, CODECS[1], ROWS), message_v1(50, b"v"), batch([R(timestamp=T)], base_offset=60)
    mixed = v0 + v1 + v2
    down = convert(mixed, 1, only_down=True)
    assert down.startswith(v0 + v1) and [h.magic for h in scan(down)] == [0, 1, 1]
    assert [h.magic for h in scan(convert(mixed, 1))] == [1, 1, 1]
    assert convert(mixed, 2, only_down=True) == mixed
    assert [row[0] for row in read_records(convert(mixed, 0))] == [40, 41, 47, 50, 60]


def test_records_below_a_start_offset() -> None:
    """As the reference: only uncompressed batches are cut, wrappers are whole."""
    plain, packed = build_batches(2, CODECS[0], ROWS), build_batches(2, CODECS[3], ROWS)
    assert [row[0] for row in read_records(convert(plain, 1, start_offset=41))] == [41, 47]
    assert [row[0] for row in read_records(convert(packed, 1, start_offset=41))] == [40, 41, 47]
    assert convert(plain, 1, start_offset=48) == b""


def test_plain_messages_are_joined() -> None:
    data = b"".join(message_v1(at, b"x" * 100, timestamp=T + at) for at in range(1000))
    out = convert(data, 2)
    sizes = [h.size for h in scan(out)]
    assert len(sizes) < 10 and max(sizes) <= 16384
    assert len(scan(convert(data, 2, batch_bytes=0))) == 1000
    assert len(scan(convert(data, 2, batch_bytes=1 << 30))) == 1
    assert read_records(convert(out, 1)) == read_records(out) == read_records(data)
    assert convert(out, 1) == data


def test_the_end_of_a_buffer_may_be_cut_off() -> None:
    one = message_v1(0, b"v")
    assert read_records(convert(one + one[:-1], 2)) == [(0, 5, None, b"v")]


@pytest.mark.parametrize(
    ("data", "magic", "error"),
    [
        (lambda: batch([R()]) + batch([R()])[:-1] + b"x", 1, CorruptRecord),
        (lambda: bytes(8) + b"\0\0\0\5" + bytes(30), 1, CorruptRecord),
        (lambda: batch([R()]) + batch([R()], count=2), 1, InvalidRecord),
        (lambda: batch([R()]) + batch([R()], attributes=1), 1, InvalidRecord),
        (lambda: batch([R()]) + batch([R()], attributes=5), 1, IllegalArgument),
        (lambda: batch([R()]) + batch([R(timestamp=-9)]), 1, KafkalogError),
        (lambda: batch([R()]) + batch([R(delta=1), R(delta=1)], last_delta=1), 1, InvalidRecord),
        (lambda: batch([R()]) + build_batches(2, CompressionType.ZSTD, ROWS), 1, UnsupportedCompression),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_is_named_with_its_place(
    data: Callable[[], bytes], magic: int, error: type[KafkalogError]
) -> None:
    """A damaged batch would come out with a right checksum: it does not."""
    bad = data()
    with pytest.raises(error) as raised:
        convert(bad, magic)
    second = len(batch([R()]))
    assert raised.value.position == (0 if bad[:8] == bytes(8) and bad[8:12] == b"\0\0\0\5" else second)


BYTES = st.none() | st.binary(max_size=30)
ANY = st.lists(st.tuples(st.integers(1, 5), st.integers(-1, 2**41), BYTES, BYTES), min_size=1, max_size=15)


def space_rows(data: list[tuple[int, int, bytes | None, bytes | None]], first: int) -> list[Row]:
    rows = []
    for gap, time, key, value in data:
        rows.append((first, time, key, value))
        first += gap
    return rows


@settings(max_examples=200)
@given(data=ANY, first=st.integers(0, 2**40), codec=st.sampled_from(CODECS), way=st.permutations([0, 1, 2, 1, 2]))
def test_any_way_through_the_formats(data: list[Any], first: int, codec: CompressionType, way: list[int]) -> None:
    """Records are equal except for fields that a format on the way cannot hold: the times, for v0."""
    rows = space_rows(data, first)
    out: bytes | bytearray = build_batches(1, codec, rows)
    for at, magic in enumerate(way):
        out = convert(out, magic, batch_bytes=200)
        assert read_records(out) == (drop_times(rows) if 0 in way[: at + 1] else rows)


@settings(max_examples=200)
@given(data=st.data())
def test_damage_is_refused(data: st.DataObject) -> None:
    """Any changed byte of any batch: a typed error, or the same records under other outer fields."""
    magic = data.draw(st.sampled_from([0, 1, 2]))
    good = bytearray(build_batches(magic, data.draw(st.sampled_from(CODECS)), ROWS))
    good[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        convert(good, data.draw(st.sampled_from([0, 1, 2])))
    except KafkalogError:
        pass

"""Appends of compressed batches and of old formats: what the log writes, in which codec, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._core.batch.scan import scan
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnexpectedAppendOffset,
)
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.storage.log import UnifiedLog
from tests import builder as plain
from tests.storage.logs import NOW, log, sized_batch

NONE, GZIP, SNAPPY, LZ4, ZSTD = CompressionType
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
SETTINGS = ["producer", "uncompressed", "gzip", "zstd"]


def build_batches(
    magic: int, codec: CompressionType, values: list[bytes], *, key: bytes | None = b"k", first: int = 0
) -> bytearray:
    """Batches of any format and codec as a client makes them."""
    old: dict[str, Any] = {} if magic == 2 else {"magic": magic}
    builder = (LegacyBuilder if old else RecordsBuilder)(first, compression=codec, **old)
    for at, value in enumerate(values):
        builder.append(NOW + at, key, value)
    return builder.build()


def scan_headers(a_log: UnifiedLog) -> list[Any]:
    return list(scan(a_log.read(a_log.log_start_offset, 1 << 24).records.read()))


def read_records(path: Path) -> list[tuple[int, int, bytes | None]]:
    with kafkalog.open(path / "topic-0") as reading:
        return [(r.offset, r.timestamp, r.value) for r in reading]


def target_codec(setting: str, codec: CompressionType) -> CompressionType:
    return codec if setting == "producer" else NONE if setting == "uncompressed" else CompressionType[setting.upper()]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(
    ("magic", "codec"), [(m, c) for m in (0, 1, 2) for c in [NONE, *CODECS[: 4 if m == 2 else 3]]]
)
def test_a_leader_takes_every_format_and_codec(
    tmp_path: Path, magic: int, codec: CompressionType, setting: str
) -> None:
    """LOG-2, VAL-9, VAL-19, VAL-20: one v2 batch in the topic's codec, offsets from the log end, the leader's epoch."""
    a_log = log(tmp_path, compression_type=setting, leader_epoch=4)
    a_log.append_as_leader(build_batches(2, NONE, [b"before"]))
    values = [b"a" * 40, b"b", b"a" * 40]
    data = build_batches(magic, codec, values)
    info = a_log.append_as_leader(data)
    assert (info.first_offset, info.last_offset, info.valid_bytes) == (1, 3, len(data))
    assert (info.source_compression, info.target_compression) == (codec, target_codec(setting, codec))
    assert info.log_append_time == -1
    assert info.max_timestamp == (NOW + 2 if magic else -1)
    a_log.append_as_leader(build_batches(2, NONE, [b"after"]))
    a_log.close()
    with kafkalog.open(tmp_path / "topic-0") as reading:
        batches = [b.header for b in reading.batches()]
    assert [(b.base_offset, b.last_offset, b.magic, b.leader_epoch, b.is_valid) for b in batches] == [
        (0, 0, 2, 4, True), (1, 3, 2, 4, True), (4, 4, 2, 4, True)
    ]  # fmt: skip
    assert batches[1].compression == target_codec(setting, codec)
    expected = [(1 + at, NOW + at if magic else -1, value) for at, value in enumerate(values)]
    assert read_records(tmp_path)[1:4] == expected


def test_the_level_of_the_topic_counts(tmp_path: Path) -> None:
    """VAL-7: only where it recompresses."""
    sizes = []
    values = [b"the record of number %d" % at for at in range(3000)]
    for level in (1, 19):
        folder = tmp_path / str(level)
        folder.mkdir()
        a_log = log(folder, compression_type="zstd", compression_zstd_level=level)
        a_log.append_as_leader(build_batches(2, NONE, values))
        as_it_came = build_batches(2, ZSTD, values)
        a_log.append_as_leader(bytearray(as_it_came))
        first, second = scan_headers(a_log)
        sizes.append(first.size)
        assert second.size == len(as_it_came)
        a_log.close()
    assert sizes[1] < sizes[0]


def test_a_log_that_stamps(tmp_path: Path) -> None:
    """LOG-77: old formats and other codecs too."""
    a_log = log(tmp_path, message_timestamp_type="LogAppendTime", compression_type="lz4")
    for data in (build_batches(1, NONE, [b"a", b"b"]), build_batches(0, GZIP, [b"c"]), build_batches(2, LZ4, [b"d"])):
        assert a_log.append_as_leader(data).log_append_time == NOW
    said = {(h.timestamp_type, h.max_timestamp, h.is_valid, h.compression) for h in scan_headers(a_log)}
    assert said == {(1, NOW, True, LZ4)}
    a_log.close()
    assert [row[1] for row in read_records(tmp_path)] == [NOW] * 4


def test_a_header_that_lies_about_the_times_is_put_right(tmp_path: Path) -> None:
    """VAL-10, VAL-13."""
    a_log = log(tmp_path)
    a_log.append_as_leader(bytearray(plain.batch([plain.R(timestamp=NOW)], attributes=8)))
    (header,) = scan_headers(a_log)
    assert (header.timestamp_type, header.max_timestamp, header.is_valid) == (0, NOW, True)
    a_log.close()


# sizes


@pytest.mark.parametrize("path", ["single", "group"])
def test_the_size_that_counts_is_checked_before_and_after(tmp_path: Path, path: str) -> None:
    """LOG-8: what arrived too large is refused as it is, what became too large as it would be; nothing is written."""
    a_log = log(tmp_path, compression_type="uncompressed", max_message_bytes=4000)

    def append(data: bytearray) -> Any:
        if path == "single":
            return a_log.append_as_leader(data)
        return a_log.append_batches(build_batches(2, NONE, [b"x"]) + data)

    with pytest.raises(RecordTooLarge, match="max.message.bytes is 4000"):
        append(build_batches(2, NONE, [b"x" * 4000]))
    shrunk = build_batches(2, GZIP, [b"x" * 100] * 100)
    assert len(shrunk) < 4000
    with pytest.raises(RecordTooLarge, match="in the codec and format of the log") as raised:
        append(shrunk)
    assert raised.value.hint
    with pytest.raises(RecordTooLarge):
        append(build_batches(1, GZIP, [b"x" * 100] * 100))
    assert a_log.size == 0
    append(build_batches(2, GZIP, [b"x" * 100] * 10))
    a_log.close()


def test_a_converted_batch_that_no_segment_takes(tmp_path: Path) -> None:
    """LOG-9."""
    a_log = log(tmp_path, compression_type="uncompressed", internal_segment_bytes=5000)
    with pytest.raises(RecordBatchTooLarge):
        a_log.append_as_leader(build_batches(2, GZIP, [b"x" * 100] * 100))
    assert a_log.size == 0
    a_log.close()


# what is refused


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("path", ["single", "group"])
def test_unkeyed_records_of_a_compacted_topic(tmp_path: Path, magic: int, codec: CompressionType, path: str) -> None:
    """LOG-12, VAL-15: plain or compressed, of any format; nothing is written, keyed ones are."""
    a_log = log(tmp_path, cleanup_policy="compact")
    append = a_log.append_as_leader if path == "single" else lambda data: a_log.append_batches(data + data)
    with pytest.raises(InvalidRecord, match="without key") as raised:
        append(build_batches(magic, codec, [b"a", b"b"], key=None))
    assert raised.value.record_errors
    assert a_log.size == 0 and a_log.validator_metrics.no_key_compacted_topic > 0
    append(build_batches(magic, codec, [b"a", b"b"]))
    assert a_log.size > 0
    a_log.close()


def test_damage_inside_is_named(tmp_path: Path) -> None:
    """LOG-7, VAL-3, VAL-12: and nothing is written, of a group neither."""
    a_log = log(tmp_path, message_timestamp_before_max_ms=1000)
    good = build_batches(2, LZ4, [b"a"])
    flipped = bytearray(good)
    flipped[-1] ^= 1
    with pytest.raises(CorruptRecord):
        a_log.append_as_leader(flipped)
    for bad, error in (
        (plain.batch([plain.R(timestamp=NOW)], attributes=1), InvalidRecord),
        (plain.batch([plain.R(timestamp=NOW)], attributes=7), IllegalArgument),
        (plain.batch([plain.R(timestamp=NOW - 1001)]), InvalidTimestamp),
        (plain.batch([plain.R(timestamp=NOW)], attributes=0x20), InvalidRecord),
    ):
        with pytest.raises(error):
            a_log.append_as_leader(bytearray(bad))
        with pytest.raises(error) as raised:
            a_log.append_batches(good + good + bad)
        assert raised.value.position is not None and raised.value.position >= 2 * len(good)
    assert a_log.size == 0
    a_log.close()


def test_several_in_one_leaders_append(tmp_path: Path) -> None:
    """VAL-1, VAL-2: plain messages of one format only."""
    a_log = log(tmp_path)
    for data in (build_batches(2, GZIP, [b"a"]) * 2, build_batches(1, GZIP, [b"a"]) * 2):
        with pytest.raises(InvalidRecord, match="one batch at a time"):
            a_log.append_as_leader(data)
    with pytest.raises(InvalidRecord, match="v0 follows one of format v1"):
        a_log.append_as_leader(build_batches(1, NONE, [b"a"]) + build_batches(0, NONE, [b"b"]))
    assert a_log.append_as_leader(build_batches(1, NONE, [b"a", b"b"])).record_count == 2
    a_log.close()


def test_a_raft_leaders_offsets_stay(tmp_path: Path) -> None:
    """LOG-11: its batches are written as they are."""
    a_log = log(tmp_path)
    a_log.append_as_leader(bytearray(sized_batch(100, 2, epoch=4, base=10)), origin="raft_leader", leader_epoch=4)
    assert (a_log.log_end_offset, scan_headers(a_log)[0].base_offset) == (12, 10)
    with pytest.raises(UnexpectedAppendOffset):
        a_log.append_as_leader(bytearray(sized_batch(100, epoch=4, base=11)), origin="raft_leader", leader_epoch=4)
    with pytest.raises(InvalidRecord, match="epoch"):
        a_log.append_as_leader(bytearray(sized_batch(100, epoch=5, base=12)), origin="raft_leader", leader_epoch=4)
    a_log.close()


# groups


def test_a_group_of_everything(tmp_path: Path) -> None:
    """Each v2 batch and each wrapper is one append, plain messages are joined."""
    a_log = log(tmp_path, compression_type="gzip")
    three = build_batches(1, NONE, [b"1", b"2", b"3"], first=70)
    parts = [
        build_batches(2, NONE, [b"a", b"b"], first=900), three, build_batches(1, LZ4, [b"c"], first=7),
        build_batches(0, NONE, [b"d"]), build_batches(2, GZIP, [b"e"]), build_batches(2, ZSTD, [b"f"], first=3),
    ]  # fmt: skip
    info = a_log.append_batches(bytearray(b"".join(parts)) + parts[0][:-1])
    assert (info.first_offset, info.last_offset, info.valid_bytes) == (0, 8, sum(map(len, parts)))
    assert [(h.base_offset, h.last_offset, h.compression, h.is_valid) for h in scan_headers(a_log)] == [
        (0, 1, 1, True), (2, 4, 1, True), (5, 5, 1, True), (6, 6, 1, True), (7, 7, 1, True), (8, 8, 1, True)
    ]  # fmt: skip
    a_log.close()
    assert [row[2] for row in read_records(tmp_path)] == [b"a", b"b", b"1", b"2", b"3", b"c", b"d", b"e", b"f"]


def test_messages_are_joined_as_far_as_a_batch_may_be(tmp_path: Path) -> None:
    a_log = log(tmp_path, max_message_bytes=2000)
    data = build_batches(1, NONE, [b"x" * 100] * 100)
    assert a_log.append_batches(data).record_count == 100
    sizes = [h.size for h in scan_headers(a_log)]
    assert max(sizes) <= 2000 and len(sizes) == 8
    a_log.close()


def test_append_bytes_of_any_kind(tmp_path: Path) -> None:
    """Through the face: bytes or bytearray, whatever offsets they carry."""
    path = tmp_path / "t-0"
    with kafkalog.open(path, "a") as a_log:
        for magic, codec in ((2, ZSTD), (1, SNAPPY), (0, LZ4), (1, NONE)):
            data = build_batches(magic, codec, [b"a", b"b"], first=500)
            for given in (data, bytes(data), bytes(data) + bytes(data)):
                before = a_log.end_offset
                assert a_log.append_bytes(given).first_offset == before
        assert a_log.end_offset == 32
    with kafkalog.open(path) as reading:
        assert [r.value for r in reading] == [b"a", b"b"] * 16
        assert [r.offset for r in reading] == list(range(32))


# reading


@pytest.mark.parametrize("codec", CODECS)
def test_a_read_from_the_middle_of_a_compressed_batch(tmp_path: Path, codec: CompressionType) -> None:
    """LOG-24: the whole batch comes; who asked leaves out what lies before."""
    a_log = log(tmp_path)
    a_log.append_as_leader(build_batches(2, codec, [b"a"] * 5))
    a_log.append_as_leader(build_batches(1, GZIP, [b"b"] * 5))
    for start, first in ((0, 0), (2, 0), (4, 0), (5, 5), (9, 5)):
        found = scan(a_log.read(start, 1).records.read())
        assert (found.first_offset, found.last_offset, found.count) == (first, first + 4, 1)
    a_log.close()
    with kafkalog.open(tmp_path / "topic-0") as reading:
        assert [r.offset for r in reading.records(2, 7)] == [2, 3, 4, 5, 6]

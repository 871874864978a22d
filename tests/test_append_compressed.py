"""Records compressed as they are appended: what a caller names, what the topic decides, and what is refused."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import (
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedCompression,
)
from kafkalog.records.compression import compress, decompress
from kafkalog.records.format import CompressionType
from tests.open_logs import read_values

CODECS = ["gzip", "snappy", "lz4", "zstd"]
LINES = [b"hello lagou %d" % number for number in range(3000)]
NOISE = os.urandom(3000)
NOW = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def read_codecs(path: Path) -> list[str]:
    with kafkalog.open(path) as log:
        return [CompressionType(batch.header.compression).name.lower() for batch in log.batches()]


def read_sizes(path: Path) -> list[int]:
    with kafkalog.open(path) as log:
        return [batch.size for batch in log.batches()]


@pytest.mark.parametrize("codec", CODECS)
def test_one_batch_of_the_codec_that_reads_back(path: Path, codec: str) -> None:
    """Header fields but size, codec and checksum are those of the same batch uncompressed."""
    given = [(b"k%d" % at, value, NOW + at % 7, [("h", b"1")]) for at, value in enumerate(LINES)]
    with kafkalog.open(path, "a") as log:
        infos = [log.append(given), log.append(given, compression=codec), log.append(b"after")]
    assert [(i.first_offset, i.last_offset, i.shallow_count) for i in infos] == [
        (0, 2999, 1), (3000, 5999, 1), (6000, 6000, 1)
    ]  # fmt: skip
    assert infos[1].max_timestamp == NOW + 6 and infos[1].source_compression == CompressionType[codec.upper()]
    with kafkalog.open(path) as log:
        plain, packed, _ = log.batches()
        assert packed.is_valid and packed.size < plain.size / 2
        for field in ("count", "base_timestamp", "max_timestamp", "producer_id", "leader_epoch", "timestamp_type"):
            assert getattr(plain.header, field) == getattr(packed.header, field)
        one, two = plain.records(), packed.records()
    assert [(r.key, r.value, r.timestamp, r.headers) for r in one] == [
        (r.key, r.value, r.timestamp, r.headers) for r in two
    ]


@pytest.mark.parametrize(
    ("named", "codec"),
    [("none", "none"), ("uncompressed", "none"), ("ZSTD", "zstd"), ("gzip:9", "gzip"), ("gzip:-1", "gzip"),
     ("lz4:12", "lz4"), ("lz4:17", "lz4"), ("zstd:22", "zstd"), ("zstd:-7", "zstd")],
)  # fmt: skip
def test_names_and_levels(path: Path, named: str, codec: str) -> None:
    """REC-44."""
    with kafkalog.open(path, "a") as log:
        log.append(LINES, compression=named)
    assert read_codecs(path) == [codec] and read_values(path) == LINES


def test_a_level_makes_a_difference(path: Path) -> None:
    with kafkalog.open(path, "a") as log:
        for named in ("gzip:1", "gzip:9", "zstd:1", "zstd:19", "lz4", "lz4:12"):
            log.append(LINES, compression=named)
    low_gzip, high_gzip, low_zstd, high_zstd, low_lz4, high_lz4 = read_sizes(path)
    assert high_gzip < low_gzip and high_zstd < low_zstd and high_lz4 < low_lz4


@pytest.mark.parametrize(
    ("named", "error", "says"),
    [
        ("brotli", UnsupportedCompression, "brotli.*none, gzip, snappy, lz4, zstd"),
        ("zst", UnsupportedCompression, "did you mean zstd"),
        ("", UnsupportedCompression, "unknown codec"),
        ("producer", UnsupportedCompression, "unknown codec"),
        ("snappy:1", IllegalArgument, "snappy has no levels"),
        ("none:1", IllegalArgument, "none has no levels"),
        ("gzip:0", IllegalArgument, "1 to 9"),
        ("gzip:10", IllegalArgument, "1 to 9"),
        ("lz4:0", IllegalArgument, "1 to 17"),
        ("lz4:18", IllegalArgument, "1 to 17"),
        ("zstd:23", IllegalArgument, "22"),
        ("zstd:-131073", IllegalArgument, "-131072"),
        ("zstd:", IllegalArgument, "whole number"),
        ("zstd:high", IllegalArgument, "whole number"),
        ("zstd:9:9", IllegalArgument, "whole number"),
        ("zstd:" + "9" * 5000, IllegalArgument, "whole number"),
        (4, TypeError, "'zstd:9'"),
        (b"zstd", TypeError, "bytes"),
    ],
)
def test_what_is_no_codec_is_refused_before_anything_is_written(
    path: Path, named: Any, error: type[Exception], says: str
) -> None:
    with kafkalog.open(path, "a", compression_type="gzip") as log:
        with pytest.raises(error, match=says):
            log.append(b"v", compression=named)
        assert log.end_offset == 0


@settings(max_examples=20)
@given(data=st.lists(st.tuples(st.none() | st.binary(max_size=90), st.none() | st.binary(max_size=90)), min_size=1))
def test_any_records_come_back(tmp_path_factory: pytest.TempPathFactory, data: list[tuple[Any, Any]]) -> None:
    """REC-44: all codecs, small and hard to compress too."""
    path = tmp_path_factory.mktemp("any") / "t-0"
    with kafkalog.open(path, "a") as log:
        for codec in CODECS:
            log.append(data, compression=codec)
    assert read_codecs(path) == CODECS
    with kafkalog.open(path) as log:
        assert [(record.key, record.value) for record in log] == data * 4


# what the topic decides


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("requested", [None, "none", "gzip", "zstd:1"])
def test_a_topics_codec_is_what_lands_on_disk(path: Path, codec: str, requested: str | None) -> None:
    with kafkalog.open(path, "a", compression_type=codec) as log:
        log.append(LINES, compression=requested)
        log.append(b"one", compression=requested)
        assert log.append([]).shallow_count == 0
    assert read_codecs(path) == [codec, codec] and read_values(path) == [*LINES, b"one"]


def test_an_uncompressed_topic_takes_nothing_compressed(path: Path) -> None:
    with kafkalog.open(path, "a", compression_type="uncompressed") as log:
        log.append(LINES, compression="zstd")
    assert read_codecs(path) == ["none"]


def test_the_topics_level_counts_unless_the_caller_gives_one_for_that_codec(path: Path) -> None:
    batch = memoryview(bytes(encode_batch(LINES, timestamp=NOW)))[61:]
    records = [(None, line, NOW) for line in LINES]
    with kafkalog.open(path, "a", compression_type="gzip", compression_gzip_level=1) as log:
        log.append(records)
        log.append(records, compression="gzip")
        log.append(records, compression="gzip:9")
        log.append(records, compression="zstd:9")
    by_level = {level: 61 + len(memoryview(compress(1, batch, level=level))) for level in (1, 9)}
    assert read_sizes(path) == [by_level[level] for level in (1, 1, 9, 1)]


def test_levels_of_the_topic_for_lz4_and_zstd(tmp_path: Path) -> None:
    compressed = {}
    for codec, low, high in (("lz4", 9, 12), ("zstd", 1, 19)):
        for level in (low, high):
            settings: Any = {"compression_type": codec, f"compression_{codec}_level": level}
            with kafkalog.open(tmp_path / f"{codec}{level}-0", "a", **settings) as log:
                compressed[codec, level] = log.append(LINES).valid_bytes
        assert compressed[codec, high] < compressed[codec, low]


def test_a_setting_counts_from_the_next_append_on(path: Path) -> None:
    with kafkalog.open(path, "a") as log:
        log.append(LINES)
        unified = log.opened_for_append().log
        unified.config = unified.config.replace(compression_type="lz4")
        log.append(LINES)
    assert read_codecs(path) == ["none", "lz4"]


def test_a_log_that_stamps_records_stamps_compressed_ones(path: Path) -> None:
    with kafkalog.open(path, "a", message_timestamp_type="LogAppendTime") as log:
        info = log.append([(None, line, 5) for line in LINES], compression="snappy")
        assert info.log_append_time > NOW
    with kafkalog.open(path) as log:
        assert {record.timestamp for record in log} == {info.log_append_time}
        assert all(batch.is_valid for batch in log.batches())


# what is refused


@pytest.mark.parametrize("codec", CODECS)
def test_the_size_that_counts_is_the_compressed_one(path: Path, codec: str) -> None:
    with kafkalog.open(path, "a", max_message_bytes=20_000) as log:
        with pytest.raises(RecordTooLarge, match="max.message.bytes is 20000"):
            log.append(LINES)
        log.append(LINES[:2000], compression=codec)
        with pytest.raises(RecordTooLarge) as caught:
            log.append(LINES * 9, compression=codec)
        assert caught.value.path == str(path) and caught.value.hint
        assert log.end_offset == 2000


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_only_the_codec_makes_too_large_stays_plain(tmp_path: Path, codec: str) -> None:
    """LOG-8: but where the topic wants the codec it is refused."""
    limit = len(encode_batch([NOISE], timestamp=NOW))
    with kafkalog.open(tmp_path / "free-0", "a", max_message_bytes=limit) as log:
        log.append(NOISE, compression=codec)
    assert read_codecs(tmp_path / "free-0") == ["none"] and read_values(tmp_path / "free-0") == [NOISE]
    with kafkalog.open(tmp_path / "fixed-0", "a", max_message_bytes=limit, compression_type=codec) as log:
        with pytest.raises(RecordTooLarge, match="max.message.bytes"):
            log.append(NOISE)
        assert log.end_offset == 0
        log.append(b"small")


def test_a_compressed_batch_that_no_segment_takes(path: Path) -> None:
    with (
        pytest.warns(UserWarning, match="segment.bytes"),
        kafkalog.open(path, "a", segment_bytes=2000) as log,
        pytest.raises(RecordBatchTooLarge),
    ):
        log.append(NOISE, compression="lz4")


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_looked_at_before_they_are_compressed(path: Path, codec: str) -> None:
    """LOG-12."""
    with kafkalog.open(path, "a", cleanup_policy="compact", message_timestamp_before_max_ms=1000) as log:
        with pytest.raises(InvalidRecord, match="without key") as caught:
            log.append([(b"k", b"v"), b"no key"], compression=codec)
        assert [index for index, _ in caught.value.record_errors] == [1] and caught.value.path == str(path)
        with pytest.raises(InvalidTimestamp):
            log.append([(b"k", b"v", NOW)], compression=codec)
        with pytest.raises(TypeError, match="encode"):
            log.append(["text"], compression=codec)
        assert log.end_offset == 0
        log.append((b"k", b"v"), compression=codec)


def test_what_is_on_disk_is_one_stream_of_the_codec(path: Path) -> None:
    with kafkalog.open(path, "a") as log:
        log.append(LINES, compression="gzip")
    data = next(path.glob("*.log")).read_bytes()
    assert zlib.decompress(data[61:], 31) == decompress(1, data[61:])

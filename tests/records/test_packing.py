"""Batches packed with a codec: which one, at what level, and what becomes of those that grow."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.repack import Packer
from kafkalog._core.batch.scan import scan
from kafkalog._core.text.ingest import LineEncoder
from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalArgument
from kafkalog.records import zstd_frame
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.packing import PLAIN, Compression, choose, most_plain_bytes, pack, parse_compression
from tests.builder import R, batch

GZIP, SNAPPY, LZ4, ZSTD = (CompressionType(n) for n in range(1, 5))
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
MOST = 1 << 20


@pytest.fixture(params=["installed", "hidden"])
def zstandard(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "hidden":
        monkeypatch.setitem(sys.modules, "zstandard", None)
    zstd_frame._contexts.cache_clear()
    yield request.param
    zstd_frame._contexts.cache_clear()


def encode_lines(count: int, batch_bytes: int = 16_384) -> bytearray:
    encoder = LineEncoder(batch_bytes=batch_bytes)
    text = b"".join(b"hello lagou %d\n" % number for number in range(1, count + 1))
    encoder.feed(text, len(text), 1_700_000_000_000)
    encoder.seal()
    return encoder.take()


def read_records(data: object) -> list[tuple[int, int, bytes | None, bytes | None]]:
    batches = MemoryRecords(bytes(data))  # type: ignore[call-overload]
    return [(r.offset, r.timestamp, r.key, r.value) for one in batches.batches() for r in one.records()]


@pytest.mark.parametrize("codec", CODECS)
def test_each_batch_is_packed_alone(codec: CompressionType, zstandard: str) -> None:
    plain = encode_lines(2100)
    before = bytes(plain)
    packed = pack(plain, Compression(codec), limit_bytes=MOST)
    assert plain == before
    one, two = scan(plain), scan(packed)
    assert [header.count for header in one] == [header.count for header in two] == [717, 694, 682, 7]
    assert all(header.is_valid and header.compression == codec for header in two)
    assert len(packed) < len(plain) / 2 and not memoryview(packed).readonly
    assert read_records(packed) == read_records(plain)


def test_no_codec_changes_nothing() -> None:
    plain = encode_lines(10)
    assert pack(plain, PLAIN, limit_bytes=MOST) is plain
    empty = bytearray()
    assert pack(empty, Compression(ZSTD), limit_bytes=MOST) is empty


@given(
    sizes=st.lists(st.integers(0, 70_000), min_size=1, max_size=5), noise=st.booleans(), codec=st.sampled_from(CODECS)
)
def test_what_is_called_safe_is_safe(sizes: list[int], noise: bool, codec: CompressionType) -> None:
    """`most_plain_bytes` is never passed by what a codec makes of that much."""
    plain = bytearray(b"".join(batch([R(os.urandom(n) if noise else bytes(n))]) for n in sizes))
    packed = scan(pack(plain, Compression(codec, None, True), limit_bytes=0))
    for header, before in zip(packed, scan(plain), strict=True):
        limit = header.size - 1
        assert most_plain_bytes(Compression(codec), limit) < before.size
    assert most_plain_bytes(PLAIN, 5000) == 5000


def test_batches_that_would_grow_past_the_limit_stay_as_they_are() -> None:
    noise, text = batch([R(os.urandom(900))]), batch([R(b"text " * 100)])
    plain = bytearray(noise + text + noise)
    packed = pack(plain, Compression(LZ4), limit_bytes=len(noise))
    assert [header.compression for header in scan(packed)] == [0, LZ4, 0]
    assert bytes(packed)[: len(noise)] == noise and read_records(packed) == read_records(plain)
    wanted = pack(plain, Compression(LZ4, None, True), limit_bytes=len(noise))
    assert [header.compression for header in scan(wanted)] == [LZ4] * 3


def test_choice() -> None:
    asked = parse_compression("zstd:7")
    assert choose(LogConfig(), asked) == Compression(ZSTD, 7) and choose(LogConfig(), None) == PLAIN
    assert choose(LogConfig(compression_type="uncompressed"), asked) == PLAIN
    assert choose(LogConfig(compression_type="zstd"), None) == Compression(ZSTD, 3, True)
    assert choose(LogConfig(compression_type="zstd"), asked) == Compression(ZSTD, 7, True)
    assert choose(LogConfig(compression_type="snappy"), asked) == Compression(SNAPPY, None, True)
    config = LogConfig(compression_type="lz4", compression_lz4_level=12)
    assert choose(config, asked) == choose(config, parse_compression("lz4")) == Compression(LZ4, 12, True)


def test_the_packer_refuses_what_is_no_batch() -> None:
    good = batch([R()])
    for data in (good[:60], good + b"x", good[:-1], good[:16] + b"\x01" + good[17:], b"\xff" * 80):
        packer = Packer(data)
        with pytest.raises(ValueError, match=r"batch"):
            while packer.next() is not None:
                packer.keep()
    for data, at, size in (
        (good[:-1], 0, len(good)),
        (good + good[:-1], len(good), len(good)),
        (good[:8] + (48).to_bytes(4, "big") + good[12:], 0, 60),
    ):
        packer = Packer(data)
        with pytest.raises(ValueError, match=f"the batch at byte {at} says that it has {size} bytes"):
            while packer.next() is not None:
                packer.keep()
    empty = Packer(good[:8] + (49).to_bytes(4, "big") + good[12:61])
    assert empty.next() == b"" and empty.next() is None
    packer = Packer(good)
    for call in (packer.keep, lambda: packer.seal(1)):
        with pytest.raises(ValueError, match="no batch is being packed"):
            call()
    assert packer.next() == good[61:]
    with pytest.raises(ValueError, match="codec 9"):
        packer.seal(9)
    assert packer.seal(0) == 61 and packer.keep() == len(good) and packer.next() is None
    assert bytes(packer.take()) == good and bytes(packer.take()) == b""


@given(
    values=st.lists(st.binary(max_size=120).map(lambda data: data.replace(b"\n", b".")), min_size=1, max_size=60),
    batch_bytes=st.integers(61, 700),
    codec=st.sampled_from(CODECS),
)
def test_any_lines_in_batches_of_any_size(values: list[bytes], batch_bytes: int, codec: CompressionType) -> None:
    """Packed data has the batches, the records and the header fields of the plain data."""
    encoder = LineEncoder(batch_bytes=batch_bytes)
    text = b"\n".join(values) + b"\n"
    encoder.feed(text, len(text), 1_700_000_000_000)
    encoder.seal()
    plain = encoder.take()
    packed = pack(plain, Compression(codec), limit_bytes=MOST)
    for one, two in zip(scan(plain), scan(packed), strict=True):
        assert two.is_valid and two.compression == codec
        for field in ("base_offset", "last_offset", "count", "base_timestamp", "max_timestamp", "leader_epoch"):
            assert getattr(one, field) == getattr(two, field)
    assert read_records(packed) == read_records(plain)
    assert [value for _, _, _, value in read_records(packed)] == values


@pytest.mark.parametrize("codec", CODECS)
def test_threads_do_not_disturb_each_other(codec: CompressionType) -> None:
    plain = encode_lines(3000)
    wanted = bytes(pack(plain, Compression(codec), limit_bytes=MOST))
    made: list[bytes] = []

    def work() -> None:
        for _ in range(20):
            made.append(bytes(pack(plain, Compression(codec), limit_bytes=MOST)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [wanted] * 80


@pytest.mark.parametrize("level", ["", "-", "x", "1.0", "\u0663", "\u00b2", "--3", "0" * 12 + "3"])
def test_a_level_is_a_whole_number_of_few_digits(level: str) -> None:
    with pytest.raises(IllegalArgument, match="^the level of .* is not a whole number") as caught:
        parse_compression(f"zstd:{level}")
    assert "a level follows the colon: zstd:3" in str(caught.value.hint)
    assert parse_compression("zstd:" + "0" * 11 + "3") == parse_compression("zstd:3")
    assert parse_compression("zstd:-3").level == -3


@pytest.mark.parametrize("codec", [one for one in CompressionType if one])
@pytest.mark.parametrize("limit_bytes", [1000, 10_000, 300_000])
def test_the_largest_plain_batch_has_its_limit_when_it_is_compressed(codec: CompressionType, limit_bytes: int) -> None:
    """REC-47: of bytes that do not shrink, and not much less than the limit."""
    most = most_plain_bytes(Compression(codec), limit_bytes)
    assert 0.5 * limit_bytes < most < limit_bytes
    records = os.urandom(most - 61)
    assert 61 + len(memoryview(compress(codec, records))) <= limit_bytes
    assert most_plain_bytes(Compression(codec), 61) == most_plain_bytes(Compression(codec), 0) == 61
    assert most_plain_bytes(PLAIN, limit_bytes) == limit_bytes

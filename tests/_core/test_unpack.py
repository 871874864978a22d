"""Unpacker: what it asks of a package, what it keeps from it, and what happens when one misbehaves."""

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.unpack import FAULT_TEXT, FIRST_FAULT, GZIP_FASTER, GZIP_WHOLE, TOO_LARGE, Tool, Unpacker
from kafkalog._core.bytes.store import Store
from kafkalog.records.compression import compress, new_unpacker

GZIP, SNAPPY, LZ4, ZSTD = range(1, 5)
TEXT = b"".join(b"some text, line %d; " % n for n in range(9_000))
MOST = 1 << 24


class Refused(Exception):
    """An error of the packages of these tests."""


def unpacked(unpacker: Unpacker, codec: int, data: bytes, limit_bytes: int = MOST) -> bytes | str:
    """Return the unpacked data, or the text of the error."""
    store = Store()
    status = unpacker.unpack(store, codec, data, limit_bytes=limit_bytes)
    assert status == 0 or status >= FIRST_FAULT
    return unpacker.text(status) if status else bytes(store.take())


def with_tool(codec: int, function: Callable[..., Any], *, gives: bool = False) -> Unpacker:
    """An unpacker that knows one package only."""
    return Unpacker(lambda asked: Tool(function, Refused, gives=gives) if asked == codec else None)


def xerial(*blocks: bytes) -> bytes:
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(len(b).to_bytes(4, "big") + b for b in blocks)


def test_a_package_is_asked_for_once() -> None:
    asked: list[int] = []

    def find(codec: int) -> Tool | None:
        asked.append(codec)
        return None if codec == GZIP_WHOLE else Tool(zlib.decompressobj, zlib.error)

    unpacker = Unpacker(find)
    for _ in range(3):
        assert unpacked(unpacker, GZIP, gzip.compress(TEXT)) == TEXT
    assert sorted(asked) == [GZIP, GZIP_FASTER, GZIP_WHOLE]


def test_it_gets_no_more_room_than_a_block_can_fill() -> None:
    rooms: list[int] = []

    def into(data: Any, room: Any) -> int:
        rooms.append(len(memoryview(room)))
        return 0

    def giving(data: Any, most: int) -> bytes:
        rooms.append(most)
        return b""

    assert unpacked(with_tool(SNAPPY, into), SNAPPY, xerial(bytes(cramjam.snappy.compress_raw(TEXT[:500])))) == b""
    assert unpacked(with_tool(LZ4, into), LZ4, bytes(compress(LZ4, bytes(65536) + b"ab" * 40))) == b""
    short = len(bytes(compress(LZ4, b"ab" * 40))) - 7 - 4 - 4
    assert rooms == [500, 65536, 255 * short + 64]
    rooms.clear()
    assert unpacked(with_tool(ZSTD, giving, gives=True), ZSTD, bytes(compress(ZSTD, TEXT))) == b""
    assert rooms == [len(TEXT)]


@pytest.mark.parametrize("claimed", [-1, 501, 2**40])
def test_a_package_that_claims_more_than_it_got(claimed: int) -> None:
    unpacker = with_tool(SNAPPY, lambda data, room: claimed)
    data = bytes(cramjam.snappy.compress_raw(TEXT[:500]))
    with pytest.raises(ValueError, match="more than the 500"):
        unpacked(unpacker, SNAPPY, data)
    assert not unpacker.busy


def test_what_a_package_keeps_stays_alive_and_is_not_written_to() -> None:
    kept: list[memoryview] = []

    def into(data: Any, room: Any) -> int:
        kept.append(memoryview(data))
        return 0

    unpacker = with_tool(SNAPPY, into)
    for size in (400, 300):
        unpacked(unpacker, SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT[:size])))
    for view, size in zip(kept, (400, 300), strict=True):
        assert bytes(cramjam.snappy.decompress_raw(view)) == TEXT[:size]
        assert view.readonly


def test_a_room_that_is_kept_is_an_error() -> None:
    kept: list[memoryview] = []
    unpacker = with_tool(SNAPPY, lambda data, room: kept.append(memoryview(room)) or 0)  # type: ignore[func-returns-value]
    block = bytes(cramjam.snappy.compress_raw(TEXT[:500]))
    with pytest.raises(BufferError, match="still held"):
        unpacked(unpacker, SNAPPY, xerial(block, block))
    assert not unpacker.busy


def test_other_errors_of_a_package_are_not_hidden() -> None:
    unpacker = with_tool(SNAPPY, lambda data, room: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            unpacked(unpacker, SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))


def test_one_at_work_takes_no_second_job() -> None:
    inner: list[object] = []

    def into(data: Any, room: Any) -> int:
        with pytest.raises(RuntimeError, match="at work"):
            unpacked(unpacker, SNAPPY, b"")
        inner.append(unpacker.busy)
        return 0

    unpacker = with_tool(SNAPPY, into)
    assert unpacked(unpacker, SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == b""
    assert (inner, unpacker.busy) == ([True], False)


def test_every_fault_has_a_text_and_every_text_its_numbers() -> None:
    unpacker = new_unpacker()
    unpacked(unpacker, GZIP, b"")
    for status in FAULT_TEXT:
        assert "{" not in unpacker.text(status)
    assert unpacked(unpacker, 6, b"") == "unknown compression id 6"
    assert unpacked(unpacker, 0, TEXT, limit_bytes=9) == unpacker.text(TOO_LARGE)
    assert unpacked(unpacker, 0, TEXT) == TEXT


# --- gzip has two packages: the second is faster, the first knows what is wrong




ZLIB = Unpacker(lambda codec: Tool(zlib.decompressobj, zlib.error) if codec == GZIP else None)


def parts(data: bytes, level: int, extra: bytes, members: int) -> bytes:
    """Members with and without a name, and what follows them."""
    made = b"".join(gzip.compress(data[n:], level, mtime=0) for n in range(members))
    named = made[:3] + b"\x08" + made[4:10] + b"name\0" + made[10:]
    return (named if level % 2 else made) + extra


@given(
    data=st.binary(max_size=2000),
    repeats=st.integers(1, 60) | st.integers(200, 400),
    level=st.integers(0, 9),
    extra=st.sampled_from([b"", b"\0\0", b"\x1f", b"\x1f\x8b", b"trailing"]),
    members=st.integers(1, 4),
    limit=st.integers(0, 150_000),
    change=st.none() | st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)),
    cut=st.none() | st.integers(0, 1 << 20),
)
def test_both_packages_of_gzip_say_the_same(
    data: bytes,
    repeats: int,
    level: int,
    extra: bytes,
    members: int,
    limit: int,
    change: tuple[int, int] | None,
    cut: int | None,
) -> None:
    """Content, refusals, texts and positions; also of changed and cut bytes, where a checksum sees the change."""
    pytest.importorskip("isal")
    made = bytearray(parts(data * repeats, level, extra, members))
    if change is not None:
        made[change[0] % len(made)] ^= change[1]
    if cut is not None:
        del made[cut % (len(made) + 1) :]
    fast = new_unpacker()
    expected = unpacked(ZLIB, GZIP, bytes(made), limit)
    assert unpacked(fast, GZIP, bytes(made), limit) == expected
    if isinstance(expected, str):
        assert fast.position == ZLIB.position


def test_the_packages_of_gzip_in_their_order() -> None:
    """First the one for a whole member; what it does not take goes to the others, the plain one has the last word."""
    used: list[int] = []

    def find(codec: int) -> Tool:
        def make(bits: int) -> Any:
            used.append(codec)
            return zlib.decompressobj(bits)

        def whole(data: Any, size: int) -> bytes:
            used.append(codec)
            return zlib.decompress(data, -15)

        return Tool(whole if codec == GZIP_WHOLE else make, zlib.error)

    made = gzip.compress(TEXT, mtime=0)
    unpacker = Unpacker(find)
    assert unpacked(unpacker, GZIP, made) == TEXT
    assert used == [GZIP_WHOLE]
    used.clear()
    assert "incorrect data check" in unpacked(unpacker, GZIP, made[:-8] + bytes(4) + made[-4:])
    assert used == [GZIP_WHOLE, GZIP_FASTER, GZIP]
    used.clear()
    assert unpacked(unpacker, GZIP, made + made) == TEXT + TEXT and unpacked(unpacker, GZIP, made + b"end") == TEXT
    assert used == [GZIP_FASTER, GZIP_FASTER, GZIP_FASTER]  # another member, and a size that cannot be


def test_a_size_that_cannot_be_is_not_believed() -> None:
    """The last four bytes of a member say a size: no memory is taken for one that its bytes cannot stand for."""
    asked: list[int] = []

    def find(codec: int) -> Tool | None:
        if codec == GZIP_WHOLE:
            return Tool(lambda data, size: asked.append(size) or b"", ())
        return Tool(zlib.decompressobj, zlib.error) if codec == GZIP else None

    made = gzip.compress(TEXT, mtime=0)
    for size in (1 << 30, 0xFFFFFFFF):
        assert "incorrect" in unpacked(Unpacker(find), GZIP, made[:-4] + size.to_bytes(4, "little"))
    assert asked == []


def test_large_members_are_fed_in_pieces() -> None:
    """1 MiB of noise, then zeros: neither package is given all of it at once."""
    noise = bytes(zlib.crc32(n.to_bytes(4, "big")) & 0xFF for n in range(1 << 20))
    made = gzip.compress(noise, 1) + gzip.compress(bytes(1 << 20))
    for unpacker in (ZLIB, new_unpacker()):
        assert unpacked(unpacker, GZIP, made) == noise + bytes(1 << 20)


# --- zstd has two packages as well


@given(
    data=st.binary(max_size=3000), repeats=st.integers(0, 80), level=st.integers(-5, 19), limit=st.integers(0, 1 << 18)
)
def test_both_packages_of_zstd_read_the_same(data: bytes, repeats: int, level: int, limit: int) -> None:
    zstandard = pytest.importorskip("zstandard")
    text = data * repeats
    packer = zstandard.ZstdCompressor(level=level)
    stream = packer.compressobj()
    cramjams = Unpacker(lambda codec: Tool(cramjam.zstd.decompress_into, cramjam.DecompressionError))
    for made in (packer.compress(text), stream.compress(text) + stream.flush(), bytes(cramjam.zstd.compress(text))):
        expected = text if len(text) <= limit else f"the limit of {limit} bytes"
        for unpacker in (cramjams, new_unpacker()):
            found = unpacked(unpacker, ZSTD, made, limit)
            assert found == expected if isinstance(found, bytes) else str(expected) in found

"""Codecs by id: round trips, levels, limits, damage, and what both zstd packages make of it."""

import gzip
import sys
import threading
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.bytes.store import Store
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.records import compression, zstd_frame
from kafkalog.records.compression import LEVELS, check_codec, compress, compress_into, decompress, decompress_into
from kafkalog.records.format import CompressionType

GZIP, SNAPPY, LZ4, ZSTD = (CompressionType(n) for n in range(1, 5))
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
TEXT = b"".join(b"a line of text, number %d; " % n for n in range(13_000))
NOISE = bytes(zlib.crc32(n.to_bytes(4, "big")) & 0xFF for n in range(150_000))


@pytest.fixture(params=["installed", "hidden"])
def zstandard(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With the package zstandard, and with cramjam alone."""
    if request.param == "hidden":
        monkeypatch.setitem(sys.modules, "zstandard", None)
    else:
        pytest.importorskip("zstandard")
    zstd_frame._contexts.cache_clear()
    compression._local.unpacker = compression.new_unpacker()
    yield request.param
    zstd_frame._contexts.cache_clear()
    compression._local.unpacker = compression.new_unpacker()


@pytest.mark.parametrize("codec", [CompressionType.NONE, *CODECS])
@given(data=st.binary(max_size=300), repeats=st.integers(0, 400), skipped=st.integers(0, 9), magic=st.integers(0, 2))
def test_round_trip(codec: int, data: bytes, repeats: int, skipped: int, magic: int) -> None:
    """REC-44: any size, slices that do not begin at zero."""
    if codec == ZSTD:
        magic = 2
    view = memoryview(data * repeats)[skipped:]
    squeezed = b"-" + bytes(compress(codec, view, magic=magic)) + b"-"
    assert decompress(codec, memoryview(squeezed)[1:-1], magic=magic) == view


@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["text", "noise"])
@pytest.mark.parametrize(
    ("codec", "level"),
    [(codec, level) for codec, (low, high) in LEVELS.items() for level in (low, high, None)]
    + [(GZIP, 1), (LZ4, 9), (LZ4, 12), (ZSTD, 1), (ZSTD, 0), (SNAPPY, None)],
)
def test_levels(codec: int, level: int | None, data: bytes) -> None:
    """REC-44: lowest, default and highest."""
    assert decompress(codec, compress(codec, data, level=level)) == data


@pytest.mark.parametrize(
    ("codec", "level"), [(GZIP, 0), (GZIP, 10), (LZ4, 0), (LZ4, 18), (ZSTD, 23), (ZSTD, -131073), (SNAPPY, 1), (0, 1)]
)
def test_levels_that_are_none(codec: int, level: int) -> None:
    with pytest.raises(IllegalArgument, match="level"):
        compress(codec, b"", level=level)


def test_higher_levels_are_smaller() -> None:
    for codec, low, high in ((GZIP, 1, 9), (LZ4, None, 17), (ZSTD, -50, 19)):
        assert len(memoryview(compress(codec, TEXT, level=high))) < len(memoryview(compress(codec, TEXT, level=low)))


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_ids(codec: int) -> None:
    """REC-23."""
    store = Store()
    for call in (
        lambda: check_codec(codec),
        lambda: compress(codec, b""),
        lambda: compress_into(store, codec, memoryview(b"a")),
        lambda: compress_into(store, codec, memoryview(b"a"), level=1),
        lambda: decompress(codec, b""),
    ):
        with pytest.raises(IllegalArgument, match=f"id {codec}"):
            call()
    assert bytes(store.take()) == b""
    compress_into(store, CompressionType.NONE, memoryview(b"a"))
    assert bytes(store.take()) == b"a"


def test_old_formats_have_no_zstd() -> None:
    """REC-27."""
    with pytest.raises(IllegalArgument, match="v1 has no zstd"):
        compress(ZSTD, b"", magic=1)


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_kept(codec: int, zstandard: str) -> None:
    """One byte more is InvalidRecord, which names codec and limit."""
    for size in (1, 1000, 70_000, 300_000):
        data = compress(codec, TEXT[:size])
        assert len(decompress(codec, data, limit_bytes=size)) == size
        with pytest.raises(InvalidRecord, match=f"{codec.name.lower()}: .*{size - 1} bytes"):
            decompress(codec, data, limit_bytes=size - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_memory(codec: int, zstandard: str) -> None:
    import tracemalloc

    bomb = bytes(compress(codec, bytes(64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord, match="limit of 1000000"):
            decompress(codec, bomb, limit_bytes=1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [TEXT[:3000], NOISE[:3000], b"x"], ids=["text", "noise", "one"])
def test_every_cut_is_an_error(codec: int, data: bytes, zstandard: str) -> None:
    whole = bytes(compress(codec, data))
    for size in range(len(whole)):
        if codec == SNAPPY and size == 16:
            continue  # a header without blocks is how nothing is written
        with pytest.raises(InvalidRecord, match=codec.name.lower()) as raised:
            decompress(codec, whole[:size])
        assert 0 <= (raised.value.position or 0) <= size


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_any_change_is_an_error_or_other_bytes(codec: int, data: st.DataObject) -> None:
    whole = bytearray(compress(codec, TEXT[: data.draw(st.integers(0, 400))] * data.draw(st.integers(1, 3))))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, whole, limit_bytes=1 << 20)) <= 1 << 20
    except InvalidRecord as error:
        assert error.hint


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=100))
def test_any_bytes_at_all(codec: int, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, limit_bytes=1 << 20)) <= 1 << 20
    except InvalidRecord as error:
        assert error.message.startswith(codec.name.lower())


def test_gzip_members_follow_each_other() -> None:
    data = gzip.compress(b"one ") + gzip.compress(b"two") * 2
    assert decompress(GZIP, data) == b"one twotwo"
    assert decompress(GZIP, data + b"\0\0 what is no member") == b"one twotwo"
    with pytest.raises(InvalidRecord):
        decompress(GZIP, data + b"\x1f\x8b")


def test_many_gzip_members_end_soon() -> None:
    assert decompress(GZIP, gzip.compress(b"") * 50_000) == b""


def test_appends_to_what_is_there() -> None:
    store = Store()
    for codec in CODECS:
        decompress_into(store, codec, memoryview(bytes(compress(codec, b"<%d>" % codec))))
    assert bytes(store.take()) == b"<1><2><3><4>"


def test_the_limit_counts_what_is_added() -> None:
    for codec in CODECS:
        store = Store()
        store.append(bytes(500))
        decompress_into(store, codec, memoryview(bytes(compress(codec, TEXT[:100]))), limit_bytes=100)
        assert store.size == 600


def test_threads_do_not_disturb_each_other(zstandard: str) -> None:
    squeezed = {codec: bytes(compress(codec, TEXT)) for codec in CODECS}
    wrong: list[object] = []

    def work(codec: int) -> None:
        for _ in range(30):
            if decompress(codec, squeezed[codec]) != TEXT or bytes(compress(codec, TEXT)) != squeezed[codec]:
                wrong.append(codec)

    threads = [threading.Thread(target=work, args=(codec,)) for codec in CODECS for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

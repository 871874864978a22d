"""LZ4 frames: the header byte by byte, blocks stored raw, checksums, and what a reader must refuse."""

import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.bytes.xxhash import xxh32
from kafkalog.errors import InvalidRecord
from kafkalog.records.compression import compress, decompress

MAGIC = struct.pack("<I", 0x184D2204)
TEXT = b"some text that is repeated, " * 40
END = bytes(4)


def frame(blocks: bytes, *, flags: int = 0x60, sizes: int = 0x40, size: bytes = b"", check: int | None = None) -> bytes:
    fields = bytes((flags, sizes)) + size
    return MAGIC + fields + bytes(((xxh32(fields) >> 8) & 0xFF if check is None else check,)) + blocks


def block(data: bytes) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(data, store_size=False))
    return struct.pack("<I", len(packed)) + packed


def raw_block(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 0x80000000) + data


def write(data: bytes, *, level: int | None = None, magic: int = 2) -> bytes:
    return bytes(compress(3, data, level=level, magic=magic))


def read(data: bytes, magic: int = 2, limit_bytes: int = 1 << 23) -> bytes:
    return bytes(decompress(3, data, magic=magic, limit_bytes=limit_bytes))


def test_the_header_is_that_of_the_java_client() -> None:
    """format.md section 6: 04224d18 60 40 82, an end mark, no checksums."""
    written = write(TEXT)
    assert written[:7] == bytes.fromhex("04224d18604082")
    assert written[-4:] == END
    assert written == frame(block(TEXT) + END)


def test_slower_levels_keep_blocks_and_header() -> None:
    data = TEXT * 100 + bytes(xxh32(n.to_bytes(4, "big")) & 0xFF for n in range(90_000))
    written = write(data, level=12)
    assert written[:7] == bytes.fromhex("04224d18604082")
    at, sizes = 7, []
    while (size := struct.unpack_from("<I", written, at)[0]) != 0:
        sizes.append(size)
        at += 4 + (size & 0x7FFFFFFF)
    assert len(sizes) == (len(data) + 65535) // 65536
    assert sizes[2] == 65536 | 0x80000000
    assert read(written) == data


def test_format_v0_has_the_historic_wrong_header_checksum() -> None:
    """REC-45: over the frame magic too; a reader of v0 does not look, a reader of v1 refuses it."""
    written = write(TEXT, magic=0)
    assert written[6] == (xxh32(MAGIC + b"\x60\x40") >> 8) & 0xFF != 0x82
    assert written[:6] + b"\x82" + written[7:] == write(TEXT, magic=1)
    assert read(written, magic=0) == read(frame(block(TEXT) + END, check=0), magic=0) == TEXT
    with pytest.raises(InvalidRecord, match="checksum"):
        read(written, magic=1)


def test_blocks_that_do_not_shrink_are_stored() -> None:
    """REC-46."""
    noise = bytes(xxh32(n.to_bytes(4, "big")) & 0xFF for n in range(70_000))
    written = write(noise + TEXT * 80)
    assert struct.unpack_from("<I", written, 7)[0] == 65536 | 0x80000000
    assert struct.unpack_from("<I", written, 11 + 65536)[0] < 65536
    assert read(written) == noise + TEXT * 80
    assert write(b"abc") == frame(raw_block(b"abc") + END)


@pytest.mark.parametrize("sizes", [0x40, 0x50, 0x60, 0x70])
def test_block_sizes(sizes: int) -> None:
    largest = {0x40: 1 << 16, 0x50: 1 << 18, 0x60: 1 << 20, 0x70: 1 << 22}[sizes]
    assert read(frame(block(bytes(largest)) + END, sizes=sizes)) == bytes(largest)
    for bad in (block(bytes(largest + 1)), raw_block(bytes(largest + 1))):
        with pytest.raises(InvalidRecord, match="block"):
            read(frame(bad + END, sizes=sizes))


def test_content_size_and_checksum_are_read_over() -> None:
    size = struct.pack("<Q", len(TEXT))
    assert read(frame(block(TEXT) + END, flags=0x68, size=size)) == TEXT
    assert read(frame(block(TEXT) + END + b"sum.", flags=0x64)) == TEXT


def test_block_checksums() -> None:
    """REC-45."""
    checked = block(TEXT) + struct.pack("<I", xxh32(block(TEXT)[4:]))
    raw = raw_block(b"raw") + struct.pack("<I", xxh32(b"raw"))
    assert read(frame(checked + raw + END, flags=0x70)) == TEXT + b"raw"
    for bad in (checked[:-1] + b"\0", checked[:6] + b"?" + checked[7:]):
        with pytest.raises(InvalidRecord, match="does not match its checksum") as raised:
            read(frame(raw + bad + END, flags=0x70))
        assert raised.value.position == 7 + len(raw)
    with pytest.raises(InvalidRecord, match="past the end"):
        read(frame(checked[:-2], flags=0x70))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x05" + frame(END)[1:], "frame magic"),
        (b"", "frame magic"),
        (frame(b"")[:6], "cut off"),
        (frame(b"", flags=0x68)[:7], "cut off"),
        (frame(END, flags=0x61), "reserved"),
        (frame(END, flags=0x62), "reserved"),
        (frame(END, sizes=0x41), "reserved"),
        (frame(END, sizes=0xC0), "reserved"),
        (frame(END, sizes=0x30), "block size 3"),
        (frame(END, flags=0x20), "version 0"),
        (frame(END, flags=0xA0), "version 2"),
        (frame(END, flags=0x40), "depend on each other"),
        (frame(END, check=0x83), "header's checksum"),
        (frame(block(TEXT)), "no end mark"),
        (frame(block(TEXT) + b"\0\0\0"), "no end mark"),
        (frame(block(TEXT)[:-3]), "past the end"),
        (frame(struct.pack("<I", 3) + b"\xf0\xff\xff" + END), "damaged"),
        (frame(struct.pack("<I", 3) + b"\x0f\x00\x00" + END), "damaged"),
    ],
)
def test_what_a_reader_refuses(data: bytes, reason: str) -> None:
    """REC-45."""
    with pytest.raises(InvalidRecord, match=reason):
        read(data)


def test_a_block_that_also_reads_as_a_size_and_a_block_is_one_block() -> None:
    """Two empty messages of format v0 at offset 0xe40000000101: f1 02 00 00 is a token and literals, and no 753."""
    packed = bytes.fromhex(
        "f1020000e400000001010000000e3d31489500010043ffffffff1a0010021a00e0a7ec68030000ffffffffffffffff"
    )
    plain = bytes.fromhex(
        "0000e400000001010000000e3d314895000000000000ffffffff"
        "0000e400000001020000000ea7ec68030000ffffffffffffffff"
    )
    assert read(frame(struct.pack("<I", len(packed)) + packed + END)) == plain


@given(size=st.integers(0, 2**16), literals=st.binary(max_size=60))
def test_literals_are_never_a_size(size: int, literals: bytes) -> None:
    """A block of literals alone whose first four bytes may be a size that fits, and the rest may be a block."""
    data = (size.to_bytes(4, "little") + bytes((len(literals) << 4 & 0xF0,)) + literals)[1:]
    length = len(data)
    head = bytes((length << 4,)) if length < 15 else bytes((0xF0, length - 15))
    assert read(frame(struct.pack("<I", len(head) + length) + head + data + END)) == data


def test_frames_of_the_package_have_dependent_blocks() -> None:
    """Therefore the frames are built here."""
    with pytest.raises(InvalidRecord, match="depend"):
        decompress(3, bytes(cramjam.lz4.compress(TEXT * 3000)))
    assert bytes(cramjam.lz4.decompress(bytes(compress(3, TEXT * 3000)))) == TEXT * 3000

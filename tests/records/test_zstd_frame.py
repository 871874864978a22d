"""Zstandard frames: the bound that their headers give, read before anything is decompressed."""

import struct

import cramjam
import pytest

from kafkalog._core.batch.unpack import zstd_frame_at
from kafkalog.errors import InvalidRecord
from kafkalog.records.compression import compress, decompress

MAGIC = struct.pack("<I", 0xFD2FB528)
TEXT = b"".join(b"line %d, " % n for n in range(40_000))


def header(size: int, kind: int, last: bool = True) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little")


def stream_frame(data: bytes) -> bytes:
    """A frame as Java writes it: it does not say how large its content is."""
    packer = cramjam.zstd.Compressor()
    packer.compress(data)
    return bytes(packer.finish())


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_791, 65_792, 131_072, 131_073, len(TEXT)])
def test_bounds(size: int) -> None:
    data = TEXT[:size]
    exact = bytes(compress(4, data))
    assert zstd_frame_at(exact, 0) == (len(exact), size, True)
    frame = stream_frame(data)
    end, bound, is_exact = zstd_frame_at(b"..." + frame, 3) or (0, 0, True)
    assert (end, is_exact) == (3 + len(frame), size == 0)
    assert size <= bound <= size + (128 << 10)
    assert decompress(4, frame) == data


def test_frames_follow_each_other_with_skippable_ones_between() -> None:
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"12345"
    frames = [bytes(compress(4, TEXT)), skipped, stream_frame(b"two"), skipped, bytes(compress(4, b""))]
    assert decompress(4, b"".join(frames)) == TEXT + b"two"


def test_raw_and_repeated_blocks_say_their_size() -> None:
    window = MAGIC + b"\x00\x40"  # no content size, window of 256 KiB
    frame = window + header(3, 0, False) + b"raw" + header(70_000, 1) + b"x"
    assert zstd_frame_at(frame, 0) == (len(frame), 70_003, False)
    assert decompress(4, frame) == b"raw" + b"x" * 70_000


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no frame"),
        (b"\x1f\x8b\x08\x00 gzip", "frame magic"),
        (MAGIC[:3], "cut off"),
        (MAGIC + b"\x00", "cut off"),
        (MAGIC + b"\x00\x40\x01", "cut off"),
        (MAGIC + b"\x00\x40" + header(3, 0) + b"ra", "past the end"),
        (MAGIC + b"\x00\x40" + header(1, 3) + b"?", "reserved"),
        (MAGIC + b"\x04\x40" + header(3, 0) + b"raw12", "cut off"),
        (MAGIC + b"\xe0" + struct.pack("<Q", 1 << 50) + header(3, 0) + b"raw", "declares"),
        (struct.pack("<II", 0x184D2A50, 5) + b"1234", "skippable"),
        (struct.pack("<I", 0x184D2A50) + b"12", "cut off"),
    ],
)
def test_unsound_headers(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        decompress(4, data)

"""Snappy in xerial's frames: what is written, what is read, and what is refused."""

import struct

import cramjam
import pytest

from kafkalog.errors import InvalidRecord
from kafkalog.records.compression import compress, decompress

HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(raw(data))) + raw(data)


def read(data: bytes, limit_bytes: int = 1 << 20) -> bytes:
    return bytes(decompress(2, data, limit_bytes=limit_bytes))


def test_blocks_of_32_kib_as_the_java_client_writes_them() -> None:
    data = bytes(range(256)) * 300
    written = bytes(compress(2, data))
    assert written[:16] == bytes.fromhex("82534e415050590000000001" + "00000001")
    at, sizes = 16, []
    while at < len(written):
        (size,) = struct.unpack_from(">i", written, at)
        sizes.append(cramjam.snappy.decompress_raw_len(written[at + 4 : at + 4 + size]))
        at += 4 + size
    assert sizes == [32768, 32768, 76800 - 65536]
    assert read(written) == data
    assert bytes(compress(2, b"")) == HEADER
    assert read(HEADER) == b""


def test_a_raw_block_without_the_magic() -> None:
    assert read(raw(b"what very old clients wrote")) == b"what very old clients wrote"
    assert read(raw(b"")) == b""
    with pytest.raises(InvalidRecord, match="snappy"):
        read(b"")


def test_streams_follow_each_other() -> None:
    assert read(HEADER + block(b"one ") + HEADER + block(b"two")) == b"one two"


def test_versions() -> None:
    """As for xerial's own reader: the version counts in a header that follows another stream, and nothing else."""
    for version, oldest in ((5, 1), (1, 0), (1, 9), (2**31 - 1, -1), (0, 1), (-1, 1)):
        stream = HEADER[:8] + struct.pack(">ii", version, oldest) + block(b"v")
        assert read(stream) == b"v"
        if version > 0:
            assert read(stream + stream) == b"vv"
            continue
        with pytest.raises(InvalidRecord, match=f"version {version}") as raised:
            read(stream + stream)
        assert raised.value.position == len(stream)


@pytest.mark.parametrize(
    ("data", "position", "reason"),
    [
        (HEADER + struct.pack(">i", -5), 16, "length"),
        (HEADER + block(b"v")[:-1], 16, "length"),
        (HEADER + block(b"v") + b"\0\0\0", 16 + len(block(b"v")), "length"),
        (HEADER + block(b"v") + HEADER[:10], 16 + len(block(b"v")), "header"),
        (HEADER + struct.pack(">i", 5) + b"\xff\xff\xff\xff\x0f", 20, "."),
        (HEADER + struct.pack(">i", 3) + b"\xff\xff\x03", 20, "more than it can hold"),
    ],
)
def test_damage_names_its_place(data: bytes, position: int, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason) as raised:
        read(data)
    assert raised.value.position == position


def test_the_limit_counts_all_blocks() -> None:
    data = HEADER + block(bytes(100)) + block(bytes(100))
    assert read(data, 200) == bytes(200)
    with pytest.raises(InvalidRecord, match="limit of 199"):
        read(data, 199)

"""xxHash32: the published values, and a plain implementation for any length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.bytes.xxhash import xxh32

P1, P2, P3, P4, P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
MASK = 0xFFFFFFFF


def rotated(v: int, bits: int) -> int:
    v &= MASK
    return (v << bits | v >> (32 - bits)) & MASK


def word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def plain(data: bytes, seed: int) -> int:
    at, h = 0, seed + P5
    if len(data) >= 16:
        lanes = [seed + P1 + P2, seed + P2, seed, seed - P1]
        while len(data) - at >= 16:
            lanes = [rotated(lane + word(data, at + 4 * i) * P2, 13) * P1 & MASK for i, lane in enumerate(lanes)]
            at += 16
        h = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    h += len(data)
    while len(data) - at >= 4:
        h = rotated(h + word(data, at) * P3, 17) * P4
        at += 4
    for byte in data[at:]:
        h = rotated(h + byte * P5, 11) * P1
    h &= MASK
    h = (h ^ h >> 15) * P2 & MASK
    h = (h ^ h >> 13) * P3 & MASK
    return h ^ h >> 16


@pytest.mark.parametrize(
    ("data", "seed", "value"), [(b"", 0, 0x02CC5D05), (b"", P1, 0x36B78AE7), (b"abc", 0, 0x32D153FF)]
)
def test_known_values(data: bytes, seed: int, value: int) -> None:
    assert xxh32(data, seed) == value


@given(st.binary(max_size=200), st.integers(0, MASK), st.integers(0, 9))
def test_any_length_and_alignment(data: bytes, seed: int, skipped: int) -> None:
    assert xxh32(memoryview(data)[skipped:], seed) == plain(data[skipped:], seed)


def test_a_long_buffer() -> None:
    data = bytes(range(256)) * 200
    assert xxh32(bytearray(data)) == plain(data, 0)

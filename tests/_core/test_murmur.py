"""murmur2 and the partition of a key (format.md section 16)."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.bytes.murmur import murmur2, partition_for_key

MASK = 0xFFFFFFFF
MULTIPLIER = 0x5BD1E995


def by_the_rule(key: bytes) -> int:
    """The rule of format.md section 16, in Python numbers."""
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * MULTIPLIER & MASK
        k = (k ^ k >> 24) * MULTIPLIER & MASK
        h = (h * MULTIPLIER & MASK) ^ k
    tail = key[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * MULTIPLIER & MASK
    h = (h ^ h >> 13) * MULTIPLIER & MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"", 275646681)],
)
def test_known_hashes(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@given(st.binary(max_size=70))
def test_every_tail_length(key: bytes) -> None:
    assert murmur2(key) == by_the_rule(key)


@given(st.binary(max_size=20), st.integers(1, 2**31 - 1))
def test_a_partition_is_in_range(key: bytes, partitions: int) -> None:
    partition = partition_for_key(key, partitions)
    assert partition == (by_the_rule(key) & 0x7FFFFFFF) % partitions
    assert 0 <= partition < partitions


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_contiguous_buffer(make: Callable[[bytes], bytes]) -> None:
    assert murmur2(make(b"foobar")) == -790332482


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError):
        murmur2("text")  # type: ignore[arg-type]
    for partitions in (0, -3):
        with pytest.raises(ValueError, match="at least one partition"):
            partition_for_key(b"a", partitions)

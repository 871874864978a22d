"""CRC-32C and CRC-32: every implementation this machine has, against other people's packages and by the definition."""

import random
import threading
import zlib
from collections.abc import Callable

import crc32c as pypi_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.bytes import crc

IMPLEMENTATIONS = crc.implementations()
BYTES = random.Random(17).randbytes(4 << 20)
CASTAGNOLI = 0x82F63B78
LONGEST = 2100


def bit_by_bit(data: bytes, value: int = 0, polynomial: int = CASTAGNOLI) -> int:
    """CRC by its definition: one shift for each bit."""
    state = value ^ 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (polynomial if state & 1 else 0)
    return state ^ 0xFFFFFFFF


each_implementation = pytest.mark.parametrize("name", IMPLEMENTATIONS)


def test_the_best_implementation_is_in_use_and_the_portable_one_is_always_there() -> None:
    assert crc.implementation() == IMPLEMENTATIONS[0]
    assert IMPLEMENTATIONS[-1] == "portable"
    assert len(set(IMPLEMENTATIONS)) == len(IMPLEMENTATIONS)


@each_implementation
def test_check_values(name: str) -> None:
    assert crc.crc32c_with(name, b"123456789") == 0xE3069283
    assert crc.crc32_with(name, b"123456789") == 0xCBF43926
    assert crc.crc32c_with(name, b"") == 0
    assert crc.crc32c_with(name, bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc.crc32c_with(name, b"\xff" * 32) == 0x62A8AB43
    assert crc.crc32c_with(name, bytes(range(32))) == 0x46DD794E


@each_implementation
def test_every_length_and_alignment(name: str) -> None:
    view = memoryview(BYTES)
    for length in range(LONGEST + 1):
        start = length * 7 % 64
        data = view[start : start + length]
        assert crc.crc32c_with(name, data) == pypi_crc32c.crc32c(data), length
        assert crc.crc32_with(name, data) == zlib.crc32(data), length
    for start in range(65):
        for length in (1, 7, 8, 63, 95, 96, 127, 128, 255, 256, 319, 513, 1024, 2047):
            data = view[start : start + length]
            assert crc.crc32c_with(name, data) == pypi_crc32c.crc32c(data), (start, length)
            assert crc.crc32_with(name, data) == zlib.crc32(data), (start, length)


@each_implementation
@pytest.mark.parametrize("length", [6143, 6144, 6145, 16338, 32767, 32768, 65536, 65536 + 191, 1 << 20, 4 << 20])
def test_long_buffers(name: str, length: int) -> None:
    data = memoryview(BYTES)[:length]
    assert crc.crc32c_with(name, data) == pypi_crc32c.crc32c(data)
    assert crc.crc32_with(name, data) == zlib.crc32(data)


def test_google_crc32c_agrees() -> None:
    google = pytest.importorskip("google_crc32c")
    for length in (0, 1, 100, 4096, 100_001):
        data = BYTES[:length]
        assert crc.crc32c(data) == google.value(data)


@each_implementation
@given(data=st.binary(max_size=1200), value=st.integers(0, 2**32 - 1), cut=st.integers(0, 1200))
def test_continues_from_a_value_at_any_split(name: str, data: bytes, value: int, cut: int) -> None:
    whole = crc.crc32c_with(name, data, value)
    assert whole == bit_by_bit(data, value)
    assert crc.crc32c_with(name, data[cut:], crc.crc32c_with(name, data[:cut], value)) == whole
    assert crc.crc32_with(name, data, value) == zlib.crc32(data, value)
    assert crc.crc32_with(name, data[cut:], crc.crc32_with(name, data[:cut], value)) == zlib.crc32(data, value)


@each_implementation
def test_a_chain_of_random_pieces(name: str) -> None:
    chance = random.Random(23)
    done, castagnoli, ieee = 0, 0, 0
    while done < 1 << 20:
        piece = memoryview(BYTES)[done : min(done + chance.choice((1, 30, 700, 9000, 70_000)), 1 << 20)]
        castagnoli = crc.crc32c_with(name, piece, castagnoli)
        ieee = crc.crc32_with(name, piece, ieee)
        done += len(piece)
    assert castagnoli == pypi_crc32c.crc32c(BYTES[: 1 << 20])
    assert ieee == zlib.crc32(BYTES[: 1 << 20])


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_contiguous_buffer(make: Callable[[bytes], bytes]) -> None:
    assert crc.crc32c(make(b"123456789")) == 0xE3069283
    assert crc.crc32(make(b"123456789")) == 0xCBF43926


@pytest.mark.parametrize("function", [crc.crc32c, crc.crc32])
def test_wrong_arguments(function: Callable[..., int]) -> None:
    with pytest.raises(TypeError):
        function("text")
    with pytest.raises(BufferError):
        function(memoryview(b"abcdef")[::2])
    for value in (-1, 2**32):
        with pytest.raises(OverflowError):
            function(b"a", value)


def test_an_unknown_implementation_is_named() -> None:
    with pytest.raises(ValueError, match="no CRC implementation 'abacus'.*portable"):
        crc.crc32c_with("abacus", b"")
    with pytest.raises(ValueError, match="abacus"):
        crc.crc32_with("abacus", b"")


def test_threads_get_the_same_answer() -> None:
    expected = crc.crc32c(BYTES)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(crc.crc32c(BYTES))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4

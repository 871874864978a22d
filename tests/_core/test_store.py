"""Store: a buffer that others fill, and that hands out what was filled and nothing else."""

import pytest

from kafkalog._core.store import MOST_BYTES, Store


def copy(data: bytes, room: memoryview) -> int:
    room[: len(data)] = data
    return len(data)


def test_content_grows_by_filling_and_copying() -> None:
    store = Store()
    assert store.fill(copy, b"abc", 100) == 3
    store.append(memoryview(b"-def-")[1:4])
    for n in range(300):
        store.fill(copy, bytes([n % 256]) * 50, 50)
    assert (store.size, len(store)) == (15006, 15006)
    out = store.take()
    assert isinstance(out, bytearray)
    assert out == b"abcdef" + b"".join(bytes([n % 256]) * 50 for n in range(300))
    assert (store.size, store.take()) == (0, b"")


@pytest.mark.parametrize("claimed", [-1, 11, 2**40])
def test_a_function_that_claims_more_than_it_got(claimed: int) -> None:
    store = Store(1000)
    with pytest.raises(ValueError, match="more than"):
        store.fill(lambda data, room: claimed, b"", 10)
    assert store.size == 0


def test_a_function_that_fails_leaves_the_content() -> None:
    store = Store()
    store.append(b"abc")
    with pytest.raises(ZeroDivisionError):
        store.fill(lambda data, room: 1 // 0, b"", 10)
    assert store.take() == b"abc"


def test_a_room_that_is_kept_stops_the_store_from_moving() -> None:
    kept: list[memoryview] = []
    store = Store()
    store.fill(lambda data, room: kept.append(room) or 4, b"", 4)  # type: ignore[func-returns-value]
    with pytest.raises(BufferError):
        store.fill(copy, bytes(10_000), 10_000)
    kept[0][:] = b"kept"
    kept.clear()
    assert store.take() == b"kept"


def test_no_more_than_fits() -> None:
    store = Store()
    for n in (-1, MOST_BYTES + 1, 2**62):
        with pytest.raises(OverflowError):
            store.fill(copy, b"", n)

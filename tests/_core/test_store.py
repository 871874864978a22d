"""Store: a buffer that others fill, and that hands out what was filled and nothing else."""

import weakref

import pytest

from kafkalog._core.bytes.spare import MOST_KEPT_BYTES, kept_bytes
from kafkalog._core.bytes.store import MOST_BYTES, Block, Store


def copy(data: bytes, room: Block) -> int:
    memoryview(room)[: len(data)] = data
    return len(data)


def test_content_grows_by_filling_and_copying() -> None:
    store = Store()
    assert store.fill(copy, b"abc", 100) == 3
    store.append(memoryview(b"-def-")[1:4])
    for n in range(300):
        store.fill(copy, bytes([n % 256]) * 50, 50)
    assert (store.size, len(store)) == (15006, 15006)
    out = store.take()
    assert memoryview(out) == b"abcdef" + b"".join(bytes([n % 256]) * 50 for n in range(300))
    assert (len(out), memoryview(out).readonly, repr(out)) == (15006, True, "<Block of 15006 B>")
    assert (store.size, bytes(store.take())) == (0, b"")


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
    assert bytes(store.take()) == b"abc"


def test_a_room_that_is_kept_stops_the_store_from_moving() -> None:
    kept: list[memoryview] = []
    store = Store()
    store.fill(lambda data, room: kept.append(memoryview(room)) or 4, b"", 4)  # type: ignore[func-returns-value]
    with pytest.raises(BufferError):
        store.fill(copy, bytes(10_000), 10_000)
    kept[0][:] = b"kept"
    kept.clear()
    assert store.fill(copy, bytes(10_000), 10_000) == 10_000
    assert bytes(store.take()) == b"kept" + bytes(10_000)


def test_a_function_that_takes_the_store_apart() -> None:
    store = Store()
    with pytest.raises(ValueError, match="used by another"):
        store.fill(lambda data, room: store.take() and 0 or 4, b"", 4)
    assert store.size == 0


def test_a_function_that_writes_to_the_store_itself() -> None:
    """Both would be content then, more than there is room for."""
    store = Store(4096)

    def fill(data: bytes, room: Block) -> int:
        store.append(bytes(4096))
        return 4096

    with pytest.raises(ValueError, match="used by another"):
        store.fill(fill, b"", 4096)
    assert store.size == 4096
    assert bytes(store.take()) == bytes(4096)


def test_a_block_lives_as_long_as_its_views() -> None:
    store = Store()
    store.append(b"some bytes")
    view = memoryview(store.take())[5:]
    block = weakref.ref(view.obj)
    assert (view, block().exports) == (b"bytes", 1)  # type: ignore[union-attr]
    del view
    assert block() is None


def test_memory_is_used_again_and_little_is_kept() -> None:
    for size in (100_000, 300_000, 1_000_000, 3_000_000):
        for _ in range(20):
            blocks = [Store(size) for _ in range(10)]
            for store in blocks:
                store.append(bytes(size))
            del blocks, store
        assert 0 < kept_bytes() <= MOST_KEPT_BYTES


def test_memory_of_a_size_that_is_wanted_now_replaces_what_was_wanted_before() -> None:
    for size in (100_000, 1_000_000):
        stores = [Store(size) for _ in range(10)]
        for store in stores:
            store.append(bytes(size))
        del stores, store
    assert kept_bytes() >= 6 * 1_000_000


def test_no_more_than_fits() -> None:
    store = Store()
    for n in (-1, MOST_BYTES + 1, 2**62):
        with pytest.raises(OverflowError):
            store.fill(copy, b"", n)


def test_a_filling_with_its_size() -> None:
    store = Store()
    assert store.fill_sized(copy, b"abc", 10, big_endian=True) == 7
    assert store.fill_sized(copy, b"defg", 4, big_endian=False) == 8
    assert store.fill_sized(copy, b"", 0, big_endian=True) == 4
    assert bytes(store.take()) == b"\0\0\0\3abc" + b"\4\0\0\0defg" + bytes(4)


def test_a_filling_that_is_no_shorter_is_replaced() -> None:
    store = Store()
    for data, filled in ((b"abcd", 3), (b"abcd", 4), (b"abcd", 9), (b"", 0)):
        store.fill_sized(lambda _, room, n=filled: copy(b"x" * n, room), data, 9, big_endian=True, raw_flag=1 << 31)
    assert bytes(store.take()) == b"\0\0\0\3xxx" + 2 * b"\x80\0\0\4abcd" + b"\x80\0\0\0"


def test_a_sized_filling_that_fails_leaves_the_content() -> None:
    store = Store()
    store.append(b"abc")
    with pytest.raises(ZeroDivisionError):
        store.fill_sized(lambda data, room: 1 // 0, b"", 10, big_endian=True)
    with pytest.raises(ValueError, match="more than"):
        store.fill_sized(lambda data, room: 11, b"", 10, big_endian=True)
    with pytest.raises(TypeError):
        store.fill_sized(copy, "text", 10, big_endian=True)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        store.fill_sized(copy, b"", MOST_BYTES - 3, big_endian=True)
    assert bytes(store.take()) == b"abc"
    store.append(b"abc")
    with pytest.raises(ValueError, match="used by another"):
        store.fill_sized(lambda data, room: store.take() and 0 or 4, b"", 4, big_endian=True)
    assert (store.size, bytes(store.take())) == (0, b"")

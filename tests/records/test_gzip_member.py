"""Gzip members: the same content from both packages, and levels that are levels."""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.bytes.store import Store
from kafkalog.records import gzip_member
from kafkalog.records.compression import compress, decompress

TEXT = b"".join(b"a line of text, number %d; " % n for n in range(3000))


@pytest.fixture(params=["installed", "hidden"], autouse=True)
def deflate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With the package deflate, and with zlib alone."""
    if request.param == "hidden":
        monkeypatch.setitem(sys.modules, "deflate", None)
    else:
        pytest.importorskip("deflate")
    gzip_member._libdeflate.cache_clear()
    yield request.param
    gzip_member._libdeflate.cache_clear()


def member(data: bytes, level: int | None = None) -> bytes:
    store = Store()
    gzip_member.compress_into(store, memoryview(data), level)
    return bytes(store.take())


@given(data=st.binary(max_size=200), repeats=st.integers(0, 60), level=st.sampled_from([None, -1, *range(1, 10)]))
def test_one_member_that_anything_reads(data: bytes, repeats: int, level: int | None) -> None:
    made = member(data * repeats, level)
    assert gzip.decompress(made) == data * repeats and bytes(decompress(1, made)) == data * repeats


def test_levels() -> None:
    """REC-44."""
    sizes = [len(member(TEXT, level)) for level in range(1, 10)]
    assert sizes[8] < sizes[0] and len(set(sizes)) > 3
    assert member(TEXT) == member(TEXT, -1) == member(TEXT, 6)


def test_the_package_is_used_for_what_is_large(deflate: str) -> None:
    import zlib

    assert (member(TEXT) == zlib.compress(TEXT, 6, 31)) == (deflate == "hidden")
    assert member(TEXT[:4000]) == zlib.compress(TEXT[:4000], 6, 31)


def test_threads_do_not_disturb_each_other() -> None:
    wanted = bytes(compress(1, TEXT))
    made: list[bytes] = []

    def work() -> None:
        for _ in range(10):
            made.append(bytes(compress(1, TEXT)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [wanted] * 40

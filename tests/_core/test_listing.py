"""The text of index entries: DUMP-5, format.md section 13 A6."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.text.listing import list_entries
from kafkalog._core.text.text_buffer import TextBuffer

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
BASES = st.integers(0, 2**40)


def listed(data: bytes, base: int, *, times: bool, first: bool = True) -> tuple[str, bool]:
    text = TextBuffer()
    whole = list_entries(text, data, base, times=times, first=first)
    return text.take().decode(), whole


@given(BASES, st.lists(st.tuples(I32.filter(bool), I32)))
def test_offset_entries(base: int, entries: list[tuple[int, int]]) -> None:
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    expected = "".join(f"offset: {base + offset} position: {position}\n" for offset, position in entries)
    assert listed(data, base, times=False) == (expected, True)


@given(BASES, st.lists(st.tuples(I64, I32.filter(bool))))
def test_time_entries(base: int, entries: list[tuple[int, int]]) -> None:
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    expected = "".join(f"timestamp: {time} offset: {base + offset}\n" for time, offset in entries)
    assert listed(data, base, times=True) == (expected, True)


def test_the_listing_stops_at_the_unused_tail() -> None:
    """The first entry other than entry 0 whose relative offset is 0 begins the tail."""
    data = struct.pack(">iiiiii", 0, 7, 3, 40, 0, 99) + struct.pack(">ii", 5, 80)
    assert listed(data, 10, times=False) == ("offset: 10 position: 7\noffset: 13 position: 40\n", False)
    assert listed(data, 10, times=False, first=False) == ("", False)
    zeros = bytes(24)
    assert listed(zeros, 4, times=False) == ("offset: 4 position: 0\n", False)
    assert listed(zeros, 4, times=True) == ("timestamp: 0 offset: 4\n", False)


def test_a_cut_entry_at_the_end_is_left_out() -> None:
    assert listed(struct.pack(">ii", 1, 2) + b"\0\0\1", 0, times=False) == ("offset: 1 position: 2\n", True)
    assert listed(b"\0" * 11, 0, times=True) == ("", True)


def test_text_is_added_and_guarded() -> None:
    text = TextBuffer()
    list_entries(text, struct.pack(">ii", 1, 2), 0, times=False, first=True)
    list_entries(text, struct.pack(">ii", 3, 4), 0, times=False, first=False)
    assert bytes(text) == b"offset: 1 position: 2\noffset: 3 position: 4\n"
    with memoryview(text) as view, pytest.raises(BufferError):
        assert view.readonly
        list_entries(text, b"", 0, times=False, first=True)

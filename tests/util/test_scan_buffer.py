"""The memory that files are gone through in: where it lies, and whose it is."""

import threading

import numpy
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.util.scan_buffer import CHUNK_BYTES, scan_buffer


def buffer_address(position: int) -> int:
    return int(numpy.frombuffer(scan_buffer(position), numpy.uint8).ctypes.data)


@given(position=st.integers(0, 2**40))
def test_it_begins_where_the_file_does_within_a_line(position: int) -> None:
    """A copy to a place just above the source, within a page, is slow on some processors."""
    assert (buffer_address(position) - position) % 64 == 0
    assert len(scan_buffer(position)) == CHUNK_BYTES and not scan_buffer(position).readonly


def test_all_files_of_a_thread_are_read_into_the_same_memory_and_no_thread_into_that_of_another() -> None:
    assert buffer_address(0) == buffer_address(64)
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(buffer_address(0)))
    here = scan_buffer(0)
    other.start()
    other.join()
    assert found[0] != int(numpy.frombuffer(here, numpy.uint8).ctypes.data)

"""Frames out of bytes that come in any pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import MalformedRequest
from kafkalog.server.net.frames import GROWTH_BYTES, FrameReader

BODIES = st.lists(st.binary(min_size=8, max_size=60) | st.sampled_from([bytes(5000), bytes(20_000)]), max_size=5)

PIECES = st.sampled_from([1, 3, 7, 100, 4096, 30_000])


@settings(max_examples=50)
@given(BODIES, st.data())
def test_frames_are_found_however_the_bytes_come(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader, found, position = FrameReader(1 << 20), [], 0
    while position < len(stream):
        room = reader.room()
        most = len(stream) - position
        if room is None:
            count = min(most, data.draw(PIECES))
            frame = reader.take(memoryview(bytearray(stream[position : position + count])))
        else:
            count = min(most, len(room), data.draw(PIECES))
            room[:count] = stream[position : position + count]
            room.release()
            frame = reader.filled(count)
        position += count
        while frame is not None:
            found.append(bytes(frame))
            frame = reader.next()
    assert found == bodies
    assert not reader.is_inside
    assert reader.held_bytes == 0


@given(st.integers(-(2**31), 2**31 - 1).filter(lambda size: not 8 <= size <= 1000), st.integers(1, 4))
def test_no_other_length_is_taken(size: int, first: int) -> None:
    reader, head = FrameReader(1000), size.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedRequest):
        reader.take(memoryview(head[:first]))
        reader.take(memoryview(head[first:] + b"x"))


def test_memory_follows_the_bytes_that_came() -> None:
    reader = FrameReader(1 << 30)
    assert reader.take(memoryview((1 << 30).to_bytes(4, "big"))) is None
    assert (reader.claimed_bytes, reader.held_bytes) == (1 << 30, 0)
    assert reader.take(memoryview(bytes(10))) is None
    assert reader.held_bytes <= 4096
    came = 10
    while came < 1 << 20:
        room = reader.room()
        assert room is not None
        count = min(len(room), 1000)
        room.release()
        assert reader.filled(count) is None
        came += count
        assert reader.held_bytes <= max(4096, came * 8)


def test_the_memory_of_a_very_long_frame_grows_by_steps() -> None:
    reader, data = FrameReader(1 << 30), bytes(1 << 16)
    reader.take(memoryview((100 << 20).to_bytes(4, "big") + data))
    came = len(data)
    while came < 60 << 20:
        room = reader.room()
        assert room is not None
        count = len(room)
        room.release()
        assert reader.filled(count) is None
        came += count
        assert reader.held_bytes - came <= GROWTH_BYTES

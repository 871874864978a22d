"""The dump tool's renderer stops at batches without a valid frame or header."""

import struct

import pytest

from kafkalog._core.text import render
from tests.builder import R, batch, frame
from tests.renderers import dump_text


@pytest.mark.parametrize("field", [13, 0, -1, -(2**31)])
def test_a_size_field_too_small_stops(field: int) -> None:
    made = batch([R()]) + struct.pack(">qi", 1, field) + bytes(60)
    text = dump_text()
    assert text.render(made, 0, len(made), 0) == render.BAD_SIZE
    assert (text.stop_value, text.position) == (field, len(made) - 72)


def test_a_v2_batch_without_room_for_its_header() -> None:
    """Its line has what follows it, as in the reference, which cannot read the records then."""
    short, good = struct.pack(">qiib", 0, 14, 0, 2) + bytes(9), batch([R()])
    made = short + good + good
    text = dump_text()
    assert text.render(made, 0, len(made), 0) == render.NEEDS_BYTES
    lines = text.text.take().decode().splitlines()
    assert len(lines) == 3
    # the second batch begins at byte 26: its base offset is where this one's last offset delta is looked for
    assert lines[0].startswith("baseOffset: 0 lastOffset: 0 count: ")
    assert lines[0].endswith(" size: 26 magic: 2 compresscodec: none crc: 0 isvalid: false")
    deep = dump_text(deep=True)
    assert deep.render(made, 0, len(made), 0) == render.BAD_HEADER
    assert (deep.stop_value, deep.text.take().decode().splitlines()) == (26, lines[:1])
    waiting = dump_text()
    assert waiting.render(made[:60], 0, 60, 0) == render.NEEDS_BYTES
    assert (waiting.needed, len(waiting.text)) == (61, 0)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_stops(codec: int) -> None:
    made = frame(b"", count=0, last_delta=0, attributes=codec)
    text = dump_text()
    assert text.render(made, 0, len(made), 0) == render.BAD_CODEC
    assert text.stop_value == codec


def test_ranges_outside_the_buffer_are_refused() -> None:
    for start, stop in ((-1, 0), (0, 11), (5, 4)):
        with pytest.raises(ValueError, match="outside a buffer of 10 bytes"):
            dump_text().render(bytes(10), start, stop, 0)

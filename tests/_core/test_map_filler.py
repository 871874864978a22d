"""The compiled half of building an offset map: damage is named as the decoder names it, misuse is refused."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.legacy import MessageSet
from kafkalog._core.batch.scan import scan
from kafkalog._core.clean.map_filler import MapFiller
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog._core.log.txns import AbortedRanges
from tests.builder import R, batch, message_v1

ROWS = [R(b"value", b"key %d" % i, headers=(("h", b"1"),) * (i % 2)) for i in range(5)]
V2 = batch(ROWS)
V1 = message_v1(7, b"value", b"key")
_old = MessageSet(0)
_old.append(7, -1, b"key", b"value")
V0 = bytes(_old.build())


def filler(offset_map: SkimpyOffsetMap, end: int = 2**62, most: int = 1000) -> MapFiller:
    return MapFiller(offset_map, AbortedRanges(), start_offset=0, end_offset=end, most=most)


@given(st.sampled_from([V2, V1, V0]), st.lists(st.tuples(st.integers(12, 300), st.integers(0, 255)), max_size=3))
@example(V0, [])
@example(V2, [(177, 128)])  # the batch ends below its base offset, its records are sound
def test_damage_has_the_place_and_the_words_that_the_decoder_has(data: bytes, changes: list[tuple[int, int]]) -> None:
    """CLN-28: whatever lies in the records, checksums not asked; sound records put what the decoder reads.

    A batch that ends below its base offset is refused, whatever is in it.
    """
    changed = bytearray(b"before" + data)
    for at, value in changes:
        changed[6 + at % len(data) if at % len(data) >= 17 else -1] = value
    batches = scan(changed, 6, check_crc=False, file_mode=True, base_position=1000)
    decoded = decode(changed, batches, base_position=1000)
    offset_map = SkimpyOffsetMap(24_000)
    reader = filler(offset_map)
    rows = range(len(batches))
    if any(batches[i].is_control for i in rows):
        return
    goes_on = reader.take(changed, batches, 0, len(batches), 1000)
    if any(batches.magic(i) == 2 and batches.last_offset_of(i) < batches.base_offset(i) for i in rows):
        assert not goes_on and reader.error_text == "the batch ends below its base offset"
        assert (reader.error_batch, reader.error_position, reader.error_record) == (0, 6, -1)
        assert (reader.messages_read, offset_map.size) == (0, 0)
        return
    assert goes_on == (decoded.status == 0)
    assert (reader.status, reader.error_text) == (decoded.status, decoded.error_text)
    if decoded.status:
        place = decoded.error_batch, decoded.error_position, decoded.error_record
        assert (reader.error_batch, reader.error_position, reader.error_record) == place
    assert reader.messages_read == len(decoded)
    model = {decoded.key(i): decoded.offsets[i] for i in range(len(decoded)) if decoded.offsets[i] >= 0}
    model.pop(None, None)
    assert {key: offset_map.get(key) for key in model if key is not None} == model
    assert offset_map.size == len(model)


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_an_unknown_format_is_refused(magic: int) -> None:
    changed = bytearray(V2)
    changed[16] = magic
    batches = scan(changed, check_crc=False, file_mode=True)
    reader = filler(SkimpyOffsetMap(240))
    assert not reader.take(changed, batches, 0, 1)
    assert reader.error_text == decode(changed, batches).error_text == "the format is none of v0, v1 and v2"
    assert (reader.error_batch, reader.error_position, reader.error_record) == (0, 0, 0)


def test_groups_of_keys_go_on_over_batches() -> None:
    """CLN-4: a hundred batches of one record are one call; the map ends at the record that does not fit."""
    data = b"".join(batch([R(b"v", b"%d" % i)], base_offset=i) for i in range(100))
    table = scan(data)
    for most in (1, 31, 32, 33, 99, 100):
        offset_map = SkimpyOffsetMap(24_000)
        reader = filler(offset_map, most=most)
        assert reader.take(data, table, 0, 100) == (most == 100) == (not reader.is_full)
        assert (offset_map.size, reader.messages_read, offset_map.latest_offset) == (most, most, most - 1)


def test_a_table_of_other_bytes_is_refused() -> None:
    table = scan(V2 + V2)
    reader = filler(SkimpyOffsetMap(240))
    with pytest.raises(ValueError, match="lies outside the"):
        reader.take(V2, table, 0, 2)
    for first, last in ((-1, 1), (0, 3), (2, 1)):
        with pytest.raises(ValueError, match="of a table of 2 batches"):
            reader.take(V2 + V2, table, first, last)
    with pytest.raises(TypeError):
        reader.take("text", table, 0, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        MapFiller(None, AbortedRanges(), start_offset=0, end_offset=1, most=1)  # type: ignore[arg-type]
    assert reader.messages_read == 0 and reader.take(V2, scan(V2), 0, 1)

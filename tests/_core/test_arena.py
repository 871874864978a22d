"""Arena: compressed batches made plain, in a buffer and a table of their own."""

import gc
import weakref

import pytest

from kafkalog._core.batch.arena import Arena
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from tests.builder import R, batch, frame, message_v1, seal

FIELDS = {"base_offset": 40, "leader_epoch": 5, "producer_id": 9, "producer_epoch": 1, "base_sequence": 3}


def packed(plain: bytes, codec: int = 3) -> bytes:
    """The batch as if compressed: its payload is one byte, its codec bits are set."""
    head = plain[:8] + (61 + 1 - 12).to_bytes(4, "big") + plain[12:22] + bytes((plain[22] | codec,))
    return seal(head + plain[23:61] + b"p")


def test_rows_keep_what_their_headers_say() -> None:
    plain = [batch([R(b"a"), R(b"b")], **FIELDS), batch([R(b"c")], base_offset=42, attributes=8, max_timestamp=7)]
    source = b"junk" + message_v1(1, b"m") + packed(plain[0]) + plain[1]
    table = scan(source, 4, base_position=1000)
    arena = Arena(source, table, 0, base_position=1000)
    assert arena.copy_plain(0, 3) == 1
    assert bytes(arena.begin(1) or b"") == b"p"
    assert arena.payload_position == 61
    arena.store.append(plain[0][61:])
    assert arena.end() == 0
    assert arena.copy_plain(2, 3) == 3
    out, made = bytes(arena.finish()), arena.table
    at = len(message_v1(1, b"m"))
    assert out[at + 17 : at + 21] == source[4 + at + 17 : 4 + at + 21]  # the checksum is that of the compressed bytes
    assert out == message_v1(1, b"m") + plain[0][:17] + out[at + 17 : at + 21] + plain[0][21:] + plain[1]
    assert [made.position(i) for i in range(3)] == [0, at, len(out) - len(plain[1])]
    assert [made[1].base_offset, made[1].leader_epoch, made[1].producer_id, made[1].base_sequence] == [40, 5, 9, 3]
    assert (made[1].compression, made[1].size, table[1].compression) == (0, len(plain[0]), 3)
    assert (len(made), made.valid_bytes, made.last_offset) == (3, len(out), 42)
    records = decode(out, made)
    assert [(r.offset, r.value) for r in records] == [(1, b"m"), (40, b"a"), (41, b"b"), (42, b"c")]
    assert records.timestamps[3] == 7


def test_what_declares_no_records_is_not_decompressed() -> None:
    empty = packed(frame(b"", count=0, last_delta=3))
    arena = Arena(empty, scan(empty), 0)
    assert arena.copy_plain(0, 1) == 1
    records = decode(arena.finish(), arena.table)
    assert (len(records), records.status) == (0, 0)


def test_a_cancelled_row_leaves_nothing() -> None:
    source = batch([R(b"a")]) + packed(batch([R(b"b")], base_offset=1))
    arena = Arena(source, scan(source), 0)
    assert arena.copy_plain(0, 2) == 1
    arena.begin(1)
    arena.store.append(b"half of it")
    arena.cancel()
    arena.cancel()
    assert (arena.rows, bytes(arena.finish())) == (1, batch([R(b"a")]))


def test_calls_out_of_order() -> None:
    source = packed(batch([R(b"a")])) + packed(batch([R(b"b")], base_offset=1))
    arena = Arena(source, scan(source), 0)
    for call in (lambda: arena.begin(1), arena.end):
        with pytest.raises(ValueError, match="batch"):
            call()
    arena.begin(0)
    with pytest.raises(ValueError, match="not the next"):
        arena.begin(0)
    arena.store.take()
    with pytest.raises(ValueError, match="emptied"):
        arena.end()
    with pytest.raises(ValueError, match="outside"):
        Arena(b"", scan(source), 0).begin(0)
    with pytest.raises(IndexError):
        Arena(source, scan(source), 0).begin(2)


def test_the_table_keeps_the_buffer_and_gives_it_back() -> None:
    """REC-22: dropping the table, also as part of a cycle, frees what was decompressed."""
    plain = batch([R(b"value")])
    source = packed(plain)
    arena = Arena(source, scan(source), 0)
    arena.begin(0)
    arena.store.append(plain[61:])
    arena.end()
    record = decode(arena.finish(), arena.table)[0]
    del arena
    block = weakref.ref(record.value_view.obj)  # type: ignore[union-attr]
    cycle = [record, record.value_view]
    assert (record.value, record.value_view) == (b"value", b"value")
    cycle.append(cycle)
    del cycle, record
    gc.collect()
    assert block() is None

"""Messages of v0 and v1, written and read, and every way in which a wrapper can be unsound."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.arena import Arena
from kafkalog._core.batch.decode import STATUS_TEXT, DamagedField, RecordTable, decode
from kafkalog._core.batch.legacy import MessageSet, wrapper
from kafkalog._core.batch.scan import scan
from tests.builder import R, batch, message_v1

T = 1_700_000_000_000
Row = tuple[int, int, bytes | None, bytes | None]
payloads = st.none() | st.binary(max_size=40)
rows = st.tuples(st.integers(0, 2**50), st.integers(-1, 2**50), payloads, payloads)


def message(offset: int, key: bytes | None, value: bytes | None, *, magic: int = 1, time: int = T, attributes: int = 0):
    """A plain encoder, byte by byte from format.md section 4."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def unwrapped(data: bytes, inner: bytes) -> RecordTable | str:
    """The records of one wrapper whose value stands for `inner`; or why it is unsound."""
    table = scan(data)
    arena = Arena(data, table, 0)
    assert arena.copy_plain(0, 1) == 0
    if arena.begin(0) is None:
        return STATUS_TEXT[arena.status]
    arena.store.append(inner)
    if arena.end():
        assert (arena.rows, arena.size) == (0, 0)
        return STATUS_TEXT[arena.status]
    return decode(arena.finish(), arena.table)


def wrapped(offset: int, inner: bytes, *, magic: int = 1, time: int = T, append_time: bool = False):
    data = bytes(wrapper(b"value", magic=magic, codec=1, offset=offset, timestamp=time, append_time=append_time))
    return unwrapped(data, inner)


def ints(table: RecordTable | str) -> list[int]:
    assert isinstance(table, RecordTable), table
    assert table.status == 0
    return list(table.offsets)


@pytest.mark.parametrize("magic", [0, 1])
@given(records=st.lists(rows, max_size=20))
def test_round_trip_with_the_plain_encoder(magic: int, records: list[Row]) -> None:
    """REC-42: null is not empty, checksums are right."""
    messages = MessageSet(magic)
    for offset, time, key, value in records:
        messages.append(offset, time, key, value)
    assert (messages.count, messages.magic) == (len(records), magic)
    data = bytes(messages.build())
    assert data == b"".join(message(o, k, v, magic=magic, time=t) for o, t, k, v in records)
    table = scan(data)
    assert table.first_invalid == -1
    decoded = decode(data, table)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in decoded] == [
        (o, t if magic else -1, k, v, ()) for o, t, k, v in records
    ]
    assert [decoded.timestamp_type(i) for i in range(len(records))] == [0 if magic else -1] * len(records)
    assert [decoded.batch_of(i) for i in range(len(records))] == list(range(len(records)))
    assert messages.build() == b""


def test_the_checksum_vectors() -> None:
    """format.md section 4: crc of two messages."""
    for magic, crc in ((0, 1978725405), (1, 109425508)):
        messages = MessageSet(magic)
        messages.append(0, 283843, b"key1", b"value1")
        assert scan(messages.build())[0].crc == crc


def test_arguments() -> None:
    with pytest.raises(ValueError, match="v2"):
        MessageSet(2)
    with pytest.raises(TypeError, match="encode"):
        MessageSet(1).append(0, 0, None, "text")  # type: ignore[arg-type]
    for codec, magic, append_time in ((0, 1, False), (4, 1, False), (1, 0, True)):
        with pytest.raises(ValueError):
            wrapper(b"", magic=magic, codec=codec, offset=0, append_time=append_time)
    messages = MessageSet(1)
    messages.append(3, T, bytearray(b"k"), memoryview(b"-v-")[1:2])
    assert messages.build() == message(3, b"k", b"v")


@pytest.mark.parametrize("content", [b"", b"v"])
def test_a_message_set_releases_its_buffers(content: bytes) -> None:
    key, value = bytearray(content), bytearray(content)
    MessageSet(1).append(0, T, key, value)
    key.append(1)  # BufferError while something holds it
    value.append(1)


@pytest.mark.parametrize(("offset", "wanted"), [(0, [0, 1, 2]), (10, [8, 9, 10]), (2, [0, 1, 2])])
def test_relative_offsets_of_v1(offset: int, wanted: list[int]) -> None:
    """REC-38."""
    assert ints(wrapped(offset, b"".join(message(i, None, b"v") for i in range(3)))) == wanted


def test_wrapper_offset_below_its_last_inner_one() -> None:
    """REC-38."""
    assert "lies below" in str(wrapped(1, b"".join(message(i, None, b"v") for i in range(3))))


def test_gaps_of_a_compacted_wrapper() -> None:
    table = wrapped(100, message(2, b"a", b"v") + message(7, b"b", b"v") + message(9, b"c", b"v"))
    assert ints(table) == [93, 98, 100]
    assert isinstance(table, RecordTable)
    assert (table.batches[0].base_offset, table.batches[0].last_offset, table.batches[0].count) == (93, 100, 3)


def test_absolute_offsets_of_v0() -> None:
    """REC-40: the first offset is known once the wrapper was opened."""
    table = wrapped(12, message(5, None, b"a", magic=0) + message(12, None, b"b", magic=0), magic=0)
    assert ints(table) == [5, 12]
    assert isinstance(table, RecordTable)
    assert table.batches[0].base_offset == 5
    assert [table.timestamp_type(i) for i in range(2)] == [-1, -1]


def test_append_time_of_the_wrapper_rules() -> None:
    """REC-41; a v0 message inside has no time all the same."""
    inner = message(0, None, b"a", time=5) + message(1, None, b"b", magic=0) + message(2, None, b"c", time=7)
    table = wrapped(22, inner, time=T, append_time=True)
    assert ints(table) == [20, 21, 22]
    assert isinstance(table, RecordTable)
    assert list(table.timestamps) == [T, -1, T]
    assert [r.timestamp_type for r in table] == [1, -1, 1]
    table = wrapped(22, inner, time=T)
    assert isinstance(table, RecordTable)
    assert list(table.timestamps) == [5, -1, 7]


def test_unsound_wrappers() -> None:
    """REC-39."""
    assert "no inner messages" in str(wrapped(3, b""))
    assert "no inner messages" in str(wrapped(3, message(0, None, b"v")[:-1]))
    assert "another compressed" in str(wrapped(3, message(0, None, b"v", attributes=2)))
    assert "no value" in str(unwrapped(message(3, None, None, attributes=1), b""))
    assert "zstd" in str(unwrapped(message(3, None, b"v", attributes=4), b""))
    assert "value runs past" in str(unwrapped(message(3, None, b"v", attributes=1)[:-5] + b"\0\0\0\7v", b""))


def test_inner_messages_that_are_none() -> None:
    """REC-43: a size below that of the header."""
    good = message(0, None, b"v")
    assert "shorter than its own header" in str(wrapped(3, good + struct.pack(">qi", 1, 13) + bytes(40)))
    short = bytearray(good[:30])
    short[8:12] = struct.pack(">i", 18)
    assert "shorter than its own header" in str(wrapped(3, bytes(short)))
    assert "none of v0" in str(wrapped(3, good[:16] + b"\2" + good[17:]))


def test_a_message_cut_off_ends_the_set() -> None:
    """As in the reference, whose producers of old left such a tail."""
    whole = message(0, None, b"a") + message(1, None, b"b")
    for cut in range(1, len(whole) // 2):
        assert ints(wrapped(7, whole[:-cut])) == [7]


def test_a_length_past_the_message() -> None:
    """Strict decoding stops there; a lenient one keeps the record and raises when the field is read."""
    good = message(0, b"key", b"value")
    for at, field in ((26, "key"), (33, "value")):
        data = good[:at] + struct.pack(">i", 100) + good[at + 4 :]
        data = data[:12] + struct.pack(">I", zlib.crc32(data[16:])) + data[16:]
        table = decode(data, scan(data))
        assert (len(table), table.error_text) == (0, f"a {field} runs past the end of its record")
        lenient = decode(data, scan(data), lenient=True)
        assert (len(lenient), lenient.status) == (1, 0)
        with pytest.raises(DamagedField, match=field):
            getattr(lenient[0], field)
    assert lenient.key(0) == b"key"


def test_formats_mixed_in_one_table() -> None:
    data = message(0, b"0", b"v", magic=0) + message_v1(1, b"v") + batch([R(b"a"), R(b"b")], base_offset=2)
    table = decode(data, scan(data))
    assert list(table.offsets) == [0, 1, 2, 3]
    assert [table.batch_of(i) for i in range(4)] == [0, 1, 2, 2]
    assert [r.timestamp_type for r in table] == [-1, 0, 0, 0]
    assert table.message(0) == (0, len(message(0, b"0", b"v", magic=0)))
    with pytest.raises(ValueError, match="no message"):
        table.message(2)

"""Record: a row of a table or values of its own; compares, hashes, pickles, and stays small."""

import pickle
from datetime import UTC, datetime

import pytest

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.record import Record, RecordIterator
from kafkalog._core.batch.scan import scan
from kafkalog.inspect.values import LAST_MS
from kafkalog.util.times import time_text
from tests.builder import R, batch

DATA = batch([R(b"v0", b"k0", 1_526_384_718_288, (("h", b"1"), ("h", None))), R(None, None, 5)], base_offset=7)


def from_table() -> list[Record]:
    return list(decode(DATA, scan(DATA)))


def test_fields() -> None:
    first, second = from_table()
    assert (first.offset, first.timestamp, first.key, first.value) == (7, 1_526_384_718_288, b"k0", b"v0")
    assert first.headers == (("h", b"1"), ("h", None))
    assert (second.offset, second.key, second.value, second.headers) == (8, None, None, ())
    assert first.datetime == datetime(2018, 5, 15, 11, 45, 18, 288000, tzinfo=UTC)
    assert first.value is first.value


def test_equal_hash_and_pickle() -> None:
    first = from_table()[0]
    own = Record(b"v0", b"k0", 1_526_384_718_288, [("h", b"1"), ("h", None)], 7)
    assert first == own
    assert hash(first) == hash(own)
    assert pickle.loads(pickle.dumps(first)) == first
    assert first != Record(b"v0", b"k0", 1_526_384_718_288, [], 7)
    assert first != "v0"


def test_views_copy_nothing_and_keep_the_chunk() -> None:
    first, second = from_table()
    view = first.value_view
    assert bytes(view) == b"v0"
    assert view.readonly
    assert second.value_view is None
    assert first.key_view == b"k0"
    del first
    assert bytes(view) == b"v0"


@pytest.mark.parametrize("own", [True, False])
def test_the_view_of_empty_bytes_is_a_view_and_of_null_is_none(own: bool) -> None:
    empty, null = Record(b"", b""), Record(None, None)
    if not own:
        data = batch([R(b"", b""), R(None, None)])
        empty, null = decode(data, scan(data))
    assert isinstance(empty.value_view, memoryview) and isinstance(empty.key_view, memoryview)
    assert len(empty.value_view) == len(empty.key_view) == 0
    assert null.value_view is None and null.key_view is None


@pytest.mark.parametrize("time", [0, 1, 1_700_000_000_000, LAST_MS, LAST_MS + 1, 2**63 - 1])
def test_repr_writes_times_as_all_outputs_do(time: int) -> None:
    assert repr(Record(b"", timestamp=time)).startswith(f"<Record @-1 {time_text(time)} key=")


def test_repr_fits() -> None:
    text = repr(from_table()[0])
    assert text == "<Record @7 2018-05-15T11:45:18.288Z key=b'k0' value=b'v0' headers=2>"
    assert len(repr(Record(b"x" * 1000, b"y" * 1000))) <= 100


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "None"), (b"", "b''"), (b"\n" * 20, repr(b"\n" * 20)), (b"x" * 21, "21 B")]
)
def test_repr_shows_a_short_value_and_the_size_of_a_long_one(value: bytes | None, shown: str) -> None:
    assert f" value={shown} headers=0>" in repr(Record(value))


def test_text_is_refused_with_the_fix() -> None:
    with pytest.raises(TypeError, match="encode"):
        Record("text")
    with pytest.raises(TypeError, match="encode"):
        Record(b"", "text")


def test_no_time_and_times_beyond_datetime() -> None:
    assert Record(b"").datetime is None
    assert Record(b"", timestamp=2**62).datetime is None
    assert "no time" in repr(Record(b""))


def test_iterator_bounds_and_laziness() -> None:
    asked = []

    def tables():
        for base in (0, 3, 6):
            asked.append(base)
            data = batch([R(bytes([base + i])) for i in range(3)], base_offset=base)
            yield decode(data, scan(data))

    assert [r.offset for r in RecordIterator(tables(), 1, 5)] == [1, 2, 3, 4]
    assert asked == [0, 3]
    assert [r.value for r in RecordIterator(tables())] == [bytes([i]) for i in range(9)]

"""Values of appends, reads and lookups: equal by content, hashable, picklable, honest about what they do not know."""

import pickle

import pytest

from kafkalog._core.log.values import LogAppendInfo, LogOffsetMetadata, OffsetPosition, TimestampOffset


@pytest.mark.parametrize(
    "value",
    [
        OffsetPosition(12, 456),
        TimestampOffset(1530, 12),
        LogOffsetMetadata(230, 217, 456),
        LogOffsetMetadata(230),
        LogAppendInfo(10, 14, shallow_count=1, valid_bytes=100, max_timestamp=5, offsets_monotonic=False),
    ],
)
def test_equal_hash_pickle_repr(value: object) -> None:
    again = pickle.loads(pickle.dumps(value))
    assert again == value
    assert hash(again) == hash(value)
    assert value != "something else"
    assert type(value).__name__ in repr(value)
    with pytest.raises(AttributeError):
        value.offset = 1  # type: ignore[attr-defined]


def test_segments_and_distances() -> None:
    a, b, c = LogOffsetMetadata(5, 0, 100), LogOffsetMetadata(9, 0, 300), LogOffsetMetadata(20, 10, 50)
    assert a.on_same_segment(b)
    assert a.on_older_segment(c)
    assert not c.on_older_segment(a)
    assert a.precedes(b)
    assert (b.offset_diff(a), b.position_diff(a)) == (4, 200)
    with pytest.raises(ValueError, match="different segments"):
        c.position_diff(a)


def test_unknown_values() -> None:
    only = LogOffsetMetadata(7)
    assert only.message_offset_only
    assert not LogOffsetMetadata(7, 0, 0).message_offset_only
    assert only.precedes(LogOffsetMetadata(8, 0, 0))
    for ask in (only.on_same_segment, only.on_older_segment, only.position_diff):
        with pytest.raises(ValueError, match="offset only"):
            ask(LogOffsetMetadata(8, 0, 0))
    known = LogOffsetMetadata(8, 0, 0)
    for ask in (known.on_same_segment, known.on_older_segment, known.position_diff):
        with pytest.raises(ValueError, match="offset only"):
            ask(only)


def test_append_info_counts() -> None:
    assert LogAppendInfo(10, 14).record_count == 5
    assert LogAppendInfo(-1, -1).record_count == 0
    assert LogAppendInfo(10, 14).base_offset == 10


def test_pairs_unpack() -> None:
    offset, position = OffsetPosition(1, 2)
    timestamp, at = TimestampOffset(3, 4)
    assert (offset, position, timestamp, at) == (1, 2, 3, 4)

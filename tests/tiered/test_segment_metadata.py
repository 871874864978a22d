"""Events of a partition's segments, one after the other: which copies count, and values that no segment has."""

from typing import Any

import pytest

from kafkalog.errors import InvalidRecord
from kafkalog.records.internal import MetadataRecord
from kafkalog.storage.leader_epoch import EpochEntry
from kafkalog.tiered.segment_metadata import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    PARTITION_DELETE,
    SEGMENT,
    UPDATE,
    RemoteLog,
    RemoteSegment,
    checked_segment,
    parse_segment,
)


def begun(name: str, state: int = COPY_STARTED, **more: Any) -> MetadataRecord:
    data = {
        "remoteLogSegmentId": {"id": name}, "startOffset": 10, "endOffset": 19, "segmentSizeInBytes": 100,
        "maxTimestampMs": 5, "segmentLeaderEpochs": [{"leaderEpoch": 2, "offset": 15}, {"leaderEpoch": 1, "offset": 3}],
        "customMetadata": None, "txnIndexEmpty": None, "brokerId": 7, "remoteLogSegmentState": state,
    }  # fmt: skip
    return event(SEGMENT, data | more)


def moved(name: str, state: int, custom: bytes | None = None) -> MetadataRecord:
    named = {"remoteLogSegmentId": {"id": name}, "customMetadata": custom, "remoteLogSegmentState": state}
    return event(UPDATE, named)


def event(kind: int, data: dict[str, Any]) -> MetadataRecord:
    return MetadataRecord(kind, "", 0, data)


def seen(*events: MetadataRecord) -> tuple[int, str, str, str, str]:
    """The version, and the segments that are finished, deleted, unfinished and being deleted."""
    log = RemoteLog()
    for one in events:
        log.apply(one)
    version, *states = log.copies()
    finished, deleted, unfinished, deleting = ("".join(one.segment_id for one in group) for group in states)
    return version, finished, deleted, unfinished, deleting


def test_segments_by_their_states() -> None:
    a, b = moved("a", COPY_FINISHED), moved("b", COPY_FINISHED)
    assert seen() == (0, "", "", "", "")
    assert seen(begun("a"), begun("b"), b, a) == (4, "ba", "", "", "")
    assert seen(begun("a"), begun("b"), b) == (3, "b", "", "a", "")
    assert seen(begun("a"), a, moved("a", DELETE_STARTED), begun("b")) == (4, "", "a", "b", "a")
    assert seen(begun("a"), moved("a", DELETE_STARTED), moved("a", DELETE_FINISHED)) == (3, "", "a", "", "")
    assert seen(begun("a", COPY_FINISHED)) == (1, "a", "", "", "")
    assert seen(begun("a", DELETE_STARTED)) == (1, "", "a", "", "a")


def test_events_that_do_not_fit_change_nothing_but_the_version() -> None:
    """As in the broker."""
    assert seen(moved("a", COPY_FINISHED), begun("a")) == (2, "", "", "a", "")
    assert seen(begun("a"), moved("a", DELETE_FINISHED)) == (2, "", "", "a", "")
    assert seen(begun("a"), moved("a", COPY_FINISHED), begun("a"), moved("a", COPY_STARTED)) == (4, "a", "", "", "")
    assert seen(begun("a"), moved("a", DELETE_STARTED), moved("a", COPY_FINISHED)) == (3, "", "a", "", "a")
    assert seen(begun("a", COPY_FINISHED), event(PARTITION_DELETE, {})) == (2, "a", "", "", "")
    with pytest.raises(InvalidRecord, match="unknown state 4"):
        seen(begun("a"), moved("a", 4))


def test_custom_metadata_of_a_later_event_stays() -> None:
    log = RemoteLog()
    for one in (begun("a", customMetadata=b"1"), moved("a", COPY_FINISHED)):
        log.apply(one)
    assert log.copies().finished[0].custom == b"1"
    log.apply(moved("a", COPY_FINISHED, b"2"))
    assert log.copies().finished[0].custom == b"2"


def test_a_segment_with_its_epochs() -> None:
    found = parse_segment(begun("a", txnIndexEmpty=True, customMetadata=b"c").data)
    assert found == RemoteSegment("a", 10, 19, 100, 5, (EpochEntry(1, 10), EpochEntry(2, 15)), b"c", True, 7)
    assert [found.range_in(epoch) for epoch in (0, 1, 2, 3)] == [None, (10, 15), (15, 20), None]
    three = found._replace(epochs=(EpochEntry(1, 10), EpochEntry(2, 13), EpochEntry(4, 15)))
    assert [three.range_in(epoch) for epoch in (1, 2, 4)] == [(10, 13), (13, 15), (15, 20)]


@pytest.mark.parametrize(
    ("change", "is_sound"),
    [
        ({}, True), ({"start": 19}, True), ({"start": 20}, False), ({"start": 0}, True), ({"start": -1}, False),
        ({"size_bytes": 0}, True), ({"size_bytes": -1}, False), ({"end": 2**63 - 2}, True), ({"end": 2**63 - 1}, False),
        ({"epochs": ()}, False), ({"epochs": (EpochEntry(1, 20),)}, False), ({"epochs": (EpochEntry(1, 19),)}, True),
        ({"epochs": (EpochEntry(1, 12), EpochEntry(2, 12))}, False),
        ({"epochs": (EpochEntry(1, 3), EpochEntry(2, 10))}, False),
        ({"epochs": (EpochEntry(1, 13), EpochEntry(2, 12))}, False),
    ],
)  # fmt: skip
def test_values_that_no_segment_has(change: dict[str, Any], is_sound: bool) -> None:
    segment = RemoteSegment("a", 10, 19, 100, 5, (EpochEntry(1, 3),))._replace(**change)
    if is_sound:
        assert checked_segment(segment).epochs[0].start_offset == segment.start
        return
    with pytest.raises(InvalidRecord) as error:
        checked_segment(segment)
    assert error.value.offset == segment.start

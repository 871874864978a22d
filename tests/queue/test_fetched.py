"""Records of share fetches: what was acquired, and what has no record."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog.errors import MalformedRequest
from kafkalog.sharing.fetched import MOST_OFFSETS, ranges_of, read_fetched
from kafkalog.sharing.group_settings import missing
from tests.raw_batches import batch


def row(first: int, last: int, count: int = 1) -> Any:
    return SimpleNamespace(first_offset=first, last_offset=last, delivery_count=count)


def shown(data: bytes, *rows: Any) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
    found = read_fetched(data, rows)
    return [(record.offset, count) for record, count in found.records], found.gaps, found.damaged


def test_only_acquired_offsets_count() -> None:
    data = batch(0, [b"a", b"b", b"c"]) + batch(5, [b"d"])
    assert shown(data, row(1, 5, 3)) == ([(1, 3), (2, 3), (5, 3)], [(3, 4)], [])
    assert shown(data, row(0, 0), row(2, 2, 2)) == ([(0, 1), (2, 2)], [], [])
    assert shown(b"", row(7, 8)) == ([], [(7, 8)], [])


def test_a_damaged_batch_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    first = bytearray(batch(0, [b"a", b"b"]))
    first[-1] ^= 1
    assert shown(bytes(first) + batch(2, [b"c"]), row(0, 2)) == ([(2, 1)], [], [(0, 1)])
    assert caplog.messages == ["records 0 to 1 cannot be read: its checksum is wrong"]


def test_a_damaged_batch_that_claims_to_be_a_control_batch_is_no_gap() -> None:
    first = bytearray(batch(0, [b"a", b"b"]))
    first[22] |= 1 << 5
    assert shown(bytes(first) + batch(2, [b"c"]), row(0, 2)) == ([(2, 1)], [], [(0, 1)])


@pytest.mark.parametrize("damage", ["size", "magic", "cut"])
def test_offsets_behind_bytes_that_are_no_batch_are_no_gaps(damage: str) -> None:
    before, broken, behind = batch(1, [b"a"]), bytearray(batch(3, [b"b"])), batch(4, [b"c"])
    if damage == "size":
        broken[8:12] = (1).to_bytes(4, "big")
    elif damage == "magic":
        broken[16] = 9
    else:
        behind = b""
        del broken[-1]
    found = read_fetched(before + bytes(broken) + behind, [row(0, 4)])
    assert [record.offset for record, _ in found.records] == [1]
    assert (found.gaps, found.damaged) == ([(0, 0)], []), "an offset before the last sound batch is a gap"
    assert (found.unread, found.stopped_at) == ([(2, 4)], len(before))


def test_offsets_behind_damage_that_were_not_acquired_do_not_matter() -> None:
    found = read_fetched(batch(0, [b"a"]) + batch(1, [b"b"])[:-1], [row(0, 0)])
    assert ([record.offset for record, _ in found.records], found.gaps, found.unread) == ([0], [], [])


def test_absurd_rows_are_refused() -> None:
    for rows in ((row(5, 4),), (row(0, MOST_OFFSETS),), (row(0, MOST_OFFSETS - 1), row(MOST_OFFSETS, MOST_OFFSETS))):
        with pytest.raises(MalformedRequest):
            read_fetched(b"", rows)


def test_ranges() -> None:
    assert ranges_of([3, 1, 2, 7]) == [(1, 3), (7, 7)] and ranges_of([]) == []


def test_settings_that_a_group_has_are_left_alone_unless_they_are_asked_for() -> None:
    defaults = {"share.auto.offset.reset": "earliest"}
    assert missing({}, defaults, {}) == defaults
    assert missing({"share.auto.offset.reset": "latest"}, defaults, {}) == {}
    assert missing({"a": "1", "b": "2"}, {}, {"a": 1, "b": 3}) == {"b": "3"}
    assert missing({}, defaults, {"share.auto.offset.reset": "latest"}) == {"share.auto.offset.reset": "latest"}

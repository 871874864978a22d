"""Committed offsets: what is kept, what waits for a transaction, what grows old (KIP-211, KIP-447)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.server.groups.expiry import expired
from kafkalog.server.groups.offsets import GroupOffsets
from kafkalog.server.groups.values import CommittedOffset

T0, T1 = ("t", 0), ("t", 1)


def one(offset: int, commit_ms: int = 0, expire_ms: int | None = None) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_ms, expire_ms)


def everybody(group_id: str) -> bool:
    return True


def test_an_offset_of_a_transaction_counts_when_it_is_committed() -> None:
    offsets = GroupOffsets()
    offsets.put("g", T0, one(1), 0)
    offsets.put_pending(7, "g", T0, one(5), 1)
    assert offsets.is_pending("g", T0)
    assert not offsets.is_pending("g", T1)
    assert offsets.get("g", T0) == one(1)
    assert offsets.end_transaction(7, True, everybody) == ["g"]
    assert offsets.get("g", T0) == one(5)
    assert not offsets.has_pending("g")
    assert offsets.end_transaction(7, True, everybody) == [], "a second marker is harmless"


def test_an_aborted_one_does_not_and_one_behind_it_stays() -> None:
    offsets = GroupOffsets()
    offsets.put_pending(7, "g", T0, one(5), 1)
    offsets.end_transaction(7, False, everybody)
    assert offsets.get("g", T0) is None
    offsets.put_pending(7, "g", T0, one(5), 2)
    offsets.put("g", T0, one(9), 3)
    offsets.end_transaction(7, True, everybody)
    assert offsets.get("g", T0) == one(9)


def test_a_marker_ends_it_for_the_groups_of_its_partition() -> None:
    offsets = GroupOffsets()
    offsets.put_pending(7, "g", T0, one(5))
    offsets.put_pending(7, "h", T0, one(6))
    offsets.end_transaction(7, True, lambda group_id: group_id == "g")
    assert offsets.get("g", T0) == one(5)
    assert offsets.is_pending("h", T0)
    assert offsets.groups() == ["g", "h"]


def test_what_is_removed_is_gone_from_transactions_too() -> None:
    offsets = GroupOffsets()
    offsets.put("g", T0, one(1))
    offsets.put_pending(7, "g", T0, one(5))
    offsets.put_pending(7, "g", T1, one(5))
    assert offsets.drop_group("g") == [T0, T1]
    assert offsets.groups() == []
    assert len(offsets) == 0


def test_an_offset_that_was_removed_does_not_come_back_when_its_transactions_end() -> None:
    offsets = GroupOffsets()
    for producer_id, place in ((7, T0), (7, T1), (8, T0)):
        offsets.put_pending(producer_id, "g", place, one(5), 1)
    offsets.remove("g", T0)
    assert offsets.places_of("g") == [T1]
    assert offsets.end_transaction(8, True, everybody) == []
    assert offsets.end_transaction(7, True, everybody) == ["g"]
    assert (offsets.all_of("g"), offsets.has_pending("g")) == ({T1: one(5)}, False)


def test_an_offset_grows_old_from_its_commit_or_from_when_its_group_became_empty() -> None:
    kept = {T0: one(1, commit_ms=100), T1: one(1, commit_ms=900)}
    assert expired(kept, 1000, 500) == [T0]
    assert expired(kept, 1000, 500, 100) == [T0, T1]
    assert expired(kept, 1000, 500, 501) == []
    assert expired(kept, 1000, 500, None, {"t"}) == []


def test_a_time_of_its_own_goes_before_that() -> None:
    assert expired({T0: one(1, 0, expire_ms=2000)}, 1999, 1) == []
    assert expired({T0: one(1, 0, expire_ms=2000)}, 2000, 10**9) == [T0]


places = st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 2))


@given(st.lists(st.tuples(st.sampled_from(["put", "pend", "end", "abort", "remove"]), st.integers(0, 2), places)))
def test_no_order_of_events_leaves_more_than_was_committed(events: list[tuple[str, int, tuple[str, int]]]) -> None:
    offsets = GroupOffsets()
    known: dict[tuple[str, int], CommittedOffset] = {}
    pending: dict[int, dict[tuple[str, int], CommittedOffset]] = {}
    for at, (kind, producer, place) in enumerate(events):
        if kind == "put":
            offsets.put("g", place, one(at), at)
            known[place] = one(at)
        elif kind == "pend":
            offsets.put_pending(producer, "g", place, one(at), at)
            pending.setdefault(producer, {})[place] = one(at)
        elif kind == "remove":
            offsets.remove("g", place)
            known.pop(place, None)
            for those in pending.values():
                those.pop(place, None)
        else:
            offsets.end_transaction(producer, kind == "end", everybody)
            for ended, value in pending.pop(producer, {}).items():
                if kind == "end" and (ended not in known or known[ended].offset <= value.offset):
                    known[ended] = value
    assert offsets.all_of("g") == known
    waiting = {place for those in pending.values() for place in those}
    assert set(offsets.places_of("g")) == known.keys() | waiting
    assert {place for place in offsets.places_of("g") if offsets.is_pending("g", place)} == waiting

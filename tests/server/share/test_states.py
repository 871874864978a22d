"""Stored states of share partitions, record by record: which of them count, and those that cannot be read."""

from uuid import UUID

import pytest

from kafkalog.records.message import MessageError
from kafkalog.server.groups.records import Record
from kafkalog.server.share.state import (
    Change,
    Placed,
    ShareKey,
    ShareState,
    StateReplay,
    combined,
    snapshot_record,
    tombstone,
    update_record,
)
from kafkalog.server.share.window import StateBatch

KEY = ShareKey("g", UUID(int=5), 3)
STATE = ShareState(4, 1, 2, 10, 0, 100, 200, (StateBatch(10, 19, 0, 1),))
CHANGE = Change(3, 12, 1, (StateBatch(14, 15, 2, 1),))
AFTER = STATE._replace(
    leader_epoch=3, start=12, complete=1,
    batches=(StateBatch(12, 13, 0, 1), StateBatch(14, 15, 2, 1), StateBatch(16, 19, 0, 1)),
)  # fmt: skip


def replayed(*records: Record) -> StateReplay:
    replay = StateReplay()
    for offset, one in enumerate(records):
        replay.apply(one.key, one.value, offset)
    return replay


def test_updates_count_that_follow_their_snapshot() -> None:
    others = [update_record(KEY, 3, CHANGE), update_record(KEY, 5, CHANGE)]
    found = replayed(update_record(KEY, 4, CHANGE), snapshot_record(KEY, STATE), *others)
    assert found.states == {KEY: Placed(STATE, 1, 0)} and not found.unreadable
    found.apply(*update_record(KEY, 4, CHANGE), 7)
    assert found.states == {KEY: Placed(AFTER, 1, 1)}
    found.apply(*update_record(KEY, 4, Change(-1, -1, 1, ())), 8)
    assert found.states == {KEY: Placed(AFTER, 1, 2)}
    found.apply(*snapshot_record(KEY, STATE), 9)
    assert found.states == {KEY: Placed(STATE, 9, 0)}


def test_records_of_older_brokers_have_no_count_of_complete_deliveries() -> None:
    """It is -1, and is absent from the record."""
    known = snapshot_record(KEY, STATE)[1]
    snapshot = snapshot_record(KEY, STATE._replace(complete=-1))
    assert known is not None and snapshot.value is not None and len(snapshot.value) < len(known)
    found = replayed(snapshot)
    assert found.states[KEY].state.complete == -1
    for complete in (5, -1):
        found.apply(*update_record(KEY, 4, CHANGE._replace(complete=complete)), 1)
        assert found.states[KEY].state.complete == complete


def test_a_deleted_state_has_no_updates() -> None:
    other = KEY._replace(partition=4)
    first = [snapshot_record(KEY, STATE), snapshot_record(other, STATE), tombstone(KEY)]
    found = replayed(*first, update_record(KEY, 4, CHANGE))
    assert found.states == {other: Placed(STATE, 1)} and not found.unreadable


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 20, -1])
def test_a_value_that_cannot_be_read_leaves_its_state_unreadable_until_the_next(cut: int) -> None:
    found = replayed(snapshot_record(KEY, STATE))
    key, value = snapshot_record(KEY, STATE)
    assert value is not None
    for damaged in (value[:cut], b"\0\x63" + value[2:]):
        with pytest.raises(MessageError):
            found.apply(key, damaged, 1)
        assert found.unreadable == {KEY}
    found.apply(key, value, 2)
    assert found.states == {KEY: Placed(STATE, 2)} and not found.unreadable


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0", b"\0\x09" + b"a" * 40, snapshot_record(KEY, STATE)[0][:-1]])
def test_a_key_that_cannot_be_read_is_no_state(key: bytes | None) -> None:
    found = replayed()
    with pytest.raises(MessageError):
        found.apply(key, snapshot_record(KEY, STATE)[1], 0)
    assert not found.states and not found.unreadable


def test_batches_of_any_shape() -> None:
    """One that ends before it begins, some that overlap, and one below all offsets."""
    rows = [(9, 5, 2, 1), (10, 14, 0, 1), (12, 12, 2, 1), (-5, -2, 2, 1), (-3, 0, 2, 2), (15, 15, 0, 1), (16, 16, 0, 2)]
    batches = tuple(StateBatch(*row) for row in rows)
    found = replayed(snapshot_record(KEY, STATE._replace(batches=batches))).states[KEY].state.batches
    assert combined([StateBatch(10, 14, 0, 1)], [StateBatch(12, 14, 2, 1)], 0) == ((10, 11, 0, 1), (12, 14, 2, 1))
    assert combined([StateBatch(10, 14, 0, 1)], [StateBatch(10, 12, 2, 1)], 0) == ((10, 12, 2, 1), (13, 14, 0, 1))
    assert found == ((-1, 0, 2, 2), (10, 11, 0, 1), (12, 12, 2, 1), (13, 15, 0, 1), (16, 16, 0, 2))

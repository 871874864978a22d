"""The asking side of fetch sessions, against the side that remembers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.fetch_session import FULL, FetchSession, FetchSessions, SessionPartition
from kafkalog.server.replica.following import Row
from kafkalog.server.replica.following_session import FollowerSession, SessionRequest
from kafkalog.types import TopicPartition

A, B, C = (TopicPartition("t", index) for index in range(3))


def row(offset: int) -> Row:
    return Row(offset, 0, 0, 0, 100)


def test_only_what_changed_is_said_again() -> None:
    asking = FollowerSession()
    assert asking.next({A: row(1), B: row(2)}) == SessionRequest(0, FULL, {A: row(1), B: row(2)}, ())
    assert asking.answered(0, 77)
    assert asking.next({A: row(1), B: row(3)}) == SessionRequest(77, 1, {B: row(3)}, ())
    assert asking.answered(0, 77)
    assert asking.next({B: row(3), C: row(0)}) == SessionRequest(77, 2, {C: row(0)}, (A,))
    assert asking.answered(0, 77)
    assert asking.next({B: row(3), C: row(0)}) == SessionRequest(77, 3, {}, ())


def test_a_session_that_is_gone_begins_anew() -> None:
    for code, session_id in ((ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77)):
        asking = FollowerSession()
        asking.next({A: row(1)})
        asking.answered(0, 77)
        asking.next({A: row(2)})
        assert not asking.answered(code, 0)
        assert asking.next({A: row(2)}) == SessionRequest(session_id, FULL, {A: row(2)}, ())


def test_without_a_session_everything_is_said_each_time() -> None:
    asking = FollowerSession()
    for _ in range(3):
        assert asking.next({A: row(1)}) == SessionRequest(0, FULL, {A: row(1)}, ())
        assert asking.answered(0, 0)


def test_no_answer_ends_the_session() -> None:
    asking = FollowerSession()
    asking.next({A: row(1)})
    asking.answered(0, 77)
    asking.next({A: row(1), B: row(1)})
    asking.lost()
    assert asking.next({A: row(1), B: row(1)}) == SessionRequest(77, FULL, {A: row(1), B: row(1)}, ())


WANTED = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 3).map(row), min_size=1)
HAPPENS = st.sampled_from(["answered", "answered", "answered", "lost", "evicted"])


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(WANTED, HAPPENS), max_size=20))
def test_the_leader_knows_what_is_wanted_whatever_gets_lost(steps: list[tuple[dict[TopicPartition, Row], str]]) -> None:
    asking, sessions = FollowerSession(), FetchSessions(1000, lambda: 0, seed=1)
    for wanted, happens in steps:
        if happens == "evicted":
            for session_id in list(sessions._sessions):
                sessions.close(session_id)
        while True:
            ask = asking.next(wanted)
            known = asked_of(sessions, ask)
            if happens == "lost":
                asking.lost()
                break
            if isinstance(known, ErrorCode):
                assert not asking.answered(known, 0)
                continue
            assert asking.answered(0, known.id)
            have = {(topic, index): one.fetch_offset for (topic, index), one in known.partitions.items()}
            assert have == {key: one.fetch_offset for key, one in wanted.items()}
            break


def asked_of(sessions: FetchSessions, ask: SessionRequest) -> FetchSession | ErrorCode:
    """Return a leader's decision on a fetch."""
    rows: list[Any] = [
        SessionPartition(key.topic, key.partition, one.fetch_offset, 100, 0, 0, 0) for key, one in ask.rows.items()
    ]
    if ask.epoch == FULL:
        sessions.close(ask.session_id)
        made = sessions.create({one.key: one for one in rows}, False, True)
        assert made is not None
        return made
    forgotten = [(key.topic, key.partition) for key in ask.forgotten]
    return sessions.resume(ask.session_id, ask.epoch, False, rows, forgotten)

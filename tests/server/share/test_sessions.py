"""Share sessions by themselves: their numbers, their limits, and releases of what their members had acquired."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.cooperative_yield import TURN_ROWS
from kafkalog.server.share import sessions
from kafkalog.server.share.releasing import Releases
from kafkalog.server.share.sessions import FINAL, ShareSessions
from tests.server.looping import in_loop

PLACES = [(UUID(int=1), number) for number in range(5)]
M, N = ("g", "m"), ("g", "n")


@in_loop
async def test_a_session_takes_the_place_of_the_members_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_PARTITIONS", 3)
    held = ShareSessions(1)
    for connection in (5, 6):
        session = await held.open(M, connection, PLACES[:3])
    assert len(held) == 1 and held.get(M) is session and list(session.partitions) == PLACES[:3]
    assert held.of_connection(5) == [] and held.of_connection(6) == [M]
    with pytest.raises(Refused) as refused:
        await held.open(N, 7, PLACES[:1])
    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED and held.get(N) is None
    assert held.close(M) is session and held.close(M) is None and len(held) == 0


@in_loop
async def test_partitions_of_all_sessions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_PARTITIONS", 3)
    held = ShareSessions(5)
    first = await held.open(M, 5, PLACES[:2])
    await held.add(first, PLACES[:2])
    second = await held.open(N, 6, [PLACES[0], PLACES[0]])
    for session, more in ((first, PLACES[2:3]), (second, PLACES), (second, PLACES[1:2])):
        before = list(session.partitions)
        with pytest.raises(Refused):
            await held.add(session, more)
        assert list(session.partitions) == before
    with pytest.raises(Refused):
        await held.open(M, 5, PLACES[:3])
    await held.open(N, 6, [])
    await held.open(M, 5, PLACES[:3])


@in_loop
async def test_numbers_of_requests_begin_again_behind_the_last_one() -> None:
    held = ShareSessions(5)
    session = await held.open(M, 5, [])
    for epoch in (1, 2):
        assert held.resume(M, epoch) is session
    with pytest.raises(Refused) as refused:
        held.resume(M, 2)
    assert refused.value.code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.epoch = 2**31 - 1
    assert held.resume(M, 2**31 - 1) is session and held.resume(M, 1) is session
    assert held.resume(M, FINAL) is session and session.epoch == 2
    with pytest.raises(Refused) as refused:
        held.resume(N, 1)
    assert refused.value.code == ErrorCode.SHARE_SESSION_NOT_FOUND


class Held:
    """A partition that notes who is released."""

    def __init__(self, released: list[str]) -> None:
        self._released = released

    def release(self, member: str) -> None:
        self._released.append(member)


@in_loop
async def test_releases_of_many_partitions_end_in_turns() -> None:
    releases, released = Releases(), list[str]()
    some: Any = [Held(released) for _ in range(TURN_ROWS)]
    releases.start(M, some)
    assert len(released) == TURN_ROWS and not len(releases)
    await releases.finished(M)
    releases.start(M, some * 3)
    assert len(released) == 2 * TURN_ROWS and len(releases) == 1
    releases.start(M, some)
    releases.start(N, some)
    assert released.count("m") == 2 * TURN_ROWS, "the member's records are being released already"
    await releases.finished(N)
    await releases.finished(M)
    await asyncio.sleep(0)
    assert not len(releases) and released.count("m") == 4 * TURN_ROWS
    releases.start(M, some * 3)
    await releases.stop()
    await asyncio.sleep(0)
    assert not len(releases) and released.count("m") == 5 * TURN_ROWS

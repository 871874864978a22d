"""Share sessions of very many partitions: the loop serves others meanwhile, and nothing of a member is mixed up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.topics import SHARE_GROUP_STATE
from kafkalog.server.requests.cooperative_yield import TURN_ROWS
from kafkalog.server.share import sessions
from kafkalog.server.share.state import ShareKey
from tests.server.looping import in_loop, turns_during
from tests.server.nodes import node_for
from tests.server.share.sharing import ACCEPT, RELEASE, SMALL, Member, joined, produce, until_waiting

COUNT: Final = 4 * TURN_ROWS
LAST: Final = COUNT - 1


async def many(node: Any) -> Member:
    """A member whose topic has many partitions, with a record in the last one."""
    await node.topics.create("t", COUNT)
    member = await joined(node)
    await produce(node, 1, partition=LAST)
    return member


@in_loop
async def test_others_have_their_turn(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await many(node)
        rows = await member.fetch(places=range(COUNT))  # states are loaded
        assert rows[LAST].acquired_records == ((0, 0, 1),)
        ended, turns = await turns_during(member.fetch(epoch=-1, places=()))
        assert ended == {}
        assert turns >= COUNT // TURN_ROWS
        member.epoch = 0
        rows, turns = await turns_during(member.fetch(places=range(COUNT)))
        assert rows[LAST].acquired_records == ((0, 0, 2),)
        assert turns >= 4 * COUNT // TURN_ROWS, "to collect, to check, to read and to answer"
        given = [(0, 0, ACCEPT)]
        rows, turns = await turns_during(member.fetch(*given, places=range(COUNT)))
        assert [rows[at].acknowledge_error_code for at in (0, LAST)] == [ErrorCode.INVALID_RECORD_STATE, 0]
        assert turns >= 6 * COUNT // TURN_ROWS, "to check and to apply acknowledgements, too"


@in_loop
async def test_a_waiting_fetch_looks_at_its_partitions_in_turns(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await many(node)
        await member.fetch(places=range(COUNT))
        waiting = asyncio.create_task(member.fetch(places=(), max_wait=60_000))
        await until_waiting(node)
        before = asyncio.create_task(turns_during(waiting))
        await produce(node, 1, partition=LAST)
        rows, turns = await before
        assert rows[LAST].acquired_records == ((1, 1, 1),)
        assert turns >= COUNT // TURN_ROWS


@in_loop
async def test_states_are_pruned_in_turns_and_those_that_come_meanwhile_stay(tmp_path: Path) -> None:
    keys = [ShareKey("g", UUID(int=1), number) for number in range(2 * COUNT)]

    async def meanwhile(log: Any) -> None:
        for key in keys[COUNT:] + keys[:COUNT]:  # those that are known have later records than the others then
            log.initialize(key, 1, 7)

    async with node_for(tmp_path, **SMALL) as node:
        log = node.shares.log
        assert not await log.ready(keys[0])
        for key in keys[:COUNT] * 2:
            log.initialize(key, 1, 5)
        await log.prune()
        assert node.replicas.partition(SHARE_GROUP_STATE, 0).log.log_start_offset == COUNT
        _, turns = await turns_during(log.prune())  # nothing is deleted, which would take a thread
        assert turns >= COUNT // TURN_ROWS
        others = asyncio.create_task(meanwhile(log))
        await log.prune()
        await others
    async with node_for(tmp_path, **SMALL) as node:
        await node.shares.log.loaded()
        assert set(node.shares.log.keys(lambda key: True)) == set(keys)


@in_loop
async def test_who_comes_back_at_once_keeps_what_it_acquires(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await many(node)
        await member.fetch(places=range(COUNT))
        node.shares.disconnected(member.connection.id)
        again = Member(node, number=6)
        rows = await again.fetch(places=(LAST,))
        assert rows[LAST].acquired_records == ((0, 0, 2),)
        while node.shares.releases:
            await asyncio.sleep(0)
        rows = await again.fetch((0, 0, ACCEPT), places=(LAST,))
        assert rows[LAST].acknowledge_error_code == 0


@pytest.mark.parametrize("is_last", [True, False])
@in_loop
async def test_a_late_request_of_a_session_changes_nothing_of_the_next_one(tmp_path: Path, is_last: bool) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await many(node)
        await member.fetch(places=range(COUNT))
        epoch = -1 if is_last else member.epoch
        late = asyncio.create_task(member.fetch((0, 0, RELEASE), epoch=epoch, places=range(LAST)))
        await asyncio.sleep(0)  # the request has begun
        node.shares.disconnected(member.connection.id)
        again = Member(node, number=6)
        rows = await again.fetch(places=(LAST,))
        assert rows[LAST].acquired_records == ((0, 0, 2),)
        await produce(node, 1, partition=LAST)
        rows = await late
        assert LAST not in rows and len(node.shares.sessions) == 1
        rows = await again.fetch((0, 0, ACCEPT), places=(LAST,))
        assert rows[LAST].acknowledge_error_code == 0
        assert rows[LAST].acquired_records == ((1, 1, 1),)


@pytest.mark.parametrize("is_fetch", [True, False])
@in_loop
async def test_late_acknowledgements_of_a_session_do_not_count_for_the_next_one(tmp_path: Path, is_fetch: bool) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await many(node)
        await member.fetch(places=range(COUNT))
        asked = member.fetch((0, 0, ACCEPT), places=range(COUNT)) if is_fetch else member.complete_many(
            (0, 0, ACCEPT), places=range(COUNT)
        )
        late = asyncio.create_task(asked)
        await asyncio.sleep(0)  # the request has begun
        node.shares.disconnected(member.connection.id)
        again = Member(node, number=6)
        rows = await again.fetch(places=(LAST,))
        assert rows[LAST].acquired_records == ((0, 0, 2),)
        row = (await late)[LAST]
        code = row.acknowledge_error_code if is_fetch else row.error_code
        assert code == ErrorCode.INVALID_RECORD_STATE
        rows = await again.fetch((0, 0, RELEASE), places=(LAST,))
        assert rows[LAST].acknowledge_error_code == 0
        assert rows[LAST].acquired_records == ((0, 0, 3),)


@in_loop
async def test_releases_meanwhile_change_nothing_of_new_offsets(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await many(node)
        await produce(node, 9, partition=1)
        assert (await member.fetch(places=range(COUNT)))[1].acquired_records
        topic_id = node.topics.get("t").id
        keys = [ShareKey("g", topic_id, index) for index in range(COUNT)]
        changing = asyncio.create_task(node.shares.initialize(dict.fromkeys(keys, 5), 7))
        for _ in range(2):
            await asyncio.sleep(0)  # the first ones are stored
        node.shares.member_left("g", "m")
        assert await changing == 0
        while node.shares.releases:
            await asyncio.sleep(0)
        state = node.shares.log.get(keys[1])
        assert (state.start, state.batches) == (5, ())


@in_loop
async def test_no_session_stays_of_a_connection_that_has_closed(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await many(node)
        fetching = asyncio.create_task(member.fetch(places=range(COUNT)))
        await asyncio.sleep(0)  # the request has begun
        member.connection.is_open = False
        node.shares.disconnected(member.connection.id)
        await fetching
        assert len(node.shares.sessions) == 0
        other = Member(node, "n", number=6)
        assert (await other.fetch(places=(LAST,)))[LAST].acquired_records == ((0, 0, 1),)


@in_loop
async def test_sessions_of_one_member_never_exceed_the_limit_together(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sessions, "MOST_PARTITIONS", COUNT + 1)
    held = sessions.ShareSessions(5)
    places = [(UUID(int=1), index) for index in range(3 * COUNT)]
    first, second = await asyncio.gather(
        held.open(("g", "a"), 1, places[:COUNT]), held.open(("g", "b"), 2, places[:COUNT]), return_exceptions=True
    )
    assert isinstance(second, Refused) and second.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert isinstance(first, sessions.ShareSession) and len(held) == 1
    with pytest.raises(Refused):
        await held.add(first, places)
    assert len(first.partitions) == COUNT
    await held.add(first, places[: COUNT + 1])
    assert len(first.partitions) == COUNT + 1

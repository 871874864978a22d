"""Share and streams groups of a broker keep their names here: calls to them are refused as a broker refuses them."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import kafkalog
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import records
from kafkalog.server.groups.classic_group import ClassicGroup
from kafkalog.server.groups.group_log import OFFSETS_TOPIC
from kafkalog.server.groups.records import Record
from kafkalog.server.groups.replay import Replay
from kafkalog.server.groups.values import CommittedOffset, KeptPosition
from kafkalog.server.status.page import page, status_of
from kafkalog.types import TopicPartition
from tests.server.groups.groups import commit_offset, create_topic, fetch_offset, form_group, join_group
from tests.server.groups.other_kinds import (
    COMMITTED,
    MEMBER,
    NOBODY,
    OLD,
    STRANGER,
    WITHOUT_EPOCH,
    ComparedFields,
    Row,
    answer,
    share_records,
    streams_records,
)
from tests.server.groups.test_reload import batch, later
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for


class Taken(NamedTuple):
    """A broker does what it is asked for, and converts or deletes an empty group for it. Here that is refused, too.

    `here` is None where this server does the same, which the tests of share groups show.
    """

    broker: ComparedFields
    here: ComparedFields | None


Cell = ComparedFields | Taken
GROUPS: Final = {"share": True, "share-empty": False, "streams": True, "streams-empty": False}
"""The groups of the table's columns, and whether they have a member."""
NOT_CONSUMER: Final = (69, "Group G is not a consumer group.")
NOT_CLASSIC: Final = (69, "Group G is not a classic group.", "Dead")
NO_GROUP, NO_MEMBER, NOT_EMPTY, OTHER_PROTOCOL, IN_USE = (69,), (25,), (68,), (23,), (0, 86)
NOT_JOINED: Final = (OTHER_PROTOCOL,) * 3
DONE: Final = (0,)
NEW_ID: Final = (79,)


def for_kinds(share: Cell, streams: Cell) -> tuple[Cell, Cell, Cell, Cell]:
    """Return the same cell for groups with members and without."""
    return share, share, streams, streams


TABLE: Final[list[tuple[Row, tuple[Cell, Cell, Cell, Cell]]]] = [
    (Row("join_group", (0,)), (*NOT_JOINED, Taken(DONE, OTHER_PROTOCOL))),
    (Row("join_group", (4, 9)), (*NOT_JOINED, Taken(NEW_ID, OTHER_PROTOCOL))),
    (Row("join_group", (9,), more={"protocol_type": "connect"}), (*NOT_JOINED, Taken(NEW_ID, OTHER_PROTOCOL))),
    (Row("join_group", (9,), more={"group_instance_id": "i"}), (*NOT_JOINED, Taken(DONE, OTHER_PROTOCOL))),
    (Row("join_group", (9,), STRANGER), (*NOT_JOINED, Taken(NO_MEMBER, OTHER_PROTOCOL))),
    (Row("sync_group", (0, 5), MEMBER), for_kinds(NO_MEMBER, NO_MEMBER)),
    (Row("heartbeat", (0, 4), MEMBER), for_kinds(NO_MEMBER, NO_MEMBER)),
    (Row("leave_group", (0,), MEMBER), for_kinds(NO_MEMBER, NO_MEMBER)),
    (Row("leave_group", (5,), MEMBER), for_kinds((0, 25), (0, 25))),
    (
        Row("leave_group", (5,), more={"members": [{"member_id": "", "group_instance_id": "i"}]}),
        for_kinds((0, 25), (0, 25)),
    ),
    (Row("consumer_group_heartbeat", (0, 1), MEMBER), for_kinds(NOT_CONSUMER, NOT_CONSUMER)),
    (Row("consumer_group_heartbeat", (0, 1), STRANGER, {"member_epoch": 0}), for_kinds(NOT_CONSUMER, NOT_CONSUMER)),
    (Row("consumer_group_heartbeat", (0, 1), STRANGER, {"member_epoch": -1}), for_kinds(NOT_CONSUMER, NOT_CONSUMER)),
    (
        Row("consumer_group_heartbeat", (1,), STRANGER, {"member_epoch": -2, "instance_id": "i"}),
        for_kinds(NOT_CONSUMER, NOT_CONSUMER),
    ),
    (Row("offset_commit", (2, 8, 9, 10), NOBODY), (NO_GROUP, NO_GROUP, NO_MEMBER, Taken(DONE, NO_MEMBER))),
    (Row("offset_commit", (2, 8, 9, 10), STRANGER), for_kinds(NO_GROUP, NO_MEMBER)),
    (Row("offset_commit", (2, 8), MEMBER), (NO_GROUP, NO_GROUP, (35,), NO_MEMBER)),
    (Row("offset_commit", (2, 8), OLD), (NO_GROUP, NO_GROUP, (35,), NO_MEMBER)),
    (Row("offset_commit", (9, 10), MEMBER), (NO_GROUP, NO_GROUP, Taken(DONE, NO_MEMBER), NO_MEMBER)),
    (Row("offset_commit", (9, 10), OLD), (NO_GROUP, NO_GROUP, (113,), NO_MEMBER)),
    (Row("txn_offset_commit", (2, 3, 5), NOBODY), (NO_GROUP, NO_GROUP, Taken(DONE, NO_MEMBER), Taken(DONE, NO_MEMBER))),
    (Row("txn_offset_commit", (3, 5), MEMBER), (NO_GROUP, NO_GROUP, Taken(DONE, NO_MEMBER), NO_MEMBER)),
    (Row("txn_offset_commit", (3, 5), OLD), (NO_GROUP, NO_GROUP, (22,), NO_MEMBER)),
    (Row("txn_offset_commit", (3, 5), STRANGER), for_kinds(NO_GROUP, NO_MEMBER)),
    (Row("txn_offset_commit", (3, 5), WITHOUT_EPOCH), (NO_GROUP, NO_GROUP, NO_MEMBER, Taken(DONE, NO_MEMBER))),
    (Row("offset_fetch", (1,)), for_kinds((-1, 0), (COMMITTED, 0))),
    (Row("offset_fetch", (2, 7, 8, 9, 10)), for_kinds((-1, 0, 0), (COMMITTED, 0, 0))),
    (Row("offset_fetch", (9, 10), MEMBER), ((-1, 0, 0), (-1, 0, 0), (COMMITTED, 0, 0), NO_MEMBER)),
    (Row("offset_fetch", (9, 10), OLD), ((-1, 0, 0), (-1, 0, 0), (113,), NO_MEMBER)),
    (Row("offset_fetch", (9, 10), STRANGER), for_kinds((-1, 0, 0), NO_MEMBER)),
    (Row("offset_fetch", (9, 10), WITHOUT_EPOCH), for_kinds((-1, 0, 0), NO_MEMBER)),
    (Row("offset_delete", (0,)), (NO_GROUP, NO_GROUP, IN_USE, Taken((0, 0), IN_USE))),
    (Row("delete_groups", (0, 2)), (NOT_EMPTY, Taken(DONE, None), NOT_EMPTY, Taken(DONE, NOT_EMPTY))),
    (Row("describe_groups", (0, 5)), for_kinds((0, "Dead"), (0, "Dead"))),
    (Row("describe_groups", (6,)), for_kinds(NOT_CLASSIC, NOT_CLASSIC)),
    (Row("consumer_group_describe", (0, 1)), for_kinds(NOT_CONSUMER, NOT_CONSUMER)),
]
"""What brokers of 4.3.1 and 4.4.0 answer, for the groups of `GROUPS` in their order."""
LISTED: Final = {
    "share": ("share", "Stable", "share"), "share-empty": ("share", "Empty", "share"),
    "streams": ("streams", "Assigning", "streams"), "streams-empty": ("streams", "Empty", "streams"),
}  # fmt: skip
"""Protocol type, state and type of each group, as brokers list them. A streams group waits before it assigns tasks."""
FILTERS: Final[list[tuple[dict[str, list[str]], set[str]]]] = [
    ({"types_filter": ["Share"]}, {"share", "share-empty"}),
    ({"types_filter": ["streams"]}, {"streams", "streams-empty"}),
    ({"types_filter": ["share", "Streams"]}, set(GROUPS)),
    ({"types_filter": ["consumer"]}, set()),
    ({"types_filter": ["classic"]}, set()),
    ({"states_filter": ["empty"]}, {"share-empty", "streams-empty"}),
    ({"states_filter": ["Assigning"]}, {"streams"}),
    ({"states_filter": ["Stable"], "types_filter": ["streams"]}, set()),
]
EVERYTHING: Final[dict[str, list[str]]] = {"states_filter": [], "types_filter": []}


def broker_records() -> list[Record]:
    """Return the records that a broker has written for the groups of the table."""
    made = []
    for group_id, has_member in GROUPS.items():
        of_kind = share_records if group_id.startswith("share") else streams_records
        made += of_kind(group_id, *(["m"] if has_member else []))
    return made


def write(node: Any, made: list[Record]) -> None:
    node.replicas.append_now(TopicPartition(OFFSETS_TOPIC, 0), batch(made), "coordinator")


async def prepare(path: Path) -> None:
    """A directory as a broker leaves it."""
    async with node_for(path, offsets_topic_num_partitions=1) as node:
        await create_topic(node)
        assert await commit_offset(node, 5, "ours") == 0
        write(node, broker_records())


def read_group_records(path: Path) -> list[tuple[bytes | None, bytes | None]]:
    """The records of groups in the log, markers of transactions left out."""
    with kafkalog.open(path / f"{OFFSETS_TOPIC}-0") as log:
        return [(record.key, record.value) for record in log.records()]


@in_loop
async def test_calls_to_share_and_streams_groups_are_refused_and_write_nothing(tmp_path: Path) -> None:
    await prepare(tmp_path)
    before = read_group_records(tmp_path)
    wrong = []
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        await node.transactions.loaded()

        async def ask(name: str, version: int, tree: Any) -> Any:
            return await call(node, name, version, tree)

        topic_id = node.topics.get("t").id
        for row, cells in TABLE:
            for (group_id, cell), version in product(zip(GROUPS, cells, strict=True), row.versions):
                if isinstance(cell, Taken) and cell.here is None:
                    continue
                found = await answer(ask, row, version, group_id.partition("-")[0], group_id, topic_id)
                if found != (cell.here if isinstance(cell, Taken) else cell):
                    wrong.append((row, version, group_id, found))
    assert wrong == []
    assert read_group_records(tmp_path) == before


@in_loop
async def test_share_and_streams_groups_are_listed_with_their_kind(tmp_path: Path) -> None:
    await prepare(tmp_path)
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        listed = (await call(node, "list_groups", 5, EVERYTHING)).groups
        assert {one[0]: tuple(one[1:]) for one in listed if one[0] != "ours"} == LISTED
        for wanted, expected in FILTERS:
            listed = (await call(node, "list_groups", 5, EVERYTHING | wanted)).groups
            assert {one.group_id for one in listed} - {"ours"} == expected, wanted
        found = {one.group_id: (one.group_type, one.state, one.members) for one in node.groups.overview()}
        assert found["share"] == ("share", "Stable", 1)
        assert found["streams-empty"] == ("streams", "Empty", 0)
        html = page(await status_of(node))
        assert "Stable, share, 1 member, lag 0" in html
        assert "Assigning, streams, 1 member" in html


@in_loop
async def test_nothing_of_a_brokers_groups_expires_or_goes_with_a_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(tmp_path)
    before = read_group_records(tmp_path)
    cursors = [KeptPosition(group_id, "t", 0, 3, 10**13) for group_id in GROUPS]
    async with node_for(tmp_path, kept_positions=cursors) as node:
        await node.groups.loaded()
        assert "a broker has groups named 'share', 'share-empty', 'streams', 'streams-empty'" in caplog.text
        assert (await fetch_offset(node, "streams")).committed_offset == COMMITTED
        assert await node.groups.expiry.expire() == 0, "they were committed in 1970"
        assert read_group_records(tmp_path) == before
        await node.topics.delete("t")
        mine, *others = [row for row in read_group_records(tmp_path) if row not in before]
        assert mine == records.tombstone(records.OFFSET, "ours", "t", 0) and not others
        assert node.groups.offsets.all_of("streams").keys() == {("t", 0)}
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert GROUPS.keys() <= node.groups.groups.keys()


@in_loop
async def test_a_transaction_that_a_broker_left_open_ends_for_a_streams_group(tmp_path: Path) -> None:
    await prepare(tmp_path)
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        value = records.offset_record("streams", "t", 0, CommittedOffset(9, -1, "", node.clock()))
        node.groups.table.log.append_in_transaction("streams", [value], 77, 0)
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert (await fetch_offset(node, "streams")).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        node.groups.commits.on_transaction_ended(77, 0, [0], True)
        assert (await fetch_offset(node, "streams")).committed_offset == 9


@pytest.mark.parametrize("kind", ["share", "streams"])
@in_loop
async def test_a_name_is_free_once_the_broker_has_deleted_the_group(tmp_path: Path, kind: str) -> None:
    await prepare(tmp_path)
    number = records.SHARE_GROUP if kind == "share" else records.STREAMS_GROUP
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        write(node, [records.tombstone(number, kind)])
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        await form_group(node, kind)
        assert await commit_offset(node, 1, f"{kind}-empty") != 0
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert isinstance(node.groups.groups[kind], ClassicGroup)


def replay_of(*made: Record) -> Replay:
    replay = Replay()
    for at, (key, value) in enumerate(made):
        replay.apply(key, value, at)
    return replay


def test_the_record_that_came_last_says_the_kind_of_a_group() -> None:
    classic = records.group_record("g", ClassicGroup("g", 5).fields())
    consumer = records.record(records.CONSUMER_GROUP, ("g",), {"epoch": 1})
    for before in (classic, consumer):
        replay = replay_of(before, *share_records("g", "m"))
        assert (set(replay.kept_for_broker()), set(replay.classic), set(replay.consumer)) == ({"g"}, set(), set())
        replay = replay_of(*share_records("g", "m"), before)
        assert (set(replay.kept_for_broker()), len(replay.classic) + len(replay.consumer)) == (set(), 1)
    replay = replay_of(*share_records("g", "m"), *streams_records("g"), records.tombstone(records.SHARE_GROUP, "g"))
    [group] = replay.kept_for_broker().values()
    assert (group.kind, group.epoch, group.members) == ("streams", 1, {})


def test_the_state_of_a_streams_group_follows_from_its_records() -> None:
    def state(*made: Record) -> str:
        return replay_of(*made).kept_for_broker()["g"].state

    assert state(*streams_records("g", "m", target=1)) == "Stable"
    assert state(*streams_records("g", "m", epoch=2, target=1)) == "Assigning"
    assert state(*streams_records("g", "m", target=1, state=2)) == "Reconciling"
    assert state(*streams_records("g", "m", epoch=2, target=2)) == "Reconciling", "the member is in an earlier epoch"
    assert state(*streams_records("g", "m", target=1, validated=-1)) == "NotReady"
    left = [records.tombstone(one, "g", "m") for one in (records.STREAMS_CURRENT_MEMBER, records.STREAMS_MEMBER)]
    assert state(*streams_records("g", "m", target=1), *left) == "Empty"
    assert state(*reversed(streams_records("g", "m", target=1))) == "Stable", "as a cleaner may leave them"


@in_loop
async def test_a_group_record_of_a_later_version_is_kept_and_its_name_not_served(tmp_path: Path) -> None:
    await prepare(tmp_path)
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        write(node, [later(records.record(records.SHARE_GROUP, ("share",), {"epoch": 3, "metadataHash": 0}))])
    before = read_group_records(tmp_path)
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert await commit_offset(node, 1, "share") == ErrorCode.NOT_COORDINATOR
        assert (await join_group(node, "share")).error_code == ErrorCode.NOT_COORDINATOR
        assert await commit_offset(node, 1, "streams") == ErrorCode.UNKNOWN_MEMBER_ID
    assert read_group_records(tmp_path) == before

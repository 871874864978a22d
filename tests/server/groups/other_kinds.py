"""Share and streams groups as a broker leaves them, and the calls that clients may send to their names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from kafkalog.server.groups import records
from kafkalog.server.groups.records import Record
from kafkalog.server.groups.values import CommittedOffset
from tests.server.groups.groups import JOIN

Ask = Callable[[str, int, Mapping[str, Any]], Awaitable[Any]]
"""Sends a call of a version to who is tested, and returns the answer."""
ComparedFields = tuple[int | str, ...]

EPOCH: Final = {"share": 2, "streams": 1}
"""The epoch that the only member, `m`, is in."""
COMMITTED: Final = 7
"""What a streams group has committed for partition 0 of topic t."""
_COMPARED: Final = ("error_code", "error_message", "group_state", "committed_offset")


class Who(NamedTuple):
    """A caller: its id, and its epoch relative to the member's; None without an epoch."""

    member_id: str
    beside: int | None

    def epoch(self, kind: str) -> int:
        return -1 if self.beside is None else EPOCH[kind] + self.beside


NOBODY, MEMBER, OLD, STRANGER, WITHOUT_EPOCH = Who("", None), Who("m", 0), Who("m", -1), Who("x", 0), Who("x", None)


class Row(NamedTuple):
    """A call in these versions by somebody; `more` are fields of the request."""

    call: str
    versions: tuple[int, ...]
    who: Who = NOBODY
    more: Mapping[str, Any] = {}


async def answer(ask: Ask, row: Row, version: int, kind: str, group_id: str, topic_id: Any) -> ComparedFields:
    """The answer to a row's call to a group: codes, messages, states and offsets in their order."""
    build = _TREES[row.call]
    tree = build(group_id, row.who.member_id, row.who.epoch(kind), topic_id) | dict(row.more)
    if row.call == "txn_offset_commit":
        return _compared_fields(await _in_transaction(ask, version, group_id, tree), group_id)
    return _compared_fields(await ask(row.call, version, tree), group_id)


async def _in_transaction(ask: Ask, version: int, group_id: str, tree: Mapping[str, Any]) -> Any:
    name = {"transactional_id": f"of {group_id}"}
    made = await ask("init_producer_id", 4, {**name, "transaction_timeout": 60_000})
    producer = {**name, "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    added = await ask("add_offsets_to_txn", 3, {**producer, "group_id": group_id})
    assert (made.error_code, added.error_code) == (0, 0)
    found = await ask("txn_offset_commit", version, {**producer, **tree})
    assert (await ask("end_txn", 3, {**producer, "committed": False})).error_code == 0
    return found


def _compared_fields(value: Any, group_id: str) -> ComparedFields:
    found: list[int | str] = []
    for name in getattr(value, "_fields", ()):
        one = getattr(value, name)
        if isinstance(one, tuple):
            found += _compared_fields(one, group_id)
        elif name in _COMPARED and one not in (None, ""):
            found.append(one.replace(group_id, "G") if isinstance(one, str) else one)
    if not hasattr(value, "_fields"):
        items = value if isinstance(value, tuple) else ()
        found += [field for item in items for field in _compared_fields(item, group_id)]
    return tuple(found)


def _join(group_id: str, member_id: str, epoch: int, topic_id: Any) -> dict[str, Any]:
    return {**JOIN, "group_id": group_id, "member_id": member_id}


def _sync(group_id: str, member_id: str, epoch: int, topic_id: Any) -> dict[str, Any]:
    return {
        "group_id": group_id, "generation_id": epoch, "member_id": member_id, "protocol_type": "consumer",
        "protocol_name": "range", "assignments": [],
    }  # fmt: skip


def _leave(group_id: str, member_id: str, epoch: int, topic_id: Any) -> dict[str, Any]:
    return {"group_id": group_id, "member_id": member_id, "members": [{"member_id": member_id}]}


def _consumer_beat(group_id: str, member_id: str, epoch: int, topic_id: Any) -> dict[str, Any]:
    return {
        "group_id": group_id, "member_id": member_id, "member_epoch": epoch, "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["t"], "topic_partitions": [],
    }  # fmt: skip


def _commit(group_id: str, member_id: str, epoch: int, topic_id: Any) -> dict[str, Any]:
    partition = {"partition_index": 1, "committed_offset": 5, "committed_metadata": ""}
    return {
        "group_id": group_id, "member_id": member_id, "generation_id": epoch, "generation_id_or_member_epoch": epoch,
        "topics": [{"name": "t", "topic_id": topic_id, "partitions": [partition]}],
    }  # fmt: skip


def _fetch(group_id: str, member_id: str, epoch: int, topic_id: Any) -> dict[str, Any]:
    one = {"group_id": group_id, "topics": [{"name": "t", "topic_id": topic_id, "partition_indexes": [0]}]}
    who = {"member_id": member_id or None, "member_epoch": epoch}
    return {**one, "groups": [one | who], "require_stable": False}


def _delete_offset(group_id: str, member_id: str, epoch: int, topic_id: Any) -> dict[str, Any]:
    return {"group_id": group_id, "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}


def _named(group_id: str, member_id: str, epoch: int, topic_id: Any) -> dict[str, Any]:
    names = [group_id]
    return {"groups_names": names, "groups": names, "group_ids": names, "include_authorized_operations": False}


_TREES: Final = {
    "join_group": _join, "sync_group": _sync, "heartbeat": _sync, "leave_group": _leave,
    "consumer_group_heartbeat": _consumer_beat, "offset_commit": _commit, "txn_offset_commit": _commit,
    "offset_fetch": _fetch, "offset_delete": _delete_offset, "delete_groups": _named, "describe_groups": _named,
    "consumer_group_describe": _named,
}  # fmt: skip


def share_records(group_id: str, *members: str) -> list[Record]:
    """Return the records that a broker writes for a share group with these members."""
    member = {"rackId": None, "clientId": "test", "clientHost": "/127.0.0.1", "subscribedTopicNames": ["t"]}
    return [
        *(records.record(records.SHARE_MEMBER, (group_id, one), member) for one in members),
        records.record(records.SHARE_GROUP, (group_id,), {"epoch": EPOCH["share"], "metadataHash": 0}),
        *(records.record(records.SHARE_TARGET_MEMBER, (group_id, one), {"topicPartitions": []}) for one in members),
        records.record(records.SHARE_TARGET, (group_id,), {"assignmentEpoch": EPOCH["share"]}),
    ]


def streams_records(
    group_id: str, *members: str, epoch: int = EPOCH["streams"], target: int = 0, state: int = 1, validated: int = 0
) -> list[Record]:
    """Return the records that a broker writes for a streams group with these members and a committed offset."""
    member = {
        "instanceId": None, "rackId": None, "clientId": "test", "clientHost": "/127.0.0.1", "rebalanceTimeoutMs": 1,
        "topologyEpoch": 0, "processId": "p", "userEndpoint": None, "clientTags": [],
    }  # fmt: skip
    tasks = dict.fromkeys(("activeTasks", "standbyTasks", "warmupTasks"), ())
    pending = {f"{name}PendingRevocation": () for name in tasks}
    current = {"memberEpoch": EPOCH["streams"], "previousMemberEpoch": 0, "state": state, **tasks, **pending}
    group = {"epoch": epoch, "metadataHash": 0, "validatedTopologyEpoch": validated}
    made = [
        *(records.record(records.STREAMS_MEMBER, (group_id, one), member) for one in members),
        records.record(records.STREAMS_TOPOLOGY, (group_id,), {"epoch": 0, "subtopologies": []}),
        records.record(records.STREAMS_GROUP, (group_id,), group),
        *(records.record(records.STREAMS_CURRENT_MEMBER, (group_id, one), current) for one in members),
        records.offset_record(group_id, "t", 0, CommittedOffset(COMMITTED, -1, "", 5)),
    ]
    if target:
        made.append(records.record(records.STREAMS_TARGET, (group_id,), {"assignmentEpoch": target}))
    return made

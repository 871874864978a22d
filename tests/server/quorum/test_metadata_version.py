"""Versions of what all nodes of a set have: the file, who waits for a majority, and who is voted for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.config.keys import MAX_LONG
from kafkalog.errors import CorruptCheckpoint
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node import leading
from kafkalog.server.node.leading import REFUSED
from kafkalog.server.quorum.decisions import (
    EMPTY,
    METADATA,
    Ballot,
    Position,
    VoterState,
    ahead_of_candidate,
    may_copy_metadata,
)
from kafkalog.server.quorum.errors import NotController
from kafkalog.server.quorum.messages import read_ballot, vote_request
from kafkalog.server.quorum.metadata_version import NotReplicated
from kafkalog.server.quorum.version_file import NONE, VERSION_FILE, Version, VersionFile, Versions, unknown
from kafkalog.server.wire.writer import write_request
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.nodes import call
from tests.server.quorum.sets import set_of, wait_until
from tests.wire_cases import read_request

T0 = TopicPartition("t", 0)
ID, OTHER = UUID(int=1), UUID(int=2)


def test_the_file_has_what_was_written(tmp_path: Path) -> None:
    file = VersionFile(tmp_path)
    assert file.read() is None
    for versions in (Versions((7, 3), (7, 2)), unknown(4), Versions((9, MAX_LONG), (9, 0))):
        file.write(versions)
        assert file.read() == versions


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b'{"version": 2}', b'{"version": 1}', b'{"version": 1, "begun": {}, "complete": {}}',
        b'{"version": 1, "begun": {"term": 1, "changes": 0}, "complete": {"term": 1, "changes": 1}}',
        b'{"version": 1, "begun": {"term": 1, "changes": true}, "complete": {"term": 0, "changes": 1}}',
        b'{"version": 1, "begun": {"term": -2, "changes": 1}, "complete": {"term": -2, "changes": 1}}',
    ],
)  # fmt: skip
def test_a_damaged_file_ends_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / VERSION_FILE).write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match="the version of the metadata is damaged"):
        VersionFile(tmp_path).read()


@pytest.mark.parametrize(
    ("version", "topics", "theirs", "versions", "ahead"),
    [
        ((4, 2), {"t": ID}, (3, 5), ((4, 2), (4, 2)), set()),
        ((4, 1), {"t": ID}, (3, 5), ((4, 2), (4, 2)), {METADATA}),  # it lacks what may have been answered for
        ((4, 9), {"t": ID}, (3, 4), ((4, 2), (4, 2)), {T0}),
        ((4, 2), {}, EMPTY, ((4, 2), (4, 2)), set()),  # it knew the topic: that was deleted
        ((4, 2), {"t": OTHER}, (3, 9), ((4, 2), (4, 2)), set()),  # and created again
        ((4, 2), {}, EMPTY, ((4, 3), (4, 2)), {METADATA, T0}),  # it may never have heard of it
        ((4, 2), {"t": OTHER}, (3, 9), ((4, 3), (4, 2)), {METADATA, T0}),
        ((5, 0), {}, EMPTY, ((4, MAX_LONG), (4, 2)), set()),
        ((2, 9), {}, EMPTY, ((2, 9), (2, 9)), {METADATA, T0}),  # a later leader wrote to it
        (NONE, {}, EMPTY, ((0, MAX_LONG), NONE), {METADATA, T0}),  # no node knows a version
        (NONE, {"t": None}, (3, 5), ((0, MAX_LONG), NONE), set()),
        ((4, 2), {"t": ID}, EMPTY, ((4, 2), (4, 2)), {T0}),  # its disk is away, the topic is not
    ],
)
def test_what_there_is_more_of_here(
    version: Version, topics: dict[str, Any], theirs: Position, versions: Any, ahead: set[TopicPartition]
) -> None:
    ballot = Ballot(5, 1, {} if theirs == EMPTY else {T0: theirs}, version, topics)
    assert ahead_of_candidate(ballot, VoterState({T0: (3, 5)}, Versions(*versions), {"t": ID})).keys() == ahead


def test_metadata_is_copied_where_all_that_is_here_is_known_there() -> None:
    assert may_copy_metadata(Versions((4, 2), (4, 1)), Versions((4, 9), (4, 2)), [(4, 7)])
    assert not may_copy_metadata(Versions((4, 2), (4, 1)), Versions((4, 9), (4, 2)), [(4, 7), (5, 1)])
    assert not may_copy_metadata(Versions((4, 3), (4, 1)), Versions((4, 9), (4, 2)), [])
    assert not may_copy_metadata(Versions(NONE, NONE), Versions((4, 9), NONE), [])


@pytest.mark.parametrize(
    "ballot",
    [
        Ballot(5, 2, {T0: (3, 5)}, (4, 2), {"t": ID, "u": OTHER}),
        Ballot(5, 2, {T0: (3, 5)}, NONE, {"t": None}),  # of a node that knew no versions
        Ballot(5, 2, {}, (4, 2), {}),
    ],
)
def test_a_ballot_as_it_is_sent(ballot: Ballot) -> None:
    data = bytearray(write_request(52, 2, vote_request(ballot, 1, "id", is_pre_vote=True)))
    found, is_pre_vote = read_ballot(read_request(52, 2, data, 0))
    empty = {TopicPartition(name, 0): EMPTY for name in ballot.topics}
    assert is_pre_vote and found.positions == {**empty, **ballot.positions}
    assert (found.version, dict(found.topics)) == (ballot.version, dict(ballot.topics))


CONFIGS = {"resource_type": 2, "resource_name": "t", "configs": []}
ACL = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}
CALLS: dict[str, tuple[int, dict[str, Any]]] = {
    "alter_client_quotas": (1, {"entries": [
        {"entity": [{"entity_type": "user", "entity_name": "a"}],
         "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]},
    ], "validate_only": False}),
    "alter_configs": (2, {"resources": [CONFIGS], "validate_only": False}),
    "alter_user_scram_credentials": (0, {"deletions": [], "upsertions": [
        {"name": "b", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p" * 32},
    ]}),
    "create_acls": (3, {"creations": [{**ACL, "resource_pattern_type": 3, "permission_type": 3}]}),
    "create_partitions": (3, {"topics": [{"name": "t", "count": 2, "assignments": None}], "timeout": 100,
                              "validate_only": False}),
    "create_topics": (7, {"topics": [
        {"name": "n", "num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []},
    ], "timeout": 100, "validate_only": False}),
    "delete_acls": (3, {"filters": [{
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }]}),
    "delete_topics": (6, {"topics": [{"name": "t", "topic_id": None}], "timeout": 100}),
    "incremental_alter_configs": (1, {"resources": [CONFIGS], "validate_only": False}),
    "update_features": (1, {"timeout": 100, "feature_updates": [
        {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2},
    ], "validate_only": False}),
}  # fmt: skip


def code_of(answer: Any) -> int:
    rows = next(value for value in answer if isinstance(value, tuple))
    return int(rows[0].error_code if rows else answer.error_code)


def test_all_calls_that_change_something_are_tried() -> None:
    assert {name for name, error in REFUSED.items() if error is NotController} == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
@in_loop
async def test_an_answer_waits_for_a_majority(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No node copies anything here, so the time runs out. A set of one does not wait."""
    monkeypatch.setattr(leading, "USUAL_TIMEOUT_MS", 100)
    version, tree = CALLS[name]
    for count, code in ((2, ErrorCode.REQUEST_TIMED_OUT), (1, ErrorCode.NONE)):
        path = tmp_path / str(count)
        path.mkdir()
        allowed = {"authorizer_class_name": "any", "super_users": "User:ANONYMOUS"}
        async with set_of(path, count, **allowed) as nodes:
            await nodes.promote(1)
            await nodes[1].topics.create("t", 1)
            assert code_of(await call(nodes[1], name, version, tree)) == code


@in_loop
async def test_who_waits_is_told_as_soon_as_a_majority_has_it(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        leader, follower = nodes.quorum(1).metadata, nodes.quorum(3).metadata
        await nodes[1].topics.create("t", 1)
        waiting = asyncio.ensure_future(leader.replicated(60_000))
        term = nodes.quorum(1).state.term
        await wait_until(lambda: nodes.quorum(3).leaders_changes == 1)
        await follower.finish(Versions((term, 1), (term, 0)))
        await asyncio.sleep(0.1)
        assert not waiting.done()  # one change is missing there
        await follower.finish(Versions((term, 1), (term, 1)))
        await waiting


@in_loop
async def test_who_waits_is_told_that_another_node_leads(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        await nodes[1].topics.create("t", 1)
        waiting = asyncio.ensure_future(nodes.quorum(1).metadata.replicated(60_000))
        await asyncio.sleep(0)
        await nodes.promote(2, is_forced=True)
        with pytest.raises(NotController, match="another node leads"):
            await waiting


@in_loop
async def test_a_change_that_cannot_be_counted_on_disk_is_not_answered_for(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        metadata = nodes.quorum(1).metadata
        (tmp_path / "1" / (VERSION_FILE + ".tmp")).mkdir()
        stored = metadata.stored
        await nodes[1].topics.create("t", 1)
        with pytest.raises(NotReplicated):
            await metadata.replicated(100)
        assert metadata.stored == stored and metadata.versions.complete == (stored[0], 1)


@in_loop
async def test_a_silent_node_does_not_keep_the_next_change_from_its_majority(tmp_path: Path) -> None:
    """Its poll goes on from one change to the next, while that of the other node has ended between them."""
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        leader, follower = nodes.quorum(1).metadata, nodes.quorum(3).metadata
        peers, term = nodes.quorum(1).peers, nodes.quorum(1).state.term

        class SilentTwo:
            async def ask(self, node_id: int, *request: Any) -> Any:
                return await (asyncio.Event().wait() if node_id == 2 else peers.ask(node_id, *request))

            async def close(self) -> None:
                """Nothing is open."""

        nodes.quorum(1).peers = SilentTwo()
        for count, name in enumerate("tu", 1):
            await nodes[1].topics.create(name, 1)
            await follower.finish(Versions((term, count), (term, count)))
            await leader.replicated(20_000)
            await asyncio.sleep(0.1)

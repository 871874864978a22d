"""A share session by itself: what it asks a node for, and what it knows after each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")

from kafkalog.queue.worker import ACCEPT, RENEW
from kafkalog.server.client.errors import PeerError, PeerRefused
from kafkalog.server.error_codes import ErrorCode
from kafkalog.sharing.links import SHARE_ACKNOWLEDGE, SHARE_FETCH
from kafkalog.sharing.session import NodeSession

TOPIC = UUID(int=7)


class Node:
    """A node that answers with the given codes, then without error; an exception breaks the connection."""

    peer = "node"

    def __init__(self, *answers: int | BaseException, version: int = 2) -> None:
        self.answers, self.version = list(answers), version
        self.asked: list[tuple[int, Mapping[str, Any], int | None]] = []

    def version_of(self, api_key: int) -> int:
        return self.version if api_key == SHARE_ACKNOWLEDGE else 0

    async def request(self, api_key: int, tree: Mapping[str, Any], timeout_ms: int | None = None) -> Any:
        self.asked.append((api_key, tree, timeout_ms))
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, BaseException):
            raise answer
        return SimpleNamespace(error_code=answer)

    def fetches(self, session: NodeSession, *partitions: int, most: int = 10, wait_ms: int = 0) -> Mapping[str, Any]:
        """Return what a fetch asks for."""
        asyncio.run(session.fetch(self, TOPIC, partitions, most, wait_ms))  # type: ignore[arg-type]
        return self.asked[-1][1]

    def acknowledges(self, session: NodeSession, kind: int, ranges: Any) -> Mapping[str, Any]:
        """Return what an acknowledgement says."""
        asyncio.run(session.acknowledge(self, TOPIC, kind, ranges))  # type: ignore[arg-type]
        return self.asked[-1][1]


def named(tree: Mapping[str, Any]) -> tuple[int, list[int], list[int]]:
    """The epoch of a fetch, the partitions that it adds, and those that it forgets."""
    added = [row["partition_index"] for topic in tree["topics"] for row in topic["partitions"]]
    forgotten = [number for topic in tree["forgotten_topics_data"] for number in topic["partitions"]]
    assert all(one["topic_id"] == TOPIC for one in (*tree["topics"], *tree["forgotten_topics_data"]))
    return tree["share_session_epoch"], added, forgotten


def test_a_fetch_names_what_changed_since_the_last_one() -> None:
    node, session = Node(), NodeSession("workers", "me")
    assert not session.is_begun
    assert named(node.fetches(session, 2, 0)) == (0, [0, 2], [])
    assert session.is_begun
    assert named(node.fetches(session, 2, 0)) == (1, [], [])
    assert named(node.fetches(session, 1, 2)) == (2, [1], [0])
    assert named(node.fetches(session)) == (3, [], [1, 2])


def test_a_fetch_in_full() -> None:
    node, session = Node(), NodeSession("workers", "me")
    assert node.fetches(session, 4, most=7, wait_ms=500) == {
        "group_id": "workers", "member_id": "me", "share_session_epoch": 0, "max_wait": 500, "min_bytes": 1,
        "max_bytes": 50 << 20, "max_records": 7, "batch_size": 7, "share_acquire_mode": 1, "is_renew_ack": False,
        "topics": [{"topic_id": TOPIC, "partitions": [{"partition_index": 4, "acknowledgement_batches": []}]}],
        "forgotten_topics_data": [],
    }  # fmt: skip
    most = node.fetches(session, 4, most=2**40)
    assert (most["max_records"], most["batch_size"]) == (2**31 - 1, 2**31 - 1)
    assert [(one[0], one[2]) for one in node.asked] == [(SHARE_FETCH, 30_500), (SHARE_FETCH, None)]


def test_the_epoch_after_the_largest_is_1() -> None:
    node, session = Node(), NodeSession("workers", "me")
    session._epoch = 2**31 - 2
    assert [node.fetches(session, 0)["share_session_epoch"] for _ in range(3)] == [2**31 - 2, 2**31 - 1, 1]


@pytest.mark.parametrize("answer", [int(ErrorCode.SHARE_SESSION_NOT_FOUND), PeerError("broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("is_fetch", [False, True])
def test_after_an_error_another_session_begins(answer: int | BaseException, is_fetch: bool) -> None:
    node, session = Node(0, answer), NodeSession("workers", "me")
    node.fetches(session, 0, 1)
    before = session.generation
    try:
        if is_fetch:
            node.fetches(session, 1, 2)
        else:
            node.acknowledges(session, ACCEPT, {0: [(3, 4)]})
    except (PeerError, KeyboardInterrupt) as error:
        assert error is answer
    else:
        assert isinstance(answer, int)
    assert (session.generation, session.is_begun) == (before + 1, False)
    assert named(node.fetches(session, 1, 2)) == (0, [1, 2], [])
    assert session.generation == before + 1


def test_an_acknowledgement_in_full() -> None:
    node, session = Node(), NodeSession("workers", "me")
    node.fetches(session, 0)
    batches = [
        {"first_offset": 3, "last_offset": 4, "acknowledge_types": (ACCEPT,)},
        {"first_offset": 9, "last_offset": 9, "acknowledge_types": (ACCEPT,)},
    ]
    assert node.acknowledges(session, ACCEPT, {5: [(3, 4), (9, 9)]}) == {
        "group_id": "workers", "member_id": "me", "share_session_epoch": 1, "is_renew_ack": False,
        "topics": [{"topic_id": TOPIC, "partitions": [{"partition_index": 5, "acknowledgement_batches": batches}]}],
    }  # fmt: skip
    assert node.asked[-1][0] == SHARE_ACKNOWLEDGE and node.asked[-1][2] is None
    assert node.acknowledges(session, RENEW, {5: [(3, 4)]})["is_renew_ack"]
    assert named(node.fetches(session, 0)) == (3, [], [])


def test_a_broker_that_cannot_renew_is_not_asked_to() -> None:
    node, session = Node(version=1), NodeSession("workers", "me")
    with pytest.raises(PeerRefused, match="cannot renew") as caught:
        node.acknowledges(session, RENEW, {5: [(3, 4)]})
    assert caught.value.peer == "node" and not node.asked
    assert not node.acknowledges(session, ACCEPT, {5: [(3, 4)]})["is_renew_ack"]


def test_a_session_that_is_closed_may_begin_again() -> None:
    node, session = Node(), NodeSession("workers", "me")
    node.fetches(session, 0)
    before = session.generation
    asyncio.run(session.close(node))  # type: ignore[arg-type]
    assert node.asked[-1] == (
        SHARE_ACKNOWLEDGE, {"group_id": "workers", "member_id": "me", "share_session_epoch": -1, "topics": ()}, None
    )  # fmt: skip
    assert (session.generation, session.is_begun) == (before + 1, False)
    assert named(node.fetches(session, 0)) == (0, [0], [])

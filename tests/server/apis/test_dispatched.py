"""Request parsing: large requests in a thread, requests with records in place and without a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.apis import dispatch
from kafkalog.server.apis.dispatch import LARGE_BYTES
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from tests.builder import R, batch
from tests.server.apis.test_topic_calls import metadata_tree, with_node
from tests.server.nodes import KEYS, Closed, call, connection_for


def produce_tree(size: int) -> dict[str, Any]:
    rows = [{"index": 0, "records": batch([R(bytes(size), timestamp=1)])}]
    topics = [{"name": "t", "partition_data": rows}]
    return {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": topics}


def make_names(size: int) -> list[str]:
    return [f"{'x' * 200}{at}" for at in range(size // 200)]


ASKED: dict[str, tuple[int, Any, bool]] = {
    "metadata": (12, lambda size: metadata_tree(*make_names(size)), True),
    "describe_groups": (5, lambda size: {"groups": make_names(size), "include_authorized_operations": False}, True),
    "produce": (9, produce_tree, False),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_request_is_read_by_a_thread_unless_it_brings_records(
    tmp_path: Path, name: str, is_large: bool
) -> None:
    version, tree, has_thread = ASKED[name]

    async def use(node: Node) -> None:
        await node.topics.create("t", 1)
        run, handed = node.run, []

        async def noted(function: Any, *args: Any, **named: Any) -> Any:
            handed.append(getattr(getattr(function, "func", function), "__name__", ""))
            return await run(function, *args, **named)

        node.run = noted  # type: ignore[method-assign]
        answer = await call(node, name, version, tree(2 * LARGE_BYTES if is_large else LARGE_BYTES // 2))
        assert f"error_code={int(ErrorCode.UNKNOWN_SERVER_ERROR)}" not in repr(answer)
        assert ("read" in handed) is (is_large and has_thread)

    with_node(tmp_path, use, auto_create_topics_enable=False)


@pytest.mark.parametrize(
    ("name", "version", "tree", "code"),
    [
        ("heartbeat", 4, {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None},
         ErrorCode.UNKNOWN_MEMBER_ID),  # in the handler's answer
        ("end_txn", 3, {"transactional_id": "", "producer_id": 1, "producer_epoch": 0, "committed": True},
         ErrorCode.INVALID_REQUEST),
        ("metadata", 12, metadata_tree("missing"), ErrorCode.NONE),  # of a topic
        ("delete_topics", 5, {"topic_names": ["t"], "timeout": 1}, ErrorCode.TOPIC_DELETION_DISABLED),  # in each row
    ],
)  # fmt: skip
def test_request_that_fails_as_a_whole_is_counted(
    tmp_path: Path, name: str, version: int, tree: Any, code: ErrorCode
) -> None:
    async def use(node: Node) -> None:
        await call(node, name, version, tree)
        counts = node.requests.calls[KEYS[name]]
        assert (counts.times_ms.count, counts.errors) == (1, {int(code): 1} if code else {})

    with_node(tmp_path, use, auto_create_topics_enable=False, delete_topic_enable=False)


ASKED_BY_NOBODY: dict[str, Any] = {
    "consumer_group_describe": {"group_ids": ["g"], "include_authorized_operations": False},
    "metadata": metadata_tree("t"),
}


def test_a_stranger_has_no_plan_made(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        before = dict(dispatch._CALLS)
        stranger = connection_for(security_protocol="SASL_PLAINTEXT")
        for name, version in (("consumer_group_describe", 0), ("metadata", 13)):
            dispatch._CALLS.pop((KEYS[name], version), None)
            with pytest.raises(Closed):
                await call(node, name, version, connection=stranger, tree=ASKED_BY_NOBODY[name])
            assert (KEYS[name], version) not in dispatch._CALLS
        dispatch._CALLS.update(before)

    with_node(tmp_path, use)

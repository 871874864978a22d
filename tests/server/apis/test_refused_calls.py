"""A call that fails as a whole is answered in every version: its error stands at each place that the answer has for
one, and each thing that the client asked about is named there as the client named it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.errors import PolicyViolation
from kafkalog.server.apis.dispatch import offered
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.wire.definitions import FieldPlan, StructPlan, request_plan
from kafkalog.server.wire.versions import APIS
from tests.server.nodes import KEYS, call, node_for

WORDS = "this node is not the leader of its replica set"
CODE = int(ErrorCode.POLICY_VIOLATION)
CALLS = sorted(api.name for api in offered(False).values())


class Numbers:
    """Values of requests, no two of them the same."""

    def __init__(self) -> None:
        self.last = 0

    def of(self, field: FieldPlan) -> Any:
        if field.is_array:
            return [self.one(field) for _ in range(2)]
        return self.one(field)

    def one(self, field: FieldPlan) -> Any:
        if field.struct is not None:
            return self.tree(field.struct)
        self.last += 1
        match field.kind:
            case "string":
                return f"name{self.last}"
            case "bool":
                return True
            case "uuid":
                return UUID(int=self.last)
            case "bytes" | "records":
                return b"bytes%d" % self.last
            case "float64":
                return float(self.last)
        return self.last

    def tree(self, plan: StructPlan) -> dict[str, Any]:
        return {field.name: self.of(field) for field in (*plan.plain, *plan.tagged)}


def iterate_fields(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each field of a request or an answer, in order, except structures."""
    pairs = tree.items() if isinstance(tree, dict) else tree._asdict().items()
    for name, value in pairs:
        for one in value if isinstance(value, list | tuple) and not hasattr(value, "_asdict") else [value]:
            if isinstance(one, dict) or hasattr(one, "_asdict"):
                yield from iterate_fields(one)
            else:
                yield name, one


def by_name(tree: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, value in iterate_fields(tree):
        found.setdefault(name, []).append(value)
    return found


OTHER_WORDS = {
    "group_id": ("groups", "group_ids", "groups_names"),
    "key": ("coordinator_keys",),
    "name": ("topic", "topic_names"),
    "partition_index": ("partition", "partition_indexes", "partition_indices", "partitions", "partition_id", "index"),
    "transactional_id": ("transactional_ids",),
}
"""What a request calls what the answer has under a name."""
UNKNOWN = {"member_id": None, "protocol_type": None, "protocol_name": None, "member_epoch": 0, "session_id": 0,
           "endpoint_type": 1}  # fmt: skip
"""Answered in place of the requested values; missing numbers are -1."""
OF_THE_OWNER = {"principal_type", "principal_name"}
"""Answered for a token's owner, where the request has other owners."""
WITHOUT_CODES = {("describe_log_dirs", 1), ("describe_log_dirs", 2)}


def check_names(answer: dict[str, list[Any]], asked: dict[str, list[Any]]) -> None:
    """Each field of the answer has what was asked, each of them in order; or else what means that nothing is known."""
    for field, values in answer.items():
        if field in OF_THE_OWNER and "hmac" in answer:
            continue
        of_request = next((one for one in (field, *OTHER_WORDS.get(field, ())) if one in asked), None)
        if of_request is not None and values != asked[of_request]:
            assert set(values) in ({UNKNOWN.get(field, -1)}, {b""}), (field, values, asked[of_request])


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_fails_is_answered_with_its_error_for_each_thing_that_was_asked(tmp_path: Path, name: str) -> None:
    api = APIS[KEYS[name]]

    async def use(node: Node) -> None:
        node.leaders_calls = {name: PolicyViolation}
        for version in range(max(api.oldest, api.first_served), api.newest + 1):
            asked = Numbers().tree(request_plan(api.key, version))
            answer = by_name(await call(node, name, version, asked))
            if name == "create_topics":  # of which the answer has names alone
                asked = {"topics": [{"name": one["name"]} for one in asked["topics"]]}
                answer.pop("topic_config_error_code", None)
            codes = [code for field, values in answer.items() if field.endswith("error_code") for code in values]
            assert set(codes) == (set() if (name, version) in WITHOUT_CODES else {CODE})
            assert set(answer.get("error_message", ())) <= {None, WORDS, ErrorCode(CODE).message}
            check_names(answer, by_name(asked))

    async def run() -> None:
        async with node_for(tmp_path) as node:
            await use(node)

    asyncio.run(run())

"""An error of a fault stands where a broker reports it, in every version of every call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.requests.context import Close
from kafkalog.server.wire.definitions import request_plan
from kafkalog.server.wire.reader import read_response
from kafkalog.server.wire.versions import API_VERSIONS, APIS
from kafkalog.testing.inside.answers import error_answer, joined
from kafkalog.testing.inside.requests import read_call
from tests.server.apis.test_refused_calls import WITHOUT_CODES, Numbers, by_name
from tests.server.nodes import connection_for, node_for, request_bytes

CODE = int(ErrorCode.POLICY_VIOLATION)
OF_A_SET = {"vote", "begin_quorum_epoch", "end_quorum_epoch", "describe_quorum", "fetch_snapshot"}


def answered(node: Node, name: str, version: int, tree: Any) -> Any:
    """The error's response; Close where the connection ends instead."""
    call = read_call(node, connection_for(), request_bytes(name, version, tree))
    assert call is not None
    pieces = error_answer(node, call, CODE, lambda topic, partition: True)
    if isinstance(pieces, Close):
        return pieces
    assert pieces is not None
    flexible = call.api.is_flexible(version) and call.api.key != API_VERSIONS
    return read_response(call.api.key, version, joined(pieces), 5 if flexible else 4)


@pytest.mark.parametrize("name", [api.name for api in APIS.values() if api.name not in OF_A_SET])
def test_every_version_of_a_call_has_the_error(tmp_path: Path, name: str) -> None:
    api = next(one for one in APIS.values() if one.name == name)

    async def run() -> None:
        async with node_for(tmp_path) as node:
            await node.topics.create("known", 2)
            known = node.topics.get("known")
            assert known is not None
            for version in range(max(api.oldest, api.first_served), api.newest + 1):
                tree = Numbers().tree(request_plan(api.key, version))
                if name == "fetch":  # of a topic that is here, as its ids are looked up
                    row = tree["topics"][0]
                    tree["topics"] = [{**row, "topic_id": known.id, "topic": "known"}]
                answer = by_name(answered(node, name, version, tree))
                answer.pop("topic_config_error_code", None)
                codes = [code for field, values in answer.items() if field.endswith("error_code") for code in values]
                wanted = {CODE, 0} if name == "fetch" and version >= 7 else {CODE}
                assert set(codes) == (set() if (name, version) in WITHOUT_CODES else wanted), version

    asyncio.run(run())


def test_produce_without_acknowledgement_has_no_answer_but_an_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with node_for(tmp_path) as node:
            tree = {"transactional_id": None, "acks": 0, "timeout": 1, "topic_data": []}
            assert isinstance(answered(node, "produce", 9, tree), Close)

    asyncio.run(run())

"""Requests that are well formed and make no sense: each is answered, and never with -1 (FLOW-25)."""

import asyncio
import logging
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.server.node import Node
from kafkalog.server.wire.definitions import FieldPlan, StructPlan, request_plan
from kafkalog.server.wire.versions import APIS
from tests.server.nodes import KEYS, Closed, call, connection_for, node_for

CALLS = [
    "metadata", "create_topics", "delete_topics", "create_partitions", "describe_configs", "alter_configs",
    "incremental_alter_configs", "describe_cluster", "describe_log_dirs", "describe_topic_partitions",
    "sasl_handshake", "sasl_authenticate", "create_acls", "describe_acls", "delete_acls", "describe_client_quotas",
    "alter_client_quotas", "describe_user_scram_credentials", "alter_user_scram_credentials",
]  # fmt: skip
TEXTS = [
    "", "t", "u", "a b", "..", "\0", "é\u202e", "x" * 300, "1", "-1", "9" * 30, "*", "User:u", "kafka-cluster",
    "user", "ip", "retention.ms", "cleanup.policy", "compact", "compact,compact", ",", "log.retention.ms",
    "log.cleaner.threads",
    "__consumer_offsets", "__cluster_metadata", "PLAIN", "SCRAM-SHA-256", "producer_byte_rate", "client-id", "true",
    "nan",
]  # fmt: skip
NUMBERS = {"int8": 127, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1, "timedelta_i32": 2**31 - 1}
FLOATS = [0.0, -1.0, 1.5, 1e308, float("inf"), float("nan"), 1000.0]


def value(field: FieldPlan, chance: random.Random) -> Any:
    """Some value of a field."""
    if field.is_nullable and chance.random() < 0.2:
        return None
    if field.is_array:
        count = chance.choice([0, 1, 1, 2, 3])
        return [one(field, chance) for _ in range(count)]
    return one(field, chance)


def one(field: FieldPlan, chance: random.Random) -> Any:
    if field.struct is not None:
        return tree(field.struct, chance)
    if field.kind == "string":
        return chance.choice(TEXTS)
    if field.kind == "bool":
        return chance.random() < 0.5
    if field.kind == "uuid":
        return UUID(int=chance.choice([1, 2**100]))
    if field.kind == "bytes":
        return chance.choice([b"", b"\0u\0p", b"n,,n=u,r=a", bytes(100), b"\xff"])
    if field.kind == "float64":
        return chance.choice(FLOATS)
    most = NUMBERS[field.kind]
    few = [0, 1, 1, 2, 3, 4, 5, 8, 12, -1, -2, most, -most - 1]
    return chance.choice(few) if most > 127 else chance.randint(-2, 16)


def tree(plan: StructPlan, chance: random.Random) -> dict[str, Any]:
    return {field.name: value(field, chance) for field in (*plan.plain, *plan.tagged)}


@pytest.mark.parametrize("name", CALLS)
def test_what_makes_no_sense_is_answered(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    api, chance = APIS[KEYS[name]], random.Random(name)

    async def use(node: Node) -> None:
        await node.topics.create("t", 2)
        connection = connection_for(security_protocol="SASL_PLAINTEXT" if name.startswith("sasl") else "PLAINTEXT")
        for _ in range(100):
            version = chance.randint(max(api.oldest, api.first_served), api.newest)
            asked = tree(request_plan(api.key, version), chance)
            try:
                answer = await call(node, name, version, asked, connection=connection)
            except Closed:
                assert name.startswith("sasl")
                continue
            assert "error_code=-1" not in repr(answer), asked

    async def run() -> None:
        settings = {"authorizer.class.name": "StandardAuthorizer", "allow.everyone.if.no.acl.found": "true"}
        given = {key.replace(".", "_"): text for key, text in settings.items()}
        async with node_for(tmp_path, connection_failed_authentication_delay_ms=0, **given) as node:
            await use(node)

    asyncio.run(run())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

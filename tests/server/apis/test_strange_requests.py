"""Requests that are well formed and make no sense: each is answered, and never with -1 (FLOW-25)."""

import asyncio
import logging
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.server.node.node import Node
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


def random_value(field: FieldPlan, chance: random.Random) -> Any:
    """Some value of a field."""
    if field.is_nullable and chance.random() < 0.2:
        return None
    if field.is_array:
        count = chance.choice([0, 1, 1, 2, 3])
        return [random_item(field, chance) for _ in range(count)]
    return random_item(field, chance)


def random_item(field: FieldPlan, chance: random.Random) -> Any:
    if field.struct is not None:
        return random_tree(field.struct, chance)
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


def random_tree(plan: StructPlan, chance: random.Random) -> dict[str, Any]:
    return {field.name: random_value(field, chance) for field in (*plan.plain, *plan.tagged)}


@pytest.mark.parametrize("name", CALLS)
def test_what_makes_no_sense_is_answered(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    api, chance = APIS[KEYS[name]], random.Random(name)

    async def use(node: Node) -> None:
        await node.topics.create("t", 2)
        connection = connection_for(security_protocol="SASL_PLAINTEXT" if name.startswith("sasl") else "PLAINTEXT")
        for _ in range(100):
            version = chance.randint(max(api.oldest, api.first_served), api.newest)
            asked = random_tree(request_plan(api.key, version), chance)
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


WORDS = [
    b"", b"\0", b"\0u\0p", b"\0\0", b"u\0v\0p", b"\0u\0p\0q", b"\0\xff\0p", b"\0" + b"u" * 3000 + b"\0p", bytes(100),
    b"\xff" * 50, b"n,,n=u,r=a", b"n,,n=,r=a", b"n,,n=u", b"y,,n=u,r=a", b"p=tls-unique,,n=u,r=a", b"n,a=root,n=u,r=a",
    b"n,,n==2C,r=a", b"n,,n==,r=a", b"n,,n=u,r=" + b"a" * 3000, b"c=biws,r=a,p=AA==", b"c=biws,r=,p=",
    b"c=biws,r=a,p=*",
]  # fmt: skip


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_strange_words_log_nobody_in(tmp_path: Path, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each is the first or the second word of an exchange that has really begun."""
    caplog.set_level(logging.ERROR)
    refused = went_on = 0

    async def use(node: Node) -> None:
        nonlocal refused, went_on
        for first in WORDS:
            for second in WORDS if mechanism != "PLAIN" else WORDS[:1]:
                connection = connection_for(security_protocol="SASL_PLAINTEXT")
                greeting = await call(node, "sasl_handshake", 1, {"mechanism": mechanism}, connection=connection)
                assert greeting.error_code == 0
                for word in (first, second):
                    asked = {"auth_bytes": word}
                    answer = await call(node, "sasl_authenticate", 2, asked, connection=connection)
                    assert answer.error_code in (0, 58) and not connection.is_authenticated, (first, second)
                    went_on += answer.error_code == 0
                    if answer.error_code:
                        refused += 1
                        assert answer.error_message and connection.closes_after_answer
                        break

    async def run() -> None:
        settings = {"sasl_enabled_mechanisms": mechanism, "connection_failed_authentication_delay_ms": 0}
        async with node_for(tmp_path, **settings) as node:
            await use(node)

    asyncio.run(run())
    assert refused > 20 and (went_on > 20) == (mechanism != "PLAIN")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

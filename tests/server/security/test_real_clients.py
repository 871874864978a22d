"""Clients that others wrote log in, are kept out, and wait as their quotas say (KIP-13, KIP-43, KIP-152, KIP-368)."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.security.users import add_user
from kafkalog.testing import KafkaServer, kafka_server

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = pytest.mark.interop
SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "connection.failed.authentication.delay.ms": 10}


@contextmanager
def secured_server(path: Path, **settings: Any) -> Iterator[KafkaServer]:
    for user in ("root", "user"):
        add_user(path, user, f"{user}'s password")
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with kafka_server(directory=path, settings={**SASL, **named}) as server:
        yield server


def login_settings(
    server: KafkaServer, user: str, mechanism: str = "SCRAM-SHA-256", password: str | None = None
) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.username": user, "sasl.password": f"{user}'s password" if password is None else password,
    }  # fmt: skip


def produce_records(settings: dict[str, Any], topic: str, count: int = 1, value: bytes = b"v") -> list[Any]:
    """The error of each record, None where it was written."""
    errors: list[Any] = []
    producer = confluent_kafka.Producer({**settings, "message.timeout.ms": 60_000})
    for _ in range(count):
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(70)
    return errors


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_logs_in(tmp_path: Path, mechanism: str) -> None:
    with secured_server(tmp_path) as server:
        assert produce_records(login_settings(server, "user", mechanism), "t") == [None]
        errors: list[Any] = []
        wrong = login_settings(server, "user", mechanism, "no") | {"error_cb": errors.append}
        client = admin.AdminClient(wrong)
        with pytest.raises(confluent_kafka.KafkaException):
            client.list_topics(timeout=1)
        end = time.monotonic() + 60
        while not any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors):
            assert time.monotonic() < end
            client.poll(0.1)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_aiokafka_logs_in(tmp_path: Path, mechanism: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def run(server: KafkaServer, password: str) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=server.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
            sasl_plain_username="user", sasl_plain_password=password,
        )  # fmt: skip
        try:
            await producer.start()
            return await producer.send_and_wait("t", b"v")
        finally:
            await producer.stop()

    with secured_server(tmp_path) as server:
        assert asyncio.run(run(server, "user's password")).offset == 0
        with pytest.raises(aiokafka.errors.KafkaError):
            asyncio.run(run(server, "no"))


def test_acls_let_one_user_write_and_the_other_not(tmp_path: Path) -> None:
    with secured_server(tmp_path, authorizer_class_name="StandardAuthorizer", super_users="User:root") as server:
        root = admin.AdminClient(login_settings(server, "root"))
        root.create_topics([admin.NewTopic("mine", 1), admin.NewTopic("theirs", 1)])["theirs"].result(60)
        kind, name, pattern = admin.ResourceType.TOPIC, "mine", admin.ResourcePatternType.LITERAL
        operation, permission = admin.AclOperation.WRITE, admin.AclPermissionType.ALLOW
        binding = admin.AclBinding(kind, name, pattern, "User:user", "*", operation, permission)
        root.create_acls([binding])[binding].result(60)
        assert produce_records(login_settings(server, "user"), "mine") == [None]
        (error,) = produce_records(login_settings(server, "user"), "theirs")
        assert error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
        every = admin.ResourceType.ANY, None, admin.ResourcePatternType.ANY, None, None
        wanted = admin.AclBindingFilter(*every, admin.AclOperation.ANY, admin.AclPermissionType.ANY)
        assert root.describe_acls(wanted).result(60) == [binding]


def test_a_user_that_a_client_made_can_log_in_until_it_is_deleted(tmp_path: Path) -> None:
    with secured_server(tmp_path) as server:
        root = admin.AdminClient(login_settings(server, "root"))
        info = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_512, 8192)
        made = admin.UserScramCredentialUpsertion("new", info, b"new's password")
        root.alter_user_scram_credentials([made])["new"].result(60)
        assert produce_records(login_settings(server, "new", "SCRAM-SHA-512"), "t") == [None]
        users = root.describe_user_scram_credentials().result(60)
        assert sorted(users) == ["new", "root", "user"] and users["new"].scram_credential_infos[0].iterations == 8192
        gone = admin.UserScramCredentialDeletion("new", admin.ScramMechanism.SCRAM_SHA_512)
        root.alter_user_scram_credentials([gone])["new"].result(60)
        assert sorted(root.describe_user_scram_credentials().result(60)) == ["root", "user"]


def test_a_client_that_authenticates_again_notices_nothing(tmp_path: Path) -> None:
    """KIP-368: librdkafka does so after nine tenths of the lifetime."""
    with secured_server(tmp_path, connections_max_reauth_ms=1500) as server:
        producer = confluent_kafka.Producer(login_settings(server, "user"))
        errors: list[Any] = []
        for _ in range(5):
            producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error))
            assert producer.flush(60) == 0
            time.sleep(0.8)
        assert errors == [None] * 5


def test_who_is_above_its_quota_waits(tmp_path: Path) -> None:
    with secured_server(tmp_path) as server:
        settings = login_settings(server, "user") | {"batch.size": 20_000, "statistics.interval.ms": 100}
        waits: list[int] = []
        settings["throttle_cb"] = lambda event: waits.append(event.throttle_time)
        alter_quota(server, "user", 20_000)
        producer = confluent_kafka.Producer(settings)
        for _ in range(22):
            producer.produce("t", bytes(10_000))
        producer.flush(30)
        assert waits and max(waits) > 0


def alter_quota(server: KafkaServer, user: str, limit: float) -> None:
    """Set a quota by bare requests: librdkafka has no call for it."""
    import socket

    from tests.server.nodes import request_bytes

    entry = {
        "entity": [{"entity_type": "user", "entity_name": user}],
        "ops": [{"key": "producer_byte_rate", "value": limit, "remove": False}],
    }
    requests = [
        request_bytes("sasl_handshake", 1, {"mechanism": "PLAIN"}),
        request_bytes("sasl_authenticate", 1, {"auth_bytes": b"\0root\0root's password"}),
        request_bytes("alter_client_quotas", 0, {"entries": [entry], "validate_only": False}),
    ]
    with socket.create_connection(("127.0.0.1", server.port)) as sock, sock.makefile("rb") as file:
        for body in requests:
            sock.sendall(len(body).to_bytes(4, "big") + body)
            assert len(file.read(int.from_bytes(file.read(4), "big"))) > 4

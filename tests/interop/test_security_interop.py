"""ACLs, users and quotas that a real broker has kept count for a server that goes on in its directory."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kafkalog.manager.cluster_metadata import read_cluster_metadata
from kafkalog.server.security.takeover import security_of
from kafkalog.server.security.users import add_user
from kafkalog.testing import KafkaServer, kafka_server
from tests.interop import toolchain
from tests.interop.broker import Broker, quick_start
from tests.interop.ours import served_on
from tests.interop.reference import Reference

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
}
SASL = {**AUTHORIZED, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}


def test_who_could_do_what_at_the_broker_can_here(tmp_path: Path, reference: Reference) -> None:
    data = tmp_path / "data"
    with Broker(reference, tmp_path / "broker", data, AUTHORIZED) as broker:
        _secure(broker.bootstrap)
    metadata = read_cluster_metadata(data)
    assert metadata is not None
    kept = security_of(metadata.image)
    assert {name: sorted(keys) for name, keys in kept.users.items()} == {
        "ann": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "bob": ["SCRAM-SHA-512"],
    }  # fmt: skip
    assert [(acl.resource_name, acl.principal, acl.operation.name) for acl in kept.acls] == [
        ("ours", "User:ann", "WRITE")
    ]
    assert kept.quotas == {
        (("client-id", None), ("user", "ann")): {"producer_byte_rate": 123456.0},
        (("user", None),): {"request_percentage": 12.5},
    }
    with kafka_server(directory=data, settings=SASL) as server:
        assert _produced(server, "ann", "SCRAM-SHA-256", "ours") is None
        assert _produced(server, "ann", "PLAIN", "theirs") == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert _produced(server, "bob", "SCRAM-SHA-512", "ours") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    add_user(data, "root", "root's password")
    with kafka_server(directory=data, settings=SASL) as server:
        assert _produced(server, "root", "PLAIN", "theirs") is None
        assert _produced(server, "ann", "SCRAM-SHA-512", "ours") is None
        admin = AdminClient(_login(server, "root", "PLAIN"))
        for future in admin.delete_acls([_acl(AclBindingFilter, "ours", "ann")]).values():
            assert len(future.result()) == 1
    with kafka_server(directory=data, settings=SASL) as server:  # what was changed here goes before what the broker had
        assert _produced(server, "ann", "SCRAM-SHA-512", "ours") == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _secure(bootstrap: str) -> None:
    """Two users of three, an entry of two, and two limits of three are left in the broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("ours", 1), NewTopic("theirs", 1)]).values():
        future.result()
    made = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), f"{user}'s password".encode())
        for user, mechanism in (
            ("ann", ScramMechanism.SCRAM_SHA_256), ("ann", ScramMechanism.SCRAM_SHA_512),
            ("bob", ScramMechanism.SCRAM_SHA_512), ("gone", ScramMechanism.SCRAM_SHA_256),
        )
    ]  # fmt: skip
    for user_change in (*([one] for one in made), [UserScramCredentialDeletion("gone", ScramMechanism.SCRAM_SHA_256)]):
        for future in admin.alter_user_scram_credentials(user_change).values():
            future.result()
    for future in admin.create_acls([_acl(AclBinding, "ours", "ann"), _acl(AclBinding, "theirs", "ann")]).values():
        future.result()
    for future in admin.delete_acls([_acl(AclBindingFilter, "theirs", "ann")]).values():
        future.result()
    ann = ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-default")
    everyone = ("--entity-type", "users", "--entity-default")
    _configs(bootstrap, *ann, "--add-config", "producer_byte_rate=123456,consumer_byte_rate=99")
    _configs(bootstrap, *ann, "--delete-config", "consumer_byte_rate")
    _configs(bootstrap, *everyone, "--add-config", "request_percentage=12.5")


def _configs(bootstrap: str, *arguments: str) -> None:
    command = toolchain.java_command(
        "kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--alter", *arguments, options=quick_start("4.3")
    )
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def _acl(kind: Any, topic: str, user: str) -> Any:
    return kind(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )  # fmt: skip


def _login(server: KafkaServer, user: str, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.username": user, "sasl.password": f"{user}'s password",
    }  # fmt: skip


def _produced(server: KafkaServer, user: str, mechanism: str, topic: str) -> int | None:
    """The code of the error with which a record was refused, None where it was taken."""
    errors: list[Any] = []
    producer = Producer({**_login(server, user, mechanism), "message.timeout.ms": 15_000})
    try:
        producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
        producer.flush(20)
    except KafkaException as error:
        return int(error.args[0].code())
    assert len(errors) == 1
    return None if errors[0] is None else int(errors[0].code())


def test_a_user_whom_the_broker_has_deleted_logs_in_in_no_order_of_directories(
    tmp_path: Path, reference: Reference
) -> None:
    """Kafka 4.3 formats each data directory with the first users, and deletes them in the log of one alone."""
    one, two = tmp_path / "one", tmp_path / "two"
    broker = Broker(reference, tmp_path / "broker", one, AUTHORIZED, others=[two])
    broker.format("--add-scram", "SCRAM-SHA-256=[name=gone,password=gone's password]")
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        keys = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        for change in (
            UserScramCredentialUpsertion("ann", keys, b"ann's password"),
            UserScramCredentialDeletion("gone", ScramMechanism.SCRAM_SHA_256),
        ):
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result()
    stale = read_cluster_metadata(two)
    assert stale is not None and stale.image.scram, "this directory still has the user"
    for order in ((one, two), (two, one)):
        with served_on(tmp_path, *order, settings=SASL) as server:
            assert _refused_login(server, "gone") and not _refused_login(server, "ann")


def _refused_login(server: Any, user: str) -> bool:
    errors: list[Any] = []
    admin = AdminClient({**_login(server, user, "SCRAM-SHA-256"), "error_cb": errors.append})
    for _ in range(200):
        admin.poll(0.1)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            return True
        try:
            admin.list_topics(timeout=0.2)
            return False
        except KafkaException:
            continue
    raise AssertionError(errors)

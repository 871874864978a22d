"""The matrix of operations and clients: which client has which operation, and how it is written down."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tests.interop.clients_aiokafka import AioKafka
from tests.interop.clients_confluent import ConfluentKafka
from tests.interop.clients_go import FranzGo
from tests.interop.clients_java import VERSIONS
from tests.interop.clients_kafka_python import KafkaPython
from tests.interop.clients_kcat import Kcat

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
"""What the server of the matrix is set to: rebalances that do not wait, and ACLs that can be made."""

OPERATIONS: Final = {
    **{f"acks_{acks}": f"produce with acks={acks}, consume" for acks in ("0", "1", "all")},
    **{f"codec_{codec}": f"the same with codec {codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")},
    "headers_and_times": "headers, timestamps, values that are null",
    "idempotent": "idempotent producer",
    "transactions": "transactions: commit, abort, read_committed, fencing",
    "transactional_offsets": "offsets of a group in a transaction",
    "transactions_2": "the same two with transaction.version 2 (KIP-890)",
    "offsets": "first and last offset, offset by time",
    "group_rebalance": "group of two members: rebalance, leave",
    "group_848": "the same with group.protocol=consumer (KIP-848)",
    "group_static": "static member that comes back",
    "group_commit_and_reset": "manual commit, seek, reset of an offset",
    "share_group": "share group: take, accept, release, reject, delivery counts (KIP-932)",
    "admin_topics": "create, list, describe, delete a topic",
    "admin_configs": "describe and alter settings",
    "admin_partitions": "add partitions",
    "admin_delete_records": "delete records",
    "admin_offsets": "list offsets: latest, of the largest timestamp",
    "admin_groups": "list, describe, alter, delete a group",
    "admin_share_group": "describe, alter, delete a share group and its offsets",
    "admin_acls": "create, describe, delete ACLs",
    "admin_quotas": "alter and describe quotas",
    "admin_scram": "alter and describe SCRAM users",
    "admin_log_dirs": "describe log directories",
    "admin_transactions": "list, describe, abort a transaction; producers",
    "admin_cluster": "describe the cluster",
    "admin_features": "describe and update features",
}
"""Every operation and what is done in it."""

_NEW: Final = ("transactions_2", "share_group", "admin_share_group")
"""What Java's client has since 4.x."""

_WITH_ARGUMENT: Final = ("acks", "codec")


def _runner(kind: Any) -> Callable[[str, str, str], None]:
    def run(bootstrap: str, topic: str, operation: str) -> None:
        name, arguments = _method(operation)
        client = kind(bootstrap, topic)
        try:
            if hasattr(client, "run"):
                client.run(name, *arguments)
            else:
                getattr(client, name)(*arguments)
        finally:
            client.close()

    return run


def _method(operation: str) -> tuple[str, tuple[str, ...]]:
    name, _, argument = operation.partition("_")
    return (name, (argument,)) if name in _WITH_ARGUMENT else (operation, ())


_KINDS: Final = {
    "confluent-kafka": ConfluentKafka, "aiokafka": AioKafka, "kafka-python": KafkaPython, "kcat": Kcat,
    "franz-go": FranzGo,
}  # fmt: skip
PYTHON_CLIENTS: Final = {name: _runner(kind) for name, kind in _KINDS.items()}
CLIENTS: Final = (*PYTHON_CLIENTS, *(f"Java {version}" for version in VERSIONS))


def has(client: str, operation: str) -> bool:
    """Return True if the client has the operation; those of Java 4 and Go have all."""
    kind = _KINDS.get(client)
    if kind is None:
        return client != "Java 3.9" or operation not in _NEW
    return hasattr(kind, "has_all") or hasattr(kind, _method(operation)[0])


def cells(clients: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Client and operation, wherever there is something to test."""
    for client in clients:
        for operation in OPERATIONS:
            if has(client, operation):
                yield client, operation


def table() -> str:
    """The matrix as docs/clients.md has it."""
    lines = [f"| operation | {' | '.join(CLIENTS)} |", "|---" * (len(CLIENTS) + 1) + "|"]
    for operation, what in OPERATIONS.items():
        marks = " | ".join("yes" if has(client, operation) else "-" for client in CLIENTS)
        lines.append(f"| {what} | {marks} |")
    return "\n".join(lines) + "\n"

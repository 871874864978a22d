"""Calls in which peers' suites saw a difference from a broker, the same to a broker and to kafkalog's server."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from tests.interop.group_members import LIMIT_S, asked, exchange
from tests.interop.share_calls import NOT_YET, Link
from tests.server.groups.test_mixed_groups import assignment, metadata
from tests.server.nodes import request_bytes

Step = tuple[str, Any]
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
GZIP, NONE, ZSTD = CompressionType.GZIP, CompressionType.NONE, CompressionType.ZSTD
LIMIT: Final = "max.decompressed.message.bytes"
_METADATA_FLAGS: Final = (
    "allow_auto_topic_creation", "include_cluster_authorized_operations", "include_topic_authorized_operations",
)  # fmt: skip
LIVE_HERE: Final = {"connections.max.idle.ms"}
"""Settings that a broker reads only at its start."""
ACLS: Final = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
LONGER: Final[tuple[tuple[str, int, dict[str, Any]], ...]] = (
    ("describe_acls", 1, ACLS), ("describe_acls", 3, ACLS), ("metadata", 1, {"topics": []}),
    ("list_groups", 4, {"states_filter": []}), ("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["x"]}),
    ("api_versions", 0, {}),
)  # fmt: skip
"""Requests to which bytes are added."""
CHANGES: Final[tuple[tuple[str, str, int, str | None], ...]] = (
    *(("1", name, DELETE, None) for name in (
        "no.such", "leader.replication.throttled.rate", "num.io.threads", "node.id", "listeners", "super.users",
    )),
    ("", "follower.replication.throttled.rate", DELETE, None),
    ("", "no.such", DELETE, None),
    ("1", "no.such", SET, "a value"),
    ("", "no.such", SET, "a value"),
    ("1", "node.id", SET, "3"),
    ("1", "advertised.listeners", SET, "PLAINTEXT://a:1"),
    ("", "broker.rack", SET, "r"),
    ("1", "log.retention.ms", SET, "abc"),
    ("1", "message.max.bytes", SET, "-2"),
    ("1", "compression.type", SET, "foo"),
    ("1", "num.io.threads", SET, "x"),
    ("1", "num.io.threads", SET, "99"),
    ("1", "num.io.threads", SET, "3"),
    ("1", "num.network.threads", SET, "2"),
    ("1", "num.replica.fetchers", SET, "2"),
    ("1", "background.threads", SET, "3"),
)  # fmt: skip
"""Changes of a node's settings: resource, name, operation, value."""


def conversation(bootstrap: str) -> Iterator[Step]:
    """Everything, in order."""
    asked(bootstrap, "list_groups", 5, {"states_filter": [], "types_filter": []})  # until groups are loaded
    asked(bootstrap, "find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["x"]})  # until their topic is there
    for name, version, tree in LONGER:
        plain = request_bytes(name, version, tree)
        answers = [exchange(bootstrap, plain + extra) for extra in (b"", b"\0", b"\1\2junk")]
        yield f"bytes after {name} {version}", [one == answers[0] and len(one) > 4 for one in answers]
    with Link(bootstrap) as link:
        yield from _changes(link)
        yield from _rows(link, bootstrap)
        yield from _policies(link)
        yield from _a_topic_that_is_made(link)
        yield from _members_without_topics(link)
        yield from _upgrades(link)
        yield from _static_upgrades(link)
        yield from _decompressed(link)


def _changes(link: Link) -> Iterator[Step]:
    for resource, name, operation, value in CHANGES:
        row = {"name": name, "config_operation": operation, "value": value}
        tree = {"resource_type": BROKER, "resource_name": resource, "configs": [row]}
        answer = link.ask("incremental_alter_configs", 1, {"resources": [tree], "validate_only": False})
        yield f"{resource} {name} {operation} {value}", _errors(answer.responses)
    row = {"name": "no.such", "config_operation": DELETE, "value": None}
    for resource, wanted in (("1", {2, 3}), ("", {3})):  # a broker reads its metadata later
        while _sources(link, "1", "no.such") != wanted:
            time.sleep(0.02)
        yield f"what is kept of {resource or 'all'}", _shown(link, "1", "no.such")
        tree = {"resource_type": BROKER, "resource_name": resource, "configs": [row]}
        answer = link.ask("incremental_alter_configs", 1, {"resources": [tree], "validate_only": False})
        yield f"removed of {resource or 'all'}", _errors(answer.responses)
    while _sources(link, "1", "no.such"):
        time.sleep(0.02)


def _errors(rows: Any) -> list[tuple[int, str | None]]:
    return [(int(one.error_code), one.error_message) for one in rows]


def _described(link: Link, kind: int, name: str, *keys: str) -> list[Any]:
    tree = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}],
        "include_synonyms": True, "include_documentation": False,
    }  # fmt: skip
    (row,) = link.ask("describe_configs", 4, tree).results
    assert row.error_code == 0, row
    return sorted(row.configs, key=lambda one: str(one.name))


def _sources(link: Link, name: str, key: str) -> set[int]:
    return {other.source for one in _described(link, BROKER, name, key) for other in one.synonyms}


def _shown(link: Link, name: str, *keys: str) -> list[tuple[Any, ...]]:
    return [
        (one.name, one.value, one.read_only, one.is_sensitive, one.config_source, one.config_type,
         [(other.value, other.source) for other in one.synonyms])
        for one in _described(link, BROKER, name, *keys)
    ]  # fmt: skip


def _rows(link: Link, bootstrap: str) -> Iterator[Step]:
    """Yield all rows of the node with their marks, and some with values."""
    host, _, port = bootstrap.rpartition(":")
    rows = _described(link, BROKER, "1")
    yield "rows", [
        (one.name, one.read_only, one.is_sensitive, one.config_type) for one in rows
        if not one.name.startswith("kafkalog.") and one.name not in LIVE_HERE
    ]  # fmt: skip
    yield "super.users", _shown(link, "1", "super.users")
    (own,) = _described(link, BROKER, "1", "advertised.listeners")
    yield "advertised.listeners", (own.value == f"PLAINTEXT://{host}:{port}", own.read_only, own.config_source)
    yield "node.id", _shown(link, "1", "node.id")


def _policies(link: Link) -> Iterator[Step]:
    for number, policy in enumerate(("compact,delete", "delete,compact")):
        configs = [{"name": "cleanup.policy", "value": policy}]
        yield f"made with {policy}", _made(link, f"policy-{number}", configs=configs)
        _until_known(link, f"policy-{number}")
        found = _described(link, TOPIC, f"policy-{number}", "cleanup.policy")
        yield f"shown of {policy}", [(one.value, one.config_source) for one in found]


def _made(link: Link, name: str, partitions: int = 1, configs: Sequence[dict[str, str]] = ()) -> list[Any]:
    topic = {
        "name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": configs
    }  # fmt: skip
    answer = link.ask("create_topics", 7, {"topics": [topic], "timeout": 10_000, "validate_only": False})
    return _errors(answer.topics)


def _metadata(link: Link, name: str, version: int = 4) -> Any:
    tree = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    return link.ask("metadata", version, tree).topics[0]


def _until_known(link: Link, name: str) -> set[int]:
    """Ask for a topic until it is there; return the errors until then."""
    codes, deadline = set[int](), time.monotonic() + LIMIT_S
    while (found := _metadata(link, name)).error_code:
        codes.add(int(found.error_code))
        assert time.monotonic() < deadline, found
    assert len(found.partitions) == 1
    return codes


def _a_topic_that_is_made(link: Link) -> Iterator[Step]:
    """A client that watches the topic first sees that it is unknown, then the topic."""
    for number in range(5):
        first = _metadata(link, f"auto-{number}")
        yield f"a topic that is asked for, {number}", (int(first.error_code), first.partitions)
        codes = _until_known(link, f"auto-{number}")
        yield f"until it is there, {number}", codes - {5} <= {3}  # a broker may have it before it has a leader


def _join(link: Link, group: str, member: str = "", *, instance: str | None = None) -> Any:
    tree = {"group_id": group, "session_timeout": 30_000, "rebalance_timeout": 60_000, "member_id": member,
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": metadata()}],
            "group_instance_id": instance, "reason": None}  # fmt: skip
    found = link.ask("join_group", 9, tree)
    if found.error_code == 79 and not member:
        return _join(link, group, found.member_id)
    return found


def _classic(
    link: Link, group: str, user_data: bytes | None = None, *, instance: str | None = None
) -> tuple[list[int], str]:
    """Make a classic group of one member; return the errors and the member's id."""
    joined = _join(link, group, instance=instance)
    given = [{"member_id": joined.member_id, "assignment": assignment(0, user_data=user_data)}]
    synced = _sync(link, group, joined, given, instance)
    return [int(joined.error_code), int(synced.error_code)], joined.member_id


def _sync(link: Link, group: str, joined: Any, given: Sequence[dict[str, Any]], instance: str | None) -> Any:
    return link.ask("sync_group", 5, {
        "group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id,
        "group_instance_id": instance, "protocol_type": "consumer", "protocol_name": "range", "assignments": given,
    })  # fmt: skip


def _beat(link: Link, group: str, member: str, *, instance: str | None = None) -> int:
    tree = {"group_id": group, "generation_id": 1, "member_id": member, "group_instance_id": instance}
    return int(link.ask("heartbeat", 4, tree).error_code)


def _consumer_beat(
    link: Link, group: str, epoch: int, *, member: str = "new", instance: str | None = None,
    topics: Sequence[str] | None = ("t",), regex: str | None = None,
) -> Any:  # fmt: skip
    return link.ask("consumer_group_heartbeat", 1, {
        "group_id": group, "member_id": member, "member_epoch": epoch, "instance_id": instance, "rack_id": None,
        "rebalance_timeout": 60_000 if epoch == 0 else -1, "subscribed_topic_names": None if epoch else topics,
        "subscribed_topic_regex": regex, "server_assignor": None, "topic_partitions": None if epoch else [],
    })  # fmt: skip


def _kind(link: Link, group: str) -> list[str]:
    listed = link.ask("list_groups", 5, {"states_filter": [], "types_filter": []}).groups
    return [one.group_type for one in listed if one.group_id == group]


def _members_without_topics(link: Link) -> Iterator[Step]:
    """A consumer whose own pattern matches nothing sends an empty list of names."""
    group = "quiet"
    for what, member, epoch, topics, regex in (
        ("no names", "a", 0, (), None), ("the same again", "a", 0, (), None), ("an empty pattern", "b", 0, None, ""),
        ("neither", "c", 0, None, None), ("a beat", "a", 1, None, None), ("a topic", "c", 0, ("none",), None),
        ("no names beside it", "d", 0, (), None),
    ):  # fmt: skip
        found = _consumer_beat(link, group, epoch, member=member, topics=topics, regex=regex)
        yield f"without topics: {what}", (int(found.error_code), found.error_message, found.member_epoch)


def _upgrades(link: Link) -> Iterator[Step]:
    """A classic group becomes a consumer group while it has a member, and a classic one again."""
    yield "topic t", _made(link, "t")
    _until_known(link, "t")
    codes, member = _classic(link, "moves")
    yield "a classic group", (codes, _beat(link, "moves", member), _kind(link, "moves"))
    joined = _consumer_beat(link, "moves", 0)
    yield "a consumer joins", (int(joined.error_code), joined.error_message, _kind(link, "moves"))
    deadline = time.monotonic() + LIMIT_S
    while (code := _beat(link, "moves", member)) == 0:
        assert time.monotonic() < deadline, "the classic member is not asked to join again"
        time.sleep(0.05)
    yield "the classic member has to join again", code
    rejoined = _join(link, "moves", member)
    yield "it joins", (int(rejoined.error_code), rejoined.protocol_name, rejoined.leader == member)
    left = _consumer_beat(link, "moves", -1)
    yield "the consumer leaves", (int(left.error_code), _kind(link, "moves"))
    codes, _ = _classic(link, "stays", user_data=struct.pack(">i", 5))
    refused = _consumer_beat(link, "stays", 0)
    yield "user data of an assignor", (codes, int(refused.error_code), refused.error_message, _kind(link, "stays"))


def _static_upgrades(link: Link) -> Iterator[Step]:
    """A static member changes to the new protocol and back, each time with its next client."""
    group, instance = "statics", "i"
    codes, member = _classic(link, group, instance=instance)
    yield "a static member", (codes, _beat(link, group, member, instance=instance), _kind(link, group))
    for what, epoch, other in (
        ("its next client is a consumer", 0, "new"), ("a second client has its name", 0, "other"),
        ("the name of another client", 1, "other"), ("it is away for a while", -2, "new"),
        ("it is back with another id", 0, "other"),
    ):  # fmt: skip
        found = _consumer_beat(link, group, epoch, member=other, instance=instance)
        yield f"static: {what}", (int(found.error_code), found.error_message, found.member_epoch, _kind(link, group))
        code = _beat(link, group, member, instance=instance)
        yield f"static: {what}, and the first client beats", code
    joined = _join(link, group, instance=instance)
    yield "static: a classic client again", (
        int(joined.error_code), joined.generation_id, joined.protocol_name, joined.leader == joined.member_id,
        len(joined.members), _kind(link, group),
    )  # fmt: skip
    given = [{"member_id": joined.member_id, "assignment": assignment(0)}]
    synced = _sync(link, group, joined, given, instance)
    yield "static: it syncs", (int(synced.error_code), bytes(synced.assignment), _kind(link, group))
    late = _consumer_beat(link, group, 2, member="other", instance=instance)
    yield "static: the consumer beats late", (int(late.error_code), late.error_message)


def _decompressed(link: Link) -> Iterator[Step]:
    """Produce and look up records above and below `max.decompressed.message.bytes`."""
    yield "a topic with a limit", _made(link, "small", configs=[{"name": LIMIT, "value": "1000"}])
    _until_known(link, "small")
    now = time.time_ns() // 10**6
    for size, codec in ((992, GZIP), (993, GZIP), (2000, ZSTD), (2000, NONE)):
        records = RecordsBuilder(compression=codec)
        records.append(now, b"k", b"v" * size)
        data = [{"name": "small", "partition_data": [{"index": 0, "records": records.build()}]}]
        tree = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": data}
        row, deadline = None, time.monotonic() + LIMIT_S
        while row is None or row.error_code in NOT_YET and time.monotonic() < deadline:
            (row,) = link.ask("produce", 9, tree).responses[0].partition_responses
        yield f"{size} bytes with {codec.name}", (int(row.error_code), row.base_offset, row.error_message)
    change = {"name": LIMIT, "config_operation": SET, "value": "500"}
    resource = {"resource_type": TOPIC, "resource_name": "small", "configs": [change]}
    link.ask("incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})
    deadline = time.monotonic() + LIMIT_S
    while not (code := _looked_up(link, now)) and time.monotonic() < deadline:  # a broker reads its metadata later
        time.sleep(0.05)
    yield "looked up by time", code


def _looked_up(link: Link, timestamp: int) -> int:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = [{"name": "small", "partitions": [partition]}]
    found = link.ask("list_offsets", 4, {"replica_id": -1, "isolation_level": 0, "topics": topics})
    return int(found.topics[0].partitions[0].error_code)


def administration(bootstrap: str, suffix: str, ids: list[int]) -> Iterator[Step]:
    """Administrators' calls to one node of a cluster of `ids`, with the name of its own topic as "NAME"."""
    name, user = f"topic-{suffix}", f"user-{suffix}"
    with Link(bootstrap) as link:
        for what, call, version, tree in _administrators_calls(name, user, ids):
            answer = link.ask(call, version, tree)
            (rows,) = [value for value in answer if isinstance(value, tuple)]
            found = [(code, words and words.replace(name, "NAME")) for code, words in _errors(rows)]
            yield what, [*found, *(len(one.matching_acls) for one in rows if call == "delete_acls")]


def _administrators_calls(name: str, user: str, ids: list[int]) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    def creation(*replicas: int) -> dict[str, Any]:
        topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "configs": [],
                 "assignments": [{"partition_index": 0, "broker_ids": replicas}]}  # fmt: skip
        return {"topics": [topic], "timeout": 10_000, "validate_only": False}

    for what, replicas in (
        ("an unknown node", [*ids[:-1], 77]), ("one node twice", [ids[0], ids[0]]), ("no nodes", []), ("its own", ids),
        ("once more", ids),
    ):  # fmt: skip
        yield f"assigned to {what}", "create_topics", 7, creation(*replicas)
    topic = {"resource_type": TOPIC, "resource_name": name}
    only = {"validate_only": False}
    row = {"name": "retention.ms", "config_operation": SET, "value": "9000"}
    yield "settings", "incremental_alter_configs", 1, {"resources": [{**topic, "configs": [row]}], **only}
    row = {"name": "flush.ms", "value": "7"}
    yield "all settings", "alter_configs", 2, {"resources": [{**topic, "configs": [row]}], **only}
    quota = {"entity": [{"entity_type": "user", "entity_name": user}],
             "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}  # fmt: skip
    yield "quotas", "alter_client_quotas", 1, {"entries": [quota], **only}
    acl = {"resource_type": 2, "resource_name": name, "resource_pattern_type": 3, "principal": f"User:{user}",
           "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
    yield "an ACL", "create_acls", 3, {"creations": [acl]}
    wanted = ACLS | {"resource_name_filter": name, "resource_type_filter": 2}
    yield "its end", "delete_acls", 3, {"filters": [wanted]}
    upsertion = {"name": user, "mechanism": 1, "iterations": 4096, "salt": b"s" * 24, "salted_password": b"p" * 32}
    yield "a user", "alter_user_scram_credentials", 0, {"deletions": [], "upsertions": [upsertion]}
    level = {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}
    yield "features", "update_features", 1, {"feature_updates": [level], "timeout": 10_000, **only}
    more = {"name": name, "count": 2, "assignments": None}
    yield "more partitions", "create_partitions", 3, {"topics": [more], "timeout": 10_000, **only}
    yield "the end", "delete_topics", 6, {"topics": [{"name": name, "topic_id": None}], "timeout": 10_000}
    yield "it has ended", "delete_topics", 6, {"topics": [{"name": name, "topic_id": None}], "timeout": 10_000}


def nodes_named_by(bootstrap: str, count: int) -> set[tuple[int, str, int, str | None]]:
    """Return id, host, port and rack of every node by Metadata and DescribeCluster, once `count` have given a rack."""
    cluster = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}
    deadline = time.monotonic() + LIMIT_S
    while True:
        metadata = asked(bootstrap, "metadata", 12, {"topics": [], **dict.fromkeys(_METADATA_FLAGS, False)}).brokers
        found = {(one.node_id, one.host, one.port, one.rack) for one in metadata}
        described = asked(bootstrap, "describe_cluster", 2, cluster).brokers
        is_same = found == {(one.broker_id, one.host, one.port, one.rack) for one in described}
        if is_same and sum(rack is not None for *_, rack in found) == count:
            return found
        assert time.monotonic() < deadline, (metadata, described)
        time.sleep(0.1)

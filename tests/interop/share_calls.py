"""Calls of share groups over a link, and the compared fields: errors, acquired records, members, offsets."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from itertools import count
from typing import Any, Final, Self

from confluent_kafka import Consumer, TopicPartition

from kafkalog.server.wire.reader import read_response
from kafkalog.server.wire.versions import APIS
from tests.interop.group_members import LIMIT_S, asked
from tests.raw_batches import batch
from tests.server.nodes import KEYS, request_bytes

GROUP: Final = 32
"""Type of a group's settings."""
NOT_YET: Final = (3, 6)
"""Errors of a broker that knows a new topic a moment later than its controller, or leads it a moment later."""
_NOT_ACQUIRED: Final = 121
_SHOWN: Final = (
    "error_code", "error_message", "acknowledge_error_code", "acknowledge_error_message", "acquired_records",
    "partition_index", "first_offset", "last_offset", "delivery_count", "group_state", "assignor_name", "start_offset",
    "lag", "heartbeat_interval", "acquisition_lock_timeout", "topic_name", "member_epoch", "group_id", "group_type",
    "protocol_type", "subscribed_topic_names", "partitions",
)  # fmt: skip


class Link:
    """A connection that stays open: a broker ends the share sessions of one that closes."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), LIMIT_S)
        self._stream = self._socket.makefile("rb")

    def ask(self, name: str, version: int, tree: Mapping[str, Any]) -> Any:
        request = request_bytes(name, version, tree)
        self._socket.sendall(len(request).to_bytes(4, "big") + request)
        data = self._stream.read(int.from_bytes(self._stream.read(4), "big"))
        return read_response(KEYS[name], version, data, 5 if APIS[KEYS[name]].is_flexible(version) else 4)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stream.close()
        self._socket.close()


def as_dict(value: Any) -> Any:
    """Return the part to compare: names and values of the compared fields, and the values of records."""
    if hasattr(value, "_fields"):
        found = {}
        for name in value._fields:
            one = getattr(value, name)
            if name == "records":
                found[name] = bytes(one).count(b"value-")
            elif isinstance(one, tuple) and (hasattr(one, "_fields") or any(hasattr(row, "_fields") for row in one)):
                inner = as_dict(one)
                if inner not in ({}, [], [{}]):
                    found[name] = sorted(inner, key=repr) if isinstance(inner, list) else inner
            elif name in _SHOWN and one not in (None, (), ""):
                found[name] = one
        if found.get("error_code") == _NOT_ACQUIRED:
            found.pop("error_message", None)  # it depends on how a broker groups records
        return found
    return [as_dict(one) if hasattr(one, "_fields") else one for one in value] if isinstance(value, tuple) else value


class Talker:
    """One who makes the calls, to group `g` and topic `t`; `epoch` is that of the last request of a session."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic_id: Any = None
        self.epoch = 0

    def make_topic(self, name: str = "t", partitions: int = 1, **settings: str) -> Any:
        configs = [{"name": key.replace("_", "."), "value": value} for key, value in settings.items()]
        topic = {
            "name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": configs
        }  # fmt: skip
        tree = {"topics": [topic], "timeout": 60_000, "validate_only": False}
        made = asked(self.bootstrap, "create_topics", 7, tree).topics[0]
        assert made.error_code == 0
        asked(self.bootstrap, "find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
        self._wait_for_leaders(name, partitions)
        return made.topic_id

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        """Wait until the broker has the topic that its controller has made."""
        tree = {
            "topics": [{"name": name}], "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False, "include_topic_authorized_operations": False,
        }  # fmt: skip
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = asked(self.bootstrap, "metadata", 9, tree).topics[0].partitions
            if len(found) == partitions and all(one.leader_id >= 0 for one in found):
                return
            assert time.monotonic() < deadline, name
            time.sleep(0.02)

    def produce(self, *sizes: int, topic: str = "t") -> None:
        """Produce batches of so many records."""
        for size in sizes:
            records = batch(0, [b"value-%d" % number for number in range(size)], timestamp=time.time_ns() // 10**6)
            data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
            tree = {"transactional_id": None, "acks": -1, "timeout": 60_000, "topic_data": data}
            deadline = time.monotonic() + LIMIT_S
            while True:
                found = asked(self.bootstrap, "produce", 9, tree).responses[0].partition_responses[0]
                if found.error_code not in NOT_YET:
                    break
                assert time.monotonic() < deadline, found
            assert found.error_code == 0, found

    def set_group(self, group_id: str, **settings: str) -> None:
        changed = {name.replace("_", "."): value for name, value in settings.items()}
        rows = [{"name": name, "config_operation": 0, "value": value} for name, value in changed.items()]
        resources = [{"resource_type": GROUP, "resource_name": group_id, "configs": rows}]
        tree = {"resources": resources, "validate_only": False}
        made = asked(self.bootstrap, "incremental_alter_configs", 1, tree).responses[0]
        assert made.error_code == 0, made
        resources = [{"resource_type": GROUP, "resource_name": group_id, "configuration_keys": list(changed)}]
        tree = {"resources": resources, "include_synonyms": False, "include_documentation": False}
        deadline = time.monotonic() + LIMIT_S
        while True:  # the broker has it a moment later
            (found,) = asked(self.bootstrap, "describe_configs", 4, tree).results
            if changed.items() <= {one.name: one.value for one in found.configs}.items():
                return
            assert time.monotonic() < deadline, found

    def set_feature(self, name: str, level: int) -> None:
        """Set a feature's level, down to 0 as well."""
        update = {"feature": name, "max_version_level": level, "upgrade_type": 1 if level else 3}
        tree = {"timeout": 60_000, "feature_updates": [update], "validate_only": False}
        made = asked(self.bootstrap, "update_features", 1, tree)
        assert made.error_code == 0, made

    def beat(self, link: Link, member: str, epoch: int, *topics: str, group: str = "g", rack: str | None = None) -> Any:
        return link.ask("share_group_heartbeat", 1, {
            "group_id": group, "member_id": member, "member_epoch": epoch, "rack_id": rack,
            "subscribed_topic_names": list(topics) or None,
        })  # fmt: skip

    def join(self, link: Link, member: str, *topics: str, group: str = "g") -> int:
        """Join, and beat until partitions are assigned; return the epoch."""
        deadline = time.monotonic() + LIMIT_S
        found = self.beat(link, member, 0, *topics, group=group)
        while found.assignment is None or not found.assignment.topic_partitions:
            assert found.error_code == 0 or found.error_code in (14, 15, 16), found
            assert time.monotonic() < deadline, "nothing is assigned"
            time.sleep(0.05)
            found = self.beat(link, member, found.member_epoch, *topics, group=group)
        assert found.error_code == 0
        return int(found.member_epoch)

    def fetch(self, link: Link, member: str, epoch: int, *acks: Any, version: int = 2, **more: Any) -> Any:
        index = more.pop("index", 0)
        partition = {"partition_index": index, "acknowledgement_batches": [ack(*one) for one in acks]}
        topics = [{"topic_id": more.pop("topic_id", self.topic_id), "partitions": [partition]}]
        return link.ask("share_fetch", version, {
            "group_id": "g", "member_id": member, "share_session_epoch": epoch, "max_wait": 0, "min_bytes": 1,
            "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, "topics": topics, "forgotten_topics_data": [],
        } | more)  # fmt: skip

    def first_records(self, link: Link, member: str, **more: Any) -> tuple[Any, int]:
        """Begin a session, and fetch until there are records; return the answer and the next epoch."""
        deadline = time.monotonic() + LIMIT_S
        for epoch in count():
            found = self.fetch(link, member, epoch, max_wait=500, **more)
            if any(row.acquired_records for topic in found.responses for row in topic.partitions):
                return found, epoch + 1
            assert not found.error_code and time.monotonic() < deadline, found
        raise AssertionError

    def acknowledge(self, link: Link, member: str, epoch: int, *acks: Any, **more: Any) -> Any:
        index = more.pop("index", 0)
        partition = {"partition_index": index, "acknowledgement_batches": [ack(*one) for one in acks]}
        topics = [{"topic_id": more.pop("topic_id", self.topic_id), "partitions": [partition]}] if acks else []
        return link.ask("share_acknowledge", more.pop("version", 2), {
            "group_id": "g", "member_id": member, "share_session_epoch": epoch, "topics": topics
        } | more)  # fmt: skip

    def offsets(self, group: str = "g", topics: Any = None) -> Any:
        tree = {"groups": [{"group_id": group, "topics": topics}]}
        return asked(self.bootstrap, "describe_share_group_offsets", 1, tree)


    def letters(self, topic: str, count: int) -> list[tuple[Any, ...]]:
        """So many dead letters in partition 0: key, value and headers, sorted."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "letters"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[Any, ...]] = []
        deadline = time.monotonic() + LIMIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {found}"
            for message in consumer.consume(count, 0.2):
                assert message.error() is None, message.error()
                found.append((message.headers(), message.key(), message.value()))
        consumer.close()
        return sorted(found)


def ack(first: int, last: int, *types: int) -> dict[str, Any]:
    """A row of a request."""
    return {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}

"""Requests made by the schemas with values that get far: groups, members, topics and directories that may be there."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from kafkalog.server.settings.features import SUPPORTED
from kafkalog.server.wire.definitions import FieldPlan
from kafkalog.server.wire.versions import unsigned_varint
from tests.server.hostile import FORMS, Hostile

CALLS: Final = (
    "alter_partition_reassignments", "alter_replica_log_dirs", "alter_share_group_offsets", "consumer_group_describe",
    "consumer_group_heartbeat", "create_delegation_token", "delete_groups", "delete_share_group_offsets",
    "describe_configs", "describe_delegation_token", "describe_groups", "describe_log_dirs", "describe_quorum",
    "describe_share_group_offsets", "describe_topic_partitions", "elect_leaders", "get_telemetry_subscriptions",
    "incremental_alter_configs", "list_config_resources", "list_partition_reassignments", "push_telemetry",
    "share_acknowledge", "share_fetch", "share_fetch", "share_group_describe", "share_group_heartbeat",
    "share_group_heartbeat", "txn_offset_commit", "unregister_broker", "update_features",
)  # fmt: skip
"""What these requests are for: calls whose parts have to fit together before most of their code is reached."""
_TOPICS: Final = ("t", "u")
_MEMBERS: Final = ("lGBmJ3f1QY2mR8cVq4d4Ww", "2aJ5pPjTRrSSqBXwd4Fd1g", "m")
_GROUPS: Final = ("s0", "s1", "g0", "g1")
_TEXTS: Final[dict[str, Sequence[str]]] = {
    "group_id": _GROUPS, "group_ids": _GROUPS, "groups": _GROUPS, "groups_names": _GROUPS, "member_id": _MEMBERS,
    "topic": _TOPICS, "topics": _TOPICS, "topic_name": _TOPICS, "subscribed_topic_names": _TOPICS,
    "feature": tuple(SUPPORTED), "resource_name": ("", "1", "t", "s0", "metrics"), "transactional_id": ("x0", "x1"),
    "config_operation": ("0",), "value": ("", "1", "-1", "5000", "latest", "by_duration:PT1H", "0:1", "1:1,0:1"),
    "configuration_keys": ("share.auto.offset.reset", "cleanup.policy", "retention.ms", "metrics", "interval.ms"),
}  # fmt: skip
_NAMES: Final = (*_TOPICS, "share.auto.offset.reset",
                 "share.record.lock.duration.ms", "metrics", "interval.ms", "match",
                 "max.decompressed.message.bytes", "retention.ms")  # fmt: skip
_NUMBERS: Final[dict[str, Sequence[int]]] = {
    "acknowledge_types": (0, 1, 2, 3, 4, 5, -1), "broker_id": (1, 1, 2), "config_operation": (0, 0, 1, 2, 3),
    "first_offset": (0, 1, 3, 10, 100), "last_offset": (0, 1, 4, 10, 99, 101, 2**62), "max_wait": (0, 1, 20),
    "max_version_level": (0, 1, 2), "member_epoch": (0, 0, 1, 2, 3, 4, -1), "replicas": (1, 1, 1, 2),
    "resource_type": (2, 8, 16, 32), "resource_types": (2, 4, 8, 16, 32), "share_session_epoch": (0, 1, 2, 3, -1),
    "start_offset": (0, 1, 5, -1, 10**6), "upgrade_type": (1, 1, 2, 3), "is_renew_ack": (0,),
}  # fmt: skip
_SMALL: Final = (0, 0, 0, 1, 1, 2, 5, 100, 1 << 16, -1)


class Plausible(Hostile):
    """Such requests out of a seed. `paths` are the server's data directories."""

    def __init__(self, seed: int, batches: list[bytes], ids: list[bytes], paths: Sequence[str]) -> None:
        super().__init__(seed, batches, ids)
        self._paths = (*paths, "/nowhere") if paths else ("/nowhere",)

    def _one(self, field: FieldPlan, is_flexible: bool, may_be_null: bool) -> bytes:
        if self.random.random() < 0.03:
            return super()._one(field, is_flexible, may_be_null)
        if field.kind == "uuid":
            return self.random.choice(self._ids)
        if field.kind == "string" and not (may_be_null and self.random.random() < 0.2):
            data = self.random.choice(self._texts(field.name)).encode()
            return (unsigned_varint(len(data) + 1) if is_flexible else struct.pack(">h", len(data))) + data
        if field.kind in FORMS:
            return self._fitting(FORMS[field.kind], self.random.choice(_NUMBERS.get(field.name, _SMALL)))
        return super()._one(field, is_flexible, may_be_null)

    def _texts(self, name: str) -> Sequence[str]:
        return self._paths if name == "path" else _TEXTS.get(name, _NAMES)

    def _fitting(self, form: str, value: int) -> bytes:
        bits = 8 * struct.calcsize(form)
        return struct.pack(form, value & (1 << bits) - 1 if form[1].isupper() else min(value, (1 << bits - 1) - 1))

"""The calls that are served and their versions, and the ApiVersions response.

The ranges are those of a 4.4.0 broker (FLOW-25) for the calls served here.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

API_VERSIONS = 18
PRODUCE = 0
FETCH = 1
METADATA = 3
ALTER_USER_SCRAM_CREDENTIALS = 51
ENVELOPE = 58
SHARE_FETCH = 78

UNSUPPORTED_VERSION = 35
NO_FLEXIBLE = 1 << 15


class Api(NamedTuple):
    """A call: its key, kio's name for it, the versions offered, the first flexible one, the first one served."""

    key: int
    name: str
    oldest: int
    newest: int
    first_flexible: int
    first_served: int = 0

    def serves(self, version: int) -> bool:
        """Return True if this version is served; Produce 0 to 2 are offered but rejected, as in a broker."""
        return max(self.oldest, self.first_served) <= version <= self.newest

    def is_flexible(self, version: int) -> bool:
        """Return True if this version has compact lengths and tagged fields, and thus headers with tags."""
        return version >= self.first_flexible


# Produce is offered from 0, else librdkafka 2.0 sends everything uncompressed
_ROWS = (
    Api(0, "produce", 0, 13, 9, first_served=3),
    Api(1, "fetch", 4, 18, 12),
    Api(2, "list_offsets", 1, 11, 6),
    Api(3, "metadata", 0, 13, 9),
    Api(8, "offset_commit", 2, 10, 8),
    Api(9, "offset_fetch", 1, 10, 6),
    Api(10, "find_coordinator", 0, 6, 3),
    Api(11, "join_group", 0, 9, 6),
    Api(12, "heartbeat", 0, 4, 4),
    Api(13, "leave_group", 0, 5, 4),
    Api(14, "sync_group", 0, 5, 4),
    Api(15, "describe_groups", 0, 6, 5),
    Api(16, "list_groups", 0, 5, 3),
    Api(17, "sasl_handshake", 0, 1, NO_FLEXIBLE),
    Api(18, "api_versions", 0, 5, 3),
    Api(19, "create_topics", 2, 7, 5),
    Api(20, "delete_topics", 1, 6, 4),
    Api(21, "delete_records", 0, 2, 2),
    Api(22, "init_producer_id", 0, 5, 2),
    Api(23, "offset_for_leader_epoch", 2, 4, 4),
    Api(24, "add_partitions_to_txn", 0, 5, 3),
    Api(25, "add_offsets_to_txn", 0, 4, 3),
    Api(26, "end_txn", 0, 5, 3),
    Api(27, "write_txn_markers", 1, 2, 1),
    Api(28, "txn_offset_commit", 0, 6, 3),
    Api(29, "describe_acls", 1, 3, 2),
    Api(30, "create_acls", 1, 3, 2),
    Api(31, "delete_acls", 1, 3, 2),
    Api(32, "describe_configs", 1, 4, 4),
    Api(33, "alter_configs", 0, 2, 2),
    Api(34, "alter_replica_log_dirs", 1, 2, 2),
    Api(35, "describe_log_dirs", 1, 5, 2),
    Api(36, "sasl_authenticate", 0, 2, 2),
    Api(37, "create_partitions", 0, 3, 2),
    Api(38, "create_delegation_token", 1, 3, 2),
    Api(39, "renew_delegation_token", 1, 2, 2),
    Api(40, "expire_delegation_token", 1, 2, 2),
    Api(41, "describe_delegation_token", 1, 3, 2),
    Api(42, "delete_groups", 0, 3, 2),
    Api(43, "elect_leaders", 0, 2, 2),
    Api(44, "incremental_alter_configs", 0, 1, 1),
    Api(45, "alter_partition_reassignments", 0, 1, 0),
    Api(46, "list_partition_reassignments", 0, 0, 0),
    Api(47, "offset_delete", 0, 0, NO_FLEXIBLE),
    Api(48, "describe_client_quotas", 0, 1, 1),
    Api(49, "alter_client_quotas", 0, 1, 1),
    Api(50, "describe_user_scram_credentials", 0, 0, 0),
    Api(51, "alter_user_scram_credentials", 0, 0, 0),
    Api(52, "vote", 0, 2, 0),
    Api(53, "begin_quorum_epoch", 0, 1, 1),
    Api(54, "end_quorum_epoch", 0, 1, 1),
    Api(55, "describe_quorum", 0, 2, 0),
    Api(57, "update_features", 0, 2, 0),
    Api(58, "envelope", 0, 0, 0),
    Api(59, "fetch_snapshot", 0, 1, 0),
    Api(60, "describe_cluster", 0, 2, 0),
    Api(61, "describe_producers", 0, 0, 0),
    Api(64, "unregister_broker", 0, 0, 0),
    Api(65, "describe_transactions", 0, 0, 0),
    Api(66, "list_transactions", 0, 2, 0),
    Api(68, "consumer_group_heartbeat", 0, 1, 0),
    Api(69, "consumer_group_describe", 0, 1, 0),
    Api(71, "get_telemetry_subscriptions", 0, 0, 0),
    Api(72, "push_telemetry", 0, 0, 0),
    Api(74, "list_config_resources", 0, 1, 0),
    Api(75, "describe_topic_partitions", 0, 0, 0),
    Api(76, "share_group_heartbeat", 1, 1, 0),
    Api(77, "share_group_describe", 1, 1, 0),
    Api(78, "share_fetch", 1, 2, 0),
    Api(79, "share_acknowledge", 1, 2, 0),
    Api(90, "describe_share_group_offsets", 0, 1, 0),
    Api(91, "alter_share_group_offsets", 0, 0, 0),
    Api(92, "delete_share_group_offsets", 0, 0, 0),
)
APIS = {row.key: row for row in _ROWS}
OF_A_SET = frozenset({52, 53, 54, 58, 59})
"""Calls that are served only in a replica set."""
OF_TELEMETRY = {key: APIS[key] for key in (71, 72)}
"""Calls that are served only by a node with a receiver of clients' metrics."""
IN_A_SET = {key: api for key, api in APIS.items() if key not in OF_TELEMETRY}
ALONE = {key: api for key, api in IN_A_SET.items() if key not in OF_A_SET}


class OfferedFeatures(NamedTuple):
    """Features in ApiVersions (KIP-584): (name, lowest, highest level), (name, level in effect), the epoch of these."""

    supported: tuple[tuple[str, int, int], ...] = ()
    finalized: tuple[tuple[str, int], ...] = ()
    epoch: int = -1


NO_FEATURES = OfferedFeatures()
_FIRST_WITH_ZERO = 4
"""First version that may name a feature whose lowest level is 0."""


def api_versions_body(
    version: int,
    apis: dict[int, Api],
    error_code: int = 0,
    throttle_ms: int = 0,
    features: OfferedFeatures = NO_FEATURES,
) -> bytes:
    """Return the body of an ApiVersions response (KIP-35, KIP-511), without kio, as it is a client's first request.

    The response to an unknown version is of version 0, with error 35 and the range of this call only.
    """
    if not apis[API_VERSIONS].serves(version):
        own = apis[API_VERSIONS]
        return struct.pack(">hi3h", UNSUPPORTED_VERSION, 1, own.key, own.oldest, own.newest)
    rows = [] if error_code else [(api.key, api.oldest, api.newest) for api in apis.values()]
    if version < 3:
        body = struct.pack(">hi", error_code, len(rows)) + b"".join(struct.pack(">3h", *row) for row in rows)
        return body if version == 0 else body + struct.pack(">i", throttle_ms)
    body = struct.pack(">h", error_code) + unsigned_varint(len(rows) + 1)
    body += b"".join(struct.pack(">3hB", *row, 0) for row in rows) + struct.pack(">i", throttle_ms)
    tags = {} if error_code else _feature_tags(version, features)
    fields = [unsigned_varint(tag) + unsigned_varint(len(data)) + data for tag, data in tags.items()]
    return body + unsigned_varint(len(fields)) + b"".join(fields)


def _feature_tags(version: int, features: OfferedFeatures) -> dict[int, bytes]:
    """Return the tagged fields of the features: supported, epoch, in effect."""
    if features.epoch < 0:
        return {}
    supported = [row for row in features.supported if row[1] or version >= _FIRST_WITH_ZERO]
    finalized = [(name, level, level) for name, level in features.finalized]
    return {0: _levels(supported), 1: struct.pack(">q", features.epoch), 2: _levels(finalized)}


def _levels(rows: list[tuple[str, int, int]]) -> bytes:
    parts = [unsigned_varint(len(name) + 1) + name.encode() + struct.pack(">2hB", *two, 0) for name, *two in rows]
    return unsigned_varint(len(rows) + 1) + b"".join(parts)


def unsigned_varint(value: int) -> bytes:
    """Return a length or tag of a flexible version: seven bits per byte, low bits first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

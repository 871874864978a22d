"""Decoders of keys and values: plain functions that take the bytes of a record.

>>> import struct
>>> from kafkalog import decoders
>>> decoders.json(b'{"a": 1}'), decoders.long(bytes(7) + b"\\x05"), decoders.pack("h h")(bytes([0, 1, 255, 255]))
({'a': 1}, 5, '1 -1')

`text`, `json`, `integer` and `long` are decoders; `pack` (kcat's pack strings), `avro`, `protobuf` and `json_schema`
(values with a schema registry's header, and a directory of schemas) return one; `decoder` finds one by its name on the
command line. `group_record`, `transaction_record`, `share_state_record`, `cluster_record` and `remote_log_record`
decode the records of Kafka's internal topics.

They raise DecodeError for bytes that they cannot decode, or MessageError for internal records; both are InvalidRecord.
"""

from __future__ import annotations

from kafkalog.records.internal import CoordinatorRecord, MetadataRecord, coordinator_record, metadata_record
from kafkalog.records.message import MessageError
from kafkalog.tools.decoders.named import decoder
from kafkalog.tools.decoders.plain import DecodeError, Decoder, integer, json, long, pack, text
from kafkalog.tools.decoders.registry import avro, json_schema, protobuf

__all__ = [
    "CoordinatorRecord", "DecodeError", "Decoder", "MessageError", "MetadataRecord", "avro", "cluster_record",
    "decoder", "group_record", "integer", "json", "json_schema", "long", "pack", "protobuf", "remote_log_record",
    "share_state_record", "text", "transaction_record",
]  # fmt: skip


def group_record(key: bytes, value: bytes | None) -> CoordinatorRecord:
    """Decode a record of `__consumer_offsets`: type, key, version, value (None for a tombstone), as dicts by field.

    Type 1 is a committed offset: `key` has group, topic and partition, `value` has offset and metadata.

    >>> key = bytes.fromhex("0001 0003 617070 0006 6f7264657273 00000000")
    >>> value = bytes.fromhex("0003 0000000000000002 ffffffff 0000 0000000000000000")
    >>> found = group_record(key, value)
    >>> found.key, found.value["offset"]
    ({'group': 'app', 'topic': 'orders', 'partition': 0}, 2)
    """
    from kafkalog.records.schemas import groups

    return coordinator_record(key, value, groups.KEYS, groups.VALUES)


def transaction_record(key: bytes, value: bytes | None) -> CoordinatorRecord:
    """Decode a record of `__transaction_state` as `group_record` does.

    >>> transaction_record(bytes.fromhex("0000 0003 617070"), None).key
    {'transactionalId': 'app'}
    """
    from kafkalog.records.schemas import transactions

    return coordinator_record(key, value, transactions.KEYS, transactions.VALUES)


def share_state_record(key: bytes, value: bytes | None) -> CoordinatorRecord:
    """Decode a record of `__share_group_state` as `group_record` does.

    >>> share_state_record(bytes.fromhex("0000 0003 617070") + bytes(20), None).key
    {'groupId': 'app', 'topicId': 'AAAAAAAAAAAAAAAAAAAAAA', 'partition': 0}
    """
    from kafkalog.records.schemas import share_state

    return coordinator_record(key, value, share_state.KEYS, share_state.VALUES)


def cluster_record(value: bytes) -> MetadataRecord:
    """Decode a record of `__cluster_metadata` or its snapshots: type, name, version and fields; its key is null.

    >>> cluster_record(bytes([1, 2, 0, 7]) + b"orders" + bytes(17))
    MetadataRecord(type=2, name='TopicRecord', version=0, data={'name': 'orders', 'topicId': 'AAAAAAAAAAAAAAAAAAAAAA'})
    """
    from kafkalog.records.schemas.metadata import RECORDS

    return metadata_record(value, RECORDS)


def remote_log_record(value: bytes) -> MetadataRecord:
    """Decode a record of `__remote_log_metadata` as `cluster_record` does.

    >>> remote_log_record(bytes([1, 2, 0, 7]) + b"orders" + bytes(35)).name
    'RemotePartitionDeleteMetadataRecord'
    """
    from kafkalog.records.schemas.remote_log import RECORDS

    return metadata_record(value, RECORDS)

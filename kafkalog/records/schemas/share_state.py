"""Records of `__share_group_state`: the share coordinator's keys and values."""

from typing import Final

from kafkalog.records.schema import Schema, schemas

TABLE: Final = """\
ShareSnapshotKey 0 0
    groupId string
    topicId uuid
    partition i32
ShareSnapshotValue 0 0 flexible 0+
    snapshotEpoch i32
    stateEpoch i32
    leaderEpoch i32
    startOffset i64
    deliveryCompleteCount i32 tag 0 = -1
    createTimestamp i64
    writeTimestamp i64
    stateBatches [{}]
        firstOffset i64
        lastOffset i64
        deliveryState i8
        deliveryCount i16
ShareUpdateKey 1 0
    groupId string
    topicId uuid
    partition i32
ShareUpdateValue 1 0 flexible 0+
    snapshotEpoch i32
    leaderEpoch i32
    startOffset i64
    deliveryCompleteCount i32 tag 0 = -1
    stateBatches [{}]
        firstOffset i64
        lastOffset i64
        deliveryState i8
        deliveryCount i16
"""

_ALL: Final = schemas(TABLE)
KEYS: Final[dict[int, Schema]] = {schema.number: schema for name, schema in _ALL.items() if name.endswith("Key")}
"""Schemas by the number at the start of a key."""

VALUES: Final[dict[int, Schema]] = {schema.number: schema for name, schema in _ALL.items() if name.endswith("Value")}
"""Schemas by the number of their keys."""

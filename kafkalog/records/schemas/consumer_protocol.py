"""Metadata and assignment that members of a classic consumer group exchange."""

from typing import Final

from kafkalog.records.schema import Schema, schemas

TABLE: Final = """\
ConsumerProtocolSubscription - 0-3
    topics [string]
    userData bytes?
    ownedPartitions [{}] 1+
        topic string
        partitions [i32]
    generationId i32 2+ = -1
    rackId string? 3+ = null
ConsumerProtocolAssignment - 0-3
    assignedPartitions [{}]
        topic string
        partitions [i32]
    userData bytes?
"""

_ALL: Final = schemas(TABLE)
SUBSCRIPTION: Final[Schema] = _ALL["ConsumerProtocolSubscription"]
ASSIGNMENT: Final[Schema] = _ALL["ConsumerProtocolAssignment"]

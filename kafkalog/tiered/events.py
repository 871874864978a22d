"""Events of `__remote_log_metadata`: the values of records by which brokers and readers know the state of a copy."""

from __future__ import annotations

import base64
import os
from typing import Any, Final

from kafkalog.records.encoder import encoded
from kafkalog.records.schemas.remote_log import RECORDS
from kafkalog.tiered.segment_bytes import TieredPartition
from kafkalog.tiered.segment_metadata import COPY_STARTED, SEGMENT, UPDATE, RemoteSegment

_FRAME: Final = b"\x01"


def copy_started(partition: TieredPartition, segment: RemoteSegment, at_ms: int) -> bytes:
    """Return the event that the copy of a segment begins."""
    fields: dict[str, Any] = {
        "remoteLogSegmentId": _id(partition, segment), "startOffset": segment.start, "endOffset": segment.end,
        "brokerId": segment.broker_id, "maxTimestampMs": segment.max_timestamp, "eventTimestampMs": at_ms,
        "segmentLeaderEpochs": [{"leaderEpoch": one.epoch, "offset": one.start_offset} for one in segment.epochs],
        "segmentSizeInBytes": segment.size_bytes, "customMetadata": segment.custom,
        "remoteLogSegmentState": COPY_STARTED,
    }  # fmt: skip
    if segment.is_txn_index_empty:
        fields["txnIndexEmpty"] = True
    return _event(SEGMENT, fields)


def state_changed(
    partition: TieredPartition, segment: RemoteSegment, state: int, at_ms: int, custom: bytes | None = None
) -> bytes:
    """Return the event that a copy is in another state."""
    return _event(
        UPDATE,
        {
            "remoteLogSegmentId": _id(partition, segment), "brokerId": segment.broker_id, "eventTimestampMs": at_ms,
            "customMetadata": custom, "remoteLogSegmentState": state,
        },
    )  # fmt: skip


def _id(partition: TieredPartition, segment: RemoteSegment) -> dict[str, Any]:
    named = {"name": partition.topic, "id": partition.topic_id, "partition": partition.partition}
    return {"topicIdPartition": named, "id": segment.segment_id}


def _event(number: int, fields: dict[str, Any]) -> bytes:
    return _FRAME + bytes((number, 0)) + encoded(RECORDS[number], fields, 0)


def new_segment_id() -> str:
    """Return a random id of a segment; as Kafka's, it does not begin with a hyphen."""
    while True:
        found = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not found.startswith("-"):
            return found

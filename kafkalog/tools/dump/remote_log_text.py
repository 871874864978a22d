"""Text of `__remote_log_metadata` records as the reference prints it: its classes, not JSON."""

from __future__ import annotations

from typing import Final

from kafkalog.records.internal import MetadataRecord
from kafkalog.records.message import MessageError
from kafkalog.records.schema import Message

SEGMENT, UPDATE, DELETE, SNAPSHOT = range(4)
_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_DELETE_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def remote_log_text(record: MetadataRecord) -> str:
    """Return `RemoteLogSegmentMetadata{...}` or similar; MessageError for values that the reference's classes reject.
    """
    return _TEXTS[record.type](record.data)


def _segment(data: Message) -> str:
    return _braces(
        "RemoteLogSegmentMetadata",
        {"remoteLogSegmentId": _segment_id(data["remoteLogSegmentId"])}
        | _range(data)
        | {
            "brokerId": data["brokerId"],
            "maxTimestampMs": data["maxTimestampMs"],
            "eventTimestampMs": data["eventTimestampMs"],
        }
        | _rest(data),
    )


def _snapshot(data: Message) -> str:
    _segment_state(data)  # checked before the epochs, unlike in a segment's record
    return _braces(
        "RemoteLogSegmentMetadataSnapshot",
        {
            "segmentId": data["segmentId"],
            "startOffset": data["startOffset"],
            "endOffset": data["endOffset"],
            "maxTimestampMs": data["maxTimestampMs"],
        }
        | _rest(data),
    )


def _update(data: Message) -> str:
    return _braces(
        "RemoteLogSegmentMetadataUpdate",
        {
            "remoteLogSegmentId": _segment_id(data["remoteLogSegmentId"]),
            "customMetadata": _custom(data["customMetadata"]),
            "state": _segment_state(data),
            "eventTimestampMs": data["eventTimestampMs"],
            "brokerId": data["brokerId"],
        },
    )


def _delete(data: Message) -> str:
    state = data["remotePartitionDeleteState"]
    if not 0 <= state < len(_DELETE_STATES):
        raise MessageError("null")
    return _braces(
        "RemotePartitionDeleteMetadata",
        {
            "topicPartition": _partition(data["topicIdPartition"]),
            "state": _DELETE_STATES[state],
            "eventTimestampMs": data["eventTimestampMs"],
            "brokerId": data["brokerId"],
        },
    )


def _range(data: Message) -> dict[str, object]:
    start, end = data["startOffset"], data["endOffset"]
    if start < 0:
        raise MessageError(
            f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative"
        )
    if end < start:
        raise MessageError(
            f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than startOffset = {start}"
        )
    return {"startOffset": start, "endOffset": end}


def _rest(data: Message) -> dict[str, object]:
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in data["segmentLeaderEpochs"]}
    if not epochs:
        raise MessageError("segmentLeaderEpochs can not be null or empty")
    in_order = ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs))
    return {
        "segmentLeaderEpochs": f"{{{in_order}}}",
        "segmentSizeInBytes": data["segmentSizeInBytes"],
        "customMetadata": _custom(data["customMetadata"]),
        "state": _segment_state(data),
        "txnIdxEmpty": "true" if data.get("txnIndexEmpty") else "false",
    }


def _segment_state(data: Message) -> str:
    state = data["remoteLogSegmentState"]
    if not 0 <= state < len(_SEGMENT_STATES):
        raise MessageError("state can not be null")
    return _SEGMENT_STATES[state]


def _segment_id(data: Message) -> str:
    return _braces(
        "RemoteLogSegmentId", {"topicIdPartition": _partition(data["topicIdPartition"]), "id": data["id"]}
    )


def _partition(data: Message) -> str:
    return f"{data['id']}:{data['name']}-{data['partition']}"


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _braces(name: str, fields: dict[str, object]) -> str:
    return f"{name}{{{', '.join(f'{field}={value}' for field, value in fields.items())}}}"


_TEXTS: Final = {SEGMENT: _segment, UPDATE: _update, DELETE: _delete, SNAPSHOT: _snapshot}

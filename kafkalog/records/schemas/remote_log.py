"""Records of `__remote_log_metadata`: segments in remote storage."""

from typing import Final

from kafkalog.records.schema import Schema, schemas

TABLE: Final = """\
RemoteLogSegmentMetadataRecord 0 0 flexible 0+
    remoteLogSegmentId {}
        topicIdPartition {}
            name string
            id uuid
            partition i32
        id uuid
    startOffset i64
    endOffset i64
    brokerId i32
    maxTimestampMs i64
    eventTimestampMs i64
    segmentLeaderEpochs [{}]
        leaderEpoch i32
        offset i64
    segmentSizeInBytes i32
    customMetadata bytes?
    remoteLogSegmentState i8
    txnIndexEmpty bool tag 0
RemoteLogSegmentMetadataUpdateRecord 1 0 flexible 0+
    remoteLogSegmentId {}
        topicIdPartition {}
            name string
            id uuid
            partition i32
        id uuid
    brokerId i32
    eventTimestampMs i64
    customMetadata bytes?
    remoteLogSegmentState i8
RemotePartitionDeleteMetadataRecord 2 0 flexible 0+
    topicIdPartition {}
        name string
        id uuid
        partition i32
    brokerId i32
    eventTimestampMs i64
    remotePartitionDeleteState i8
RemoteLogSegmentMetadataSnapshotRecord 3 0 flexible 0+
    segmentId uuid
    startOffset i64
    endOffset i64
    brokerId i32
    maxTimestampMs i64
    eventTimestampMs i64
    segmentLeaderEpochs [{}]
        leaderEpoch i32
        offset i64
    segmentSizeInBytes i32
    customMetadata bytes?
    remoteLogSegmentState i8
    txnIndexEmpty bool tag 0
"""

RECORDS: Final[dict[int, Schema]] = {schema.number: schema for schema in schemas(TABLE).values()}
"""Schemas by the number after the frame version."""

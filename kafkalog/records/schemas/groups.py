"""Records of `__consumer_offsets`: the group coordinator's keys and values."""

from typing import Final

from kafkalog.records.schema import Schema, schemas

TABLE: Final = """\
LegacyOffsetCommitKey 0 0
    group string
    topic string
    partition i32
LegacyOffsetCommitValue 0 0
    offset i64
    metadata string
    commitTimestamp i64
OffsetCommitKey 1 0
    group string
    topic string
    partition i32
OffsetCommitValue 1 0-4 flexible 4+
    offset i64
    leaderEpoch i32 3+ = -1
    metadata string
    commitTimestamp i64
    expireTimestamp i64 1 = -1
    topicId uuid 4+ tag 0
GroupMetadataKey 2 0
    group string
struct MemberMetadata
    memberId string
    groupInstanceId string? 3+ = null
    clientId string
    clientHost string
    rebalanceTimeout i32 1+ = -1
    sessionTimeout i32
    subscription bytes
    assignment bytes
GroupMetadataValue 2 0-4 flexible 4+
    protocolType string
    generation i32
    protocol string?
    leader string?
    currentStateTimestamp i64 2+ = -1
    members [MemberMetadata]
ConsumerGroupMetadataKey 3 0
    groupId string
ConsumerGroupMetadataValue 3 0 flexible 0+
    epoch i32
    metadataHash i64 tag 0
ConsumerGroupPartitionMetadataKey 4 0
    groupId string
ConsumerGroupPartitionMetadataValue 4 0 flexible 0+
    topics [{}]
        topicId uuid
        topicName string
        numPartitions i32
        partitionMetadata [{}]
            partition i32
            racks [string]
ConsumerGroupMemberMetadataKey 5 0
    groupId string
    memberId string
ConsumerGroupMemberMetadataValue 5 0 flexible 0+
    instanceId string?
    rackId string?
    clientId string
    clientHost string
    subscribedTopicNames [string]
    subscribedTopicRegex string?
    rebalanceTimeoutMs i32
    serverAssignor string?
    classicMemberMetadata {}? tag 0
        sessionTimeoutMs i32
        supportedProtocols [{}]
            name string
            metadata bytes
ConsumerGroupTargetAssignmentMetadataKey 6 0
    groupId string
ConsumerGroupTargetAssignmentMetadataValue 6 0 flexible 0+
    assignmentEpoch i32
    assignmentTimestamp i64 tag 0
ConsumerGroupTargetAssignmentMemberKey 7 0
    groupId string
    memberId string
ConsumerGroupTargetAssignmentMemberValue 7 0 flexible 0+
    topicPartitions [{}]
        topicId uuid
        partitions [i32]
ConsumerGroupCurrentMemberAssignmentKey 8 0
    groupId string
    memberId string
struct TopicPartitions
    topicId uuid
    partitions [i32]
    assignmentEpochs [i32]? tag 0
ConsumerGroupCurrentMemberAssignmentValue 8 0 flexible 0+
    memberEpoch i32
    previousMemberEpoch i32
    state i8
    assignedPartitions [TopicPartitions]
    partitionsPendingRevocation [TopicPartitions]
ShareGroupMemberMetadataKey 10 0
    groupId string
    memberId string
ShareGroupMemberMetadataValue 10 0 flexible 0+
    rackId string?
    clientId string
    clientHost string
    subscribedTopicNames [string]
ShareGroupMetadataKey 11 0
    groupId string
ShareGroupMetadataValue 11 0 flexible 0+
    epoch i32
    metadataHash i64
ShareGroupTargetAssignmentMetadataKey 12 0
    groupId string
ShareGroupTargetAssignmentMetadataValue 12 0 flexible 0+
    assignmentEpoch i32
    assignmentTimestamp i64 tag 0
ShareGroupTargetAssignmentMemberKey 13 0
    groupId string
    memberId string
ShareGroupTargetAssignmentMemberValue 13 0 flexible 0+
    topicPartitions [{}]
        topicId uuid
        partitions [i32]
ShareGroupCurrentMemberAssignmentKey 14 0
    groupId string
    memberId string
struct TopicPartitions
    topicId uuid
    partitions [i32]
ShareGroupCurrentMemberAssignmentValue 14 0 flexible 0+
    memberEpoch i32
    previousMemberEpoch i32
    state i8
    assignedPartitions [TopicPartitions]
ShareGroupStatePartitionMetadataKey 15 0
    groupId string
struct TopicPartitionsInfo
    topicId uuid
    topicName string
    partitions [i32]
struct TopicInfo
    topicId uuid
    topicName string
ShareGroupStatePartitionMetadataValue 15 0 flexible 0+
    initializingTopics [TopicPartitionsInfo]
    initializedTopics [TopicPartitionsInfo]
    deletingTopics [TopicInfo]
ConsumerGroupRegularExpressionKey 16 0
    groupId string
    regularExpression string
ConsumerGroupRegularExpressionValue 16 0 flexible 0+
    topics [string]
    version i64
    timestamp i64
StreamsGroupMetadataKey 17 0
    groupId string
struct LastAssignmentConfig
    key string
    value string
StreamsGroupMetadataValue 17 0 flexible 0+
    epoch i32
    metadataHash i64
    validatedTopologyEpoch i32 tag 0 = -1
    lastAssignmentConfigs [LastAssignmentConfig]? tag 1
    storedDescriptionTopologyEpoch i32 tag 2 = -1
    failedDescriptionTopologyEpoch i32 tag 3 = -1
StreamsGroupMemberMetadataKey 19 0
    groupId string
    memberId string
struct Endpoint
    host string
    port u16
struct KeyValue
    key string
    value string
StreamsGroupMemberMetadataValue 19 0 flexible 0+
    instanceId string?
    rackId string?
    clientId string
    clientHost string
    rebalanceTimeoutMs i32
    topologyEpoch i32
    processId string
    userEndpoint Endpoint?
    clientTags [KeyValue]
StreamsGroupTargetAssignmentMetadataKey 20 0
    groupId string
StreamsGroupTargetAssignmentMetadataValue 20 0 flexible 0+
    assignmentEpoch i32
    assignmentTimestamp i64 tag 0
StreamsGroupTargetAssignmentMemberKey 21 0
    groupId string
    memberId string
struct TaskIds
    subtopologyId string
    partitions [i32]
StreamsGroupTargetAssignmentMemberValue 21 0 flexible 0+
    activeTasks [TaskIds]
    standbyTasks [TaskIds]
    warmupTasks [TaskIds]
StreamsGroupCurrentMemberAssignmentKey 22 0
    groupId string
    memberId string
struct TaskIds
    subtopologyId string
    partitions [i32]
    assignmentEpochs [i32]? tag 0
StreamsGroupCurrentMemberAssignmentValue 22 0 flexible 0+
    memberEpoch i32
    previousMemberEpoch i32
    state i8
    activeTasks [TaskIds]
    standbyTasks [TaskIds]
    warmupTasks [TaskIds]
    activeTasksPendingRevocation [TaskIds]
    standbyTasksPendingRevocation [TaskIds]
    warmupTasksPendingRevocation [TaskIds]
StreamsGroupTopologyKey 23 0
    groupId string
struct TopicConfig
    key string
    value string
struct TopicInfo
    name string
    partitions i32
    replicationFactor i16
    topicConfigs [TopicConfig]
StreamsGroupTopologyValue 23 0 flexible 0+
    epoch i32
    subtopologies [{}]
        subtopologyId string
        sourceTopics [string]
        sourceTopicRegex [string]
        stateChangelogTopics [TopicInfo]
        repartitionSinkTopics [string]
        repartitionSourceTopics [TopicInfo]
        copartitionGroups [{}]
            sourceTopics [i16]
            sourceTopicRegex [i16]
            repartitionSourceTopics [i16]
"""

_ALL: Final = schemas(TABLE)
KEYS: Final[dict[int, Schema]] = {schema.number: schema for name, schema in _ALL.items() if name.endswith("Key")}
"""Schemas by the number at the start of a key."""

VALUES: Final[dict[int, Schema]] = {schema.number: schema for name, schema in _ALL.items() if name.endswith("Value")}
"""Schemas by the number of their keys."""

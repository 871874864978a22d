"""Records of `__cluster_metadata`, on which the controllers agree (format.md section 13, A11)."""

from typing import Final

from kafkalog.records.schema import Schema, schemas

TABLE: Final = """\
RegisterBrokerRecord 0 0-4 flexible 0+
    brokerId i32
    isMigratingZkBroker bool 2+
    incarnationId uuid
    brokerEpoch i64
    endPoints [{}]
        name string
        host string
        port u16
        securityProtocol i16
    features [{}]
        name string
        minSupportedVersion i16
        maxSupportedVersion i16
    rack string?
    fenced bool
    inControlledShutdown bool 1+
    logDirs [uuid] 3+ tag 0
    cordonedLogDirs [uuid]? 4+ tag 1 = null
UnregisterBrokerRecord 1 0 flexible 0+
    brokerId i32
    brokerEpoch i64
TopicRecord 2 0 flexible 0+
    name string
    topicId uuid
PartitionRecord 3 0-2 flexible 0+
    partitionId i32
    topicId uuid
    replicas [i32]
    isr [i32]
    removingReplicas [i32]
    addingReplicas [i32]
    leader i32
    leaderRecoveryState i8 tag 0
    leaderEpoch i32
    partitionEpoch i32
    directories [uuid] 1+
    eligibleLeaderReplicas [i32]? 2+ tag 1 = null
    lastKnownElr [i32]? 2+ tag 2 = null
ConfigRecord 4 0 flexible 0+
    resourceType i8
    resourceName string
    name string
    value string?
PartitionChangeRecord 5 0-2 flexible 0+
    partitionId i32
    topicId uuid
    isr [i32]? tag 0 = null
    leader i32 tag 1 = -2
    replicas [i32]? tag 2 = null
    removingReplicas [i32]? tag 3 = null
    addingReplicas [i32]? tag 4 = null
    leaderRecoveryState i8 tag 5 = -1
    directories [uuid]? 1+ tag 8 = null
    eligibleLeaderReplicas [i32]? 2+ tag 6 = null
    lastKnownElr [i32]? 2+ tag 7 = null
FenceBrokerRecord 7 0 flexible 0+
    id i32
    epoch i64
UnfenceBrokerRecord 8 0 flexible 0+
    id i32
    epoch i64
RemoveTopicRecord 9 0 flexible 0+
    topicId uuid
DelegationTokenRecord 10 0 flexible 0+
    owner string
    requester string
    renewers [string]
    issueTimestamp i64
    maxTimestamp i64
    expirationTimestamp i64
    tokenId string
UserScramCredentialRecord 11 0 flexible 0+
    name string
    mechanism i8
    salt bytes
    storedKey bytes
    serverKey bytes
    iterations i32
FeatureLevelRecord 12 0 flexible 0+
    name string
    featureLevel i16
ClientQuotaRecord 14 0 flexible 0+
    entity [{}]
        entityType string
        entityName string?
    key string
    value f64
    remove bool
ProducerIdsRecord 15 0 flexible 0+
    brokerId i32
    brokerEpoch i64
    nextProducerId i64
BrokerRegistrationChangeRecord 17 0-3 flexible 0+
    brokerId i32
    brokerEpoch i64
    fenced i8 tag 0
    inControlledShutdown i8 1+ tag 1
    logDirs [uuid] 2+ tag 2
    cordonedLogDirs [uuid]? 3+ tag 3 = null
AccessControlEntryRecord 18 0 flexible 0+
    id uuid
    resourceType i8
    resourceName string
    patternType i8
    principal string
    host string
    operation i8
    permissionType i8
RemoveAccessControlEntryRecord 19 0 flexible 0+
    id uuid
NoOpRecord 20 0 flexible 0+
ZkMigrationStateRecord 21 0 flexible 0+
    zkMigrationState i8
RemoveUserScramCredentialRecord 22 0 flexible 0+
    name string
    mechanism i8
BeginTransactionRecord 23 0 flexible 0+
    name string? tag 0 = null
EndTransactionRecord 24 0 flexible 0+
AbortTransactionRecord 25 0 flexible 0+
    reason string? tag 0 = null
RemoveDelegationTokenRecord 26 0 flexible 0+
    tokenId string
RegisterControllerRecord 27 0 flexible 0+
    controllerId i32
    incarnationId uuid
    zkMigrationReady bool
    endPoints [{}]
        name string
        host string
        port u16
        securityProtocol i16
    features [{}]
        name string
        minSupportedVersion i16
        maxSupportedVersion i16
ClearElrRecord 28 0 flexible 0+
    topicName string
UnregisterControllerRecord 29 0 flexible 0+
    controllerId i32
"""

RECORDS: Final[dict[int, Schema]] = {schema.number: schema for schema in schemas(TABLE).values()}
"""Schemas by the number after the frame version."""

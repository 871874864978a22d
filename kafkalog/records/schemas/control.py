"""Values of KRaft's control records (format.md sections 3 and 13, A3); each begins with its own version.

Version 1 of leader changes is documented to have a directory id for each voter, but no one ever writes it.
"""

from typing import Final

from kafkalog.records.schema import Schema, schemas

TABLE: Final = """\
struct Voter
    voterId i32
LeaderChangeMessage - 0 flexible 0+
    version i16
    leaderId i32
    voters [Voter]
    grantingVoters [Voter]
SnapshotHeaderRecord - 0 flexible 0+
    version i16
    lastContainedLogTimestamp i64
SnapshotFooterRecord - 0 flexible 0+
    version i16
KRaftVersionRecord - 0 flexible 0+
    version i16
    kRaftVersion i16
VotersRecord - 0 flexible 0+
    version i16
    voters [{}]
        voterId i32
        voterDirectoryId uuid
        endpoints [{}]
            name string
            host string
            port u16
        kRaftVersionFeature {}
            minSupportedVersion i16
            maxSupportedVersion i16
"""

LEADER_CHANGE: Final = 2

_ALL: Final = schemas(TABLE)
VALUES: Final[dict[int, Schema]] = {
    LEADER_CHANGE: _ALL["LeaderChangeMessage"],
    3: _ALL["SnapshotHeaderRecord"],
    4: _ALL["SnapshotFooterRecord"],
    5: _ALL["KRaftVersionRecord"],
    6: _ALL["VotersRecord"],
}
"""Schemas by the type of control record."""

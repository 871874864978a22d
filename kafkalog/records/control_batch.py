"""Control batches built as the reference builds them: one control record, uncompressed, CreateTime.

A log accepts them from its coordinator or raft leader (`UnifiedLog.append_as_leader(origin=...)`) and when replicated
(`Log.replicate`); a client's append rejects them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog.errors import IllegalArgument
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType, control_parts, marker_parts


def marker_batch(
    kind: ControlType,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Return the batch that ends a producer's transaction: 78 bytes, control and transactional (REC-31).

    `kind` is ABORT or COMMIT, `timestamp` is ms. With transaction version 2 `producer_epoch` is the bumped epoch, one
    above that of the data. Raises IllegalArgument for another type and for a negative producer id or epoch.

    >>> len(marker_batch(ControlType.COMMIT, 9, 1, 7, timestamp=1000))
    78
    """
    if producer_id < 0 or producer_epoch < 0:
        raise IllegalArgument(
            f"a transaction marker needs a producer, not id {producer_id} with epoch {producer_epoch}"
        )
    builder = RecordsBuilder(
        base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )
    builder.append_control(timestamp, *marker_parts(kind, coordinator_epoch))
    return builder.build()


def kraft_batch(
    kind: ControlType, data: Mapping[str, object], *, timestamp: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    """Return a batch with one KRaft control record, its fields named as in `ControlRecord.data` (REC-33).

    | kind | fields |
    |---|---|
    | LEADER_CHANGE | leaderId, voters, grantingVoters: lists of `{voterId}` |
    | SNAPSHOT_HEADER | lastContainedLogTimestamp |
    | SNAPSHOT_FOOTER | none |
    | KRAFT_VERSION | kRaftVersion |
    | KRAFT_VOTERS | voters: a list of `{voterId, voterDirectoryId, endpoints, kRaftVersionFeature}` |

    `timestamp` is ms. Raises IllegalArgument for another type and for fields that are missing, unknown or do not fit.

    >>> batch = kraft_batch(
    ...     ControlType.KRAFT_VERSION, {"kRaftVersion": 1}, timestamp=1000, base_offset=2, leader_epoch=0
    ... )
    >>> log.replicate(batch).last_offset, [one.control is not None for one in log.batches()]
    (2, [False, True])
    """
    builder = RecordsBuilder(base_offset, is_control=True, leader_epoch=leader_epoch)
    builder.append_control(timestamp, *control_parts(kind, data))
    return builder.build()

"""Source in a cluster: it reads committed records as a consumer, up to the last stable offset at the start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final, NamedTuple

from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.log.txns import AbortedRanges, visible_rows
from kafkalog.backup.manifest import Offsets
from kafkalog.copy.cluster_client import FETCH, LIST_OFFSETS, ClusterClient, check
from kafkalog.copy.cluster_groups import keys_of, list_groups, read_offsets
from kafkalog.copy.facts import SourcePartition, SourceTopic
from kafkalog.errors import CorruptRecord, OffsetOutOfRange, UnknownTopicOrPartition
from kafkalog.records.convert import check_frames
from kafkalog.server.client.cluster import read_topic_settings
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerMisbehaved
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.topics import id_text
from kafkalog.server.replica.following import FetchLimits, Row
from kafkalog.server.replica.following_session import SessionRequest
from kafkalog.server.replica.leader_source import CONSUMER, fetch_tree
from kafkalog.storage.segment_reader import Chunk
from kafkalog.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

READ_COMMITTED: Final = 1
_LAST_WITH_NAMES: Final = 12
_LIMITS: Final = FetchLimits(max_wait_ms=500, max_bytes=8 << 20, partition_max_bytes=4 << 20)
_NO_SESSION: Final = -1
_FOREVER: Final = 2**63 - 1
_EMPTY_ANSWERS: Final = 60
"""Number of answers without records, each after at most `max_wait_ms`, before the read fails."""
_ANSWERS_AT_END: Final = 2
_EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""As a requested time: the first offset on the leader's own disk, not only in its remote storage."""
_FIRST_WITH_LOCAL: Final = 8
_WITHOUT_LOCAL: Final = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST})


class _Fetched(NamedTuple):
    """Whole batches, the last one perhaps incomplete, and the aborted transactions: (producer id, first offset)."""

    records: memoryview
    aborted: list[tuple[int, int]]


class ClusterSource:
    """Topics of a cluster."""

    def __init__(self, client: ClusterClient) -> None:
        self.name = client.name
        self._client = client

    async def cluster_id(self) -> str | None:
        """Return the id of the cluster."""
        return (await self._client.read([])).cluster_id

    async def names(self) -> list[str]:
        """Return the names of all topics that are not internal."""
        cluster = await self._client.read()
        return sorted(name for name, topic in cluster.topics.items() if not topic.is_internal)

    async def topic(self, name: str, *, surveys: bool) -> SourceTopic:
        """Return a topic, without surveys, which would require reading all records."""
        client = self._client
        found = (await client.read([name])).topics.get(name)
        if found is None:
            raise UnknownTopicOrPartition(f"{self.name} has no topic {name}", hint="check the name")
        settings = (await client.any_broker(lambda one: read_topic_settings(one, [name]))).get(name)
        partitions = {}
        for number in range(len(found.leaders)):
            key = TopicPartition(name, number)
            start = await self._offset(key, EARLIEST_TIMESTAMP, READ_COMMITTED)
            stop = await self._offset(key, LATEST_TIMESTAMP, READ_COMMITTED)
            end = await self._offset(key, LATEST_TIMESTAMP, 0)
            partitions[number] = SourcePartition(start, max(start, stop), max(stop, end))
        return SourceTopic(name, None if found.id is None else id_text(found.id), settings, partitions)

    async def _offset(self, key: TopicPartition, timestamp: int, isolation: int) -> int:
        return await list_offset(self._client, key, timestamp, isolation)

    async def chunks(self, key: TopicPartition, start: int, stop: int, *, committed: bool) -> AsyncGenerator[Chunk]:
        """Yield batches, as `Source.chunks`; the next fetch runs while a chunk is in use."""
        pending = asyncio.ensure_future(self._fetch(key, start, stop)) if start < stop else None
        expected = start
        try:
            while pending is not None:
                records, aborted = await pending
                pending = None
                if not len(records):
                    return
                table, rows = _checked(records, key, expected, stop, self.name)
                if not rows:
                    return
                expected = table.last_offset_of(rows - 1) + 1
                if expected < stop:
                    pending = asyncio.ensure_future(self._fetch(key, expected, stop))
                path = f"{self.name}/{key}"
                data: Any = records
                if not committed:
                    yield Chunk(data, table, 0, rows, path, 0)
                    continue
                ranges = AbortedRanges(aborted_ranges(table, aborted))
                visible = visible_rows(table, 0, rows, ranges)
                last = rows if visible is table else len(visible)
                if last:
                    yield Chunk(data, visible, 0, last, path, 0)
        finally:
            if pending is not None:
                pending.cancel()

    async def _fetch(self, key: TopicPartition, offset: int, stop: int) -> _Fetched:
        """Return at least one batch from `offset` on; none if no record is left before `stop`."""
        rows = {key: Row(offset, -1, -1, -1, _LIMITS.partition_max_bytes)}
        tree = {
            **fetch_tree(SessionRequest(0, _NO_SESSION, rows, ()), {}, CONSUMER, _LIMITS),
            "isolation_level": READ_COMMITTED,
        }

        async def call(connection: PeerConnection) -> Any:
            version = connection.version_of(FETCH, _LAST_WITH_NAMES)
            answer = await connection.request(FETCH, tree, version=version)
            check(getattr(answer, "error_code", 0), f"{self.name} does not send records of {key}")
            found = [one for topic in answer.responses if topic.topic == key.topic for one in topic.partitions]
            if len(found) != 1 or found[0].partition_index != key.partition:
                raise PeerMisbehaved(f"it does not answer for {key}", peer=connection.peer)
            if found[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise OffsetOutOfRange(
                    f"{self.name} no longer has this offset of {key}", offset=offset,
                    hint="it was deleted meanwhile: run the command again",
                )  # fmt: skip
            if found[0].error_code == ErrorCode.CORRUPT_MESSAGE:
                raise CorruptRecord(
                    "the broker found damage in its log", path=f"{self.name}/{key}", offset=offset,
                    hint="check its log with `kafkalog verify`",
                )  # fmt: skip
            check(found[0].error_code, f"{self.name} does not send records of {key}")
            return found[0]

        for number in range(1, _EMPTY_ANSWERS + 1):
            one = await self._client.ask_leader(key, call)
            if one.records is not None and len(one.records):
                aborted = [(txn.producer_id, txn.first_offset) for txn in one.aborted_transactions or ()]
                return _Fetched(memoryview(one.records), aborted)
            if one.last_stable_offset >= stop and number >= _ANSWERS_AT_END:
                # a broker answers without records, too, while it waits for its remote storage
                if offset >= await _local_start(self._client, key):
                    return _Fetched(memoryview(b""), [])  # compaction has removed the records up to there
        raise PeerMisbehaved(f"it sends no records of {key} from offset {offset} on", peer=self.name)

    async def groups(self, topics: Sequence[str]) -> Offsets:
        """Return the offsets that groups committed in these topics."""
        counts = {name: len(topic.leaders) for name, topic in (await self._client.read(topics)).topics.items()}
        found: Offsets = {}
        for group in await list_groups(self._client):
            for key, one in (await read_offsets(self._client, group, keys_of(counts))).items():
                found.setdefault(group, {}).setdefault(key.topic, {})[key.partition] = one.offset
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


async def list_offset(client: ClusterClient, key: TopicPartition, timestamp: int, isolation: int) -> int:
    """Return the offset of a partition for a timestamp: EARLIEST or LATEST, as readers of an isolation level see it."""

    async def call(connection: PeerConnection) -> int:
        found = await _listed(client, connection, key, timestamp, isolation)
        check(found.error_code, f"{client.name} does not give the offsets of {key}")
        return int(found.offset)

    return await client.ask_leader(key, call)


async def _local_start(client: ClusterClient, key: TopicPartition) -> int:
    """Return the first offset on the leader's own disk; 0 for a broker that tiers no segments."""

    async def call(connection: PeerConnection) -> int:
        if connection.version_of(LIST_OFFSETS) < _FIRST_WITH_LOCAL:
            return 0
        found = await _listed(client, connection, key, _EARLIEST_LOCAL_TIMESTAMP, READ_COMMITTED)
        if found.error_code in _WITHOUT_LOCAL:
            return 0
        check(found.error_code, f"{client.name} does not give the offsets of {key}")
        return int(found.offset)

    return await client.ask_leader(key, call)


async def _listed(
    client: ClusterClient, connection: PeerConnection, key: TopicPartition, timestamp: int, isolation: int
) -> Any:
    """Return the answer about one partition and timestamp."""
    rows = [{"partition_index": key.partition, "current_leader_epoch": -1, "timestamp": timestamp}]
    tree = {
        "replica_id": CONSUMER, "isolation_level": isolation, "timeout": client.settings.request_ms,
        "topics": [{"name": key.topic, "partitions": rows}],
    }  # fmt: skip
    answer = await connection.request(LIST_OFFSETS, tree)
    found = [one for topic in answer.topics for one in topic.partitions]
    if len(found) != 1:
        raise PeerMisbehaved(f"it does not answer for {key}", peer=connection.peer)
    return found[0]


def _checked(records: memoryview, key: TopicPartition, expected: int, stop: int, name: str) -> tuple[BatchTable, int]:
    """Return the table of the batches, and how many of them are sound and begin before `stop`.

    CorruptRecord if the first one is damaged; for offsets that go back.
    """
    table = scan(records)
    rows = table.count if table.first_invalid < 0 else table.first_invalid
    try:
        if not rows:
            check_frames(table, "the broker sends damaged records: check its log with `kafkalog verify`")
            raise CorruptRecord("no whole batch was sent", offset=expected)
        before = expected
        for row in range(rows):
            if table.last_offset_of(row) < before:
                raise CorruptRecord(f"offsets go back to {table.last_offset_of(row)}", offset=before)
            before = table.last_offset_of(row) + 1
    except CorruptRecord as error:
        error.path = f"{name}/{key}"
        raise
    while rows and table.base_offset(rows - 1) >= stop:
        rows -= 1
    if rows > 1 and table.begins_behind_gap(rows - 1, expected):
        rows -= 1  # a damaged offset, which no checksum covers, looks like a gap: the batch after it distinguishes them
    return table, rows


def aborted_ranges(table: BatchTable, aborted: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return (producer id, first offset, offset of its marker) for aborted transactions of a fetched range.

    A transaction whose marker lies behind the range has no end in it.
    """
    markers: dict[int, list[int]] = {}
    for header in table:
        if header.is_control:
            markers.setdefault(header.producer_id, []).append(header.base_offset)
    return [
        (producer, first, next((at for at in markers.get(producer, ()) if at >= first), _FOREVER))
        for producer, first in aborted
    ]

"""The last batch of a partition in a target cluster, compared with batches of the source."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog.copy.batches import PlainBatch
from kafkalog.copy.cluster_client import ClusterClient
from kafkalog.copy.cluster_source import ClusterSource
from kafkalog.errors import IllegalState, OffsetOutOfRange
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, CODEC_MASK, TIMESTAMP_TYPE_BIT
from kafkalog.records.plain_runs import plain_row
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

AGAIN: Final = "delete the topic in the target and copy it again, or append with --offsets new"


class LastBatch(NamedTuple):
    """A batch of the target: its offset, its number of records, their bytes, its time (None if set by the broker).

    `producer_id` is that of the producer that sent it.
    """

    base_offset: int
    records: int
    payload: bytes
    timestamp: int | None
    producer_id: int

    def is_same(self, batch: PlainBatch) -> bool:
        """Return True if a batch of the source has the same records, and the same time."""
        if batch.records != self.records:
            return False
        table = scan(batch.data, check_crc=False)
        has_time = self.timestamp is None or table[0].base_timestamp == self.timestamp
        return has_time and _payload(batch.data, table, 0) == self.payload


async def last_batch(client: ClusterClient, key: TopicPartition, end: int) -> LastBatch | None:
    """Return the batch before the end of a partition, None if a gap is there; IllegalState if it was deleted."""
    try:
        async with aclosing(ClusterSource(client).chunks(key, end - 1, end, committed=False)) as chunks:
            async for chunk in chunks:
                for row in range(chunk.first, chunk.last):
                    found = chunk.batches[row]
                    if found.last_offset == end - 1:
                        is_stamped = bool(found.attributes & TIMESTAMP_TYPE_BIT)
                        payload = _payload(chunk.data, chunk.batches, row)
                        time = None if is_stamped else found.base_timestamp
                        return LastBatch(found.base_offset, found.count, payload, time, found.producer_id)
    except OffsetOutOfRange:
        raise IllegalState(
            f"{key} has no record before its end in {client.name} to compare with the source",
            offset=end - 1, hint="retention deleted it there, if the copy was killed before: " + AGAIN,
        ) from None
    return None


def _payload(data: Buffer, table: BatchTable, row: int) -> bytes:
    """Return the uncompressed records of a v2 batch, without the header."""
    if table.attributes(row) & CODEC_MASK:
        data, table = plain_row(data, table, row)
        row = 0
    begin = table.position(row)
    return bytes(memoryview(data)[begin + BATCH_OVERHEAD_BYTES : begin + table.size(row)])

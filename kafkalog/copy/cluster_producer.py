"""Idempotent producer of one partition: batches in order, each once, at the offsets that are expected."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkalog.copy.batches import PlainBatch, stamp
from kafkalog.copy.cluster_client import INIT_PRODUCER_ID, PRODUCE, ClusterClient, RetryLater, check
from kafkalog.errors import IllegalState, KafkalogError, OutOfOrderSequence
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerError, PeerMisbehaved
from kafkalog.server.error_codes import ErrorCode
from kafkalog.types import TopicPartition

IN_FLIGHT: Final = 5
"""Limit of unacknowledged batches: brokers recognize duplicates of as many."""
SEQUENCES: Final = 1 << 31
_LAST_WITH_NAMES: Final = 12
_ALL: Final = -1


class Producer(NamedTuple):
    """A producer id with its epoch, and the sequence of the next record."""

    id: int
    epoch: int
    sequence: int = 0

    def after(self, count: int) -> Producer:
        """Return the producer after `count` more records."""
        return self._replace(sequence=(self.sequence + count) % SEQUENCES)


async def new_producer(client: ClusterClient) -> Producer:
    """Return a new producer of the cluster. Unauthorized, PeerError."""
    tree = {"transactional_id": None, "transaction_timeout": 60_000}

    async def call(connection: PeerConnection) -> Producer:
        answer = await connection.request(INIT_PRODUCER_ID, tree)
        check(answer.error_code, f"{client.name} gives no producer id")
        return Producer(answer.producer_id, answer.producer_epoch)

    return await client.any_broker(call)


class PartitionProducer:
    """Sends batches to a partition, up to `IN_FLIGHT` at once, while the caller prepares the next ones.

    `end` is the target's offset after the batches that were acknowledged, `producer` the state after them.
    """

    def __init__(self, client: ClusterClient, key: TopicPartition, producer: Producer, end: int) -> None:
        self.end = end
        self.producer = producer
        self._client = client
        self._key = key
        self._waiting: list[PlainBatch] = []
        self._sending: asyncio.Task[None] | None = None
        self._is_known = False  # True once a batch was acknowledged

    async def send(self, batch: PlainBatch) -> bool:
        """Queue a batch; return True if earlier batches were acknowledged meanwhile. Errors as for `flush`."""
        self._waiting.append(batch)
        if len(self._waiting) < IN_FLIGHT:
            return False
        await self._settle()
        self._begin()
        return True

    async def flush(self) -> None:
        """Wait until all batches are acknowledged.

        The broker's typed error if it rejects one; IllegalState if others write to the partition; PeerError.
        """
        await self._settle()
        if self._waiting:
            self._begin()
            await self._settle()

    async def close(self) -> None:
        """Stop sending; unacknowledged batches may be in the log."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def _settle(self) -> None:
        if self._sending is not None:
            try:
                await self._sending
            finally:
                self._sending = None

    def _begin(self) -> None:
        batches, self._waiting = self._waiting, []
        self._sending = asyncio.ensure_future(self._send_all(batches))

    async def _send_all(self, batches: Sequence[PlainBatch]) -> None:
        producer, offsets, end = self.producer, [], self.end
        for batch in batches:
            stamp(batch.data, producer.id, producer.epoch, producer.sequence)
            offsets.append(end)
            producer, end = producer.after(batch.records), end + batch.records

        async def call(connection: PeerConnection) -> None:
            rows = [*zip(batches, offsets, strict=True)]
            if not self._is_known:  # a log without batches of the producer takes any sequence, not only the first
                await self._request(connection, *rows.pop(0))
                self._is_known = True
            answers = await asyncio.gather(
                *(self._request(connection, batch, at) for batch, at in rows), return_exceptions=True
            )
            for failure in answers:  # the first in order: later ones fail because of it
                if isinstance(failure, BaseException):
                    raise failure

        await self._client.ask_leader(self._key, call)
        self.producer, self.end = producer, end

    async def _request(self, connection: PeerConnection, batch: PlainBatch, expected: int) -> None:
        version = connection.version_of(PRODUCE, _LAST_WITH_NAMES)
        rows = [{"index": self._key.partition, "records": batch.data}]
        tree = {
            "transactional_id": None, "acks": _ALL, "timeout": self._client.settings.request_ms,
            "topic_data": [{"name": self._key.topic, "partition_data": rows}],
        }  # fmt: skip
        answer = await connection.request(PRODUCE, tree, version=version)
        found = [one for topic in answer.responses for one in topic.partition_responses]
        if len(found) != 1 or found[0].index != self._key.partition:
            raise PeerMisbehaved(f"it does not answer for {self._key}", peer=connection.peer)
        (one,) = found
        if one.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return
        first = batch.runs[0][0]
        try:
            check(
                one.error_code, f"{self._client.name} rejects the records of {self._key} from source offset {first} on",
                getattr(one, "error_message", None),
            )  # fmt: skip
        except (RetryLater, PeerError):
            raise
        except OutOfOrderSequence as error:
            error.hint = "another copy writes to the partition: end it, and run the command again"
            raise
        except KafkalogError as error:
            error.offset = first
            raise
        if one.base_offset != expected:
            raise IllegalState(
                f"{self._key} got offset {one.base_offset} in {self._client.name} instead of {expected}",
                hint="other producers write to the topic: stop them, delete the topic there and copy it again",
            )

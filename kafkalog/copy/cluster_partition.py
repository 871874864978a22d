"""Copy of one partition into a cluster: find the position of earlier runs, then send the remaining records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from kafkalog.copy.batches import PlainBatch, plain_batches
from kafkalog.copy.cluster_client import ClusterClient
from kafkalog.copy.cluster_groups import commit_offsets, read_offsets
from kafkalog.copy.cluster_producer import SEQUENCES, PartitionProducer, Producer, new_producer
from kafkalog.copy.cluster_source import list_offset
from kafkalog.copy.last_batch import AGAIN, last_batch
from kafkalog.copy.mapping import OffsetMap
from kafkalog.copy.marker import GROUP, Marker, parse_marker
from kafkalog.copy.plan import KEEPERS
from kafkalog.copy.report import CopiedPartition, NotKept
from kafkalog.copy.targets import Copied, PartitionJob
from kafkalog.errors import IllegalArgument, IllegalState, OffsetOutOfRange, TopicExists
from kafkalog.types import LATEST_TIMESTAMP

MARKER_BYTES: Final = 32 << 20
"""Bytes sent between two markers."""
_LOOKS: Final = 25
_LOOK_S: Final = 0.2


class PartitionCopy:
    """One run for one partition; `run` once."""

    def __init__(self, client: ClusterClient, job: PartitionJob) -> None:
        self._client = client
        self._job = job
        self._key = job.key
        self._identity = job.topic.topic_id or f"{job.source.name}/{job.topic.name}"
        self._records = 0
        self._size = 0
        self._unmarked = 0
        self._reached: int | None = None

    async def run(self) -> Copied:
        """Copy the records that the target lacks. Errors as for `Target.copy`; everything acknowledged is kept."""
        facts = self._job.facts
        end, marker = await self._position()
        marker, lost = await self._continued(marker, end)
        offsets, unmapped = await self._map_before(marker)
        written = end - marker.target_offset
        producer = Producer(marker.producer_id, marker.epoch, (marker.sequence + written) % SEQUENCES)
        sender = PartitionProducer(self._client, self._key, producer, end)
        try:
            stop = await self._send_rest(sender, marker, offsets, written)
        except OffsetOutOfRange:  # the source deleted the next records: no later run finds the old marker's position
            if self._reached is not None:
                await sender.flush()
                await self._mark(marker, sender, self._reached, offsets)
            raise
        finally:
            await sender.close()
        offsets.close(stop)
        await self._mark(marker, sender, max(stop, marker.source_offset), offsets)
        before = max(0, marker.source_offset - facts.start)
        is_kept = marker.is_kept and offsets.is_identity
        report = CopiedPartition(
            self._key.topic, self._key.partition, marker.source_start, stop, marker.target_start,
            sender.end, before, self._records, self._size, "kept" if is_kept else "new",
        )  # fmt: skip
        return Copied(report, None if is_kept else offsets, lost, unmapped)

    # Position

    async def _position(self) -> tuple[int, Marker]:
        """Return the target's end and the marker of this copy.

        TopicExists if the target has another copy, IllegalState if it lost records of this one.
        """
        found = parse_marker((await read_offsets(self._client, GROUP, [self._key])).get(self._key))
        end = await list_offset(self._client, self._key, LATEST_TIMESTAMP, 0)
        for _ in range(_LOOKS):  # acknowledged records may lie behind a new leader's high watermark
            if found is None or found.target_offset <= end:
                break
            await asyncio.sleep(_LOOK_S)
            end = await list_offset(self._client, self._key, LATEST_TIMESTAMP, 0)
        if found is not None and found.target_offset > end > 0:
            raise IllegalState(
                f"{self._key} ends at {end} in {self._client.name}, but {found.target_offset} was copied", hint=AGAIN
            )
        return end, await self._marker(found, end)

    async def _marker(self, found: Marker | None, end: int) -> Marker:
        """Return the marker `found` or a new one, which a new copy commits before it sends anything."""
        start, is_new = self._job.facts.start, self._job.offsets == "new"
        if found is not None and found.target_offset <= end:
            if found.identity == self._identity:
                return found
            if end and not is_new:
                raise TopicExists(f"{self._key} in {self._client.name} is a copy of another topic", hint=AGAIN)
        first = end if is_new else 0
        marker = await self._found_again(end) if end else None
        if marker is None:
            if end > first:
                raise TopicExists(
                    f"{self._key} in {self._client.name} has records that are not the source's",
                    hint="delete the topic there, or append all records behind them with --offsets new",
                )
            marker = Marker(start, first, start, first, 0, 0, 0, self._identity, start == first)
        producer = await new_producer(self._client)
        marker = marker._replace(producer_id=producer.id, epoch=producer.epoch)
        await self._commit(marker)
        return marker

    async def _found_again(self, end: int) -> Marker | None:
        """Return the position of a copy whose marker has expired: behind the last batch of the target, in the source.

        The batch has the same offsets in the source, or is the only one with these records and this time, or has as
        many records before it in the source as in the target. None if there is none.
        """
        is_new, facts = self._job.offsets == "new", self._job.facts
        try:
            last = await last_batch(self._client, self._key, end)
        except IllegalState:
            if is_new:
                return None
            raise
        if last is None:
            return None
        if not is_new and last.base_offset >= facts.start:
            async for batch in self._batches(last.base_offset, min(end, facts.stop)):
                if batch.runs == ((last.base_offset, last.records),) and last.is_same(batch):
                    return Marker(0, 0, end, end, 0, 0, 0, self._identity, True)
        counted, found = 0, list[tuple[int, int]]()
        async for batch in self._batches(facts.start, facts.stop):
            counted += batch.records
            if last.is_same(batch):
                found.append((batch.next_offset, counted))
        same_count = [offset for offset, count in found if count == end]
        if same_count and not is_new:
            return Marker(facts.start, 0, same_count[0], end, 0, 0, 0, self._identity, False)
        if len(found) != 1 or last.timestamp is None:
            return None
        return Marker(0, 0, found[0][0], end, 0, 0, 0, self._identity, False)

    async def _continued(self, marker: Marker, end: int) -> tuple[Marker, tuple[NotKept, ...]]:
        """Return the marker to continue from, and what the source deleted before it was copied.

        IllegalState if it cannot be continued.
        """
        facts, at = self._job.facts, marker.source_offset
        if at > facts.end:
            raise IllegalState(
                f"{self._key} was copied up to offset {at}, but the source ends at {facts.end}",
                hint="the source lost records, or it is another one: " + AGAIN,
            )
        if at >= facts.start:
            return marker, ()
        if end > marker.target_offset:
            moved, lost = await self._behind_deleted(marker, end)
            await self._commit(moved)
            return moved, lost
        # sending begins here, maybe inside a batch: a run after a kill finds its batches by this
        await self._commit(marker._replace(source_offset=facts.start, is_kept=marker.is_kept and facts.start == end))
        return marker, (self._lost(at, "the source deleted them before they were copied"),)

    def _lost(self, first: int, why: str) -> NotKept:
        return NotKept(str(self._key), f"records of offsets {first} to {self._job.facts.start}", why)

    async def _behind_deleted(self, marker: Marker, end: int) -> tuple[Marker, tuple[NotKept, ...]]:
        """Return the marker at the target's end, after a kill between two markers and deletes behind the first one.

        The search covers the batches that the source still has. If the topic is not compacted and none of them is the
        target's last batch, which this copy's producer sent, the source has deleted everything up to it, and the copy
        continues at the source's start.
        """
        facts, at = self._job.facts, marker.source_offset
        last = await last_batch(self._client, self._key, end)
        found = []
        async with aclosing(self._job.source.chunks(self._key, facts.start, facts.stop, committed=True)) as chunks:
            async for chunk in chunks:
                sent_before = plain_batches(chunk, at)  # also a batch's records that were deleted since
                found += [one.next_offset for one in sent_before if last is not None and last.is_same(one)]
        is_known = last is not None and last.timestamp is not None
        is_own = last is not None and last.producer_id == marker.producer_id
        may_have_changed = self._job.topic.settings is None or self._job.topic.is_compacted or not is_own
        if not is_known or len(found) > 1 or (not found and may_have_changed):
            raise IllegalState(
                f"the source deleted records of {self._key} from offset {at} on while they were copied", hint=AGAIN
            )
        reached = found[0] if found else facts.start
        sent = end - marker.target_offset
        moved = marker._replace(
            source_offset=reached, target_offset=end, sequence=(marker.sequence + sent) % SEQUENCES,
            is_kept=marker.is_kept and reached == end,
        )  # fmt: skip
        if found:
            return moved, ()
        why = f"the source deleted them; the run that was killed had copied the first {sent} of the records there"
        return moved, (self._lost(at, why),)

    async def _map_before(self, marker: Marker) -> tuple[OffsetMap, int | None]:
        """Return the map of earlier runs' offsets, as far as groups need it, and the offset below which it is empty."""
        at, lowest = marker.source_offset, self._job.lowest_group_offset
        if marker.is_kept:
            offsets = OffsetMap(marker.source_start, marker.target_start)
            if marker.target_offset > marker.target_start:
                offsets.add(marker.source_start, marker.target_offset - marker.target_start)
            offsets.close(at)  # markers of transactions may lie behind the records
            return offsets, None
        if lowest is None or lowest >= at or at <= marker.source_start:
            return OffsetMap(at, marker.target_offset), None
        if self._job.topic.settings is None or self._job.topic.is_compacted:
            return OffsetMap(at, marker.target_offset), at
        start = max(lowest, self._job.facts.start)
        runs = [run async for batch in self._batches(start, at) for run in batch.runs] if start < at else []
        first = marker.target_offset - sum(count for _, count in runs)
        if first < marker.target_start:
            return OffsetMap(at, marker.target_offset), at
        offsets = OffsetMap(start, first)
        for offset, count in runs:
            offsets.add(offset, count)
        offsets.close(at)
        return offsets, None if lowest >= start or start == marker.source_start else start

    # Records

    async def _batches(self, start: int, stop: int) -> AsyncGenerator[PlainBatch]:
        async with aclosing(self._job.source.chunks(self._key, start, stop, committed=True)) as chunks:
            async for chunk in chunks:
                for batch in plain_batches(chunk, start):
                    yield batch

    async def _send_rest(self, sender: PartitionProducer, marker: Marker, offsets: OffsetMap, written: int) -> int:
        """Skip the `written` records after the marker, which the target has, and send the rest.

        Return the source offset up to which everything is copied: below the end only after a stop.
        """
        reached = first = max(marker.source_offset, self._job.facts.start)
        async with aclosing(self._batches(first, self._job.facts.stop)) as batches:
            async for batch in batches:
                if written:
                    if batch.records > written:
                        raise self._differs(marker)
                    written -= batch.records
                    self._add(offsets, batch)
                    if not written and not await self._is_last(batch, sender.end):
                        raise self._differs(marker)
                elif self._job.is_stopped():
                    await sender.flush()
                    return reached
                else:
                    self._add(offsets, batch)
                    self._check_kept(offsets, batch)
                    await self._send(sender, batch, marker, offsets)
                reached = batch.next_offset
                self._reached = None if written else reached
        if written:
            raise self._differs(marker)
        await sender.flush()
        return self._job.facts.stop

    def _check_kept(self, offsets: OffsetMap, batch: PlainBatch) -> None:
        """Raise IllegalArgument if offsets are to be kept and the batch, which was just added, comes after a gap."""
        if self._job.offsets == "keep" and not offsets.is_identity:
            raise IllegalArgument(
                f"{self._key} has a gap before offset {batch.runs[-1][0]}: offsets cannot be kept from there on",
                offset=batch.runs[-1][0], hint=f"omit --offsets keep; {KEEPERS}",
            )  # fmt: skip

    def _add(self, offsets: OffsetMap, batch: PlainBatch) -> None:
        for first, count in batch.runs:
            offsets.add(first, count)

    async def _send(
        self, sender: PartitionProducer, batch: PlainBatch, marker: Marker, offsets: OffsetMap
    ) -> None:
        size = len(batch.data)
        await sender.send(batch)
        self._records += batch.records
        self._size += size
        self._unmarked += size
        self._job.progress(size)
        if self._unmarked >= MARKER_BYTES:
            await sender.flush()
            await self._mark(marker, sender, batch.next_offset, offsets)

    def _differs(self, marker: Marker) -> IllegalState | TopicExists:
        if marker.target_offset == marker.target_start == 0:
            return TopicExists(
                f"{self._key} in {self._client.name} has records that are not the source's",
                hint="delete the topic there, or append all records behind them with --offsets new",
            )
        return IllegalState(
            f"{self._key} in {self._client.name} has other records than the source after offset {marker.target_offset}",
            hint="the source was compacted meanwhile, or others write to the topic: " + AGAIN,
        )

    async def _is_last(self, batch: PlainBatch, end: int) -> bool:
        """Return True if the target's last batch has the records of `batch`; IllegalState if it was deleted there."""
        last = await last_batch(self._client, self._key, end)
        return last is not None and last.is_same(batch)

    # The marker

    async def _mark(self, marker: Marker, sender: PartitionProducer, source_offset: int, offsets: OffsetMap) -> None:
        self._unmarked = 0
        await self._commit(
            marker._replace(
                source_offset=source_offset, target_offset=sender.end, sequence=sender.producer.sequence,
                is_kept=marker.is_kept and offsets.is_identity,
            )
        )  # fmt: skip

    async def _commit(self, marker: Marker) -> None:
        if not await commit_offsets(self._client, GROUP, {self._key: marker.encode()}):
            raise IllegalState(
                f"group {GROUP} has members in {self._client.name}", hint="its name is reserved for copies: stop them"
            )

"""The reference's log, step by step: results, errors, offsets, segments, and every file at the end."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    KafkalogError,
    OffsetOutOfRange,
    OffsetsOutOfOrder,
    OutOfOrderSequence,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnexpectedAppendOffset,
)
from kafkalog.storage.log import UnifiedLog
from tests.golden.test_recovery import same_files
from tests.golden_cases import each_entry
from tests.mock_time import MockClock, MockScheduler

pytestmark = pytest.mark.golden
FOLLOWER = Path(__file__).parents[1] / "data" / "follower_trace.json"
ISOLATIONS = {"LOG_END": "log_end", "HIGH_WATERMARK": "high_watermark", "TXN_COMMITTED": "committed"}
ERRORS = {
    "OffsetOutOfRangeException": OffsetOutOfRange,
    "InvalidProducerEpochException": InvalidProducerEpoch,
    "OutOfOrderSequenceException": OutOfOrderSequence,
    "InvalidTxnStateException": InvalidTxnState,
    "OffsetsOutOfOrderException": OffsetsOutOfOrder,
    "RecordBatchTooLargeException": RecordBatchTooLarge,
    "RecordTooLargeException": RecordTooLarge,
    "UnexpectedAppendOffsetException": UnexpectedAppendOffset,
    "RecordValidationException": (InvalidRecord, InvalidTimestamp),
}


def replaced_indexes(sizes: Mapping[str, int]) -> set[str]:
    """The deleted indexes of segments that were empty when one of the same base replaced them.

    The reference makes them when something looks into the empty segment, and since 4.4 when it rolls a preallocated
    one; here they may not be there.
    """
    deleted = {name.removesuffix(".log.deleted"): size for name, size in sizes.items() if name.endswith(".log.deleted")}
    stems = [stem for stem, size in deleted.items() if not size or f"{stem}.log" in sizes]
    return {f"{stem}{end}.deleted" for stem in stems for end in (".index", ".timeindex")}


class Trace:
    """One trace: a log, and the operations on it."""

    def __init__(self, entry: dict[str, Any], folder: Path) -> None:
        self.entry = entry
        self.folder = folder
        self.clock = MockClock(entry["clockStart"])
        self.scheduler = MockScheduler(self.clock)
        self.config = LogConfig.from_stored(entry["config"])
        folder.mkdir()
        self.log = self.open(0, 0)

    def open(self, log_start_offset: int, recovery_point: int, clean: bool = True) -> UnifiedLog:
        return UnifiedLog.open(
            self.folder,
            self.config,
            clock=self.clock,
            scheduler=self.scheduler,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            had_clean_shutdown=clean,
            high_watermark_follows_end=False,
        )

    def run(self) -> None:
        for number, op in enumerate(self.entry["ops"]):
            if "clock" in op:
                self.clock.set_wall_ms(op["clock"])
            where = f"step {number}: {op['op']}"
            expected = op.get("result")
            if isinstance(expected, dict) and "exception" in expected:
                kind = ERRORS[expected["exception"].rpartition(".")[2]]
                with pytest.raises(kind):
                    self.step(op)
            else:
                assert self.step(op) == expected, where
            self.run_tasks()
            if "state" in op:
                assert self.short_state() == op["state"], where
            if "names" in op:
                assert self.used(self.names()) == self.used(op["names"]), where
        files = self.entry["files"]
        replaced = replaced_indexes({name: len(data) for name, data in files.items()}) | self.empty_indexes()
        self.log.close()
        expected = {name: bytes.fromhex(data) for name, data in files.items() if name not in replaced}
        if self.entry["config"].get("compression.type", "producer") != "producer":
            logs = [name for name in expected if name.endswith((".log", ".log.deleted"))]
            for name in logs:  # a codec's bytes depend on its library
                ours, theirs = (self.folder / name).read_bytes(), expected.pop(name)
                assert [(b.base_offset, b.last_offset, b.count, b.max_timestamp) for b in scan(ours)] == [
                    (b.base_offset, b.last_offset, b.count, b.max_timestamp) for b in scan(theirs)
                ]
                (self.folder / name).unlink()
        for name in replaced:
            (self.folder / name).unlink(missing_ok=True)
        assert same_files(self.folder, expected)

    def run_tasks(self) -> None:
        self.scheduler.tick()

    def short_state(self) -> dict[str, Any]:
        log = self.log
        return {
            "logStartOffset": log.log_start_offset,
            "logEndOffset": log.log_end_offset,
            "highWatermark": log.high_watermark,
            "lastStableOffset": log.last_stable_offset,
            "recoveryPoint": log.recovery_point,
            "segments": [[s.base_offset, s.size] for s in log.segments],
        }

    def names(self) -> list[list[Any]]:
        return [[p.name, p.stat().st_size] for p in sorted(self.folder.iterdir())]

    def used(self, names: list[list[Any]]) -> list[list[Any]]:
        """Without the indexes of an empty segment: the reference makes them when something looks into them."""
        dropped = self.empty_indexes() | replaced_indexes(dict(names))
        return [entry for entry in names if entry[0] not in dropped]

    def empty_indexes(self) -> set[str]:
        bases = [segment.base_offset for segment in self.log.segments if not segment.size]
        return {f"{base:020d}{end}" for base in bases for end in (".index", ".timeindex")}

    def step(self, op: dict[str, Any]) -> Any:
        return getattr(self, "do_" + op["op"])(op)

    def do_appendAsLeader(self, op: dict[str, Any]) -> Any:
        info = self.log.append_as_leader(
            bytearray.fromhex(op["batch"]), leader_epoch=op["leaderEpoch"], origin=op["origin"].lower()
        )
        return {
            "firstOffset": info.first_offset,
            "lastOffset": info.last_offset,
            "maxTimestamp": info.max_timestamp,
            "logAppendTime": info.log_append_time,
            "logStartOffset": info.log_start_offset,
            "validBytes": info.valid_bytes,
            "numMessages": info.last_offset - info.first_offset + 1,
            "lastLeaderEpoch": None if info.last_leader_epoch < 0 else info.last_leader_epoch,
        }

    def do_appendAsFollower(self, op: dict[str, Any]) -> Any:
        info = self.log.append_as_follower(bytearray.fromhex(op["batch"]), op["leaderEpoch"])
        return {"firstOffset": info.first_offset, "lastOffset": info.last_offset}

    def do_read(self, op: dict[str, Any]) -> Any:
        found = self.log.read(op["offset"], op["maxLength"], ISOLATIONS[op["isolation"]], op["minOneMessage"])
        place = found.fetch_offset_metadata
        aborted = found.aborted_transactions
        return {
            "messageOffset": place.message_offset,
            "segmentBaseOffset": place.segment_base_offset,
            "relativePosition": place.relative_position_in_segment,
            "sizeInBytes": found.records.size,
            "firstEntryIncomplete": found.first_entry_incomplete,
            "completeBatches": [[b.base_offset, b.last_offset] for b in scan(found.records.read())],
            "abortedTransactions": None if aborted is None else [list(txn[:2]) for txn in aborted],
        }

    def do_close_reopen(self, op: dict[str, Any]) -> None:
        log = self.log
        log.close()
        assert self.used(self.names()) == self.used(op["namesAfterClose"])
        self.log = self.open(log.log_start_offset, log.recovery_point)
        self.log.update_high_watermark(log.high_watermark)
        assert self.names() == op["namesAfterOpen"]

    def do_updateHighWatermark(self, op: dict[str, Any]) -> int:
        return self.log.update_high_watermark(op["offset"])

    def do_fetchOffsetByTimestamp(self, op: dict[str, Any]) -> Any:
        found = self.log.offset_for_time(op["timestamp"])
        if found is None:
            return None
        if op["result"] is None and self.log.segments.floor(found.offset) is not self.first_in_time(op["timestamp"]):
            return None  # the reference looks into one segment only, also when what it finds there was deleted
        epoch = found.leader_epoch
        if epoch < 0 and op["timestamp"] < 0:  # none: the reference answers so in two ways, which differ by release
            epoch = op["result"]["leaderEpoch"]
            assert epoch in (None, -1)
        return {"timestamp": found.timestamp, "offset": found.offset, "leaderEpoch": epoch}

    def first_in_time(self, timestamp: int) -> Any:
        return next(s for s in self.log.segments if s.largest_timestamp >= timestamp)

    def do_truncateTo(self, op: dict[str, Any]) -> bool:
        return self.log.truncate_to(op["offset"])

    def do_maybeIncrementLogStartOffset(self, op: dict[str, Any]) -> bool:
        return self.log.maybe_increment_log_start_offset(op["offset"])

    def do_deleteOldSegments(self, op: dict[str, Any]) -> int:
        return self.log.delete_old_segments()

    def do_truncateFullyAndStartAt(self, op: dict[str, Any]) -> None:
        self.log.truncate_fully_and_start_at(op["offset"])

    def do_flush(self, op: dict[str, Any]) -> None:
        self.log.flush()

    def do_kill_reopen(self, op: dict[str, Any]) -> None:
        """The files as they were, opened as after a power loss that took none of them."""
        killed = self.folder.with_suffix(".killed")
        shutil.copytree(self.folder, killed, ignore=shutil.ignore_patterns("*.deleted"))
        self.log.close_handlers()
        shutil.rmtree(self.folder)
        killed.rename(self.folder)
        self.scheduler = MockScheduler(self.clock)
        self.log = self.open(op["logStartOffset"], op["recoveryPoint"], clean=False)
        self.log.update_high_watermark(op["highWatermark"])

    def do_roll(self, op: dict[str, Any]) -> int:
        return self.log.roll().base_offset

    def do_sleep(self, op: dict[str, Any]) -> None:
        pass

    def do_endOffsetForEpoch(self, op: dict[str, Any]) -> Any:
        found = self.log.end_offset_for_epoch(op["leaderEpoch"])
        return None if found is None else [found[1], found[0]]


@each_entry("unified_log")
def test_trace(entry: dict[str, Any], tmp_path: Path) -> None:
    run(entry, tmp_path)


def test_a_follower_that_is_killed_and_begins_again_elsewhere(tmp_path: Path) -> None:
    """A trace of Kafka 4.3.1, which no capture has."""
    run(json.loads(FOLLOWER.read_text(encoding="utf-8")), tmp_path)


def run(entry: dict[str, Any], tmp_path: Path) -> None:
    trace = Trace(entry, tmp_path / "topic-0")
    try:
        trace.run()
    except KafkalogError:
        trace.log.close_handlers()
        raise

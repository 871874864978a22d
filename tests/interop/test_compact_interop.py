"""Compacted logs beside the reference: the oracle agrees with its Cleaner; it opens and cleans what we cleaned."""

import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kafkalog
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.pass_ import clean
from kafkalog.cleaner.types import ASKED, CleanerStats, LogToClean
from kafkalog.storage.names import parse_topic_partition_dir
from kafkalog.tools.compact.directories import compact
from tests.cleaner.histories import RETENTION_MS, History, opened, random_history
from tests.interop import ours
from tests.interop.broker import Broker
from tests.interop.reference import RecordTuple, Reference
from tests.mock_time import MockClock

SEEDS = range(25)
NOW = time.time_ns() // 1_000_000
"""The reference uses the machine's clock; producers must not have expired by it."""
LEVELS = ("read_uncommitted", "read_committed")
LONG_MS = 100 * 365 * 86_400_000
EAGER = {"log.initial.task.delay.ms": "100", "log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0"}


def settings(history: History) -> dict[str, object]:
    return {
        "cleanup.policy": "compact",
        "delete.retention.ms": RETENTION_MS,
        "internal.segment.bytes": history.segment_bytes,
        "index.interval.bytes": 150,
    }


def made(directory: Path, seed: int) -> tuple[History, Path]:
    """A random history, written and closed well, and the directory of its partition."""
    history = random_history(Random(seed), most=60, now_ms=NOW)
    path = directory / f"t{seed}" / "t-0"
    history.written(path, MockClock(NOW)).close()
    return history, path


@pytest.mark.parametrize("seed", SEEDS)
def test_the_oracle_is_what_the_cleaner_of_the_reference_leaves(
    reference: Reference, tmp_path: Path, seed: int
) -> None:
    """CLN-3, CLN-6, CLN-7, CLN-9, CLN-14, CLN-15: the rows that must stay, by rule and by the reference."""
    history, path = made(tmp_path, seed)
    with reference.open(path, settings(history), clean=True) as log:
        stats = log.compact(0, history.stable, NOW)
    assert ours.records(path) == [row.shown for row in history.kept(stats["end_offset"])]


def cleaned_by_us(path: Path, history: History, first_dirty: int, now_ms: int) -> tuple[int, CleanerStats]:
    """A clean of [first dirty, last stable offset), by this package."""
    with opened(path, MockClock(now_ms), internal_segment_bytes=history.segment_bytes) as log:
        engine = log.opened_for_append().log
        to_clean = LogToClean.of(engine, first_dirty, history.stable, ASKED)
        return clean(to_clean, SkimpyOffsetMap(1 << 20), now_ms=now_ms)


def headers(path: Path) -> list[tuple[Any, ...]]:
    """Return the headers of a log's batches, except sizes and checksums, which depend on a codec's library."""
    with kafkalog.open(path) as log:
        found = [batch.header for batch in log.batches()]
    return [
        (
            h.base_offset, h.last_offset, h.magic, h.attributes, h.count, h.base_timestamp, h.max_timestamp,
            h.producer_id, h.producer_epoch, h.base_sequence, h.leader_epoch,
        )
        for h in found
    ]  # fmt: skip


def segments(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("*.log"))


def aborted(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.glob("*.txnindex") if file.stat().st_size}


@pytest.mark.parametrize("seed", SEEDS)
def test_three_cleans_leave_what_those_of_the_reference_leave(
    reference: Reference, tmp_path: Path, seed: int
) -> None:
    """CLN-8, CLN-10 to CLN-12, CLN-16 to CLN-23, CLN-40, CLN-44, CLN-48 to CLN-50: batches, horizons, counters."""
    history, path = made(tmp_path, seed)
    theirs = tmp_path / "theirs" / "t-0"
    shutil.copytree(path.parent, theirs.parent, copy_function=shutil.copy2)
    first = 0
    for now_ms in (NOW, NOW + 1000, NOW + RETENTION_MS + 1000):
        with reference.open(theirs, settings(history), clean=True) as log:
            counts = log.compact(first, history.stable, now_ms)
            log.close(marker=True)
        for file in theirs.glob("*.deleted"):
            file.unlink()
        end, stats = cleaned_by_us(path, history, first, now_ms)
        assert ours.records(path) == ours.records(theirs)
        assert headers(path) == headers(theirs)
        assert (segments(path), aborted(path)) == (segments(theirs), aborted(theirs))
        counted = (
            end, stats.messages_read, stats.messages_written, stats.invalid_messages_read, stats.map_messages_read
        )  # fmt: skip
        assert counted == (  # the reference goes back to 0 where nothing is dirty
            max(first, counts["end_offset"]), counts["messages_read"], counts["messages_written"],
            counts["invalid_messages_read"], counts["map_messages_read"],
        )  # fmt: skip
        first = counts["end_offset"] if now_ms == NOW else 0


@pytest.mark.parametrize("seed", SEEDS[::5])
def test_the_reference_opens_reads_and_cleans_what_we_cleaned(
    reference: Reference, tmp_path: Path, seed: int
) -> None:
    """CLN-25: as after a clean stop and as after a crash; its own cleaner finds nothing more to take."""
    history, path = made(tmp_path, seed)
    end, _ = cleaned_by_us(path, history, 0, NOW)
    kept = [row.shown for row in history.kept(end)]
    for clean_start in (True, False):
        copy = tmp_path / f"copy {clean_start}" / "t-0"
        shutil.copytree(path.parent, copy.parent)
        with reference.open(copy, settings(history), clean=clean_start) as log:
            found = [one for one in log.read() if (one[0],) not in {(m.offset,) for m in history.markers}]
            assert found == kept
            assert log.end_offset == history.end
            log.compact(0, history.stable, NOW)
            log.close(marker=True)
        assert ours.records(copy) == kept


def shown(data: Path, names: list[str], level: str) -> dict[str, list[RecordTuple]]:
    found = {}
    for name in names:
        with kafkalog.open(data / name) as log:
            records = log.records(isolation=level)
            found[name] = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]
    return found


def test_a_broker_serves_what_we_cleaned_and_its_cleaner_agrees(reference: Reference, tmp_path: Path) -> None:
    """Handed over to a real broker: its consumer gets what we read, before and after its own cleaner went over it."""
    data = tmp_path / "data"
    data.mkdir()
    names = [f"h{seed}-0" for seed in range(8)]
    for seed, name in enumerate(names):
        history = random_history(Random(f"broker {seed}"), most=60, close_all=True, now_ms=NOW)
        history.written(data / name, MockClock(NOW), delete_retention_ms=LONG_MS).close()
    report = compact(data, apply=True)
    assert report.records > 100
    before = {level: shown(data, names, level) for level in LEVELS}
    broker = Broker(reference, tmp_path / "work", data, EAGER)
    broker.format()
    ours.command("handover", "-d", str(data), "--apply", "--let-expire")
    checkpoint = data / "cleaner-offset-checkpoint"
    own_offsets = checkpoint.read_text()
    checkpoint.unlink()  # so that all of it is dirty once more
    partitions = [parse_topic_partition_dir(name) for name in names]
    with broker:
        served = {level: broker.consume_all(partitions, level) for level in LEVELS}
        deadline = time.monotonic() + 60
        while not _cleaned_again(checkpoint, own_offsets) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert _cleaned_again(checkpoint, own_offsets), broker.log()[-3000:]
        after = {level: broker.consume_all(partitions, level) for level in LEVELS}
    assert served == before
    assert after == before
    assert {level: shown(data, names, level) for level in LEVELS} == before


def _cleaned_again(checkpoint: Path, own_offsets: str) -> bool:
    """Return True if the broker's cleaner is as far as kafkalog's, in each partition that kafkalog cleaned."""
    if not checkpoint.exists():
        return False
    return set(checkpoint.read_text().splitlines()[2:]) >= set(own_offsets.splitlines()[2:])

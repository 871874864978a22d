"""`compact`: what goes, of which topics, by whose settings; nothing is touched without being asked."""

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.cleanable import CleanRange
from kafkalog.cleaner.pass_ import clean
from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    ConfigError,
    CorruptCheckpoint,
    CorruptRecord,
    DirectoryLocked,
    IllegalArgument,
    IllegalState,
    PartitionNotFound,
    UnknownConfig,
    UnknownTopicOrPartition,
)
from kafkalog.manager.known_topics import QUORUM_FILE
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.topics import TOPICS_FILE
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.compact.directories import compact
from kafkalog.tools.compact.partition import CompactPlan, _DryRunLog
from kafkalog.tools.directories import PartitionPath
from kafkalog.tools.offline_partition import open_offline
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE, OffsetCheckpoint
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS
from tests.builder import R
from tests.builder import batch as made
from tests.raw_batches import batch
from tests.tools.test_retain import content

NOW = 1_700_000_000_000
HOUR = 3_600_000


def make(path: Path, records: list[tuple[bytes | None, bytes | None]], per_segment: int = 2, **settings: Any) -> None:
    """A partition of a compacted topic, with so many records a segment, and an empty one at its end."""
    settings = {"cleanup_policy": "compact", "message_timestamp_before_max_ms": 2**63 - 1, **settings}
    with kafkalog.open(path, "a", **settings) as log:
        for n, (key, value) in enumerate(records):
            log.replicate(batch(log.end_offset, [(NOW + n, key, value)]))  # a leader takes no record without a key
            if n % per_segment == per_segment - 1:
                log.roll()


def records(path: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    with kafkalog.open(path) as log:
        return [(record.offset, record.key, record.value) for record in log]


TWICE: list[tuple[bytes | None, bytes | None]] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"x"), (b"b", None)]


@pytest.mark.parametrize("apply", [False, True])
def test_a_partition_without_segments_does_not_stop_the_others(tmp_path: Path, apply: bool) -> None:
    make(tmp_path / "t-1", TWICE)
    (tmp_path / "t-0").mkdir()
    report = compact(tmp_path, apply=apply, now_ms=NOW + 10)
    assert [one.partition for one in report.cleaned] == [1]
    assert [(one.path, one.why) for one in report.kept] == [(str(tmp_path / "t-0"), "it has no segments")]


def test_told_and_then_done(tmp_path: Path) -> None:
    """CLN-3, CLN-6: the dry run counts what the clean then does."""
    make(tmp_path / "t-0", [*TWICE, (b"a", b"3")])
    make(tmp_path / "plain-0", TWICE, cleanup_policy="delete")
    before = content(tmp_path)
    dry_run = compact(tmp_path, now_ms=NOW + 10)
    assert content(tmp_path) == before and not dry_run.applied
    (one,) = dry_run.cleaned
    assert (one.topic, one.partition, one.first_dirty_offset, one.end_offset) == ("t", 0, 0, 6)
    assert (one.records, one.records_kept, one.without_key) == (6, 2, 1)
    assert dry_run.records == 4 and 0 < dry_run.size < one.size
    assert [kept.why for kept in dry_run.kept] == ["its cleanup.policy is delete"]
    done = compact(tmp_path, now_ms=NOW + 10, apply=True)
    assert done.applied and done.cleaned == dry_run.cleaned
    assert records(tmp_path / "t-0") == [(4, b"b", None), (5, b"a", b"3")]
    assert sum(s.size for s in _segments(tmp_path / "t-0")) == one.size_kept
    assert {name for name in content(tmp_path) if "plain" in name} == {name for name in before if "plain" in name}
    assert kafkalog.verify(tmp_path, deep=True).ok
    assert not compact(tmp_path, now_ms=NOW + 10, apply=True).cleaned


def _segments(path: Path) -> list[Any]:
    with kafkalog.open(path) as log:
        return list(log.segments)


def test_what_was_cleaned_is_remembered_and_what_comes_is_dirty(tmp_path: Path) -> None:
    """CLN-33: the cleaner checkpoint of the data directory."""
    make(tmp_path / "t-0", TWICE[:4])
    compact(tmp_path, apply=True)
    assert "t 0 4" in (tmp_path / "cleaner-offset-checkpoint").read_text()
    make(tmp_path / "t-0", [(b"a", b"4"), (b"c", b"1")])
    (one,) = compact(tmp_path, apply=True).cleaned
    assert (one.first_dirty_offset, one.end_offset, one.records, one.records_kept) == (4, 6, 4, 3)
    assert records(tmp_path / "t-0") == [(1, b"b", b"1"), (4, b"a", b"4"), (5, b"c", b"1")]


def test_a_tombstone_goes_when_its_time_is_over(tmp_path: Path) -> None:
    """CLN-8, CLN-50: from the start, since nothing of it is dirty by then."""
    make(tmp_path / "t-0", [(b"a", b"1"), (b"a", None)], delete_retention_ms=HOUR)
    compact(tmp_path, apply=True, now_ms=NOW)
    assert records(tmp_path / "t-0") == [(1, b"a", None)]
    assert not compact(tmp_path, apply=True, now_ms=NOW + HOUR).cleaned
    compact(tmp_path, apply=True, from_start=True, now_ms=NOW + HOUR - 1)
    assert records(tmp_path / "t-0") == [(1, b"a", None)]
    (one,) = compact(tmp_path, from_start=True, now_ms=NOW + HOUR).cleaned
    assert (one.records, one.records_kept) == (1, 0)
    compact(tmp_path, apply=True, from_start=True, now_ms=NOW + HOUR)
    assert records(tmp_path / "t-0") == []


def test_a_small_map_takes_rounds(tmp_path: Path) -> None:
    """CLN-4: each round goes as far as its map reaches."""
    keys = [b"%d" % (n % 10) for n in range(40)]
    make(tmp_path / "t-0", [(key, b"%d" % n) for n, key in enumerate(keys)], per_segment=10)
    (dry_run,) = compact(tmp_path, map_bytes=24 * 8).cleaned
    assert dry_run.end_offset < 40
    (one,) = compact(tmp_path, apply=True, map_bytes=24 * 8).cleaned
    assert (one.first_dirty_offset, one.end_offset, one.records, one.records_kept) == (0, 40, 40, 10)
    assert [offset for offset, _, _ in records(tmp_path / "t-0")] == list(range(30, 40))


def test_open_transactions_and_young_records_stay(tmp_path: Path) -> None:
    """CLN-15, CLN-30."""
    make(tmp_path / "t-0", [(b"a", b"%d" % n) for n in range(6)], min_compaction_lag_ms=HOUR)
    assert not compact(tmp_path, now_ms=NOW + HOUR).cleaned
    (one,) = compact(tmp_path, now_ms=NOW + HOUR + 3).cleaned
    assert one.end_offset == 4
    assert compact(tmp_path, now_ms=NOW, settings={"min.compaction.lag.ms": 0}).cleaned[0].end_offset == 6


def test_a_topic_that_nobody_knows_is_kept(tmp_path: Path) -> None:
    make(tmp_path / "t-0", TWICE)
    (tmp_path / TOPICS_FILE).unlink()
    report = compact(tmp_path)
    assert not report.cleaned and "settings are unknown" in str(report)
    assert compact(tmp_path, settings={"cleanup_policy": "compact"}).cleaned


def test_a_directory_in_use_is_looked_at_but_not_changed(tmp_path: Path) -> None:
    make(tmp_path / "t-0", TWICE)
    with kafkalog.open(tmp_path / "t-0", "a"):
        assert compact(tmp_path).cleaned
        with pytest.raises(DirectoryLocked):
            compact(tmp_path, apply=True)
    assert compact(tmp_path).cleaned


def test_a_log_that_was_not_closed_well_is_recovered_where_it_is_cleaned(tmp_path: Path) -> None:
    make(tmp_path / "t-0", TWICE[:4])
    with open(tmp_path / "t-0" / f"{4:020d}.log", "ab") as file:
        file.write(b"torn")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    assert compact(tmp_path, apply=True).cleaned
    assert (tmp_path / "t-0" / f"{4:020d}.log").read_bytes() == b""
    assert records(tmp_path / "t-0") == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_damage_stops_it_and_nothing_is_changed(tmp_path: Path) -> None:
    """CLN-28."""
    make(tmp_path / "t-0", TWICE)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before = {name: data for name, data in content(tmp_path).items() if name.startswith("t-0")}
    for apply in (False, True):
        with pytest.raises(CorruptRecord, match=f"{0:020d}.log"):
            compact(tmp_path, apply=apply)
        after = {name: data for name, data in content(tmp_path).items() if name.startswith("t-0")}
        assert after.keys() >= before.keys()
        assert {name: after[name] for name in before if name.endswith(".log")} == {
            name: data for name, data in before.items() if name.endswith(".log")
        }


def test_progress_counts_what_is_read(tmp_path: Path) -> None:
    make(tmp_path / "t-0", TWICE)
    read: list[int] = []
    (one,) = compact(tmp_path, progress=read.append).cleaned
    assert sum(read) == 2 * one.size


def test_a_recovered_log_is_clean_up_to_its_end_at_most(tmp_path: Path) -> None:
    """MGR-25: else what is appended behind that end would count as clean."""
    make(tmp_path / "t-0", TWICE)
    with open(tmp_path / "t-0" / f"{5:020d}.log", "ab") as file:
        file.write(b"torn")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / CLEANER_OFFSET_FILE).write_text("0\n1\nt 0 8\n")
    place = PartitionPath(TopicPartition("t", 0), str(tmp_path / "t-0"))
    plan = CompactPlan(place, LogConfig.from_mapping({"cleanup.policy": "compact"}), NOW, True)
    with LogDir.acquire(str(tmp_path), fs=OS) as log_dir, open_offline(log_dir, plan, OS, SYSTEM_CLOCK) as log:
        assert log.log_end_offset == 5
        assert (tmp_path / CLEANER_OFFSET_FILE).read_text() == "0\n1\nt 0 5\n"


@pytest.mark.parametrize("size", [-5, 0, 24, 47])
def test_a_map_for_no_key_is_refused(tmp_path: Path, size: int) -> None:
    """CLN-5: nothing would be cleaned, and the checkpoint go back."""
    make(tmp_path / "t-0", TWICE)
    for apply in (False, True):
        with pytest.raises(IllegalArgument, match="has no room for a key"):
            compact(tmp_path, map_bytes=size, apply=apply)
    assert not (tmp_path / CLEANER_OFFSET_FILE).exists()


def test_bad_calls(tmp_path: Path) -> None:
    make(tmp_path / "t-0", TWICE)
    with pytest.raises(PartitionNotFound):
        compact(tmp_path / "none")
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic other"):
        compact(tmp_path, topics=["other"])
    with pytest.raises(UnknownConfig, match=r"did you mean delete\.retention\.ms"):
        compact(tmp_path, settings={"delete.retention.mss": 1})
    with pytest.raises(ConfigError, match=r"delete\.retention\.ms"):
        compact(tmp_path, settings={"delete.retention.ms": -2})
    (tmp_path / TOPICS_FILE).write_text("{")
    with pytest.raises(CorruptCheckpoint):
        compact(tmp_path)


@pytest.mark.parametrize("closed_well", [True, False])
def test_a_dry_run_knows_the_producers(tmp_path: Path, closed_well: bool) -> None:
    """CLN-11: their last batches stay without a record; it counts them as the clean does, and writes nothing."""
    now, path = SYSTEM_CLOCK.milliseconds(), tmp_path / "t-0"
    with kafkalog.open(path, "a", cleanup_policy="compact") as log:
        for n, (producer, sequence) in enumerate([(7, 0), (8, 0), (7, 1), (9, 0), (-1, -1), (-1, -1)]):
            fields = {"producer_id": producer, "producer_epoch": min(producer, 0), "base_sequence": sequence}
            log.replicate(made([R(b"%d" % n, b"k", timestamp=now)], base_offset=n, leader_epoch=0, **fields))
            if n in (1, 4):
                log.roll()
        log.roll()
    if not closed_well:
        for file in (*path.glob("*.snapshot"), tmp_path / ".kafka_cleanshutdown"):
            file.unlink(missing_ok=True)
    before = sorted(file.name for file in path.iterdir())
    (dry,) = compact(tmp_path).cleaned
    assert sorted(file.name for file in path.iterdir()) == before
    (done,) = compact(tmp_path, apply=True).cleaned
    assert dry == done and (done.records, done.records_kept) == (6, 1)
    with kafkalog.open(path) as log:
        assert [one.header.producer_id for one in log.batches()] == [8, 7, 9, -1]


def test_a_log_that_is_looked_at_is_not_written(tmp_path: Path) -> None:
    make(tmp_path / "t-0", TWICE)
    place = PartitionPath(TopicPartition("t", 0), str(tmp_path / "t-0"))
    plan = CompactPlan(place, LogConfig(cleanup_policy="compact"), NOW, True)
    before = {file: file.read_bytes() for file in (tmp_path / "t-0").iterdir()}
    with LogView(plan.place.path, fs=OS) as view, pytest.raises(IllegalState, match="open read-only"):
        clean(CleanRange(_DryRunLog(view, plan, OS), 0, 4), SkimpyOffsetMap(2400), now_ms=NOW)
    assert {file: file.read_bytes() for file in (tmp_path / "t-0").iterdir()} == before


def test_a_node_of_a_replica_set_keeps_what_only_a_discarded_record_would_replace(tmp_path: Path) -> None:
    """Its leader may discard records above the high watermark, and has agreed with it on an epoch at the log's end."""
    key = TopicPartition("t", 0)
    make(tmp_path / "t-0", [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"a", b"3")], per_segment=1)
    (tmp_path / QUORUM_FILE).write_text('{"version": 1, "term": 5, "leader": 2, "voted_for": 2}')
    marks = OffsetCheckpoint(tmp_path / HIGH_WATERMARK_FILE)
    marks.write({key: 3})
    epochs = tmp_path / "t-0" / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n5 4\n")
    for apply in (False, True):
        (one,) = compact(tmp_path, apply=apply, now_ms=NOW + 10).cleaned
        assert (one.end_offset, one.records, one.records_kept) == (3, 3, 2)
    assert records(tmp_path / "t-0") == [(1, b"a", b"2"), (2, b"b", b"1"), (3, b"a", b"3")]
    assert marks.read() == {key: 3} and epochs.read_text() == "0\n2\n0 0\n5 4\n"

"""`retain`: what goes and why, by whose settings; nothing else is touched, and nothing without being asked."""

import os
import warnings
from pathlib import Path

import pytest

import kafkalog
from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import (
    ConfigError,
    CorruptCheckpoint,
    DirectoryLocked,
    PartitionNotFound,
    UnknownConfig,
    UnknownTopicOrPartition,
)
from kafkalog.manager.known_topics import KEEP_ALL, read_known_topics
from kafkalog.manager.topics import TOPICS_FILE
from kafkalog.tools.retain.directories import retain

NOW = 1_700_000_000_000
DAY = 86_400_000


def content(path: Path) -> dict[str, bytes]:
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name != ".lock"]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def make(path: Path, segments: int = 4, **settings: object) -> None:
    """A partition with `segments` segments of one record, a day apart, the last one from NOW."""
    settings.setdefault("message_timestamp_before_max_ms", 2**63 - 1)
    with kafkalog.open(path, "a", **settings) as log:
        for number in range(segments):
            if number:
                log.roll()
            log.append([(b"k", b"v", NOW - (segments - 1 - number) * DAY)])


def test_by_time_size_and_log_start(tmp_path: Path) -> None:
    make(tmp_path / "time-0", retention_ms=2 * DAY)
    make(tmp_path / "size-0", retention_bytes=140, retention_ms=-1)
    make(tmp_path / "start-0", retention_ms=-1)
    with kafkalog.open(tmp_path / "start-0", "a") as log:
        log._opened.log.maybe_increment_log_start_offset(2)  # type: ignore[union-attr]
        log._opened.record_log_start()  # type: ignore[union-attr]
    make(tmp_path / "rest-0")
    before = content(tmp_path)
    planned = retain(tmp_path, now_ms=NOW + 1)
    assert content(tmp_path) == before
    assert [(one.topic, one.base_offset, one.reason) for one in planned.due] == [
        ("size", 0, "size"), ("size", 1, "size"), ("start", 0, "log start"), ("start", 1, "log start"),
        ("time", 0, "time"), ("time", 1, "time"),
    ]  # fmt: skip
    assert planned.size == sum(one.size for one in planned.due) > 0
    done = retain(tmp_path, now_ms=NOW + 1, apply=True)
    assert (done.due, done.applied, planned.applied) == (planned.due, True, False)
    after = content(tmp_path)
    assert {name: data for name, data in after.items() if "rest-0" in name} == {
        name: data for name, data in before.items() if "rest-0" in name
    }
    for name in ("time-0", "size-0", "start-0"):
        with kafkalog.open(tmp_path / name) as log:
            assert (log.start_offset, log.end_offset, len(log.segments)) == (2, 4, 2)
    assert ".kafka_cleanshutdown" in after
    assert kafkalog.verify(tmp_path).ok
    assert not retain(tmp_path, now_ms=NOW + 1).due


def test_all_of_it(tmp_path: Path) -> None:
    """LOG-43: an empty segment is begun, and the offsets go on."""
    make(tmp_path / "t-0", retention_ms=1)
    assert len(retain(tmp_path, now_ms=NOW + 2, apply=True).due) == 4
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert (log.start_offset, log.end_offset) == (4, 4)
        assert log.append([b"v"]).first_offset == 4


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topics(tmp_path: Path, policy: str) -> None:
    """LOG-48: without delete in the policy nothing ages."""
    make(tmp_path / "t-0", retention_ms=1, cleanup_policy=policy)
    assert len(retain(tmp_path, now_ms=NOW + 2).due) == (4 if "delete" in policy else 0)


def test_a_topic_that_nobody_knows_is_kept(tmp_path: Path) -> None:
    """A copy without its topics file has no known retention."""
    make(tmp_path / "t-0", retention_ms=1)
    (tmp_path / TOPICS_FILE).unlink()
    report = retain(tmp_path, now_ms=NOW + 1000 * DAY)
    assert not report.due
    assert [os.path.basename(one.path) for one in report.kept] == ["t-0"]
    assert "settings are unknown" in str(report)
    assert not retain(tmp_path, now_ms=NOW + 1000 * DAY, store={"log.segment.bytes": 1 << 20}).due
    for given in ({"settings": {"retention.ms": 1}}, {"store": {"log.retention.hours": "1"}}):
        assert len(retain(tmp_path, now_ms=NOW + 1000 * DAY, **given).due) == 4  # type: ignore[arg-type]
    known = read_known_topics([str(tmp_path)])
    assert known.config_of("t", BrokerConfig()).overrides() == KEEP_ALL


def test_settings_of_the_call_over_the_topic_s_over_the_store_s(tmp_path: Path) -> None:
    make(tmp_path / "own-0", retention_ms=2 * DAY)
    make(tmp_path / "none-0")

    def due(**given: object) -> dict[str, int]:
        report = retain(tmp_path, now_ms=NOW + 1, **given)  # type: ignore[arg-type]
        return {name: sum(one.topic == name for one in report.due) for name in ("own", "none")}

    assert due() == {"own": 2, "none": 0}
    assert due(store={"log.retention.hours": 24}) == {"own": 2, "none": 3}
    assert due(settings={"retention_ms": -1}, store={"log.retention.hours": 24}) == {"own": 0, "none": 0}
    assert due(topics=["none"], settings={"retention.ms": 0}) == {"own": 0, "none": 4}


def test_a_log_that_was_not_closed_well_is_recovered_where_something_goes(tmp_path: Path) -> None:
    for name in ("old-0", "young-0"):
        make(tmp_path / name, retention_ms=2 * DAY if name == "old-0" else -1)
        with open(tmp_path / name / f"{3:020d}.log", "ab") as file:
            file.write(b"torn")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    retain(tmp_path, now_ms=NOW + 1, apply=True)
    assert not (tmp_path / "old-0" / f"{3:020d}.log").read_bytes().endswith(b"torn")
    assert (tmp_path / "young-0" / f"{3:020d}.log").read_bytes().endswith(b"torn")
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_one_partition_of_a_directory(tmp_path: Path) -> None:
    make(tmp_path / "t-0", retention_ms=1)
    make(tmp_path / "t-1", retention_ms=1)
    report = retain(tmp_path / "t-1", now_ms=NOW + 2)
    assert {one.partition for one in report.due} == {1}
    assert retain([tmp_path / "t-1", tmp_path], now_ms=NOW + 2).partitions == 2


def test_a_directory_in_use_is_looked_at_but_not_changed(tmp_path: Path) -> None:
    make(tmp_path / "t-0", retention_ms=1)
    with kafkalog.open(tmp_path / "t-0", "a"):
        assert len(retain(tmp_path, now_ms=NOW + 2).due) == 4
        with pytest.raises(DirectoryLocked):
            retain(tmp_path, now_ms=NOW + 2, apply=True)
    assert len(retain(tmp_path, now_ms=NOW + 2).due) == 4


def test_files_times_count_only_without_timestamps(tmp_path: Path) -> None:
    """LOG-40: as seen from outside, too."""
    from tests.raw_batches import batch

    with kafkalog.open(tmp_path / "t-0", "a", retention_ms=1000) as log:
        log._opened.log.append_as_follower(batch(0, [(-1, b"k", b"v")]), 0)  # type: ignore[union-attr]
        log.roll()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    os.utime(path, (NOW // 1000, NOW // 1000))
    assert not retain(tmp_path, now_ms=NOW + 1000).due
    assert [one.reason for one in retain(tmp_path, now_ms=NOW + 1001).due] == ["time"]
    assert len(retain(tmp_path, now_ms=NOW + 1001, apply=True).due) == 1


def test_bad_calls(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    with pytest.raises(PartitionNotFound):
        retain(tmp_path / "none")
    with pytest.raises(PartitionNotFound):
        retain(tmp_path / "none-0")
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic other"):
        retain(tmp_path, topics=["other"])
    with pytest.raises(UnknownConfig, match=r"did you mean retention\.ms"):
        retain(tmp_path, settings={"retention.mss": 1})
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        retain(tmp_path, settings={"retention.ms": -2})
    with pytest.raises(UnknownConfig, match="no server runs here"):
        retain(tmp_path, store={"num.io.threads": 1})


def test_settings_that_cannot_be_read_are_no_reason_to_delete(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    (tmp_path / TOPICS_FILE).write_text("{")
    with pytest.raises(CorruptCheckpoint):
        retain(tmp_path, now_ms=NOW + 1000 * DAY)


def test_a_small_segment_size_of_a_topic_is_no_warning_here(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="below 1 MiB"):
        make(tmp_path / "t-0", segment_bytes=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        retain(tmp_path, now_ms=NOW)

"""A store at work: its jobs, what they do to its logs, and the settings of a broker's directories."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, OffsetOutOfRange, StorageError
from kafkalog.manager.known_topics import KEEP_ALL
from tests.held_store import ANY_TIME, DAY, NOW, Held
from tests.manager.metadata_files import BROKER, setting, topic_values, write_metadata

RARE = {"replica_high_watermark_checkpoint_interval_ms": DAY}


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with Held(tmp_path / "a", tmp_path / "b") as made:
        yield made


def test_jobs_tell_their_last_run(held: Held) -> None:
    names = [
        "kafka-log-retention", "kafka-log-flusher", "kafka-recovery-point-checkpoint",
        "kafka-log-start-offset-checkpoint", "kafka-delete-logs", "PeriodicProducerExpirationCheck",
        "highwatermark-checkpoint",
    ]  # fmt: skip
    assert [job.name for job in held.dirs.jobs] == names
    assert [job.runs for job in held.dirs.jobs] == [0, 0, 0, 0, 0, 0, 1]
    held.pass_time(30_000, 1000)
    assert [job.runs for job in held.dirs.jobs] == [1, 1, 1, 1, 1, 0, 7]
    retention = held.dirs.jobs[0]
    assert (retention.last_run_ms, retention.last_duration_ms, retention.last_error) == (NOW + 30_000, 0, None)
    held.pass_time(600_000, 1000)
    assert [job.runs for job in held.dirs.jobs][:2] == [3, 1]
    assert held.dirs.jobs[5].runs == 1


def test_retention_by_time(held: Held) -> None:
    """MGR-13: all is old, one empty segment is left; an append goes on; an old offset is out of range."""
    held.dirs.create_topic("t", 1, {"retention.ms": 1000, "segment.ms": 10, "file.delete.delay.ms": 500})
    log = held.dirs["t", 0]
    for _ in range(200):
        log.append([(b"k", b"v", held.clock.milliseconds())])
        held.clock.advance(1)
    assert len(log.segments) > 5
    held.pass_time(400_000, 1000)
    assert (len(log.segments), log.start_offset, log.end_offset) == (1, 200, 200)
    assert not [name for name in os.listdir(log.path) if name.endswith(".deleted")]
    with pytest.raises(OffsetOutOfRange):
        log[0]
    assert log.append(b"v").first_offset == 200


def test_a_wall_clock_that_jumps_kills_nothing(tmp_path: Path) -> None:
    held = Held(tmp_path, **RARE)
    held.dirs.create_topic("t", 1, {"retention.ms": 30 * DAY, **ANY_TIME})
    log = held.dirs["t", 0]
    log.append([(b"k", b"v", NOW)])
    log.roll()
    held.clock.set_wall_ms(NOW + 1000 * DAY)
    held.pass_time(DAY // 2, 60_000)
    held.clock.set_wall_ms(NOW - 1000 * DAY)
    log.append(b"written by a clock that went back")
    held.pass_time(DAY // 2, 60_000)
    held.clock.set_wall_ms(NOW + DAY)
    held.pass_time(DAY // 2, 60_000)
    assert (log.start_offset, log.end_offset) == (0, 2)
    assert held.dirs.jobs[0].runs > 400
    held.dirs.close()


def test_a_topic_s_flush_ms_is_kept(held: Held) -> None:
    """MGR-16: also one that is changed while the store runs."""
    held.dirs.create_topic("t")
    log = held.store._manager.logs["t", 0]  # type: ignore[index]
    held.pass_time(3_600_000, 10_000)
    held.dirs["t", 0].append(b"v")
    held.pass_time(60_000, 100)
    assert log.recovery_point == 0
    held.dirs.alter_topic("t", {"flush.ms": 1000})
    held.pass_time(2000, 100)
    assert log.recovery_point == 1
    held.dirs["t", 0].append(b"v")
    held.pass_time(2000, 100)
    assert log.recovery_point == 2


def test_a_job_that_fails_says_so_and_runs_again(held: Held) -> None:
    held.dirs.create_topic("t")
    held.dirs["t", 0].append(b"v")
    held.fs.fail("pwrite", path="replication-offset-checkpoint")
    held.pass_time(10_000, 1000)
    job = held.dirs.jobs[-1]
    assert isinstance(job.last_error, StorageError) and job.runs == 3
    assert "failed: cannot write" in repr(job)
    held.fs.heal()
    held.pass_time(5000, 1000)
    assert job.last_error is None
    with pytest.raises(AttributeError):
        held.dirs.jobs[0].run = None  # type: ignore[method-assign, assignment]
    held.dirs.jobs[0].run()
    assert held.dirs.jobs[0].runs == 1


def test_real_jobs_run_by_themselves_and_end_with_the_store(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with kafkalog.open_dirs(tmp_path, "a", replica_high_watermark_checkpoint_interval_ms=1) as dirs:
        job = dirs.jobs[-1]
        while job.runs < 3:
            threading.Event().wait(0.001)
        dirs.alter({"background.threads": 1})
    assert set(threading.enumerate()) <= before


# Directories that a broker made


def test_settings_of_a_broker_s_topics(tmp_path: Path) -> None:
    """From __cluster_metadata-0: the broker's dynamic settings, the topics' own over them."""
    for name in ("own-0", "store-0", "copied-0"):
        kafkalog.open(tmp_path / name, "a").close()
    (tmp_path / "kafkalog.topics.json").unlink()
    values = [*topic_values("own", {"retention.ms": "5"}), setting(BROKER, "", "log.retention.ms", "6")]
    values += topic_values("store", {}, topic_id="OWaNnne1Th-s6Mc2ZfTCvg")
    write_metadata(tmp_path, values)
    with Held(tmp_path) as held:
        found = {key.topic: log.config.retention_ms for key, log in held.store._manager.logs.items()}
        assert found == {"own": 5, "store": 6, "copied": 6}
        assert held.dirs.topics["own"].settings == {"retention.ms": "5"}
        assert held.dirs.topics["store"].settings == {}
    with Held(tmp_path, log_retention_ms=7) as held:
        assert held.store._manager.logs["store", 0].config.retention_ms == 7  # type: ignore[index]
    with kafkalog.open_dirs(tmp_path) as dirs:
        assert dirs.topics["own"].settings == {"retention.ms": "5"}
        assert dirs.config.overrides() == {"log.retention.ms": "6"}


@pytest.mark.slow
def test_a_topic_that_nobody_knows_is_not_aged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copy of a partition: it may be all that is left of it."""
    with kafkalog.open(tmp_path / "copy-0", "a", **{"message.timestamp.before.max.ms": 2**63 - 1}) as log:
        log.append([(b"k", b"v", 1)])
        log.roll()
    (tmp_path / "kafkalog.topics.json").unlink()
    with Held(tmp_path, **RARE) as held:
        assert "the settings of copy are unknown" in caplog.text
        assert held.dirs.topics["copy"].settings == KEEP_ALL
        held.pass_time(8 * DAY)  # longer than `log.retention.hours` is by default
        assert held.dirs["copy", 0].start_offset == 0
    with Held(tmp_path, log_retention_hours=1, **RARE) as held:
        held.pass_time(DAY, 100_000)
        assert held.dirs["copy", 0].start_offset == 1


def test_damaged_settings_are_an_error(tmp_path: Path) -> None:
    write_metadata(tmp_path, topic_values("t", {"retention.ms": "-1"}))
    path = next(tmp_path.rglob("*.log"))
    path.write_bytes(path.read_bytes() + b"torn")
    with pytest.raises(CorruptRecord, match="kafkalog repair"):
        kafkalog.open_dirs(tmp_path, "a")


def test_nobody_is_told_of_a_topic_that_is_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its directory is pending delete; the topics file no longer has it."""
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t")
        dirs.delete_topic("t")
    assert [path.name for path in tmp_path.glob("t-0.*-delete")]
    with kafkalog.open_dirs(tmp_path, "a"):
        assert "are unknown" not in caplog.text

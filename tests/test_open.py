"""`kafkalog.open(path, "a")`: names, locks, topic settings, the clean-shutdown marker, closing, dropping, forking."""

import errno
import gc
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import (
    ConfigError,
    DirectoryLocked,
    LogClosed,
    NotAPartition,
    OffsetOutOfRange,
    PartitionNotFound,
    ReadOnlyLog,
    StorageError,
    UnknownConfig,
)
from kafkalog.log.open_writable import open_for_append
from kafkalog.manager.known_topics import QUORUM_FILE
from kafkalog.manager.log_dir import LogDir
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, OffsetCheckpoint
from tests.faults import FaultFS
from tests.open_logs import read_values

MARKER = ".kafka_cleanshutdown"


def test_open_creates_the_partition_with_its_topic_entry_and_metadata(tmp_path: Path) -> None:
    """LOG-1: a new log has one empty segment, its indexes and an empty epoch file."""
    with kafkalog.open(tmp_path / "t-0", "a", segment_bytes=1 << 20) as log:
        assert (log.start_offset, log.end_offset, log.high_watermark) == (0, 0, 0)
        assert log.settings == {"segment.bytes": "1048576"}
        names = set(os.listdir(log.path))
    assert {
        "00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex",
        "leader-epoch-checkpoint", "partition.metadata",
    } <= names  # fmt: skip
    entry = json.loads((tmp_path / "kafkalog.topics.json").read_text())["topics"]["t"]
    assert entry["partitions"] == 1 and entry["configs"] == {"segment.bytes": "1048576"}
    assert (tmp_path / "t-0" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {entry['id']}"


def test_settings_of_the_topic_stay_and_those_of_one_open_lie_over_them(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "t-0", "a", segment_bytes=1 << 20).close()
    with kafkalog.open(tmp_path / "t-0", "a", retention_ms=5) as log:
        assert log.settings == {"retention.ms": "5", "segment.bytes": "1048576"}
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert log.settings == {"segment.bytes": "1048576"}


def test_a_second_partition_grows_the_topic_and_shares_its_id(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "t-0", "a").close()
    kafkalog.open(tmp_path / "t-2", "a").close()
    entry = json.loads((tmp_path / "kafkalog.topics.json").read_text())["topics"]["t"]
    assert entry["partitions"] == 3
    ids = {(tmp_path / f"t-{n}" / "partition.metadata").read_text() for n in (0, 2)}
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nodash", NotAPartition), ("t-", NotAPartition), ("-0", NotAPartition), ("t-x", NotAPartition),
        ("t-00", NotAPartition), ("t-+1", NotAPartition), ("t-99999999999", NotAPartition),
        ("a b-0", NotAPartition), ("é-0", NotAPartition), (".-0", NotAPartition), ("..-0", NotAPartition),
        (f"t-0.{'0' * 32}-delete", NotAPartition), (f"t-0.{'0' * 32}-future", NotAPartition),
        ("a" * 250 + "-0", NotAPartition),
    ],
)  # fmt: skip
def test_a_name_that_is_no_live_partition_is_refused(tmp_path: Path, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        kafkalog.open(tmp_path / name, "a")
    assert os.listdir(tmp_path) == []


def test_unknown_settings_and_bad_values_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UnknownConfig, match="segment.bytes") as unknown:
        kafkalog.open(tmp_path / "t-0", "a", segment_byte=1)
    assert isinstance(unknown.value, TypeError)
    with pytest.raises(ConfigError, match="segment.ms"):
        kafkalog.open(tmp_path / "t-0", "a", segment_ms=0)
    with pytest.raises(ValueError, match="sync"):
        kafkalog.open(tmp_path / "t-0", "a", sync=-1)
    assert not (tmp_path / "t-0").exists() and not (tmp_path / "kafkalog.topics.json").exists()


def test_paths_that_are_missing_or_not_what_is_meant(tmp_path: Path) -> None:
    with pytest.raises(PartitionNotFound, match="nor its parent exists") as missing:
        kafkalog.open(tmp_path / "no" / "data" / "t-0", "a")
    assert missing.value.path == str(tmp_path / "no" / "data")
    assert isinstance(missing.value, FileNotFoundError)
    assert os.listdir(tmp_path) == []
    (tmp_path / "t-1").write_text("a file")
    with pytest.raises(NotAPartition, match="a file has the name"):
        kafkalog.open(tmp_path / "t-1", "a")
    assert (tmp_path / "t-1").read_text() == "a file"
    with pytest.raises(NotAPartition, match="data directory is a file"):
        kafkalog.open(tmp_path / "t-1" / "u-0", "a")
    (tmp_path / "photos-2026").mkdir()
    (tmp_path / "photos-2026" / "beach.jpg").write_bytes(b"x")
    with pytest.raises(NotAPartition, match="beach.jpg"):
        kafkalog.open(tmp_path / "photos-2026", "a")
    assert os.listdir(tmp_path / "photos-2026") == ["beach.jpg"]


def test_a_missing_data_directory_is_made_and_gets_its_marker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with kafkalog.open(data / "t-0", "a") as log:
        log.append(b"v")
        with kafkalog.open(data / "u-0", "a") as other:
            other.append(b"w")
    assert (data / ".kafka_cleanshutdown").exists()
    with kafkalog.open(data / "t-0", "a") as log:
        assert log.append(b"v").first_offset == 1
    assert read_values(data / "u-0") == [b"w"]


def test_a_new_data_directory_is_on_disk_before_anything_is_in_it(tmp_path: Path) -> None:
    fs = FaultFS()
    open_for_append(tmp_path / "data" / "t-0", fs=fs).close()
    calls = [(call.op, call.path) for call in fs.calls]
    made = calls.index(("mkdir", str(tmp_path / "data")))
    synced = calls.index(("fsync", str(tmp_path)), made)
    assert synced < calls.index(("mkdir", str(tmp_path / "data" / "t-0")))


def test_a_data_directory_made_for_an_open_that_fails_is_taken_away(tmp_path: Path) -> None:
    """Whatever call fails, and for bad settings too; what was there before is as it was."""
    (tmp_path / "here").mkdir()
    with pytest.raises(ConfigError):
        kafkalog.open(tmp_path / "data" / "t-0", "a", segment_ms=0)
    for nth in range(1, 200):
        fs = FaultFS()
        rule = fs.fail(nth=nth, times=1, code=errno.ENOSPC)
        try:
            opened = open_for_append(tmp_path / "data" / "t-0", fs=fs)
        except StorageError as error:
            assert error.errno == errno.ENOSPC and str(tmp_path / "data") in str(error.path)
            assert os.listdir(tmp_path) == ["here"]
            continue
        assert rule.fired == 0
        fs.heal()
        opened.close()
        break
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        assert log.append(b"v").first_offset == 0


def test_a_data_directory_in_use_stays_when_another_open_in_it_fails(tmp_path: Path) -> None:
    """The first open created it, a second one of this process uses it: it is needed, even if one of them fails."""
    log_dir = LogDir.acquire(tmp_path / "data", create=True)
    (tmp_path / "data" / "other").mkdir()
    log_dir.discard(("kafkalog.topics.json",))
    assert sorted(os.listdir(tmp_path / "data")) == [".lock", "other"]
    first, second = LogDir.acquire(tmp_path / "data"), LogDir.acquire(tmp_path / "data")
    (tmp_path / "data" / "other").rmdir()
    first.discard(())
    assert (tmp_path / "data" / ".lock").exists()
    second.discard(())
    assert os.listdir(tmp_path) == []


def test_a_partition_that_cannot_be_made_in_a_directory_keeps_the_files_there(tmp_path: Path) -> None:
    """A topic id that was there is not lost with the files of the failed open."""
    with kafkalog.open(tmp_path / "t-0", "a"):
        pass
    path = tmp_path / "t-0"
    for name in os.listdir(path):
        if name != "partition.metadata":
            (path / name).unlink()
    before = (path / "partition.metadata").read_bytes()
    fs = FaultFS()
    fs.fail("open", path=".log", times=1)
    with pytest.raises(StorageError):
        open_for_append(path, fs=fs)
    assert os.listdir(path) == ["partition.metadata"] and (path / "partition.metadata").read_bytes() == before


def test_an_empty_directory_becomes_the_partition(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
    assert read_values(tmp_path / "t-0") == [b"v"]


def test_a_symlink_locks_the_directory_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "links").mkdir()
    kafkalog.open(tmp_path / "real" / "t-0", "a").close()
    (tmp_path / "links" / "other-5").symlink_to(tmp_path / "real" / "t-0")
    with kafkalog.open(tmp_path / "links" / "other-5", "a") as log:
        assert str(log.topic_partition) == "t-0"
        with pytest.raises(DirectoryLocked):
            kafkalog.open(tmp_path / "real" / "t-0", "a")
    assert not (tmp_path / "links" / ".lock").exists()


# the marker


def test_the_marker_goes_before_the_first_write_and_comes_back_with_a_clean_close(tmp_path: Path) -> None:
    log = kafkalog.open(tmp_path / "t-0", "a")
    assert not (tmp_path / MARKER).exists()
    log.append(b"1")
    log.close()
    assert (tmp_path / MARKER).read_text() == '{"version":0,"brokerEpoch":-1}'
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert not (tmp_path / MARKER).exists()
        assert log.append(b"2").first_offset == 1
    assert (tmp_path / MARKER).exists()


def test_a_partition_that_no_marker_vouches_for_is_recovered(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append(b"1")
        log.append(b"2")
    (tmp_path / MARKER).unlink()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-3])
    assert read_values(tmp_path / "t-0") == [b"1"]
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert log.append(b"3").first_offset == 1
    assert read_values(tmp_path / "t-0") == [b"1", b"3"]
    assert (tmp_path / MARKER).exists()


def test_a_new_partition_beside_an_unvouched_one_gets_no_marker(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "t-0", "a").close()
    (tmp_path / MARKER).unlink()
    kafkalog.open(tmp_path / "t-1", "a").close()
    assert not (tmp_path / MARKER).exists()


def test_a_killed_process_leaves_no_marker(tmp_path: Path) -> None:
    code = f"""
import kafkalog, os, signal
log = kafkalog.open({str(tmp_path / "t-0")!r}, "a")
log.append([b"1", b"2"])
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert not (tmp_path / MARKER).exists()
    assert read_values(tmp_path / "t-0") == [b"1", b"2"]
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert log.append(b"3").first_offset == 2
    assert (tmp_path / MARKER).exists()


def test_partitions_open_and_close_one_by_one_in_one_process(tmp_path: Path) -> None:
    first = kafkalog.open(tmp_path / "t-0", "a")
    second = kafkalog.open(tmp_path / "t-1", "a")
    first.append(b"1")
    first.close()
    assert not (tmp_path / MARKER).exists(), "the second is still open"
    again = kafkalog.open(tmp_path / "t-0", "a")
    assert again.append(b"2").first_offset == 1
    again.close()
    second.close()
    assert (tmp_path / MARKER).exists()


# locks


def test_the_same_partition_is_opened_for_writing_once(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        with pytest.raises(DirectoryLocked, match="in this process"):
            kafkalog.open(tmp_path / "t-0", "a")
        log.append(b"1")
    assert read_values(tmp_path / "t-0") == [b"1"]


def test_another_process_is_kept_out_and_reads(tmp_path: Path) -> None:
    path = str(tmp_path / "t-0")
    code = f"""
import kafkalog, sys
print([r.value for r in kafkalog.open({path!r})])
try:
    kafkalog.open({path!r}, "a")
except kafkalog.errors.DirectoryLocked as error:
    print(error.path)
"""
    with kafkalog.open(path, "a") as log:
        log.append(b"1")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[b'1']", str(tmp_path / ".lock")], done.stderr


# dropped, closed, forked


def test_a_dropped_log_warns_and_is_closed_well(tmp_path: Path) -> None:
    log = kafkalog.open(tmp_path / "t-0", "a")
    log.append(b"1")
    with pytest.warns(ResourceWarning, match="never closed"):
        del log
        gc.collect()
    assert (tmp_path / MARKER).exists()
    kafkalog.open(tmp_path / "t-0", "a").close()


def test_a_log_left_open_is_closed_when_the_interpreter_ends(tmp_path: Path) -> None:
    code = f"""
import kafkalog
log = kafkalog.open({str(tmp_path / "t-0")!r}, "a")
writer = log.writer(linger_ms=60_000)
writer.append(b"1")
"""
    done = subprocess.run([sys.executable, "-Wdefault", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "still open" in done.stderr, done.stderr
    assert (tmp_path / MARKER).exists()
    assert read_values(tmp_path / "t-0") == [b"1"]


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = kafkalog.open(tmp_path / "t-0", "a")
    log.close()
    log.close()
    for call in (
        lambda: log.append(b"x"), lambda: log.append_bytes(b""), lambda: log.replicate(b""), log.flush, log.roll,
        lambda: log.truncate_to(0), lambda: log.delete_before(0), log.writer,
    ):  # fmt: skip
        with pytest.raises(LogClosed, match="log t-0 is closed"):
            call()
    assert repr(log) == "<Log t-0 closed>"


def test_a_log_for_reading_refuses_to_write(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "t-0", "a").close()
    with kafkalog.open(tmp_path / "t-0") as log:
        for call in (
            lambda: log.append(b"x"), lambda: log.append_bytes(b""), lambda: log.replicate(b""), log.flush, log.roll,
            lambda: log.truncate_to(0), lambda: log.delete_before(0), log.writer, lambda: log.settings,
            lambda: log.truncate_fully_and_start_at(0),
        ):  # fmt: skip
            with pytest.raises(ReadOnlyLog, match="mode 'a'"):
                call()


def test_a_forked_child_cannot_write_and_harms_nothing(tmp_path: Path) -> None:
    code = f"""
import kafkalog, os, sys
log = kafkalog.open({str(tmp_path / "t-0")!r}, "a")
writer = log.writer(linger_ms=60_000)
writer.append(b"1")
writer.flush()
waiting = writer.append(b"2")
pid = os.fork()
if pid == 0:
    refused = 0
    for call in (lambda: log.append(b"x"), lambda: writer.append(b"x"), log.flush, log.roll,
                 lambda: log.truncate_to(0), lambda: kafkalog.open({str(tmp_path / "t-0")!r}, "a"),
                 writer.flush, waiting.result, lambda: log.append_bytes(b""), log.writer):
        try:
            call()
        except (kafkalog.errors.IllegalState, kafkalog.errors.DirectoryLocked):
            refused += 1
    with kafkalog.open({str(tmp_path / "t-0")!r}) as view:
        read = [record.value for record in view]
    writer.close()
    log.close()
    sys.exit(0 if refused == 10 and read == [b"1"] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
writer.close()
assert waiting.result() == 1
log.close()
"""
    quiet = "ignore:This process:DeprecationWarning"  # from 3.12 on Python warns of what this test is about
    command = [sys.executable, "-W", "always", "-W", quiet, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_values(tmp_path / "t-0") == [b"1", b"2"]
    kafkalog.open(tmp_path / "t-0", "a").close()


def test_nothing_warns_in_a_usual_session(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kafkalog.open(tmp_path / "t-0", "a") as log, log.writer() as writer:
            writer.append(b"1")
        gc.collect()
    assert read_values(tmp_path / "t-0") == [b"1"]


def test_the_lock_is_held_by_counted_holders(tmp_path: Path) -> None:
    """A LogDir held around several opens settles the marker once, at the end."""
    holder = LogDir.acquire(tmp_path)
    kafkalog.open(tmp_path / "t-0", "a").close()
    assert not (tmp_path / MARKER).exists()
    holder.release()
    assert (tmp_path / MARKER).exists()



def test_a_small_segment_size_is_warned_about_once_where_it_is_given(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="below 1 MiB") as warned:
        kafkalog.open(tmp_path / "t-0", "a", segment_bytes=2000).close()
    assert [warning.filename for warning in warned] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kafkalog.open(tmp_path / "t-0", "a") as log:
            assert log.settings == {"segment.bytes": "2000"}


def test_a_recovery_that_fails_is_no_good_close(tmp_path: Path) -> None:
    """LOAD-30: no marker covers a log that was not closed well and could not be recovered."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"v"] * 10)
    (tmp_path / MARKER).unlink()
    fs = FaultFS()
    fs.fail("pread", "preadv", path=".log", code=errno.EIO)
    with pytest.raises(StorageError):
        open_for_append(tmp_path / "t-0", fs=fs)
    assert not (tmp_path / MARKER).exists()
    kafkalog.open(tmp_path / "t-0", "a").close()
    assert (tmp_path / MARKER).exists()


def test_a_node_of_a_replica_set_keeps_its_high_watermark_and_epochs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its leader may discard the records above the mark, also those that are appended here."""
    key = TopicPartition("t", 0)
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"0", b"1", b"2"])
    (tmp_path / QUORUM_FILE).write_text('{"version": 1, "term": 5, "leader": 2, "voted_for": 2}')
    marks = OffsetCheckpoint(tmp_path / HIGH_WATERMARK_FILE)
    marks.write({key: 2})
    epochs = tmp_path / "t-0" / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n5 3\n")
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert "other nodes have copies" in caplog.text and "offset 2 on" in caplog.text
        assert (log.high_watermark, log.end_offset) == (2, 3)
    assert marks.read() == {key: 2} and epochs.read_text() == "0\n2\n0 0\n5 3\n"
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"3"])
        assert [one.value for one in log.records(isolation="high_watermark")] == [b"0", b"1"]
        with pytest.raises(OffsetOutOfRange):
            log.delete_before(3)
    assert marks.read() == {key: 2}


def test_logs_opened_one_by_one_do_not_read_the_files_of_their_directory_for_each(tmp_path: Path) -> None:
    fs, logs = FaultFS(), []
    for number in range(6):
        logs.append(open_for_append(tmp_path / f"t{number}-0", fs=fs))
    assert len([call for call in fs.named("open_read") if "topics.json" in call.path]) == 0
    others = [call for call in fs.named("stat", "scandir", "listdir") if call.path.endswith("t0-0")]
    fs.calls.clear()
    logs.append(open_for_append(tmp_path / "t6-0", fs=fs))
    assert others and not [call for call in fs.calls if "t0-0" in call.path]
    for log in logs:
        log.close()
    topics = json.loads((tmp_path / "kafkalog.topics.json").read_text())["topics"]
    assert list(topics) == [f"t{number}" for number in range(7)]

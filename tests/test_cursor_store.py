"""Storage of cursors: atomic files, their damage, refused places, faults of the file system."""

import errno
import json
import os
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cursors.store import CursorState, CursorStore, default_store
from kafkalog.errors import (
    CorruptCheckpoint,
    CursorInUse,
    IllegalArgument,
    IllegalState,
    OffsetOutOfRange,
    StorageError,
)
from kafkalog.types import TopicPartition
from tests.faults import FaultFS, each_failure
from tests.unprivileged import plain_directory, unprivileged

GOOD = {"version": 1, "position": 3, "record_crc": None, "topic_id": None, "committed_ms": 5, "log": "/d/t-0"}


def make_state(position: int) -> CursorState:
    return CursorState("c", TopicPartition("t", 0), position, 7, "id", 1000)


@pytest.fixture
def partition(tmp_path: Path) -> str:
    path = tmp_path / "data" / "t-0"
    path.mkdir(parents=True)
    return str(path)


def test_what_is_written_is_read(tmp_path: Path, partition: str) -> None:
    store = CursorStore(tmp_path / "cursors")
    assert store.names(partition) == [] and store.partitions(os.path.dirname(partition)) == []
    file = store.acquire(partition, "c")
    assert file.read() is None
    file.write(make_state(5))
    assert file.read() == store.read(partition, "c") == make_state(5)
    file.release()
    with pytest.raises(IllegalState, match="was released"):
        file.write(make_state(6))
    assert store.names(partition) == ["c"] and store.partitions(os.path.dirname(partition)) == [partition]
    assert CursorStore(tmp_path / "cursors").acquire(partition, "c").delete() is True
    assert store.names(partition) == [] and store.partitions(os.path.dirname(partition)) == []
    assert list((tmp_path / "cursors").rglob("c.*")) == []


def test_same_names_of_other_logs_are_other_cursors(tmp_path: Path) -> None:
    store = CursorStore(tmp_path / "cursors")
    for number, name in enumerate(("a/data/t-0", "b/data/t-0", "a/data/t-1")):
        (tmp_path / name).mkdir(parents=True)
        file = store.acquire(str(tmp_path / name), "c")
        file.write(make_state(number))
        file.release()
    found = [store.read(str(tmp_path / name), "c") for name in ("a/data/t-0", "b/data/t-0", "a/data/t-1")]
    assert [one.position for one in found if one is not None] == [0, 1, 2]
    (tmp_path / "link").symlink_to(tmp_path / "a")
    linked = store.read(str(tmp_path / "link" / "data" / "t-0"), "c")
    assert linked is not None and linked.position == 0  # the place counts, not the way to it


def test_the_default_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert default_store() == "/s/kafkalog/cursors"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the specification says: as if it were not there
    monkeypatch.setenv("HOME", "/home/u")
    assert default_store() == "/home/u/.local/state/kafkalog/cursors"
    monkeypatch.setenv("KAFKALOG_CURSORS", "/c")
    assert default_store() == "/c"


@pytest.mark.parametrize("inside", ["data", "data/cursors", "data/t-0", "data/t-0/x"])
def test_a_data_directory_is_refused(tmp_path: Path, inside: str) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        with pytest.raises(IllegalArgument, match="cannot be stored in the data directory"):
            log.cursor("c", store=tmp_path / inside)
    assert not list((tmp_path / "data").rglob("*.lock/*")) and not (tmp_path / "data" / "cursors").exists()


def test_another_data_directory_is_refused_too(tmp_path: Path, partition: str) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "meta.properties").write_text("version=1\n")
    with pytest.raises(IllegalArgument, match="does not start with a directory in it"):
        CursorStore(tmp_path / "broker" / "cursors").acquire(partition, "c")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "malformed"),
        (b"\xff\xfe{", "malformed"),
        (b"[1]", "not a JSON object"),
        (b"[" * 30000, "malformed"),
        (json.dumps({**GOOD, "version": 2}).encode(), "version 2 is unknown, 1 is expected"),
        (json.dumps({**GOOD, "position": -1}).encode(), "position is -1"),
        (json.dumps({**GOOD, "position": True}).encode(), "position is True"),
        (json.dumps({**GOOD, "position": 2**63}).encode(), "position is 9223372036854775808"),
        (json.dumps({**GOOD, "position": 1.5}).encode(), "position is 1.5"),
        (json.dumps({**GOOD, "record_crc": 2**32}).encode(), "record_crc"),
        (json.dumps({**GOOD, "topic_id": 4}).encode(), "topic_id"),
        (json.dumps({**GOOD, "committed_ms": 10**16}).encode(), "committed_ms"),
        (b"{}", "version is None"),
    ],
)
def test_damage_is_told(tmp_path: Path, content: bytes, says: str) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.cursor("c", store=tmp_path.parent / "cursors").close()
        (path,) = tmp_path.parent.glob("cursors/*/t-0/c.cursor")
        path.write_bytes(content)
        try:
            for call in (log.cursor, lambda name, store: log.cursors(store=store)):
                with pytest.raises(CorruptCheckpoint, match=says) as caught:
                    call("c", store=tmp_path.parent / "cursors")
                assert caught.value.path == str(path) and "offsets reset" in str(caught.value)
        finally:
            for left in tmp_path.parent.glob("cursors/*/t-0/*"):
                left.unlink()


def test_every_failing_call_leaves_the_old_position_or_the_new(tmp_path: Path, partition: str) -> None:
    fs = FaultFS()
    file = CursorStore(tmp_path / "cursors", fs=fs).acquire(partition, "c")
    file.write(make_state(1))
    fs.calls.clear()
    file.write(make_state(2))
    calls = [call.op for call in fs.calls]
    assert calls.count("fsync") == 2 and calls.index("fsync") < calls.index("rename")  # content, then the name
    for nth in each_failure():
        before = file.read()
        rule = fs.fail(nth=nth, times=1, code=errno.EIO, partial=3)
        try:
            file.write(make_state(10 + nth))
        except StorageError as error:
            assert error.errno == errno.EIO and error.path is not None
        fs.heal()
        assert file.read() in (before, make_state(10 + nth))
        if not rule.fired:
            break
    assert file.read() == make_state(10 + nth)
    file.release()


def test_without_sync_nothing_is_synced(tmp_path: Path, partition: str) -> None:
    fs = FaultFS()
    file = CursorStore(tmp_path / "cursors", fs=fs).acquire(partition, "c")
    fs.calls.clear()
    file.write(make_state(1), sync=False)
    assert "fsync" not in [call.op for call in fs.calls] and file.read() == make_state(1)
    file.release()


def test_a_place_that_cannot_be_written_is_told() -> None:
    with plain_directory() as folder:
        (folder / "data" / "t-0").mkdir(parents=True)
        (folder / "closed").mkdir()
        (folder / "closed").chmod(0o555)
        with unprivileged():
            with pytest.raises(StorageError, match="KAFKALOG_CURSORS"):
                CursorStore(folder / "closed").acquire(str(folder / "data" / "t-0"), "c")


def test_a_lock_file_that_was_deleted_meanwhile_is_made_anew(tmp_path: Path, partition: str) -> None:
    store = CursorStore(tmp_path / "cursors")
    first = store.acquire(partition, "c")
    (lock,) = (tmp_path / "cursors").rglob("c.lock")
    with pytest.raises(CursorInUse):
        store.acquire(partition, "c")
    first.delete()
    second = store.acquire(partition, "c")
    assert lock.exists()
    with pytest.raises(CursorInUse):
        store.acquire(partition, "c")
    second.release()


def test_a_stale_temporary_file_is_written_over(tmp_path: Path, partition: str) -> None:
    store = CursorStore(tmp_path / "cursors")
    file = store.acquire(partition, "c")
    Path(file.path + ".tmp").write_bytes(b"x" * 1000)
    file.write(make_state(4))
    assert file.read() == make_state(4) and store.names(partition) == ["c"]
    file.release()


def test_the_mark_does_not_depend_on_batches_and_codec(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k", b"v", 1000 + n) for n in range(6)])
        with log.cursor("c", store=tmp_path.parent / "marks") as cursor:
            cursor.poll(4)
        log.truncate_to(0)
        log.append([(b"k", b"v", 1000 + n) for n in range(6)], compression="zstd")
        with log.cursor("c", store=tmp_path.parent / "marks") as cursor:
            assert cursor.position == 4
        for value, time_ms in ((b"w", 1000), (None, 1001)):  # one of that time without a value may be redacted
            log.truncate_to(0)
            log.append([(b"k", b"v" if n != 3 else value, time_ms + n) for n in range(6)])
            with pytest.raises(OffsetOutOfRange, match="differs from the one"):
                log.cursor("c", store=tmp_path.parent / "marks")

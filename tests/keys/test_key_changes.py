"""Look-ups by key while the log changes below them: damage, cleaning, deletion, truncation, another process."""

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord
from kafkalog.keys import log_end
from kafkalog.keys.latest import LatestInMemory
from kafkalog.keys.part import Part
from kafkalog.keys.parts import Parts
from kafkalog.log.keyed import lookup_of
from kafkalog.util.fileio import OS, FileSystem
from tests.builder import R, batch
from tests.open_logs import open_log
from tests.transactional import COMMIT, TRANSACTIONAL, marker

CLEANED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}
TIME_MS = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "t-0"


@contextmanager
def opened(path: Path, owner: kafkalog.Log, mode: str) -> Iterator[kafkalog.Log]:
    if mode == "a":
        yield owner
        return
    with kafkalog.open(path) as log:
        yield log


def once_before(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, log: kafkalog.Log, change: Callable[[], object]
) -> None:
    """Make a change of the log just before the next call of a function for `log`: where another thread may make it."""
    call, done = getattr(owner, name), []

    def called(first: Any, *args: Any, **more: Any) -> Any:
        if not done and log._source in (first, getattr(first, "_source", None)):
            done.append(True)
            change()
        return call(first, *args, **more)

    monkeypatch.setattr(owner, name, called)


@pytest.mark.parametrize("mode", ["r", "a"])
def test_damage_that_was_skipped_is_raised_again(path: Path, mode: str) -> None:
    """A look-up that raises damage never answers with the record before it, whoever skipped it before."""
    with kafkalog.open(path, "a") as owner:
        for key, value in ((b"A", b"old"), (b"A", b"NEW"), (b"B", b"x")):
            owner.append([(key, value)])
        owner.flush()
        file = path / f"{0:020}.log"
        file.write_bytes(file.read_bytes().replace(b"NEW", b"NEV"))
        with opened(path, owner, mode) as log:
            for _ in range(3):
                skipped: list[kafkalog.Skipped] = []
                found = log.get(b"A", on_damage="skip", skipped=skipped)
                assert found is not None and found.value == b"old"
                assert [piece.offset for piece in skipped] == [1]
                assert log.get_many([b"A"], on_damage="skip", skipped=skipped) == [found] and len(skipped) == 1
                for look_up in (
                    lambda: log.get(b"A"),
                    lambda: log.get_many([b"A", b"B"]),
                    lambda: list(log.history(b"A")),
                    lambda: log.latest()[b"A"],
                ):
                    assert log.get(b"B", on_damage="skip") is not None
                    with pytest.raises(CorruptRecord):
                        look_up()


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize(
    ("name", "look_up"),
    [
        ("find_last", lambda log: log.get(b"k")),
        ("find_last_many", lambda log: log.get_many([b"k"])[0]),
        ("find_all", lambda log: [*log.history(b"k"), None][0]),
    ],
)
def test_a_key_that_a_cleaner_moves_is_found(
    path: Path, mode: str, name: str, look_up: Callable[[kafkalog.Log], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is cleaned away for one behind the end of the look-up: the key always has a value."""
    with kafkalog.open(path, "a", **CLEANED) as owner:  # type: ignore[arg-type]
        owner.append([(b"k", b"1")])
        owner.append([(b"y", b"1")])
        owner.roll()
        owner.append([(b"z", b"1")])
        with opened(path, owner, mode) as log:

            def clean() -> None:
                owner.append([(b"k", b"2")])
                owner.roll()
                owner.append([(b"z", b"2")])
                owner.compact()

            call, done = getattr(Parts, name), []

            def called(self: Parts, part: Part, *args: Any) -> Any:
                if part.index is None and not done:
                    done.append(True)
                    clean()
                return call(self, part, *args)

            monkeypatch.setattr(Parts, name, called)
            found = look_up(log)
            assert done and isinstance(found, kafkalog.Record) and found.value == b"2"


def test_a_segment_that_is_deleted_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafkalog.open(path, "a") as owner:
        for i in range(2):
            owner.append([(b"k%d" % i, b"v")])
            owner.roll()
        owner.append([(b"z", b"1")])
        file = path / f"{0:020}.log"
        hidden = file.with_suffix(".elsewhere")
        for look_up in (
            lambda log: log.get(b"z"),
            lambda log: log.get_many([b"z"])[0],
            lambda log: next(log.history(b"z")),
        ):
            with kafkalog.open(path) as log, monkeypatch.context() as patched:
                once_before(patched, Parts, "current", log, lambda: os.rename(file, hidden))
                assert look_up(log) == owner[2]
            hidden.rename(file)


def test_indexes_that_are_built_while_a_record_of_the_logs_end_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kafkalog.open(path, "a") as log:
        log.append([(b"k", b"1")])
        log.roll()
        log.append([(b"k", b"2")])
        once_before(monkeypatch, Parts, "_record_at_end", log, log.build_key_index)
        assert log.get(b"m") is None  # from here on the compiled reader answers
        record = log.get(b"k")
        assert record is not None
        assert record.value == b"2"
        assert log.key_index()


def test_a_truncation_or_deletion_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafkalog.open(path, "a") as log:
        for look_up in (lambda: log.get(b"k"), lambda: log.get_many([b"k"])[0], lambda: next(log.history(b"k"), None)):
            for end in (1, 2):
                log.append([(b"a", b"0")])
                log.append([(b"k", b"1")])
                change = log.truncate_to if end == 1 else log.delete_before
                base = log.end_offset - 2
                with monkeypatch.context() as patched:
                    once_before(patched, log_end, "batch_chunks", log, lambda: change(base + end))  # noqa: B023
                    assert look_up() is None
                log.delete_before(log.end_offset)
        log.append([(b"a", b"0")])
        log.append([(b"k", b"1")])
        latest = log.latest(in_memory=True)
        call = LatestInMemory._follow_locked

        def followed(self: LatestInMemory) -> None:
            call(self)
            if log.end_offset == self._next and b"k" in self._offsets:
                log.truncate_to(log.end_offset - 1)

        monkeypatch.setattr(LatestInMemory, "_follow_locked", followed)
        assert latest.get(b"k") is None


def test_a_damaged_segment_with_an_index_leaves_the_others(path: Path, tmp_path: Path) -> None:
    """A size that no batch has ends the search of its segment, not that of another, nor the list of indexes."""
    with kafkalog.open(path, "a") as owner:
        for part in range(2):
            for i in range(3):
                owner.append([(b"%d-%d" % (part, i), b"v")])
            owner.roll()
        owner.append([(b"L", b"last")])
    store = tmp_path / "store"
    with kafkalog.open(path, key_index=store) as log:
        log.build_key_index()
    file = path / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    size = len(data) // 3
    data[size + 8 : size + 12] = struct.pack(">i", -1)
    file.write_bytes(data)
    with kafkalog.open(path, key_index=store) as log:
        assert [info.state for info in log.key_index()] == ["stale", "ok"]
        found = log.get(b"L")
        assert found is not None and found.value == b"last"
        with pytest.raises(CorruptRecord):
            log.get(b"0-1")
        skipped: list[kafkalog.Skipped] = []
        assert log.get(b"0-0", on_damage="skip", skipped=skipped) is not None and skipped
        log.drop_key_index()
        with pytest.raises(CorruptRecord):
            log.build_key_index()
        assert [info.state for info in log.key_index()] == ["missing", "ok"]


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_tombstone_that_is_cleaned_before_it_is_read(path: Path, mode: str) -> None:
    with kafkalog.open(path, "a", delete_retention_ms=0, **CLEANED) as owner:  # type: ignore[arg-type]
        owner.append([(b"k", b"v")])
        owner.append([(b"m", b"v")])
        with opened(path, owner, mode) as log:
            latest = log.latest(in_memory=True)
            assert list(latest) == [b"k", b"m"]
            owner.append([(b"k", None)])
            owner.roll()
            for i in range(20):
                owner.append([(b"x", b"%d" % i)])
                owner.roll()
                owner.compact()
                if all(record.key != b"k" for record in owner):
                    break
            assert all(record.key != b"k" for record in owner)
            assert list(latest) == list(log.latest()) == [b"m", b"x"] and latest.get(b"k") is None


@pytest.mark.parametrize("closed", [False, True])
def test_a_log_start_that_moves_down(path: Path, closed: bool) -> None:
    """The data directory's checkpoint was restored from a backup: records come into the log."""
    with kafkalog.open(path, "a") as owner:
        for i in range(5):
            owner.append([(b"k%d" % i, b"v")])
        if closed:
            owner.roll()
            owner.append([(b"z", b"v")])
    checkpoint = path.parent / "log-start-offset-checkpoint"
    before = checkpoint.read_bytes() if checkpoint.exists() else None
    with kafkalog.open(path, "a") as owner:
        owner.delete_before(3)
    with kafkalog.open(path) as log:
        latest = log.latest(in_memory=True)
        assert log.start_offset == 3 and log.get(b"k0") is None and b"k0" not in latest
        if before is None:
            checkpoint.unlink()
        else:
            checkpoint.write_bytes(before)
        deadline = time.monotonic() + 60
        while log.start_offset:  # a view reads the checkpoint again when it lists its directory
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert log.get(b"k0") == log.get_many([b"k0"])[0] == next(log.history(b"k0")) == log[0]
        assert list(latest) == list(log.latest()) and latest[b"k0"] == log[0]


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_segment_far_above_the_one_before(path: Path, tmp_path: Path, mode: str) -> None:
    with kafkalog.open(path, "a") as owner:
        owner.append([(b"a", b"1")])
        owner.append([(b"b", b"1")])
    file, far = path / f"{0:020}.log", 5_000_000_000
    data = file.read_bytes()
    for other in path.glob("0*.*"):
        if other != file:
            other.unlink()
    moved = struct.pack(">q", far) + data[8 : len(data) // 2]
    (path / f"{far:020}.log").write_bytes(moved)
    with kafkalog.open(path, mode, key_index=tmp_path / "store") as log:  # type: ignore[call-overload]
        assert [(info.state, info.records) for info in log.build_key_index()] == [("ok", 2)]
        assert [record.offset for record in log.history(b"a")] == [0, far]
        found = log.get(b"b")
        assert found is not None and found.offset == 1


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_tombstone_during_an_iteration(path: Path, in_memory: bool) -> None:
    with kafkalog.open(path, "a") as log:
        log.append([(b"%d" % i, b"v") for i in range(5)])
        latest = log.latest(in_memory=in_memory)
        for view in (latest.items(), latest.values()):
            found = iter(view)
            next(found)
            log.append([(b"3", None)])
            assert 3 <= len(list(found)) <= 4
            assert len(view) == 4
            log.append([(b"3", b"v")])
        record = latest[b"1"]
        assert (b"1", record) in latest.items() and record in latest.values()
        assert dict(latest.items()) == dict(latest)
        assert [item.key for item in latest.values()] == list(latest.keys())


def test_a_log_written_again_with_the_same_last_batch(path: Path) -> None:
    """Another process cut the log below what the reader knows, and wrote other records of the same sizes."""
    with kafkalog.open(path, "a") as owner, kafkalog.open(path) as log:
        owner.append([(b"A", b"1", TIME_MS)])
        owner.append([(b"B", b"2", TIME_MS)])
        first, latest = log.get(b"A"), log.latest(in_memory=True)
        assert first is not None and list(latest) == [b"A", b"B"] and log.get(b"C") is None
        before = os.stat(path / f"{0:020}.log").st_mtime_ns
        while os.stat(path / f"{0:020}.log").st_mtime_ns == before:  # a tick of the file's times
            owner.truncate_to(0)
            owner.append([(b"C", b"1", TIME_MS)])
            owner.append([(b"B", b"2", TIME_MS)])
        assert log.get(b"C") == log[0] and log.get(b"A") is None
        assert log.get_many([b"A", b"C"]) == [None, log[0]] and list(log.history(b"C")) == [log[0]]
        assert list(latest) == [b"C", b"B"]


@pytest.mark.parametrize("name", ["get", "get_many"])
def test_a_transaction_that_commits_meanwhile(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer was the newest committed record at some time: not one that came to light beneath a newer one."""

    def data(offset: int, key: bytes, producer_id: int) -> bytes:
        fields = {"attributes": TRANSACTIONAL, "producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        return batch([R(b"%d" % offset, key)], base_offset=offset, leader_epoch=0, **fields)

    def commit(offset: int, producer_id: int) -> bytes:
        ended = marker(offset, producer_id, COMMIT)
        return ended[:12] + bytes(4) + ended[16:]  # leader epoch 0, which the checksum does not cover

    with kafkalog.open(path, "a") as log:
        log.replicate(batch([R(b"0", b"k")], leader_epoch=0) + data(1, b"x", 8) + data(2, b"k", 7))
        assert log.get(b"k", isolation="read_committed") == log[0]
        call, done = Parts.current, []

        def current(self: Parts, *args: Any) -> Any:
            found = call(self, *args)
            if not done:
                done.append(True)
                log.replicate(batch([R(b"3", b"k")], base_offset=3, leader_epoch=0) + commit(4, 7) + commit(5, 8))
            return found

        monkeypatch.setattr(Parts, "current", current)
        if name == "get":
            found = log.get(b"k", isolation="read_committed")
        else:
            found = log.get_many([b"k"], isolation="read_committed")[0]
        assert done and found is not None and found.offset in (0, 3)
        assert log.get(b"k", isolation="read_committed") == log[3]


class CoarseFS(FileSystem):
    """A file system whose times have not advanced."""

    @staticmethod
    def stat(path: str) -> os.stat_result:  # type: ignore[override]
        found = os.stat(path)
        return os.stat_result(tuple(found)[:7] + (0, 0, 0), {"st_mtime_ns": 0, "st_ctime_ns": 0})


def test_a_closed_segment_written_again_within_a_tick(path: Path) -> None:
    """Neither its size nor the times of its file tell it from before."""
    with open_log(path, fs=CoarseFS()) as log:
        for key in (b"a", b"b"):
            log.truncate_to(0)
            log.append([(key, b"v", TIME_MS)])
            log.roll()
            log.append([(b"end", b"v", TIME_MS)])
            assert log.get(key) == log[0]
            if key == b"a":
                log.build_key_index()
                assert log.get(key) == log[0]
        assert log.get(b"a") is None


def test_a_look_up_between_a_rename_and_its_note(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the interpreter after a rename has not noted the new name yet; others go on meanwhile."""
    with kafkalog.open(path, "a", **CLEANED) as log:  # type: ignore[arg-type]
        for value in (b"1", b"2"):
            log.append([(b"k", value), (b"y", value)])
            log.roll()
        log.append([(b"z", b"1")])
        parts, own = lookup_of(log).parts, log._source
        rename, found = OS.rename, list[object]()

        def renamed(source: str, target: str) -> None:
            rename(source, target)
            if source.endswith((".log", ".log.swap")):
                found.extend(parts._stamp(segment) for segment in own.segments)

        with monkeypatch.context() as patch:
            patch.setattr(OS, "rename", renamed)
            log.compact()
        assert len(found) > 3 and log.get(b"k") == log[2]

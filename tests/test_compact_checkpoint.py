"""The cleaner checkpoint never says more than was cleaned: what lies above it is looked at, so nothing deleted is back.

Each log here holds a secret, and later a tombstone at an offset below which an earlier log of the name was clean.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.cleaner.types import CleanerStats
from kafkalog.errors import CleaningAborted, LogClosed
from kafkalog.log.writable import WritableLog
from kafkalog.storage.log_parts.replacer import LogReplacer
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import CLEANER_OFFSET_FILE, OffsetCheckpoint
from tests.gates import PATIENCE_S, wait_until

KEY = TopicPartition("states", 0)


def open_compacted(path: Path) -> kafkalog.Log:
    return kafkalog.open(path / "states-0", "a", cleanup_policy="compact", delete_retention_ms=0)


def cleaner_checkpoint(path: Path) -> OffsetCheckpoint:
    return OffsetCheckpoint(path / CLEANER_OFFSET_FILE)


def open_filled(path: Path) -> kafkalog.Log:
    """The secret and 19 others, in a closed segment; nothing was cleaned."""
    log = open_compacted(path)
    cleaner_checkpoint(path).write({})
    log.append((b"k", b"secret"))
    for number in range(1, 20):
        log.append((b"old %d" % number, b"x"))
    log.roll()
    return log


def deleted_and_cleaned(log: kafkalog.Log) -> list[bytes | None]:
    """The values of the secret's key once it is deleted and cleaned twice, from behind the log's first 5 offsets."""
    log.append((b"k", None))
    for number in range(30):
        log.append((b"new %d" % number, b"x"))
    for number in range(3):
        log.append((b"later %d" % number, b"x"))
        log.compact(roll=True)
    return [record.value for record in log if record.key == b"k"]


def test_a_cut_between_the_last_swap_and_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MGR-25, CLN-35: the clean of a removed partition is not recorded."""
    swap = LogReplacer.replace_segments

    def then_cut(self: LogReplacer, *args: Any) -> None:
        swap(self, *args)
        log.truncate_to(5)

    with open_filled(tmp_path) as log:
        with monkeypatch.context() as patch:
            patch.setattr(LogReplacer, "replace_segments", then_cut)
            with pytest.raises(CleaningAborted, match="was truncated while it was being cleaned"):
                log.compact()
        assert cleaner_checkpoint(tmp_path).read().get(KEY, 0) <= 5
        assert deleted_and_cleaned(log) == []


class Killed(BaseException):
    pass


@pytest.mark.parametrize("how", ["truncate_to", "truncate_fully_and_start_at"])
@pytest.mark.parametrize("before", [True, False])
def test_a_crash_around_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, before: bool) -> None:
    """MGR-25: before the cut the checkpoint is lowered; a log that was cut has none above its end when it is opened."""

    def killed(*args: object) -> None:
        raise Killed

    log = open_filled(tmp_path)
    assert log.compact().end_offset == 20
    image = tmp_path / "image"
    with monkeypatch.context() as patch:
        patch.setattr(*((log.opened_for_append().log, how) if before else (WritableLog, "record_cut")), killed)
        if not before:
            patch.setattr(WritableLog, "announce_cut", lambda self, offset: None)
        with pytest.raises(Killed):
            getattr(log, how)(5)
    assert cleaner_checkpoint(tmp_path).read() == {KEY: 5 if before else 20}
    shutil.copytree(tmp_path / "states-0", image / "states-0")
    shutil.copy(tmp_path / CLEANER_OFFSET_FILE, image)
    log.close()
    with open_compacted(image) as log:
        assert cleaner_checkpoint(image).read() == {KEY: 5}
        assert deleted_and_cleaned(log) == []


def test_a_store_lowers_what_says_more_than_a_log_has(tmp_path: Path) -> None:
    """MGR-25: at the opening; other partitions keep their lines, those that went lose them."""
    gone, other = TopicPartition("gone", 0), TopicPartition("states", 1)
    open_filled(tmp_path).close()
    with kafkalog.open(tmp_path / str(other), "a") as log:
        log.append([(b"1", b"x"), (b"2", b"x")])
    cleaner_checkpoint(tmp_path).write({KEY: 33, gone: 7, other: 2})
    with kafkalog.open_dirs(tmp_path, "a", log_cleaner_enable=False):
        assert cleaner_checkpoint(tmp_path).read() == {KEY: 20, other: 2}


def test_a_cut_of_a_store_lowers_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MGR-25."""
    open_filled(tmp_path).close()
    cleaner_checkpoint(tmp_path).write({KEY: 20})
    found: list[int] = []

    def looked_up(offset: int) -> bool:
        found.append(cleaner_checkpoint(tmp_path).read()[KEY])
        return False

    with kafkalog.open_dirs(tmp_path, "a", log_cleaner_enable=False) as dirs:
        monkeypatch.setattr(dirs._store._manager.logs[KEY], "truncate_to", looked_up)  # type: ignore[union-attr]
        dirs._store._manager.truncate_to(KEY, 6)  # type: ignore[union-attr]
    assert found == [6]


def test_a_partition_made_anew_has_no_old_lines(tmp_path: Path) -> None:
    """CLN-33: somebody removed its directory; lines of others stay."""
    other = TopicPartition("states", 1)
    log = open_filled(tmp_path)
    log.compact()
    log.close()
    (tmp_path / str(other)).mkdir()
    cleaner_checkpoint(tmp_path).write({KEY: 20, other: 3})
    shutil.rmtree(tmp_path / "states-0")
    with open_compacted(tmp_path) as log:
        assert cleaner_checkpoint(tmp_path).read() == {other: 3}
        log.append((b"k", b"secret"))
        assert deleted_and_cleaned(log) == []


def test_a_damaged_checkpoint_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """CLN-33: it says nothing; a cut, an opening and a delete go on, and the other logs with them."""
    open_filled(tmp_path).close()
    (tmp_path / CLEANER_OFFSET_FILE).write_bytes(b"garbage")
    with open_compacted(tmp_path) as log:
        assert log.truncate_to(7)
        assert log.end_offset == 7
    with kafkalog.open_dirs(tmp_path, "a", log_cleaner_enable=False) as dirs:
        dirs.create_topic("other")
        (tmp_path / CLEANER_OFFSET_FILE).write_bytes(b"garbage")
        dirs.delete_topic("states")
        assert dirs.directories[0].offline_error is None and list(dirs) == [TopicPartition("other", 0)]


def test_close_waits_for_a_clean_in_another_thread(tmp_path: Path) -> None:
    """CLN-35: else its `.cleaned` files would be removed under a clean of another process that opened the log."""
    seen: list[bool] = []
    errors: list[BaseException] = []
    at_work, is_closing = threading.Event(), threading.Event()

    def slow(stats: CleanerStats) -> None:
        at_work.set()
        assert is_closing.wait(PATIENCE_S)
        wait_until(lambda: log._opened.closed)  # type: ignore[union-attr]
        closing.join(0.3)  # a `close` that does not wait ends
        seen.append(log._opened.log.closed)  # type: ignore[union-attr]

    def compacted() -> None:
        try:
            log.compact(progress=slow)
        except BaseException as error:
            errors.append(error)

    log = open_filled(tmp_path)
    cleaning, closing = threading.Thread(target=compacted), threading.Thread(target=log.close)
    cleaning.start()
    assert at_work.wait(PATIENCE_S)
    closing.start()
    is_closing.set()
    cleaning.join(PATIENCE_S)
    closing.join(PATIENCE_S)
    assert [type(error) for error in errors] == [CleaningAborted] and not any(seen)
    assert not [one.name for one in (tmp_path / "states-0").iterdir() if one.name.endswith(".cleaned")]
    with pytest.raises(LogClosed):
        log.compact()
    with open_compacted(tmp_path) as log:
        assert log.compact().end_offset == 20


def test_close_in_the_progress_of_a_clean(tmp_path: Path) -> None:
    """It cannot wait for its own thread: the clean ends with the next look."""
    log = open_filled(tmp_path)
    close: Callable[[CleanerStats], object] = lambda stats: log.close()  # noqa: E731
    with pytest.raises(CleaningAborted):
        log.compact(progress=close)
    with open_compacted(tmp_path) as log:
        assert log.compact().end_offset == 20 and len(list(log)) == 20

"""Sidecars that are built or listed, and records that are searched to redact them, while the owner cleans the log.

Segments that it replaces are no damage.
"""

import threading
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord
from kafkalog.keys import manage
from kafkalog.redact import directories
from kafkalog.sidecars import identity
from kafkalog.storage.log_parts import replacer
from kafkalog.time_ranges import ranges
from kafkalog.time_ranges.manage import build_ranges
from kafkalog.time_ranges.place import TimeRangesPlace
from kafkalog.util.fileio import OS

CLEANED: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was just written counts as settled."""
    monkeypatch.setattr(identity, "SETTLED_NS", -1)


@pytest.fixture
def owner(tmp_path: Path) -> Any:
    (tmp_path / "data").mkdir()
    with kafkalog.open(tmp_path / "data" / "t-0", "a", **CLEANED) as log:
        for number in range(3):
            log.append([(b"k%d" % number, b"1")])
            log.append([(b"k", b"%d" % number)])
            log.roll()
        log.append([(b"z", b"1")])
        yield log


def cleaning_before(monkeypatch: pytest.MonkeyPatch, owner: Any, module: Any, name: str) -> None:
    """Let the owner merge all closed segments into one before the first call of a function."""
    call, done = getattr(module, name), []

    def called(*args: Any, **more: Any) -> Any:
        if not done:
            done.append(True)
            owner.compact()
            assert len(owner.segments) == 2
        return call(*args, **more)

    monkeypatch.setattr(module, name, called)


def damage(log: Any) -> None:
    path = Path(log.path) / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def test_key_indexes(owner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafkalog.open(owner.path) as log:
        cleaning_before(monkeypatch, owner, manage, "build_segment")
        infos = log.build_key_index(store=tmp_path / "indexes")
        assert [(one.base_offset, one.state, one.records) for one in infos] == [(0, "ok", 4)]
        damage(owner)
        with pytest.raises(CorruptRecord):
            log.build_key_index(store=tmp_path / "indexes", rebuild=True)


def test_key_indexes_wait_for_files_that_the_same_process_renames(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has the segments of a cleaner before their files have their names."""
    rename, found = replacer.apply_swaps, list[Any]()
    builder = threading.Thread(target=lambda: found.extend(owner.build_key_index()))

    def renamed(*args: Any) -> None:
        assert any(one.path.endswith(".swap") for one in args[1])
        builder.start()
        builder.join(0.5)  # it waits for this thread
        rename(*args)

    monkeypatch.setattr(replacer, "apply_swaps", renamed)
    owner.compact()
    builder.join()
    assert [(one.base_offset, one.state, one.records) for one in found] == [(0, "ok", 4)]


@pytest.mark.usefixtures("settled")
def test_time_ranges(owner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafkalog.open(owner.path) as log:
        cleaning_before(monkeypatch, owner, ranges, "read_times")
        place = TimeRangesPlace(log.path, tmp_path / "times", OS)
        assert [(one.base_offset, one.state) for one in build_ranges(log._source, place)] == [(0, "ok"), (6, "ok")]
        damage(owner)
        with pytest.raises(CorruptRecord):
            build_ranges(log._source, place, rebuild=True)


@pytest.mark.usefixtures("settled")
def test_time_ranges_in_memory(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafkalog.open(owner.path) as log:
        cleaning_before(monkeypatch, owner, ranges, "read_times")
        assert log.build_time_ranges() == 2 and log.build_time_ranges() == 0


def test_lists(owner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafkalog.open(owner.path) as log:
        assert len(log.build_key_index(store=tmp_path / "indexes")) == 3
    with kafkalog.open(owner.path, key_index=tmp_path / "indexes") as log:
        cleaning_before(monkeypatch, owner, manage, "_info")
        assert [(one.base_offset, one.state) for one in log.key_index()] == [(0, "stale")]


def test_a_search_for_records_to_redact(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    owner.flush()
    cleaning_before(monkeypatch, owner, directories, "search")
    report = directories.redact(Path(owner.path).parent, "t", keys=[b"k", b"k1"], change="empty")
    assert (report.records, len(report.segments), report.missing) == (2, 1, ())

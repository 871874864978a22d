"""The latest state of a log while a cleaner works on it: keys that always have a value are never missing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.keys import latest as latest_module
from kafkalog.keys.latest import LatestRecords
from kafkalog.records import tables
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch

CLEANED: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0, "delete_retention_ms": 0}


@contextmanager
def cleaned_log(path: Path, mode: str) -> Iterator[tuple[kafkalog.Log, kafkalog.Log]]:
    """Give an owner and a log in the mode: segments with the keys k and y, m and n, then z."""
    (path / "data").mkdir()
    with kafkalog.open(path / "data" / "t-0", "a", **CLEANED) as owner:
        for keys in ((b"k", b"y"), (b"m", b"n")):
            for key in keys:
                owner.append([(key, b"1")])
            owner.roll()
        owner.append([(b"z", b"1")])
        if mode == "a":
            yield owner, owner
        else:
            with kafkalog.open(owner.path) as log:
                yield owner, log


def replace(owner: kafkalog.Log, *keys: bytes, value: bytes | None = b"2") -> None:
    """Append another value of each key, and clean the log of the values before."""
    for key in keys:
        owner.append([(key, value)])
    owner.roll()
    owner.append([(b"z", b"2")])
    owner.compact()


def before_second_table(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> list[bool]:
    """Make a change once, before the second table of records is read for a mapping in memory."""
    read, done = tables.record_tables, []

    def counted(*args: Any, **more: Any) -> Any:
        done.append(True)
        if len(done) == 2:
            change()
        return read(*args, **more)

    monkeypatch.setattr(tables, "record_tables", counted)
    return done


@pytest.mark.parametrize("mode", ["r", "a"])
def test_records_that_are_cleaned_before_an_iteration_meets_them(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_module, "CHUNK_KEYS", 1)
    with cleaned_log(tmp_path, mode) as (owner, log):
        latest = log.latest()
        items = iter(latest.items())
        assert next(items)[0] == b"k"
        replace(owner, b"k", b"m")
        found = [(b"k", b"1"), *((key, record.value) for key, record in items)]
        assert len(found) == len(dict(found)) == len(latest) == 5
        assert dict(found) == {b"k": b"1", b"y": b"1", b"m": b"2", b"n": b"1", b"z": b"1"}


@pytest.mark.parametrize("mode", ["r", "a"])
def test_records_that_are_cleaned_before_their_look_up(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cleaned_log(tmp_path, mode) as (owner, log):
        latest_of, done = LatestRecords._latest_of, []

        def cleaned(self: LatestRecords, *args: Any) -> Any:
            if not done:
                done.append(True)
                replace(owner, b"k", b"m")
            return latest_of(self, *args)

        monkeypatch.setattr(LatestRecords, "_latest_of", cleaned)
        assert len(log.latest()) == 5
        assert sorted(log.latest()) == [b"k", b"m", b"n", b"y", b"z"]


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_tombstone_that_is_cleaned_while_a_mapping_is_read_into_memory(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that it deletes was read before. No offset is missing behind those that are read."""
    with cleaned_log(tmp_path, mode) as (owner, log):
        owner.append([(b"k", None)])
        owner.roll()

        def clean() -> None:
            while any(record.key == b"k" for record in owner):
                owner.append([(b"%d" % owner.end_offset, b"1")])
                owner.roll()
                owner.compact()

        done = before_second_table(monkeypatch, clean)
        latest = log.latest(in_memory=True)
        assert b"k" not in latest and len(done) > 2
        assert sorted(latest) == sorted(log.latest()) and len(latest) == len(log.latest())


@pytest.mark.parametrize("mode", ["r", "a"])
def test_aborted_records_that_are_cleaned_are_the_last_of_their_keys_no_longer(tmp_path: Path, mode: str) -> None:
    """A mapping that reads them has the records before them again, and no key that only they had."""
    with cleaned_log(tmp_path, mode) as (owner, log):
        aborted = RecordsBuilder(0, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        for key, value in ((b"k", None), (b"m", b"2"), (b"only", b"2")):
            aborted.append(1, key, value)
        owner.append_bytes(aborted.build())
        owner.opened_for_append().append_as_leader(
            marker_batch(ControlType.ABORT, 7, 0, 0, timestamp=1), origin="coordinator"
        )
        owner.roll()
        owner.append([(b"z", b"2")])
        latest = log.latest(in_memory=True)
        assert sorted(latest) == [b"m", b"n", b"only", b"y", b"z"] and b"k" not in latest
        owner.compact()
        for mapping in (latest, log.latest(), log.latest(in_memory=True)):
            assert list(mapping) == [b"k", b"y", b"m", b"n", b"z"] and len(mapping) == 5
            assert mapping[b"k"].value == mapping[b"m"].value == b"1" and b"only" not in mapping

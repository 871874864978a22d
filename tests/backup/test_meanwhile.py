"""Backups of a log that is changed at the worst moments: between any two looks at its files.

Each change happens once at every call of a backup on the log's files; the result has to be a state that
the log had, before the change, after it, or in the middle of an append.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import create_backup, list_backups, restore_backup, verify_backup
from kafkalog.errors import StorageError
from kafkalog.tools.verify.directories import verify
from tests.backup.logs import append, fill
from tests.faults import FaultFS

pytestmark = pytest.mark.in_memory
STEP = 5  # each fifth call: a backup makes some hundred
Content = dict[int, bytes | None]


@dataclass(eq=False)
class Meanwhile(FaultFS):
    """Calls `change` before the `nth` call on a path that contains `below`; `count` is how many there were."""

    below: str = ""
    nth: int = -1
    change: Callable[[], object] = lambda: None
    count: int = 0

    def _check(self, op: str, path: str, write: Any = None) -> None:
        if self.below in path:
            self.count += 1
            if self.count == self.nth:
                self.change()
        super()._check(op, path, write)


def read_values(partition: Path) -> Content:
    with kafkalog.open(partition) as log:
        return {record.offset: record.value for record in log.records()}


def read_latest_values(partition: Path) -> Content:
    """Return the log's records: of a compacted one the last value of each key."""
    with kafkalog.open(partition) as log:
        found = {record.key: record.value for record in log.records()}
    return {int(key.split()[-1]): value for key, value in found.items() if key is not None and value is not None}


def roll(log: kafkalog.Log) -> None:
    append(log, 150)


def truncate_and_refill(log: kafkalog.Log) -> None:
    log.truncate_to(65)
    for first in range(65, 200, 5):
        log.append([(b"key", b"another %d" % n) for n in range(first, first + 5)])


def expire(log: kafkalog.Log) -> None:
    log.delete_before(170)


def clean_twice(log: kafkalog.Log) -> None:
    for _ in range(3):
        log.compact(from_start=True)


@pytest.mark.parametrize("change", [roll, truncate_and_refill, expire])
def test_a_backup_is_a_state_that_the_log_had(tmp_path: Path, change: Callable[[kafkalog.Log], None]) -> None:
    calls = nth = 1
    while nth <= calls:
        where = tmp_path / f"at-{nth}"
        fill(where / "data", records=230)
        with kafkalog.open_dirs(where / "data", "a") as dirs:
            before = read_values(where / "data" / "orders-0")
            fs = Meanwhile(below=str(where / "data"), nth=nth, change=lambda log=dirs["orders", 0]: change(log))
            create_backup(where / "data", where / "backups", fs=fs)
            after = read_values(where / "data" / "orders-0")
        assert verify_backup(where / "backups", deep=True).ok
        restore_backup(where / "backups", where / "restored")
        assert verify(where / "restored", deep=True).ok
        found = read_values(where / "restored" / "orders-0")
        if change is roll:
            assert found == dict(list(after.items())[: len(found)]) and len(found) >= len(before)
        else:
            is_prefix = found == dict(list(after.items())[: len(found)])
            assert found in (before, after) or (change is truncate_and_refill and is_prefix)
        if change is expire:
            (listed,) = list_backups(where / "backups")[0].partitions
            assert listed.start_offset in (0, 170), "the start is one that the log had"
        calls, nth = (fs.count if nth == 1 else calls), nth + STEP
    assert calls > 30


def test_a_backup_of_a_compacted_topic_loses_no_key_and_brings_none_back(tmp_path: Path) -> None:
    """Two passes: the first drops old values, the second drops tombstones once nothing they hid is left.

    A log of which the old front and the new back were copied would have deleted keys again.
    """
    calls = nth = 1
    while nth <= calls:
        where = tmp_path / f"at-{nth}"
        settings = {"cleanup.policy": "compact", "segment.bytes": 2000, "delete.retention.ms": "0"}
        with kafkalog.open_dirs(where / "data", "a") as dirs:
            dirs.create_topic("orders", 1, settings)
            log = dirs["orders", 0]
            log.append([(b"key 1000", b"is deleted by a tombstone in another segment", 1000)])
            for n in range(0, 150, 5):  # keys of their own: no clean makes these segments few
                log.append([(b"key %d" % m, b"value %d" % m, 1000 + m) for m in range(n, n + 5)])
            log.append([(b"key 1000", None, 2000)])
            log.append([(b"key %d" % n, b"value %d" % n, 3000 + n) for n in range(200, 230)])
            log.roll()
            log.append([(b"key 2000", b"the last segment is never cleaned", 4000)])
            before = read_latest_values(where / "data" / "orders-0")

            fs = Meanwhile(below=str(where / "data"), nth=nth, change=lambda log=log: clean_twice(log))
            create_backup(where / "data", where / "backups", fs=fs)
        restore_backup(where / "backups", where / "restored")
        assert verify(where / "restored", deep=True).ok
        assert read_latest_values(where / "restored" / "orders-0") == before
        calls, nth = (fs.count if nth == 1 else calls), nth + STEP
    assert calls > 30


def test_a_topic_that_is_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    calls = nth = 1
    while nth <= calls:
        where = tmp_path / f"at-{nth}"
        fill(where / "data", records=100)
        fill(where / "data", "passing", records=100)
        with kafkalog.open_dirs(where / "data", "a") as dirs:
            fs = Meanwhile(below=str(where / "data"), nth=nth, change=lambda d=dirs: d.delete_topic("passing"))
            create_backup(where / "data", where / "backups", fs=fs)
        assert verify_backup(where / "backups", deep=True).ok
        manifest = list_backups(where / "backups")[0]
        names = [one.topic for one in manifest.partitions]
        assert names == ["orders", "passing"] or names == ["orders"]
        restore_backup(where / "backups", where / "restored")
        with kafkalog.open_dirs(where / "restored") as dirs:
            assert dirs["orders", 0].end_offset == 100
        calls, nth = (fs.count if nth == 1 else calls), nth + STEP


def test_a_log_that_never_stands_still_is_an_error_and_leaves_the_backup_before(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    create_backup(tmp_path / "data", tmp_path / "backups")

    class Restless(FaultFS):
        def _check(self, op: str, path: str, write: Any = None) -> None:
            if op == "scandir" and path.endswith("orders-0"):
                first = min((tmp_path / "data" / "orders-0").glob("*.log"))
                copy = first.with_suffix(".copy")
                copy.write_bytes(first.read_bytes())
                copy.replace(first)
            super()._check(op, path, write)

    class NoTime:
        def milliseconds(self) -> int:
            return 1_790_000_000_000

        def monotonic_ms(self) -> int:
            return 0

        def sleep(self, ms: float) -> None:
            pass

    with pytest.raises(StorageError, match="keep changing"):
        create_backup(tmp_path / "data", tmp_path / "backups", fs=Restless(), clock=NoTime())
    assert len(list_backups(tmp_path / "backups")) == 1 and verify_backup(tmp_path / "backups").ok

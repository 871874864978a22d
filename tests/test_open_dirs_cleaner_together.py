"""The cleaner at work beside all the others: appends, reads, deletes, cuts, other policies, disks that fail, damage."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from random import Random

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, KafkalogError, StorageError
from kafkalog.types import TopicPartition
from tests.cleaner.test_states import in_thread, wait_until
from tests.held_store import Held
from tests.test_open_dirs_cleaner import fill

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
QUICK = {"log_cleaner_backoff_ms": 1, "log_initial_task_delay_ms": 0, "log_segment_delete_delay_ms": 1}
T0 = TopicPartition("t", 0)
SEEDS = 3
pytestmark = pytest.mark.in_memory


def last_values(log: kafkalog.Log) -> dict[bytes | None, bytes | None]:
    """The last value of each key; offsets rise."""
    found: dict[bytes | None, bytes | None] = {}
    last = -1
    for record in log:
        assert record.offset > last
        last = record.offset
        found[record.key] = record.value
    return found


def test_appends_and_reads_go_on(tmp_path: Path) -> None:
    """CLN-41: three cleaner threads, writers and a reader; of each key the last value is there, at every moment."""
    partitions, keys, rounds = 3, 7, 60
    failures: list[BaseException] = []
    with kafkalog.open_dirs(tmp_path, "a", **QUICK) as dirs:
        dirs.create_topic("t", partitions, COMPACT)
        dirs.alter({"log.cleaner.threads": 2})
        dirs.alter({"log.cleaner.threads": 3})
        written = threading.Event()

        def write(number: int) -> None:
            log = dirs["t", number]
            for at in range(rounds):
                log.append([(b"%d" % key, b"%d" % at) for key in range(keys)])
                if at % 3 == 0:
                    log.roll()

        def read() -> None:
            while not written.is_set():
                for number in range(partitions):
                    values = [int(value or b"-1") for value in last_values(dirs["t", number]).values()]
                    assert not values or max(values) - min(values) <= 1

        def run(work: object, *args: object) -> None:
            try:
                work(*args)  # type: ignore[operator]
            except BaseException as error:
                failures.append(error)

        writers = [in_thread(lambda number=number: run(write, number)) for number in range(partitions)]  # type: ignore[misc]
        reader = in_thread(lambda: run(read))
        for writer in writers:
            writer.join()
        wait_until(lambda: dirs.cleaner.totals.cleans > partitions)
        written.set()
        reader.join()
        assert failures == []
        wanted = {b"%d" % key: b"%d" % (rounds - 1) for key in range(keys)}
        assert [last_values(dirs["t", number]) for number in range(partitions)] == [wanted] * partitions
        assert (dirs.cleaner.uncleanable, dirs.cleaner.totals.failures) == ((), 0)
        assert sum(len(list(dirs["t", number])) for number in range(partitions)) < partitions * keys * rounds


class Model:
    """Expected content of a log: the last value of each key, except those that a cut has removed."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, bytes]] = []
        self.sure: dict[bytes, bytes] = {}

    def append(self, offset: int, key: bytes, value: bytes) -> None:
        self.records.append((offset, key, value))
        self.sure[key] = value

    def cut(self, end: int) -> None:
        """Cut the log: older values of a cut key may already be cleaned away."""
        for offset, key, value in self.records:
            if offset >= end and self.sure.get(key) == value:
                del self.sure[key]
        self.records = [one for one in self.records if one[0] < end]

    def check(self, log: kafkalog.Log) -> None:
        found = last_values(log)
        assert {key: found.get(key) for key in self.sure} == self.sure
        assert {(record.offset, record.key, record.value) for record in log} <= set(self.records)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_topics_come_and_go_and_change_beside_it(tmp_path: Path, seed: int) -> None:
    """CLN-35, CLN-36: deleted, created again, cut, with another policy: nothing hangs, is set aside, or lost."""
    random = Random(seed)
    models = {"t": Model(), "u": Model()}
    with kafkalog.open_dirs([tmp_path / "a", tmp_path / "b"], "a", **QUICK) as dirs:
        for name in models:
            dirs.create_topic(name, 1, COMPACT)
        for at in range(120):
            name = random.choice("tu")
            log, model = dirs[name, 0], models[name]
            key, value = b"k%d" % random.randrange(4), b"%d" % at
            model.append(log.append([(key, value)]).first_offset, key, value)
            step = random.randrange(12)
            if step < 5:
                log.roll()
            elif step == 5:
                dirs.delete_topic(name)
                dirs.create_topic(name, 1, COMPACT)
                models[name] = Model()
            elif step == 6:
                end = max(log.start_offset, log.end_offset - random.randrange(3))
                log.truncate_to(end)
                model.cut(end)
            elif step == 7:
                dirs.alter_topic(name, {"cleanup.policy": random.choice(["delete", "compact", "compact,delete"])})
            elif step == 8:
                try:
                    dirs.clean(name)
                except KafkalogError as error:
                    assert "compact" in error.message, error
        assert (dirs.cleaner.uncleanable, dirs.cleaner.totals.failures) == ((), 0)
        for name, model in models.items():
            model.check(dirs[name, 0])


def test_damage_stops_the_cleaning_of_one_log_only(tmp_path: Path) -> None:
    """CLN-28, CLN-39: reported with its place; no byte of that log changes; once repaired it is cleaned on request."""
    with Held(tmp_path) as held:
        held.dirs.create_topic("t", 2, {"cleanup.policy": "compact"})
        for log in held.dirs.logs("t"):
            fill(log)
        path = Path(held.dirs["t", 0].path) / f"{2:020d}.log"
        sound = path.read_bytes()
        path.write_bytes(sound[:70] + bytes([sound[70] ^ 1]) + sound[71:])
        names = {one.name: one.stat().st_size for one in path.parent.iterdir()}
        held.pass_time(20_000, 1000)
        assert len(list(held.dirs["t", 1])) == 2
        (aside,) = held.dirs.cleaner.uncleanable
        assert (aside.topic_partition, aside.directory) == (T0, str(tmp_path))
        assert path.name in aside.reason
        assert {one.name: one.stat().st_size for one in path.parent.iterdir()} == names
        with pytest.raises(CorruptRecord):
            held.dirs.clean("t")
        path.write_bytes(sound)
        assert held.dirs.clean("t").stats.messages_written == 2
        assert held.dirs.cleaner.uncleanable == ()


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    """CLN-39: it is tried again by itself."""
    with Held(tmp_path) as held:
        held.dirs.create_topic("t", 1, {"cleanup.policy": "compact"})
        log = held.dirs["t", 0]
        fill(log)
        held.fs.fail("pwrite", "pwritev", code=errno.ENOSPC, path=".cleaned")
        held.pass_time(15_000, 1000)
        assert len(list(log)) == 6
        assert [one for one in Path(log.path).iterdir() if one.name.endswith((".cleaned", ".swap"))] == []
        assert held.dirs.cleaner.totals.failures == 1
        log.append([(b"c", b"")])
        held.fs.heal()
        held.pass_time(40_000, 1000)
        assert [record.key for record in log] == [b"a", b"b", b"c"]


def test_a_disk_that_fails_in_a_clean_takes_its_directory_offline(tmp_path: Path) -> None:
    """CLN-39, MGR-23: the other directory is cleaned; after a restart nothing is lost."""
    with Held(tmp_path / "x", tmp_path / "y") as held:
        held.dirs.create_topic("t", 1, {"cleanup.policy": "compact"}, directory=tmp_path / "x")
        held.dirs.create_topic("u", 1, {"cleanup.policy": "compact"}, directory=tmp_path / "y")
        for name in ("t", "u"):
            fill(held.dirs[name, 0])
        held.fs.fail("fsync", "fdatasync", code=errno.EIO, path=".cleaned")
        held.fs.fail("pwrite", "pwritev", code=errno.EIO, path=str(tmp_path / "x"))
        with pytest.raises(StorageError):
            held.dirs.clean("t")
        held.fs.heal()
        held.pass_time(20_000, 1000)
        assert [one.offline_error is None for one in held.dirs.directories] == [False, True]
        assert len(list(held.dirs["u", 0])) == 2
    with kafkalog.open_dirs([tmp_path / "x", tmp_path / "y"], "a", log_cleaner_enable=False) as dirs:
        assert last_values(dirs["t", 0]) == {b"a": b"2", b"b": b"2"}
        assert len(list(dirs["t", 0])) == 6

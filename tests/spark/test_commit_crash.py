"""A commit that is killed at any call, or loses its machine's power, lands each record once and in order all the same.

Afterwards others may append, and commit; then the batch is run again, or never.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog.landing import partition_logs
from kafkalog.landing.commit import Committer
from kafkalog.tools.verify.directories import verify
from kafkalog.util.fileio import FileSystem
from tests.crash.disk import MODES, DiskFS, write_image
from tests.faults import WRITING_CALLS, FaultFS
from tests.spark.sink_cases import OTHER, QUERY, Records, flat, found, key, stage, values

pytestmark = [pytest.mark.slow, pytest.mark.in_memory]  # each copy of a topic is synced many times
KILLED = 77
SMALL = {"segment_index_bytes": 1024}
"""Keeps the images of disks small."""
MAX_IMAGES = 60


@pytest.fixture(autouse=True)
def _small_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each opening after a crash reads whole indexes, which are 20 MiB of a partition by default."""
    monkeypatch.setattr(partition_logs, "open_for_append", partial(partition_logs.open_for_append, settings=SMALL))


@dataclass(eq=False)
class KilledFS(FaultFS):
    """Ends the process at the `nth` call that changes a file, after a part of what it was to write."""

    nth: int = 0
    passed: int = 0

    def _check(self, op: str, path: str, write: Callable[[int], Any] | None = None) -> None:
        if op in WRITING_CALLS:
            self.passed += 1
            if self.passed == self.nth:
                if write is not None:
                    write(self.nth % 2 * 40)
                os._exit(KILLED)


class Case(NamedTuple):
    """A batch of tasks for partitions, on topics with these settings; `between` appends beside it after a crash."""

    tasks: list[Records]
    settings: dict[str, dict[str, Any]] = {}
    compression: str = "none"
    between: bool = False


SEVERAL: list[Records] = [
    {key("t"): values("x", 2), key("t", 1): values("y", 1), key("u"): values("z", 2)},
    {key("u"): values("zz", 1), key("t"): values("xx", 1)},
]
CASES = {
    "one": Case([{key("t"): values("x", 3)}], {"t": {}}),
    "beside others": Case([{key("t"): values("x", 3)}], {"t": {}}, between=True),
    "several": Case(SEVERAL, {"t": {}, "u": {}}, between=True),
    "new topics": Case(SEVERAL),
    "append time": Case([{key("t"): values("x", 3)}], {"t": {"message_timestamp_type": "LogAppendTime"}}, between=True),
    "compressed": Case([{key("t"): values("x", 3, 40)}], {"t": {}}, "zstd", between=True),
    "small segments": Case([{key("t"): values("x", 9)}], {"t": {"internal_segment_bytes": 300}}, between=True),
}


def prepare(directory: Path, case: Case) -> Path:
    directory.mkdir()
    for topic, settings in case.settings.items():
        for number in range(2):
            with kafkalog.open(directory / f"{topic}-{number}", "a", **SMALL, **settings) as log:
                log.append([b"before 1", b"before 2"])
    return directory


def commit(directory: Path, case: Case, fs: FileSystem) -> None:
    staged = stage(directory, QUERY, 4, case.tasks, compression=case.compression)
    Committer(str(directory), fs=fs).commit(QUERY, 4, staged)


def kill_at(directory: Path, case: Case, nth: int) -> bool:
    """Return True if the commit was killed at its `nth` call; False if it has fewer calls."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            commit(directory, case, KilledFS(nth=nth))
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED)
    return status == KILLED


def resume(directory: Path, case: Case, rng: Random) -> None:
    """Continue after the crash: appends and commits of other writers, then the batch again, with new files."""
    if case.between:
        with kafkalog.open(directory / "t-0", "a", **SMALL, **case.settings["t"]) as log:
            log.append(b"between")
    if rng.random() < 0.5:
        staged = stage(directory, OTHER, 4, [{key("t"): [[b"other"]]}], partitions=2)
        Committer(str(directory)).commit(OTHER, 4, staged)
    for _ in range(rng.randint(1, 2)):
        staged = stage(directory, QUERY, 4, case.tasks, compression=case.compression)
        Committer(str(directory)).commit(QUERY, 4, staged)


def check(directory: Path, case: Case) -> None:
    """Each partition has the batch's records once and in order, and all others it had."""
    wanted: dict[Any, list[bytes]] = {}
    for task in case.tasks:
        for target, batches in task.items():
            wanted.setdefault(target, []).extend(flat(batches))
    for target, expected in wanted.items():
        there = found(directory, *target)
        assert [value for value in there if value[:1] in b"xyz"] == expected
        others = [value for value in there if value[:1] not in b"xyz"]
        assert len(others) == len(set(others))
        assert others[:2] == [b"before 1", b"before 2"] if target.topic in case.settings else True
    assert verify([str(directory)]).ok


def kill_points(step: int) -> Iterator[int]:
    """Return the calls to die at."""
    yield from range(1, 1000, step)
    raise AssertionError("it is still killed")


@pytest.mark.parametrize("name", CASES)
def test_killed_at_any_call(tmp_path: Path, name: str) -> None:
    case, rng = CASES[name], Random(name)
    kills = 0
    for nth in kill_points(1):
        directory = prepare(tmp_path / str(nth), case)
        killed = kill_at(directory, case, nth)
        kills += killed
        resume(directory, case, rng)
        check(directory, case)
        if not killed:
            break
    assert kills >= 2


@pytest.mark.parametrize("name", CASES)
def test_killed_again_while_it_is_rolled_forward(tmp_path: Path, name: str) -> None:
    case, rng = CASES[name], Random(name)
    twice = 0
    for at in range(5):
        directory = prepare(tmp_path / str(at), case)
        kill_at(directory, case, rng.randint(8, 40))
        if case.between:
            with kafkalog.open(directory / "t-0", "a", **SMALL, **case.settings["t"]) as log:
                log.append(b"before it came back")
        twice += kill_at(directory, case, rng.randint(1, 40))
        resume(directory, case, rng)
        check(directory, case)
    assert twice >= 2


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("share", [0.2, 0.8])
def test_power_cut_at_any_call(tmp_path: Path, name: str, share: float) -> None:
    case, rng = CASES[name], Random(name)
    root = prepare(tmp_path / "data", case)
    fs = DiskFS(root)
    images = []

    def on_change() -> None:
        if rng.random() < share / (1 if case.settings else 5) and len(images) < MAX_IMAGES:
            images.append(fs.disk.image(rng.choice(MODES), rng))

    # staged through the same disk: what a task did not sync is lost as well
    staged = stage(root, QUERY, 4, case.tasks, compression=case.compression, fs=fs)
    fs.on_change = on_change
    Committer(str(root), fs=fs).commit(QUERY, 4, staged)
    assert images
    for number, image in enumerate(images):
        directory = write_image(image, tmp_path / str(number))
        resume(directory, case, rng)
        check(directory, case)


class Killed(BaseException):
    """As if the process had ended here."""


def die_at(fs: DiskFS, nth: int) -> None:
    """Ends all that is done through `fs` after its `nth` change: what it wrote stays in the page cache, unsynced."""
    left = nth

    def on_change() -> None:
        nonlocal left
        left -= 1
        if not left:
            fs.fail(error=Killed)  # nothing that closes on the way out may sync
            raise Killed

    fs.on_change = on_change


@pytest.mark.parametrize("name", ["one", "new topics", "small segments"])
@pytest.mark.parametrize("step", [19, 3])
def test_killed_and_then_the_power_cut_while_it_is_rolled_forward(tmp_path: Path, name: str, step: int) -> None:
    case, rng = CASES[name], Random(name)
    share = step / 50 / (1 if case.settings else 10)  # images of topics with indexes of the usual size are large
    images: list[Path] = []

    def on_change(fs: DiskFS) -> None:
        if rng.random() < share:
            images.append(write_image(fs.disk.image(rng.choice(MODES), rng), tmp_path / f"image {len(images)}"))

    for nth in kill_points(step):
        root = prepare(tmp_path / str(nth), case)
        staged = stage(root, QUERY, 4, case.tasks)
        fs = DiskFS(root)
        die_at(fs, nth)
        try:
            Committer(str(root), fs=fs).commit(QUERY, 4, staged)
            break
        except Killed:
            fs.heal()
        fs.on_change = partial(on_change, fs)
        Committer(str(root), lock_wait_ms=0, fs=fs).roll_forward()
    assert images
    for directory in images:
        resume(directory, case, rng)
        check(directory, case)

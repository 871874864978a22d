"""Indexes on a full or failing disk, or truncated in use: typed errors, no loss, no killed process."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkalog
from kafkalog._core.log.values import OffsetPosition
from kafkalog.errors import StorageError
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from tests.faults import FaultFS, each_failure
from tests.raw_batches import batches, write_segment
from tests.storage.index_entries import entry_bytes, fill, pairs
from tests.tiny_disk import run_on_tiny_disk

BASE, SIZE = 45, 240


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000045.index"


def test_space_is_reserved_before_it_is_needed(path: Path) -> None:
    fs = FaultFS()
    index = OffsetIndex(path, BASE, 10 << 20, fs=fs)
    index.reserve(2)
    assert [call.args for call in fs.named("posix_fallocate")] == [(0, 65536)]
    fill(index, range(46, 46 + 8192))
    assert len(fs.named("posix_fallocate")) == 1
    index.reserve()
    assert fs.named("posix_fallocate")[1].args == (65536, 65536)
    index.close()


def test_no_space_leaves_everything_as_it_was(path: Path) -> None:
    fs = FaultFS()
    index = OffsetIndex(path, BASE, 10 << 20, fs=fs)
    index.append(46, 1)
    index.resize(80_000)
    fill_to = 8192
    fs.fail("posix_fallocate", code=errno.ENOSPC)
    for offset in range(47, 46 + fill_to):
        index.append(offset, offset)
    for full in (index.reserve, lambda: index.append(10**6, 5)):
        with pytest.raises(StorageError, match="No space left") as caught:
            full()
        assert (caught.value.errno, caught.value.path) == (errno.ENOSPC, str(path))
        assert (index.entries, index.last_offset) == (fill_to, 45 + fill_to)
    fs.heal()
    index.append(10**6, 5)
    assert index.lookup(10**7) == OffsetPosition(10**6, 5)
    index.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_a_file_system_that_cannot_reserve(path: Path, code: int) -> None:
    fs = FaultFS()
    fs.fail("posix_fallocate", code=code)
    index = OffsetIndex(path, BASE, SIZE, fs=fs)
    index.append(46, 1)
    fs.fail("pwrite", code=errno.ENOSPC)
    with pytest.raises(StorageError) as caught:
        index.append(47, 2)
    assert (caught.value.errno, caught.value.position) == (errno.ENOSPC, 8)
    assert pairs(index) == [(46, 1)]
    index.close()


def test_a_write_that_fails_half_way_is_not_counted(path: Path) -> None:
    fs = FaultFS()
    index = OffsetIndex(path, BASE, SIZE, fs=fs)
    index.append(46, 1)
    fs.fail("pwrite", times=1, partial=3)
    with pytest.raises(StorageError):
        index.append(47, 2)
    assert (pairs(index), index.last_offset) == ([(46, 1)], 46)
    fs.short_writes(3)
    index.append(47, 2)
    index.close()
    assert path.read_bytes() == entry_bytes((1, 1), (2, 2))


STEPS: list[tuple[Callable[[OffsetIndex], object], list[int]]] = [
    (lambda index: index.append(46, 7), [46]),
    (lambda index: index.append(47, 7), [46, 47]),
    (lambda index: index.append(48, 7), [46, 47, 48]),
    (lambda index: index.append(49, 7), [46, 47, 48, 49]),
    (lambda index: index.truncate_to(49), [46, 47, 48]),
    (lambda index: index.resize(800), [46, 47, 48]),
    (lambda index: index.resize(17), [46, 47]),
    (lambda index: index.flush(), [46, 47]),
    (lambda index: index.reset(), []),
    (lambda index: index.append(70, 7), [70]),
    (lambda index: index.trim_to_valid_size(), [70]),
    (lambda index: index.resize(400_000), [70]),
    (lambda index: index.append(71, 7), [70, 71]),
]


def test_every_call_may_fail(path: Path) -> None:
    """Whichever call fails, the error is typed and names the file, and the step changed nothing and can be repeated."""
    for nth in each_failure():
        path.unlink(missing_ok=True)
        fs = FaultFS()
        rule = fs.fail("open", "pwrite", "ftruncate", "posix_fallocate", "fdatasync", nth=nth, times=1)
        index = again_if_it_fails(lambda fs=fs: OffsetIndex(path, BASE, 400_000, fs=fs), path)
        for step, expected in STEPS:
            before = pairs(index), index.last_offset, index.length
            try:
                step(index)
            except StorageError as error:
                assert error.path == str(path)
                assert (pairs(index), index.last_offset, index.length) == before
                step(index)
            assert [offset for offset, _ in pairs(index)] == expected
        again_if_it_fails(index.close, path)
        assert pairs(OffsetIndex(path, BASE, 400_000))[:2] == [(70, 7), (71, 7)]
        if not rule.fired:
            break


def again_if_it_fails(call: Callable[[], Any], path: Path) -> Any:
    """Return the result of `call`; retry once if it raises a StorageError that names the file."""
    try:
        return call()
    except StorageError as error:
        assert error.path == str(path)
        return call()


def test_a_failed_trim_closes_all_the_same(path: Path) -> None:
    fs = FaultFS()
    index = OffsetIndex(path, BASE, SIZE, fs=fs)
    index.append(46, 1)
    fs.fail("ftruncate", code=errno.EIO)
    with pytest.raises(StorageError) as caught:
        index.close()
    assert caught.value.errno == errno.EIO
    assert index.closed
    index.close()


def test_a_failed_creation_leaves_no_file(path: Path) -> None:
    fs = FaultFS()
    fs.fail("ftruncate", code=errno.ENOSPC)
    with pytest.raises(StorageError):
        OffsetIndex(path, BASE, SIZE, fs=fs)
    assert not path.exists()


def test_a_sparse_file_is_read_without_touching_its_holes(path: Path) -> None:
    """An index that was not closed well is as long as its free room: what is read of it takes no disk space."""
    path.touch()
    os.truncate(path, 1 << 20)
    index = OffsetIndex(path, BASE, 1 << 20)
    assert (index.entries, index.last_offset, index.is_full) == (1 << 17, 45, True)
    assert index.lookup(2**31) == OffsetPosition(45, 0)
    index.truncate_to_entries(3)
    index.append(99, 9)
    assert pairs(index) == [(45, 0)] * 3 + [(99, 9)]
    assert path.read_bytes()[24:32] == entry_bytes((54, 9))
    index.close()


FILL_THE_DISK = """
import errno, os
from kafkalog.errors import StorageError
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.readonly.index import OffsetIndexView

index = OffsetIndex("00000000000000000000.index", 0, 10 << 20)
for n in range(100):
    index.append(n + 1, n)
with open("ballast", "wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
n = 100
try:
    while True:
        index.append(n + 1, n)
        n += 1
except StorageError as error:
    assert error.errno == errno.ENOSPC and error.path, error
assert n == 8192, n  # what was reserved before the disk was full
assert index.lookup(10**6).position == n - 1 and index.entries == n
found = index.lookup_many(range(n))
assert list(found[0]) == list(range(n))
# another index: created, but it gets no entry; and one full of holes can be looked at
other = OffsetIndex("00000000000000000007.index", 7, 1 << 20)
try:
    other.append(8, 1)
    raise SystemExit("a full disk took an entry")
except StorageError as error:
    assert error.errno == errno.ENOSPC
assert other.entries == 0
other.close_handler()
holes = OffsetIndex("00000000000000000007.index", 7, 1 << 20)
assert holes.entries == 1 << 17 and holes.lookup(10**6).offset == 7
assert list(holes.lookup_many([9, 10**6])[1]) == [0, 0]
assert OffsetIndexView("00000000000000000007.index", 7).entries == 0
holes.reset()
index.close()
os.unlink("ballast")
again = OffsetIndex("00000000000000000000.index", 0, 10 << 20)
assert again.entries == n and again.resize(10 << 20)
again.append(n + 1, n)
again.close()
print("alive")
"""


def test_a_really_full_disk_does_not_kill_the_interpreter() -> None:
    run = run_on_tiny_disk(FILL_THE_DISK)
    assert (run.returncode, run.stdout, run.stderr) == (0, "alive\n", "")


def test_look_ups_while_the_file_is_cut_and_grown(path: Path) -> None:
    """A search without the GIL never touches what a trim, resize or truncation is about to cut."""
    index = OffsetIndex(path, 0, 1 << 20)
    fill(index, range(1, 20_001), step=2)
    targets = np.arange(20_000)
    stop = threading.Event()
    bad: list[object] = []

    def search() -> None:
        while not stop.is_set():
            offsets, positions = (np.asarray(column) for column in index.lookup_many(targets))
            if not ((offsets <= targets) & (positions == np.where(offsets > 0, 2 * (offsets - 1), 0))).all():
                bad.append((offsets, positions))

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        index.truncate_to_entries(600)
        index.trim_to_valid_size()
        index.resize(1 << 20)
        for n in range(600, 2600):
            index.append(n + 1, 2 * n)
        index.resize(8)
        index.reset()
        fill(index, range(1, 2000), step=2)
    stop.set()
    for thread in threads:
        thread.join()
    assert bad == []
    index.close()


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_longer_than_any_can_be_is_rebuilt(tmp_path: Path, suffix: str, is_clean: bool) -> None:
    """Of a closed segment and of the last one: damage of an index is never fatal."""
    partition = tmp_path / "t-0"
    for base in (0, 200):
        write_segment(partition, base, batches(base, 40, 5), interval=500)
    wanted = {index.name: index.read_bytes() for index in partition.glob("*" + suffix)}
    for index in partition.glob("*" + suffix):
        os.truncate(index, 2**31 + 12)
    if is_clean:
        (tmp_path / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":-1}')
    settings = {"index_interval_bytes": 500, "segment_ms": 2**62, "retention_ms": -1}
    with kafkalog.open(partition, "a", **settings) as log:
        assert [record.offset for record in log] == list(range(400))
        found = log.offset_for_time(1000 + 377)
        assert found is not None and found.offset == 377
    for name, content in wanted.items():
        assert (partition / name).read_bytes()[: len(content)] == content
        assert (partition / name).stat().st_size < 1 << 20

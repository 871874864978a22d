"""Index files of an open log, cut or changed by another process: no signal, no wrong answer, whole files at the end."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog.errors import CorruptIndex
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.util.descriptors import INDEXES
from tests.commands import environment
from tests.storage.index_entries import fill, pairs
from tests.storage.logs import log
from tests.storage.test_opening_clean import SETTINGS, closed_log
from tests.tiny_disk import run_on_tiny_disk

CUTS = [0, 6_000, 4_096 * 2, 40_001]

CUT_WHILE_OPEN = """
import subprocess, sys
import kafkalog

length, name = int(sys.argv[1]), sys.argv[2]
settings = {"index_interval_bytes": 1, "segment_bytes": 1 << 20, "segment_index_bytes": 1 << 20}
log = kafkalog.open("t-0", "a", **settings)
for n in range(4000):
    log.append((None, b"v", 1_700_000_000_000 + n))
path = "t-0/00000000000000000000." + name
subprocess.run([sys.executable, "-c", f"import os; os.truncate({path!r}, {length})"], check=True)
for n in range(4000, 4500):
    log.append((None, b"v", 1_700_000_000_000 + n))
assert [r.offset for r in log.records()] == list(range(4500))
assert [log[n].offset for n in range(0, 4500, 7)] == list(range(0, 4500, 7))
for n in range(0, 4500, 7):
    assert log.offset_for_time(1_700_000_000_000 + n).offset == n, n
log.close()
print("alive")
"""


@pytest.mark.parametrize("name", ["index", "timeindex"])
@pytest.mark.parametrize("length", CUTS)
def test_a_cut_index_of_the_active_segment_costs_nothing(tmp_path: Path, length: int, name: str) -> None:
    """Cut by another process while the log is appended to and read: it is whole after the close."""
    files = [run_for_both(tmp_path / folder, cut, name) for folder, cut in (("whole", 1 << 20), ("cut", length))]
    assert files[0] == files[1]


def run_for_both(folder: Path, length: int, name: str) -> list[bytes]:
    folder.mkdir()
    command = [sys.executable, "-c", CUT_WHILE_OPEN, str(length), name]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
    return [path.read_bytes() for path in sorted((folder / "t-0").glob("0*"))]


def test_a_cut_index_is_written_again_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "00000000000000000000.index"
    index = OffsetIndex(path, 0, 4096)
    fill(index, range(1, 101))
    before = pairs(index)
    path.write_bytes(b"")
    path.write_bytes(bytes(4096))  # as long as it was: only its entries are gone
    with caplog.at_level(logging.WARNING):
        index.close()
    assert caplog.messages == [f"rewriting the entries of {path}: another process truncated or changed it"]
    assert pairs(OffsetIndex(path, 0, 4096)) == before


def test_an_untouched_index_is_closed_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = OffsetIndex(tmp_path / "00000000000000000000.index", 0, 4096)
    fill(index, range(1, 101))
    with caplog.at_level(logging.WARNING):
        index.trim_to_valid_size()
        index.close()
    assert caplog.messages == []


@pytest.mark.parametrize("length", [0, 8])
def test_an_index_cut_after_it_was_dropped_is_an_error(tmp_path: Path, length: int) -> None:
    """Entries no longer in memory cannot be restored from there; the hint's remedy works."""
    closed_log(tmp_path)
    a_log = log(tmp_path, **SETTINGS)
    segment = a_log.segments[1]
    sound = pairs(segment.offset_index)
    assert len(sound) > 1
    INDEXES.close_some(len(INDEXES))
    path = Path(segment.offset_index.path)
    INDEXES.close_some(len(INDEXES))
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    with pytest.raises(CorruptIndex, match=f"was {len(whole)} bytes long and is now ") as caught:
        segment.offset_index  # noqa: B018 - opens it
    assert caught.value.path == str(path) and "delete the file" in str(caught.value.hint)
    a_log.close()
    path.unlink()
    a_log = log(tmp_path, **SETTINGS)
    assert pairs(a_log.segments[1].offset_index) == sound
    a_log.close()


CUT_ON_A_FULL_DISK = """
import errno, os
from kafkalog.errors import StorageError
from kafkalog.storage.index.offset_index import OffsetIndex

index = OffsetIndex("00000000000000000000.index", 0, 1 << 20)
for n in range(20_000):
    index.append(n + 1, n)
os.truncate("00000000000000000000.index", 0)
with open("ballast", "wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
for wanted in (lambda: index.append(20_001, 20_000), index.trim_to_valid_size):
    try:
        wanted()
        raise SystemExit("a full disk took an entry")
    except StorageError as error:
        assert error.errno == errno.ENOSPC and error.path, error
assert index.entries == 20_000 and index.lookup(10**6).position == 19_999
os.unlink("ballast")
index.append(20_001, 20_000)
index.close()
again = OffsetIndex("00000000000000000000.index", 0, 1 << 20)
assert again.entries == 20_001
assert [again.lookup(n + 1).position for n in range(20_001)] == list(range(20_001))
print("alive")
"""


def test_a_cut_index_on_a_full_disk_is_an_error_that_can_be_mended() -> None:
    run = run_on_tiny_disk(CUT_ON_A_FULL_DISK)
    assert (run.returncode, run.stdout, run.stderr.count("rewriting the entries")) == (0, "alive\n", 2)

"""Opening what was closed well: what is looked at, what is checked later, and how few files are open at once."""

import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.listing import list_files
from kafkalog.tools.verify.directories import verify
from kafkalog.util.descriptors import DESCRIPTORS, INDEXES
from tests.builder import seal
from tests.faults import FaultFS
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, append_batches, bases, files, log, offset_entries, time_entries
from tests.storage.test_log_transactions import ABORT, append_marker, write

SETTINGS = {"internal_segment_bytes": 500, "index_interval_bytes": 100, "segment_index_bytes": 1 << 16}
ROOT = Path(__file__).parents[2]


def closed_log(tmp_path: Path, batches: int = 60) -> list[int]:
    """The base offsets of a log of five batches a segment, closed well."""
    a_log = log(tmp_path, **SETTINGS)
    for number in range(batches):
        append_batches(a_log, timestamp=NOW + number)
    found = bases(a_log)
    a_log.close()
    return found


def test_only_the_end_of_a_log_is_opened(tmp_path: Path) -> None:
    """LOAD-8, LOAD-21, LOAD-22: names and sizes, the last segment, its snapshot, the epochs; nothing else is read."""
    found = closed_log(tmp_path)
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    opened = {os.path.basename(call.path) for call in fs.named("open", "open_read")}
    last = f"{found[-1]:020d}"
    assert opened == {last + ".log", last + ".index", last + ".timeindex", f"{60:020d}.snapshot",
                      "leader-epoch-checkpoint"}
    assert len(fs.named("listdir", "scandir")) == 1
    fs.calls.clear()
    assert a_log.size == 6000 and bases(a_log) == found
    assert not fs.calls
    before = files(tmp_path / "topic-0")
    a_log.close()
    closed = {os.path.basename(call.path) for call in fs.named("open", "open_read")}
    assert not [name for name in closed if name.endswith("index") and not name.startswith(last)]
    assert not fs.named("fsync", "fdatasync")  # nothing was written
    after = files(tmp_path / "topic-0")
    assert {name for name in before if before[name] != after[name]} == {last + ".index", last + ".timeindex"}


def test_what_an_open_and_close_leaves_is_what_was_there(tmp_path: Path) -> None:
    closed_log(tmp_path)
    folder = tmp_path / "topic-0"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    log(tmp_path, **SETTINGS).close()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_threads_that_meet_a_damaged_index_first(tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    """SEG-20, KAFKA-1112: it is rebuilt once, by the first caller, and is on disk then."""
    found = closed_log(tmp_path)
    path = tmp_path / "topic-0" / f"{found[3]:020d}{suffix}"
    sound = path.read_bytes()
    path.write_bytes(sound + bytes(10 * 12))
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    assert path.read_bytes() != sound
    start, wrong = threading.Barrier(6), []

    def ask(number: int) -> None:
        start.wait()
        try:
            for offset in range(60):
                place = a_log.read((offset + 7 * number) % 60, 1).fetch_offset_metadata
                assert place.message_offset == (offset + 7 * number) % 60
                assert getattr(a_log.offset_for_time(NOW + offset), "offset", None) == offset
        except BaseException as error:
            wrong.append(error)

    with caplog.at_level(logging.WARNING):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[0]
    assert caplog.text.count("rebuilding") == 1
    assert path.read_bytes() == sound
    assert [call.path for call in fs.named("fdatasync")] == [str(path)]
    a_log.close()


def test_indexes_are_dropped_when_there_are_too_many(tmp_path: Path) -> None:
    """Their content is the same when they are reopened, while the active segment keeps its own."""
    INDEXES.limit = 8
    try:
        closed_log(tmp_path)
        a_log = log(tmp_path, **SETTINGS)
        held = len(INDEXES)
        entries = [(offset_entries(one), time_entries(one)) for one in a_log.segments]
        assert all(offsets and times for offsets, times in entries[:-1])
        assert held <= len(INDEXES) <= 8
        append_batches(a_log, times=20)
        assert [(offset_entries(one), time_entries(one)) for one in a_log.segments][: len(entries) - 1] == entries[:-1]
        assert len(INDEXES) <= 8
        a_log.truncate_to(22)
        append_batches(a_log, times=10)
        assert [a_log.read(n, 1).fetch_offset_metadata.message_offset for n in range(32)] == list(range(32))
        a_log.close()
    finally:
        INDEXES.limit = None


def test_an_index_that_was_dropped_is_synced_all_the_same(tmp_path: Path) -> None:
    """SEG-32: what a roll wrote is on disk after the flush, even with the file open elsewhere."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    append_batches(a_log, times=7)
    assert len(a_log.segments) == 2
    INDEXES.close_some(len(INDEXES))
    DESCRIPTORS.close_some(len(DESCRIPTORS))
    fs.calls.clear()
    a_log.flush()
    synced = [os.path.basename(call.path) for call in fs.named("fdatasync")]
    assert [name for name in synced if name.startswith("0" * 20)] == ["0" * 20 + end for end in
                                                                      (".log", ".index", ".timeindex")]
    a_log.close()


def test_a_reader_with_an_old_state_of_the_log_begins_again(tmp_path: Path) -> None:
    """LOG-46: a segment that was deleted between the look at the state and the read is no error of the reader."""
    closed_log(tmp_path)
    a_log = log(tmp_path, **SETTINGS)
    old = a_log.state.segments[2]
    held = a_log.read(old.base_offset, 1000).records
    a_log.delete_before(40)
    assert held.read() == held.read() != b""
    assert old.read(old.base_offset, 1000).records.read() == held.read()
    del held
    a_log.close()


def test_views_share_the_descriptors_too(tmp_path: Path) -> None:
    """Mode "r": what many views of many segments hold open together is bounded as well."""
    closed_log(tmp_path)
    DESCRIPTORS.limit = 8
    try:
        views = [LogView(tmp_path / "topic-0") for _ in range(5)]
        before = len(os.listdir("/proc/self/fd"))
        for offset in range(60):
            for view in views:
                found = view.read(offset, 1).records
                assert next(iter(found.batches(check_crc=True))).base_offset == offset
                del found
        assert len(DESCRIPTORS) <= 8 and len(os.listdir("/proc/self/fd")) <= before + 8
        for view in views:
            view.close()
    finally:
        DESCRIPTORS.limit = None


SMALL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from kafkalog.manager.log_manager import LogManager
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.listing import list_files
from kafkalog.tools.verify.directories import verify
from kafkalog.util.descriptors import DESCRIPTORS
from tests.storage.logs import append_batches
from tests.storage.test_descriptors import contents

for batches in (25, 26):
    manager = LogManager.open([sys.argv[1]])
    logs = list(manager.logs.values())
    assert len(logs) == int(sys.argv[2]) and {len(log.segments) for log in logs} == {5}
    assert all(contents(log) == list(range(batches)) for log in logs)
    slices = [log.read(batches // 2, 100).records for log in logs]  # held at once, and read later
    for log in logs:
        append_batches(log)
    assert all(len(one.read()) == 100 for one in slices)
    for log in logs[::10]:
        log.flush()
    assert all(contents(log) == list(range(batches + 1)) for log in logs)
    assert len(DESCRIPTORS) <= DESCRIPTORS.limit == 128 and DESCRIPTORS.given_up > 1000
    manager.close()
print("fine")
"""


def test_more_partitions_than_files_may_be_open(tmp_path: Path) -> None:
    """300 partitions of 5 segments at `ulimit -n 256`: all are read, appended to, closed, and opened again."""
    first = tmp_path / "made"
    first.mkdir()
    closed_log(first, 25)
    store = tmp_path / "store"
    store.mkdir()
    for number in range(300):
        shutil.copytree(first / "topic-0", store / f"topic-{number}")
    (store / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SMALL, str(store), "300"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr[-2000:]


@pytest.mark.parametrize("batches", [1, 3])
def test_a_last_batch_that_ends_below_its_base_offset(tmp_path: Path, batches: int) -> None:
    """Its checksum is right; the log would end there, below 0. After a crash it is cut off, as damage is."""
    append_batches(a_log := log(tmp_path), times=batches)
    a_log.close()
    file = tmp_path / "topic-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    at = len(data) - 100
    data[at + 23 : at + 27] = (-9).to_bytes(4, "big", signed=True)
    data[at:] = seal(bytes(data[at:]))
    file.write_bytes(data)
    with pytest.raises(CorruptRecord, match="although it was closed cleanly") as raised:
        log(tmp_path)
    assert raised.value.path == str(file) and raised.value.position in (0, at)
    assert file.read_bytes() == data
    again = log(tmp_path, had_clean_shutdown=False)
    assert again.log_end_offset == batches - 1
    again.close()


def test_an_index_entry_beyond_the_end_of_the_file(tmp_path: Path) -> None:
    """An entry in the middle, which an opening does not compare: the walk begins at the start of the segment."""
    a_log = log(tmp_path, index_interval_bytes=1)
    append_batches(a_log, times=6)
    a_log.close()
    path = next((tmp_path / "topic-0").glob("*.index"))
    entries = bytearray(path.read_bytes())
    assert len(entries) == 5 * 8
    entries[2 * 8 + 4] ^= 16
    path.write_bytes(entries)
    again = log(tmp_path, index_interval_bytes=1)
    assert [again.read(offset, 1).fetch_offset_metadata.message_offset for offset in range(6)] == list(range(6))
    again.close()
    with LogView(tmp_path / "topic-0") as view:
        assert view.read(3, 1).fetch_offset_metadata.message_offset == 3


def test_a_transaction_index_that_was_deleted_with_an_earlier_segment(tmp_path: Path) -> None:
    """LOAD-7: its segment was renamed too, so the one that begins at the same offset now lacks nothing."""
    a_log = log(tmp_path, scheduler=MockScheduler(MockClock(NOW)))
    append_batches(a_log)
    a_log.roll()
    write(a_log, 7, 0, txn=True)
    append_marker(a_log, ABORT, 7)
    a_log.truncate_to(0)
    for _ in range(5):
        append_batches(a_log)
        a_log.roll()
    a_log.close()
    leftover = f"{1:020d}.txnindex.deleted"
    before = files(tmp_path / "topic-0")
    snapshots = [name for name in before if name.endswith(".snapshot")]
    assert leftover in before and len(snapshots) == 5
    log(tmp_path, recovery_point=5)
    after = files(tmp_path / "topic-0")
    assert [name for name in after if name.endswith(".snapshot")] == snapshots and leftover not in after


def test_a_log_without_records_gets_an_empty_snapshot(tmp_path: Path) -> None:
    """LOAD-20: the one at its start is of producers whose records are deleted; its segment has no indexes yet."""
    a_log = log(tmp_path)
    write(a_log, 7, 0, 3)
    a_log.roll()
    a_log.maybe_increment_log_start_offset(3)
    assert a_log.delete_old_segments() == 1
    a_log.close()
    for suffix in (".index", ".timeindex"):
        (tmp_path / "topic-0" / f"{3:020d}{suffix}").unlink(missing_ok=True)
    name = f"{3:020d}.snapshot"
    assert files(tmp_path / "topic-0")[name] == 56
    log(tmp_path, log_start_offset=3, recovery_point=3)
    assert files(tmp_path / "topic-0")[name] == 10


@pytest.mark.parametrize("times", [[0, 0, 5], [0, 5, 9]])
def test_an_index_that_begins_with_time_0_is_sound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, times: list[int]
) -> None:
    """Its first entry is all zeros, as free space is."""
    with kafkalog.open(tmp_path / "topic-0", "a", index_interval_bytes=0) as a_log:
        for _ in range(2):
            for time in times:
                a_log.append([(b"k", b"v", time)])
            a_log.roll()
    before = files(tmp_path / "topic-0")
    with kafkalog.open(tmp_path / "topic-0", "a", index_interval_bytes=0) as a_log:
        found = a_log.offset_for_time(times[-1])
        assert found is not None and found.offset == times.index(times[-1])
    assert not caplog.messages and files(tmp_path / "topic-0") == before
    assert not verify(tmp_path).findings
    used = {one.name: (one.length, one.used) for one in list_files(str(tmp_path / "topic-0"))}
    assert {length - in_use for length, in_use in used.values()} == {0}

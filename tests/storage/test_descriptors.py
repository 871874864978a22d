"""Files that are open only while in use: the bound holds, and no call reads or writes another file meanwhile."""

import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog._core.bytes.mapping import WritebackErrorProbe
from kafkalog.errors import StorageError
from kafkalog.storage import lazy_file
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.descriptors import DESCRIPTORS, INDEXES
from kafkalog.util.fileio import OS, FileSystem
from tests.descriptors import open_descriptors
from tests.faults import FaultFS
from tests.storage.logs import append_batches, log, run, sized_batch

FEW = 8


@pytest.fixture
def few() -> Iterator[None]:
    """Only eight files may be open, and eight indexes mapped."""
    gc.collect()
    DESCRIPTORS.limit = INDEXES.limit = FEW
    yield
    DESCRIPTORS.limit = INDEXES.limit = None


def many_logs(tmp_path: Path, count: int, fs: FileSystem = OS) -> list[UnifiedLog]:
    folders = [tmp_path / str(number) for number in range(count)]
    for folder in folders:
        folder.mkdir()
    return [log(folder, fs=fs, internal_segment_bytes=500, segment_index_bytes=1 << 16, index_interval_bytes=100)
            for folder in folders]


def contents(a_log: UnifiedLog) -> list[int]:
    """The offset of every batch, through reads from the first to the last; each is checked against its checksum."""
    found: list[int] = []
    while len(found) < a_log.log_end_offset:
        data = a_log.read(len(found), 1 << 20).records
        for table in data.tables(check_crc=True):
            assert table.first_invalid < 0
            found += [batch.base_offset for batch in table]
    return found


def test_many_logs_share_few_descriptors(tmp_path: Path, few: None) -> None:
    """Appends go on in logs whose active segment was closed meanwhile, and all of it can be read and flushed."""
    logs, before = many_logs(tmp_path, 20), open_descriptors()
    for _ in range(15):
        for a_log in logs:
            append_batches(a_log)
        assert len(DESCRIPTORS) <= FEW
    assert all(len(a_log.segments) > 2 for a_log in logs)
    assert [contents(a_log) for a_log in logs] == [list(range(15))] * 20
    assert len(DESCRIPTORS) <= FEW and open_descriptors() <= before + FEW
    for a_log in logs:
        a_log.flush()
        assert a_log.recovery_point == 15
        a_log.close()
    assert len(DESCRIPTORS) == 0
    for a_log in many_logs_again(tmp_path, 20):
        assert contents(a_log) == list(range(15))
        a_log.close()


def many_logs_again(tmp_path: Path, count: int) -> list[UnifiedLog]:
    names = [tmp_path / str(number) for number in range(count)]
    return [log(name, internal_segment_bytes=500, segment_index_bytes=1 << 16) for name in names]


def test_a_log_that_is_dropped_is_not_kept_alive(tmp_path: Path) -> None:
    before, held = open_descriptors(), len(DESCRIPTORS)
    a_log = many_logs(tmp_path, 1)[0]
    append_batches(a_log, times=20)
    assert len(DESCRIPTORS) > held
    del a_log
    assert open_descriptors() == before
    assert len(DESCRIPTORS) == held


def test_a_writer_at_work_is_not_asked_to_wait(tmp_path: Path, few: None) -> None:
    """A file is not closed under an append: it is passed over while its log's lock is held, or it has just grown."""
    records, data = FileRecords.open(tmp_path / "0.log"), run(0, 2)
    records.append(data[:100])
    records.guard = threading.Lock()
    with records.guard:
        assert not records.try_close()
    assert not records.try_close()  # it has grown since it was asked first
    assert records.try_close()
    records.append(data[100:])
    assert not records.try_close()
    assert records.try_close() and records.read(0, 1000) == data
    records.close()


def test_without_a_lock_to_go_by_nothing_is_closed(tmp_path: Path, few: None) -> None:
    records = [FileRecords.open(tmp_path / f"{number}.log") for number in range(2 * FEW)]
    for one in records:
        one.append(run(0, 1))
    assert not any(one.try_close() for one in records)
    assert len(DESCRIPTORS) == 2 * FEW  # the limit gives way, not the writer
    for one in records:
        one.end_appends()
    DESCRIPTORS.make_room(0)
    assert len(DESCRIPTORS) <= FEW
    for one in records:
        assert one.read(0, 1000) == run(0, 1)
        one.close()


@pytest.mark.parametrize("end", [FileRecords.close, FileRecords.delete_if_exists, FileRecords.unlink])
def test_a_slice_outlives_closing_and_deleting(tmp_path: Path, end: Callable[[FileRecords], object]) -> None:
    """Also one that has read nothing yet, and whatever file takes the name."""
    path, data = tmp_path / "0.log", run(0, 3)
    path.write_bytes(data)
    records = FileRecords.listed(str(path), 300)
    piece = records.slice(100, 200)
    end(records)
    path.unlink(missing_ok=True)
    path.write_bytes(bytes(300))
    DESCRIPTORS.close_some(len(DESCRIPTORS))
    assert piece.read() == data[100:]
    if end is FileRecords.unlink:
        assert records.read(0, 100) == data[:100]  # as long as somebody has a slice


def test_a_slice_of_a_closed_file_knows_it_again(tmp_path: Path, few: None) -> None:
    """With too many files open, a close does not open another: it finds the file by name, and never another one."""
    path, data = tmp_path / "0.log", run(0, 3)
    path.write_bytes(data)
    (tmp_path / "open").write_bytes(b"x")
    others = [LazyFile(str(tmp_path / "open"), OS) for _ in range(FEW)]
    for busy in others:
        assert busy.pread(1, 0) == b"x"
        busy.pin(has_name=True)
    records = FileRecords.listed(str(path), 300), FileRecords.listed(str(path), 300)
    one, other = (each.slice(100, 200) for each in records)
    for each in records:
        each.close()
    assert one.read() == data[100:]
    path.rename(tmp_path / "elsewhere")
    path.write_bytes(bytes(300))
    with pytest.raises(StorageError, match="the file was deleted or closed") as caught:
        other.read()
    assert (caught.value.errno, caught.value.path) == (errno.ENOENT, str(path))


def test_what_was_unlinked_and_nobody_reads_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(run(0, 3))
    records = FileRecords.listed(str(path), 300)
    assert records.read(0, 100) == run(0, 1)
    records.unlink()
    path.write_bytes(bytes(300))
    for ask in (lambda: records.read(0, 100), lambda: records.slice(0, 100), lambda: records.search_for_offset(0)):
        with pytest.raises(StorageError) as caught:
            ask()
        assert (caught.value.errno, caught.value.path) == (errno.ENOENT, str(path))


def test_a_rename_beside_a_reader(tmp_path: Path) -> None:
    """A file that is looked for by a name which it loses, and another one takes, is found all the same."""
    old, new = tmp_path / "0.log", tmp_path / "0.log.deleted"
    old.write_bytes(b"mine")
    file = LazyFile(str(old), Renaming(old, new))
    assert file.pread(10, 0) == b"mine"
    assert (old.read_bytes(), new.read_bytes()) == (b"another", b"mine")


class Renaming(FileSystem):
    """Renames the file, and puts another in its place, while it is being opened for the first time."""

    def __init__(self, old: Path, new: Path) -> None:
        self.names: tuple[Path, Path] | None = (old, new)
        self.lazy: LazyFile | None = None

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        if self.names is not None:
            (old, new), self.names = self.names, None
            owner = next(one for one in gc.get_referrers(self) if isinstance(one, LazyFile))
            owner.rename_to(str(new))
            old.write_bytes(b"another")
        return os.open(path, flags, mode)


class ProbeWithError:
    """A probe whose sync reports a loss."""

    def __init__(self, fd: int) -> None:
        assert os.fstat(fd)

    def sync(self) -> None:
        raise OSError(errno.EIO, "lost")


def test_a_loss_while_the_file_was_closed_is_told_by_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports a failed write-back to open files only: a probe asks on behalf of a file closed meanwhile."""
    monkeypatch.setattr(lazy_file, "WritebackErrorProbe", ProbeWithError)
    a_log, = many_logs(tmp_path, 1)
    append_batches(a_log)
    while a_log.active_segment.records._fd >= 0:
        DESCRIPTORS.close_some(1)
    append_batches(a_log)
    with pytest.raises(StorageError, match="lost") as caught:
        a_log.flush()
    assert caught.value.errno == errno.EIO
    with pytest.raises(StorageError, match="rejects writes"):
        append_batches(a_log)
    a_log.close_handlers()


def test_a_witness_of_a_sound_file_has_nothing_to_say(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    probe = WritebackErrorProbe(fd)  # the file is empty: what is mapped is never touched
    os.pwrite(fd, b"some", 0)
    os.close(fd)
    probe.sync()
    with pytest.raises(OSError) as caught:
        WritebackErrorProbe(fd)
    assert caught.value.errno == errno.EBADF


def mappings(path: str) -> int:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum(line.rstrip("\n").endswith(path) for line in maps)


def test_witnesses_go_when_they_are_not_needed_any_more(tmp_path: Path) -> None:
    """One for each file that was closed with unsynced data, until a flush; the active segment's stays."""
    a_log, = many_logs(tmp_path, 1)
    for _ in range(12):
        append_batches(a_log)
        while a_log.active_segment.records._fd >= 0:
            DESCRIPTORS.close_some(1)
    paths = [one.path for one in a_log.segments]
    assert [mappings(path) for path in paths] == [1] * len(paths)
    append_batches(a_log)
    a_log.flush()
    assert [mappings(path) for path in paths] == [0] * (len(paths) - 1) + [1]
    a_log.close()
    assert mappings(paths[-1]) == 0


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files(tmp_path: Path, code: int) -> None:
    """Idle files are closed and the call is repeated; if none is left to close, a typed error with a hint."""
    fs = FaultFS()
    logs = many_logs(tmp_path, 3, fs)
    for a_log in logs:
        append_batches(a_log, times=12)
    DESCRIPTORS.close_some(100)
    held = len(DESCRIPTORS)
    contents(logs[0])
    assert len(DESCRIPTORS) > held
    rule = fs.fail("open", "open_read", code=code, times=1)
    assert contents(logs[1]) == list(range(12)) and rule.fired
    fs.heal()
    fs.fail("open", "open_read", code=code)
    DESCRIPTORS.close_some(len(DESCRIPTORS))
    with pytest.raises(StorageError, match="ulimit -n|the system's limit") as caught:
        contents(logs[2])
    assert caught.value.errno == code
    fs.heal()
    assert contents(logs[2]) == list(range(12))
    for a_log in logs:
        append_batches(a_log, times=2)
        a_log.close()


def test_an_append_that_finds_no_descriptor_changes_nothing(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log, = many_logs(tmp_path, 1, fs)
    append_batches(a_log, times=2)
    while a_log.active_segment.records._fd >= 0:
        DESCRIPTORS.close_some(1)
    fs.fail("open", "open_read", code=errno.EMFILE)
    with pytest.raises(StorageError, match="ulimit"):
        a_log.append_as_leader(bytearray(sized_batch(100)))
    assert a_log.log_end_offset == 2
    fs.heal()
    append_batches(a_log)
    assert contents(a_log) == [0, 1, 2]
    a_log.close()


def test_readers_and_writers_while_files_come_and_go(tmp_path: Path, few: None) -> None:
    """Threads read everything, checksums and offsets checked, while others append, and nearly nothing stays open."""
    logs = many_logs(tmp_path, 12)
    for a_log in logs:
        append_batches(a_log, times=10)
    wrong: list[BaseException] = []
    stop = threading.Event()

    def work(first: int, write: bool) -> None:
        try:
            while not stop.is_set():
                for a_log in logs[first:] + logs[:first]:
                    if write:
                        append_batches(a_log)
                    else:
                        found = contents(a_log)
                        assert found == list(range(len(found)))
                    assert a_log.offset_for_time(0) is not None
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(3 * n, n < 2)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        DESCRIPTORS.close_some(2)
        INDEXES.close_some(2)
        stop.wait(0.002)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]
    for a_log in logs:
        assert contents(a_log) == list(range(a_log.log_end_offset))
        a_log.close()


def test_a_file_that_another_thread_opened_is_closed_at_once(tmp_path: Path) -> None:
    """Its thread waits and runs no Python code; without the GIL it would keep the descriptor until then."""
    path = tmp_path / "file"
    path.write_bytes(b"content")
    file = LazyFile(str(path), OS)
    number = file.opened().fileno()
    errors = []

    def close() -> None:
        assert file.try_close()
        try:
            os.fstat(number)
        except OSError as error:
            errors.append(error.errno)

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()
    assert errors == [errno.EBADF]
    assert file.pread(7, 0) == b"content"

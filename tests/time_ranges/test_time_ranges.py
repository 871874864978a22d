"""Queries with an upper bound of time: no row is lost whatever the log is or was, and what they read."""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument, StorageError
from kafkalog.sidecars import identity
from kafkalog.sidecars.identity import whole_chunks
from kafkalog.sidecars.view_end import ViewEnd
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.storage.segments import AnySegment
from kafkalog.time_ranges.background import TimeRangesBuilder
from kafkalog.time_ranges.manage import build_ranges, list_ranges
from kafkalog.time_ranges.place import TimeRangesPlace
from kafkalog.time_ranges.ranges import TimeRanges
from kafkalog.time_ranges.segment_times import SegmentTimes, unpacked
from kafkalog.util.events import HOOKS
from kafkalog.util.fileio import OS
from tests.fuzz_cases import KINDS
from tests.memory import memory
from tests.time_ranges.test_reads import VALUE, time_of
from tests.transactional import made
from tests.where.logs import Batch, write_log

T = 1_700_000_000_000
TIMES = st.one_of(st.just(-1), st.integers(0, 20).map(lambda n: T + n))
BATCHES = st.builds(
    lambda kind, times, stamped: Batch(*kind, tuple(times), T + 7 if stamped and kind[0] == 2 else None),
    st.sampled_from(KINDS), st.lists(TIMES, min_size=1, max_size=4), st.booleans(),
)  # fmt: skip
BOUNDS = st.lists(st.tuples(st.integers(-2, 22), st.integers(-2, 22)), min_size=1, max_size=4)
Bounds = list[tuple[int, int]]


def check(log: kafkalog.Log, bounds: Bounds) -> None:
    """The rows between two times are those among all records."""
    for since, until in bounds:
        expected = [one.offset for one in log.records() if T + since <= one.timestamp < T + until]
        where = f"time >= {T + since} and time < {T + until}"
        assert log.scan(["offset"], where=where).table()["offset"].to_pylist() == expected
        below = [one.offset for one in log.records() if one.timestamp <= T + until]
        assert [one.offset for one in log.records(where=f"time <= {T + until}")] == below


@settings(max_examples=80)
@given(st.lists(BATCHES, min_size=1, max_size=8), st.integers(1, 4), BOUNDS)
def test_no_row_is_lost_in_any_format(batches: list[Batch], per_segment: int, bounds: Bounds) -> None:
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        path, store = Path(folder) / "data" / "t-3", Path(folder) / "times"
        write_log(path, batches, per_segment)
        for _ in range(2):  # with the notes of this process, then with those of the other's files
            with kafkalog.open(path, time_ranges=store) as log:
                check(log, bounds * 2)


@settings(max_examples=60)
@given(st.data(), BOUNDS)
def test_no_row_is_lost_while_the_log_changes(data: st.DataObject, bounds: Bounds) -> None:
    """Appends, rolls, truncations, deletions and cleans, seen by the writer and by readers with notes of before."""
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        path, store = Path(folder) / "data" / "t-0", Path(folder) / "times"
        path.parent.mkdir()
        options = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "file_delete_delay_ms": 0}
        with (
            kafkalog.open(path, "a", time_ranges=True, **options) as log,
            kafkalog.open(path) as reader,
            kafkalog.open(path, time_ranges=store) as stored,
        ):
            for _ in range(data.draw(st.integers(1, 10))):
                step = data.draw(st.sampled_from(["append", "append", "roll", "truncate", "delete", "compact"]))
                if step == "append":
                    times = data.draw(st.lists(TIMES, min_size=1, max_size=5))
                    keys = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=len(times)))
                    log.append([(key, b"-", time) for key, time in zip(keys, times, strict=False)])
                elif step == "roll":
                    log.roll()
                elif step == "truncate":
                    log.truncate_to(max(log.start_offset, log.end_offset - data.draw(st.integers(0, 8))))
                elif step == "delete":
                    log.delete_before(min(log.start_offset + data.draw(st.integers(0, 4)), log.end_offset))
                else:
                    log.compact()
                for one in (log, reader, stored):
                    check(one, bounds)


def test_committed_reads(tmp_path: Path) -> None:
    events = [("data", 7, 3), ("plain", 0, 2), ("abort", 7, 0), ("data", 8, 2), ("commit", 8, 0), ("plain", 0, 1)]
    written = made(events)
    written.write(tmp_path / "t-0")
    with kafkalog.open(tmp_path / "t-0", "a", time_ranges=True) as log:
        log.roll()
        log.append([(b"k", b"late", 1), (b"k", b"new", 1_790_000_000_000)])
        log.roll()
        log.append([(b"k", b"latest", 5)])
        times = {one.offset: one.timestamp for one in log.records(isolation="read_committed")}
        assert len(times) == 8
        for until in sorted({*times.values(), 0, 3, 2**42}) * 2:
            found = [one.offset for one in log.records(where=f"time < {until}", isolation="read_committed")]
            assert found == [offset for offset, time in times.items() if time < until]


def test_threads_note_the_same_segments(tmp_path: Path, settled: None) -> None:
    with kafkalog.open(tmp_path / "t-0", "a", time_ranges=True) as log:
        for part in range(8):
            log.append([(b"k", b"v", T + (part * 5 + n) % 13) for n in range(50)])
            log.roll()
        expected = [one.offset for one in log if one.timestamp < T + 3]
        with ThreadPoolExecutor(4) as pool:
            query = f"time < {T + 3}"
            found = list(pool.map(lambda _: [one.offset for one in log.records(where=query)], range(24)))
        assert found == [expected] * 24


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three closed segments whose times fall, with notes in files beside them, and an active one."""
    path = tmp_path / "data" / "t-0"
    path.parent.mkdir()
    fill(path, (9, 5, 1, 7))
    return path


def fill(path: Path, times: tuple[int, ...]) -> None:
    with kafkalog.open(path, "a", time_ranges=True) as log:
        for number, time in enumerate(times):
            log.append([(b"k", b"v", T + time + n % 2) for n in range(3)])
            if number < len(times) - 1:
                log.roll()
        list(log.records(where=f"time < {T}"))
    notes(path, 3 * (len(times) - 1)).unlink(missing_ok=True)  # on a busy machine the active segment counts as settled
    assert len([*path.glob("*.timeranges")]) == len(times) - 1


def rows(path: Path, moments: Iterable[int] = range(12)) -> list[list[int]]:
    """The offsets with times below each moment, by the notes beside the segments; and without any."""
    with kafkalog.open(path) as log:
        log._time_ranges = TimeRanges(log._source, TimeRangesPlace(log._source.path, None, OS))  # without a builder
        found = [[one.offset for one in log.records(where=f"time < {T + n}")] for n in moments]
        assert found == [[one.offset for one in log if one.timestamp < T + n] for n in moments]
    return found


def notes(path: Path, base_offset: int = 0) -> Path:
    return path / f"{base_offset:020}.timeranges"


@pytest.mark.parametrize("rebuild", [False, True])
def test_notes_that_fit_are_written_again_on_request(settled: None, path: Path, rebuild: bool) -> None:
    os.utime(notes(path), (0, 0))
    with kafkalog.open(path) as log:
        built = build_ranges(log._source, TimeRangesPlace(log._source.path, None, OS), rebuild=rebuild)
    assert {one.state for one in built} == {"ok"}
    assert (notes(path).stat().st_mtime > 0) == rebuild


def test_notes_are_listed_with_their_states(path: Path) -> None:
    notes(path, 0).unlink()
    notes(path, 3).write_bytes(b"KLTIMERG")
    with kafkalog.open(path) as log:
        found = list_ranges(log._source, TimeRangesPlace(log._source.path, None, OS))
    files = [notes(path, base) for base in (0, 3, 6)]
    assert [one.path for one in found] == [str(file) for file in files]
    assert [one[:4] for one in found] == [
        (0, "missing", 0, 0), (3, "damaged", 0, 0), (6, "ok", 1, files[2].stat().st_size),
    ]  # fmt: skip


def test_a_build_names_the_file_that_cannot_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(segment: AnySegment, bound: int) -> SegmentTimes:
        raise OSError(errno.EIO, "no")

    notes(path, 3).unlink()
    monkeypatch.setattr("kafkalog.time_ranges.ranges.read_times", unreadable)
    with kafkalog.open(path) as log, pytest.raises(StorageError, match="note the times of the segment") as caught:
        build_ranges(log._source, TimeRangesPlace(log._source.path, None, OS))
    assert (caught.value.errno, caught.value.path) == (errno.EIO, str(path / f"{3:020}.log"))


def test_each_flipped_byte_and_each_cut_is_noticed(path: Path) -> None:
    moments = (2, 6, 11)
    expected, sound = rows(path, moments), notes(path, 3).read_bytes()
    for at in range(len(sound)):
        notes(path, 3).write_bytes(sound[:at] + bytes([sound[at] ^ (1 << at % 8)]) + sound[at + 1 :])
        assert rows(path, moments) == expected, at
        notes(path, 3).write_bytes(sound[:at])
        assert rows(path, moments) == expected, at
    notes(path, 3).write_bytes(sound + b"\0")
    assert rows(path, moments) == expected


def test_notes_of_another_segment_are_noticed(path: Path, tmp_path: Path) -> None:
    """Not those of another base offset, nor of a segment of the same size at the same offset in another log."""
    expected = rows(path)
    shutil.copy(notes(path, 3), notes(path, 0))
    assert rows(path) == expected
    other = tmp_path / "other" / "t-0"
    other.parent.mkdir()
    fill(other, (0, 0, 0, 0))
    for base in (0, 3, 6):
        assert (other / f"{base:020}.log").stat().st_size == (path / f"{base:020}.log").stat().st_size
        shutil.copy(notes(other, base), notes(path, base))
    assert rows(path) == expected


def test_notes_of_a_segment_written_again_are_noticed(path: Path) -> None:
    with kafkalog.open(path, "a", time_ranges=True) as log:
        assert [one.offset for one in log.records(where=f"time < {T + 1}")] == []
        log.truncate_to(3)
        fill_again = [(b"k", b"v", T + n % 2) for n in range(3)]
        log.append(fill_again)
        log.roll()
        assert [one.offset for one in log.records(where=f"time < {T + 1}")] == [3, 5]
    assert rows(path)[1] == [3, 5]


def test_notes_of_segments_that_are_gone_are_removed(path: Path) -> None:
    with kafkalog.open(path, "a", time_ranges=True) as log:
        log.delete_before(3)
        log.truncate_to(6)
        log.append([(None, b"v", T)])
        log.roll()
        log.append([(None, b"v", T)])
        assert [one.offset for one in log.records(where=f"time < {T + 1}")] == [6, 7]
        assert sorted(path.glob("*.timeranges")) == [notes(path, 3), notes(path, 6)]


def test_a_copied_directory_keeps_its_notes(path: Path, tmp_path: Path) -> None:
    expected = rows(path)
    shutil.copytree(path, tmp_path / "copy" / "t-0")
    assert rows(tmp_path / "copy" / "t-0") == expected


def test_damage_in_a_segment_that_has_no_notes_is_met(path: Path) -> None:
    notes(path, 3).unlink()
    file = path / f"{3:020}.log"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with kafkalog.open(path) as log, pytest.raises(CorruptRecord):
        list(log.records(where=f"time < {T + 2}"))
    with kafkalog.open(path) as log:
        skipped: list[kafkalog.Skipped] = []
        found = [one.offset for one in log.records(where=f"time < {T + 2}", on_damage="skip", skipped=skipped)]
        assert found == [6, 8] and skipped


def test_the_segment_that_is_written_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the writer, and by a reader beside it that notices when it is truncated and written again."""
    monkeypatch.setattr(identity, "SETTLED_NS", 1 << 60)
    path = tmp_path / "t-0"

    def append(log: kafkalog.Log, first: int, last: int, late: int) -> None:
        for start in range(first, last, 10):
            log.append([(b"k", VALUE, time_of(n) - late) for n in range(start, start + 10)])

    def read(log: kafkalog.Log, since: int, until: int) -> tuple[list[int], int]:
        before = log._source.metrics.reads.total
        where = f"time >= {T + 1000 * since} and time < {T + 1000 * until}"
        found = [one.offset for one in log.records(where=where)]
        size = log._source.metrics.reads.total - before
        assert found == [one.offset for one in log if T + 1000 * since <= one.timestamp < T + 1000 * until]
        return found, size

    with kafkalog.open(path, "a") as writer, kafkalog.open(path) as reader:
        append(writer, 0, 5000, 0)
        for log in (writer, reader):
            log.end_offset  # noqa: B018  # a reader looks at the files
            end = read(log, 4800, 4990)
            assert len(end[0]) == 190 and end[1] < 0.2 * log.size, "a query near the end notes no more"
            (first, whole), (second, later) = read(log, 1000, 1050), read(log, 1000, 1050)
            assert first == second and len(first) == 50 and whole > 0.9 * log.size and later < 0.3 * log.size
        append(writer, 5000, 5200, 4_000_000)
        for log in (writer, reader):
            found, size = read(log, 1000, 1050)
            assert len(found) == 100 and size < 0.4 * log.size
        writer.truncate_to(3000)
        append(writer, 5200, 7400, 4_200_000)
        for log in (writer, reader):
            assert len(read(log, 1000, 1050)[0]) == 100


def test_a_reader_notices_a_segment_that_was_cut_and_is_longer_by_now(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with kafkalog.open(path, "a") as writer, kafkalog.open(path) as reader:
        for start in range(0, 600, 10):
            writer.append([(b"k", VALUE, T + 1000 * (start > 0))] * 10)
        assert len([*reader.records(where=f"time < {T + 10}")]) == 10
        writer.truncate_to(20)
        for _ in range(100):
            writer.append([(b"k", VALUE, T + 1)] * 10)
        assert len([*reader.records(where=f"time < {T + 10}")]) == 1010


@pytest.mark.parametrize("error", [OSError("no status"), StorageError("no status")])
def test_a_segment_whose_status_cannot_be_had_costs_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def is_same(self: ViewEnd) -> bool:
        raise error

    path = tmp_path / "t-0"
    with kafkalog.open(path, "a") as writer, kafkalog.open(path) as reader:
        for n in range(100):
            writer.append([(b"k", VALUE, T + n % 2)])
        assert len([*reader.records(start=50, where=f"time < {T + 1}")]) == 25
        monkeypatch.setattr(ViewEnd, "is_same", is_same)
        assert len([*reader.records(where=f"time < {T + 1}")]) == 50


def test_a_build_notes_what_is_sound_and_raises_the_damage(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "SETTLED_NS", 1 << 60)
    for file in path.glob("*.timeranges"):
        file.unlink()
    file = path / f"{3:020}.log"
    file.write_bytes(file.read_bytes().replace(b"v", b"w", 1))
    with kafkalog.open(path, time_ranges=tmp_path / "times") as log:
        with pytest.raises(CorruptRecord, match="CRC"):
            log.build_time_ranges()
        assert [one.name[:20] for one in sorted((tmp_path / "times").rglob("*.timeranges"))] == [
            f"{base:020}" for base in (0, 6)
        ], "the active one was written a moment ago"
    (tmp_path / "file").write_text("")
    with kafkalog.open(path, time_ranges=tmp_path / "file") as log, pytest.raises(StorageError, match="time ranges"):
        log.build_time_ranges()


def test_a_segment_that_changes_while_it_is_read_gets_no_notes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(segment: Any, bound: int, size: int) -> Iterator[Any]:
        yield from whole_chunks(segment, bound, size)
        os.utime(segment.path, (0, 0))

    notes(path).unlink()
    monkeypatch.setattr("kafkalog.time_ranges.segment_times.whole_chunks", changed)
    with kafkalog.open(path) as log, pytest.raises(StorageError):
        build_ranges(log._source, TimeRangesPlace(log._source.path, None, OS))
    assert not notes(path).exists()


def test_the_builder_waits_until_a_file_is_settled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the notes would have no stamp, and each process would read the segment again for its digest."""
    for file in path.glob("*.timeranges"):
        file.unlink()
    with kafkalog.open(path, "a") as log:
        builder = TimeRangesBuilder(None)
        source: Any = log._source
        monkeypatch.setattr(identity, "SETTLED_NS", 1 << 60)
        assert not builder.run([source]) and not [*path.glob("*.timeranges")]
        monkeypatch.setattr(identity, "SETTLED_NS", -1)
        assert builder.run([source]) and len([*path.glob("*.timeranges")]) == 3
        for file in path.glob("*.timeranges"):
            assert unpacked(LazyFile(str(file), OS, "r")).stamp != identity.NO_STAMP


def test_closed_segments_are_noted_in_the_background(tmp_path: Path, settled: None) -> None:
    def wait_for(folder: Path, files: int) -> None:
        deadline = time.monotonic() + 60
        while len([*folder.rglob("*.timeranges")]) != files:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    with kafkalog.open(tmp_path / "data" / "t-0", "a", time_ranges=True) as log:
        for n in range(2):
            log.append([(b"k", b"v", T + n)])
            log.roll()
        wait_for(tmp_path / "data", 2)
    with kafkalog.open_dirs(tmp_path / "data", "a", time_ranges=tmp_path / "times") as dirs:
        wait_for(tmp_path / "times", 2)
        dirs["t", 0].append(b"v")
        dirs["t", 0].roll()
        next(job for job in dirs.jobs if job.name == "kafkalog-time-ranges").run()
        wait_for(tmp_path / "times", 3)
    with kafkalog.open_dirs(tmp_path / "data", time_ranges=tmp_path / "times") as reader:
        assert reader.jobs == () and reader["t"].build_time_ranges() == 1, "the active segment alone"


def test_a_closed_log_leaves_no_hook(tmp_path: Path) -> None:
    before = len(HOOKS.get("roll", ()))
    for _ in range(3):
        with kafkalog.open(tmp_path / "data" / "t-0", "a", time_ranges=True, key_index=True):
            assert len(HOOKS["roll"]) == before + 2
    assert len(HOOKS.get("roll", ())) == before


def test_a_directory_that_cannot_be_written_costs_no_row(path: Path, tmp_path: Path) -> None:
    (tmp_path / "times").write_text("a file")
    with kafkalog.open(path, time_ranges=tmp_path / "times") as log:
        assert [one.offset for one in log.records(where=f"time < {T + 2}")] == [6, 8]


def test_a_reader_needs_a_place_of_its_own(path: Path) -> None:
    before = sorted(os.listdir(path))
    with pytest.raises(IllegalArgument, match='mode "r"'):
        kafkalog.open(path, time_ranges=True)
    with pytest.raises(IllegalArgument, match="data directory"):
        kafkalog.open(path, time_ranges=path.parent / "times")
    with kafkalog.open(path) as log:
        list(log.records(where=f"time < {T + 2}"))
    assert sorted(os.listdir(path)) == before


def test_a_directory_is_listed_once_for_all_its_segments(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: None
) -> None:
    listed: list[Iterable[int]] = []
    remove = TimeRangesPlace.remove_others
    monkeypatch.setattr(
        TimeRangesPlace, "remove_others", lambda self, kept=(): (listed.append(kept), remove(self, kept))[1]
    )
    with kafkalog.open(path, time_ranges=tmp_path / "times") as log:
        assert log.build_time_ranges() == 4
    with kafkalog.open(path, time_ranges=tmp_path / "other") as log:
        list(log.records(where=f"time < {T}"))
    assert len([*(tmp_path / "other").rglob("*.timeranges")]) > 1
    assert listed == [(0, 3, 6, 9)] * 2

"""Segments put in the place of others: one that is split, several that are cleaned; crashes in between."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.recovery.split import has_overflow, split_segment
from kafkalog.storage.replace import replace_files
from kafkalog.storage.segment import LogSegment
from kafkalog.util.fileio import OS, FileSystem
from tests.faults import FaultFS
from tests.mock_time import MockClock
from tests.raw_batches import batch
from tests.storage.logs import NOW, append_batches, bases, config, log, run, segment, sized_batch

pytestmark = pytest.mark.in_memory

NAME = f"{0:020d}"
OFFSETS = (0, 1, 7, 2**31 - 1, 2**31, 2**31 + 6, 2**32 + 10, 2**32 + 11)
BASES = [0, 2**31, 2**32 + 10]


def overflowing(path: Path) -> Path:
    """A partition directory with one segment that holds OFFSETS, a batch of 100 bytes each."""
    folder = path / "topic-0"
    folder.mkdir()
    data = b"".join(sized_batch(100, base=offset, timestamp=NOW + n) for n, offset in enumerate(OFFSETS))
    (folder / f"{NAME}.log").write_bytes(data)
    return folder


def offsets(a_log: UnifiedLog) -> list[int]:
    return [one.base_offset for part in a_log.segments for one in part.records.batches(check_crc=True)]


@pytest.mark.parametrize("point", [0, 2**31 + 3, 2**32 + 12])
def test_a_segment_with_offsets_too_far_apart_is_split(tmp_path: Path, point: int) -> None:
    """LOAD-17, SEG-26: whatever the recovery point; all records are there, found and timed, and appends go on."""
    folder = overflowing(tmp_path)
    a_log = log(tmp_path, had_clean_shutdown=False, recovery_point=point)
    assert (bases(a_log), offsets(a_log)) == (BASES, list(OFFSETS))
    for n, offset in enumerate(OFFSETS):
        assert a_log.read(offset, 1).fetch_offset_metadata.message_offset == offset
        found = a_log.offset_for_time(NOW + n)
        assert found is not None and found.offset == offset
    append_batches(a_log)
    assert a_log.log_end_offset == 2**32 + 13
    a_log.close()
    assert not [path for path in folder.iterdir() if path.suffix in (".deleted", ".swap", ".cleaned")]


def test_a_segment_whose_offsets_fit_is_not_split(tmp_path: Path) -> None:
    a_segment = segment(tmp_path)
    a_segment.append(run(0, 3))
    assert not has_overflow(a_segment)
    with pytest.raises(IllegalArgument, match="do not fit"):
        split_segment(a_segment, os.fspath(tmp_path), config(), OS, MockClock(NOW))
    assert sorted(os.listdir(tmp_path)) == [f"{NAME}.index", f"{NAME}.log", f"{NAME}.timeindex"]
    a_segment.close()


def test_batches_longer_than_a_chunk_are_copied_whole(tmp_path: Path) -> None:
    """SEG-30: up to the first offset that does not fit; chunks of 1 MiB, or one batch that is longer."""
    parts = [batch(n, [b"x" * size]) for n, size in ((0, 3_000_000), (1, 10), (2**31, 2_000_000), (2**31 + 1, 9))]
    (tmp_path / f"{NAME}.log").write_bytes(b"".join(parts))
    a_segment = segment(tmp_path, exists=True)
    made = split_segment(a_segment, os.fspath(tmp_path), config(), OS, MockClock(NOW))
    assert [(one.base_offset, one.size) for one in made] == [
        (0, len(parts[0] + parts[1])), (2**31, len(parts[2] + parts[3])),
    ]  # fmt: skip
    assert b"".join(Path(one.path).read_bytes() for one in made) == b"".join(parts)
    for one in (*made, a_segment):
        one.close_handlers()


Work = Callable[[Path, FileSystem], object]


def crashes(tmp_path: Path, folder: Path, work: Work) -> list[Path]:
    """A copy of the directory for each call that changes a file, as `work` leaves it that cannot make that call."""
    left = []
    for nth in range(1, 500):
        copy = tmp_path / f"crash{nth}" / folder.name
        shutil.copytree(folder, copy)
        fs = FaultFS()
        fs.fail(nth=nth, code=errno.EIO)
        try:
            work(copy, fs)
        except (StorageError, OSError):
            left.append(copy)
            continue
        return [*left, copy]
    raise AssertionError("it never comes to its end")


def test_a_crash_at_any_step_of_a_split(tmp_path: Path) -> None:
    """LOAD-5: cleaned written, some renamed, swap, old ones partly gone, done: the same records and segments."""
    folder = overflowing(tmp_path)

    def work(copy: Path, fs: FileSystem) -> None:
        a_segment = LogSegment.open(copy, 0, config(), fs=fs, clock=MockClock(NOW), file_already_exists=True)
        try:
            for one in split_segment(a_segment, os.fspath(copy), config(), fs, MockClock(NOW)):
                one.close_handlers()
        finally:
            a_segment.close_handlers()

    phases = set()
    for copy in crashes(tmp_path, folder, work):
        phases.add(tuple(sorted({path.suffix for path in copy.iterdir()})))
        again = log(copy.parent, had_clean_shutdown=False)
        assert (offsets(again), bases(again)) == (list(OFFSETS), BASES), copy
        again.close()
    assert {".cleaned", ".swap", ".deleted"} <= {suffix for phase in phases for suffix in phase} and len(phases) > 4


def test_a_crash_at_any_step_of_a_clean(tmp_path: Path) -> None:
    """LOAD-6: two segments replaced by what is left of them: all records, or those that were kept; never less."""
    folder = tmp_path / "topic-0"
    folder.mkdir()
    before = {0: run(0, 5), 5: run(5, 5), 10: run(10, 3)}
    for base, data in before.items():
        (folder / f"{base:020d}.log").write_bytes(data)
    kept = [1, 4, 6, 9]
    all_of_it, cleaned = list(range(13)), [*kept, 10, 11, 12]

    def work(copy: Path, fs: FileSystem) -> None:
        clock = MockClock(NOW)
        old = [LogSegment.open(copy, base, config(), fs=fs, clock=clock, file_already_exists=True) for base in (0, 5)]
        opened = list(old)
        try:
            new = LogSegment.open(copy, 0, config(), fs=fs, clock=clock, suffix=".cleaned")
            opened.append(new)
            for offset in kept:
                data = run(offset, 1)
                new.append(data, scan(data))
            new.on_become_inactive()
            new.flush()
            replace_files(os.fspath(copy), [new], old, fs)
        finally:
            for one in opened:
                one.close_handlers()

    seen = []
    for copy in crashes(tmp_path, folder, work):
        again = log(copy.parent, had_clean_shutdown=False)
        seen.append(offsets(again))
        assert seen[-1] in (all_of_it, cleaned), copy
        again.close()
    assert (seen[0], seen[-1]) == (all_of_it, cleaned)

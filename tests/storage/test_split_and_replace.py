"""Segments put in the place of others: splits, their order, what a failure leaves (LOG-78, LOG-79)."""

from pathlib import Path

import pytest

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.recovery.split import has_overflow, split_segment
from kafkalog.storage.segment import LogSegment
from kafkalog.util.fileio import OS, FileSystem
from tests.faults import FaultFS, each_failure
from tests.mock_time import MockClock
from tests.storage.logs import NOW, bases, config, log, sized_batch

pytestmark = pytest.mark.in_memory

FAR = 2**31


def write_segment(path: Path, base: int, offsets: list[int]) -> Path:
    """A segment file with a batch of 100 bytes at each of the offsets."""
    path.mkdir(exist_ok=True)
    file = path / f"{base:020d}.log"
    file.write_bytes(b"".join(sized_batch(100, base=offset, epoch=0) for offset in offsets))
    return file


def open_existing(path: Path, base: int, fs: FileSystem = OS) -> LogSegment:
    return LogSegment.open(path, base, config(), fs=fs, clock=MockClock(NOW), file_already_exists=True)


def split_existing(path: Path, base: int, fs: FileSystem = OS) -> list[LogSegment]:
    return split_segment(open_existing(path, base, fs), str(path), config(), fs, MockClock(NOW))


def offsets_of(a_log: UnifiedLog) -> list[int]:
    return [batch.last_offset for one in a_log.segments for table in one.records.tables() for batch in table]


def test_a_split_shares_the_batches_out(tmp_path: Path) -> None:
    """LOG-78: the new segments hold every byte, under names of their own; the old one is given up."""
    path = tmp_path / "topic-0"
    whole = write_segment(path, 10, [10, 11, 10 + FAR, 11 + FAR, 10 + 2 * FAR]).read_bytes()
    made = split_existing(path, 10)
    assert [one.base_offset for one in made] == [10, 10 + FAR, 10 + 2 * FAR]
    assert b"".join(Path(one.path).read_bytes() for one in made) == whole
    assert len({one.path for one in made}) == 3 and not any(has_overflow(one) for one in made)
    assert (path / "00000000000000000010.log.deleted").read_bytes() == whole
    for one in made:
        one.close()


def test_one_batch_that_does_not_fit_is_one_segment_elsewhere(tmp_path: Path) -> None:
    """LOG-78: its base is that of the batch."""
    write_segment(tmp_path / "topic-0", 0, [FAR + 7])
    (made,) = split_existing(tmp_path / "topic-0", 0)
    assert made.base_offset == FAR + 7 and made.size == 100
    made.close()


def test_a_good_segment_is_not_split(tmp_path: Path) -> None:
    """LOG-78."""
    write_segment(tmp_path / "topic-0", 0, [0, 5, FAR - 1])
    with pytest.raises(IllegalArgument, match="offsets that do not fit"):
        split_existing(tmp_path / "topic-0", 0)
    assert sorted(path.name for path in (tmp_path / "topic-0").glob("*.log*")) == ["00000000000000000000.log"]


def test_opening_a_log_splits_where_it_must(tmp_path: Path) -> None:
    """LOG-78: of three segments come four."""
    path = tmp_path / "topic-0"
    write_segment(path, 0, [0, 1])
    write_segment(path, 2, [2, 3, FAR + 2, FAR + 3])
    write_segment(path, FAR + 4, [FAR + 4])
    a_log = log(tmp_path, had_clean_shutdown=False)
    assert bases(a_log) == [0, 2, FAR + 2, FAR + 4]
    assert offsets_of(a_log) == [0, 1, 2, 3, FAR + 2, FAR + 3, FAR + 4]
    a_log.close()


def test_the_order_of_the_renames(tmp_path: Path) -> None:
    """LOG-79: .cleaned to .swap from the highest base down; old to .deleted; then the suffix goes; each synced."""
    path = tmp_path / "topic-0"
    write_segment(path, 0, [0, FAR, 2 * FAR])
    fs = FaultFS()
    made = split_existing(path, 0, fs)
    steps = []
    for call in fs.named("rename", "fsync"):
        name = Path(call.path).name
        if call.op == "fsync":
            steps += ["sync"] if call.path == str(path) else []
        elif ".log" in name:
            steps.append((int(name[:20]), Path(call.args[0]).name[20:]))
    names = ((2 * FAR, ".log.swap"), (FAR, ".log.swap"), (0, ".log.swap"))
    placed = ((0, ".log"), (FAR, ".log"), (2 * FAR, ".log"))
    assert steps == [*names, "sync", (0, ".log.deleted"), "sync", *placed, "sync"]
    for one in made:
        one.close()


def test_a_failure_at_any_call_loses_no_record(tmp_path: Path) -> None:
    """LOG-79: the next opening goes on, or begins again."""
    for nth in each_failure():
        folder = tmp_path / str(nth)
        folder.mkdir()
        write_segment(folder / "topic-0", 0, [0, 1, FAR, FAR + 1, 2 * FAR])
        fs = FaultFS()
        rule = fs.fail("rename", "fsync", "fdatasync", "unlink", nth=nth, times=1 << 20)
        try:
            for one in split_existing(folder / "topic-0", 0, fs):
                one.close_handlers()
        except StorageError:
            pass
        except OSError as error:  # a plain one may come from the directory's sync
            assert error.errno
        a_log = log(folder, had_clean_shutdown=False)
        assert offsets_of(a_log) == [0, 1, FAR, FAR + 1, 2 * FAR] and bases(a_log) == [0, FAR, 2 * FAR]
        a_log.close()
        if not rule.fired:
            break

"""The reference opens our directory: clean it changes nothing, unclean it finds the same, and it appends."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog
from tests.interop import ours
from tests.interop.reference import Reference

LINES = 60_000
SEGMENT_BYTES = 1 << 20
SETTINGS = {"segment.bytes": SEGMENT_BYTES}
T0 = 1_700_000_000_000
WILD_COUNT = 3000


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Lines in one batch after another, by `kafkalog produce`."""
    return ours.produce_demo(tmp_path_factory.mktemp("open") / "data", "lines", LINES, SEGMENT_BYTES)


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small batches whose times come from two clocks that differ, over segments rolled by hand."""
    directory = ours.partition(tmp_path_factory.mktemp("wild"), "wild-0")
    with kafkalog.open(directory, "a", index_interval_bytes=300) as log:
        for i in range(0, WILD_COUNT, 3):
            late = 5000 if i % 2 else 0
            log.append([(b"k%d" % j, b"v" * (j % 50), T0 + 10 * j - late) for j in range(i, i + 3)])
            if i % 900 == 600:
                log.roll()
    assert len(list(directory.glob("*.log"))) > 3
    return directory


@pytest.fixture(params=["produced", "wild"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of each of our directories, with its data directory's files."""
    made = request.getfixturevalue(request.param)
    source: Path = made[0] if request.param == "produced" else made
    copy = shutil.copytree(source.parent, tmp_path / "data")
    return Path(copy) / source.name


def end_offset(directory: Path) -> int:
    return sum(1 for _ in ours.records(directory))


def sampled_times(directory: Path) -> list[int]:
    stamps = sorted({record[1] for record in ours.records(directory)})
    sample = [stamps[i] for i in ours.spread(0, len(stamps), 150)]
    return [-1, -2, -3, 0, *sample, *(stamp + 1 for stamp in sample), stamps[-1] + 1]


def test_clean_open_and_close_change_no_byte(reference: Reference, directory: Path) -> None:
    before = ours.files(directory)
    reference.open(directory, SETTINGS, clean=True).close()
    assert ours.files(directory) == before


def test_reference_reads_the_records_we_wrote(reference: Reference, directory: Path) -> None:
    with reference.open(directory, SETTINGS, clean=True) as log:
        assert log.read() == ours.records(directory)


def test_reference_reads_the_lines_of_the_input(reference: Reference, produced: tuple[Path, str]) -> None:
    directory, sha = produced
    with reference.open(directory, SETTINGS, clean=True) as log:
        digest = log.digest()
    assert (digest["count"], digest["sha256"]) == (LINES, sha)


def test_lookups_agree(reference: Reference, directory: Path) -> None:
    """The same segment, position and size by offset, the same record by time, with kafkalog's indexes."""
    wanted = ours.spread(0, end_offset(directory), 300)
    asked = sampled_times(directory)
    with reference.open(directory, SETTINGS, clean=True) as log:
        assert log.offsets(wanted) == ours.offsets(directory, wanted)
        assert log.times(asked) == ours.times(directory, asked)


def test_unclean_open_keeps_the_log_and_finds_the_same(reference: Reference, directory: Path) -> None:
    """After recovery, which rebuilds every index: the same bytes, end offset, offsets and times found."""
    before, end = ours.logs(directory), end_offset(directory)
    wanted, asked = ours.spread(0, end, 300), sampled_times(directory)
    by_offset, by_time = ours.offsets(directory, wanted), ours.times(directory, asked)
    with reference.open(directory, SETTINGS, clean=False) as log:
        assert log.end_offset == end
        assert log.offsets(wanted) == by_offset
        assert log.times(asked) == by_time
    assert ours.logs(directory) == before
    assert ours.offsets(directory, wanted) == by_offset  # and we, with the indexes it rebuilt
    assert ours.times(directory, asked) == by_time


def test_index_entries_point_at_the_same_batches(reference: Reference, directory: Path) -> None:
    """Every entry of our offset index names a batch's last offset and its position; times only grow."""
    with reference.open(directory, SETTINGS, clean=True) as log:
        state = log.deep_state()
    for segment in state["segments"]:
        entries = [tuple(entry) for entry in segment["offset_index"]]
        assert entries == sorted(set(entries))
        found = ours.offsets(directory, [offset for offset, _ in entries])
        assert [(row[0], row[1]) for row in found] == [(segment["base_offset"], at) for _, at in entries]
        times = [tuple(entry) for entry in segment["time_index"]]
        assert times == sorted(times)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_reference_appends_and_we_read_on(reference: Reference, directory: Path, clean: bool) -> None:
    before = ours.records(directory)
    end = len(before)
    late = max(record[1] for record in before) + 1000
    added = [[(late + i, b"k", b"from the reference %d" % i, [("h", b"x")])] for i in range(50)]
    with reference.open(directory, SETTINGS, clean=clean) as log:
        infos = log.append(*added[:25])
        log.ask("roll")
        infos += log.append(*added[25:])
        log.close(marker=True)
    assert [info["first_offset"] for info in infos] == list(range(end, end + 50))
    after = ours.records(directory)
    assert after[:end] == before
    assert after[end:] == [(end + i, late + i, b"k", b"from the reference %d" % i, (("h", b"x"),)) for i in range(50)]
    assert ours.times(directory, [late + 7]) == [(late + 7, end + 7)]
    with kafkalog.open(directory, "a") as ours_again:
        assert ours_again.append(b"ours again").first_offset == end + 50
    with reference.open(directory, SETTINGS, clean=True) as log:
        assert log.read(end + 49)[-1][3] == b"ours again"


KILLED = """
import os, signal, sys
import kafkalog
log = kafkalog.open(sys.argv[1], "a", index_interval_bytes=500, segment_bytes=1 << 20)
for i in range(2000):
    log.append([(b"k", b"value %d" % j, 1_700_000_000_000 + j) for j in range(i * 5, i * 5 + 5)])
    if i == 900:
        log.roll()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_log_of_a_killed_process(reference: Reference, tmp_path: Path) -> None:
    """Its active indexes are still preallocated and no marker vouches for it: nothing that append returned is lost."""
    directory = ours.partition(tmp_path, "killed-0")
    done = subprocess.run([sys.executable, "-c", KILLED, str(directory)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (directory.parent / ".kafka_cleanshutdown").exists()
    before, values = ours.logs(directory), ours.records(directory)
    assert [record[3] for record in values] == [b"value %d" % i for i in range(10_000)]
    wanted, asked = ours.spread(0, 10_000, 200), [T0 + i for i in range(0, 10_010, 37)]
    by_offset, by_time = ours.offsets(directory, wanted), ours.times(directory, asked)
    with reference.open(directory, SETTINGS, clean=False) as log:
        assert log.read() == values
        assert log.offsets(wanted) == by_offset
        assert log.times(asked) == by_time
    assert ours.logs(directory) == before


def test_log_append_time(reference: Reference, tmp_path: Path) -> None:
    """Batches stamped by the log: the reference reads the times we say, and finds by them."""
    directory = ours.partition(tmp_path, "stamped-0")
    with kafkalog.open(directory, "a", message_timestamp_type="LogAppendTime") as mine:
        for i in range(300):
            mine.append([b"%d" % i, b"and", b"more"])
    values = ours.records(directory)
    with reference.open(directory, {"message.timestamp.type": "LogAppendTime"}, clean=True) as log:
        assert log.read() == values
        asked = sorted({record[1] for record in values})
        assert log.times(asked) == ours.times(directory, asked)


def test_log_start_moved_up(reference: Reference, directory: Path) -> None:
    """Whole segments below the new start are gone; the reference starts where we say it starts."""
    with kafkalog.open(directory, "a") as log:
        bases = [segment.base_offset for segment in log.segments]
        log.delete_before(bases[1])
    with reference.open(directory, SETTINGS, clean=True) as theirs:
        assert theirs.state["log_start_offset"] == bases[1]
        assert theirs.read() == ours.records(directory, bases[1])


def test_truncated_log(reference: Reference, directory: Path) -> None:
    """After truncate_to the reference accepts the log, also after an unclean end."""
    with kafkalog.open(directory, "a") as log:
        log.truncate_to(1000)
    left = ours.records(directory)
    assert 0 < len(left) <= 1000
    with reference.open(directory, SETTINGS, clean=False) as theirs:
        assert theirs.end_offset == len(left)
        assert theirs.read() == left

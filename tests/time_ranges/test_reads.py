"""Bytes that queries with an upper bound of time read: the first one, later ones, and those of another process."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import kafkalog
from kafkalog.time_ranges.manage import build_ranges
from kafkalog.time_ranges.place import TimeRangesPlace
from kafkalog.util.fileio import OS

T = 1_700_000_000_000
SEGMENTS, ROWS, VALUE = 20, 20_000, b"v" * 1000


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 MB in 20 segments, a record a second of which every 500th is 300 seconds late."""
    path = tmp_path_factory.mktemp("data") / "orders-0"
    with kafkalog.open(path, "a", segment_bytes=1 << 20) as log:
        for start in range(0, ROWS, 10):
            log.append([(b"k", VALUE, time_of(n)) for n in range(start, start + 10)])
        assert len(log.segments) >= SEGMENTS - 2
    return path


def time_of(n: int) -> int:
    return T + 1000 * (n - (300 if n % 500 == 499 else 0))


QUERY = f"SELECT count(value) FROM orders WHERE timestamp BETWEEN make_timestamptz({(T + 4_000_000) * 1000}) AND " \
    f"make_timestamptz({(T + 4_050_000) * 1000})"  # fmt: skip


class Query:
    """The query of one process, and the bytes that it reads by any call."""

    def __init__(self, path: Path, store: Path | None) -> None:
        self.path, self.store = path, store

    def run(self, times: int) -> Iterator[tuple[int, int]]:
        """Yield rows and bytes read, as the system counts them, of the query each time."""
        given = {} if self.store is None else {"time_ranges": self.store}
        with duckdb.connect() as connection:
            with kafkalog.duckdb.register(connection, self.path.parent, **given):
                for _ in range(times):
                    before = bytes_of_process()
                    rows = connection.execute(QUERY).fetchall()[0][0]
                    yield rows, bytes_of_process() - before


def bytes_of_process() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


@pytest.mark.usefixtures("settled")
def test_a_later_query_reads_a_small_share_of_the_log(long_log: Path, tmp_path: Path) -> None:
    expected = sum(T + 4_000_000 <= time_of(n) <= T + 4_050_000 for n in range(ROWS))
    assert expected == 51
    size = sum(file.stat().st_size for file in long_log.glob("*.log"))
    (first, read), (second, later), (third, last) = Query(long_log, tmp_path / "times").run(3)
    assert first == second == third == expected
    assert read > 0.7 * size and later < 0.1 * size and last < 0.1 * size, (read, later, last, size)
    ((other, by_files),) = Query(long_log, tmp_path / "times").run(1)
    assert other == expected and by_files < 0.11 * size, (by_files, size)
    (_, _), (again, in_memory) = Query(long_log, None).run(2)
    assert again == expected and in_memory < 0.1 * size
    files = [*(tmp_path / "times").rglob("*.timeranges")]
    assert sum(file.stat().st_size for file in files) < 0.001 * size


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("is_kept", [True, False])
def test_the_first_query_after_a_build_reads_a_small_share_of_the_log(
    long_log: Path, tmp_path: Path, is_kept: bool
) -> None:
    """Notes in files serve another process, notes in memory the directories that were asked to build."""
    size = sum(file.stat().st_size for file in long_log.glob("*.log"))
    with kafkalog.open_dirs(long_log.parent, time_ranges=tmp_path / "times" if is_kept else False) as dirs:
        assert dirs["orders"].build_time_ranges() == len(dirs["orders", 0].segments)
        assert dirs["orders"].build_time_ranges() == 0
        with duckdb.connect() as connection, kafkalog.duckdb.register(connection, dirs):
            before = bytes_of_process()
            assert connection.execute(QUERY).fetchall() == [(51,)]
            assert bytes_of_process() - before < 0.1 * size
    if is_kept:
        ((rows, read),) = Query(long_log, tmp_path / "times").run(1)
        assert rows == 51 and read < 0.11 * size


@pytest.mark.usefixtures("settled")
def test_files_beside_the_segments_serve_readers_that_name_no_place(long_log: Path, tmp_path: Path) -> None:
    """They are only read: what they lack stays in memory."""
    path = tmp_path / "data" / long_log.name
    shutil.copytree(long_log, path)
    size = sum(file.stat().st_size for file in path.glob("*.log"))
    with kafkalog.open(path, "a") as log:
        build_ranges(log._source, TimeRangesPlace(log._source.path, None, OS))
    files = sorted(path.glob("*.timeranges"))
    ((rows, read),) = Query(path, None).run(1)
    assert rows == 51 and read < 0.11 * size and len(files) >= SEGMENTS - 2
    files[-2].unlink()
    before = sorted(os.listdir(path))
    (_, first), (rows, later) = Query(path, None).run(2)
    assert rows == 51 and later < 0.1 * size < first and sorted(os.listdir(path)) == before


@pytest.mark.usefixtures("settled")
def test_files_that_cannot_be_read_are_noted_in_memory_once(long_log: Path, tmp_path: Path) -> None:
    path = tmp_path / "data" / long_log.name
    shutil.copytree(long_log, path)
    for segment in path.glob("*.log"):
        segment.with_suffix(".timeranges").symlink_to(segment.with_suffix(".timeranges"))  # a loop: ELOOP
    size = sum(file.stat().st_size for file in path.glob("*.log"))
    (_, first), (rows, later) = Query(path, None).run(2)
    assert rows == 51 and later < 0.1 * size < first


@pytest.mark.usefixtures("settled")
def test_a_reader_that_stops_early_notes_nothing(long_log: Path, tmp_path: Path) -> None:
    with kafkalog.open(long_log, time_ranges=tmp_path / "times") as log:
        assert next(log.records(where=f"time >= {T + 4_000_000} and time < {T + 4_050_000}")).offset == 4000
    assert not (tmp_path / "times").exists()


def test_segments_below_the_range_are_ruled_out_by_the_time_index(tmp_path: Path, settled: None) -> None:
    """A segment of old records that came late is not read, not even for the first query."""
    path = tmp_path / "data" / "t-0"
    path.parent.mkdir()
    with kafkalog.open(path, "a") as log:
        for times in (range(T, T + 2000), range(T - 9000, T - 8000), range(T - 2000, T - 1000)):
            for start in range(times.start, times.stop, 10):
                log.append([(b"k", VALUE, time) for time in range(start, start + 10)])
            log.roll()
        log.append([(b"k", b"last", T + 10), (b"k", b"last", T + 3000)])
        sizes = [segment.size for segment in log.segments]
    for mode in ("r", "a"):
        with kafkalog.open(path, mode) as log:
            list(log.records(where=f"time > {T + 2999}"))  # reads what the time index does not show
            before = log._source.metrics.reads.total
            found = [one.offset for one in log.records(where=f"time >= {T + 5} and time < {T + 15}")]
            assert found == [*range(5, 15), 4000]
            assert log._source.metrics.reads.total - before < sizes[0] + 0.5 * sizes[1]
            assert log._time_ranges is not None and [*log._time_ranges._held] == [0, 4000], "the others were not read"

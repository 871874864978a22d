"""Mode "r" below the face: where a directory ends, what its indexes may say, reading it."""

import os
import struct
from pathlib import Path

import pytest

from kafkalog.errors import CorruptRecord, LogClosed, NotAPartition, OffsetOutOfRange
from kafkalog.reading.chunks import records
from kafkalog.storage.readonly.files import Descriptors
from kafkalog.storage.readonly.view import LogView
from tests.descriptors import open_descriptors
from tests.faults import FaultFS
from tests.raw_batches import batch, batches, framed, write_segment
from tests.storage.views import append, log_file, offsets, thousand_offsets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return thousand_offsets(tmp_path / "orders-3")


class TestWhereItEnds:
    def test_start_end_and_segments_of_a_whole_directory(self, folder: Path) -> None:
        with LogView(folder) as view:
            assert (view.log_start_offset, view.log_end_offset) == (0, 1000)
            assert [segment.base_offset for segment in view.segments] == [0, 500]
            assert view.size == sum(log_file(folder, base).stat().st_size for base in (0, 500))
            assert view.problems == ()
            assert offsets(view) == list(range(1000))

    def test_nothing_is_written_and_no_lock_is_taken(self, folder: Path) -> None:
        before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
        fs = FaultFS()
        with LogView(folder, fs=fs) as view:
            offsets(view)
            view.offset_for_time(1700)
        assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()} == before
        assert sorted(os.listdir(folder.parent)) == ["orders-3"]
        assert not {"pwrite", "ftruncate", "rename", "unlink", "fsync"} & {call.op for call in fs.calls}

    @pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, 61, 100])
    def test_torn_last_batch_ends_the_log_before_it(self, folder: Path, cut: int) -> None:
        """FILE-3: the iteration ends at the last whole batch; the view also says what it left out."""
        path = log_file(folder, 500)
        whole = path.stat().st_size
        torn = batches(1000, 1, 10)[0][:cut]
        append(path, torn)
        with LogView(folder) as view:
            assert view.log_end_offset == 1000
            assert offsets(view) == list(range(1000))
            (problem,) = view.problems
            assert isinstance(problem, CorruptRecord)
            assert (problem.path, problem.offset, problem.position) == (str(path), 1000, whole)

    @pytest.mark.parametrize("at", [8, 16, 17, 21, 23, 40, 70, 200])
    def test_flipped_bit_in_the_tail_ends_the_log_before_its_batch(self, folder: Path, at: int) -> None:
        path = log_file(folder, 500)
        data = bytearray(path.read_bytes())
        position = len(data) - len(batches(990, 1, 10)[0])
        data[position + at] ^= 0x80
        path.write_bytes(data)
        with LogView(folder) as view:
            assert view.log_end_offset == 990
            (problem,) = view.problems
            assert (problem.path, problem.offset, problem.position) == (str(path), 990, position)
            assert offsets(view, 985) == list(range(985, 990))

    @pytest.mark.parametrize("wrong", [0, 5, 999, 2**62])
    def test_batch_whose_offset_does_not_follow_ends_the_log(self, folder: Path, wrong: int) -> None:
        """The base offset lies outside the CRC: a damaged one shows by not going up, or not fitting the segment."""
        append(log_file(folder, 500), struct.pack(">q", wrong) + batches(1000, 1, 10)[0][8:])
        with LogView(folder) as view:
            assert view.log_end_offset == 1000
            assert view.problems[0].offset == 1000

    def test_zeros_of_a_preallocated_file_are_no_problem(self, folder: Path) -> None:
        append(log_file(folder, 500), bytes(100_000))
        with LogView(folder) as view:
            assert (view.log_end_offset, view.problems) == (1000, ())
            assert offsets(view, 980) == list(range(980, 1000))

    def test_batch_larger_than_a_walk_is_taken_whole(self, folder: Path) -> None:
        append(log_file(folder, 500), batch(1000, [bytes(3 << 20)]))
        with LogView(folder) as view:
            assert view.log_end_offset == 1001
            (record,) = records(view, 1000, 1001)
            assert len(record.value or b"") == 3 << 20

    def test_empty_last_segment(self, folder: Path) -> None:
        write_segment(folder, 1000, [])
        with LogView(folder) as view:
            assert view.log_end_offset == 1000
            assert offsets(view, 995) == list(range(995, 1000))

    def test_live_index_with_free_room_behind_its_entries(self, tmp_path: Path) -> None:
        path = tmp_path / "t-0"
        write_segment(path, 0, batches(0, 80, 10), preallocated=1000)
        with LogView(path) as view:
            assert (view.log_end_offset, view.problems) == (800, ())
            assert view.offset_for_time(1455).offset == 455  # type: ignore[union-attr]


class TestIndexIsAdvice:
    """Every wrong index still gives the right answers."""

    ENTRY = struct.Struct(">ii")

    def check(self, folder: Path) -> LogView:
        with LogView(folder) as view:
            assert view.log_end_offset == 1000
            for offset in (0, 1, 250, 499, 500, 777, 999):
                info = view.read(offset, 1)
                assert info.fetch_offset_metadata.message_offset == offset // 10 * 10
                found = view.offset_for_time(1000 + offset)
                assert found is not None
                assert (found.offset, found.timestamp) == (offset, 1000 + offset)
            assert offsets(view, 3) == list(range(3, 1000))
        return view

    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    @pytest.mark.parametrize(
        "content",
        [None, b"", bytes(4096), b"\x01", b"\xff" * 96, b"garbage text " * 20],
        ids=["missing", "empty", "zeros", "one byte", "ones", "text"],
    )
    def test_worthless_content(self, folder: Path, suffix: str, content: bytes | None) -> None:
        for base in (0, 500):
            path = folder / f"{base:020d}.{suffix}"
            path.unlink() if content is None else path.write_bytes(content)
        self.check(folder)

    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    @pytest.mark.parametrize("cut", range(1, 9))
    def test_cut_in_the_middle_of_an_entry_has_a_problem(self, folder: Path, suffix: str, cut: int) -> None:
        path = folder / f"{500:020d}.{suffix}"
        data = path.read_bytes()
        path.write_bytes(data[: len(data) - cut])
        view = self.check(folder)
        assert [problem.path for problem in view.problems] in ([str(path)], [])

    @pytest.mark.parametrize("shift", [-1, 1, 61, 371, 100_000])
    def test_positions_that_are_no_batch(self, folder: Path, shift: int) -> None:
        for base in (0, 500):
            path = folder / f"{base:020d}.index"
            entries = [(offset, position + shift) for offset, position in self.ENTRY.iter_unpack(path.read_bytes())]
            path.write_bytes(b"".join(self.ENTRY.pack(*entry) for entry in entries))
        self.check(folder)

    def test_times_that_the_data_does_not_bear_out(self, folder: Path) -> None:
        entry = struct.Struct(">qi")
        for base in (0, 500):
            path = folder / f"{base:020d}.timeindex"
            entries = [(time - 400, offset) for time, offset in entry.iter_unpack(path.read_bytes())]
            path.write_bytes(b"".join(entry.pack(*one) for one in entries))
        self.check(folder)

    def test_entries_of_data_that_was_cut_away(self, folder: Path) -> None:
        """Truncation leaves old entries behind the valid ones (format.md §14, B1)."""
        path = log_file(folder, 500)
        parts = batches(500, 50, 10)
        path.write_bytes(b"".join(parts[:20]))
        with LogView(folder) as view:
            assert view.log_end_offset == 700
            assert offsets(view, 690) == list(range(690, 700))

    def test_trimmed_while_we_read(self, folder: Path) -> None:
        """Its owner shortens an index that the view has read: nothing is mapped, so nothing can happen."""
        with LogView(folder) as view:
            read = iter(records(view, 0, 1000))
            assert next(read).offset == 0
            for base in (0, 500):
                os.truncate(folder / f"{base:020d}.index", 8)
                os.truncate(folder / f"{base:020d}.timeindex", 0)
            assert [record.offset for record in read] == list(range(1, 1000))
            assert view.offset_for_time(1600).offset == 600  # type: ignore[union-attr]
            assert view.read(650, 1).fetch_offset_metadata.message_offset == 650


class TestReading:
    def test_read_names_the_batch_found(self, folder: Path) -> None:
        """SEG-10, LOG-22."""
        size = len(batches(500, 1, 10)[0])
        with LogView(folder) as view:
            info = view.read(523, 10 * size)
            where = info.fetch_offset_metadata
            assert (where.message_offset, where.segment_base_offset) == (520, 500)
            assert where.relative_position_in_segment == info.records.position == 2 * size
            assert info.records.size == 10 * size
            assert not info.first_entry_incomplete

    def test_at_least_one_batch_unless_told_otherwise(self, folder: Path) -> None:
        with LogView(folder) as view:
            assert view.read(523, 1).records.size == len(batches(520, 1, 10)[0])
            cut = view.read(523, 1, min_one_message=False)
            assert (cut.records.size, cut.first_entry_incomplete) == (1, True)

    def test_log_end_is_empty_and_beyond_it_an_error(self, folder: Path) -> None:
        with LogView(folder) as view:
            info = view.read(1000, 100)
            assert (info.records.size, info.fetch_offset_metadata.message_offset) == (0, 1000)
            with pytest.raises(OffsetOutOfRange, match="after the log end"):
                view.read(1001, 100)

    def test_offsets_in_a_gap_between_segments(self, tmp_path: Path) -> None:
        path = tmp_path / "t-0"
        write_segment(path, 0, batches(0, 5, 10))
        write_segment(path, 80, batches(90, 5, 10))
        with LogView(path) as view:
            assert view.read(60, 1).fetch_offset_metadata.message_offset == 90
            assert offsets(view) == [*range(50), *range(90, 140)]

    def test_times(self, folder: Path) -> None:
        """LOG-57: -1 is the end, -2 the start, -3 the largest time; else the first record at or after."""
        with LogView(folder) as view:
            assert view.offset_for_time(-1).offset == 1000  # type: ignore[union-attr]
            assert view.offset_for_time(-2).offset == 0  # type: ignore[union-attr]
            assert view.offset_for_time(-3) == (999, 1999, 0)
            assert view.offset_for_time(0) == (0, 1000, 0)
            assert view.offset_for_time(1500) == (500, 1500, 0)
            assert view.offset_for_time(2000) is None

    def test_times_that_jump(self, tmp_path: Path) -> None:
        """Two producers whose clocks differ: the first record in offset order that is late enough."""
        path = tmp_path / "t-0"
        times = [100, 900, 110, 120, 910, 130]
        parts = [batch(n, [(time, None, b"x" * 3000)]) for n, time in enumerate(times)]
        write_segment(path, 0, parts)
        with LogView(path) as view:
            found = {at: view.offset_for_time(at) for at in (1, 100, 101, 115, 900, 901, 911)}
            assert [None if one is None else one[:2] for one in found.values()] == [
                (0, 100), (0, 100), (1, 900), (1, 900), (1, 900), (4, 910), None,
            ]  # fmt: skip
            assert view.offset_for_time(-3) == (4, 910, 0)

    def test_damage_in_the_middle_is_told_after_what_lies_before(self, folder: Path) -> None:
        path = log_file(folder, 0)
        data = bytearray(path.read_bytes())
        position = len(b"".join(batches(0, 7, 10)))
        data[position + 80] ^= 1
        path.write_bytes(data)
        with LogView(folder) as view:
            given = []
            with pytest.raises(CorruptRecord) as error:
                for record in records(view, 0, 1000):
                    given.append(record.offset)
            assert given == list(range(70))
            assert (error.value.path, error.value.offset, error.value.position) == (str(path), 70, position)
            assert error.value.hint
            assert offsets(view, 80) == list(range(80, 1000))

    def test_older_segment_that_is_torn_loses_nothing_silently(self, folder: Path) -> None:
        os.truncate(log_file(folder, 0), log_file(folder, 0).stat().st_size - 1)
        with LogView(folder) as view:
            given = []
            with pytest.raises(CorruptRecord, match="middle of a batch") as error:
                for record in records(view, 0, 1000):
                    given.append(record.offset)
            assert (given, error.value.offset) == (list(range(490)), 490)

    def test_crc_right_but_offsets_going_back(self, folder: Path) -> None:
        path = log_file(folder, 0)
        parts = batches(0, 50, 10)
        parts[20] = struct.pack(">q", 100) + parts[20][8:]
        path.write_bytes(b"".join(parts))
        with LogView(folder) as view:
            for start in (0, 195, 200, 205):
                with pytest.raises(CorruptRecord, match="below") as error:
                    list(records(view, start, 1000))
                assert error.value.position == len(b"".join(parts[:20]))

    def test_many_segments_need_few_descriptors(self, tmp_path: Path) -> None:
        path = tmp_path / "t-0"
        for base in range(0, 400, 10):
            write_segment(path, base, batches(base, 1, 10))
        with LogView(path) as view:
            view._watch._descriptors = limited = Descriptors(5)
            for segment in view.segments:
                segment._descriptors = limited
            before = open_descriptors()
            assert offsets(view) == list(range(400))
            assert open_descriptors() - before <= 6

    def test_closed(self, folder: Path) -> None:
        view = LogView(folder)
        read = iter(records(view, 0, 1000))
        next(read)
        view.close()
        view.close()
        with pytest.raises(LogClosed, match="log orders-3 is closed"):
            list(read)
        with pytest.raises(ValueError, match="log orders-3 is closed"):
            view.read(0, 1)
        with pytest.raises(LogClosed):
            view.refresh()

    def test_v2_frame_without_records_is_a_batch(self, tmp_path: Path) -> None:
        """A batch that compaction emptied counts for the end, and gives no record."""
        path = tmp_path / "t-0"
        body = struct.pack(">hiqqqhii", 0, 4, -1, 1000, -1, -1, -1, 0)
        write_segment(path, 0, [*batches(0, 1, 10), framed(10, body), *batches(15, 1, 10)])
        with LogView(path) as view:
            assert view.log_end_offset == 25
            assert offsets(view) == [*range(10), *range(15, 25)]


class TestOpening:
    def test_data_directory_names_its_partitions(self, folder: Path) -> None:
        with pytest.raises(NotAPartition, match="orders-3"):
            LogView(folder.parent)

    def test_segment_file_names_its_directory(self, folder: Path) -> None:
        with pytest.raises(NotAPartition) as error:
            LogView(log_file(folder, 0))
        assert str(folder) in (error.value.hint or "")

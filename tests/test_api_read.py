"""The reading face of `Log`: indexing, slices, iteration, batches, times, segments, waiting, closing."""

import datetime as dt
import gc
import pickle
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import (
    IllegalArgument,
    InvalidRecord,
    LogClosed,
    OffsetOutOfRange,
    ReadOnlyLog,
)
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from tests.builder import message_v1
from tests.raw_batches import batch, batches, write_segment
from tests.transactional import made

DAY = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
DAY_MS = int(DAY.timestamp() * 1000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Offsets 0 to 999, one a millisecond from DAY on, in two segments."""
    path = tmp_path / "orders-0"
    write_segment(path, 0, batches(0, 50, 10, timestamp=DAY_MS))
    write_segment(path, 500, batches(500, 50, 10, timestamp=DAY_MS))
    return path


def offsets_of(records: object) -> list[int]:
    return [record.offset for record in records]  # type: ignore[attr-defined]


class TestIndexing:
    def test_record_by_offset(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            for n in (0, 1, 499, 500, 998, 999):
                record = log[n]
                assert (record.offset, record.key, record.timestamp) == (n, b"k%d" % n, DAY_MS + n)
                assert record.value is not None and record.value.startswith(b"v%d." % n)
            assert [log[-n].offset for n in (1, 2, 1000)] == [999, 998, 0]
            assert log[998].datetime == DAY + dt.timedelta(milliseconds=998)

    @pytest.mark.parametrize("n", [1000, 5000, -1001])
    def test_outside_is_a_lookup_error_with_the_range(self, folder: Path, n: int) -> None:
        with kafkalog.open(folder) as log, pytest.raises(LookupError, match=r"\[0, 1000\)") as error:
            log[n]
        assert isinstance(error.value, OffsetOutOfRange)
        assert error.value.offset == n

    def test_gap_names_the_next_offset(self, tmp_path: Path) -> None:
        rows = [(1, None, b"a"), (2, None, b"b")]
        write_segment(tmp_path / "t-0", 0, [batch(0, rows, deltas=[0, 7], last_delta=9), batch(30, rows)])
        with kafkalog.open(tmp_path / "t-0") as log:
            assert log[7].value == b"b"
            with pytest.raises(LookupError, match="next record has 7") as error:
                log[1]
            assert error.value.offset == 1  # type: ignore[attr-defined]
            for n in (8, 9, 12, 29):
                with pytest.raises(LookupError, match="next record has 30"):
                    log[n]
            with pytest.raises(OffsetOutOfRange):
                log[32]

    def test_gap_up_to_the_end(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "t-0", 0, [batch(0, [b"a"], last_delta=9)])
        with kafkalog.open(tmp_path / "t-0") as log:
            assert log.end_offset == 10
            with pytest.raises(LookupError, match="no record follows before the log end 10"):
                log[5]

    def test_control_records_are_left_out(self, tmp_path: Path) -> None:
        marker = batch(2, [(1, b"\0\0\0\1", b"\0\0\0\0\0\0")], attributes=0x30)
        write_segment(tmp_path / "t-0", 0, [batch(0, [b"a", b"b"]), marker, batch(3, [b"c"])])
        with kafkalog.open(tmp_path / "t-0") as log:
            assert [record.value for record in log] == [b"a", b"b", b"c"]
            assert [b.header.is_control for b in log.batches()] == [False, True, False]
            with pytest.raises(LookupError, match="next record has 3"):
                log[2]

    @pytest.mark.parametrize("key", ["1", 1.0, None])
    def test_other_keys_are_type_errors(self, folder: Path, key: object) -> None:
        with kafkalog.open(folder) as log, pytest.raises(TypeError):
            log[key]  # type: ignore[call-overload]


class TestSlices:
    @pytest.mark.parametrize(
        ("a", "b", "expected"),
        [
            (3, 6, range(3, 6)), (None, 4, range(4)), (996, None, range(996, 1000)), (-3, None, range(997, 1000)),
            (-3, -1, range(997, 999)), (10, 10, ()), (20, 10, ()), (995, 5000, range(995, 1000)), (5000, 6000, ()),
            (495, 505, range(495, 505)), (-5000, 2, range(2)), (7, 8, range(7, 8)),
        ],
    )  # fmt: skip
    def test_half_open_as_in_python(self, folder: Path, a: int | None, b: int | None, expected: range) -> None:
        with kafkalog.open(folder) as log:
            assert offsets_of(log[a:b]) == list(expected)
            assert log[a:b] == log.slice(a, b)

    def test_lazy_and_repeatable(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            part = log[10:13]
            assert repr(part) == "<LogSlice orders-0 [10, 13)>"
            assert offsets_of(part) == offsets_of(part) == [10, 11, 12]
            assert [b.base_offset for b in part.batches()] == [10]
            assert (part.start, part.stop) == (10, 13)

    def test_no_step(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            assert offsets_of(log[1:3:1]) == [1, 2]
            with pytest.raises(ValueError, match="step 2"):
                log[1:10:2]


class TestIteration:
    def test_all_records(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            assert offsets_of(log) == offsets_of(log.records()) == list(range(1000))

    def test_bounds(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            assert offsets_of(log.records(123, 789)) == list(range(123, 789))
            assert offsets_of(log.records(-5)) == list(range(995, 1000))
            assert offsets_of(log.records(990, 99999)) == list(range(990, 1000))
            assert offsets_of(log.records(0, -995)) == list(range(5))
            assert offsets_of(log.records(1000)) == []
            assert offsets_of(log.records(7, 3)) == []
            with pytest.raises(OffsetOutOfRange):
                log.records(1001)

    def test_bounds_by_time(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            step = dt.timedelta(milliseconds=1)
            assert offsets_of(log.records(since=DAY + 990 * step)) == list(range(990, 1000))
            assert offsets_of(log.records(until=DAY + 3 * step)) == [0, 1, 2]
            assert offsets_of(log.records(since=DAY_MS + 5, until=DAY_MS + 8)) == [5, 6, 7]
            assert offsets_of(log.records(since="2026-11-20T12:00:00.997")) == [997, 998, 999]
            assert offsets_of(log.records(since="2026-11-21")) == []
            assert offsets_of(log.records(998, until="2026-11-21")) == [998, 999]
            with pytest.raises(IllegalArgument, match="both"):
                log.records(3, since=DAY)

    def test_a_bound_by_time_reads_nothing_if_a_transaction_is_open_below_the_log_start(self, tmp_path: Path) -> None:
        made([("data", 7, 3), ("plain", 0, 2)]).write(tmp_path / "t-0")
        with kafkalog.open(tmp_path / "t-0", "a") as log:
            log.delete_before(2)
            assert log.last_stable_offset < log.start_offset
            for since in (0, 2**42, -2):
                assert offsets_of(log.records(since=since, isolation="read_committed")) == []
            assert offsets_of(log.records(since=0)) == [2, 3, 4]

    def test_end_is_that_of_the_call(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            read = log.records(998)
            with (folder / f"{500:020d}.log").open("ab") as file:
                file.write(batches(1000, 1, 10)[0])
            assert offsets_of(read) == [998, 999]
            assert offsets_of(log.records(998)) == list(range(998, 1010))
            assert log[-1].offset == 1009

    def test_levels_of_isolation(self, tmp_path: Path) -> None:
        """LOG-21: each has its own end; what is committed leaves aborted records and markers out."""
        made_log = made([("plain", 0, 2), ("data", 5, 2), ("abort", 5, 0), ("plain", 0, 1), ("data", 6, 2)])
        directory = tmp_path / "t-0"
        made_log.write(directory)
        (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 4\n")
        with kafkalog.open(directory) as log:
            assert (log.end_offset, log.high_watermark, log.last_stable_offset) == (8, 4, 6)
            for level in (None, "log_end", "read_uncommitted"):
                assert offsets_of(log.records(isolation=level)) == [0, 1, 2, 3, 5, 6, 7]
            assert offsets_of(log.records(isolation="high_watermark")) == [0, 1, 2, 3]
            assert offsets_of(log.records(isolation="read_committed")) == [0, 1, 5]
            assert offsets_of(log.records(-5, isolation="read_committed")) == [1, 5]
            assert offsets_of(log.records(7, isolation="read_committed")) == []
            assert [b.base_offset for b in log.batches(isolation="read_committed")] == [0, 5]
            part = log.slice(1, isolation="read_committed")
            assert (part.start, part.stop, offsets_of(part)) == (1, 6, [1, 5])
            assert part == log.slice(1, 6, isolation="read_committed") != log.slice(1, 6)
            assert repr(part) == "<LogSlice t-0 [1, 6) read_committed>"
            assert [b.base_offset for b in part.batches()] == [0, 5]
            assert offsets_of(log.tail(0, 0, isolation="read_committed")) == [0, 1, 5]
            assert offsets_of(log.tail(0, isolation="high_watermark")) == []
            found = log.offset_for_time(-1, isolation="read_committed")
            assert found is not None and (found.offset, found.leader_epoch) == (6, 3)

    def test_a_level_that_is_none_is_told_the_near_one(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            with pytest.raises(IllegalArgument, match="did you mean 'read_committed'"):
                log.records(isolation="read-committed")
            with pytest.raises(IllegalArgument, match="known are"):
                log.slice(isolation="???")
            with pytest.raises(TypeError, match="isolation"):
                log.tail(isolaton="read_committed")

    def test_records_know_their_leader_epoch(self, tmp_path: Path) -> None:
        made_log = made([("plain", 0, 1)])
        made_log.write(tmp_path / "t-0")
        with kafkalog.open(tmp_path / "t-0") as log:
            assert [record.leader_epoch for record in log] == [3]
        assert kafkalog.Record(b"v").leader_epoch == -1

    def test_batches(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            found = list(log.batches(485, 511))
            assert [(b.base_offset, b.last_offset) for b in found] == [(480, 489), (490, 499), (500, 509), (510, 519)]
            assert [record.offset for record in found[2]] == list(range(500, 510))
            assert all(b.is_valid for b in found)
            assert [b.base_offset for b in log.batches(-1)] == [990]

    def test_records_outlive_the_log(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            kept = log[5]
            many = list(log[:3])
        assert (kept.key, [record.key for record in many]) == (b"k5", [b"k0", b"k1", b"k2"])
        assert pickle.loads(pickle.dumps(kept)) == kept
        assert hash(kept) == hash(pickle.loads(pickle.dumps(kept)))

    def test_iterator_keeps_the_log_open(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            count = sum(1 for _ in kafkalog.open(folder))
            gc.collect()
        assert count == 1000

    @pytest.mark.parametrize("codec", CompressionType)
    def test_compressed_batches(self, tmp_path: Path, codec: CompressionType) -> None:
        """LOG-24: also from the middle of one."""
        builder = RecordsBuilder(1, compression=codec)
        for n in range(1, 50):
            builder.append(DAY_MS + n, b"k%d" % n, b"value %d " % n * 9, [("h", None)])
        write_segment(tmp_path / "t-0", 0, [batch(0, [b"a"]), bytes(builder.build()), batch(50, [b"z"])])
        with kafkalog.open(tmp_path / "t-0") as log:
            assert offsets_of(log) == list(range(51))
            record = log[7]
            assert (record.offset, record.key, record.value) == (7, b"k7", b"value 7 " * 9)
            assert (record.timestamp, record.headers) == (DAY_MS + 7, (("h", None),))
            assert (log[50].value, log[-1].value, offsets_of(log[48:])) == (b"z", b"z", [48, 49, 50])
            assert offsets_of(log.records(since=DAY_MS + 30, until=DAY_MS + 33)) == [30, 31, 32]
            assert [b.header.compression for b in log.batches()] == [0, codec, 0]
            assert [record.offset for record in list(log.batches())[1]] == list(range(1, 50))

    @pytest.mark.parametrize(("codec", "name"), [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")])
    def test_what_does_not_decompress_is_named_after_what_can_be_read(
        self, tmp_path: Path, codec: int, name: str
    ) -> None:
        path = write_segment(tmp_path / "t-0", 0, [batch(0, [b"a"]), batch(1, [b"b"], attributes=codec)])
        before = path.read_bytes()
        with kafkalog.open(tmp_path / "t-0") as log:
            assert log.end_offset == 2
            read = log.records()
            assert next(read).value == b"a"
            with pytest.raises(InvalidRecord, match=name) as error:
                next(read)
            assert (error.value.path, error.value.offset) == (str(path), 1)
            assert error.value.position == len(batch(0, [b"a"])) + 61
            with pytest.raises(InvalidRecord, match=name):
                log[1]
            assert [b.base_offset for b in log.batches()] == [0, 1]
        assert path.read_bytes() == before

    @pytest.mark.parametrize("codec", [c for c in CompressionType if c < CompressionType.ZSTD])
    def test_old_formats(self, tmp_path: Path, codec: CompressionType) -> None:
        path = write_segment(tmp_path / "t-0", 0, [batch(0, [b"a"])])
        builder = LegacyBuilder(2, compression=codec)
        for n in range(2, 9):
            builder.append(1000 + n, None, b"value %d" % n)
        path.write_bytes(path.read_bytes() + message_v1(1, b"old") + builder.build())
        with kafkalog.open(tmp_path / "t-0") as log:
            assert offsets_of(log) == list(range(9))
            old = log[1]
            assert (old.offset, old.key, old.value, old.headers, old.timestamp) == (1, None, b"old", (), 5)
            assert (log[5].value, log[5].timestamp) == (b"value 5", 1005)


class TestTimes:
    @pytest.mark.parametrize(
        "at",
        [
            DAY_MS + 417, DAY + dt.timedelta(milliseconds=417), "2026-11-20T12:00:00.417Z", "2026-11-20T12:00:00.417",
            "2026-11-20T14:00:00.417+02:00", dt.datetime(2026, 11, 20, 12, 0, 0, 417_000),
            DAY + dt.timedelta(milliseconds=416, microseconds=1),
        ],
    )  # fmt: skip
    def test_a_time_in_each_spelling(self, folder: Path, at: object) -> None:
        """Without a zone it is UTC; what lies between two milliseconds goes up."""
        with kafkalog.open(folder) as log:
            found = log.offset_for_time(at)  # type: ignore[arg-type]
            assert found == kafkalog.OffsetAndTimestamp(417, DAY_MS + 417, 0)

    def test_special_times_and_none(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            assert log.offset_for_time(dt.date(2026, 11, 20)).offset == 0  # type: ignore[union-attr]
            assert log.offset_for_time("2026-11-21") is None
            assert log.offset_for_time(kafkalog.LATEST).offset == 1000  # type: ignore[union-attr]
            assert log.offset_for_time(kafkalog.EARLIEST).offset == 0  # type: ignore[union-attr]
            assert log.offset_for_time(-3).offset == 999  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        ("at", "kind"), [("noon", ValueError), (-4, ValueError), (1.5, TypeError), (True, TypeError)]
    )
    def test_no_time(self, folder: Path, at: object, kind: type[Exception]) -> None:
        with kafkalog.open(folder) as log, pytest.raises(kind):
            log.offset_for_time(at)  # type: ignore[arg-type]

    def test_record_newer_than_the_last_look_is_found(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            with (folder / f"{500:020d}.log").open("ab") as file:
                file.write(batches(1000, 1, 10, timestamp=DAY_MS)[0])
            assert log.offset_for_time(DAY_MS + 1004).offset == 1004  # type: ignore[union-attr]


class TestWhatItIs:
    def test_names_and_offsets(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            assert (log.topic, log.partition, log.name, log.mode) == ("orders", 0, "orders-0", "r")
            assert log.topic_partition == kafkalog.TopicPartition("orders", 0)
            assert (log.start_offset, log.end_offset, log.high_watermark) == (0, 1000, 1000)
            assert log.path == str(folder)
            assert log.size == sum(path.stat().st_size for path in folder.glob("*.log"))
            assert log.problems == ()

    def test_segments_and_their_indexes(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            first, second = log.segments
            assert (first.base_offset, second.base_offset) == (0, 500)
            assert first.size == (folder / f"{0:020d}.log").stat().st_size
            assert second.index[0].offset == 629
            assert [entry.offset for entry in second.index[:3]] == [629, 749, 869]
            assert [entry.timestamp for entry in second.time_index[:2]] == [DAY_MS + 629, DAY_MS + 749]
            assert second.index[-1] == second.index[len(second.index) - 1]
            assert len(list(second.index)) == len(second.index)
            with pytest.raises(IndexError):
                second.index[99]
            assert repr(second).startswith("<Segment 500 18.") and repr(second).endswith("500.log>")
            assert log.segments == log.segments

    def test_repr_fits_and_reads_nothing(self, folder: Path) -> None:
        long = folder.parent / ("t" * 70 + "-0")
        folder.rename(long)
        with kafkalog.open(long) as log:
            for path in long.iterdir():
                path.unlink()
            long.rmdir()
            text = repr(log)
        assert len(text) <= 100
        assert text.startswith("<Log tttt")
        assert repr(log) == f"<Log {long.name} closed>"

    def test_repr_of_a_short_name(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            assert repr(log).startswith("<Log orders-0 offsets [0, 1000) 2 segments 36.1 KiB hw 1000 epoch 0 r ")
            assert len(repr(log)) <= 100

    def test_len_is_refused_with_the_way_to_do_it(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            with pytest.raises(TypeError, match=r"log\.end_offset - log\.start_offset"):
                len(log)
            assert bool(log)
            assert len(list(log)) == 1000

    def test_writing_is_refused(self, folder: Path) -> None:
        with kafkalog.open(folder) as log, pytest.raises(ReadOnlyLog):
            log.append(b"x")


class TestTail:
    def test_waits_for_what_comes(self, folder: Path) -> None:
        def write() -> None:
            for base in range(1000, 1050, 10):
                with (folder / f"{500:020d}.log").open("ab") as file:
                    file.write(batches(base, 1, 10)[0])
                time.sleep(0.01)
            write_segment(folder, 1050, batches(1050, 2, 10))

        with kafkalog.open(folder) as log:
            writer = threading.Thread(target=write)
            writer.start()
            seen = []
            for record in log.tail(timeout=60, start=1000):
                seen.append(record.offset)
                if record.offset == 1069:
                    break
            writer.join()
        assert seen == list(range(1000, 1070))

    def test_ends_after_silence(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            assert offsets_of(log.tail(timeout=0)) == []
            assert offsets_of(log.tail(timeout=0.01, start=997)) == [997, 998, 999]
            assert offsets_of(log.tail(timeout=0, start=-2)) == [998, 999]
            with pytest.raises(OffsetOutOfRange):
                log.tail(start=1001)
            with pytest.raises(IllegalArgument):
                log.tail(timeout=-1)

    def test_log_cut_below_the_reader(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            read = log.tail(timeout=1, start=999)
            assert next(read).offset == 999
            path = folder / f"{500:020d}.log"
            path.write_bytes(b"".join(batches(500, 40, 10)))
            with pytest.raises(OffsetOutOfRange):
                next(read)

    def test_closing_ends_it(self, folder: Path) -> None:
        log = kafkalog.open(folder)
        threading.Timer(0.05, log.close).start()
        with pytest.raises(LogClosed):
            list(log.tail())


class TestClosing:
    def test_every_call_says_that_it_is_closed(self, folder: Path) -> None:
        log = kafkalog.open(folder)
        read = log.records()
        next(read)
        log.close()
        log.close()
        assert log.closed
        calls = [
            lambda: log[0], lambda: log[-1], lambda: log[1:2], lambda: log.records(), lambda: log.batches(),
            lambda: log.tail(), lambda: log.offset_for_time(1), lambda: log.start_offset, lambda: log.end_offset,
            lambda: log.segments, lambda: iter(log), log.__enter__, lambda: list(read),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(ValueError, match="log orders-0 is closed"):
                call()

    def test_dropped_unclosed_it_warns(self, folder: Path) -> None:
        log = kafkalog.open(folder)
        with pytest.warns(ResourceWarning, match="orders-0"):
            del log
            gc.collect()

    def test_closed_in_time_it_does_not(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with kafkalog.open(folder):
                pass
            gc.collect()


class TestOpen:
    def test_reading_takes_no_settings(self, folder: Path) -> None:
        with pytest.raises(TypeError, match="segment_bytes"):
            kafkalog.open(folder, segment_bytes=1)
        with pytest.raises(TypeError, match="did you mean mode"):
            kafkalog.open(folder, mod="a")

    def test_unknown_mode(self, folder: Path) -> None:
        with pytest.raises(ValueError, match="'w'"):
            kafkalog.open(folder, "w")  # type: ignore[arg-type]

    def test_path_as_text_path_or_relative(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder.parent)
        (folder.parent / "link-7").symlink_to(folder)
        paths = (str(folder), folder, "orders-0", "./orders-0/", Path("orders-0"), b"orders-0", "link-7", "link-7/")
        for path in paths:
            with kafkalog.open(path) as log:
                monkeypatch.chdir("/")
                assert (log.end_offset, log[0].offset) == (1000, 0)
                monkeypatch.chdir(folder.parent)

    def test_import_loads_almost_nothing(self) -> None:
        code = "import sys, kafkalog; print([m for m in sys.modules if m[:9] == 'kafkalog.'], 'numpy' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "['kafkalog._version'] False"

    def test_public_names(self) -> None:
        assert set(kafkalog.__all__) <= set(dir(kafkalog))
        for name in set(kafkalog.__all__) - {"aio"}:
            assert getattr(kafkalog, name) is not None
        assert kafkalog.OffsetOutOfRange is OffsetOutOfRange
        with pytest.raises(AttributeError, match="nonsense"):
            kafkalog.nonsense  # noqa: B018

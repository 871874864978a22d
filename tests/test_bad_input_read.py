"""Bad input on the reading side: each case a typed error that names the file, the place and what to do."""

import errno
import os
import struct
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Literal

import pytest

import kafkalog
from kafkalog.errors import (
    CorruptRecord,
    KafkalogError,
    NotAPartition,
    OffsetOutOfRange,
    PartitionNotFound,
    StorageError,
    UnknownTopicOrPartition,
    UnsupportedForFormat,
)
from kafkalog.storage.damage import Skipped
from kafkalog.storage.readonly.view import LogView
from tests.faults import FaultFS
from tests.raw_batches import batch, batches, write_segment
from tests.unprivileged import plain_directory, unprivileged


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Offsets 0 to 999 in two segments."""
    path = tmp_path / "orders-0"
    write_segment(path, 0, batches(0, 50, 10))
    write_segment(path, 500, batches(500, 50, 10))
    return path


def assert_says(error: KafkalogError, path: Path) -> None:
    """The error names the path and what to do, and its text has both."""
    assert error.path == str(path)
    assert error.hint
    assert str(path) in str(error) and error.hint in str(error)


def write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


class TestPaths:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(PartitionNotFound) as error:
            kafkalog.open(tmp_path / "orders-0")
        assert_says(error.value, tmp_path / "orders-0")
        assert isinstance(error.value, UnknownTopicOrPartition | FileNotFoundError)

    def test_nothing_is_created_by_reading(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            kafkalog.open(tmp_path / "orders-0")
        assert os.listdir(tmp_path) == []

    def test_file_where_a_directory_is_meant(self, tmp_path: Path) -> None:
        path = tmp_path / "orders-0"
        path.write_bytes(b"")
        with pytest.raises(NotAPartition, match="a file") as error:
            kafkalog.open(path)
        assert_says(error.value, path)

    def test_segment_file_tells_its_directory(self, folder: Path) -> None:
        with pytest.raises(NotAPartition) as error:
            kafkalog.open(folder / f"{0:020d}.log")
        assert str(folder) in (error.value.hint or "")

    def test_path_through_a_file(self, folder: Path) -> None:
        with pytest.raises(NotAPartition):
            kafkalog.open(folder / f"{0:020d}.log" / "orders-0")

    def test_data_directory_tells_the_partitions_in_it(self, folder: Path) -> None:
        with pytest.raises(NotAPartition, match="orders-0") as error:
            kafkalog.open(folder.parent)
        assert_says(error.value, folder.parent)

    def test_empty_directory(self, tmp_path: Path) -> None:
        (tmp_path / "orders-0").mkdir()
        with pytest.raises(NotAPartition, match="no segment") as error:
            kafkalog.open(tmp_path / "orders-0")
        assert_says(error.value, tmp_path / "orders-0")

    @pytest.mark.parametrize("name", ["orders", "orders-", "-0", "orders-x", "or ders-0", "orders--delete", "..-0"])
    def test_segments_under_a_name_that_is_no_partitions(self, tmp_path: Path, name: str) -> None:
        write_segment(tmp_path / name, 0, batches(0, 1, 3))
        with pytest.raises(ValueError, match="is not a partition directory") as error:
            kafkalog.open(tmp_path / name)
        assert isinstance(error.value, NotAPartition)
        assert_says(error.value, tmp_path / name)

    def test_directory_named_as_a_segment(self, folder: Path) -> None:
        (folder / f"{1000:020d}.log").mkdir()
        with pytest.raises(StorageError) as error:
            kafkalog.open(folder)
        assert_says(error.value, folder / f"{1000:020d}.log")

    def test_pipe_named_as_a_segment_does_not_block(self, folder: Path) -> None:
        os.mkfifo(folder / f"{1000:020d}.log")
        with pytest.raises(StorageError, match="not a regular file") as error:
            kafkalog.open(folder)
        assert_says(error.value, folder / f"{1000:020d}.log")

    @pytest.mark.parametrize("mode", ["r", "a"])
    def test_link_that_leads_to_itself(self, folder: Path, mode: Literal["r", "a"]) -> None:
        (folder / f"{1000:020d}.log").symlink_to(folder / f"{1000:020d}.log")
        with pytest.raises(StorageError) as error:
            kafkalog.open(folder, mode)
        assert_says(error.value, folder / f"{1000:020d}.log")

    @pytest.mark.parametrize("what", ["directory", "segment"])
    def test_no_permission(self, what: str) -> None:
        with plain_directory() as data:
            path = data / "orders-0"
            write_segment(path, 0, batches(0, 1, 3))
            refused = path if what == "directory" else path / f"{0:020d}.log"
            if os.geteuid() == 0:
                for one in (path, *path.iterdir()):
                    os.chown(one, data.stat().st_uid, data.stat().st_gid)
            refused.chmod(0)
            try:
                with unprivileged(), pytest.raises(StorageError) as error:
                    kafkalog.open(path)
            finally:
                refused.chmod(0o700)
        assert_says(error.value, refused)
        assert error.value.errno == errno.EACCES
        assert isinstance(error.value, OSError)

    def test_index_without_permission_is_a_problem_only(self) -> None:
        with plain_directory() as data:
            path = data / "orders-0"
            write_segment(path, 0, batches(0, 50, 10))
            (path / f"{0:020d}.index").chmod(0)
            if os.geteuid() == 0:
                for one in (path, *path.iterdir()):
                    os.chown(one, data.stat().st_uid, data.stat().st_gid)
            with unprivileged(), kafkalog.open(path) as log:
                assert log[455].key == b"k455"
                assert [problem.path for problem in log.problems] == [str(path / f"{0:020d}.index")]

    def test_disk_error_while_reading(self, folder: Path) -> None:
        fs = FaultFS()
        with LogView(folder, fs=fs) as view:
            fs.fail("pread", path=".log", code=errno.EIO)
            with pytest.raises(StorageError) as error:
                view.read(3, 1)
            assert_says(error.value, folder / f"{0:020d}.log")
            assert error.value.errno == errno.EIO


class TestOffsets:
    @pytest.mark.parametrize("offset", [1000, 10**15, 2**63 - 1, 2**70, -1001, -(2**70)])
    def test_outside_the_log(self, folder: Path, offset: int) -> None:
        with kafkalog.open(folder) as log:
            with pytest.raises(OffsetOutOfRange, match=r"\[0, 1000\)") as error:
                log[offset]
            assert_says(error.value, folder)
            if offset > 1000:
                with pytest.raises(OffsetOutOfRange):
                    log.records(offset)
                with pytest.raises(OffsetOutOfRange):
                    log.tail(start=offset)

    def test_below_the_log_start(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "t-0", 500, batches(500, 5, 10))
        with kafkalog.open(tmp_path / "t-0") as log:
            for call in (lambda: log[0], lambda: log[499], lambda: log.records(0), lambda: log.batches(499)):
                with pytest.raises(OffsetOutOfRange, match="before the log start"):
                    call()
            assert [record.offset for record in log[0:503]] == [500, 501, 502]

    @pytest.mark.parametrize("mode", ["r", "a"])
    def test_further_back_than_the_log_start(self, tmp_path: Path, mode: Literal["r", "a"]) -> None:
        """The error has the number that was asked for, not the offset it would be."""
        with kafkalog.open(tmp_path / "t-0", "a") as log:
            log.append([b"v"] * 7)
        with kafkalog.open(tmp_path / "t-0", mode) as log:
            assert log[-7].offset == 0
            with pytest.raises(OffsetOutOfRange, match=r"^100 before the log end 7 is before.*\[0, 7\)") as error:
                log[-100]
            assert error.value.offset == -100 and "-93" not in str(error.value)


class TestDamage:
    def test_every_length_of_a_torn_last_batch(self, tmp_path: Path) -> None:
        """Whatever is left of the last batch, what lies before it is read, all of it and nothing else."""
        parts = batches(0, 3, 4)
        path = write_segment(tmp_path / "t-0", 0, parts)
        whole = len(parts[0]) + len(parts[1])
        for left in range(len(parts[2])):
            path.write_bytes(b"".join(parts)[: whole + left])
            with kafkalog.open(tmp_path / "t-0") as log:
                assert [record.offset for record in log] == list(range(8))
                assert [(p.position, p.offset) for p in log.problems] == ([(whole, 8)] if left else [])

    def test_every_flipped_bit_of_a_batch(self, tmp_path: Path) -> None:
        """No flip gives a wrong record, what lies around it is read (offset, epoch and magic lie outside the CRC)."""
        parts = [batch(0, [b"before"]), batch(1, [b"hit"]), batch(2, [b"after"])]
        path = write_segment(tmp_path / "t-0", 0, parts)
        good = path.read_bytes()
        for position in range(len(parts[0]) + 8, len(parts[0]) + len(parts[1])):
            if 12 <= position - len(parts[0]) < 17:
                continue
            for bit in range(8):
                data = bytearray(good)
                data[position] ^= 1 << bit
                path.write_bytes(data)
                with kafkalog.open(tmp_path / "t-0") as log:
                    read = log.records()
                    assert next(read).value == b"before"
                    with pytest.raises(CorruptRecord) as error:
                        next(read)
                    assert (error.value.last_sound_offset, error.value.next_sound_offset) == (0, 2)
                    skipped: list[Skipped] = []
                    sound = [record.value for record in log.records(on_damage="skip", skipped=skipped)]
                    assert (sound, log.end_offset) == ([b"before", b"after"], 3)
                    (problem,) = log.problems
                    assert (problem.path, problem.offset, problem.position) == (str(path), 1, len(parts[0]))
                    ((*place, _),) = skipped
                    assert place == [str(path), len(parts[0]), len(parts[1]), 1, 2]

    @pytest.mark.parametrize("bit", range(8))
    def test_flipped_bit_of_the_magic_is_damage_or_an_unknown_format(self, tmp_path: Path, bit: int) -> None:
        parts = [batch(0, [b"before"]), batch(1, [b"hit"]), batch(2, [b"after"])]
        data = bytearray(b"".join(parts))
        data[len(parts[0]) + 16] ^= 1 << bit
        write_segment(tmp_path / "t-0", 0, parts).write_bytes(data)
        with kafkalog.open(tmp_path / "t-0") as log:
            read = log.records()
            assert next(read).value == b"before"
            with pytest.raises(CorruptRecord if log.problems else UnsupportedForFormat):
                next(read)
            assert log[2].value == b"after"

    @pytest.mark.parametrize("bit", range(64))
    def test_flipped_bit_of_a_base_offset_never_gives_a_wrong_order(self, tmp_path: Path, bit: int) -> None:
        parts = batches(0, 3, 10)
        damaged = struct.pack(">Q", 10 ^ 1 << bit) + parts[1][8:]
        write_segment(tmp_path / "t-0", 0, [parts[0], damaged, parts[2]])
        with kafkalog.open(tmp_path / "t-0") as log:
            read = log.records()
            assert [next(read).offset for _ in range(10)] == list(range(10))
            with pytest.raises(CorruptRecord) as error:
                next(read)
            assert (error.value.last_sound_offset, error.value.next_sound_offset) == (9, 20)
            assert [record.offset for record in log.records(on_damage="skip")] == [*range(10), *range(20, 30)]

    def test_damage_before_an_index_entry(self, folder: Path) -> None:
        """Records before it are given; the error has file, offset, position; from after it reading goes on."""
        path = folder / f"{500:020d}.log"
        data = bytearray(path.read_bytes())
        position = len(b"".join(batches(500, 30, 10)))
        data[position + 90] ^= 4
        path.write_bytes(data)
        with kafkalog.open(folder) as log:
            given = []
            with pytest.raises(CorruptRecord) as error:
                for record in log:
                    given.append(record.offset)
            assert given == list(range(800))
            assert (error.value.offset, error.value.position) == (800, position)
            assert_says(error.value, path)
            with pytest.raises(CorruptRecord):
                log[805]
            assert [record.offset for record in log.records(810)] == list(range(810, 1000))

    @pytest.mark.parametrize("stop", [60, 100, 200])
    @pytest.mark.parametrize("wrong", [195, 10**9])
    def test_a_base_offset_that_is_too_high_does_not_end_a_range(self, folder: Path, stop: int, wrong: int) -> None:
        """It is outside of the checksum, so it looks as if all offsets up to it were a gap: the next batch shows it."""
        path = folder / f"{0:020d}.log"
        position = len(b"".join(batches(0, 5, 10)))
        write_at(path, position, struct.pack(">q", wrong))
        with kafkalog.open(folder) as log:
            given = []
            words = f"begins at offset {wrong}, but the next one at 60|ends at offset {wrong + 9}"
            with pytest.raises(CorruptRecord, match=words) as error:
                for record in log.records(0, stop):
                    given.append(record.offset)
            assert given == list(range(50))
            assert error.value.offset == 50
            assert_says(error.value, path)
            with pytest.raises(CorruptRecord):
                log.scan(start=0, stop=stop).table()
            assert [record.offset for record in log.records(0, 50)] == list(range(50))  # whole: the damage is behind it

    def test_nor_where_the_next_batch_is_in_the_next_chunk(self, tmp_path: Path) -> None:
        parts = batches(0, 6, 10, size=30_000)
        path = write_segment(tmp_path / "t-0", 0, parts)
        write_segment(tmp_path / "t-0", 60, batches(60, 1, 10))
        write_at(path, len(b"".join(parts[:2])), struct.pack(">q", 10**9))
        with kafkalog.open(tmp_path / "t-0") as log:
            with pytest.raises(CorruptRecord, match=r"ends at offset 1000000009"):
                list(log.records(0, 50))
            assert len(list(log.records(0, 20))) == 20

    def test_damage_behind_a_range_is_not_its_own(self, folder: Path) -> None:
        path = folder / f"{0:020d}.log"
        write_at(path, len(b"".join(batches(0, 8, 10))), struct.pack(">q", 3))
        with kafkalog.open(folder) as log:
            assert len(list(log.records(0, 70))) == 70

    def test_damaged_size_hides_nothing(self, folder: Path) -> None:
        """A size field that leads a walk astray: an offset behind it is damage, not a gap."""
        path = folder / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        position = len(b"".join(batches(0, 45, 10)))
        for size in (0, 13, 14, 1000, 2**31 - 1):
            data[position + 8 : position + 12] = struct.pack(">i", size)
            path.write_bytes(data)
            with kafkalog.open(folder) as log:
                for start in (450, 455):
                    with pytest.raises(CorruptRecord):
                        next(log.records(start))
                assert next(log.records(470)).offset == 470
                given = []
                with pytest.raises(CorruptRecord):
                    for record in log:
                        given.append(record.offset)
                assert given == list(range(450))

    def test_huge_claim_takes_no_memory(self, tmp_path: Path) -> None:
        """A size field that fits a large file is not believed before the checksum agrees."""
        path = write_segment(tmp_path / "t-0", 0, batches(0, 2, 10))
        whole = path.stat().st_size
        with path.open("ab") as file:
            file.write(struct.pack(">qiib", 20, (100 << 20) - 12, 0, 2) + bytes(100))
        os.truncate(path, whole + (100 << 20))
        write_segment(tmp_path / "t-0", 25, batches(25, 1, 10))
        tracemalloc.start()
        try:
            with kafkalog.open(tmp_path / "t-0") as log:
                read = log.records()
                assert [next(read).offset for _ in range(20)] == list(range(20))
                with pytest.raises(CorruptRecord) as error:
                    next(read)
            assert (error.value.position, error.value.offset) == (whole, 20)
            (tmp_path / "t-0" / f"{25:020d}.log").unlink()
            with kafkalog.open(tmp_path / "t-0") as log:
                assert log.end_offset == 20
                assert len(log.problems) == 1
            assert tracemalloc.get_traced_memory()[1] < 20 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("junk", [b"\xff" * 500, b"junk" * 100, bytes(16) + b"\x01" * 100, bytes(5)])
    def test_file_that_is_no_log_at_all(self, tmp_path: Path, junk: bytes) -> None:
        path = write_segment(tmp_path / "t-0", 0, [])
        path.write_bytes(junk)
        with kafkalog.open(tmp_path / "t-0") as log:
            assert (list(log), log.end_offset) == ([], 0)
            assert [problem.path for problem in log.problems] in ([str(path)], [])


class TestOthersAtWork:
    def test_reading_beside_a_writer_that_rolls_and_deletes(self, tmp_path: Path) -> None:
        """Appends in pieces, rolls, trims indexes and deletes the oldest: a reader misses and invents nothing."""
        path = tmp_path / "t-0"
        write_segment(path, 0, batches(0, 5, 10), preallocated=100)
        done = threading.Event()

        def write() -> None:
            bases = [0]
            for base in range(50, 2000, 50):
                data = b"".join(batches(base, 5, 10))
                if base % 200 == 0:
                    os.truncate(path / f"{bases[-1]:020d}.index", 0)
                    write_segment(path, base, [], preallocated=100)
                    bases.append(base)
                for at in range(0, len(data), 700):
                    with (path / f"{bases[-1]:020d}.log").open("ab") as file:
                        file.write(data[at : at + 700])
                if len(bases) > 3:
                    oldest = path / f"{bases.pop(0):020d}.log"
                    oldest.rename(f"{oldest}.deleted")
                    os.unlink(f"{oldest}.deleted")
                time.sleep(0.002)
            done.set()

        writer = threading.Thread(target=write)
        with kafkalog.open(path) as log:
            writer.start()
            seen: list[int] = []
            while True:
                finished = done.is_set()
                try:
                    start = max(log.start_offset, seen[-1] + 1 if seen else 0)
                    for record in log.records(start):
                        assert record.key == b"k%d" % record.offset
                        seen.append(record.offset)
                except OffsetOutOfRange:
                    continue
                if finished:
                    break
            writer.join()
            assert seen == sorted(set(seen))
            assert seen[-1] == 1999
            assert list(range(log.start_offset, 2000)) == [record.offset for record in log]
            assert log.problems == ()

    def test_zeros_cut_or_gone_index_while_we_read(self, folder: Path) -> None:
        with kafkalog.open(folder) as log:
            for content in (bytes(80), b"\0" * 13, b"", b"\xff" * 8):
                for path in (*folder.glob("*.index"), *folder.glob("*.timeindex")):
                    path.write_bytes(content)
                assert log[777].key == b"k777"
                assert log.offset_for_time(1777).offset == 777  # type: ignore[union-attr]
                with kafkalog.open(folder) as fresh:
                    assert fresh[777].key == b"k777"
                    assert fresh.offset_for_time(1777).offset == 777  # type: ignore[union-attr]


def position_of(data: bytes, number: int) -> int:
    """Where a segment's batch begins."""
    position = 0
    for _ in range(number):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return position


@pytest.mark.parametrize("base_offset", [0, 10])
def test_a_batch_that_takes_the_place_of_a_damaged_one_is_not_returned_in_its_place(
    folder: Path, base_offset: int
) -> None:
    """No checksum covers base offsets: one that leaves no offset for the damage before it may be wrong."""
    segment = folder / f"{0:020}.log"
    data = segment.read_bytes()
    damaged = position_of(data, base_offset // 10)
    size = position_of(data, base_offset // 10 + 1) - damaged
    write_at(segment, damaged + 70, b"\xff")
    write_at(segment, damaged + size, base_offset.to_bytes(8, "big"))
    with kafkalog.open(folder) as log:
        for start in (base_offset, base_offset + 5, base_offset + 15):
            with pytest.raises(CorruptRecord) as caught:
                list(log.records(start))
            assert caught.value.position == damaged and caught.value.path == str(segment)
        assert [record.offset for record in log.records(base_offset + 20)][:2] == [base_offset + 20, base_offset + 21]
        skipped: list[Skipped] = []
        found = [record.offset for record in log.records(base_offset, on_damage="skip", skipped=skipped)]
        assert found == [*range(base_offset, base_offset + 10), *range(base_offset + 20, 1000)]
        assert skipped[0].position == damaged and skipped[0].size_bytes == size

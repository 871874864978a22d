"""`log.segments`, `log.index`, `log.producers`, `log.epochs`, `log.aborted_txns`: as the real Kafka's dump has them."""

import doctest
import re
import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.inspect import rows, series, values, width
from kafkalog.log import inspection as inspecting
from tests.golden_cases import Case, each_partition
from tests.raw_batches import batches, write_segment


def dump_file(case: Case, suffix: str) -> str:
    """The text of the reference's dump tool of all files with that ending."""
    return "".join(case.expected_path(name).read_text() for name in case.expected_with(suffix))


@each_partition("logdir")
def test_indexes_have_the_entries_that_kafka_dumped(case: Case) -> None:
    with kafkalog.open(case.directory) as log:
        summaries = log.index
        assert summaries["base offset"] == [segment.base_offset for segment in log.segments]
        for one in summaries:
            text = dump_file(case, f"{one.base_offset:020d}.index.txt")
            entries = re.findall(r"^offset: (\d+) position: (\d+)$", text, re.MULTILINE)
            assert one.offset_entries == len(entries)
            assert one.last_offset == (int(entries[-1][0]) if entries else -1)
            assert one.problem == ""


@each_partition("logdir", where=lambda case: any(name.endswith(".txnindex") for name in case.files))
def test_aborted_transactions_are_those_that_kafka_dumped(case: Case) -> None:
    line = r"version: (\d+) producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
    expected = [tuple(map(int, found)) for found in re.findall(line, dump_file(case, ".txnindex.txt"))]
    with kafkalog.open(case.directory) as log:
        assert sorted(log.aborted_txns) == sorted(expected)


@each_partition("logdir")
def test_epochs_are_those_of_the_checkpoint(case: Case) -> None:
    lines = (case.directory / "leader-epoch-checkpoint").read_text().split("\n")
    expected = [tuple(map(int, line.split())) for line in lines[2:] if line]
    with kafkalog.open(case.directory) as log:
        found = log.epochs
        assert [(one.epoch, one.start_offset) for one in found] == expected
        assert not found or found[-1].end_offset == log.end_offset


@each_partition("logdir", where=lambda case: bool(case.expected_with(".snapshot.txt")))
def test_producers_are_at_least_those_of_the_newest_snapshot(case: Case) -> None:
    with kafkalog.open(case.directory) as log:
        end = log.end_offset
        newest = [name for name in case.expected_with(".snapshot.txt") if int(Path(name).name[:20]) <= end][-1]
        text = case.expected_path(newest).read_text()
        known = {one.producer_id: one for one in log.producers}
    for producer_id, epoch in re.findall(r"producerId: (\d+) producerEpoch: (\d+)", text):
        assert known[int(producer_id)].producer_epoch >= int(epoch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "orders-0"
    write_segment(path, 0, batches(0, 500, 10, timestamp=1_795_176_000_000))
    write_segment(path, 5000, batches(5000, 100, 10, timestamp=1_795_176_000_000))
    return path


def test_segments_show_themselves_from_memory(folder: Path) -> None:
    with kafkalog.open(folder) as log:
        found = log.segments
        shutil.rmtree(folder)
        assert repr(found).split("\n") == [
            "orders-0: segments",
            "BASE OFFSET  END OFFSET  OFFSETS       SIZE  FILE",
            "          0       5,000    5,000  185.0 KiB  00000000000000000000.log",
            "      5,000       6,000    1,000   37.2 KiB  00000000000000005000.log",
        ]
        assert "<td class=\"n\" data-label=\"base offset\">5,000</td>" in found._repr_html_()


def test_a_slice_of_an_index_is_a_table(folder: Path) -> None:
    with kafkalog.open(folder) as log:
        text = repr(log.segments[0].index[:2])
        assert text.split("\n")[0] == "OFFSET  POSITION" and text.count("\n") == 2
        assert repr(log.segments[0].time_index[:1]).split("\n")[0] == "TIMESTAMP                 OFFSET"


def test_what_is_damaged_is_said_and_not_raised(folder: Path) -> None:
    (folder / "leader-epoch-checkpoint").write_text("0\nnonsense\n")
    (folder / f"{0:020d}.txnindex").write_bytes(b"\x07" * 34)
    (folder / f"{0:020d}.index").write_bytes(b"1234567")
    (folder / f"{5000:020d}.timeindex").unlink()
    with kafkalog.open(folder) as log:
        assert "not read: " in repr(log.epochs) and len(log.epochs) == 0
        assert "not read: " in repr(log.aborted_txns)
        first, second = log.index
        assert "not a multiple of 8" in first.problem and first.offset_entries == 0 and first.bytes_per_entry is None
        assert "missing" in second.problem and second.time_entries == 0 and second.offset_entries > 0
        assert "not a multiple of 8" in repr(log.index) and "not a multiple of 8" in log.index.html()


def test_a_log_open_for_writing_knows_its_producers_and_epochs(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([b"one", b"two"])
        assert [tuple(one) for one in log.epochs] == [(0, 0, 2)]
        assert list(log.producers) == [] and list(log.aborted_txns) == []
        assert log.segments["end offset"] == [2]
        log.roll()
        assert log.segments["end offset"] == [2, 2] and len(log.index) == 2


@pytest.mark.parametrize("module", [width, values, rows, series, inspecting], ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module: object, tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.append([(b"u-1", b"first"), (b"u-2", b"second")])
        found = doctest.DocTestFinder().find(module, globs={**vars(module), "log": log})  # type: ignore[arg-type]
        ran = 0
        for test in found:
            said: list[str] = []
            result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
            assert not result.failed, "".join(said)
            ran += result.attempted
        assert ran

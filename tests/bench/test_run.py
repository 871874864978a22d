"""Each benchmark's writes to a log and reads from it, and the files that it leaves; never timings."""

import hashlib
import logging
import os
import tempfile
from pathlib import Path

import pytest

import kafkalog
from kafkalog.bench import Result, Results, Settings, run
from kafkalog.bench.data import FIRST_TIMESTAMP
from kafkalog.bench.settings import BENCHMARKS, READS
from kafkalog.errors import ConfigError, IllegalArgument, PartitionNotFound, StorageError, UnsupportedCompression
from tests.page_cache import drop_pages
from tests.tiny_disk import run_on_tiny_disk


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty directory in which temporary directories are created."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """A run of everything, and the logs it wrote."""
    path = tmp_path_factory.mktemp("kept") / "data"
    return path, run(path, num=250, batch_size=100, keep=True)


def bytes_of(directory: Path) -> dict[str, str]:
    """The files below, each with a hash of its bytes."""
    found = sorted(one for one in directory.rglob("*") if one.is_file())
    return {str(one.relative_to(directory)): hashlib.sha256(one.read_bytes()).hexdigest() for one in found}


def test_all_of_them_by_default_in_order(kept: tuple[Path, Results]) -> None:
    assert [one.name for one in kept[1]] == list(BENCHMARKS)


@pytest.mark.parametrize(
    ("name", "records", "batches"), [("fillseq", 250, 250), ("fillsync", 2, 2), ("fillbatch", 250, 3)]
)
def test_a_fill_writes_the_records_asked_for(
    kept: tuple[Path, Results], name: str, records: int, batches: int
) -> None:
    path, results = kept
    with kafkalog.open(path / f"{name}-0") as log:
        assert [one.key for one in log] == [b"%016d" % n for n in range(records)]
        assert [one.timestamp for one in log] == [FIRST_TIMESTAMP + n for n in range(records)]
        assert {len(one.value or b"") for one in log} == {100}
        assert sum(1 for _ in log.batches()) == batches
        assert log.verify(deep=True).ok
    found = results[name]
    assert (found.ops, found.asked, found.records, found.size) == (batches, batches, records, 116 * records)
    assert not found.ended_early and found.latency.count == batches


def test_a_writer_fills_a_log_with_the_same_records(kept: tuple[Path, Results]) -> None:
    path, results = kept
    with kafkalog.open(path / "fillwriter-0") as log, kafkalog.open(path / "fillseq-0") as other:
        assert [(one.key, one.value) for one in log] == [(one.key, one.value) for one in other]
        assert sum(1 for _ in log.batches()) < 250
    assert (results["fillwriter"].ops, results["fillwriter"].records) == (250, 250)


def test_what_reads_reads_the_log_that_was_filled_last(kept: tuple[Path, Results]) -> None:
    path, results = kept
    with kafkalog.open(path / "fillbatch-0") as log:
        size = log.size
    found = {one.name: (one.ops, one.records, one.size) for one in results if one.name in READS}
    assert found["readseq"] == (250, 250, 250 * 116)
    assert found["readbatches"] == (3, 250, size)
    assert found["readcolumns"][:2] == (1, 250) and found["readcolumns"][2] > 250 * 116
    assert found["readrandom"] == (250, 250, 250 * 116)
    assert found["readtime"] == (250, 250, 0) and results["readtime"].mb_per_s is None
    assert found["verify"] == (1, 250, size)
    assert all(0 <= (results[name].cached or 0) <= 1 for name in READS)


def test_a_clean_leaves_one_record_of_each_key(kept: tuple[Path, Results]) -> None:
    path, results = kept
    with kafkalog.open(path / "compact-0") as log:
        assert sorted(one.key or b"" for one in log) == [b"%016d" % n for n in range(125)]
    assert (results["compact"].ops, results["compact"].records) == (1, 250)
    assert "125 records left" in results["compact"].notes


def test_a_recovery_goes_through_the_whole_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafkalog"):
        (found,) = run(benchmarks="recover", num=250)
    assert found.records == 250 and "of a log filled for it" in found.notes
    assert any("fillbatch-0" in line and "recover" in line for line in caplog.messages), caplog.messages


def test_each_thread_reads_a_share() -> None:
    found = run(benchmarks="fillbatch,readseq,readrandom,readtime,readbatches,readcolumns", num=1000, threads=3)
    assert [one.records for one in found] == [1000] * 6 and found["readbatches"].ops == 10
    assert (found["readseq"].ops, found["readrandom"].ops, found["readtime"].ops) == (1000, 1000, 1000)


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    def written(name: str, seed: int) -> dict[str, str]:
        run(tmp_path / name, "fillseq,fillbatch", num=300, seed=seed, compression="zstd", keep=True)
        files = bytes_of(tmp_path / name)
        return {path: text for path, text in files.items() if path.endswith((".log", ".index", ".timeindex"))}

    first = written("a", 1)
    assert len(first) == 6 and first == written("b", 1)
    assert first["fillbatch-0/00000000000000000000.log"] != written("c", 2)["fillbatch-0/00000000000000000000.log"]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_codec_saves_about_half_of_the_values(tmp_path: Path, codec: str) -> None:
    run(tmp_path / "data", "fillbatch", num=500, compression=codec, keep=True)
    with kafkalog.open(tmp_path / "data" / "fillbatch-0") as log:
        assert 0.4 < log.size / (500 * 100) < 0.75


def test_a_time_limit_ends_a_benchmark_early_and_is_told() -> None:
    found = run(benchmarks="fillseq,fillbatch,readrandom,readseq", num=10**9, seconds=0.05)
    for name in ("fillseq", "fillbatch", "readrandom"):
        one = found[name]
        assert one.ended_early and one.asked is not None and 0 < one.ops < one.asked
        assert one.remarks()[0].startswith(f"ended early: {one.ops:,} of 1")
    assert found["readseq"].records <= found["fillbatch"].records


def test_shown_as_a_table(kept: tuple[Path, Results]) -> None:
    results = kept[1]
    assert len(results) == len(BENCHMARKS) and "BENCHMARK" in repr(results) and "readrandom" in repr(results)
    assert results.rows["ops"][0] == 250 and "fillbatch: 250 records in 3 batches" in results.rows.text(200)
    assert "<table>" in results._repr_html_() and kafkalog.__version__ in results._repr_html_()
    assert [one["benchmark"] for one in results.as_dicts()] == list(BENCHMARKS)
    with pytest.raises(KeyError):
        results["nothing"]


# What is left behind


def test_a_temporary_directory_goes(temporary: Path) -> None:
    seen: list[str] = []
    run(benchmarks="fillseq,readseq", num=10, begun=lambda settings, around: seen.append(around.directory))
    assert os.path.dirname(seen[0]) == os.path.realpath(temporary) and os.listdir(temporary) == []
    run(benchmarks="fillseq", num=10, keep=True)
    assert len(os.listdir(temporary)) == 1


def test_it_goes_when_something_is_raised(temporary: Path) -> None:
    def tell(result: Result) -> None:
        assert len(os.listdir(temporary)) == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(benchmarks="fillseq,readseq", num=10, tell=tell)
    assert os.listdir(temporary) == []


def test_a_directory_that_is_given_is_left_as_it_was_found(tmp_path: Path) -> None:
    run(tmp_path / "missing", "fillseq,recover,compact", num=10)
    assert not (tmp_path / "missing").exists()
    (tmp_path / "empty").mkdir()
    run(tmp_path / "empty", "fillseq", num=10)
    assert os.listdir(tmp_path / "empty") == []


def test_what_somebody_else_puts_there_stays(tmp_path: Path) -> None:
    other = tmp_path / "data" / "mine"
    run(tmp_path / "data", "fillseq", num=10, tell=lambda result: other.write_text("mine"))
    assert other.read_text() == "mine" and not (tmp_path / "data" / "fillseq-0").exists()


def test_only_the_last_log_takes_room_on_the_disk(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    names = "fillseq,fillbatch,compact,readseq"
    run(tmp_path / "d", names, num=10, tell=lambda result: seen.append(sorted(d.name for d in tmp_path.glob("d/*-0"))))
    assert seen == [["fillseq-0"], ["fillbatch-0"], ["fillbatch-0"], ["fillbatch-0"]]


@pytest.mark.parametrize("what", ["file", "log"])
def test_a_directory_that_holds_anything_is_refused(tmp_path: Path, what: str) -> None:
    data = tmp_path / "data"
    if what == "log":
        with kafkalog.open(data / "fillseq-0", "a") as log:
            log.append(b"mine")
    else:
        data.mkdir()
        (data / "mine").write_text("x")
    before = bytes_of(data)
    with pytest.raises(IllegalArgument, match=r"not empty.*use-existing"):
        run(data, "fillseq", num=10)
    assert bytes_of(data) == before


def test_a_directory_without_a_parent_and_a_file(tmp_path: Path) -> None:
    with pytest.raises(PartitionNotFound):
        run(tmp_path / "no" / "data", "fillseq", num=1)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        run(tmp_path / "file", "fillseq", num=1)
    assert (tmp_path / "file").read_text() == "x"


def test_a_full_disk_is_an_error_and_leaves_nothing() -> None:
    done = run_on_tiny_disk(
        "import errno, os\nfrom kafkalog.bench import run\nfrom kafkalog.errors import StorageError\n"
        "try:\n    run('data', 'fillbatch', num=10**6)\nexcept StorageError as error:\n"
        "    assert error.errno == errno.ENOSPC and 'fillbatch-0' in error.path, error\n    print(os.listdir('.'))\n"
        "os.environ['TMPDIR'] = os.getcwd()\nfrom kafkalog.cli.main import run\n"
        "print(run(['bench', '--num', '1000000', '--benchmarks', 'fillseq']), os.listdir('.'))\n",
        size="4m",
    )
    assert done.returncode == 0 and done.stdout.startswith("[]\n") and done.stdout.endswith("\n1 []\n"), done
    assert "kafkalog: cannot " in done.stderr and "free space" in done.stderr


# A log that was there


@pytest.fixture
def existing(tmp_path: Path) -> Path:
    """500 records in batches of 10, of which every second was compacted away."""
    with kafkalog.open(tmp_path / "data" / "orders-0", "a", cleanup_policy="compact") as log:
        for n in range(50):
            log.append([(b"%d" % (10 * n + i if i % 2 else 0), b"v" * 50, 1_000_000 + n) for i in range(10)])
        log.compact(roll=True)
        assert sum(1 for _ in log) == 251
    return tmp_path / "data" / "orders-0"


def test_it_is_read_and_left_alone(existing: Path, temporary: Path) -> None:
    before = bytes_of(existing.parent)
    found = run(use_existing=existing, num=400, cold=True)
    assert [one.name for one in found] == [name for name in BENCHMARKS if name in READS]
    assert bytes_of(existing.parent) == before and os.listdir(temporary) == []
    with kafkalog.open(existing) as log:
        first, upto = log.start_offset, log.start_offset + 400
        there = [one.offset for one in log.records(first, min(upto, log.end_offset))]
    assert found["readseq"].records == len(there) and not found["readseq"].ended_early
    assert found["readrandom"].ops == 400 and 0 < found["readrandom"].records < 400  # gaps are found to be such
    assert found["readtime"].records == 400


def test_beside_its_owner(existing: Path) -> None:
    with kafkalog.open(existing, "a") as log:
        found = run(use_existing=existing, num=100)
        assert found["readseq"].records > 0
        log.append((b"k", b"goes on"))


def test_an_empty_log(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "data" / "none-0", "a").close()
    found = run(use_existing=tmp_path / "data" / "none-0")
    assert [one.ops for one in found][:5] == [0] * 5 and "the log is empty" in found["readseq"].notes
    assert found["readseq"].micros_per_op is None and "READSEQ" in repr(found).upper()


def test_nothing_may_be_written_to_it(existing: Path, tmp_path: Path) -> None:
    before = bytes_of(existing.parent)
    for name in sorted(set(BENCHMARKS) - READS):
        with pytest.raises(IllegalArgument, match=f"{name} writes"):
            run(use_existing=existing, benchmarks=["readseq", name])
    with pytest.raises(IllegalArgument, match="nothing is written"):
        run(tmp_path / "other", use_existing=existing)
    with pytest.raises(PartitionNotFound):
        run(use_existing=tmp_path / "data" / "nobody-0")
    assert bytes_of(existing.parent) == before and not (tmp_path / "other").exists()


def test_cold_is_cold(tmp_path: Path) -> None:
    """Where the file system takes the advice; the amount in memory is reported in any case."""
    file = tmp_path / "file"
    file.write_bytes(b"x" * 8192)
    fd = os.open(file, os.O_RDWR)
    os.fsync(fd)
    drop_pages(fd, 8192)
    os.close(fd)
    warm = run(tmp_path / "warm", "fillbatch,readbatches", num=5000)
    cold = run(tmp_path / "cold", "fillbatch,readbatches", num=5000, cold=True)
    assert warm["readbatches"].cached == 1 and cold["readbatches"].cached == 0


# What can never be


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num": 0}, "num is 0"), ({"num": 10**13}, "num"), ({"num": 1.5}, "num"), ({"value_size": 0}, "value_size"),
        ({"value_size": 1 << 30}, "value_size"), ({"key_size": 0}, "key_size"), ({"batch_size": -1}, "batch_size"),
        ({"batch_size": 10**7}, "batch_size"), ({"batch_size": 10**6, "value_size": 1000}, "at most"),
        ({"segment_bytes": 1 << 20, "batch_size": 10**5}, "1048576 fit"), ({"threads": 0}, "threads"),
        ({"threads": 10**6}, "threads"), ({"seconds": 0.0}, "seconds"), ({"seconds": float("nan")}, "seconds"),
        ({"seconds": float("inf")}, "seconds"), ({"seed": -1}, "seed"), ({"benchmarks": ""}, "no benchmark ''"),
        ({"benchmarks": []}, "no benchmark is named"), ({"benchmarks": "fillsec"}, "did you mean fillseq"),
        ({"benchmarks": "xyzzy"}, "There are fillseq, fillsync"),
    ],
)  # fmt: skip
def test_what_is_refused_before_anything_is_made(tmp_path: Path, given: dict[str, object], said: str) -> None:
    with pytest.raises(IllegalArgument, match=said):
        run(tmp_path / "data", **given)  # type: ignore[arg-type]
    assert not (tmp_path / "data").exists()


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCompression):
        run(tmp_path / "data", compression="brotli")
    with pytest.raises(ConfigError):
        run(tmp_path / "data", segment_bytes=0)
    with pytest.raises(TypeError, match="did you mean value_size"):
        run(tmp_path / "data", value_sise=1)
    assert not (tmp_path / "data").exists()


def test_large_values_and_small_segments(tmp_path: Path) -> None:
    """Batches beyond max.message.bytes, and more than one segment."""
    run(tmp_path / "data", "fillbatch", num=8, batch_size=2, value_size=2 << 20, segment_bytes=8 << 20, keep=True)
    with kafkalog.open(tmp_path / "data" / "fillbatch-0") as log:
        assert [len(one.value or b"") for one in log] == [2 << 20] * 8 and len(log.segments) > 1


def test_settings_are_what_the_fields_say() -> None:
    assert Settings().benchmarks == tuple(BENCHMARKS) and Settings(num=7).record_bytes == 116

"""`kafkalog dump`: its flags, its exit status, and what goes where."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import reference_text
from tests.builder import R, batch

ROWS = [R(b"one", b"k1", 1000), R(None, None, 1001)]
MADE = batch(ROWS)


def kafkalog(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "kafkalog.cli.main", "dump", *map(str, arguments)]
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(MADE)
    (tmp_path / f"{0:020d}.index").write_bytes(b"")
    (tmp_path / f"{0:020d}.timeindex").write_bytes(bytes(120))
    return path


def test_flags_print_the_reference_text(log: Path) -> None:
    header = f"Dumping {log}\nLog starting offset: 0\n"
    for flags in (["--deep-iteration", "--print-data-log"], ["--print-data-log"]):
        done = kafkalog(*flags, "--files", log)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == header + reference_text.deep_text(ROWS, MADE, 0)
    assert kafkalog(log).stdout == header + reference_text.batch_line(MADE, 0)
    assert kafkalog("--deep-iteration", log).stdout == header + reference_text.deep_text(ROWS, MADE, 0, data=False)
    assert kafkalog("--max-bytes", "5", log).stdout == header
    bare = kafkalog("--print-data-log", "--skip-record-metadata", log).stdout
    assert bare.endswith(" isvalid: true\n| key: k1 payload: one\n\n")


def test_names_with_commas_arguments_and_a_directory(log: Path) -> None:
    """DUMP-13: --files takes names with commas between."""
    index, times = log.with_suffix(".index"), log.with_suffix(".timeindex")
    expected = [f"Dumping {index}", f"{index} is empty.", f"Dumping {times}", "timestamp: 0 offset: 0"]
    assert kafkalog("--files", f"{index},{times}").stdout.splitlines() == expected
    assert kafkalog(index, times).stdout.splitlines() == expected
    (log.parent / "00000000000000000009.snapshot").touch()
    whole = kafkalog(log.parent)
    assert [line for line in whole.stdout.splitlines() if line.startswith("Dumping")] == [
        f"Dumping {index}",
        f"Dumping {log}",
        f"Dumping {times}",
    ]
    assert (whole.returncode, whole.stderr.count("snapshot is left out")) == (0, 1)


def test_sanity_check(log: Path) -> None:
    times = log.with_suffix(".timeindex")
    assert kafkalog("--index-sanity-check", times).stdout == f"Dumping {times}\n{times} passed sanity check.\n"
    times.write_bytes(bytes(13))
    done = kafkalog("--index-sanity-check", times)
    assert (done.returncode, done.stdout) == (1, f"Dumping {times}\n")
    assert "neither positive nor a multiple of 12" in done.stderr


def test_damage_is_told_on_stderr_after_the_text_before_it(log: Path) -> None:
    log.write_bytes(MADE + bytes(4096))
    done = kafkalog(log)
    assert (done.returncode, done.stdout.count("\n")) == (1, 3)
    assert str(log) in done.stderr and f"position {len(MADE)}" in done.stderr and "Traceback" not in done.stderr


def test_an_absent_file_is_status_1(tmp_path: Path) -> None:
    done = kafkalog(tmp_path / f"{0:020d}.log")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert str(tmp_path) in done.stderr


@pytest.mark.parametrize("flag", ["-J", "--offsets-decoder", "--transaction-log-decoder", "--cluster-metadata-decoder"])
def test_what_is_not_there_is_refused_by_name(log: Path, flag: str) -> None:
    done = kafkalog(flag, log)
    assert (done.returncode, done.stdout) == (2, "")
    assert flag in done.stderr


def test_wrong_usage_is_status_2() -> None:
    for arguments in ([], ["--no-such-option"], ["--max-bytes", "many", "x.log"]):
        assert kafkalog(*arguments).returncode == 2


def test_a_closed_pipe_ends_quietly(log: Path) -> None:
    log.write_bytes(MADE * 20_000)
    reader, writer = os.pipe()
    line = [sys.executable, "-m", "kafkalog.cli.main", "dump", "--print-data-log", str(log)]
    with subprocess.Popen(line, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert os.read(reader, 100)
        os.close(reader)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 0

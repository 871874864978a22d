"""`kafkalog dump`: its flags, its exit status, and what goes where."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog import __version__ as kafkalog_version
from tests import commands, reference_text
from tests.builder import R, batch
from tests.commands import ROOT

ROWS = [R(b"one", b"k1", 1000), R(None, None, 1001)]
MADE = batch(ROWS)


def kafkalog(*arguments: str | Path, **env: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(env["PYTHONPATH"]), str(ROOT)]) if env else str(ROOT)
    done = commands.kafkalog("dump", *arguments, PYTHONPATH=path)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


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
    snapshot = log.parent / "00000000000000000009.snapshot"
    snapshot.touch()
    whole = kafkalog(log.parent)
    assert [line for line in whole.stdout.splitlines() if line.startswith("Dumping")] == [
        f"Dumping {path}" for path in (index, log, times, snapshot)
    ]
    assert (whole.returncode, whole.stderr.splitlines()[0]) == (0, "Snapshot failed schema validation: null")


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


SKIPPED = "payload: Error at"
UNKNOWN = "key: Unknown record type 27441 at offset 0, skipping."


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--cluster-metadata-decoder", b"\x01\x0c\0", f"{SKIPPED} 0, skipping. Failed to deserialize record"),
        ("--remote-log-metadata-decoder", b"", f"{SKIPPED} offset 0, skipping. Error while reading frame version"),
        ("--offsets-decoder", b"", UNKNOWN),
        ("--transaction-log-decoder", b"", UNKNOWN),
        ("--share-group-state-decoder", b"", UNKNOWN),
    ],
)
def test_decoders_of_internal_topics(log: Path, flag: str, value: bytes, words: str) -> None:
    """DUMP-4: each brings the records with it, and tells what it does not understand."""
    log.write_bytes(batch([R(value, b"k1")]))
    done = kafkalog(flag, log)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"headerKeys: [] {words}" in done.stdout.splitlines()[-1]


def test_a_record_without_the_key_that_a_decoder_needs(log: Path) -> None:
    """The reference dies there, with the same text before it."""
    done = kafkalog("--offsets-decoder", log)
    assert done.returncode == 1
    assert done.stdout.endswith("| offset: 1 CreateTime: 1001 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []")
    assert "the record has no key" in done.stderr and "offset 1" in done.stderr


def test_decoder_classes(log: Path, tmp_path: Path) -> None:
    """Names, pack strings and functions; without a name the flag means text, and brings the records with it."""
    (tmp_path / "shouting.py").write_text("def loud(data):\n    return data.decode().upper()\n")
    last = [
        kafkalog("--value-decoder-class", "shouting:loud", log, PYTHONPATH=tmp_path),
        kafkalog("--key-decoder-class", "cB", "--value-decoder-class", "bytes", log),
        kafkalog("--value-decoder-class", "--files", log),
    ]
    ends = ["key: k1 payload: ONE", "key: k49 payload: 6f6e65", "key: k1 payload: one"]
    for done, end in zip(last, ends, strict=True):
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[3].endswith(end)
    wrong = kafkalog("--key-decoder-class", "no.such.Class", log)
    assert (wrong.returncode, wrong.stdout) == (2, f"Dumping {log}\n")
    assert "unknown decoder 'no.such.Class'" in wrong.stderr


def test_a_decoder_class_without_a_name_is_not_passed_over(log: Path) -> None:
    empty = kafkalog("--key-decoder-class", "", log)
    assert (empty.returncode, empty.stdout) == (2, f"Dumping {log}\n")
    assert "unknown decoder ''" in empty.stderr


def test_complaints_are_on_stderr_and_leave_the_status_alone(log: Path) -> None:
    log.with_suffix(".index").write_bytes(bytes(8))
    done = kafkalog("--verify-index-only", log.with_suffix(".index"))
    assert (done.returncode, done.stdout) == (0, f"Dumping {log.with_suffix('.index')}\n")
    assert done.stderr == f"Mismatches in :{log.with_suffix('.index')}\n  Index offset: 0, log offset: 1\n"
    small = kafkalog("--max-message-size", "10", log.with_suffix(".index"))
    assert (small.returncode, "--max-message-size" in small.stderr) == (1, True)


def test_json_lines(log: Path) -> None:
    done = kafkalog("-J", "--print-data-log", log)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["type"] for line in lines] == ["batch", "record", "record"]
    assert (lines[1]["key"], lines[1]["payload"], lines[2]["payload"]) == ("k1", "one", None)


def test_the_version_needs_no_file() -> None:
    """DUMP-15: nor does the help, which goes where all commands print theirs: stdout, status 0."""
    done = kafkalog("--version")
    assert (done.returncode, done.stdout) == (0, f"{kafkalog_version}\n")
    done = kafkalog("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ") and "--deep-iteration" in done.stdout


def test_a_limit_that_cuts_a_batch(log: Path) -> None:
    """DUMP-15, DUMP-9: the first batch only."""
    log.write_bytes(MADE + MADE)
    header = f"Dumping {log}\nLog starting offset: 0\n"
    expected = header + reference_text.batch_line(MADE, 0)
    assert kafkalog("--max-bytes", str(len(MADE) + 6), "--files", log).stdout == expected


def test_unknown_files_and_none_at_all(log: Path) -> None:
    """DUMP-13: a line on stderr and status 0; without files the usage on stderr and status 2 (the reference: 1)."""
    other = log.parent / "leader-epoch-checkpoint"
    done = kafkalog("--files", f"{other},{log}")
    assert (done.returncode, done.stderr) == (0, f"Ignoring unknown file {other}\n")
    assert done.stdout.startswith(f"Dumping {other}\nDumping {log}\n")
    done = kafkalog()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: " in done.stderr and "no file" in done.stderr


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

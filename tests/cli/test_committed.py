"""Isolation levels on the command line: `consume` and `offsets get` of a log with transactions."""

import json
import os
from pathlib import Path

import pytest

from tests.commands import kafkalog, ok, started
from tests.transactional import index_path, made, marker

COMMITTED = ("--isolation-level", "read_committed")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t: 0-1 plain, 2-4 aborted (5), 6 plain, 7-8 committed (9), 10 open, 11 plain."""
    log = made(
        [("plain", 0, 2), ("data", 7, 3), ("abort", 7, 0), ("plain", 0, 1), ("data", 7, 2), ("roll", 0, 0),
         ("commit", 7, 0), ("data", 8, 1), ("plain", 0, 1)]
    )  # fmt: skip
    log.write(tmp_path / "t-0")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 7\n")
    return tmp_path


def offsets(data: Path, *flags: str) -> list[int]:
    out = ok("consume", "-d", data, "-t", "t", "-f", r"%o\n", *flags)
    return [int(line) for line in out.split()]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), [0, 1, 2, 3, 4, 6, 7, 8, 10, 11]),
        (("--isolation-level", "read_uncommitted"), [0, 1, 2, 3, 4, 6, 7, 8, 10, 11]),
        (("--isolation-level", "high_watermark"), [0, 1, 2, 3, 4, 6]),
        (COMMITTED, [0, 1, 6, 7, 8]),
        (("-X", "isolation.level=read_committed"), [0, 1, 6, 7, 8]),
        ((*COMMITTED, "-o", "3"), [6, 7, 8]),
        ((*COMMITTED, "-o", "-3"), [7, 8]),
        ((*COMMITTED, "-o", "11"), []),
        ((*COMMITTED, "-o", "end"), []),
        ((*COMMITTED, "-c", "3"), [0, 1, 6]),
        ((*COMMITTED, "-o", "s@1003"), [6, 7, 8]),
        ((*COMMITTED, "-o", "e@1007"), [0, 1, 6]),
    ],
)
def test_what_each_level_reads(data: Path, flags: tuple[str, ...], expected: list[int]) -> None:
    assert offsets(data, *flags) == expected


def test_decoded_values_of_committed_records(data: Path) -> None:
    out = ok("consume", "-d", data, "-t", "t", *COMMITTED, "-s", "value=string", "-J")
    assert [json.loads(line)["payload"] for line in out.splitlines()] == ["v0", "v1", "v6", "v7", "v8"]


def test_a_note_says_where_an_open_transaction_ends_the_reading(data: Path) -> None:
    done = kafkalog("consume", "-d", data, "-t", "t", *COMMITTED)
    assert done.stderr == b"note: t-0 ends at offset 12, read_committed reads up to 10\n"
    assert kafkalog("consume", "-q", "-d", data, "-t", "t", *COMMITTED).stderr == b""


def test_files_that_are_gone_or_damaged_change_no_record(data: Path) -> None:
    directory = data / "t-0"
    index_path(directory, 0).unlink()
    assert offsets(data, *COMMITTED) == [0, 1, 6, 7, 8]
    index_path(directory, 0).write_bytes(b"\x01" * 34)
    done = kafkalog("consume", "-d", data, "-t", "t", "-f", "%o ", *COMMITTED)
    assert done.stdout == b"0 1 6 7 8 " and done.returncode == 0
    assert b".txnindex" in done.stderr
    for path in (data / "replication-offset-checkpoint", data / "log-start-offset-checkpoint"):
        path.write_text("nonsense\n")
    done = kafkalog("consume", "-d", data, "-t", "t", "-f", "%o ")
    assert done.stdout == b"0 1 2 3 4 6 7 8 10 11 " and done.returncode == 0
    assert done.stderr.count(b"offset-checkpoint") == 2


def test_following_committed_records(data: Path) -> None:
    flags = ("-q", "--follow", "-f", r"%o\n", "-u", "-c", "7", *COMMITTED)
    running = started("consume", "-d", str(data), "-t", "t", *flags)
    assert running.stdout is not None
    assert [int(running.stdout.readline()) for _ in range(5)] == [0, 1, 6, 7, 8]
    with open(data / "t-0" / f"{9:020d}.log", "ab") as file:
        file.write(marker(12, 8, 1))
        os.fsync(file.fileno())
    out, errors = running.communicate(timeout=60)
    assert (running.returncode, out, errors) == (0, b"10\n11\n", b"")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), b"t:0:12\n"),
        (COMMITTED, b"t:0:10\n"),
        (("-X", "isolation.level=high_watermark"), b"t:0:7\n"),
        ((*COMMITTED, "--time", "-2"), b"t:0:0\n"),
        ((*COMMITTED, "--time", "1009"), b"t:0:9\n"),
        ((*COMMITTED, "--time", "1010"), b"t:0:\n"),
        ((*COMMITTED, "--time", "-3"), b"t:0:\n"),
    ],
)
def test_offsets_by_level(data: Path, flags: tuple[str, ...], expected: bytes) -> None:
    """PART-8: what lies at or after the level's end is not found."""
    assert ok("offsets", "get", "-d", data, "-t", "t", *flags) == expected

"""`kafkalog consume -G`, and `offsets groups`, `reset` and `delete`."""

import json
import signal
from pathlib import Path

import pytest

import kafkalog as library
from tests.commands import kafkalog, ok, started

NOW = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    for partition, count in ((0, 6), (1, 3)):
        with library.open(data / f"t-{partition}", "a") as log:
            for number in range(count):
                log.append((None, b"%d.%d" % (partition, number), NOW + number * 10))
    return data


@pytest.fixture
def cursors(tmp_path: Path) -> Path:
    return tmp_path / "cursors"


def run_consume(data: Path, cursors: Path, *more: str) -> list[bytes]:
    return ok("consume", "-d", data, "-t", "t", "-G", "g", "--cursors", cursors, "-q", *more).splitlines()


def positions(data: Path, cursors: Path, *more: str) -> list[tuple[str, int, int, int | None]]:
    lines = ok("offsets", "groups", "-d", data, "--cursors", cursors, "-J", *more).splitlines()
    rows = [json.loads(line) for line in lines]
    return [(row["group"], row["partition"], row["current_offset"], row["lag"]) for row in rows]


def test_a_second_run_goes_on(data: Path, cursors: Path) -> None:
    assert run_consume(data, cursors) == [b"0.0", b"0.1", b"0.2", b"0.3", b"0.4", b"0.5", b"1.0", b"1.1", b"1.2"]
    assert run_consume(data, cursors) == []
    with library.open(data / "t-1", "a") as log:
        log.append(b"new")
    assert run_consume(data, cursors, "-o", "stored") == [b"new"]
    assert positions(data, cursors) == [("g", 0, 6, 0), ("g", 1, 4, 0)]
    assert run_consume(data, cursors, "-c", "0") == []


def test_a_count_is_kept_exactly(data: Path, cursors: Path) -> None:
    assert run_consume(data, cursors, "-c", "2") == [b"0.0", b"0.1"]
    assert run_consume(data, cursors, "-c", "5") == [b"0.2", b"0.3", b"0.4", b"0.5", b"1.0"]
    assert positions(data, cursors) == [("g", 0, 6, 0), ("g", 1, 1, 2)]


def test_where_a_new_one_begins(data: Path, cursors: Path) -> None:
    assert run_consume(data, cursors, "-p", "0", "-o", "4") == [b"0.4", b"0.5"]
    told = kafkalog("consume", "-d", data, "-t", "t", "-p", "0", "-G", "g", "--cursors", cursors, "-o", "beginning")
    assert told.stdout == b"" and b"-o is only for new cursors" in told.stderr
    assert run_consume(data, cursors, "-p", "1", "-X", "auto.offset.reset=latest") == []
    missing = kafkalog("consume", "-d", data, "-t", "t", "-G", "x", "--cursors", cursors, "-o", "stored")
    assert missing.returncode == 2 and b"cursor x of t-0 has no position" in missing.stderr
    without = kafkalog("consume", "-d", data, "-t", "t", "-o", "stored")
    assert without.returncode == 2 and b"-G" in without.stderr


def test_a_lost_place_is_an_error_or_reset(data: Path, cursors: Path) -> None:
    assert len(run_consume(data, cursors, "-p", "0", "-c", "2")) == 2
    with library.open(data / "t-0", "a") as log:
        log.delete_before(4)
    lost = kafkalog("consume", "-d", data, "-t", "t", "-p", "0", "-G", "g", "--cursors", cursors)
    assert lost.returncode == 1 and b"lost its position" in lost.stderr and b"starts at 4" in lost.stderr
    assert positions(data, cursors) == [("g", 0, 2, None)]
    arguments = ("consume", "-d", data, "-t", "t", "-p", "0", "-G", "g", "--cursors", cursors)
    again = kafkalog(*arguments, "-X", "auto.offset.reset=earliest")
    assert again.stdout == b"0.4\n0.5\n" and b"continues at 4" in again.stderr
    wrong = kafkalog(*arguments, "-X", "auto.offset.reset=first")
    assert wrong.returncode == 2 and b"earliest, latest or none" in wrong.stderr


def test_one_reader_has_a_name(data: Path, cursors: Path) -> None:
    with library.open(data / "t-0") as log, log.cursor("g", store=cursors):
        held = kafkalog("consume", "-d", data, "-t", "t", "-G", "g", "--cursors", cursors)
    assert held.returncode == 1 and b"in use" in held.stderr
    bad = kafkalog("consume", "-d", data, "-t", "t", "-G", "../g", "--cursors", cursors)
    assert bad.returncode == 2 and b"not a valid cursor name" in bad.stderr


def test_ctrl_c_keeps_what_was_printed(data: Path, cursors: Path) -> None:
    with started("consume", "-d", data, "-t", "t", "-p", "0", "-G", "g", "--cursors", cursors, "--follow") as running:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(6)][-1] == b"0.5\n"
        for value in (b"new", b"last"):
            with library.open(data / "t-0", "a") as log:
                log.append(value)
            assert running.stdout.readline() == value + b"\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
    # the last may be printed and not yet noted
    assert positions(data, cursors) in ([("g", 0, 8, 0)], [("g", 0, 7, 1)])


def test_a_closed_pipe_keeps_what_was_taken(data: Path, cursors: Path) -> None:
    with library.open(data / "big-0", "a") as log:
        for _ in range(5):
            log.append([b"x" * 1000] * 1000)
    command = ("consume", "-d", data, "-t", "big", "-G", "g", "--cursors", cursors)
    with started(*command) as running:
        assert running.stdout is not None and running.stdout.readline()
        running.stdout.close()
        assert running.wait(60) == 0
    assert positions(data, cursors, "-t", "big") == [("g", 0, 0, 5000)]  # not all of it went out: it comes again


def test_groups_as_a_table(data: Path, cursors: Path) -> None:
    assert ok("offsets", "groups", "-d", data, "--cursors", cursors) == b""
    run_consume(data, cursors, "-c", "7")
    lines = ok("offsets", "groups", "-d", data, "-t", "t", "-G", "g", "--cursors", cursors).decode().splitlines()
    assert lines[0].split() == [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "COMMITTED",
    ]  # fmt: skip
    assert [line.split()[:-1] for line in lines[1:]] == [["g", "t", "0", "6", "6", "0"], ["g", "t", "1", "1", "3", "2"]]
    assert ok("offsets", "groups", "-d", data, "-G", "other", "--cursors", cursors) == b""
    for path in (data / "t-1").iterdir():
        path.unlink()
    (data / "t-1").rmdir()
    assert positions(data, cursors) == [("g", 0, 6, 0), ("g", 1, 1, None)]  # its partition is gone, it is not


@pytest.mark.parametrize(
    ("way", "to"),
    [
        (["--to-earliest"], 0), (["--to-latest"], 6), (["--to-offset", "2"], 2), (["--to-offset", "99"], 6),
        (["--shift-by", "-3"], 1), (["--shift-by", "1"], 5), (["--shift-by", "-99"], 0),
        (["--to-datetime", str(NOW + 30)], 3), (["--to-datetime", "2100-01-01"], 6),
    ],
)  # fmt: skip
def test_reset(data: Path, cursors: Path, way: list[str], to: int) -> None:
    run_consume(data, cursors, "-p", "0", "-c", "4")
    arguments = ("offsets", "reset", "-d", data, "-t", "t", "-p", "0", "-G", "g", "--cursors", cursors, *way)
    dry = kafkalog(*arguments)
    assert dry.stdout.decode() == f"g t:0 4 {to}\n" and b"nothing was changed" in dry.stderr
    assert positions(data, cursors) == [("g", 0, 4, 2)]
    assert ok(*arguments, "--execute").decode() == f"g t:0 4 {to}\n"
    assert positions(data, cursors) == [("g", 0, to, 6 - to)]


def test_reset_makes_and_mends(data: Path, cursors: Path) -> None:
    arguments = ("offsets", "reset", "-d", data, "-t", "t", "-p", "0", "-G", "g", "--cursors", cursors)
    none = kafkalog(*arguments, "--shift-by", "1")
    assert none.returncode == 2 and b"no position to shift" in none.stderr
    assert ok(*arguments, "--to-offset", "3", "--execute") == b"g t:0 - 3\n"
    (path,) = cursors.glob("*/t-0/g.cursor")
    path.write_bytes(b"torn")
    damaged = kafkalog("offsets", "groups", "-d", data, "--cursors", cursors)
    assert damaged.returncode == 1 and b"malformed cursor" in damaged.stderr
    assert ok(*arguments, "--to-offset", "2", "--execute") == b"g t:0 - 2\n"
    assert positions(data, cursors) == [("g", 0, 2, 4)]
    for wrong in ((), ("--to-latest", "--to-earliest"), ("--to-latest", "--execute", "--dry-run")):
        assert kafkalog(*arguments, *wrong).returncode == 2


def test_delete(data: Path, cursors: Path) -> None:
    run_consume(data, cursors)
    assert ok("offsets", "delete", "-d", data, "-G", "g", "--cursors", cursors) == b"g t:0\ng t:1\n"
    assert positions(data, cursors) == []
    none = kafkalog("offsets", "delete", "-d", data, "-G", "g", "--cursors", cursors)
    assert none.returncode == 1 and b"no cursor g" in none.stderr
    assert len(run_consume(data, cursors)) == 9


def test_compressed_and_committed_reading(data: Path, cursors: Path) -> None:
    with library.open(data / "z-0", "a") as log:
        for number in range(50):
            log.append([b"%d" % n for n in range(number * 20, number * 20 + 20)], compression="gzip")
    command = ("consume", "-d", data, "-t", "z", "-G", "g", "--cursors", cursors, "-q")
    committed = ("--isolation-level", "read_committed")
    got = ok(*command, "-c", "333").split() + ok(*command, *committed, "-c", "300").split() + ok(*command).split()
    assert got == [b"%d" % number for number in range(1000)]

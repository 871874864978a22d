"""`kafkalog consume`: where it begins and ends, what it prints, how it follows, and how it stops."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import kafkalog as library
from tests.commands import LINE, environment, kafkalog, ok, started

NOW = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t: partition 0 has offsets 0-9 of one a second, partition 1 has 0-4; topic empty has nothing."""
    data = tmp_path / "data"
    data.mkdir()
    for partition, count in ((0, 10), (1, 5)):
        with library.open(data / f"t-{partition}", "a") as log:
            for number in range(count):
                log.append((b"k%d" % number, b"%d/%d" % (partition, number), NOW + number * 1000))
    library.open(data / "empty-0", "a").close()
    return data


def lines(*arguments: str | Path, **env: str) -> list[str]:
    return ok("consume", *arguments, **env).decode().splitlines()


def test_all_partitions_come_in_order(data: Path) -> None:
    every = [f"0/{n}" for n in range(10)] + [f"1/{n}" for n in range(5)]
    assert lines("-d", data, "-t", "t") == every
    assert lines("-d", data, "-t", "t", "--from-beginning", "-e") == every
    assert lines("-t", "t", KAFKALOG_DIR=str(data)) == every
    assert lines("-d", data, "-t", "t", "-p", "1", "-p", "0") == every[10:] + every[:10]


@pytest.mark.parametrize(
    ("flags", "numbers"),
    [
        (["-o", "beginning"], range(10)),
        (["-o", "end"], []),
        (["-o", "7"], [7, 8, 9]),
        (["-o", "10"], []),
        (["-o", "-2"], [8, 9]),
        (["-o", "-99"], range(10)),
        (["-o", f"s@{NOW + 6500}"], [7, 8, 9]),
        (["-o", f"s@{NOW + 99_000}"], []),
        (["-o", f"e@{NOW + 2000}"], [0, 1]),
        (["-o", f"s@{NOW + 2000}", "-o", f"e@{NOW + 4000}"], [2, 3]),
        (["-o", "3", "-o", f"e@{NOW + 5000}"], [3, 4]),
        (["-o", "s@2023-11-14T22:13:28Z"], [8, 9]),
        (["-o", "s@2023-11-14T22:13:28"], [8, 9]),
        (["-c", "3"], [0, 1, 2]),
        (["-c", "0"], []),
        (["-o", "4", "-c", "2"], [4, 5]),
    ],
)
def test_where_it_begins_and_ends(data: Path, flags: list[str], numbers: list[int]) -> None:
    assert lines("-d", data, "-t", "t", "-p", "0", *flags) == [f"0/{n}" for n in numbers]


def test_the_count_is_that_of_all_partitions(data: Path) -> None:
    assert lines("-d", data, "-t", "t", "-c", "12")[-2:] == ["1/0", "1/1"]


def test_formats(data: Path) -> None:
    one = ["-d", data, "-t", "t", "-p", "0", "-o", "3", "-c", "1"]
    assert ok("consume", *one, "-f", r"%t %p %o %T %k=%s %S %K|%%\n") == f"t 0 3 {NOW + 3000} k3=0/3 3 2|%\n".encode()
    assert ok("consume", *one, "-K", ":") == b"k3:0/3\n"
    assert ok("consume", *one, "-K", r"\t", "-D", ";") == b"k3\t0/3;"
    assert ok("consume", *one, "-D", "") == b"0/3"
    assert ok("consume", *one, "-K", " ", "--key-encoding", "hex", "--value-encoding", "base64") == b"6b33 MC8z\n"
    assert json.loads(ok("consume", *one, "-J")) == {
        "topic": "t", "partition": 0, "offset": 3, "tstype": "create", "ts": NOW + 3000, "broker": -1,
        "key": "k3", "payload": "0/3",
    }  # fmt: skip


def test_nulls_are_told_with_z(data: Path) -> None:
    with library.open(data / "n-0", "a") as log:
        log.append([(None, None), (b"", b"")])
    assert ok("consume", "-d", data, "-t", "n", "-K", ":", "-Z") == b"NULL:NULL\n:\n"
    assert ok("consume", "-d", data, "-t", "n", "-K", ":") == b":\n:\n"


def test_an_empty_topic_is_fine(data: Path) -> None:
    done = kafkalog("consume", "-d", data, "-t", "empty")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("flags", "status", "says"),
    [
        (["-t", "nope"], 1, b"there is no topic nope"),
        (["-t", "t", "-p", "7"], 1, b"no partition 7"),
        (["-t", "t", "-o", "11"], 1, b"offset 11"),
        (["-t", "t", "-o", "stored"], 2, b"stored"),
        (["-t", "t", "-o", "soon"], 2, b"is not an offset"),
        (["-t", "t", "-o", "s@soon"], 2, b"not a time"),
        (["-t", "t", "-o", "1", "-o", "2"], 2, b"two starts"),
        (["-t", "t", "-G", "my group"], 2, b"not a valid cursor name"),
        (["-t", "t", "--isolation-level", "read_nothing"], 2, b"read_nothing"),
        (["-t", "t", "-X", "isolation.level=comitted"], 2, b"did you mean 'read_committed'"),
        (["-t", "t", "-X", "isolation=read_committed"], 2, b"did you mean isolation.level"),
        (["-t", "t", "-X", "isolation.level=read_committed", "--isolation-level", "log_end"], 2, b"contradicts"),
        (["-t", "t", "-f", "%x"], 2, b"%x"),
        (["-t", "t", "-J", "-f", "%s"], 2, b"-J"),
        (["-t", "t", "-e", "--follow"], 2, b"--follow"),
        (["-t", "../t"], 2, b"topic name"),
        ([], 2, b"-t TOPIC"),
    ],
)
def test_what_is_absent_or_wrong_is_said(data: Path, flags: list[str], status: int, says: bytes) -> None:
    done = kafkalog("consume", "-d", data, *flags)
    assert done.returncode == status and says in done.stderr, done.stderr
    assert done.stdout == b"" and b"Traceback" not in done.stderr


def test_a_missing_directory_is_said(tmp_path: Path) -> None:
    done = kafkalog("consume", "-d", tmp_path / "no", "-t", "t")
    assert done.returncode == 1 and b"does not exist" in done.stderr


def test_damage_is_told_after_the_records_before_it(data: Path) -> None:
    path = data / "t-0" / "00000000000000000000.log"
    raw = bytearray(path.read_bytes())
    raw[5 * (len(raw) // 10) + 65] ^= 1  # in the sixth of ten batches of one size
    path.write_bytes(raw)
    done = kafkalog("consume", "-d", data, "-t", "t", "-p", "0")
    assert done.returncode == 1
    assert done.stdout.split() == [b"0/%d" % n for n in range(5)]
    assert str(path).encode() in done.stderr and b"offset 5" in done.stderr and b"Traceback" not in done.stderr


def test_a_torn_end_is_told_too(data: Path) -> None:
    path = data / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-3])
    done = kafkalog("consume", "-d", data, "-t", "t")
    assert done.returncode == 1 and str(path).encode() in done.stderr
    assert done.stdout.split() == [b"0/%d" % n for n in range(9)] + [b"1/%d" % n for n in range(5)]
    assert len(lines("-d", data, "-t", "t", "-p", "0", "-c", "9")) == 9, "what was asked for is all there"


def test_missing_indexes_cost_no_record_and_are_a_note(data: Path) -> None:
    """A backup of the .log files alone is a readable log."""
    for index in (data / "t-0").glob("*index"):
        index.unlink()
    done = kafkalog("consume", "-d", data, "-t", "t", "-p", "0")
    assert done.returncode == 0
    assert done.stdout.split() == [b"0/%d" % n for n in range(10)]
    assert b"index is missing" in done.stderr


def test_it_follows_what_another_process_writes(data: Path) -> None:
    running = started("consume", "-d", data, "-t", "t", "-p", "0", "-o", "8", "--follow", "-c", "4")
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(2)] == [b"0/8\n", b"0/9\n"]
    ok("produce", "-d", data, "-t", "t", "-p", "0", stdin=b"new\n")
    assert running.stdout.readline() == b"new\n"
    ok("produce", "-d", data, "-t", "t", "-p", "0", stdin=b"newer\nunseen\n")
    out, errors = running.communicate(timeout=60)
    assert (out, errors, running.returncode) == (b"newer\n", b"", 0)


@pytest.mark.parametrize("count", [0, 20])
def test_it_says_that_what_it_follows_was_truncated(data: Path, count: int) -> None:
    """Also if the log has grown beyond its place since, with other records."""
    running = started("consume", "-d", data, "-t", "t", "-p", "0", "-o", "8", "--follow")
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(2)] == [b"0/8\n", b"0/9\n"]
    ok("produce", "-d", data, "-t", "t", "-p", "0", stdin=b"new\n")
    assert running.stdout.readline() == b"new\n"
    with library.open(data / "t-0", "a") as log:
        log.truncate_to(3)
        for number in range(count):
            log.append(b"other %d" % number)
    out, errors = running.communicate(timeout=60)
    assert (out, running.returncode) == (b"", 1)
    range_then = re.search(rb"the log holds offsets \[0, (\d+)\)", errors)  # at the look that found it
    if range_then is None:
        assert b"the log was truncated and appended to" in errors
    else:
        assert 3 <= int(range_then[1]) <= 3 + count and int(range_then[1]) < 11


def test_ctrl_c_ends_following(data: Path) -> None:
    running = started("consume", "-d", data, "-t", "t", "--follow", "-u")
    assert running.stdout is not None
    for _ in range(15):
        running.stdout.readline()
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, b"") and b"Traceback" not in errors


def test_a_closed_pipe_ends_quietly(data: Path) -> None:
    with library.open(data / "big-0", "a") as log:
        for _ in range(50):
            log.append([b"x" * 1000] * 100)
    line = " ".join([*LINE, "consume", "-d", str(data), "-t", "big"])
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -n 1 | wc -c; echo ${{PIPESTATUS[0]}}"], capture_output=True, env=environment()
    )
    assert done.stdout.split() == [b"1001", b"0"] and done.stderr == b""


def test_an_output_that_is_full_is_an_error(data: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no device that is always full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*LINE, "consume", "-d", str(data), "-t", "t"], stdout=full, stderr=subprocess.PIPE, env=environment()
        )
    assert done.returncode == 1 and b"No space left" in done.stderr and b"Traceback" not in done.stderr


def test_notes_go_to_stderr_when_asked_for(data: Path) -> None:
    done = kafkalog("consume", "-v", "-d", data, "-t", "t", "-o", "end")
    assert done.stdout == b"" and b"t-0 at offset 10" in done.stderr


def test_it_takes_no_lock_and_changes_nothing(data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    with library.open(data / "t-0", "a"):
        changed = {path for path in data.rglob("*") if path.stat().st_mtime_ns != before.get(path)}
        assert lines("-d", data, "-t", "t", "-c", "1") == ["0/0"]
    assert changed, "the writer above did change files; the reader ran beside it"
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    time.sleep(0.01)
    assert len(lines("-d", data, "-t", "t")) == 15
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


def test_decoders_of_keys_and_values(data: Path) -> None:
    """kcat's -s: pack strings, named decoders, and functions."""
    assert lines("-d", data, "-t", "t", "-p", "1", "-c", "1", "-K", ":", "-s", "key=cB$") == ["k48:1/0"]
    assert lines("-d", data, "-t", "t", "-p", "1", "-c", "1", "-s", "bytes") == [b"1/0".hex()]
    sizes = ("-d", data, "-t", "t", "-p", "1", "-s", "value=builtins:len")
    assert lines(*sizes, "-c", "2", "-f", "%o %s\\n") == ["0 3", "1 3"]
    one = json.loads(ok("consume", *sizes, "-c", "1", "-J"))
    assert (one["key"], one["payload"]) == ("k0", 3)


def test_values_that_a_decoder_does_not_understand(data: Path) -> None:
    done = kafkalog("consume", "-d", data, "-t", "t", "-p", "0", "-s", "value=q")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"the value cannot be decoded" in done.stderr and b"offset 0" in done.stderr
    assert kafkalog("consume", "-d", data, "-t", "t", "-s", "value=nothing").returncode == 2

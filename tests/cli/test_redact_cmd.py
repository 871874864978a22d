"""`kafkalog redact`: keys, offsets and conditions as a person gives them, the report, and the exit status."""

import base64
import json
from pathlib import Path

import pytest

import kafkalog
from tests import commands


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    with kafkalog.open(made / "t-0", "a") as log:
        log.append([(b"k%d" % (n % 4), b'{"n": %d}' % n) for n in range(12)])
        log.append([(b"\xff\x00", b"odd")])
    return made


def values(data: Path) -> list[bytes | None]:
    with kafkalog.open(data / "t-0") as log:
        return [one.value for one in log]


def test_keys_are_given_one_by_one_in_files_and_encoded(data: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(b"k1\r\nk2\n\n")
    before = values(data)
    out = commands.ok("redact", "-d", data, "-t", "t", "--key", "k0", "--keys", tmp_path / "keys").decode()
    assert "9 records in 1 segment of 1 partition" in out and "give --apply" in out and values(data) == before
    commands.ok("redact", "-d", data, "-t", "t", "--key", "k0", "--keys", tmp_path / "keys", "--apply")
    assert values(data) == [(b"" if n % 4 < 3 else value) for n, value in enumerate(before[:12])] + [b"odd"]
    odd = base64.b64encode(b"\xff\x00").decode()
    commands.ok("redact", "-d", data, "-t", "t", "--key", odd, "--key-encoding", "base64", "--apply")
    assert values(data)[12] == b""
    commands.ok("redact", "-d", data, "-t", "t", "--key", "ff00", "--key-encoding", "hex", "--apply", "--erase-key")
    with kafkalog.open(data / "t-0") as log:
        assert log.get(b"\xff\x00") is None


def test_offsets_and_conditions_and_the_report_as_json(data: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("0:3\n0:4\n")
    condition = ("--where", "offset < 12 and value.n > 9", "-s", "value=json")
    given = ("--offsets", "0:1,0:2", "--offsets", tmp_path / "list", *condition)
    lines = commands.ok("redact", "-d", data, "-t", "t", *given, "-J", "--apply", "--with", "tombstone").splitlines()
    segment, report = map(json.loads, lines)
    assert (segment["type"], segment["records"], segment["base_offset"]) == ("segment", 6, 0)
    assert report == {
        "type": "redact", "applied": True, "with": "tombstone", "records": 6, "bytes": segment["size"],
        "partitions": 1, "left": 0,
    }  # fmt: skip
    assert [n for n, value in enumerate(values(data)) if value is None] == [1, 2, 3, 4, 10, 11]


def test_what_is_not_there_is_told(data: Path) -> None:
    done = commands.kafkalog("redact", "-d", data, "-t", "t", "--key", "k1", "--key", "none", "--offsets", "0:99")
    out = done.stdout.decode()
    assert done.returncode == 1 and "not found: key 'none'\nnot found: offset 99 of partition 0\n" in out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), "no records are named"),
        (("--offsets", "17"), "is no PARTITION:OFFSET"),
        (("--key", "xx", "--key-encoding", "hex"), "is not hex"),
        (("--where", "key =="), "--where"),
        (("--keys", "no-such-file"), "no-such-file"),
    ],
)
def test_wrong_usage(data: Path, given: tuple[str, ...], told: str) -> None:
    done = commands.kafkalog("redact", "-d", data, "-t", "t", *given)
    assert done.returncode in (1, 2) and told in done.stderr.decode()


def test_backups_are_redacted_in_a_directory_and_in_a_store(data: Path, tmp_path: Path) -> None:
    url, staging = f"file://{tmp_path}/store", ("--staging", tmp_path / "staging")
    for target, more in ((tmp_path / "backups", ()), (url, staging)):
        commands.ok("backup", "-d", data, target)
        words = ("redact", "--backups", target, "-t", "t", "--key", "k1", "--with", "empty", *more)
        assert "3 records in 1 segment of 1 partition" in commands.ok(*words).decode()
        out = commands.ok(*words, "--apply").decode()
        assert out.rstrip().endswith("searched again: none of the records is left in these backups")
        commands.ok("backup", "verify", target)
    done = commands.kafkalog("redact", "--backups", url, "-t", "t", "--key", "k1", "--with", "empty")
    assert done.returncode == 2 and b"--staging DIR" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--backups", "b", "-d", "x"), b"-d is for data directories"),
        (("--backups", "b", "--tiered", "x"), b"--tiered is for data directories"),
        (("--backups", "b", "--remove-kept"), b"--remove-kept is for data directories"),
        (("-d", "x", "--staging", "y"), b"--staging needs --backups TARGET"),
        (("-d", "x", "--identity", "y"), b"--identity needs --backups TARGET"),
    ],
)
def test_options_of_backups_and_of_data_directories_are_not_mixed(words: tuple[str, ...], said: bytes) -> None:
    done = commands.kafkalog("redact", "-t", "t", "--key", "k1", *words)
    assert done.returncode == 2 and said in done.stderr

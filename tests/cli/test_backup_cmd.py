"""`kafkalog backup` and `kafkalog restore`: what they print, and how they end."""

import json
from pathlib import Path

import pytest

from tests import commands
from tests.backup.logs import files, fill


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", records=200, partitions=2)
    return tmp_path / "data"


def test_made_listed_verified_restored_and_deleted(data: Path, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    out = commands.ok("backup", "-d", data, backups).decode()
    assert out.startswith(str(backups)) and "1 topic, 2 partitions, 400 offsets" in out
    made = json.loads(commands.ok("backup", "create", "-J", "-d", data, backups))
    assert made["partitions"] == 2 and made["linked"] > made["copied"] and made["path"] == str(backups / made["id"])
    listed = commands.ok("backup", "list", backups).decode().splitlines()
    assert len(listed) == 2 and listed[1].startswith(made["id"])
    documents = [json.loads(line) for line in commands.ok("backup", "list", "-J", backups).splitlines()]
    assert documents[1]["id"] == made["id"]
    for flags in ([], ["--deep"], ["--all"], ["--id", made["id"]]):
        assert commands.ok("backup", "verify", *flags, backups).decode().rstrip().endswith("sound")
    commands.ok("restore", backups, "-d", tmp_path / "one", "--id", made["id"])
    commands.ok("backup", "restore", backups, "-d", tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(data)
    commands.ok("backup", "delete", backups, listed[0].split()[0])
    assert len(commands.ok("backup", "list", backups).splitlines()) == 1


def test_restored_at_a_moment(data: Path, tmp_path: Path) -> None:
    """Record n has the time 1000 + n; what is printed says which moment it is, and notes what is empty then."""
    fill(data, "later", records=5)
    commands.ok("backup", "-d", data, tmp_path / "backups")
    out = commands.ok("restore", tmp_path / "backups", "--at", "1042", "-d", tmp_path / "one").decode()
    assert "restored as of 1970-01-01T00:00:01.042Z: 2 topics, 3 partitions, 91 offsets" in out
    at = "1970-01-01T00:00:01.042Z"
    done = commands.kafkalog("restore", "--from", data, "--at", at, "-J", "-d", tmp_path / "two")
    assert done.returncode == 0 and json.loads(done.stdout)["partitions"] == 3
    read = [commands.ok("consume", "-d", tmp_path / name, "-t", "orders", "-f", "%s ") for name in ("one", "two")]
    assert read[0] == read[1]
    assert not list(tmp_path.glob("*.kafkalog-restore"))


def test_keep_deletes_the_oldest(data: Path, tmp_path: Path) -> None:
    for _ in range(4):
        commands.ok("backup", "-q", "--keep", "2", "-d", data, tmp_path / "backups")
    listed = commands.ok("backup", "list", tmp_path / "backups").decode().splitlines()
    assert len(listed) == 2 and commands.ok("backup", "verify", "--all", tmp_path / "backups")


def test_damage_is_status_1(data: Path, tmp_path: Path) -> None:
    made = Path(json.loads(commands.ok("backup", "-J", "-d", data, tmp_path / "backups"))["path"])
    broken = made / "dir0" / "orders-1" / "00000000000000000000.log"
    content = broken.read_bytes()
    broken.chmod(0o600)
    broken.write_bytes(content[:-1])
    done = commands.kafkalog("backup", "verify", "-J", tmp_path / "backups")
    assert done.returncode == 1
    assert [json.loads(line).get("kind") for line in done.stdout.splitlines()] == ["length", None]
    done = commands.kafkalog("restore", tmp_path / "backups", "-d", tmp_path / "restored")
    assert done.returncode == 1 and str(broken).encode() in done.stderr and files(tmp_path / "restored") == {}


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["backup", "backups"], 2, "no data directory"),
        (["backup", "-d", "data", "data/in"], 2, "overlap"),
        (["backup", "-d", "data", "full"], 2, "is not a directory of backups"),
        (["backup", "-d", "missing", "backups"], 1, "does not exist"),
        (["backup", "list", "missing"], 1, "no such directory"),
        (["backup", "verify", "full"], 2, "is not a directory of backups"),
        (["restore", "missing", "-d", "there"], 1, "no such directory"),
        (["restore", "-d", "there"], 2, "either TARGET"),
        (["restore", "missing", "--from", "data", "--at", "1", "-d", "there"], 2, "either TARGET"),
        (["restore", "missing", "--by", "time", "-d", "there"], 2, "--by needs --at TIME"),
        (
            ["restore", "--from", "data", "--at", "2026-11-01T12:00Z", "--id", "20261101T120000Z", "-d", "there"],
            2, "--from has none",
        ),
        (["restore", "--from", "data", "-d", "there"], 2, "--from needs --at TIME"),
        (["restore", "missing", "--at", "noon", "-d", "there"], 2, "is not a time"),
        (["restore", "--from", "data", "--at", "2100-01-01T00:00Z", "-d", "there"], 2, "is still to come"),
        (["restore", "--from", "data", "--at", "999", "-d", "there"], 2, "no record is as old"),
        (["restore", "--from", "data", "--at", "1042", "-d", "data/in"], 2, "overlap"),
        (["backup", "verify"], 2, "Missing argument"),
    ],
)
def test_what_is_wrong_is_told(data: Path, tmp_path: Path, arguments: list[str], status: int, told: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "else").write_text("")
    done = commands.kafkalog(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, b"") and told in done.stderr.decode()


def test_names_of_files_do_not_drive_the_terminal(data: Path, tmp_path: Path) -> None:
    (data / "x\x1b]0;owned\x07").touch()
    (data / "orders-0" / "\u202e\udcff").touch()
    done = commands.kafkalog("backup", "-d", data, tmp_path / "back\x1b[2J")
    assert done.returncode == 0
    told = done.stderr.decode()
    assert "\\x1b]0;owned\\x07" in told and "\\u202e\\udcff" in told
    assert "\x1b" not in told and "\u202e" not in told
    failed = commands.kafkalog("backup", "list", tmp_path / "none\x1b[2J").stderr.decode()
    assert "none\\x1b[2J" in failed and "\x1b" not in failed

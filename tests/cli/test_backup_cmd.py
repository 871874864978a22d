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

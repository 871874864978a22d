"""`kafkalog verify`: its flags, its exit status, and what goes where."""

import json
import os
from pathlib import Path

import pytest

from kafkalog.tools.verify.directories import verify
from tests import commands
from tests.raw_batches import batches
from tests.tools.test_verify_damage import LOG, write_log
from tests.unprivileged import plain_directory, unprivileged


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    write_log(tmp_path / "data" / "t-0", batches(0, 20, 5))
    return tmp_path / "data" / "t-0"


def damage(partition: Path) -> None:
    content = bytearray((partition / LOG).read_bytes())
    content[70] ^= 1
    (partition / LOG).write_bytes(content)


def test_sound_is_status_0_and_one_line(partition: Path) -> None:
    for flags in ([], ["--deep"], ["--indexes"], ["-j", "1"], ["-q"]):
        out = commands.ok("verify", *flags, partition).decode()
        assert out.splitlines()[-1].startswith("1 partition, 1 segment, ") and out.rstrip().endswith(": sound")


def test_damage_is_status_1_and_names_file_position_and_what_to_do(partition: Path) -> None:
    damage(partition)
    done = commands.kafkalog("verify", partition.parent)
    text = done.stdout.decode()
    assert done.returncode == 1 and done.stderr == b""
    assert str(partition / LOG) in text and "position 0" in text and "-> a replica or a backup" in text
    assert text.splitlines()[-1].endswith("1 damaged, 5 offsets in damaged places (1 note)")
    assert "note" not in commands.kafkalog("verify", "-q", partition.parent).stdout.decode().splitlines()[-2]


def test_repairable_is_status_1_too(partition: Path) -> None:
    (partition / LOG).with_suffix(".index").unlink()
    done = commands.kafkalog("verify", partition)
    assert done.returncode == 1 and b"1 repairable" in done.stdout


def test_json_is_a_line_a_finding_and_the_report(partition: Path) -> None:
    damage(partition)
    done = commands.kafkalog("verify", "-J", partition)
    first, last = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 1
    assert first["path"] == str(partition / LOG) and (first["kind"], first["position"]) == ("crc", 0)
    assert last["ok"] is False and last["damage"] == 1 and last["segments"] == 1


def test_wrong_usage_is_status_2_and_an_absent_path_1(partition: Path) -> None:
    assert commands.kafkalog("verify").returncode == 2
    assert commands.kafkalog("verify", "-j", "0", partition).returncode == 2
    assert commands.kafkalog("verify", "--deep", "--indexes", partition).returncode == 2
    absent = commands.kafkalog("verify", partition.parent / "none-0")
    assert absent.returncode == 1 and b"none-0" in absent.stderr and absent.stdout == b""


def test_a_file_without_permission_is_told_and_the_others_are_read() -> None:
    with plain_directory() as root:
        for name in ("t-0", "t-1"):
            write_log(root / "data" / name, batches(0, 5, 5))
        if os.geteuid() == 0:
            for path in [root / "data", *(root / "data").rglob("*")]:
                os.chown(path, root.stat().st_uid, root.stat().st_gid)
        (root / "data" / "t-0" / LOG).chmod(0)
        (root / "data" / "t-1").chmod(0)
        write_log(root / "data" / "t-2", batches(0, 5, 5))
        verify(root / "data", threads=1)  # imports what it needs
        with unprivileged():
            report = verify(root / "data", threads=1)
        (root / "data" / "t-1").chmod(0o755)
        assert "2 unreadable" in str(report) and "5 batches" in str(report), str(report)

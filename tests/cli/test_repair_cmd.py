"""`kafkalog repair`: dry by default, its exit status, and what it prints."""

import json
from pathlib import Path

import pytest

import kafkalog
from tests import commands
from tests.raw_batches import batches
from tests.storage.test_kept import positions
from tests.tools.test_verify_damage import LOG, write_log


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = write_log(tmp_path / "data" / "t-0", batches(0, 20, 5))
    path.write_bytes(path.read_bytes()[:-3])
    path.with_suffix(".timeindex").unlink()
    return path.parent


def test_dry_run_then_apply(partition: Path, tmp_path: Path) -> None:
    before = (partition / LOG).read_bytes()
    told = commands.kafkalog("repair", partition.parent)
    assert told.returncode == 1 and b"nothing was changed" in told.stdout and (partition / LOG).read_bytes() == before
    assert told.stdout.startswith(b"rebuild ") and b"\ncut " in told.stdout
    assert commands.kafkalog("repair", "--dry-run", partition).stdout.count(b"\ncut  ") == 1
    done = commands.kafkalog("repair", "--apply", "--backup-dir", tmp_path / "kept", partition)
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"rebuilt " in done.stdout and b"2 changes made" in done.stdout
    assert str(tmp_path / "kept").encode() in done.stdout
    next_line = f"next     {partition}: the next opening for writing recovers from its beginning on and cuts nothing\n"
    assert next_line.encode() in done.stdout
    assert commands.ok("verify", partition)
    assert commands.ok("repair", partition).decode() == f"{next_line}nothing to repair\n"


def test_one_kind_only(partition: Path) -> None:
    assert b"cut  " not in commands.kafkalog("repair", "--rebuild-indexes", partition).stdout
    assert b"rebuild " not in commands.kafkalog("repair", "--truncate-tail", partition).stdout
    assert b".index" in commands.kafkalog("repair", "--all-indexes", "-X", "index.interval.bytes=100", partition).stdout


def test_json(partition: Path) -> None:
    lines = [json.loads(line) for line in commands.kafkalog("repair", "-J", partition).stdout.splitlines()]
    assert [line["type"] for line in lines] == ["change", "change", "partition", "opening", "repair"]
    assert lines[2] == {"type": "partition", "path": str(partition), "changes": 2, "left": 0}
    assert lines[-1] == {
        "type": "repair", "ok": False, "applied": False, "changes": 2, "left": 0, "partitions": 1, "backup": None,
    }  # fmt: skip


def test_a_directory_is_told_partition_by_partition(partition: Path) -> None:
    write_log(partition.parent / "sound-0", batches(0, 4, 5))
    (partition.parent / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 40\nsound 0 99\n")
    told = commands.kafkalog("repair", partition.parent).stdout.decode().splitlines()
    assert [line.split(" ", 1)[0] for line in told] == ["rebuild", "cut", "", "rebuild", "", "next", "3"]
    assert told[2].endswith("/data/t-0: 2 changes, 0 left unrepaired")
    assert told[4].endswith("/data: 1 change, 0 left unrepaired") and "sound-0" in told[3]
    only = commands.kafkalog("repair", "--checkpoints", partition.parent).stdout
    assert only.count(b"rebuild ") == 1 and b"\ncut " not in only


def test_wrong_usage(partition: Path) -> None:
    assert commands.kafkalog("repair").returncode == 2
    for setting in ("retention.ms=1", "index.interval.bytes=x", "index.interval.bytes=-1"):
        assert commands.kafkalog("repair", "-X", setting, partition).returncode == 2
    inside = commands.kafkalog("repair", "--apply", "--backup-dir", partition.parent / "kept", partition)
    assert inside.returncode == 2 and b"inside the data directory" in inside.stderr
    assert commands.kafkalog("repair", partition / "none").returncode == 1


def damage_log(data: Path) -> tuple[Path, int]:
    """A partition of two segments with damage in the middle of the first, not closed well, and where that is."""
    with kafkalog.open(data / "t-0", "a") as log:
        for number in range(8):
            if number == 4:
                log.roll()
            log.append([b"v"] * 5)
    file = data / "t-0" / LOG
    at = positions(file)[2]
    content = bytearray(file.read_bytes())
    content[at + 65] ^= 1
    file.write_bytes(content)
    (data / ".kafka_cleanshutdown").unlink()
    return data / "t-0", at


def test_it_says_what_the_next_opening_will_cut_and_keep(tmp_path: Path) -> None:
    """A malformed recovery-point checkpoint is rewritten without entries: so all of the partition is recovered."""
    data = tmp_path / "data"
    partition, at = damage_log(data)
    checkpoint = data / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 40\n")
    flushed = f"next     {partition}: the next opening for writing recovers from offset 40 on and cuts nothing"
    assert flushed in commands.kafkalog("repair", data).stdout.decode()
    checkpoint.write_text("zeros")
    cut = (
        f"next     {partition}: the next opening for writing recovers from its beginning on and will cut "
        f"{partition}/{LOG} at byte {at}, offset 10 (the batch does not match its checksum, 1 later segment with it), "
        "and keep 25 sound records in 5 batches (offsets 15 to 39) after it"
    )
    for apply in ([], ["--apply"]):
        told = commands.kafkalog("repair", data, *apply).stdout.decode().splitlines()
        assert any(line.startswith("rebu") and "0 entries can be read" in line for line in told)
        assert cut in told
    (line,) = [
        one for one in map(json.loads, commands.kafkalog("repair", "-J", data).stdout.splitlines())
        if one["type"] == "opening"
    ]  # fmt: skip
    assert (line["path"], line["recovery_point"]) == (str(partition), 0)
    (told_cut,) = line["cuts"]
    assert (told_cut["position"], told_cut["offset"], told_cut["later"], told_cut["kept"]["records"]) == (at, 10, 1, 25)
    produced = commands.kafkalog("produce", "-d", data, "-t", "t", stdin=b"more\n")
    assert produced.returncode == 0 and b"25 sound records in 5 batches (offsets 15 to 39)" in produced.stderr
    with kafkalog.open(partition) as log:
        assert log.end_offset == 11

"""`kafkalog retain`: dry by default, its exit status, and what it prints."""

import json
from pathlib import Path

import pytest

import kafkalog
from tests import commands

NOW = 1_700_000_000_000
DAY = 86_400_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two segments of topic `old`, the first one two days older; a topic whose settings nobody knows."""
    with kafkalog.open(tmp_path / "data" / "old-0", "a", retention_ms=DAY) as log:
        log.append([(b"k", b"v", NOW - 2 * DAY)])
        log.roll()
        log.append([(b"k", b"v", NOW)])
    return tmp_path / "data"


def test_dry_run_then_apply(data: Path) -> None:
    told = commands.ok("retain", data, "--now", str(NOW)).decode()
    assert told.splitlines() == [
        f"delete {data}/old-0/{0:020d}.log (70 bytes, from offset 0): "
        "older than retention.ms: its newest record is from 2023-11-12T22:13:20Z",
        "1 segment of 1 partition, 70 bytes to delete, nothing was changed: give --apply",
    ]
    assert commands.ok("retain", data, "--now", "2023-11-14T22:13:20Z", "--dry-run").decode() == told
    done = commands.ok("retain", data, "--now", str(NOW), "--apply").decode()
    assert done.startswith("deleted ") and done.endswith("1 segment of 1 partition, 70 bytes deleted\n")
    assert commands.ok("retain", data, "--now", str(NOW), "--apply") == b"nothing to delete of 1 partition\n"
    assert commands.ok("offsets", "get", "-d", data, "-t", "old", "--time", "-2") == b"old:0:1\n"


def test_json(data: Path) -> None:
    lines = [json.loads(line) for line in commands.ok("retain", "-J", data, "--now", str(NOW)).splitlines()]
    assert [line["type"] for line in lines] == ["segment", "retain"]
    assert (lines[0]["topic"], lines[0]["base_offset"], lines[0]["reason"]) == ("old", 0, "time")
    assert lines[1] == {"type": "retain", "applied": False, "segments": 1, "bytes": 70, "partitions": 1}


def test_settings_of_the_call(data: Path) -> None:
    assert b"nothing to delete" in commands.ok("retain", data, "--now", str(NOW), "--retention-ms", "-1")
    assert b"2 segments" in commands.ok("retain", data, "--now", str(NOW + 1), "--retention-ms", "0")
    assert b"1 segment " in commands.ok("retain", data, "--now", "0", "--retention-bytes", "70")
    own = ("-X", "log.retention.hours=1000", "-t", "old")
    assert b"1 segment " in commands.ok("retain", data, "--now", str(NOW), *own)


def test_a_topic_that_nobody_knows_is_told(data: Path) -> None:
    (data / "kafkalog.topics.json").unlink()
    told = commands.ok("retain", data, "--now", str(NOW)).decode()
    assert f"keep {data}/old-0: its topic's settings are unknown" in told
    assert "1 segment " in commands.ok("retain", data, "--now", str(NOW), "--retention-ms", str(DAY)).decode()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "Missing argument"),
        (["none"], 1, "there is no such directory"),
        (["data", "-t", "other"], 1, "there is no topic other"),
        (["data", "--retention-ms", "-2"], 2, "retention.ms"),
        (["data", "--now", "yesterday"], 2, "--now"),
        (["data", "-X", "log.retention.hour=1"], 2, "did you mean log.retention.hours"),
        (["data", "-X", "num.io.threads=1"], 2, "no server runs here"),
        (["data", "-X", "log.retention.ms"], 2, "NAME=VALUE"),
    ],
)
def test_wrong_usage(data: Path, arguments: list[str], status: int, said: str) -> None:
    done = commands.kafkalog("retain", *arguments, cwd=data.parent)
    assert (done.returncode, said in done.stderr.decode()) == (status, True), done.stderr


def test_a_directory_that_is_in_use(data: Path) -> None:
    with kafkalog.open(data / "old-0", "a"):
        assert commands.kafkalog("retain", data, "--now", str(NOW)).returncode == 0
        done = commands.kafkalog("retain", data, "--now", str(NOW), "--apply")
    assert done.returncode == 1
    assert b"locked by process" in done.stderr

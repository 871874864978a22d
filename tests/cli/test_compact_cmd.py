"""`kafkalog compact`: dry by default, its exit status, and what it prints."""

import json
from pathlib import Path

import pytest

import kafkalog
from tests import commands
from tests.tools.test_compact import NOW, TWICE, make


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three segments of the compacted topic `t`, the last one empty; a topic that is not compacted.

    The last batch that is cleaned stays, without its record: 61 bytes.
    """
    make(tmp_path / "data" / "t-0", TWICE[:4])
    make(tmp_path / "data" / "u-0", TWICE[:1], cleanup_policy="delete")
    return tmp_path / "data"


def test_dry_run_then_apply(data: Path) -> None:
    told = commands.ok("compact", data, "--now", str(NOW)).decode()
    assert told.splitlines() == [
        f"clean {data}/t-0 up to offset 4: keeps 2 of 4 records, 201 of 279 bytes",
        "  removed for lack of a key: 1 record",
        f"keep {data}/u-0: its cleanup.policy is delete",
        "2 records of 2 partitions, 78 bytes to remove, nothing was changed: give --apply",
    ]
    assert commands.ok("compact", data, "--now", str(NOW), "--dry-run").decode() == told
    done = commands.ok("compact", data, "--now", str(NOW), "--apply", "-t", "t").decode()
    assert done.startswith("cleaned ") and done.endswith("2 records of 1 partition, 78 bytes removed\n")
    assert commands.ok("compact", data / "t-0", "--apply") == b"nothing to clean of 1 partition\n"
    assert commands.ok("consume", "-d", data, "-t", "t", "-q") == b"1\n2\n"


def test_records_in_the_last_segment_alone(tmp_path: Path) -> None:
    """It says why nothing is cleaned; the dry run with --roll counts what the clean then does."""
    path = tmp_path / "data" / "t-0"
    make(path, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], per_segment=9)
    why = "its dirty records are in the last segment, which is cleaned only with --roll"
    told = commands.ok("compact", path, "--apply").decode()
    assert told.splitlines() == [f"keep {path}: {why}", "nothing to clean of 1 partition"]
    before = sorted(one.name for one in path.iterdir())
    dry = commands.ok("compact", path, "--roll").decode()
    assert dry.startswith(f"clean {path} up to offset 3: keeps 2 of 3 records") and why not in dry
    assert sorted(one.name for one in path.iterdir()) == before
    done = commands.ok("compact", path, "--roll", "--apply").decode()
    assert done.splitlines()[0] == dry.splitlines()[0].replace("clean", "cleaned", 1)
    assert commands.ok("consume", "-d", tmp_path / "data", "-t", "t", "-q") == b"1\n2\n"
    assert commands.ok("compact", path, "--roll", "--apply") == b"nothing to clean of 1 partition\n"


def test_json(data: Path) -> None:
    lines = [json.loads(line) for line in commands.ok("compact", "-J", data).splitlines()]
    assert [line["type"] for line in lines] == ["partition", "kept", "compact"]
    assert (lines[0]["topic"], lines[0]["end_offset"], lines[0]["records_kept"]) == ("t", 4, 2)
    assert lines[2] == {"type": "compact", "applied": False, "records": 2, "bytes": 78, "partitions": 2}


def test_settings_of_the_call(data: Path) -> None:
    assert b"nothing to clean" in commands.ok("compact", data, "--cleanup-policy", "delete")
    assert b"clean " in commands.ok("compact", data, "-t", "u", "--cleanup-policy", "compact,delete", "--from-start")
    assert b"nothing to clean" in commands.ok("compact", data, "--now", str(NOW), "--min-compaction-lag-ms", "1")
    assert b"up to offset 1:" in commands.ok("compact", data, "--map-bytes", "48")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "Missing argument"),
        (["none"], 1, "there is no such directory"),
        (["data", "-t", "other"], 1, "there is no topic other"),
        (["data", "--delete-retention-ms", "-2"], 2, "delete.retention.ms"),
        (["data", "--cleanup-policy", "shrink"], 2, "cleanup.policy"),
        (["data", "--now", "yesterday"], 2, "--now"),
        (["data", "--map-bytes", "24"], 2, "--map-bytes"),
    ],
)
def test_wrong_usage(data: Path, arguments: list[str], status: int, said: str) -> None:
    done = commands.kafkalog("compact", *arguments, cwd=data.parent)
    assert (done.returncode, said in done.stderr.decode()) == (status, True), done.stderr


def test_a_directory_that_is_in_use(data: Path) -> None:
    with kafkalog.open(data / "t-0", "a"):
        assert commands.kafkalog("compact", data).returncode == 0
        done = commands.kafkalog("compact", data, "--apply")
    assert done.returncode == 1
    assert b"locked by process" in done.stderr

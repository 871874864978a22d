"""`kafkalog handover`: dry by default, its exit status, and what it prints."""

import json
from pathlib import Path

import pytest

from tests import commands
from tests.broker_directory import format_directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    commands.ok("topics", "create", "-d", data, "-t", "orders", "--partitions", "2", "--config", "retention.ms=-1")
    format_directory(data)
    return data


def test_dry_run_then_apply_then_undo(data: Path) -> None:
    told = commands.kafkalog("handover", "-d", data)
    assert told.returncode == 1 and not told.stderr, told.stderr
    lines = told.stdout.decode().splitlines()
    assert lines[0].startswith("broker   node 3 of cluster ") and "no metadata log yet" in lines[0]
    assert lines[1].startswith("new      orders ") and lines[1].endswith("2 partitions, 0 offsets, retention.ms=-1")
    assert lines[-1] == "1 topic to hand over, nothing was changed: give --apply"
    done = commands.ok("handover", "-d", data, "--apply").decode().splitlines()
    assert done[-1].startswith("1 topic handed over: start the broker")
    assert commands.ok("handover", "-d", data).decode().splitlines()[-1].startswith("nothing to hand over")
    undone = commands.kafkalog("handover", "-d", data, "--undo")
    assert undone.returncode == 0 and undone.stderr == b"undid the handover of 1 topic\n"
    again = commands.kafkalog("handover", "-d", data, "--undo")
    assert again.returncode == 1 and b"no handover to undo" in again.stderr


def test_json(data: Path) -> None:
    told = json.loads(commands.kafkalog("handover", "-J", KAFKALOG_DIR=str(data)).stdout)
    assert (told["type"], told["ok"], told["applied"], told["node_id"]) == ("handover", False, False, 3)
    assert [(one["topic"], one["action"], one["partitions"]) for one in told["topics"]] == [("orders", "new", 2)]
    assert told["problems"] == [] and told["topics"][0]["settings"] == {"retention.ms": "-1"}


def test_an_undo_as_json(data: Path) -> None:
    commands.ok("handover", "-d", data, "--apply")
    undone = commands.kafkalog("handover", "-d", data, "--undo", "-J")
    assert json.loads(undone.stdout) == {"type": "handover", "ok": True, "undone": True, "topics": ["orders"]}


def test_an_undo_with_a_dry_run_changes_nothing(data: Path) -> None:
    commands.ok("handover", "-d", data, "--apply")
    refused = commands.kafkalog("handover", "-d", data, "--undo", "--dry-run")
    assert refused.returncode == 2 and b"--undo has no dry run" in refused.stderr
    assert commands.kafkalog("handover", "-d", data, "--undo", "--apply").returncode == 0


def test_a_refusal_says_why_and_what_to_do(data: Path) -> None:
    commands.ok("produce", "-d", data, "-t", "old", "-J", stdin=b'{"payload": "x", "ts": 1500000000000}\n')
    refused = commands.kafkalog("handover", "-d", data, "--apply")
    assert refused.returncode == 1
    lines = refused.stdout.decode().splitlines()
    assert any(line.startswith("refused  old-0 below offset 1: ") for line in lines)
    assert any(line.startswith("hint     --keep-records") for line in lines)
    assert lines[-1] == "refused for 1 reason, nothing was changed"
    assert commands.kafkalog("handover", "-d", data, "--apply", "-X", "log.retention.ms=-1").returncode == 0


def test_wrong_usage(data: Path, tmp_path: Path) -> None:
    for arguments in (
        ("--keep-records", "--let-expire", "-d", data),
        ("--undo", "-t", "orders", "-d", data),
        (),
        ("-X", "log.retention.mss=1", "-d", data),
    ):
        assert commands.kafkalog("handover", *arguments).returncode == 2
    plain = tmp_path / "plain"
    plain.mkdir()
    done = commands.kafkalog("handover", "-d", plain)
    assert done.returncode == 2 and b"kafka-storage.sh format" in done.stderr
    assert commands.kafkalog("handover", "-d", data, "-t", "none").returncode == 1

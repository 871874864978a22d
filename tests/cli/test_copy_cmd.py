"""`kafkalog copy`: a dry run by default, the table of what is not kept, and the exit status."""

import json
from pathlib import Path

import kafkalog
from kafkalog.server.groups.stored import commit_all, committed_offsets
from kafkalog.testing import kafka_server
from tests import commands


def fill(data: Path) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        for name in ("orders", "users"):
            dirs.create_topic(name, 1, {"retention.ms": -1})
            dirs[name, 0].append([b"%d" % n for n in range(5)])
    commit_all(str(data), {"readers": {"orders": {0: 3}}, "others": {"users": {0: 2}}})


def test_nothing_is_written_without_apply(tmp_path: Path) -> None:
    data, copied = tmp_path / "data", tmp_path / "copied"
    fill(data)
    out = commands.ok("copy", "--from", data, "--to", copied).decode()
    assert out.splitlines() == [
        "orders-0: offsets 0 to 5, 5 to copy", "users-0: offsets 0 to 5, 5 to copy", "everything is kept",
        "2 topics, 2 partitions, 2 groups: nothing was written, give --apply",
    ]  # fmt: skip
    assert not copied.exists()
    out = commands.ok("copy", "--from", data, "--to", copied, "--apply", "-t", "orders", "-G", "readers").decode()
    assert out.splitlines() == [
        "orders-0: offsets 0 to 5 have the same offsets; 5 records copied now", "everything is kept",
        "copied 5 records in 101 bytes: 1 topic, 1 partition, 1 group",
    ]  # fmt: skip
    assert committed_offsets([str(copied)]) == {"readers": {"orders": {0: 3}}}
    out = commands.ok("copy", "--from", data, "--to", copied).decode()
    assert "orders-0: offsets 0 to 5, 5 copied before, 0 to copy" in out


def test_json_and_several_directories(tmp_path: Path) -> None:
    data = [tmp_path / "one", tmp_path / "two"]
    for place, name in zip(data, ("a", "b"), strict=True):
        with kafkalog.open_dirs(place, "a") as dirs:
            dirs.create_topic(name, 1)
            dirs[name, 0].append(b"value")
    given = ("--from", data[0], "--from", data[1], "--to", tmp_path / "copied", "--no-groups", "--apply", "-J")
    found = [json.loads(line) for line in commands.ok("copy", *given).splitlines()]
    assert [one["type"] for one in found] == ["partition", "partition", "copy"]
    assert [one["topic"] for one in found[:2]] == ["a", "b"] and found[0]["offsets"] == "kept"
    assert found[-1] == {
        "type": "copy", "applied": True, "source": f"{data[0]}:{data[1]}", "target": str(tmp_path / "copied"),
        "records": 2, "bytes": found[-1]["bytes"], "groups": 0,
    }  # fmt: skip


def test_what_is_not_kept_is_a_table_before_and_after(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    with kafka_server(directory=tmp_path / "cluster") as server:
        place = f"kafka://{server.bootstrap}"
        given = ("--from", data, "--to", place, "-t", "orders", "-X", "target.client.id=mine")
        before, after = commands.ok("copy", *given).decode(), commands.ok("copy", *given, "--apply").decode()
        row = "  orders  topic id, leader epochs  a cluster assigns its own"
        assert row in before.splitlines() and row in after.splitlines() and "not kept:" in before
        assert json.loads(commands.ok("copy", *given, "-J").splitlines()[1])["type"] == "not kept"


def test_wrong_usage_and_errors(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    copied = tmp_path / "copied"
    for status, given in (
        (2, ("--from", data)),
        (2, ("--from", data, "--to", copied, "--no-groups", "-G", "readers")),
        (2, ("--from", data, "--to", copied, "--offsets", "some")),
        (2, ("--from", data, "--to", "kafka://here")),
        (1, ("--from", data, "--to", copied, "-t", "none")),
        (1, ("--from", data, "--to", "kafka://127.0.0.1:1", "-X", "socket.connection.setup.timeout.ms=500")),
    ):
        done = commands.kafkalog("copy", *given)
        assert done.returncode == status and b"Traceback" not in done.stderr, (given, done)
    assert not copied.exists()

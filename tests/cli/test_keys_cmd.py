"""`kafkalog keys`: indexes built, listed and dropped, and records got by key."""

import json
from pathlib import Path

import pytest

import kafkalog
from tests import commands


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions, one with two closed segments."""
    data = tmp_path / "data"
    data.mkdir()
    for partition in range(2):
        with kafkalog.open(data / f"orders-{partition}", "a") as log:
            for part in range(3):
                log.append([(b"order-%d-%d" % (partition, i), b"state %d" % part) for i in range(3)])
                if part < 2 and not partition:
                    log.roll()
            log.append([(b"gone", b"x"), (b"gone", None)])
    return data


def test_build_list_get_and_drop(data: Path) -> None:
    assert commands.ok("keys", "ls", "-d", data).split()[2] == b"missing"
    built = commands.ok("keys", "build", "-d", data, "-t", "orders").decode().splitlines()
    assert built[0].startswith("orders-0: 2 segments, 6 records, ") and built[1].startswith("orders-1: 0 segments")
    rows = [json.loads(line) for line in commands.ok("keys", "ls", "-d", data, "-J").splitlines()]
    assert [(row["base_offset"], row["state"], row["records"]) for row in rows] == [(0, "ok", 3), (3, "ok", 3)]
    got = commands.ok("keys", "get", "-d", data, "-t", "orders", "order-0-1", "order-1-2", "gone")
    assert got.splitlines() == [
        b"0\t7\torder-0-1\tstate 2", b"0\t10\tgone\tnull", b"1\t8\torder-1-2\tstate 2", b"1\t10\tgone\tnull",
    ]  # fmt: skip
    history = commands.ok("keys", "get", "-d", data, "-t", "orders", "--history", "-J", "order-0-1")
    assert [json.loads(line)["offset"] for line in history.splitlines()] == [1, 4, 7]
    none = commands.kafkalog("keys", "get", "-d", data, "-t", "orders", "-p", "1", "order-0-1")
    assert none.returncode == 1 and b"no record has the key 'order-0-1'" in none.stderr
    assert commands.ok("keys", "drop", "-d", data).splitlines() == [
        b"orders-0: 2 files removed", b"orders-1: 0 files removed",
    ]  # fmt: skip


def test_bytes_that_are_not_utf8_are_base64_in_json(data: Path) -> None:
    with kafkalog.open(data / "orders-0", "a") as log:
        headers = [("h", b"\xfe"), ("t", b"text"), ("n", None)]
        log.append([kafkalog.Record(b"v\xff", key=b"k", headers=headers), (b"\xff", b"v")])
    got = commands.ok("keys", "get", "-d", data, "-t", "orders", "-J", "k", "\udcff")
    rows = [json.loads(line) for line in got.splitlines()]
    names = ("key", "key_encoding", "value", "value_encoding", "headers", "headers_encoding")
    assert [{name: row[name] for name in names if name in row} for row in rows] == [
        {"key": "k", "value": "dv8=", "value_encoding": "base64",
         "headers": [["h", "/g=="], ["t", "dGV4dA=="], ["n", None]], "headers_encoding": "base64"},
        {"key": "/w==", "key_encoding": "base64", "value": "v", "headers": []},
    ]  # fmt: skip


def test_beside_an_owner_a_store_is_needed(data: Path, tmp_path: Path) -> None:
    with kafkalog.open(data / "orders-0", "a"):
        refused = commands.kafkalog("keys", "build", "-d", data, "-t", "orders")
        assert refused.returncode == 1 and b"lock" in refused.stderr
        commands.ok("keys", "build", "-d", data, "--store", tmp_path / "store")
        listed = commands.ok("keys", "ls", "-d", data, "--store", tmp_path / "store").splitlines()
        assert [line.split()[2] for line in listed] == [b"ok", b"ok"]
        got = commands.ok("keys", "get", "-d", data, "-t", "orders", "--store", tmp_path / "store", "order-0-2")
        assert got == b"0\t8\torder-0-2\tstate 2\n"
    assert not list(data.rglob("*.keyindex"))


def test_get_over_damage_tells_so(data: Path) -> None:
    file = data / "orders-1" / f"{0:020}.log"
    file.write_bytes(file.read_bytes().replace(b"state 1", b"state 7"))
    got = commands.kafkalog("keys", "get", "-d", data, "-t", "orders", "-p", "1", "--on-damage", "skip", "order-1-2")
    assert got.returncode == 1 and got.stdout == b"1\t8\torder-1-2\tstate 2\n" and b"skipped" in got.stderr


@pytest.mark.parametrize("group", ["keys", "times"])
def test_a_list_without_closed_segments_says_so(data: Path, group: str) -> None:
    listed = commands.kafkalog(group, "ls", "-d", data, "-t", "orders", "-p", "1")
    assert (listed.returncode, listed.stdout) == (0, b"")
    assert listed.stderr.startswith(b"no closed segments, and ") and listed.stderr.count(b"\n") == 1
    assert b"no closed" not in commands.kafkalog(group, "ls", "-d", data, "-t", "orders").stderr

"""`offsets groups` and `offsets reset` for the groups that a server kept in its directory; cursors become groups."""

import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from kafkalog.dirs.open import open_dirs
from kafkalog.server.groups.records import offset_record
from kafkalog.server.groups.values import CommittedOffset
from kafkalog.util.java_hash import partition_of
from tests.commands import kafkalog, ok, started
from tests.server.groups.groups import commit_offset
from tests.server.groups.other_kinds import share_records, streams_records
from tests.server.nodes import node_for


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a topic of two partitions, 6 and 3 records, and groups."""
    data = tmp_path / "data"

    async def make() -> None:
        async with node_for(data) as node:
            await node.topics.create("t", 2)
            for group_id, partition, offset in (("g", 0, 2), ("g", 1, 3), ("other", 0, 9)):
                assert await commit_offset(node, offset, group_id, partition=partition) == 0
            new = {("t", 0): CommittedOffset(5, -1, "", 0)}
            await node.groups.commits.commit_in_transaction("open", "x", 7, 0, new)

    asyncio.run(make())
    for partition, count in ((0, 6), (1, 3)):
        lines = "".join(f"{number}\n" for number in range(count)).encode()
        assert kafkalog("produce", "-q", "-d", data, "-t", "t", "-p", str(partition), stdin=lines).returncode == 0
    return data


def rows(data: Path, tmp_path: Path, *more: str) -> list[dict[str, Any]]:
    lines = ok("offsets", "groups", "-d", data, "--cursors", tmp_path / "cursors", "-J", *more).splitlines()
    return [json.loads(line) for line in lines]


def test_groups_of_a_directory_are_shown_with_their_lag(data: Path, tmp_path: Path) -> None:
    ok("consume", "-q", "-d", data, "-t", "t", "-p", "0", "-G", "mine", "--cursors", tmp_path / "cursors")
    found = rows(data, tmp_path)
    shown = [(row["group"], row["partition"], row["current_offset"], row["lag"], row["kept"]) for row in found]
    assert shown == [
        ("g", 0, 2, 4, "group"), ("g", 1, 3, 0, "group"), ("mine", 0, 6, 0, "cursor"), ("other", 0, 9, None, "group"),
    ]  # fmt: skip
    table = ok("offsets", "groups", "-d", data, "--cursors", tmp_path / "cursors", "-G", "g").decode().splitlines()
    assert table[0].split()[-1] == "KEPT"
    assert [line.split()[-1] for line in table[1:]] == ["group", "group"]


@pytest.mark.parametrize("is_json", [False, True])
def test_damage_is_told_and_what_lies_before_it_shown(data: Path, tmp_path: Path, is_json: bool) -> None:
    before = {row["group"] for row in rows(data, tmp_path)}
    home = partition_of("other", 2)
    assert before == {"g", "other"} and home != partition_of("g", 2)
    path = data / f"__consumer_offsets-{home}" / f"{0:020}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:70] + bytes([whole[70] ^ 0xFF]) + whole[71:])
    command = ("offsets", "groups", "-d", data, "--cursors", tmp_path / "cursors", *(["-J"] if is_json else []))
    for flag in ([], ["-q"]):
        done = kafkalog(*command, *flag)
        assert done.returncode == 1
        said = done.stderr.decode()
        assert f"file {path}" in said and "offset " in said and "position " in said
        assert ("are not shown" in said) == (not flag) and "Traceback" not in said
        assert done.stdout.decode().count("group") >= 2 and b"other" not in done.stdout
    for segment in data.glob("__consumer_offsets-*/*.log"):
        if segment != path:
            segment.write_bytes(segment.read_bytes()[:-1])
    done = kafkalog(*command)
    assert done.returncode == 1 and all(f"__consumer_offsets-{number}/".encode() in done.stderr for number in (0, 1))
    assert done.stdout and b"other" not in done.stdout, "the first offset of g is whole"


def test_damage_in_an_earlier_segment_is_told(tmp_path: Path) -> None:
    with open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("__consumer_offsets", partitions=1, settings={"internal.segment.bytes": 1000})
        for number in range(40):
            key, value = offset_record(f"g{number}", "t", 0, CommittedOffset(number, -1, "", 1))
            dirs["__consumer_offsets", 0].append([(key, value, 1)])
    second = sorted((tmp_path / "data" / "__consumer_offsets-0").glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    data[70] ^= 0xFF
    second.write_bytes(data)
    done = kafkalog("offsets", "groups", "-d", tmp_path / "data", "--cursors", tmp_path / "cursors", "-J")
    assert done.returncode == 1 and f"file {second}".encode() in done.stderr
    assert f"offset {int(second.stem)}".encode() in done.stderr and b"position 0" in done.stderr
    shown = {json.loads(line)["group"] for line in done.stdout.splitlines()}
    assert shown == {f"g{number}" for number in range(int(second.stem))}


def test_a_group_that_is_no_cursor_is_deleted_by_its_server(data: Path, tmp_path: Path) -> None:
    before = rows(data, tmp_path)
    done = kafkalog("offsets", "delete", "-d", data, "-G", "g", "--cursors", tmp_path / "cursors")
    assert done.returncode == 1 and b"it is a group of a server" in done.stderr
    assert rows(data, tmp_path) == before


def test_a_group_is_moved_and_a_server_finds_it_there(data: Path, tmp_path: Path) -> None:
    def reset(*more: str) -> list[str]:
        told = ok("offsets", "reset", "-q", "-d", data, "-t", "t", "-G", "g", "--cursors", tmp_path / "c", *more)
        return told.decode().splitlines()

    assert reset("--to-latest") == ["g t:0 2 6", "g t:1 3 3"]
    assert [row["current_offset"] for row in rows(data, tmp_path, "-G", "g")] == [2, 3], "nothing was changed"
    assert reset("--shift-by", "-1", "--execute") == ["g t:0 2 1", "g t:1 3 2"]

    async def look() -> None:
        async with node_for(data) as node:
            await node.groups.loaded()
            known = {one.group_id: one.offsets for one in node.groups.overview()}
            assert known["g"] == {("t", 0): 1, ("t", 1): 2}
            assert known["other"] == {("t", 0): 9}
            refused = kafkalog("offsets", "reset", "-q", "-d", data, "-t", "t", "-G", "g", "--to-latest", "--execute")
            assert refused.returncode != 0, "a server runs on it"

    asyncio.run(look())


def test_a_group_is_moved_where_other_partitions_lie_elsewhere(data: Path, tmp_path: Path) -> None:
    """As in a directory of a broker of many: its partitions of `__consumer_offsets` are some of all."""
    home = partition_of("g", 2)
    assert home == 1, "else its number is the same however many there are"
    shutil.rmtree(data / f"__consumer_offsets-{1 - home}")
    where = ("-d", data, "-t", "t", "-G", "g", "--cursors", tmp_path / "c")
    ok("offsets", "reset", "-q", *where, "--to-earliest", "--execute")
    assert [row["current_offset"] for row in rows(data, tmp_path, "-G", "g")] == [0, 0]


def test_what_consume_keeps_by_name_is_a_group_of_the_server(data: Path, tmp_path: Path) -> None:
    cursors, ready = tmp_path / "cursors", tmp_path / "ready"
    ok("consume", "-q", "-d", data, "-t", "t", "-p", "0", "-c", "4", "-G", "mine", "--cursors", cursors)
    where = ("-d", data, "--listen", "127.0.0.1:0", "--ready-file", ready, "--cursors", cursors)
    server = started("serve", "-q", *where, "-X", "log.cleaner.dedupe.buffer.size=4194304")
    try:
        end = time.monotonic() + 120
        while not any(row["kept"] == "group" and row["current_offset"] == 4 for row in rows(data, tmp_path)):
            assert time.monotonic() < end, "the position is not taken in"
            assert server.poll() is None, "the server is gone"
    finally:
        server.terminate()
        server.communicate()


@pytest.fixture
def of_broker(data: Path) -> Path:
    """The same with groups that only a broker serves."""

    async def write_all() -> None:
        async with node_for(data) as node:
            for group_id, made in (("shared", share_records("shared", "m")), ("streamed", streams_records("streamed"))):
                node.groups.table.log.append(group_id, made)

    asyncio.run(write_all())
    return data


def test_groups_of_a_broker_are_shown_with_their_kind(of_broker: Path, tmp_path: Path) -> None:
    found = {row["group"]: row for row in rows(of_broker, tmp_path)}
    assert {name: row["kept"] for name, row in found.items()} == {
        "g": "group", "other": "group", "shared": "share", "streamed": "streams",
    }  # fmt: skip
    assert set(found["shared"].values()) == {"shared", "share", None}
    assert found["streamed"]["current_offset"] == 7
    assert [row["group"] for row in rows(of_broker, tmp_path, "-G", "shared")] == ["shared"]
    table = ok("offsets", "groups", "-d", of_broker, "--cursors", tmp_path / "cursors").decode().splitlines()
    assert table[-2].split() == ["shared", *["-"] * 6, "share"]


@pytest.mark.parametrize("kind", ["share", "streams"])
def test_a_group_of_a_broker_is_neither_moved_nor_deleted(of_broker: Path, tmp_path: Path, kind: str) -> None:
    before = rows(of_broker, tmp_path)
    where = ("-d", of_broker, "-t", "t", "-G", {"share": "shared", "streams": "streamed"}[kind], "--cursors", tmp_path)
    done = kafkalog("offsets", "reset", *where, "--to-earliest", "--execute")
    assert done.returncode == 1 and f"kafka-{kind}-groups --reset-offsets".encode() in done.stderr
    done = kafkalog("offsets", "delete", *where)
    assert done.returncode == 1 and f"kafka-{kind}-groups --delete".encode() in done.stderr
    assert rows(of_broker, tmp_path) == before

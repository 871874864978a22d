"""A partition directory without segments costs no other partition: each command goes on, and ends with status 1."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import NotAPartition
from tests import commands

HINT = b"restore it from a replica or a backup"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three partitions with a record for each; the second one has lost all of its files."""
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", partitions=3)
        for partition in range(3):
            dirs["orders", partition].append([(b"key", b"record %d" % partition)])
    for file in (tmp_path / "data" / "orders-1").iterdir():
        file.unlink()
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("consume", "-t", "orders"), [b"record 0", b"record 2"]),
        (("stats",), [b"orders-0", b"orders-2"]),
        (("offsets", "get", "-t", "orders"), [b"orders:0:1", b"orders:2:1"]),
        (("keys", "get", "-t", "orders", "key"), [b"record 0", b"record 2"]),
        (("keys", "build"), [b"orders-0: 0 segments", b"orders-2: 0 segments"]),
        (("times", "build"), [b"orders-0: ", b"orders-2: "]),
        (("times", "drop"), [b"orders-0: ", b"orders-2: "]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_other_partitions_follow(data: Path, arguments: tuple[str, ...], printed: list[bytes]) -> None:
    done = commands.kafkalog(*arguments, "-d", data)
    assert done.returncode == 1 and b"orders-1" in done.stderr and HINT in done.stderr
    assert all(text in done.stdout for text in printed)
    assert not list((data / "orders-1").iterdir()), "nothing is created"


@pytest.mark.parametrize("on_damage", ["raise", "skip"])
def test_an_export_has_the_other_partitions(data: Path, tmp_path: Path, on_damage: str) -> None:
    done = commands.kafkalog("export", "-d", data, "--format", "jsonl", "--on-damage", on_damage, tmp_path / "out")
    assert done.returncode == 1 and b"orders-1" in done.stderr
    exported = b"".join(file.read_bytes() for file in (tmp_path / "out").rglob("*.jsonl"))
    assert b"record 0" in exported and b"record 2" in exported


def test_retention_passes_over_it(data: Path) -> None:
    assert commands.ok("retain", "-d", data) == b"nothing to delete of 3 partitions\n"


def test_a_table_of_the_topic_is_refused(data: Path) -> None:
    """It would lack a partition."""
    with kafkalog.open_dirs(data) as dirs:
        with pytest.raises(NotAPartition, match="orders-1"):
            dirs["orders"].table()
        assert len(list(dirs["orders", 2].records())) == 1
    done = commands.kafkalog("sql", "-d", data, "select count(*) from orders")
    assert done.returncode == 1 and b"orders-1" in done.stderr and not done.stdout

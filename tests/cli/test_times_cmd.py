"""`kafkalog times`: time ranges built, listed and dropped, and used by a query in another process."""

import json
import time
from pathlib import Path

import pytest

import kafkalog
from kafkalog.sidecars.identity import NO_STAMP, settled_stamp
from tests import commands

T = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions, one with two closed segments."""
    for partition in range(2):
        (tmp_path / "data").mkdir(exist_ok=True)
        with kafkalog.open(tmp_path / "data" / f"orders-{partition}", "a") as log:
            for part in range(3):
                log.append([(b"k", b"value %d" % part, T + part * 1000 + n) for n in range(3)])
                if part < 2 and not partition:
                    log.roll()
    while any(settled_stamp(path.stat()) == NO_STAMP for path in tmp_path.glob("data/*/*.log")):
        time.sleep(0.05)
    return tmp_path / "data"


def states(data: Path, *options: object) -> list[tuple[int, str, int]]:
    rows = [json.loads(line) for line in commands.ok("times", "ls", "-d", data, "-J", *options).splitlines()]
    return [(row["base_offset"], row["state"], row["pieces"]) for row in rows]


def test_build_list_and_drop(data: Path) -> None:
    assert states(data) == [(0, "missing", 0), (3, "missing", 0)]
    built = commands.ok("times", "build", "-d", data, "-t", "orders").decode().splitlines()
    assert built[0].startswith("orders-0: 3 segments, 3 pieces, ") and built[1].startswith("orders-1: 1 segment, 1 pie")
    assert states(data) == [(0, "ok", 1), (3, "ok", 1), (6, "ok", 1), (0, "ok", 1)], "of last segments as well"
    first, second = (data / "orders-0" / f"{base:020}.timeranges" for base in (0, 3))
    second.write_bytes(first.read_bytes())
    first.write_bytes(first.read_bytes()[:-1])
    assert states(data) == [(0, "damaged", 0), (3, "stale", 0), (6, "ok", 1), (0, "ok", 1)]
    commands.ok("times", "build", "-d", data)
    assert commands.ok("times", "ls", "-d", data).splitlines()[0].split()[2] == b"ok"
    before = first.stat().st_mtime_ns
    commands.ok("times", "build", "-d", data)
    assert first.stat().st_mtime_ns == before, "it fits"
    commands.ok("times", "build", "-d", data, "--rebuild")
    assert first.stat().st_mtime_ns != before
    removed = commands.ok("times", "drop", "-d", data, "-t", "orders", "-p", "0")
    assert removed.startswith(b"orders-0: ") and removed.endswith(b" files removed\n")
    assert not [*(data / "orders-0").glob("*.timeranges")]


def test_beside_an_owner_a_store_is_needed_and_serves_queries(data: Path, tmp_path: Path) -> None:
    store = tmp_path / "times"
    with kafkalog.open(data / "orders-0", "a"):
        refused = commands.kafkalog("times", "build", "-d", data, "-t", "orders")
        assert refused.returncode == 1 and b"lock" in refused.stderr
        commands.ok("times", "build", "-d", data, "--store", store)
        assert states(data, "--store", store)[:2] == [(0, "ok", 1), (3, "ok", 1)]
        query = f"SELECT count(*) AS n FROM orders WHERE epoch_ms(timestamp) < {T + 1000}"
        assert b"6" in commands.ok("sql", "-d", data, "--time-ranges", store, query)
    assert not [*data.rglob("*.timeranges")]

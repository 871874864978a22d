"""Syncs that are killed, at every step of a commit and at random moments: each record is there once, in order."""

from itertools import product
from pathlib import Path

import pytest

from tests import commands
from tests.kills import KILLS
from tests.lake.killed import PARTITIONS
from tests.lake.tables import FORMATS, Lake, logged, query


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "kind"), [*product(("steps", "moments"), ("append", "upsert")), ("steps", "tasks")]
)
@pytest.mark.parametrize("format", FORMATS)
def test_killed_syncs_write_each_record_once(tmp_path: Path, format: str, how: str, kind: str) -> None:
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", format)
    words = ["tests.lake.killed", str(data), lake.target, how, kind, *([str(KILLS)] if KILLS else [])]
    done = commands.run(words, cwd=commands.ROOT, timeout_s=600)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) >= (KILLS if how == "moments" and KILLS else 10)
    records = {number: logged(data / f"orders-{number}") for number in range(PARTITIONS)}
    if kind == "upsert":
        state = {(number, one.key): one for number, found in records.items() for one in found}
        wanted = sorted((number, one.offset) for (number, _), one in state.items() if one.value is not None)
    else:
        wanted = [(number, one.offset) for number, found in records.items() for one in found]
    assert lake.places() == wanted
    values = {(number, one.offset): int(one.value or 0) for number, found in records.items() for one in found}
    total = query(lake.read(), "SELECT count(*), sum(CAST(decode(value) AS BIGINT)) FROM rows WHERE value IS NOT NULL")
    kept = [place for place in wanted if kind == "upsert" or values[place] or place[1] == 0]
    assert total[0][1] == sum(values[place] for place in kept)
    if kind != "upsert":
        assert_in_order(lake)


def assert_in_order(lake: Lake) -> None:
    """In each file the offsets of a partition rise, and no record comes between them that another file has."""
    for rows in lake.read_each_file():
        for number in range(PARTITIONS):
            offsets = [one["offset"] for one in rows.to_pylist() if one["partition"] == number]
            assert offsets == [*range(offsets[0], offsets[0] + len(offsets))] if offsets else True

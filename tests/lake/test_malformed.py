"""Metadata of tables that other programs damaged: an error with the table's name."""

from pathlib import Path
from types import SimpleNamespace

import deltalake
import pytest

from kafkalog.errors import IllegalState
from kafkalog.lake.changes import IcebergChanges
from kafkalog.lake.positions import Positions
from kafkalog.lake.sync import NUMBERS, sync_topic
from tests.lake.tables import Lake, write


@pytest.mark.parametrize("text", ["{", "[]", '{"value.a": "1"}', "3"])
def test_malformed_field_numbers(tmp_path: Path, text: str) -> None:
    lake = Lake(tmp_path / "lake", "delta")
    write(tmp_path / "data", {0: 1})
    sync_topic(tmp_path / "data", "orders", lake.target)
    table = deltalake.DeltaTable(lake.target.removeprefix("delta:"))
    table.alter.set_table_properties({NUMBERS: text}, raise_if_not_exists=False)
    write(tmp_path / "data", {0: 1}, 1)
    with pytest.raises(IllegalState, match="field numbers are malformed") as error:
        sync_topic(tmp_path / "data", "orders", lake.target)
    assert error.value.path is not None


def test_positions_beyond_all_numbers() -> None:
    with pytest.raises(IllegalState, match="positions are malformed"):
        Positions.parse('{"topic_id": null, "next_offsets": {"0": 1e999}, "checksums": {}}', "t")


def test_snapshots_that_are_their_own_ancestors() -> None:
    snapshots = {n: SimpleNamespace(snapshot_id=n, parent_snapshot_id=3 - n) for n in (1, 2)}
    metadata = SimpleNamespace(
        table_uuid="u", current_snapshot=lambda: snapshots[1], snapshot_by_id=snapshots.get
    )
    with pytest.raises(IllegalState, match="not among those before the newest, 1"):
        IcebergChanges(SimpleNamespace(metadata=metadata), "t").steps("7")

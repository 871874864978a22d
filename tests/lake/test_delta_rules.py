"""Delta tables whose owner set rules that a sync would break: it refuses them, and writes nothing."""

from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake import Schema as DeltaSchema

from kafkalog.errors import IllegalState
from kafkalog.lake.sync import sync_topic
from tests.lake.tables import Lake, write


def test_a_delta_table_that_forgets_its_positions_is_refused(tmp_path: Path) -> None:
    """A sync after that time would find no positions, and write all records a second time."""
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "delta")
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    name = "delta.setTransactionRetentionDuration"
    lake.loaded().alter.set_table_properties({name: "interval 0 seconds"}, raise_if_not_exists=False)
    write(data, {0: 5}, first=10)
    with pytest.raises(IllegalState, match=f"forgets after an interval 0 seconds which records it has .{name}"):
        sync_topic(data, "orders", lake.target)
    assert lake.places() == [(0, n) for n in range(10)]


def test_a_delta_table_with_rules_for_its_rows_is_refused(tmp_path: Path) -> None:
    """delta-rs takes files as they are, so a row that a constraint forbids would get into the table."""
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "delta")
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target, upsert=True)
    before = lake.places()
    lake.loaded().alter.set_table_properties({"delta.appendOnly": "true"})
    write(data, {0: 5}, first=10)
    with pytest.raises(IllegalState, match=r"only takes new rows \(delta.appendOnly\)"):
        sync_topic(data, "orders", lake.target, upsert=True)
    lake.loaded().alter.set_table_properties({"delta.appendOnly": "false"})
    lake.loaded().alter.add_constraint({"few": "offset < 10"})
    with pytest.raises(IllegalState, match="a sync does not apply: delta.constraints.few"):
        sync_topic(data, "orders", lake.target, upsert=True)
    assert lake.places() == before


def test_a_delta_table_that_computes_a_column_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "data", {0: 10})
    rule = {"delta.generationExpression": "offset + 1"}
    fields = [Field("key", "binary"), Field("offset", "long"), Field("next", "long", metadata=rule)]
    DeltaTable.create(str(tmp_path / "table"), DeltaSchema(fields))
    with pytest.raises(IllegalState, match="delta.generationExpression of next"):
        sync_topic(tmp_path / "data", "orders", f"delta:{tmp_path / 'table'}")

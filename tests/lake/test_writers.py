"""Writers of data files by themselves: values of partitions, and the files beside those of a task."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from kafkalog.errors import InvalidRecord
from kafkalog.lake.failures import TableMismatch
from kafkalog.lake.partitioning import PartitionField
from kafkalog.lake.writers import DeltaWriter, IcebergWriter

HOUR_US = 3_600_000_000
TIMES = pa.array([0, -1, HOUR_US, 400 * 24 * HOUR_US, None], pa.timestamp("us", tz="UTC"))
BATCH = pa.record_batch([pa.StructArray.from_arrays([TIMES], ["at"])], ["value"])


def iceberg(*transforms: str) -> IcebergWriter:
    spec = [SimpleNamespace(source_id=3, name=f"p_{one}", transform=one) for one in transforms]
    columns: Any = SimpleNamespace(find_column_name={3: "value.at"}.__getitem__)
    return IcebergWriter("t", BATCH.schema, BATCH.schema, columns, SimpleNamespace(fields=spec), None, None)


def test_values_of_icebergs_partitions() -> None:
    found = iceberg("identity", "hour", "day", "month", "year").partition_values(BATCH)
    assert found[0].equals(TIMES) and [one.to_pylist() for one in found[1:]] == [
        [0, -1, 1, 9600, None], [0, -1, 1 // 24, 400, None], [0, -1, 0, 13, None], [0, -1, 0, 1, None],
    ]  # fmt: skip
    assert {one.type for one in found[1:]} == {pa.int32()}
    with pytest.raises(TableMismatch, match=r"p_bucket\[4\] is a partition field by bucket\[4\]") as failure:
        iceberg("day", "bucket[4]").partition_values(BATCH)
    assert failure.value.columns == ("p_bucket[4]",) and failure.value.path == "t"


def delta(place: Path, *fields: PartitionField, schema: pa.Schema = BATCH.schema) -> DeltaWriter:
    return DeltaWriter("t", schema, schema, fields, str(place), {})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([b"a", None]), None), (pa.array([None], pa.binary()), None),
        (pa.array([b"a", b""]), "a key is empty"),
        (pa.array([b"a", b""]), "a key is empty"),
        (pa.array(["é", ""]), "a key is empty"), (pa.array(["", None]), "a key is empty"), (pa.array(["é"]), None),
        (pa.array([b"\xe9"]), "a key is not UTF-8"), (pa.array(["é".encode()]), None), (pa.array([0]), None),
        (pa.array([], pa.binary()), None),
    ],
)  # fmt: skip
def test_values_that_delta_cannot_store_in_partitions(tmp_path: Path, values: pa.Array, reason: str | None) -> None:
    """A field within a column stays in the file: its partition may be anything."""
    batch = pa.record_batch([values], ["key"])
    writer = delta(tmp_path, PartitionField("identity", ("key",)), schema=batch.schema)
    if reason is None:
        assert writer.partition_values(batch) == [values]
    else:
        with pytest.raises(InvalidRecord, match=reason):
            writer.partition_values(batch)
    nested = pa.record_batch([pa.StructArray.from_arrays([values], ["k"])], ["value"])
    writer = delta(tmp_path, PartitionField("identity", ("value", "k")), schema=nested.schema)
    assert writer.partition_values(nested) == [values]


def test_files_beside_those_of_a_delta_writer(tmp_path: Path) -> None:
    writer = delta(tmp_path).with_prefix("tasks/")
    assert writer.siblings() == []
    made = []
    for one in (writer, writer, delta(tmp_path)):
        name, stream = one.new_file()
        with stream:
            stream.write(b"x")
        made.append(name)
    (tmp_path / "tasks" / "folder").mkdir()
    assert sorted(writer.siblings() or []) == sorted(made[:2]) and delta(tmp_path).siblings() == made[2:]
    assert all(name.startswith("tasks/part-") and (tmp_path / name).read_bytes() == b"x" for name in made[:2])
    for name in (made[0], made[0]):
        writer.delete_file(name)
    assert writer.siblings() == made[1:2]


def test_files_beside_those_of_an_iceberg_writer(tmp_path: Path) -> None:
    def writer(place: str, io: Any) -> IcebergWriter:
        locations: Any = SimpleNamespace(new_data_location=lambda name: place.format(name))
        return iceberg()._replace(locations=locations, io=io).with_prefix("task-")

    one = writer(f"file://{tmp_path}/data/{{0}}", PyArrowFileIO())
    assert one.siblings() == []
    made = []
    for _ in range(2):
        name, stream = one.new_file()
        with stream:
            stream.write(b"x")
        made.append(name)
    (tmp_path / "data" / "folder").mkdir()
    assert sorted(one.siblings() or []) == sorted(made) and made[0].startswith(f"file://{tmp_path}/data/task-")
    for _ in range(2):
        one.delete_file(made[0])
    assert one.siblings() == made[1:]
    assert writer(f"file://{tmp_path}/{{0}}/{{0}}", PyArrowFileIO()).siblings() is None, "distributed"
    assert writer(f"file://{tmp_path}/data/{{0}}", SimpleNamespace()).siblings() is None, "no file system to list"

"""Exports and imports in directories whose names are not UTF-8."""

import os
from pathlib import Path

import pytest

import kafkalog
from kafkalog.exchange.export import export_records
from kafkalog.exchange.import_ import import_records


@pytest.mark.parametrize("format", ["parquet", "arrow", "jsonl"])
def test_an_export_comes_back_from_a_directory_of_any_name(tmp_path: Path, format: str) -> None:
    data = tmp_path / os.fsdecode(b"data\xff")
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("t")
        dirs["t", 0].append([(b"k", b"one"), (b"k", b"two")])
    out = tmp_path / f"{data.name}-out"
    export_records(data, out, format)
    import_records([out], tmp_path / "again")
    with kafkalog.open(tmp_path / "again" / "t-0") as log:
        assert [record.value for record in log] == [b"one", b"two"]

"""Directories whose names are not UTF-8, or have a line break."""

import os
from pathlib import Path

import pytest

import kafkalog
from kafkalog.backup import create_backup, restore_backup, restore_directories
from tests.backup.logs import fill, offsets


@pytest.mark.parametrize("name", ["data\n2", os.fsdecode(b"data\xff")])
def test_a_directory_of_any_name_is_restored(tmp_path: Path, name: str) -> None:
    fill(tmp_path / name)
    with kafkalog.open(tmp_path / name / "orders-0") as log:
        last_ms = max(record.timestamp for record in log)
    restore_directories(tmp_path / name, tmp_path / f"{name}-then", at=last_ms)
    create_backup(tmp_path / name, f"file://{tmp_path}/{name}-store")
    restore_backup(f"file://{tmp_path}/{name}-store", tmp_path / f"{name}-again")
    for copy in ("then", "again"):
        assert offsets(tmp_path / f"{name}-{copy}" / "orders-0") == offsets(tmp_path / name / "orders-0")
    with kafkalog.open(f"file://{tmp_path}/{name}/orders-0") as log:
        assert len(list(log)) == len(offsets(tmp_path / name / "orders-0"))

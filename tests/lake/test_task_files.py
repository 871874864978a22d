"""Files that tasks of the Spark job wrote: which of them a driver deletes. The driver runs the tasks itself."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.locations import SimpleLocationProvider

import kafkalog.spark.jobs.sync as job
from kafkalog.errors import OffsetOutOfRange, PartitionNotFound
from kafkalog.lake.failures import TableChanged
from kafkalog.lake.table import WrittenFile
from tests.lake.tables import FORMATS, Lake, write
from tests.spark import killed_sync
from tests.spark.killed_sync import sync_here
from tests.transactional import made


def hosts(tmp_path: Path) -> tuple[Path, Path]:
    """The data directories of two brokers, each with two partitions of the topic."""
    write(tmp_path / "first", dict.fromkeys(range(4), 3))
    second = tmp_path / "second"
    second.mkdir()
    for number in (2, 3):
        (tmp_path / "first" / f"orders-{number}").rename(second / f"orders-{number}")
    return tmp_path / "first", second


@pytest.mark.parametrize("format", FORMATS)
def test_syncs_of_other_partitions_delete_no_file_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    lake = Lake(tmp_path / "lake", format)
    first, second = hosts(tmp_path)
    see = job._TaskFiles.see

    def after_another(self: Any, files: Any) -> None:
        see(self, files)
        monkeypatch.setattr(job._TaskFiles, "see", see)
        sync_here(second, lake.target)

    monkeypatch.setattr(job._TaskFiles, "see", after_another)
    with nullcontext() if format == "delta" else pytest.raises(TableChanged):
        sync_here(first, lake.target)
    sync_here(first, lake.target)
    assert lake.places() == [(number, offset) for number in range(4) for offset in range(3)]
    assert len(lake.stored()) == len(lake.files())


class Numbered(SimpleLocationProvider):
    """A table's own way to name files, which keeps no directories."""

    def new_data_location(self, data_file_name: str, partition_key: Any = None) -> str:
        return super().new_data_location(data_file_name.rpartition("/")[2])


def test_a_table_that_names_files_its_own_way_keeps_them(tmp_path: Path) -> None:
    lake, data = Lake(tmp_path / "lake", "iceberg"), tmp_path / "data"
    write(data, {0: 3})
    sync_here(data, lake.target)
    with lake.loaded().transaction() as change:
        change.set_properties({"write.py-location-provider.impl": f"{__name__}.Numbered"})
    for first in (3, 6):
        write(data, {0: 3}, first)
        sync_here(data, lake.target)
    assert lake.places() == [(0, offset) for offset in range(9)]


def test_a_task_that_sees_a_shorter_log_writes_nothing(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    log = made([("data", 0, 4)] * 100 + [("abort", 0, 1), ("plain", 0, 4)])
    log.write(partition)
    monkeypatch.setattr(job, "MIN_TASK_BYTES", 1 << 10)
    for name in ("FILES_PER_COMMIT", "FILES_PER_TASK", "TASKS_A_CORE"):  # a commit for each two tasks
        monkeypatch.setattr(job, name, 1)
    run, segment = killed_sync.run_here, next(partition.glob("*.log"))

    def shorter(*given: Any) -> Any:
        content = segment.read_bytes()
        os.truncate(segment, len(content) * 9 // 10)
        try:
            return run(*given)
        finally:
            segment.write_bytes(content)

    monkeypatch.setattr(killed_sync, "run_here", shorter)
    with pytest.raises(OffsetOutOfRange, match="reaches 405"):
        sync_here(tmp_path / "data", lake.target, target_file_bytes=1 << 10)
    assert lake.places() == [] and lake.stored() == []
    monkeypatch.setattr(killed_sync, "run_here", run)
    sync_here(tmp_path / "data", lake.target, target_file_bytes=1 << 10)
    assert lake.snapshots() > 1
    assert lake.places() == [(0, offset) for offset in range(401, 405)]


def test_schemas_of_a_relative_path_are_found_by_tasks_elsewhere(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data", {0: 3})
    (tmp_path / "order.json").write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    (tmp_path / "elsewhere").mkdir()
    run = killed_sync.run_here

    def elsewhere(*given: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path / "elsewhere")
            return run(*given)

    monkeypatch.setattr(killed_sync, "run_here", elsewhere)
    monkeypatch.chdir(tmp_path)
    sync_here(tmp_path / "data", lake.target, value="json", schema="order.json")
    assert lake.read()["value"].combine_chunks().field("id").to_pylist() == [0, 1, 2]


class Compared(str):
    """A path that counts how often paths are compared with it."""

    __slots__ = ()
    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str.__eq__(self, other)


def test_files_of_many_tasks_are_looked_up_and_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of a cluster has thousands of files, and each is looked for among all that the driver sees."""
    paths = [f"part-{number:05}.parquet" for number in range(500)]
    written = [WrittenFile(path, 1, 1, (), None) for path in paths]  # type: ignore[arg-type]
    files = job._TaskFiles(None)  # type: ignore[arg-type]
    monkeypatch.setattr(files, "_siblings", lambda: [Compared(path) for path in reversed(paths)])
    monkeypatch.setattr(Compared, "count", 0)
    files.see(written)
    assert files.finished == written and Compared.count <= len(paths)
    monkeypatch.setattr(files, "_siblings", lambda: paths[1:])
    with pytest.raises(PartitionNotFound, match="does not see") as failure:
        files.see(written)
    assert failure.value.path == paths[0]

"""Input files that are replaced or damaged between the survey of an import and its reading."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkalog.errors import FormatError, StorageError
from kafkalog.exchange.row_files import ordered_rows, survey, unordered_rows
from kafkalog.types import TopicPartition


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
def test_an_input_that_is_replaced_while_it_is_imported(tmp_path: Path, suffix: str) -> None:
    """Its further rows would be missed: the survey knows the groups of the file before."""
    path = tmp_path / f"rows{suffix}"
    write_rows(path, 3)
    facts = survey(str(path), {}, None)
    assert sum(len(one) for one in ordered_rows(TopicPartition("t", 0), [facts])) == 3
    other = tmp_path / "other"
    write_rows(other.with_suffix(suffix), 5)
    os.replace(other.with_suffix(suffix), path)
    for rows in (ordered_rows(TopicPartition("t", 0), [facts]), unordered_rows(facts)):
        with pytest.raises(FormatError, match="changed after the import.*run the import again"):
            list(rows)


def write_rows(path: Path, count: int) -> None:
    rows = [{"topic": "t", "partition": 0, "offset": n, "value": f"{n}"} for n in range(count)]
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".jsonl":
        lines = [{**row, "ts": 1, "key": None, "payload": "one", "headers": []} for row in rows]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
    else:
        pq.write_table(table, path)


def test_a_damaged_page_of_a_parquet_file_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_rows(path, 2000)
    facts = survey(str(path), {}, None)
    content, time_ns = bytearray(path.read_bytes()), path.stat().st_mtime_ns
    content[len(content) // 2 - 500 : len(content) // 2 + 500] = bytes(1000)
    path.write_bytes(content)
    os.utime(path, ns=(time_ns, time_ns))
    for rows in (ordered_rows(TopicPartition("t", 0), [facts]), unordered_rows(facts)):
        with pytest.raises((FormatError, StorageError), match=r"rows\.parquet"):
            list(rows)

"""Reprs show the state briefly: one line of at most 100 columns, from memory; and the names that completion offers."""

import shutil
from pathlib import Path

import pytest

import kafkalog
from tests.golden_cases import Case, each_partition


@each_partition("logdir", "legacy")
def test_batches(case: Case) -> None:
    with kafkalog.open(case.directory) as log:
        for batch in log.batches():
            text = repr(batch)
            assert len(text) <= 100 and text.startswith(f"<RecordBatch v{batch.header.magic} [")
            assert f", {batch.next_offset})" in text and "damaged" not in text
            assert ("txn" in text, "control" in text) == (batch.header.is_transactional, batch.header.is_control)
            assert (f"pid {batch.header.producer_id}/" in text) == (batch.header.producer_id >= 0)


def test_a_batch_tells_what_matters_and_that_it_is_damaged(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        log.append([b"value" * 100] * 3, compression="zstd")
        (batch,) = log.batches()
        assert repr(batch) == f"<RecordBatch v2 [0, 3) 3 records {batch.size} B zstd>"
        log.append([b"x"])
        data = bytearray(bytes(list(log.batches())[1]))
    from kafkalog.records.memory import MemoryRecords

    data[-1] ^= 1
    (damaged,) = MemoryRecords(data).batches()
    assert repr(damaged) == f"<RecordBatch v2 [3, 4) 1 record {len(data)} B damaged>"


def test_directories_from_memory(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "users-0"):
        kafkalog.open(tmp_path / "data" / name, "a").close()
    with kafkalog.open_dirs(tmp_path / "data") as dirs:
        expected = f"<LogDirs 2 topics 3 partitions r {tmp_path / 'data'}>"
        assert repr(dirs) == expected
        assert dirs._ipython_key_completions_() == [("orders", 0), ("orders", 1), ("users", 0)]
        kafkalog.open(tmp_path / "data" / "users-1", "a").close()
        assert repr(dirs) == expected
        assert len(dirs) == 4 and "4 partitions" in repr(dirs)
        shutil.rmtree(tmp_path / "data")
        assert "4 partitions" in repr(dirs)


def test_completion_offers_what_is_public() -> None:
    offered = [name for name in dir(kafkalog) if not name.startswith("_")]
    assert offered == sorted(name for name in kafkalog.__all__ if not name.startswith("_"))
    for name in ("segments", "index", "producers", "epochs", "aborted_txns", "stats", "plot"):
        assert name in dir(kafkalog.Log)
        assert getattr(kafkalog.Log, name).__doc__


@pytest.mark.parametrize("name", ["segments", "index", "producers", "epochs", "aborted_txns"])
def test_tables_show_themselves_without_the_disk(tmp_path: Path, name: str) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        log.append([b"x"])
    with kafkalog.open(tmp_path / "data" / "t-0") as log:
        table, stats = getattr(log, name), log.stats()
        before = repr(table), repr(stats), table._repr_html_()
        shutil.rmtree(tmp_path / "data")
        assert (repr(table), repr(stats), table._repr_html_()) == before


def test_a_notebook_shows_logs_records_and_tables(tmp_path: Path) -> None:
    """As HTML, in which nothing of a record is markup."""
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        log.append([(b"<i>", b"<script>", 1000, [("<h>\u202e", b"&")]), *[(b"k", b"x" * 500, 2000)] * 24])
        record, last, table = log[0], log[1], log.table(["key", "value", "offset"])
        shown = record._repr_html_()
        for text in ("&#x27;&lt;i&gt;&#x27;", "&lt;script&gt;", "&lt;h&gt;\\u202e", "&#x27;&amp;&#x27;", "T00:00:01Z"):
            assert text in shown
        assert "x" * 200 + "&#x27;... 500 B" in last._repr_html_()
        assert "<td>0</td></tr>" in table._repr_html_() and "<p>the first 20 of 25 records</p>" in table._repr_html_()
        assert "x" * 75 + "..." in table._repr_html_() and "<p>5 records</p>" in table[:5]._repr_html_()
        for html in (shown, table._repr_html_()):
            assert "<script>" not in html and "<i>" not in html and "\u202e" not in html
        for text in ("t-0", "[0, 25)", str(tmp_path)):
            assert text in log._repr_html_()
    assert "t-0</td><td>closed" in log._repr_html_()

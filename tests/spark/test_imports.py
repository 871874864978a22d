"""Imports of Spark's workers: each step of a plan is a new Python, which waits for all of its imports."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")


def imported_modules(code: str) -> set[str]:
    """Return the kafkalog modules that a new Python has imported after the code."""
    code = f"{code}\nimport sys\nprint(*(name for name in sys.modules if name.startswith('kafkalog')))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_the_schema_needs_neither_files_nor_the_sink() -> None:
    code = "from pyspark_kafkalog import DefaultSource\nDefaultSource({'path': '/d', 'subscribe': 'a'}).schema()"
    found = imported_modules(code)
    assert "kafkalog.spark.source" in found
    assert not {name for name in found if name.startswith(("kafkalog.storage.log", "kafkalog.manager"))}
    assert not found & {"kafkalog.log.log", "kafkalog.reading.source", "kafkalog.spark.sink", "kafkalog.spark.stream"}


def test_a_plan_of_a_batch_needs_neither_the_writing_log_nor_the_sink(tmp_path) -> None:
    (tmp_path / "a-0").mkdir()
    code = f"""
from pyspark_kafkalog import DefaultSource
source = DefaultSource({{'path': {str(tmp_path)!r}, 'subscribePattern': 'nothing'}})
class Schema: fields = ()
assert source.reader(Schema).partitions() == []
"""
    found = imported_modules(code)
    assert "kafkalog.spark.batch_plan" in found
    assert not found & {"kafkalog.spark.sink", "kafkalog.spark.stream", "kafkalog.storage.log"}

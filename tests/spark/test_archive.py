"""The archive that brings the package to executors, without Spark."""

import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from kafkalog.errors import MissingRequirement
from kafkalog.spark.archive import closure, files_of, write_archive
from tests.commands import kafkalog, ok
from tests.golden_cases import unpack

pytest.importorskip("pyspark", reason="PySpark is not installed")


def test_what_an_executor_needs_is_found_by_what_is_installed() -> None:
    names = closure()
    assert {"numpy", "cramjam", "zstandard", "pyarrow", "pandas", "python-dateutil"} <= set(names)
    assert not {"pyspark", "py4j", "kafkalog", "pytest", "textual"} & set(names)


def test_the_package_can_be_imported_from_what_is_in_the_archive(tmp_path: Path) -> None:
    written = write_archive(tmp_path / "env.tar.gz", dependencies=False)
    assert written.distributions == ("kafkalog",) and written.size == written.path.stat().st_size
    with tarfile.open(written.path) as tar:
        assert len(tar.getnames()) == written.files
    unpack(written.path, tmp_path / "env")
    look = f"import sys; sys.path.insert(0, {str(tmp_path / 'env')!r}); import kafkalog._core.batch.scan as found"
    said = subprocess.run(
        [sys.executable, "-I", "-c", f"{look}; print(found.__file__)"], capture_output=True, text=True, cwd=tmp_path
    )
    assert said.stdout.startswith(str(tmp_path / "env" / "kafkalog" / "_core")), said.stderr
    assert (tmp_path / "env" / "pyspark_kafkalog" / "__init__.py").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["env", "env.tar.gz"]


def test_the_files_of_a_dependency_keep_their_places() -> None:
    found = {name: path for path, name in files_of("click")}
    assert found["click/__init__.py"].samefile(str(metadata.distribution("click").locate_file("click/__init__.py")))


def test_a_condition_that_does_not_hold_here_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["nor-this; sys_platform == 'zx81'", "click; extra == 'spark'", "numpy; extra == 'viz'"]
    monkeypatch.setattr(metadata, "requires", lambda name: lines if name == "kafkalog" else [])
    assert closure() == ["click"]


def test_a_dependency_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["surely-not-there>=1"] if name == "kafkalog" else [])
    with pytest.raises(MissingRequirement, match=r"surely-not-there is not installed here.*kafkalog\[spark\]"):
        closure()


def test_a_dependency_that_does_not_list_its_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "unlisted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: unlisted\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    real = metadata.requires
    monkeypatch.setattr(metadata, "requires", lambda name: ["unlisted"] if name == "kafkalog" else real(name))
    with pytest.raises(MissingRequirement, match=r"unlisted is installed without a list of its files"):
        write_archive(tmp_path / "env.tar.gz")
    assert not list(tmp_path.glob("env*"))


def test_the_command_tells_what_to_give_to_spark(tmp_path: Path) -> None:
    said = ok("spark", "archive", "--bare", tmp_path / "env.tar.gz").decode()
    assert said.endswith(
        f"--conf spark.archives={tmp_path}/env.tar.gz#env --conf spark.executorEnv.PYTHONPATH=env\n"
    )
    failed = kafkalog("spark", "archive", "--bare", tmp_path / "nowhere" / "env.tar.gz")
    assert failed.returncode == 1 and b"Traceback" not in failed.stderr and b"nowhere" in failed.stderr

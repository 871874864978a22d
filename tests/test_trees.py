"""The package under test: the tests refuse another one than the wheel's."""

import os
import subprocess
import sys
from pathlib import Path

from tests.trees import PACKAGE, ROOT, SOURCES, WHEEL, wrong_package


def test_the_package_is_the_one_that_is_to_be_tested() -> None:
    import kafkalog

    assert wrong_package() is None
    assert Path(kafkalog.__file__).parent == PACKAGE
    assert (SOURCES / "kafkalog" / "_core" / "bytes" / "crc.pyx").is_file() and (SOURCES / "setup.py").is_file()
    assert WHEEL is None or not (ROOT / "kafkalog").exists()


def test_a_package_from_elsewhere_is_refused(tmp_path: Path) -> None:
    """KAFKALOG_WHEEL says that an installed wheel is tested; a package that merely lies in the path is none."""
    (tmp_path / "kafkalog").mkdir()
    (tmp_path / "kafkalog" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_times.py"],
        env={**os.environ, "KAFKALOG_WHEEL": "some.whl", "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 4 and "kafkalog is imported from" in done.stderr

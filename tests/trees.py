"""Paths: the tests and the files beside them, the package under test, and the sources it was built from.

In a clone the three are one tree. Against an installed wheel (ci/test_wheel.sh) the tests lie in a directory without
the package: KAFKALOG_WHEEL names the wheel and KAFKALOG_SOURCES the tree that it was built from, for the tests of the
sources.
"""

import importlib.util
import os
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""What has tests, docs, examples and README.md in it; Python finds the tests there."""
SOURCES = Path(os.environ.get("KAFKALOG_SOURCES") or ROOT)
"""The tree with the sources: the package's, setup.py, and all the rest."""
WHEEL = Path(os.environ["KAFKALOG_WHEEL"]) if os.environ.get("KAFKALOG_WHEEL") else None
"""The wheel whose files are tested; None for the package in the tree."""


def package() -> Path:
    """The folder of the package as Python finds it; it is not imported for that."""
    found = importlib.util.find_spec("kafkalog")
    assert found is not None and found.origin is not None, "kafkalog is neither installed nor in this tree"
    return Path(found.origin).parent


PACKAGE = package()


def wrong_package() -> str | None:
    """Why the package is not the one that is to be tested; None where it is."""
    installed = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    if WHEEL is not None and PACKAGE.parent not in installed:
        return f"KAFKALOG_WHEEL is set, but kafkalog is imported from {PACKAGE.parent}, not from {installed}"
    return None

"""Compiled modules: bytes, batches and records without an object each. ImportError where they were not built."""

import sys
from importlib import import_module

try:
    import_module("kafkalog._core.log.values")  # one of them, a small one: they are built together
except ModuleNotFoundError as error:
    if error.name != "kafkalog._core.log.values":
        raise
    raise ImportError(
        f"kafkalog's compiled modules are not there for {sys.implementation.name} {sys.version_info[0]}."
        f"{sys.version_info[1]} on {sys.platform}. Hint: pip install kafkalog; in its source tree, "
        f"{sys.executable or 'python'} setup.py build_ext --inplace",
        name=error.name,
    ) from None

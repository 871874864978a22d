"""Kafka's log layer as a Python library: read and write partition directories without a broker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    from kafkalog._version import __version__
except ModuleNotFoundError:
    raise ImportError(
        "this source tree of kafkalog was not built. Hint: pip install kafkalog; in the tree, "
        "python setup.py build_ext --inplace"
    ) from None

if TYPE_CHECKING:
    from kafkalog import aio as aio
    from kafkalog import control as control
    from kafkalog import decoders as decoders
    from kafkalog import duckdb as duckdb
    from kafkalog import errors as errors
    from kafkalog import hooks as hooks
    from kafkalog import metrics as metrics
    from kafkalog import polars as polars
    from kafkalog import queue as queue
    from kafkalog import values as values
    from kafkalog import where as where
    from kafkalog._core.batch.record import Record as Record
    from kafkalog.config.broker import BrokerConfig as BrokerConfig
    from kafkalog.dirs.log_dirs import LogDirs as LogDirs
    from kafkalog.dirs.open import open_dirs as open_dirs
    from kafkalog.log.log import Log as Log
    from kafkalog.log.open import open as open
    from kafkalog.log.slice import LogSlice as LogSlice
    from kafkalog.records.batch import RecordBatch as RecordBatch
    from kafkalog.records.convert import convert as convert
    from kafkalog.tools.repair.directories import repair as repair
    from kafkalog.tools.verify.directories import verify as verify
    from kafkalog.types import EARLIEST_TIMESTAMP as EARLIEST
    from kafkalog.types import LATEST_TIMESTAMP as LATEST
    from kafkalog.types import OffsetAndTimestamp as OffsetAndTimestamp
    from kafkalog.types import TopicPartition as TopicPartition
    from kafkalog.util.descriptors import DESCRIPTORS as open_files

_MODULES = ("aio", "control", "decoders", "duckdb", "errors", "hooks", "metrics", "polars", "queue", "values", "where")
_NAMES = {
    "BrokerConfig": ("config.broker", "BrokerConfig"),
    "EARLIEST": ("types", "EARLIEST_TIMESTAMP"),
    "LATEST": ("types", "LATEST_TIMESTAMP"),
    "Log": ("log.log", "Log"),
    "LogDirs": ("dirs.log_dirs", "LogDirs"),
    "LogSlice": ("log.slice", "LogSlice"),
    "OffsetAndTimestamp": ("types", "OffsetAndTimestamp"),
    "Record": ("_core.batch.record", "Record"),
    "RecordBatch": ("records.batch", "RecordBatch"),
    "TopicPartition": ("types", "TopicPartition"),
    "convert": ("records.convert", "convert"),
    "open": ("log.open", "open"),
    "open_dirs": ("dirs.open", "open_dirs"),
    "open_files": ("util.descriptors", "DESCRIPTORS"),
    "repair": ("tools.repair.directories", "repair"),
    "verify": ("tools.verify.directories", "verify"),
}

__all__ = [
    "EARLIEST", "LATEST", "BrokerConfig", "Log", "LogDirs", "LogSlice", "OffsetAndTimestamp", "Record", "RecordBatch",
    "TopicPartition", "__version__", "aio", "control", "convert", "decoders", "duckdb", "errors", "hooks", "metrics",
    "open", "open_dirs", "open_files", "polars", "queue", "repair", "values", "verify", "where",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import kafkalog` alone loads nothing more."""
    if name in _MODULES:
        return import_module(f"kafkalog.{name}")
    if name in _NAMES:
        module, attribute = _NAMES[name]
    else:
        errors = import_module("kafkalog.errors")
        if not (name[:1].isupper() and isinstance(getattr(errors, name, None), type)):
            raise AttributeError(f"module 'kafkalog' has no attribute {name!r}")
        module, attribute = "errors", name
    value = getattr(import_module(f"kafkalog.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

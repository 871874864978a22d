"""Logs opened with a file system, a clock or a scheduler of the test, and what a log holds."""

import os
from collections.abc import Mapping
from typing import Any

import kafkalog
from kafkalog.log.open_writable import open_for_append


def open_log(
    path: str | os.PathLike[str], settings: Mapping[str, object] | None = None, **options: Any
) -> kafkalog.Log:
    """Open a partition to append; `options` are those of `open_for_append`."""
    opened = open_for_append(path, settings, **options)
    return kafkalog.Log(opened.log, opened)


def read_values(path: str | os.PathLike[str]) -> list[bytes | None]:
    """Return the values of all records of a partition, read by another log."""
    with kafkalog.open(path) as log:
        return [record.value for record in log]

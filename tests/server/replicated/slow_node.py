"""The `kafkalog` command on a disk that is slow while a file says so: its writes and syncs wait.

    KAFKALOG_SLOW_DISK=FILE python -m tests.server.replicated.slow_node serve ...

The file has the seconds that each call waits; without it the disk is as it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from kafkalog.util.fileio import FileSystem

VARIABLE = "KAFKALOG_SLOW_DISK"
CALLS = ("pwrite", "pwritev", "fsync", "fdatasync")


def slowed(call: Callable[..., Any], path: str) -> Callable[..., Any]:
    def slow(*arguments: Any) -> Any:
        try:
            with open(path, encoding="ascii") as file:
                time.sleep(float(file.read() or 0))
        except FileNotFoundError:
            pass
        return call(*arguments)

    return slow


if __name__ == "__main__":
    for name in CALLS:
        setattr(FileSystem, name, staticmethod(slowed(getattr(FileSystem, name), os.environ[VARIABLE])))
    from kafkalog.cli.main import main

    main()

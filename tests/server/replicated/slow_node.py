"""The `kafkalog` command on a disk that is slow while a file says so: its writes and syncs wait.

    KAFKALOG_SLOW_DISK=FILE python -m tests.server.replicated.slow_node serve ...

The file has the seconds that each call waits; without it the disk is as it is.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from kafkalog.util.fileio import FileSystem

VARIABLE = "KAFKALOG_SLOW_DISK"
PARENT = "KAFKALOG_TRIAL_PROCESS"
CALLS = ("pwrite", "pwritev", "fsync", "fdatasync")
ANSWER_S = 1.0
"""All nodes are on this host: one that has not answered by then is cut off, and who asks for votes goes on."""


def slowed(call: Callable[..., Any], path: str) -> Callable[..., Any]:
    def slow(*arguments: Any) -> Any:
        try:
            with open(path, encoding="ascii") as file:
                time.sleep(float(file.read() or 0))
        except FileNotFoundError:
            pass
        return call(*arguments)

    return slow


def end_with(parent: int) -> None:
    """Ends this process when the trial is gone, however that ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    if PARENT in os.environ:
        threading.Thread(target=end_with, args=(int(os.environ[PARENT]),), daemon=True).start()
    for name in CALLS:
        setattr(FileSystem, name, staticmethod(slowed(getattr(FileSystem, name), os.environ[VARIABLE])))
    from kafkalog.cli.main import main
    from kafkalog.server.quorum.poll import Poll

    Poll.ask.__defaults__ = Poll.describe.__defaults__ = (ANSWER_S,)
    main()

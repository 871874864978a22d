"""The process that is killed: it does random operations and says in a file, unbuffered, what it began and what is done.

    python -m tests.crash.killed     takes lines `partition report seed`, starts a writer for each, and says
                                     "ready <process id>" when it has begun and "ended <status>" when it is gone
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

from kafkalog.errors import UnsafeFileSystem
from tests.crash.session import Operation, Session

STEPS = 5000


def write(partition: str, report: str, seed: str) -> None:
    """Runs a session to its end, unless somebody kills it before."""
    said = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(what: str, operation: Operation, answer: tuple[int, int] | None) -> None:
        os.write(said, json.dumps([what, operation, answer]).encode() + b"\n")

    session = Session(Path(partition), int(seed), report=tell)
    os.write(1, b"ready %d\n" % os.getpid())
    for _ in range(STEPS):
        session.step()


def serve() -> None:
    """Forks a writer for each line of standard input, and waits for its end."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                write(*line.split())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        os.write(1, b"ended %d\n" % status)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore", UnsafeFileSystem)
    serve()

"""The process that is killed: it does random operations and says in a file, unbuffered, what it began and what is done.

    python -m tests.crash.killed     takes lines `kind partition report seed`, starts a writer for each, and says
                                     "ready <process id>" when it has begun and "ended <status>" when it is gone

A writer of kind "session" does random operations, one of kind "clean" appends and cleans.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from random import Random

from kafkalog.errors import UnsafeFileSystem
from kafkalog.util.clock import MockClock
from tests.cleaner.histories import NOW, History, opened, random_history
from tests.crash.session import Operation, Session

STEPS = 5000
EVENTS = 400
PAUSE_S = 0.001
"""Between events, so that a writer is not through before it is killed."""


def write(partition: str, report: str, seed: str) -> None:
    """Runs a session to its end, unless somebody kills it before."""
    said = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(what: str, operation: Operation, answer: tuple[int, int] | None) -> None:
        os.write(said, json.dumps([what, operation, answer]).encode() + b"\n")

    session = Session(Path(partition), int(seed), report=tell)
    os.write(1, b"ready %d\n" % os.getpid())
    for _ in range(STEPS):
        session.step()


def history_of(seed: int) -> History:
    """What a writer of kind "clean" appends."""
    return random_history(Random(f"killed {seed}"), most=EVENTS, least=EVENTS)


def clean(partition: str, report: str, seed: str) -> None:
    """Appends a history while it cleans what is there, again and again, until somebody kills it."""
    said = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    history = history_of(int(seed))
    log = opened(Path(partition), MockClock(NOW), internal_segment_bytes=history.segment_bytes)
    os.write(1, b"ready %d\n" % os.getpid())

    def append() -> None:
        for number in range(len(history.events)):
            history.append(log, number, number + 1)
            os.write(said, b"appended %d\n" % (number + 1))
            time.sleep(PAUSE_S)

    threading.Thread(target=append).start()
    while True:
        os.write(said, b"clean\n")
        log.compact()
        os.write(said, b"cleaned\n")


KINDS = {"session": write, "clean": clean}


def serve() -> None:
    """Forks a writer for each line of standard input, and waits for its end."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            kind, *given = line.split()
            try:
                KINDS[kind](*given)
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

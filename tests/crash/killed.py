"""The process that is killed: it does random operations and says in a file, unbuffered, what it began and what is done.

    python -m tests.crash.killed     takes lines `kind partition report seed`, starts a writer for each, and says
                                     "ready <process id>" when it has begun and "ended <status>" when it is gone

A writer of kind "session" does random operations, one of kind "clean" appends and cleans, one of kind "store" appends
to a store that cleans in the background.
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
from typing import Any

import kafkalog
from kafkalog.cleaner.types import CleanResult
from kafkalog.errors import UnsafeFileSystem
from kafkalog.manager import cleaning
from kafkalog.types import TopicPartition
from tests.cleaner.histories import NOW, History, opened, random_history
from tests.crash.session import Operation, Session
from tests.crash.stored import AGED, histories_of, make_topics
from tests.mock_time import MockClock

STEPS = 5000
EVENTS = 400
PAUSE_S = 0.001
"""Between events, so that a writer is not through before it is killed."""
OLD_OFFSETS = 150
LONGEST_PAUSE_S = 0.03
RESTLESS = {
    "log.cleaner.backoff.ms": 1,
    "log.cleaner.threads": 2,
    "log.initial.task.delay.ms": 0,
    "log.retention.check.interval.ms": 5,
    "log.flush.scheduler.interval.ms": 20,
    "log.flush.offset.checkpoint.interval.ms": 10,
    "log.segment.delete.delay.ms": 10,
}
"""A store whose cleaner and other jobs hardly ever wait."""


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
    """Return the history that a writer of kind "clean" appends."""
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


def store(partition: str, report: str, seed: str) -> None:
    """Appends to each partition of a store, and deletes from one, while its cleaner works, until somebody kills it."""
    said = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    histories, rng = histories_of(int(seed), EVENTS), Random(f"deletes {seed}")

    def observed(*given: Any, **more: Any) -> CleanResult:
        os.write(said, b"clean\n")
        try:
            return clean_one(*given, **more)
        finally:
            os.write(said, b"cleaned\n")

    clean_one, cleaning.clean = cleaning.clean, observed
    dirs = kafkalog.open_dirs(Path(partition).parent, "a", **RESTLESS)
    make_topics(dirs, histories, time.time_ns() // 10**6, OLD_OFFSETS)

    def append(key: TopicPartition, history: History) -> None:
        for number in range(len(history.events)):
            history.append(dirs[key], number, number + 1)
            os.write(said, f"appended {key.topic} {key.partition} {number + 1}\n".encode())
            time.sleep(PAUSE_S)

    os.write(1, b"ready %d\n" % os.getpid())
    for key, history in histories.items():
        threading.Thread(target=append, args=(key, history)).start()
    log = dirs[AGED, 0]
    while True:
        time.sleep(rng.random() * LONGEST_PAUSE_S)
        before = rng.randint(log.start_offset, max(log.start_offset, log.end_offset // 2))
        os.write(said, b"delete %d\n" % before)
        log.delete_before(before)


KINDS = {"session": write, "clean": clean, "store": store}


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
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore", UnsafeFileSystem)
    serve()

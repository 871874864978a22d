"""A Ctrl-C at a chosen moment of a call: Python looks for one where a function begins, and after a call into C."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import kafkalog

_OURS = os.path.dirname(os.path.abspath(kafkalog.__file__))


def interrupted_at(moment: int, call: Callable[[], Any], files: tuple[str, ...] = (_OURS,)) -> bool | None:
    """Return True if a Ctrl-C at the `moment`-th place (from 1) in `files` ended the call; None without such a place.

    Return False if it came and the call finished.
    """
    left = moment

    def strike(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(files):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.setprofile(strike)
        try:
            call()
        finally:
            sys.setprofile(None)
        return False if left <= 0 else None
    except KeyboardInterrupt:
        return True
    finally:
        signal.signal(signal.SIGINT, before)


def _probe(lock: threading.Lock) -> None:
    with lock:
        pass


def with_is_whole() -> bool:
    """Return True if a `with lock:` always frees the lock on a Ctrl-C: in CPython 3.14 it may not (its gh-148874)."""
    moment = 1
    while True:
        lock = threading.Lock()
        if interrupted_at(moment, functools.partial(_probe, lock), (__file__,)) is None:
            return True
        if lock.locked():
            return False
        moment += 1

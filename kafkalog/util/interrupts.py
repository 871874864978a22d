"""Signals: deferred during a step that must not be interrupted half-way, and sent again where Python lost one."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps: that makes an enum of each handler, 12 us
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType

RESEND_SECONDS = 0.01

Handler = Callable[[int, FrameType | None], object]


class deferred_interrupts:
    """Context manager that defers SIGINT (or another signal): its handler runs at the end of the block.

    It does nothing outside of the main thread, the only one that Python interrupts, and for a signal without a Python
    handler. Blocks nest. Costs about a microsecond: meant for opening, closing, rolling and truncating a log, not for a
    single append.
    """

    __slots__ = ("_handler", "_pending", "_signum")

    def __init__(self, signum: int = signal.SIGINT) -> None:
        self._signum = signum
        self._handler: Handler | None = None
        self._pending = False

    def _remember(self, signum: int, frame: FrameType | None) -> None:
        self._pending = True

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handler = _signal.getsignal(self._signum)
        if not callable(handler):
            return
        self._handler = handler
        try:
            _signal.signal(self._signum, self._remember)
        except ValueError:  # not the main interpreter: its main thread is never interrupted
            self._handler = None

    def run_pending(self) -> None:
        """Run the handler of a deferred signal, at a place inside the block where the work may be interrupted."""
        if self._pending and self._handler is not None and threading.current_thread() is threading.main_thread():
            self._pending = False
            self._handler(self._signum, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handler, self._handler = self._handler, None
        if handler is None:
            return
        _signal.signal(self._signum, handler)
        if self._pending:
            self._pending = False
            handler(self._signum, None)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Hold back SIGTERM, SIGINT and SIGHUP in the block; the function that it gets returns True after one of them.

    For a command that chooses where it ends its work. Signals that are ignored stay so. Main thread only.
    """
    received: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda signum, frame: received.append(signum))
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def resend_lost_signals(signums: Mapping[type[BaseException], int]) -> None:
    """Send the signal of an exception type in `signums` again each time that Python loses such an exception.

    Python reports and drops what a signal's handler raises during a finalizer or a weak reference's callback. For the
    entry point of a program: takes `sys.unraisablehook` and SIGALRM.
    """
    report = sys.unraisablehook
    lost: list[int] = []

    def on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        signum = signums.get(unraisable.exc_type)
        if signum is None:
            report(unraisable)
            return
        lost.append(signum)
        signal.setitimer(signal.ITIMER_REAL, RESEND_SECONDS)  # a thread could wait for a lock that is held here

    def on_alarm(signum: int, frame: FrameType | None) -> None:
        while lost:
            signal.raise_signal(lost.pop())

    signal.signal(signal.SIGALRM, on_alarm)
    sys.unraisablehook = on_unraisable

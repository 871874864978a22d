"""Holding back Ctrl-C over a step that must not stop half-way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

Handler = Callable[[int, FrameType | None], object]


class deferred_interrupts:
    """Context in which SIGINT (or another signal) waits: its handler runs when the block ends, however it ends.

    Only the main thread is ever interrupted by Python, so elsewhere, and where the signal has no Python
    handler, this does nothing. Blocks nest. Costs about a microsecond: meant for opening, closing,
    rolling and cutting a log, not for a single append.
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
        handler = signal.getsignal(self._signum)
        if not callable(handler):
            return
        self._handler = handler
        try:
            signal.signal(self._signum, self._remember)
        except ValueError:  # not the main interpreter: its main thread is never interrupted
            self._handler = None

    def let_through(self) -> None:
        """Run the handler of a signal that waits, at a place inside the block where the work may stop half-way."""
        if self._pending and self._handler is not None and threading.current_thread() is threading.main_thread():
            self._pending = False
            self._handler(self._signum, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handler, self._handler = self._handler, None
        if handler is None:
            return
        signal.signal(self._signum, handler)
        if self._pending:
            self._pending = False
            handler(self._signum, None)

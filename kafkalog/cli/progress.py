"""A progress line on stderr for work that lasts, and nothing for work that does not."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kafkalog.storage.recovery_run import RecoveryProgress

SHOW_AFTER_S = 1.0


class Meter:
    """Counts bytes; after a second of work it shows a bar, if stderr is a terminal and `quiet` is not set.

    rich honours NO_COLOR and dumb terminals by itself; it is imported only when the bar appears.
    """

    def __init__(self, what: str, total: int | None, *, quiet: bool) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self.shown = not quiet and sys.stderr.isatty()

    def add(self, count: int) -> None:
        """Notes `count` more bytes of work."""
        self._done += count
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)
        elif self.shown and time.monotonic() - self._began > SHOW_AFTER_S:
            self._show()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._total, completed=self._done)

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


class RecoveryMeter:
    """A bar for the recovery of one log, where there is one and it lasts; `tell` is called by whoever recovers."""

    def __init__(self, name: str, *, quiet: bool) -> None:
        self._what = f"recover {name}"
        self._quiet = quiet
        self._meter: Meter | None = None
        self._told = 0

    def tell(self, progress: RecoveryProgress) -> None:
        """Notes how far the recovery is."""
        if self._meter is None:
            self._meter = Meter(self._what, progress.bytes, quiet=self._quiet)
        self._meter.add(progress.bytes_done - self._told)
        self._told = progress.bytes_done

    def __enter__(self) -> RecoveryMeter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._meter is not None:
            self._meter.__exit__(kind, error, trace)


class TaskMeter:
    """Tasks done and in all, on a terminal after a second of work; `tell` may be called from another thread."""

    def __init__(self, what: str, *, quiet: bool) -> None:
        self._what = what
        self._began = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self.shown = not quiet and sys.stderr.isatty()

    def tell(self, progress: tuple[int, int]) -> None:
        """Notes (tasks done, tasks in all) as they are now."""
        done, total = progress
        if self._bar is None and self.shown and time.monotonic() - self._began > SHOW_AFTER_S:
            self._show()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total or None)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("tasks"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=None)

    def __enter__(self) -> TaskMeter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

"""A progress bar on stderr for work that takes longer than a second."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from kafkalog.cli.common import is_quiet

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from kafkalog.storage.recovery.recover_log import RecoveryProgress

SHOW_AFTER_S = 1.0


class _Bar:
    """A bar that appears after a second of work, if stderr is a terminal, without `quiet` and the command's -q.

    rich honours NO_COLOR and dumb terminals by itself; it is imported only when the bar appears.
    """

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what = what
        self._start_time = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self.shown = not quiet and not is_quiet() and sys.stderr.isatty()

    def _is_due(self) -> bool:
        return self._bar is None and self.shown and time.monotonic() - self._start_time > SHOW_AFTER_S

    def _show(self, *columns: ProgressColumn, total: int | None, completed: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        described = (TextColumn("{task.description}"), BarColumn())
        self._bar = Progress(
            *described, *columns, console=Console(stderr=True), transient=True,
            redirect_stdout=sys.stdout.isatty(),  # otherwise redirected output would go to the terminal
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=total, completed=completed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


class Meter(_Bar):
    """Counts bytes of work, shown as a bar with a rate."""

    def __init__(self, what: str, total: int | None, *, quiet: bool = False) -> None:
        super().__init__(what, quiet=quiet)
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        """Add `count` bytes of finished work."""
        self._done += count
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)
        elif self._is_due():
            from rich.progress import DownloadColumn, TransferSpeedColumn

            self._show(DownloadColumn(), TransferSpeedColumn(), total=self._total, completed=self._done)


class RecoveryMeter:
    """A bar for the recovery of one log, if it takes longer than a second; the recovery calls `tell`."""

    def __init__(self, name: str) -> None:
        self._what = f"recover {name}"
        self._quiet = is_quiet()  # not asked for in `tell`: another thread has no command
        self._meter: Meter | None = None
        self._reported = 0

    def tell(self, progress: RecoveryProgress) -> None:
        """Update the progress of the recovery."""
        if self._meter is None:
            self._meter = Meter(self._what, progress.bytes, quiet=self._quiet)
        self._meter.add(progress.bytes_done - self._reported)
        self._reported = progress.bytes_done

    def __enter__(self) -> RecoveryMeter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._meter is not None:
            self._meter.__exit__()


class TaskMeter(_Bar):
    """A bar of finished and total tasks; `tell` may be called from another thread."""

    def tell(self, progress: tuple[int, int]) -> None:
        """Update the (finished, total) tasks."""
        done, total = progress
        if self._is_due():
            from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

            self._show(MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn(), total=None)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total or None)

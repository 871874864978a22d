"""`kafkalog consume -G`: stored positions of the partitions, by name."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import click

from kafkalog.cli import common

if TYPE_CHECKING:
    from kafkalog.cursors.cursor import Cursor
    from kafkalog.cursors.place import Reset
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.tools.offsets import Bounds

_RESETS: Final[dict[str | None, Reset]] = {
    None: "error", "none": "error", "error": "error", "earliest": "earliest", "latest": "latest",
}  # fmt: skip


class Group:
    """The cursors of one name, one for each partition."""

    step: Final = 500_000
    """Offsets to print between two checks of the clock: the position is committed every few seconds."""

    def __init__(self, name: str, store: str | None, reset: str | None, isolation: str | None) -> None:
        from kafkalog.cursors.store import check_cursor_name

        if reset not in _RESETS:
            raise click.BadParameter(f"{reset!r} is not earliest, latest or none", param_hint="-X auto.offset.reset")
        with common.usage_of("-G"):
            self.name = check_cursor_name(name)
        self._store = store
        self._reset = _RESETS[reset]
        self._isolation = isolation
        self._cursors: dict[str, Cursor] = {}

    def open(self, views: list[LogView], bounds: Bounds, stack: ExitStack) -> list[int]:
        """Return the offset to continue from, for each partition; `stack` closes the cursors at the end."""
        for view in views:
            cursor = self._open_cursor(view, bounds)
            stack.callback(cursor.close)
            self._cursors[view.path] = cursor
            if cursor.lost is not None:
                text = f"note: {view.name}: {cursor.lost}; cursor {self.name} continues at {cursor.position}"
                common.note(text)
        return [self._cursors[view.path].position for view in views]

    def _open_cursor(self, view: LogView, bounds: Bounds) -> Cursor:
        from kafkalog.cursors.cursor import Options, open_cursor
        from kafkalog.cursors.store import CursorStore
        from kafkalog.errors import IllegalArgument
        from kafkalog.reading.source import end_of, isolation_of

        start: int | str = "earliest" if self._reset == "error" else self._reset
        has_start = bounds.start is not None or bounds.since_ms is not None
        if CursorStore(self._store).read(view.path, self.name) is None:
            if bounds.start == "stored":
                hint = "without -o stored, a new cursor starts at the beginning"
                raise IllegalArgument(f"cursor {self.name} of {view.name} has no position", hint=hint)
            if has_start:
                start = bounds.first_offset(view, end_of(view, isolation_of(self._isolation)))
        elif has_start and bounds.start != "stored":
            name = f"cursor {self.name} of {view.name}"
            text = f"note: {name} has a position; -o is only for new cursors (see offsets reset)"
            common.note(text)
        options = Options(start=start, reset=self._reset, isolation=self._isolation)
        return open_cursor(view, self.name, options, store=self._store)

    def written(self, view: LogView, next_offset: int) -> None:
        """Record that all before `next_offset` is printed; it is committed every few seconds, and at the end."""
        cursor = self._cursors[view.path]
        cursor.advance(next_offset)
        cursor.processed()

    def idle(self) -> None:
        """Commit positions if a commit is due, without new records."""
        for cursor in self._cursors.values():
            cursor.processed()

"""The table of the browser: one screenful of rows, which asks for another one at its edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding
from textual.events import Resize
from textual.widgets import DataTable

if TYPE_CHECKING:
    from kafkalog.browse.app import BrowseApp

__all__ = ["Pages"]


class Pages(DataTable[Any]):
    """A table that has one screenful, and asks for another one at its edges."""

    app: BrowseApp
    BINDINGS: ClassVar[Any] = [
        Binding("enter,right", "open", "in"), Binding("left,backspace", "back", "out"),
        Binding("home,g", "edge(False)", "first"), Binding("end,G", "edge(True)", "last"),
        Binding("pagedown,space", "turn(True)", "on"), Binding("pageup,b", "turn(False)", "back"),
        Binding("j", "cursor_down", "down"), Binding("k", "cursor_up", "up"),
    ]  # fmt: skip

    def on_resize(self, event: Resize) -> None:
        """The table has its size: so many rows are read."""
        self.app.resized()

    def action_cursor_down(self) -> None:
        """The next row, or the screenful that begins one row further on."""
        if self.cursor_row < self.row_count - 1:
            super().action_cursor_down()
        else:
            self.app.step(forward=True)

    def action_cursor_up(self) -> None:
        """The row before, or the screenful that begins one row earlier."""
        if self.cursor_row > 0:
            super().action_cursor_up()
        else:
            self.app.step(forward=False)

    def action_open(self) -> None:
        """What is in the row."""
        self.app.open_row()

    def action_back(self) -> None:
        """The level around this one."""
        self.app.action_out()

    def action_edge(self, last: bool) -> None:
        """The first screenful, or the last."""
        self.app.edge(last=last)

    def action_turn(self, forward: bool) -> None:
        """The next screenful, or the one before."""
        self.app.turn(forward=forward)

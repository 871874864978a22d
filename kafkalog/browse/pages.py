"""The browser's table: one screenful of rows, which requests another one at its edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding
from textual.events import Resize
from textual.widgets import DataTable

if TYPE_CHECKING:
    from textual.binding import BindingType

    from kafkalog.browse.app import BrowseApp


class Pages(DataTable[Any]):
    """Table that holds one screenful and requests another one at its edges."""

    app: BrowseApp
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,right", "open", "in"), Binding("left,backspace", "back", "out"),
        Binding("home,g", "edge(False)", "first"), Binding("end,G", "edge(True)", "last"),
        Binding("pagedown,space", "turn(True)", "on"), Binding("pageup,b", "turn(False)", "back"),
        Binding("j", "cursor_down", "down"), Binding("k", "cursor_up", "up"),
    ]  # fmt: skip

    def on_resize(self, event: Resize) -> None:
        """Read as many rows as the table now has room for."""
        self.app.resized()

    def action_cursor_down(self) -> None:
        """Move to the next row, or to the screenful that begins one row later."""
        if self.cursor_row < self.row_count - 1:
            super().action_cursor_down()
        else:
            self.app.step(forward=True)

    def action_cursor_up(self) -> None:
        """Move to the row before, or to the screenful that begins one row earlier."""
        if self.cursor_row > 0:
            super().action_cursor_up()
        else:
            self.app.step(forward=False)

    def action_open(self) -> None:
        """Open the row."""
        self.app.open_row()

    def action_back(self) -> None:
        """Go back to the level around this one."""
        self.app.action_out()

    def action_edge(self, last: bool) -> None:
        """Show the first or the last screenful."""
        self.app.edge(last=last)

    def action_turn(self, forward: bool) -> None:
        """Show the next screenful or the one before."""
        self.app.turn(forward=forward)

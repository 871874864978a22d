"""The browser's Textual app. All reading runs in a thread; a frame is the content of the screen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import DataTable, Input, Static
from textual.worker import get_current_worker

from kafkalog.browse.filtered import FilteredLevel, offsets_of
from kafkalog.browse.fitting import fit_columns
from kafkalog.browse.help import HELP
from kafkalog.browse.levels import BatchLevel, ListLevel, Row, segment_level
from kafkalog.browse.moves import (
    Frame,
    find_offset_at,
    find_same_key,
    first_anchor,
    frames_for_offset,
    last_screenful,
    open_level,
    parse_offset,
    selected_record,
    step_rows,
    turn_page,
)  # fmt: skip
from kafkalog.browse.pages import Pages
from kafkalog.browse.search import find_key, find_match, parse_search, predicate_for
from kafkalog.browse.tree import FieldLevel, Node
from kafkalog.errors import KafkalogError, LogClosed
from kafkalog.inspect.segment import Segment
from kafkalog.inspect.width import cut, escape_text
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.fileio import FileSystem
from kafkalog.util.text import human_size, plural

if TYPE_CHECKING:
    from textual.binding import BindingType

    from kafkalog.browse.batches import Place
    from kafkalog.browse.start import BrowseOptions
    from kafkalog.keys.lookup import KeyLookup
    from kafkalog.storage.damage import Skipped
    from kafkalog.where import Expression

_KEYS: Final = "Enter in  Left out  / find  f filter  ? keys  q quit"
_PLACEHOLDERS: Final = {
    "key": "key, \\xff for a byte, or a condition", "offset": "offset, negative from the end",
    "time": "time, 2026-11-20T12:00 or ms", "filter": "key or condition: only the records that match",
}  # fmt: skip
_RIGHT: Final = frozenset({"count", "number", "size", "duration", "ratio", "rate", "share"})
_TABLE_CSS: Final = """
Screen { layout: vertical; }
#path, #note, #keys { height: 1; width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
#path { text-style: bold; }
#keys { text-style: dim; }
#ask, #ask:focus { height: 1; border: none; padding: 0; display: none; }
Pages { height: 1fr; overflow: hidden hidden; scrollbar-size: 0 0; }
Pages > .datatable--cursor, Pages:focus > .datatable--cursor {
    color: #e4eefb; background: #10233c; text-style: bold reverse;
}
"""
Action = Callable[[], None]


class _Cancelled(Exception):
    """A look-up was ended by the user."""


class BrowseApp(App[None]):
    """The browser app. It is read-only: it locks nothing, and a broker may write meanwhile."""

    CSS = _TABLE_CSS
    ENABLE_COMMAND_PALETTE = False
    TITLE = "kafkalog"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"), Binding("escape", "out", "out"), Binding("r", "again", "again"),
        Binding("slash", "ask('key')", "key"), Binding("o", "ask('offset')", "offset"),
        Binding("t", "ask('time')", "time"), Binding("n", "next", "next"), Binding("f", "ask('filter')", "filter"),
        Binding("left_square_bracket", "same_key(False)", "previous of the key"),
        Binding("right_square_bracket", "same_key(True)", "next of the key"),
        Binding("question_mark", "help", "keys"),
    ]  # fmt: skip

    def __init__(self, top: ListLevel, fs: FileSystem, options: BrowseOptions) -> None:
        super().__init__()
        self._fs = fs
        self._serdes = options.serdes
        self._key_store = options.key_store
        self._select = options.select
        self._lookups: dict[LogView, KeyLookup] = {}
        self._frames = [Frame(top, top.start)]
        self._question = "key"
        self._wanted: bytes | Expression | None = None
        self._is_searching = False
        self._opens_directly = len(top.things) == 1

    # Display

    def compose(self) -> ComposeResult:
        """Yield the path, the table, a note on it, the input field and the keys."""
        yield Static("", id="path", markup=False)
        yield Pages(cursor_type="row", zebra_stripes=False)
        yield Static("", id="note", markup=False)
        yield Input(id="ask")
        yield Static(_KEYS, id="keys", markup=False)

    @property
    def frame(self) -> Frame:
        """Frame on the screen."""
        return self._frames[-1]

    @property
    def pages(self) -> Pages:
        """The table."""
        return self.query_one(Pages)

    @property
    def height(self) -> int:
        """Number of rows on the screen."""
        return max(1, self.pages.size.height - 1)

    def on_mount(self) -> None:
        """Focus the table."""
        self.pages.focus()

    def resized(self) -> None:
        """Read the rows for the new screen size."""
        if self._opens_directly:
            self.frame.rows = self.frame.level.after(self.frame.level.start, 1)
            self.open_row()
        else:
            self._show_from(self.frame, self.frame.anchor, self.frame.cursor)

    def _show(self, frame: Frame) -> None:
        """Draw a frame; nothing is read except records in memory."""
        from rich.text import Text

        table = self.pages
        if frame is not self.frame:
            return
        columns = frame.level.columns
        heads, cells = fit_columns(columns, [row.thing for row in frame.rows], max(self.size.width, 20))
        table.clear(columns=True)
        sides = ["right" if column.kind in _RIGHT else "left" for column in columns]
        for (head, width), side in zip(heads, sides, strict=False):
            # measured here: the table measures cells only when it is idle, and a busy one paints before
            table.add_column(Text(head, justify=side), width=width)  # type: ignore[arg-type]
        for row in cells:
            table.add_row(*(Text(cell, justify=side) for cell, side in zip(row, sides, strict=False)))  # type: ignore[arg-type]
        frame.cursor = max(0, min(frame.cursor, len(cells) - 1))
        table.move_cursor(row=frame.cursor)
        titles = [escape_text(one.level.title) for one in self._frames]
        self.query_one("#path", Static).update(cut(" > ".join(titles), max(self.size.width, 20), middle=True))
        self.say(frame.level.note or ("" if frame.rows else "(empty)"))

    def say(self, text: str) -> None:
        """Show an escaped line below the table."""
        self.query_one("#note", Static).update(escape_text(text))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Store the cursor, and show its position in the log."""
        frame = self.frame
        if event.cursor_row < len(frame.rows):
            frame.cursor = event.cursor_row
        thing, view = frame.thing, frame.level.view
        if isinstance(frame.level, BatchLevel) and view is not None and thing is not None and thing.is_batch:
            start, end = view.log_start_offset, view.log_end_offset
            share = (thing.base_offset - start) / max(end - start, 1)
            below = ", below the log start" if thing.last_offset < start else f", {max(share, 0):.1%} into the log"
            self.say(f"offsets [{start:,}, {end:,}){below}")

    # Reading, in a thread

    def _run_in_thread(self, work: Callable[[], Action]) -> None:
        """Run `work` in a thread, then its result in the app's thread; a new call cancels the previous one.

        An error becomes the line below the table.
        """

        def body() -> None:
            worker = get_current_worker()
            action: Action
            try:
                action = work()
            except (LogClosed, _Cancelled):
                return
            except (KafkalogError, OSError) as error:
                message = str(error)
                action = partial(self.say, message)
            finally:
                self._is_searching = False
            if not worker.is_cancelled:
                self.call_from_thread(lambda: None if worker.is_cancelled else action())

        self.run_worker(body, thread=True, exclusive=True, group="read")

    def _show_from(self, frame: Frame, anchor: int | Place, cursor: int = 0) -> None:
        """Read a screenful from `anchor` on and show it."""
        height = self.height
        self._run_in_thread(lambda: self._show_rows(frame, frame.level.after(anchor, height), cursor))

    def _show_rows(self, frame: Frame, rows: list[Row], cursor: int) -> Action:
        def action() -> None:
            frame.rows, frame.cursor = rows, cursor
            frame.anchor = rows[0].anchor if rows else frame.level.start
            self._show(frame)

        return action

    def _push(self, frames: list[Frame], below: int) -> Action:
        """Show the last of `frames`, placed on top of the first `below` frames."""

        def action() -> None:
            self._opens_directly = False
            self._drop_frames(below)
            self._frames += frames
            self._show(self.frame)

        return action

    def _drop_frames(self, below: int) -> None:
        """Drop the frames from number `below` on, and close the logs that no frame uses."""
        dropped = {one.level.view for one in self._frames[below:]}
        del self._frames[below:]
        for view in dropped - {one.level.view for one in self._frames}:
            if view is not None:
                self._lookups.pop(view, None)
                view.close()

    # Moving

    def step(self, *, forward: bool) -> None:
        """Move one row past the edge of the screen."""
        frame, height = self.frame, self.height
        if frame.rows:
            self._run_in_thread(
                lambda: self._show_rows(frame, *step_rows(frame.level, frame.rows, height, forward=forward))
            )

    def turn(self, *, forward: bool) -> None:
        """Move a screenful on or back; at the edge of the level the cursor moves to the edge."""
        frame, height = self.frame, self.height
        if frame.rows:
            self._run_in_thread(
                lambda: self._show_rows(
                    frame, *turn_page(frame.level, frame.rows, height, frame.cursor, forward=forward)
                )
            )

    def edge(self, *, last: bool) -> None:
        """Show the first screenful, or the current last one."""
        frame, height = self.frame, self.height
        if last:
            self._run_in_thread(lambda: self._show_rows(frame, *last_screenful(frame.level, height)))
        else:
            self._show_from(frame, first_anchor(frame.level))

    def action_again(self) -> None:
        """Read the files again."""
        frame = self.frame
        view = frame.level.view

        def work() -> Action:
            if view is not None:
                view.refresh()
                if isinstance(frame.level, FilteredLevel):
                    frame.level.forget()
                if frame.level.columns is not None and frame.thing.__class__ is Segment:
                    frame.level = segment_level(view)
            return self._show_rows(frame, frame.level.after(frame.anchor, self.height), frame.cursor)

        self._run_in_thread(work)

    def open_row(self) -> None:
        """Open the item under the cursor."""
        frame, height, depth = self.frame, self.height, len(self._frames)
        thing, view = frame.thing, frame.level.view
        if isinstance(frame.level, FieldLevel) and isinstance(thing, Node):
            frame.level.toggle(thing)
            self._show_from(frame, frame.anchor, frame.cursor)
            return
        if thing is None or isinstance(thing, tuple) and not hasattr(thing, "_fields"):
            return

        def work() -> Action:
            level = open_level(thing, view, self._fs, self._serdes)
            return self._push([Frame(level, level.start, level.after(level.start, height))], depth)

        self._run_in_thread(work)

    def action_out(self) -> None:
        """Leave the level; an open question or search is ended first."""
        if self.query_one("#ask", Input).display:
            self._close_input()
        elif self._is_searching:
            self.workers.cancel_group(self, "read")
            self._is_searching = False
            self.say("search cancelled")
        elif len(self._frames) > 1:
            self.workers.cancel_group(self, "read")  # its rows would be put on top of another level
            self._drop_frames(len(self._frames) - 1)
            self._show(self.frame)

    # Searching

    def action_ask(self, what: str) -> None:
        """Ask for a key or a condition, an offset or a time."""
        if self.frame.level.view is None:
            self.say("open a partition first (Enter)")
            return
        self._question = what
        ask = self.query_one("#ask", Input)
        ask.placeholder = _PLACEHOLDERS[what]
        ask.value = ""
        ask.display = True  # in place of the keys, so that the table keeps its size
        self.query_one("#keys").display = False
        ask.focus()

    def _close_input(self) -> None:
        self.query_one("#ask", Input).display = False
        self.query_one("#keys").display = True
        self.pages.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search for the submitted text."""
        self._close_input()
        text, view = event.value.strip(), self.frame.level.view
        if not text or view is None:
            return
        if self._question in ("key", "filter"):
            try:
                wanted = parse_search(event.value, decodes=self._select is not None)
            except KafkalogError as error:
                self.say(str(error))
                return
            if self._question == "filter":
                self._filter(view, wanted, text)
                return
            self._wanted = wanted
            self._search(view, self._current_offset())
        elif self._question == "offset":
            self._jump(view, lambda: parse_offset(text, view))
        else:
            self._jump(view, lambda: find_offset_at(text, view))

    def _jump(self, view: LogView, find: Callable[[], int]) -> None:
        height = self.height
        self._run_in_thread(lambda: self._push_offset(view, find(), height))

    def _push_offset(self, view: LogView, offset: int, height: int, *, opens: bool = False) -> Action:
        """Push the frames with the batch of an offset and, if a record has it, the record; `opens` opens that too."""
        numbers = (number for number, one in enumerate(self._frames) if one.level.view is view)
        below = next(numbers, 0) + 1  # none if the user has left the log meanwhile
        return self._push(frames_for_offset(view, offset, height, self._serdes, opens=opens), below)

    def _current_offset(self) -> int:
        """Return the offset of the item under the cursor or of the level around it; 0 without one."""
        for frame in reversed(self._frames):
            for name in ("offset", "base_offset"):
                found = getattr(frame.thing, name, None)
                if isinstance(found, int) and found >= 0:
                    return found
        return 0

    def _filter(self, view: LogView, wanted: bytes | Expression, text: str) -> None:
        """List only the records that match, from the selected one on."""
        start, height, depth = self._current_offset(), self.height, len(self._frames)
        self._is_searching = True

        def work() -> Action:
            try:
                offsets = offsets_of(wanted, self._select, view)
                level = FilteredLevel(view, offsets, start, text, self._tell_search, serdes=self._serdes)
                return self._push([Frame(level, start, level.after(start, height))], depth)
            finally:
                self._is_searching = False

        self._run_in_thread(work)

    def action_next(self) -> None:
        """Find the next record with the last key or for which the last condition is true; read on in a list of them."""
        view, level = self.frame.level.view, self.frame.level
        if isinstance(level, FilteredLevel):
            if self.frame.rows:
                self.turn(forward=True)
            else:
                self._show_from(self.frame, level.start)
        elif view is None or self._wanted is None:
            self.say("no key to search for: press / first")
        else:
            self._search(view, self._current_offset() + 1)

    def _search(self, view: LogView, start: int) -> None:
        wanted, height = self._wanted or b"", self.height
        self._is_searching = True

        def work() -> Action:
            worker = get_current_worker()

            def keep_going(offset: int, read: int) -> bool:
                if not worker.is_cancelled:
                    self.call_from_thread(self.say, f"at offset {offset:,}, {human_size(read)} read; Esc cancels")
                return not worker.is_cancelled

            try:
                if isinstance(wanted, bytes):
                    found = find_key(view, wanted, start, keep_going)
                else:
                    found = find_match(view, predicate_for(wanted, self._select, view), start, keep_going)
            finally:
                self._is_searching = False
            if found.offset is not None:
                return self._push_offset(view, found.offset, height)
            if found.is_done:
                return lambda: self.say(f"not found from offset {start:,} to the end at {found.next_offset:,}")
            push = self._push_offset(view, found.next_offset, height)
            message = f"not found in {human_size(found.read_bytes)} up to offset {found.next_offset:,}; n continues"

            def action() -> None:
                push()
                self.say(message)

            return action

        self._run_in_thread(work)

    def action_same_key(self, forward: bool) -> None:
        """Go to the next or the previous record with the key of the selected record."""
        view, record, height = self.frame.level.view, selected_record(self._frames), self.height
        if view is None or record is None:
            self.say("select a record first (Enter)")
            return
        opens = isinstance(self.frame.level, FieldLevel)
        self._is_searching = True

        def work() -> Action:
            skipped: list[Skipped] = []
            try:
                found = find_same_key(self._lookup(view), record, skipped, forward=forward)
            finally:
                self._is_searching = False
            damage = f"; passed over {plural(len(skipped), 'damaged place')}" if skipped else ""
            if found is None:
                where = "after" if forward else "before"
                return lambda: self.say(f"no record {where} offset {record.offset:,} has this key{damage}")
            push = self._push_offset(view, found, height, opens=opens)

            def action() -> None:
                push()
                if damage:
                    self.say(f"offset {found:,}{damage}")

            return action

        self._run_in_thread(work)

    def _lookup(self, view: LogView) -> KeyLookup:
        """Return the look-up of a log's keys, which keeps the keys of the log's end."""
        if view not in self._lookups:
            from kafkalog.keys.lookup import KeyLookup
            from kafkalog.keys.place import KeyIndexPlace
            from kafkalog.util.fileio import OS

            fs = self._fs if self._key_store is None else OS
            self._lookups[view] = KeyLookup(view, KeyIndexPlace(view.path, self._key_store, fs), self._tell_search)
        return self._lookups[view]

    def _tell_search(self, offset: int, read: int = 0) -> None:
        """Show where a look-up is; end it if its worker was cancelled."""
        if get_current_worker().is_cancelled:
            raise _Cancelled
        self._is_searching = True  # also while a list of matches is read on
        size = f", {human_size(read)} read" if read else ""
        self.call_from_thread(self.say, f"at offset {offset:,}{size}; Esc cancels")

    def action_help(self) -> None:
        """Show the keys."""
        if self.frame.level is not HELP:
            self._frames.append(Frame(HELP, HELP.start, HELP.after(HELP.start, self.height)))
            self._show(self.frame)

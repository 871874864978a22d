"""The level with the browser's keys."""

from __future__ import annotations

from typing import Final

from kafkalog.browse.levels import ListLevel
from kafkalog.inspect.rows import Column

_ROWS: Final = (
    ("Enter, Right", "open the item; open or fold a field of a decoded value"),
    ("Left, Esc", "go back; cancel a search"),
    ("Up, Down", "move a row; PageUp, PageDown a screenful"),
    ("Home, End", "go to the first or the last row"),
    ("/", "find a key, or a record that meets a condition"),
    ("n", "find the next one; read on in a list that is not at its end"),
    ("f", "list only the records with a key, or that meet a condition"),
    ("[ and ]", "go to the previous or next record with this record's key"),
    ("o", "go to an offset, negative from the end"),
    ("t", "go to the first record at or after a time"),
    ("r", "read the files again"),
    ("?", "show these keys"),
    ("q", "quit"),
)
HELP: Final = ListLevel(
    _ROWS, (Column("key", lambda row: row[0], "count"), Column("action", lambda row: row[1])), "keys"
)

"""TopicTables: the topics of data directories as tables of a query engine, with one cursor for all of them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.dirs.open import open_dirs
from kafkalog.dirs.window import TopicWindow
from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError
from kafkalog.tables.topic_table import TopicTable
from kafkalog.util.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Callable

    Path = str | os.PathLike[str]


def table_names(topics: Iterable[str], wanted: Iterable[str] | Mapping[str, str] | None) -> dict[str, str]:
    """Return the tables' names by topic: of all topics, or those wanted, a mapping of topics to names.

    Raises IllegalArgument for an unknown topic, and for names that differ only in case: SQL does not distinguish them.

    >>> table_names(["orders", "users"], {"orders": "o"})
    {'orders': 'o'}
    """
    known = [*topics]
    if isinstance(wanted, str):
        raise TypeError(f"topics is a str: give a list, [{wanted!r}]")
    names = dict(wanted) if isinstance(wanted, Mapping) else {topic: topic for topic in known if wanted is None}
    if wanted is not None and not isinstance(wanted, Mapping):
        names = {topic: topic for topic in wanted}
    for topic in names:
        if topic not in known:
            from kafkalog.util.keywords import closest_match

            nearest = closest_match(topic, known)
            hint = f"did you mean {nearest}?" if nearest else f"there are {', '.join(sorted(known)[:20]) or 'none'}"
            raise IllegalArgument(f"there is no topic {topic!r}", hint=hint)
    seen: dict[str, str] = {}
    for topic, name in names.items():
        other = seen.setdefault(name.lower(), topic)
        if other != topic:
            raise IllegalArgument(
                f"topics {other} and {topic} would be the same table: SQL ignores case",
                hint=f'choose the topics, or name them: topics={{"{topic}": "{name}_2"}}',
            )
    return names


class _Windows:
    """The windows of a cursor over topics, by topic; one is opened when it is first asked for. Threads: any."""

    def __init__(self, cursor: str | None, store: Path | None, isolation: str | None) -> None:
        self.cursor = cursor
        self._store = store
        self._isolation = isolation
        self._lock = threading.Lock()
        self._windows: dict[str, TopicWindow] = {}

    def get(self, dirs: LogDirs, topic: str) -> TopicWindow | None:
        """Return the window of a topic; None without a cursor."""
        if self.cursor is None:
            return None
        with self._lock:  # the cursors of a window are held: a second one, for another thread, would be refused
            if topic not in self._windows:
                logs = dirs.logs(topic)
                self._windows[topic] = TopicWindow(logs, self.cursor, store=self._store, isolation=self._isolation)
            return self._windows[topic]

    def commit(self) -> dict[str, dict[int, int]]:
        """Store the ends of the open windows, and close them."""
        committed = {}
        with self._lock:
            for topic, window in [*self._windows.items()]:
                committed[topic] = window.commit()
                window.close()
                del self._windows[topic]
        return committed

    def close(self) -> None:
        """Close the windows without a commit."""
        with self._lock:
            for window in self._windows.values():
                window.close()
            self._windows.clear()


class TopicTables(Closing):
    """Topics as tables of a query engine: `names` are those of the tables by topic.

    With a cursor, the tables have the records from its positions to the ends of the partitions, as of the first query
    of a topic; `commit()` stores these ends. Close it after use: it releases the cursor, and the directories if it
    opened them. Threads: queries from any, the rest from one at a time.

    >>> import duckdb
    >>> topic = dirs.create_topic("orders")
    >>> info = dirs["orders", 0].append([b"first", b"second"])
    >>> with duckdb.connect() as connection:
    ...     tables = kafkalog.duckdb.register(connection, dirs, {"orders": "o"}, cursor="reports", cursors="cursors")
    ...     tables, tables.names, connection.sql("SELECT count(*) FROM o").fetchall()
    ...     tables.failure, tables.commit()
    ...     tables.close()
    (<TopicTables o>, {'orders': 'o'}, [(2,)])
    (None, {'orders': {0: 2}})
    """

    def __init__(
        self,
        dirs: LogDirs | Path | Iterable[Path],
        topics: Iterable[str] | Mapping[str, str] | None,
        *,
        cursor: str | None = None,
        cursors: Path | None = None,
        lateness_ms: int | None = None,
        time_ranges: Path | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._owned: LogDirs | None = None
        self._undo: list[Callable[[], object]] = []
        self._windows = _Windows(cursor, cursors, (options or {}).get("isolation"))
        if cursor is None and cursors is not None:
            raise IllegalArgument("cursors is given, but no cursor", hint='give its name: cursor="reports"')
        if time_ranges is not None and isinstance(dirs, LogDirs):
            raise IllegalArgument(
                "time_ranges is given with directories that are open", hint="open_dirs(…, time_ranges=…) takes it"
            )
        opened = dirs if isinstance(dirs, LogDirs) else open_dirs(dirs, time_ranges=time_ranges or False)
        if opened is not dirs:
            self._owned = opened
        try:
            self.names = table_names(opened.topics, topics)
            self.tables = {topic: self._table(opened, topic, lateness_ms, options or {}) for topic in self.names}
        except BaseException:
            self.close()
            raise

    def _table(self, dirs: LogDirs, topic: str, lateness_ms: int | None, options: dict[str, Any]) -> TopicTable:
        return TopicTable(dirs, topic, options, lateness_ms=lateness_ms, window=partial(self._windows.get, dirs, topic))

    def _on_close(self, undo: Callable[[], object]) -> None:
        """Call `undo` when the tables are closed."""
        self._undo.append(undo)

    @property
    def failure(self) -> KafkalogError | None:
        """The error of the last reading of a table, with its own type; the engine reports it as its own error."""
        return next((table.failure for table in self.tables.values() if table.failure is not None), None)

    def commit(self) -> dict[str, dict[int, int]]:
        """Store where the queried topics ended, by topic and partition; later queries continue from there.

        Topics that no query has read since the last commit stay where they are. Raises IllegalArgument without a
        cursor; IllegalState while `failure` is set; StorageError.
        """
        if self._windows.cursor is None:
            raise IllegalArgument("these tables have no cursor", hint='give one: cursor="reports"')
        if (failure := self.failure) is not None:
            raise IllegalState(
                "the last query failed, and a commit would count its records as read",
                hint="commit once the query succeeds, or close the tables: the next ones begin where these did",
            ) from failure
        return self._windows.commit()

    def close(self) -> None:
        """Remove the tables, release the cursor without a commit, and close directories that were opened for this."""
        undo, self._undo = self._undo, []
        for step in undo:
            step()
        self._release()

    def _release(self) -> None:
        self._windows.close()
        if self._owned is not None:
            self._owned.close()

    def __del__(self) -> None:
        # A connection that has one of the tables keeps this object alive. So none has, and a table that has the name of
        # one is another's. At the end of the interpreter, files and locks are released anyway.
        if getattr(self, "_owned", None) is not None and not sys.is_finalizing():
            self._release()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(sorted(self.names.values()))}>"

"""Changes of a table: the data files of a snapshot, and those that each later snapshot appended.

A log only appends, so a snapshot that removed or changed rows is an error. One that only moved rows to other files
(Iceberg `replace`, Delta `OPTIMIZE`) has no new rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from kafkalog.errors import FormatError, IllegalState
from kafkalog.lake.failures import store_errors
from kafkalog.lake.table import LiveFile

_ACTIONS: Final = ("add", "remove", "commitInfo")
_ANOTHER: Final = "load the table into another topic, which gets the rows of its newest snapshot"


class TableFile(NamedTuple):
    """A data file of a snapshot, and its size in bytes."""

    file: LiveFile
    size: int


class IcebergChanges:
    """Snapshots of an Iceberg table."""

    def __init__(self, table: Any, name: str) -> None:
        self._table = table
        self._name = name
        self.identity = str(table.metadata.table_uuid)

    def steps(self, since: str | None) -> list[str]:
        """Return the snapshots after `since`; raise IllegalState if it is not among the ancestors of the newest."""
        found: list[str] = []
        for one in ancestors(self._table.metadata):
            if str(one.snapshot_id) == since:
                return found[::-1]
            found.append(str(one.snapshot_id))
            if since is None:
                break
        if found and since is not None:
            raise IllegalState(
                f"the topic has the rows of snapshot {since}, which is not among those before the newest, "
                f"{found[0]}: it was expired, or the table was rolled back",
                path=self._name, hint=_ANOTHER,
            )  # fmt: skip
        return found

    def files(self, snapshot: str, *, whole: bool) -> list[TableFile]:
        """Return the files of a snapshot; raise IllegalState for one that is gone, or that removed rows."""
        found = self._table.metadata.snapshot_by_id(int(snapshot))
        if found is None:
            raise _gone(self._name, snapshot)
        with store_errors("list the table's files", self._name):
            files = self._all(snapshot) if whole else self._appended(found)
        found_files = [TableFile(LiveFile(one.file_path, one), one.file_size_in_bytes) for one in files]
        return sorted(found_files, key=lambda one: one.file.path)

    def _all(self, snapshot: str) -> list[Any]:
        tasks = [*self._table.scan(snapshot_id=int(snapshot)).plan_files()]
        if any(task.delete_files for task in tasks):
            raise IllegalState(
                "the table has delete files, which a load does not apply", path=self._name,
                hint="run rewrite_data_files in the engine that wrote them",
            )  # fmt: skip
        return [task.file for task in tasks]

    def _appended(self, snapshot: Any) -> list[Any]:
        from pyiceberg.manifest import ManifestContent
        from pyiceberg.table.snapshots import Operation

        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation == Operation.REPLACE:
            return []
        if operation != Operation.APPEND:
            what = "unknown" if operation is None else operation.value
            raise _not_appended(self._name, str(snapshot.snapshot_id), what)
        io = self._table.io
        entries = [
            (manifest.content, entry.data_file)
            for manifest in snapshot.manifests(io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
            if entry.snapshot_id == snapshot.snapshot_id
        ]
        if any(content == ManifestContent.DELETES for content, _ in entries):
            raise _not_appended(self._name, str(snapshot.snapshot_id), "append with delete files")
        return [file for _, file in entries]


class DeltaChanges:
    """Versions of a Delta table; `store` is the file system whose root is the table's directory."""

    def __init__(self, table: Any, name: str, store: Any) -> None:
        self._table = table
        self._name = name
        self._store = store
        self._newest = table.version()
        self.identity = str(table.metadata().id)

    def steps(self, since: str | None) -> list[str]:
        """Return the versions after `since`; raise IllegalState if the table has fewer."""
        if since is None:
            return [str(self._newest)]
        if int(since) > self._newest:
            raise IllegalState(
                f"the topic has the rows of version {since}, and the table ends at {self._newest}",
                path=self._name, hint=_ANOTHER,
            )  # fmt: skip
        return [str(one) for one in range(int(since) + 1, self._newest + 1)]

    def files(self, snapshot: str, *, whole: bool) -> list[TableFile]:
        """Return the files of a version; raise IllegalState for one that removed rows, or whose commit is gone."""
        version = int(snapshot)
        added = None if whole else self._appended(version)
        live = {} if added is not None and not added else self._live(version)
        return [live[path] for path in sorted(live) if added is None or path in added]

    def _appended(self, version: int) -> set[str]:
        """Return the paths of the files with new rows that a commit added, without merely moved rows."""
        name = f"_delta_log/{version:020}.json"
        with store_errors("read the table's log", self._name):
            try:
                with self._store.open_input_file(name) as file:
                    content = file.read()
            except FileNotFoundError:
                raise _gone(self._name, str(version)) from None
        try:
            added, removal = _new_files(content)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(
                f"{name} is malformed: {type(error).__name__}: {error}", path=self._name, hint="repair the table"
            ) from None
        if removal is not None:
            raise _not_appended(self._name, str(version), removal)
        return added

    def _live(self, version: int) -> dict[str, TableFile]:
        import pyarrow as pa

        with store_errors("list the table's files", self._name):
            if self._table.version() != version:
                self._table.load_as_version(version)
            if any(True for _ in pa.RecordBatchReader.from_stream(self._table.deletion_vectors())):
                raise IllegalState(
                    "the table has deletion vectors, which a load does not apply", path=self._name,
                    hint="run OPTIMIZE or REORG ... APPLY (PURGE) in the engine that wrote them",
                )  # fmt: skip
            actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        files = [TableFile(LiveFile(unquote(one["path"]), one), one["size_bytes"]) for one in actions]
        return {one.file.path: one for one in files}


def _new_files(commit: bytes) -> tuple[set[str], str | None]:
    """Return the paths of a commit's files with new rows, and its operation if it removed rows.

    Some writers name actions that are not there, with null.
    """
    actions = [json.loads(line) for line in commit.splitlines() if line.strip()]
    adds, removes, facts = ([one[kind] for one in actions if one.get(kind) is not None] for kind in _ACTIONS)
    is_removal = sum(one["dataChange"] for one in removes) > 0
    operation = next((str(one.get("operation", "unknown")) for one in facts), "unknown")
    return {unquote(one["path"]) for one in adds if one["dataChange"]}, operation if is_removal else None


def ancestors(metadata: Any) -> Iterator[Any]:
    """Yield the newest snapshot of an Iceberg table and those before it, as far as they are known, each once."""
    one, seen = metadata.current_snapshot(), set[int]()
    while one is not None and one.snapshot_id not in seen:
        yield one
        seen.add(one.snapshot_id)
        one = None if one.parent_snapshot_id is None else metadata.snapshot_by_id(one.parent_snapshot_id)


def _not_appended(table: str, snapshot: str, operation: str) -> IllegalState:
    return IllegalState(
        f"snapshot {snapshot} removed or changed rows ({operation}), and a log only takes new ones",
        path=table, hint=_ANOTHER,
    )  # fmt: skip


def _gone(table: str, snapshot: str) -> IllegalState:
    return IllegalState(f"snapshot {snapshot} was expired before all of it was loaded", path=table, hint=_ANOTHER)


TableChanges = DeltaChanges | IcebergChanges
"""The snapshots of a table that was loaded, from its newest one backwards. Threads: one at a time."""

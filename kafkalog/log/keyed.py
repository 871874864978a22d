"""The part of `Log` that looks up records by key."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Never

from kafkalog._core.keys.key_reader import read_first
from kafkalog.errors import IllegalArgument
from kafkalog.reading.source import isolation_of, refreshed, retried_if_replaced, skipped_of
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from kafkalog._core.batch.record import Record
    from kafkalog.keys.latest import LatestRecords
    from kafkalog.keys.lookup import KeyLookup
    from kafkalog.keys.manage import KeyIndexInfo
    from kafkalog.keys.place import KeyIndexPlace
    from kafkalog.log.log import Log
    from kafkalog.records.table import Table
    from kafkalog.storage.damage import Skipped

BUILD_TASK: Final = "build-key-index"
_OPTIONS: Final = ("isolation", "on_damage", "skipped")
KeyStore = str | os.PathLike[str] | None


def place_of(log: Log, store: KeyStore = None) -> KeyIndexPlace:
    """Return where the key indexes of a log lie: in `store`, by default the one that the log was opened with."""
    from kafkalog.keys.place import KeyIndexPlace
    from kafkalog.util.fileio import OS

    store = log._key_store if store is None else store
    # a store is local, also that of a log behind a URL
    fs = log._source.fs if store is None or log.mode == "a" else OS
    return KeyIndexPlace(log._source.path, store, fs)


def lookup_of(log: Log) -> KeyLookup:
    """Return what looks up the keys of a log; the first call creates it."""
    lookup = log._keys
    if lookup is None:
        from kafkalog.keys.lookup import KeyLookup

        log._keys = lookup = KeyLookup(log._source, place_of(log), memory_bytes=log._key_memory_bytes)
    return lookup


def forget_keys(log: Log) -> None:
    """Make look-ups in a log look for its key indexes again: some were built or removed."""
    lookup = log._keys  # another thread may close the log
    if lookup is not None:
        lookup.forget()


@read_first
def get(
    log: Log,
    key: Buffer,
    *,
    isolation: str | None = None,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    **unknown: Never,
) -> Record | None:
    """Return the last record with this key, None if there is none; keywords as for `records`.

    A tombstone is a record too: its value is None. Segments with a key index (`build_key_index`) answer from it, the
    others are searched; the records at the log's end are kept by key in memory from the first look-up on. The key of
    the record is always compared, so an index that does not fit never changes the answer.

    Raises TypeError for a key that is not bytes; CorruptRecord and InvalidRecord for damage in what has to be read.

    >>> log.get(b"u-1").value, log.get(b"nobody")
    (b'first', None)
    """
    if unknown:
        raise unknown_keyword("get", unknown, ("key", *_OPTIONS))
    return lookup_of(log).get(key, isolation_of(isolation), skipped_of(on_damage, skipped))


def get_many(
    log: Log,
    keys: Iterable[Buffer],
    *,
    isolation: str | None = None,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    **unknown: Never,
) -> list[Record | None]:
    """Return the last record of each of many keys, None for those without one; errors and keywords as for `get`.

    `keys` is a list or any iterable of bytes, or Arrow data that is one column of binary or strings. Records that lie
    near each other are read together, so one call for many keys takes less time than a call of `get` for each.

    >>> [record and record.value for record in log.get_many([b"u-1", b"nobody"])]
    [b'first', None]
    """
    if unknown:
        raise unknown_keyword("get_many", unknown, ("keys", *_OPTIONS))
    return lookup_of(log).get_many(keys, isolation_of(isolation), skipped_of(on_damage, skipped))


def get_table(
    log: Log,
    keys: Iterable[Buffer],
    columns: Iterable[str] | None = None,
    *,
    isolation: str | None = None,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    **unknown: Never,
) -> Table:
    """Return the last record of each of many keys as columns, in the order of the keys.

    A key without a record has a row that is null in every column; a tombstone is null in `value` alone. Keys and errors
    are those of `get_many`, `columns` are those of `table`. No object is made for a key or a record, so this is the
    fastest way to look up many keys. The table lies in memory, and so do copies of its records until it is made.

    >>> log.get_table([b"u-2", b"nobody"], ["key", "offset"])["offset"].to_pylist()
    [1, None]
    """
    if unknown:
        raise unknown_keyword("get_table", unknown, ("keys", "columns", *_OPTIONS))
    from kafkalog.records.column_reader import kinds_of
    from kafkalog.records.table import Table

    kinds = kinds_of(columns)
    where = log.topic_partition
    topic = where.topic.encode("utf-8", "replace")
    lookup, level = lookup_of(log), isolation_of(isolation)
    return Table(lookup.get_columns(keys, level, skipped_of(on_damage, skipped), kinds, topic, where.partition))


def history(
    log: Log,
    key: Buffer,
    *,
    isolation: str | None = None,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    **unknown: Never,
) -> Iterator[Record]:
    """Yield all records with this key, oldest first, tombstones too; errors and keywords as for `records`.

    Reading ends at the log end as of the call, or as of later if a cleaner replaced segments meanwhile: records may
    have been cleaned away for one after that end. Segments are looked up one after the other, as for `get`.

    >>> [record.offset for record in log.history(b"u-1")]
    [0]
    """
    if unknown:
        raise unknown_keyword("history", unknown, ("key", *_OPTIONS))
    refreshed(log._source)
    return lookup_of(log).history(key, isolation_of(isolation), skipped_of(on_damage, skipped), log)


def latest(
    log: Log,
    *,
    in_memory: bool = False,
    memory_bytes: int | None = None,
    isolation: str | None = None,
    **unknown: Never,
) -> LatestRecords:
    """Return the latest state of the log: a read-only mapping from each key to its last record, which follows the log.

    Keys whose last record is a tombstone are not in it. By default the mapping holds nothing in memory and is there at
    once: an access is a look-up as by `get`, and iteration and `len` read the log. With `in_memory` it holds the live
    keys and the offsets of their records, which takes one reading of the log; iteration and `len` then cost little.
    Once they would take more than `memory_bytes` (1 GiB, about 5 million keys), they are given up with a warning in the
    log, and the mapping goes on as by default; its `is_in_memory` is False then.

    >>> latest = log.latest()
    >>> {key: record.value for key, record in latest.items()}
    {b'u-1': b'first', b'u-2': b'second'}
    >>> info = log.append([(b"u-1", b"third"), (b"u-2", None)])
    >>> latest[b"u-1"].value, b"u-2" in latest, len(latest)
    (b'third', False, 1)
    >>> log.latest(in_memory=True).is_in_memory, log.latest(in_memory=True, memory_bytes=100).is_in_memory
    (True, False)
    """
    if unknown:
        raise unknown_keyword("latest", unknown, ("in_memory", "memory_bytes", "isolation"))
    from kafkalog.keys.latest import LATEST_BYTES, LatestInMemory, LatestRecords

    check_latest_memory(memory_bytes, in_memory=in_memory)
    source, lookup = refreshed(log._source), lookup_of(log)
    if not in_memory:
        return LatestRecords(source, lookup, isolation_of(isolation), log)
    most = LATEST_BYTES if memory_bytes is None else memory_bytes
    return LatestInMemory(source, lookup, isolation_of(isolation), log, most)


def check_latest_memory(memory_bytes: int | None, *, in_memory: bool) -> None:
    """Raise IllegalArgument for a `memory_bytes` of `latest` that is no number of bytes, or without `in_memory`."""
    if memory_bytes is None:
        return
    _check_memory("memory_bytes", memory_bytes, "give a number of bytes, or leave in_memory out")
    if not in_memory:
        raise IllegalArgument(
            "memory_bytes is given without in_memory", hint="give in_memory=True, or leave memory_bytes out"
        )


def _check_memory(name: str, given: object, hint: str) -> None:
    """Raise IllegalArgument for what is no number of bytes."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise IllegalArgument(f"{name} is {given!r}", hint=hint)


def contains(log: Log, key: object) -> bool:
    """Return True if the log has a record with this key, or this very record."""
    from kafkalog._core.batch.record import Record

    if isinstance(key, Record):
        return any(record == key for record in log.records())
    return get(log, key) is not None  # type: ignore[arg-type]


def build_key_index(
    log: Log, *, rebuild: bool = False, store: KeyStore = None, **unknown: Never
) -> tuple[KeyIndexInfo, ...]:
    """Build the key indexes of the closed segments that have none that fits, and return the state of all.

    An index is a file of about 10 bytes a record, `<base offset>.keyindex`, beside the segment; a broker ignores it,
    and a segment that is changed later is searched until its index is built again. With `rebuild` all are built. In
    mode "r" the directory may be a broker's: `store` names another directory, for the indexes of any number of logs,
    unless the log was opened with one (`key_index=`). Indexes of segments that are gone are removed.

    Raises IllegalArgument in mode "r" without a store; CorruptRecord or InvalidRecord for a damaged segment, after the
    indexes of the others were built; StorageError.

    >>> log.roll(), [(info.base_offset, info.state, info.records) for info in log.build_key_index()]
    (2, [(0, 'ok', 2)])
    """
    if unknown:
        raise unknown_keyword("build_key_index", unknown, ("rebuild", "store"))
    from kafkalog.keys.manage import build_indexes

    source = refreshed(log._source)
    place = _own_place(log, "build", store)
    infos = retried_if_replaced(source, lambda: build_indexes(source, place, rebuild=rebuild))
    if store is not None:
        log._key_store, log._keys = store, None
    forget_keys(log)
    return infos


def drop_key_index(log: Log, *, store: KeyStore = None, **unknown: Never) -> int:
    """Remove all key indexes of the log and return their number; `store` as for `build_key_index`.

    >>> log.drop_key_index()
    0
    """
    if unknown:
        raise unknown_keyword("drop_key_index", unknown, ("store",))
    refreshed(log._source)
    removed = _own_place(log, "drop", store).remove_others()
    forget_keys(log)
    return removed


def key_index(log: Log, *, store: KeyStore = None, **unknown: Never) -> tuple[KeyIndexInfo, ...]:
    """Return the closed segments, lowest offset first, with the state of each one's key index.

    >>> log.key_index()
    ()
    """
    if unknown:
        raise unknown_keyword("key_index", unknown, ("store",))
    from kafkalog.keys.manage import list_indexes

    source, place = refreshed(log._source), place_of(log, store)
    return retried_if_replaced(source, lambda: list_indexes(source, place))


def set_key_index(log: Log, key_index: bool | str | os.PathLike[str]) -> None:
    """Set the place of a log's key indexes, and in mode "a" build them in the background: `key_index` of `open`.

    Raises IllegalArgument for True in mode "r", and for a place inside a data directory.
    """
    opened = log._opened
    if key_index is True and opened is None:
        raise IllegalArgument(
            'key_index is True in mode "r", which builds no index', hint="name the directory of the indexes"
        )
    log._key_store = None if isinstance(key_index, bool) else key_index
    place_of(log)  # it may be refused
    if opened is not None:
        _index_when_rolled(log)


def set_key_memory(log: Log, key_memory_bytes: int) -> None:
    """Set the memory for the keys of the active segment: `key_memory_bytes` of `open`."""
    _check_memory("key_memory_bytes", key_memory_bytes, "give a number of bytes, 0 for no map")
    log._key_memory_bytes = key_memory_bytes


def _index_when_rolled(log: Log) -> None:
    """Build the missing indexes of a log in the background now and whenever it rolls, until it is closed.

    What `SidecarBuilder` says of failures goes for these; `build_key_index` raises them.
    """
    from kafkalog.keys.background import IndexBuilder
    from kafkalog.log.sidecar_building import build_when_rolled

    alive = weakref.ref(log)

    def forget(_: object) -> None:
        owner = alive()
        if owner is not None:
            forget_keys(owner)

    build_when_rolled(log, IndexBuilder(log._key_store, forget), BUILD_TASK)


def _own_place(log: Log, doing: str, store: KeyStore) -> KeyIndexPlace:
    """Return where to write indexes; raise IllegalArgument if that may be the directory of another process."""
    place = place_of(log, store)
    if place.is_beside and log.mode == "r":
        raise IllegalArgument(
            f'cannot {doing} key indexes beside the segments of {log.name}: mode "r" never writes there',
            path=log.path,
            hint='name a directory, store="…" or kafkalog.open(path, key_index="…"), or open the log in mode "a"',
        )
    return place

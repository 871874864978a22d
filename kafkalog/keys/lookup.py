"""Look-ups by key in one log: the last record of a key, all of them, and those of many keys at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from errno import ENOENT
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalog._core.arrow.input import BadArrow
from kafkalog._core.batch.pick import pick
from kafkalog._core.batch.record import Record
from kafkalog._core.keys.given_keys import GivenKeys, arrow_keys, hash_keys
from kafkalog._core.keys.key_columns import KeyColumns
from kafkalog._core.keys.key_index import KeyIndex
from kafkalog._core.keys.key_map import KeyMap
from kafkalog._core.keys.key_picker import own_record
from kafkalog._core.keys.key_reader import Undecided
from kafkalog._core.keys.key_records import KeyRecords
from kafkalog._core.keys.key_walk import hash_key
from kafkalog.errors import IllegalArgument, OffsetOutOfRange, StorageError
from kafkalog.keys.build import take_keys
from kafkalog.keys.part import Part
from kafkalog.keys.parts import NOT_FOUND, Parts
from kafkalog.reading.chunks import batch_chunks, check_end, records, visible_chunks
from kafkalog.reading.source import ATTEMPTS, end_of, refresh, was_replaced
from kafkalog.storage.fast_lookup import LARGEST_WINDOW_BYTES, OFFSET_BYTES, record_at_offset
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.segment_reader import CHUNK_BYTES

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog._core.arrow.columns import Columns
    from kafkalog._core.keys.key_picker import KeyPicker
    from kafkalog.keys.place import KeyIndexPlace
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.damage import Skipped
    from kafkalog.types import Isolation

NEAR_OFFSETS: Final = 512
"""Offsets between two wanted records up to which those between them are read too."""
LONG_RUN: Final = 1 << 16
"""Offsets from the first to the last of near records, from which on the log is read in larger chunks."""
LARGE_CHUNK_BYTES: Final = 1 << 20
MOST_ROWS: Final = 1 << 18
"""Rows of a record batch of a table, whose columns then fill large pages: to touch small ones takes longer."""
MOST_BYTES: Final = 32 << 20
NOWHERE: Final = b"\xff" * 8
"""The offset of a key without one."""
_Picker = TypeVar("_Picker", KeyRecords, KeyColumns)


class _Changed(Exception):
    """The log was changed below a look-up: a record that was found is gone."""


PASSING: Final = _Changed, OffsetOutOfRange, StorageError
"""Errors that `is_passing` looks into."""


def is_passing(error: Exception) -> bool:
    """Return True for an error that another look may not meet: a cleaning, deletion or truncation came between."""
    return not isinstance(error, StorageError) or error.errno == ENOENT


def checked_key(key: object) -> bytes:
    """Return a key as bytes; raise TypeError for anything that is no bytes-like object."""
    if type(key) is bytes:
        return key
    if isinstance(key, str):
        raise TypeError("a key is a str: encode it first, key.encode()")
    if key is None:
        raise TypeError("a record without a key cannot be looked up: give bytes")
    try:
        return bytes(memoryview(key))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"a key is {type(key).__name__}: give bytes") from None


def checked_keys(keys: object) -> GivenKeys:
    """Return keys of an iterable of bytes, or of Arrow data that is one column of binary or strings."""
    if type(keys) is list:
        try:
            return GivenKeys(keys)
        except TypeError:  # not all are bytes objects, but they may be like bytes
            pass
    if hasattr(keys, "__arrow_c_array__") or hasattr(keys, "__arrow_c_stream__"):
        try:
            found = arrow_keys(keys)
        except BadArrow as error:
            raise IllegalArgument(f"the keys cannot be read: {error}", hint=error.hint) from None
        if found is not None:
            return found
    to_list = getattr(keys, "to_pylist", None)
    if to_list is not None:  # an Arrow array of another type, such as a dictionary of binary or strings
        return GivenKeys([key.encode() if isinstance(key, str) else checked_key(key) for key in to_list()])
    if isinstance(keys, (str, bytes, bytearray, memoryview)) or not isinstance(keys, Iterable):
        raise TypeError(f"the keys are {type(keys).__name__}: give a list of keys")
    return GivenKeys([checked_key(key) for key in keys])


class KeyLookup:
    """Look-ups in the log of `source`, whose key indexes lie at `place`. Threads: safe.

    `tell` is called with the offset of each chunk that is searched; an exception of it ends the look-up. The keys of
    the log's end take up to `memory_bytes`.
    """

    __slots__ = ("_source", "parts", "place", "place_of_reader")

    def __init__(
        self,
        source: LogSource,
        place: KeyIndexPlace,
        tell: Callable[[int], object] | None = None,
        *,
        memory_bytes: int | None = None,
    ) -> None:
        self.place = place
        self._source = source
        self.parts: Final = Parts(source, place, tell, map_bytes=memory_bytes)
        self.place_of_reader: Final = self.parts.place_of_reader

    @property
    def source(self) -> LogSource:
        """The log."""
        return self._source

    def forget(self) -> None:
        """Look for the indexes again: some were built or dropped."""
        with self.parts.lock:
            self.parts.forget()

    def release(self) -> None:
        """Release the files of the indexes: the log is being closed, and a mapping may still have this."""
        if self.parts.lock.acquire(blocking=False):  # else a look-up is going on, perhaps in this thread
            try:
                self.parts.forget()
            finally:
                self.parts.lock.release()

    def get(
        self, key: Buffer, isolation: Isolation, skipped: list[Skipped] | None, end: int | None = None
    ) -> Record | None:
        """Return the last record with this key that a reader with this isolation sees, None if there is none.

        `end`: the last one below that offset. Raises TypeError for a key that is no bytes-like object.
        """
        key = checked_key(key)
        if isolation == "log_end" and skipped is None and end is None:
            found = self.place_of_reader.read(key)
            if not isinstance(found, Undecided):
                return found
        return self.find(key, isolation, skipped, end)

    def find(
        self, key: bytes, isolation: Isolation, skipped: list[Skipped] | None, end: int | None = None
    ) -> Record | None:
        """Return what `get` returns; for what the compiled reader does not decide."""
        source = self._source
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            refresh(source)
            segments = source.segments
            try:
                with self.parts.lock:
                    record = self._get(key, isolation, skipped, end, is_last)
            except PASSING as error:
                if is_last or not is_passing(error):
                    raise
                continue
            if record is not None or is_last or not was_replaced(source, segments):
                return record
        raise AssertionError("the last attempt returns or raises")

    def _get(
        self, key: bytes, isolation: Isolation, skipped: list[Skipped] | None, below_end: int | None, is_last: bool
    ) -> Record | None:
        end, parts, start = self._looked(isolation, skipped, below_end)
        secret, hashed = b"", 0
        for part in reversed(parts):
            if part.base_offset >= end:
                continue
            if part.secret != secret:
                secret, hashed = part.secret, hash_key(part.secret, key)
            below = end
            while True:
                offset = self.parts.find_last(part, hashed, below, start, skipped)
                if offset == NOT_FOUND:
                    break
                record = self._read(part, offset, isolation, skipped)
                if record is None and isolation != "committed" and skipped is None and not is_last:
                    raise _Changed
                if record is not None and record.key == key:
                    return record
                if isinstance(self._source, LogView) and isinstance(part.index, KeyMap) and not is_last:
                    self.parts.distrust()  # the owner wrote the log again, or two keys have one hash
                    raise _Changed
                below = offset
            if part.base_offset <= start:
                break
        return None

    def _looked(
        self, isolation: Isolation, skipped: list[Skipped] | None, below_end: int | None
    ) -> tuple[int, list[Part], int]:
        """Return the end of the offsets to look at, the parts, and the start; raise damage at the log's end in reach.

        The end is that of before the parts, which then hold all records below it.
        """
        source = self._source
        state = source.state
        end = end_of(source, isolation)
        parts = self.parts.current(skipped)
        if below_end is not None and below_end < end:
            end = below_end
        else:
            check_end(source, end, isolation == "committed", skipped)
            if skipped is None and end == source.log_end_offset:
                self.parts.trust(state)
        return end, parts, source.log_start_offset

    def _read(self, part: Part, offset: int, isolation: Isolation, skipped: list[Skipped] | None) -> Record | None:
        """Return the record at an offset if a reader with this isolation sees it; None if there is none."""
        if isolation != "committed":
            record = self._read_fast(part, offset)
            if record is not None:
                return record
        try:
            found = records(self._source, offset, offset + 1, committed=isolation == "committed", skipped=skipped)
            record = next(found, None)
            return None if record is None else own_record(record)
        except OffsetOutOfRange:  # truncated or deleted meanwhile
            return None

    def _read_fast(self, part: Part, offset: int) -> Record | None:
        """Return the record with one read; None if that cannot decide."""
        try:
            if isinstance(part.index, KeyIndex):
                position, size = part.index.place(offset)
                if 0 < size <= LARGEST_WINDOW_BYTES:
                    data = part.segment.records.read(position, size + OFFSET_BYTES)
                    return pick(data, offset)
            return record_at_offset(part.segment, offset, self._source)
        except (IllegalArgument, StorageError):  # the file was cut or deleted
            return None

    def history(
        self, key: Buffer, isolation: Isolation, skipped: list[Skipped] | None, owner: object = None, start: int = 0
    ) -> Iterator[Record]:
        """Return an iterator of all records with this key, oldest first, up to the end of reading as of the call.

        It begins at the log start, or at the offset `start`. If segments are replaced meanwhile, reading goes on to the
        end as of then. Raises TypeError for a key that is no bytes-like object.
        """
        start, end = max(self._source.log_start_offset, start), end_of(self._source, isolation)
        return self._history(checked_key(key), start, end, isolation, skipped, owner)

    def _history(
        self, key: bytes, start: int, end: int, isolation: Isolation, skipped: list[Skipped] | None, owner: object
    ) -> Iterator[Record]:
        source = self._source
        for _ in range(ATTEMPTS):
            segments = source.segments
            for record in self._walked(key, start, end, isolation, skipped, owner):
                start = record.offset + 1
                yield record
            if not was_replaced(source, segments):
                break
            # records of the key may have been cleaned away for one behind the end
            start, end = max(start, source.log_start_offset), end_of(source, isolation)

    def _walked(
        self, key: bytes, start: int, end: int, isolation: Isolation, skipped: list[Skipped] | None, owner: object
    ) -> Iterator[Record]:
        """Yield the records with this key in [start, end), part by part."""
        source = self._source
        next_offset = start
        while next_offset < end:
            stop, offsets = self._found_in_part(key, next_offset, end, skipped)
            for first, last in _runs(offsets):
                for record in records(source, first, last, owner, committed=isolation == "committed", skipped=skipped):
                    if record.key == key:
                        yield record
            next_offset = stop
        check_end(source, end, isolation == "committed", skipped)

    def _found_in_part(
        self, key: bytes, next_offset: int, end: int, skipped: list[Skipped] | None
    ) -> tuple[int, list[int]]:
        """Return the end of the part with `next_offset`, at most `end`, and the offsets up to there with the key."""
        for attempt in range(ATTEMPTS):
            refresh(self._source)
            try:
                with self.parts.lock:
                    part = self._part_of(next_offset, skipped)
                    stop = min(end, part.bound)
                    hashed = hash_key(part.secret, key)
                    return stop, self.parts.find_all(part, hashed, next_offset, stop, skipped)
            except PASSING as error:
                if attempt == ATTEMPTS - 1 or not is_passing(error):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _part_of(self, offset: int, skipped: list[Skipped] | None) -> Part:
        found = None
        for part in self.parts.current(skipped):
            if found is None or part.base_offset <= offset:
                found = part
        assert found is not None
        return found

    def get_many(
        self, given: Iterable[Buffer], isolation: Isolation, skipped: list[Skipped] | None, end: int | None = None
    ) -> list[Record | None]:
        """Return the last record of each key, None for those without one; `end` and TypeError as for `get`."""
        keys = checked_keys(given)
        picker = self._pick_all(keys, KeyRecords, isolation, skipped, end)
        picker.finish()
        for number in picker.missed:
            picker.give(number, self.get(keys[number], isolation, skipped, end))
        return picker.records

    def get_columns(
        self, given: Iterable[Buffer], isolation: Isolation, skipped: list[Skipped] | None, kinds: bytes,
        topic: bytes, partition: int,
    ) -> Columns:
        """Return the columns `kinds` of the last record of each key; TypeError as for `get`."""
        keys = checked_keys(given)
        picker = self._pick_all(keys, KeyColumns, isolation, skipped, None)
        limits = {"most_rows": MOST_ROWS, "most_bytes": MOST_BYTES}
        while (made := picker.finish(kinds, topic=topic, partition=partition, **limits)) is None:
            for number in picker.missed:  # another key of the same hash
                picker.give(number, self.get(keys[number], isolation, skipped))
        return made

    def _pick_all(
        self, keys: GivenKeys, kind: type[_Picker], isolation: Isolation, skipped: list[Skipped] | None, end: int | None
    ) -> _Picker:
        """Return a picker of this kind with the last record of each key."""
        refresh(self._source)
        segments, is_found = self._source.segments, True
        try:
            with self.parts.lock:
                found, start, parts = self._find_many(keys, isolation, skipped, end)
                picker = kind(keys, found, start)
                self._pick(picker, parts, isolation, skipped)
        except PASSING as error:
            if not is_passing(error):
                raise
            picker, is_found = kind(keys, NOWHERE * len(keys), 0), False
        again = picker.missed  # an aborted record, or a change of the log
        if not is_found or ((again or picker.absent) and was_replaced(self._source, segments)):
            again = picker.without
        for number in again:
            picker.give(number, self.get(keys[number], isolation, skipped, end))
        return picker

    def _find_many(
        self, keys: GivenKeys, isolation: Isolation, skipped: list[Skipped] | None, below_end: int | None
    ) -> tuple[bytearray, int, list[Part]]:
        """Return the offset of each key, the start of the log, and the parts."""
        end, parts, start = self._looked(isolation, skipped, below_end)
        found = bytearray(NOWHERE * len(keys))
        secret, hashes = b"", b""
        for part in reversed(parts):
            if part.base_offset >= end:
                continue
            if part.secret != secret:
                secret, hashes = part.secret, hash_keys(part.secret, keys)
            self.parts.find_last_many(part, hashes, found, end, start, skipped)
            if part.base_offset <= start:
                break
        return found, start, parts

    def _pick(
        self, picker: KeyPicker, parts: list[Part], isolation: Isolation, skipped: list[Skipped] | None
    ) -> None:
        """Read the records at the offsets wanted: near ones together, others one by one."""
        at, committed = 0, isolation == "committed"
        while (offset := picker.offset) >= 0:
            while parts[at].bound <= offset:
                at += 1
            if not picker.is_near(NEAR_OFFSETS):
                picker.take_one(self._read(parts[at], offset, isolation, skipped))
                continue
            stop = picker.run_end(NEAR_OFFSETS)
            size = LARGE_CHUNK_BYTES if stop - offset >= LONG_RUN else CHUNK_BYTES
            chunks = batch_chunks(self._source, offset, stop, skipped=skipped, chunk_bytes=size)
            for chunk in visible_chunks(self._source, chunks, committed, stop, skipped):
                take_keys(picker, chunk)
            picker.pass_over(stop)


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, stop) of offsets that lie near each other."""
    first = last = -1
    for offset in offsets:
        if first >= 0 and offset - last <= NEAR_OFFSETS:
            last = offset
            continue
        if first >= 0:
            yield first, last + 1
        first = last = offset
    if first >= 0:
        yield first, last + 1

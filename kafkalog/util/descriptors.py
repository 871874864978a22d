"""Limits on open files and mapped indexes; the least recently used ones are closed and reopened on use.

The number of open files of a process is limited (`ulimit -n`), and a data directory may have a hundred times as many
files. Files that stay open are registered here. At the limit the least recently used one is closed; it is reopened on
use. A file is never closed during a read: the reader holds a reference.
"""

from __future__ import annotations

import errno
import resource
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from kafkalog.errors import IllegalArgument
from kafkalog.util.interrupts import deferred_interrupts

R = TypeVar("R")

FEWEST: Final = 8
"""Fewest descriptors with which a log can roll."""
MOST_BY_DEFAULT: Final = 16_384
INDEX_PAGES_BY_DEFAULT: Final = 65_536
"""256 MiB: the indexes of 50 to 100 full segments of a gigabyte, or of 32,768 small segments."""
_PAGE_BYTES: Final = 4096
_CLOSED_AT_ONCE: Final = 16
TOO_MANY_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Error codes of an open without a free descriptor."""


class Closable(Protocol):
    """An object that holds one descriptor, or an index in memory, and can close and reopen it."""

    used: bool

    def try_close(self) -> bool:
        """Close it and return True, or return False if it is in use. Never waits."""


class _Ref(weakref.ref[Closable]):
    """A weak reference with the key of its holder, for use after the holder was collected."""

    __slots__ = ("key",)
    key: int


class OpenSet:
    """Holders of one kind, at most `limit` of them; the least recently used one is closed first.

    The limit is soft: if everything is in use, one more is opened. A holder that was used since the last check (`used`)
    is skipped once. The set does not keep holders alive. Threads: safe, without a lock: each step on the table is one
    step of the interpreter, and a finalizer may take one at any time.
    """

    def __init__(self, default_limit: Callable[[], int]) -> None:
        self._default_limit = default_limit
        self._limit: int | None = None
        self._refs: OrderedDict[int, _Ref] = OrderedDict()
        self._total: Callable[[], int] = self._refs.__len__  # the amount that the limit applies to
        self.given_up = 0
        """Number of holders closed to make room; a fast increase means that the limit is too low."""

    @property
    def limit(self) -> int:
        """Most holders that may be open; None restores the default, below 8 raises IllegalArgument."""
        return self._default_limit() if self._limit is None else self._limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        if limit is not None and limit < FEWEST:
            raise IllegalArgument(f"the limit must be at least {FEWEST}, not {limit}")
        self._limit = limit
        self.make_room(0)

    def __len__(self) -> int:
        return len(self._refs)

    def add(self, holder: Closable) -> None:
        """Register `holder`, which opened its file; call `make_room` before opening."""
        ref = _Ref(holder, self._collected)
        ref.key = id(holder)
        self._refs[ref.key] = ref

    def discard(self, holder: Closable) -> None:
        """Unregister `holder`: it was closed, or must stay open."""
        self._refs.pop(id(holder), None)

    def _collected(self, ref: _Ref) -> None:
        if self._refs.get(ref.key) is ref:
            self._forget(ref.key)

    def _forget(self, key: int) -> None:
        self._refs.pop(key, None)

    def make_room(self, extra: int = 1) -> None:
        """Close holders until `extra` more fit into the limit."""
        limit = self.limit
        while self._total() + extra > limit and self._close_one():
            pass

    def close_some(self, count: int) -> int:
        """Close at most `count` holders, regardless of the limit, and return the number closed."""
        return sum(1 for _ in range(count) if self._close_one())

    def _close_one(self) -> bool:
        with deferred_interrupts():  # a holder taken out of the table must be put back, and its lock released
            return self._close_least_used()

    def _close_least_used(self) -> bool:
        refs = self._refs
        for _ in range(2 * len(refs)):
            try:
                key, ref = refs.popitem(last=False)
            except KeyError:  # other threads emptied it
                return False
            holder = ref()
            if holder is None:
                if key not in refs:  # no other holder has this key now
                    self._forget(key)
                continue
            if holder.used:
                holder.used = False
            elif holder.try_close():
                self.given_up += 1
                self._forget(key)
                return True
            refs[key] = ref
        return False

    def __repr__(self) -> str:
        return f"<OpenSet {len(self._refs)} of at most {self.limit}>"


class MemorySet(OpenSet):
    """Holders of memory; the limit counts pages of 4 KiB, at least one for each holder."""

    def __init__(self, default_limit: Callable[[], int]) -> None:
        super().__init__(default_limit)
        self._pages: dict[int, int] = {}
        self._total = self._sum

    def add(self, holder: Closable, size_bytes: int = 0) -> None:
        """Register `holder` with `size_bytes` of memory."""
        self._pages[id(holder)] = max(1, -(-size_bytes // _PAGE_BYTES))
        super().add(holder)

    def discard(self, holder: Closable) -> None:
        """Unregister `holder` and its memory."""
        self._forget(id(holder))

    def _sum(self) -> int:
        return sum(list(self._pages.values()))  # the copy is one step of the interpreter, also without the GIL

    def _forget(self, key: int) -> None:
        super()._forget(key)
        self._pages.pop(key, None)


def _half_of_the_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MOST_BY_DEFAULT
    return min(max(soft // 2, FEWEST), MOST_BY_DEFAULT)


DESCRIPTORS: Final = OpenSet(_half_of_the_limit)
"""Open files of the logs of this process; by default half of `ulimit -n`, 8 to 16,384."""
INDEXES: Final = MemorySet(lambda: INDEX_PAGES_BY_DEFAULT)
"""Indexes in memory of segments that are not active."""


def with_room(call: Callable[..., R], *args: object) -> R:
    """Return `call(*args)`, which opens a file; close unused files and retry if there are too many.

    Raises OSError of the call; EMFILE or ENFILE only if no file can be closed.
    """
    while True:
        try:
            return call(*args)
        except OSError as error:
            if error.errno not in TOO_MANY_FILES or not DESCRIPTORS.close_some(_CLOSED_AT_ONCE):
                raise

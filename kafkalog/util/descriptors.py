"""How much this process holds open at once, and what is let go when there is to be more.

A process may open so many files and no more (`ulimit -n`), and a data directory may have a hundred times as many. What
is opened to be kept is noted here; the one that was not used for the longest time is let go when the bound is reached,
and opened again when it is touched. Nothing is closed under a reader: whoever reads holds the file itself.
"""

from __future__ import annotations

import errno
import resource
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from kafkalog.errors import IllegalArgument
from kafkalog.util.interrupts import deferred_interrupts

R = TypeVar("R")

FEWEST: Final = 8
"""With less a log could not even roll."""
MOST_BY_DEFAULT: Final = 16_384
INDEX_PAGES_BY_DEFAULT: Final = 65_536
"""256 MiB: the indexes of 50 to 100 full segments of a gigabyte, or of 32,768 small ones."""
_PAGE_BYTES: Final = 4096
_GIVEN_UP_AT_ONCE: Final = 16
TOO_MANY_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""What the system says of an open for which it has no descriptor left."""


class Holder(Protocol):
    """Something that holds one descriptor, or an index in memory, and can do without for a while."""

    used: bool

    def let_go(self) -> bool:
        """True when nothing is held any more; False where it is needed now. Never waits for anything."""


class _Ref(weakref.ref[Any]):
    """A weak reference that knows what it is filed under, once its holder is gone."""

    __slots__ = ("key",)
    key: int


class OpenSet:
    """Holders of one kind, at most `limit` of them; the least recently used one gives way.

    The bound is a soft one: where everything is in use, one more is opened all the same. A holder that was used since
    it was last asked (`used`) is passed over once. Holders are not kept alive by being here.
    Threads: safe, without a lock: each step on the table is one step of the interpreter, and a finalizer may take one
    at any time.
    """

    def __init__(self, default_limit: Callable[[], int]) -> None:
        self._default_limit = default_limit
        self._limit: int | None = None
        self._held: OrderedDict[int, _Ref] = OrderedDict()
        self._total: Callable[[], int] = self._held.__len__  # what counts against the limit
        self.given_up = 0
        """How many were let go to make room, so far: many in a short time say that the limit is too low."""

    @property
    def limit(self) -> int:
        """How many may be held open; setting None brings the default back, IllegalArgument below 8."""
        return self._default_limit() if self._limit is None else self._limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        if limit is not None and limit < FEWEST:
            raise IllegalArgument(f"at least {FEWEST} must be allowed to be open, not {limit}")
        self._limit = limit
        self.make_room(0)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, holder: Holder) -> None:
        """Count what `holder` opened; `make_room` comes before that."""
        ref = _Ref(holder, self._gone)
        ref.key = id(holder)
        self._held[ref.key] = ref

    def discard(self, holder: Holder) -> None:
        """Count it no more: it was closed, or is to stay open."""
        self._held.pop(id(holder), None)

    def _gone(self, ref: _Ref) -> None:
        if self._held.get(ref.key) is ref:
            self._forget(ref.key)

    def _forget(self, key: int) -> None:
        self._held.pop(key, None)

    def make_room(self, extra: int = 1) -> None:
        """Let go of as many as are too many once `extra` are added."""
        limit = self.limit
        while self._total() + extra > limit and self._let_one_go():
            pass

    def give_up(self, count: int) -> int:
        """How many were let go of at most `count`: the system says that there are too many, whatever the limit."""
        return sum(1 for _ in range(count) if self._let_one_go())

    def _let_one_go(self) -> bool:
        with deferred_interrupts():  # what is taken out of the table goes back into it, and a lock is given back
            return self._ask_each()

    def _ask_each(self) -> bool:
        held = self._held
        for _ in range(2 * len(held)):
            try:
                key, ref = held.popitem(last=False)
            except KeyError:  # other threads are at it
                return False
            holder = ref()
            if holder is None:
                if key not in held:  # no other has come to lie there
                    self._forget(key)
                continue
            if holder.used:
                holder.used = False
            elif holder.let_go():
                self.given_up += 1
                self._forget(key)
                return True
            held[key] = ref
        return False

    def __repr__(self) -> str:
        return f"<OpenSet {len(self._held)} of at most {self.limit}>"


class MemorySet(OpenSet):
    """Holders that take memory; the limit counts pages of 4 KiB, and each holder takes at least one."""

    def __init__(self, default_limit: Callable[[], int]) -> None:
        super().__init__(default_limit)
        self._pages: dict[int, int] = {}
        self._total = self._sum

    def add(self, holder: Holder, size_bytes: int = 0) -> None:
        """Count `size_bytes` of memory that `holder` took."""
        self._pages[id(holder)] = max(1, -(-size_bytes // _PAGE_BYTES))
        super().add(holder)

    def discard(self, holder: Holder) -> None:
        """As `OpenSet.discard`."""
        self._forget(id(holder))

    def _sum(self) -> int:
        return sum(self._pages.values())  # one step of the interpreter

    def _forget(self, key: int) -> None:
        super()._forget(key)
        self._pages.pop(key, None)


def _half_of_the_descriptors() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MOST_BY_DEFAULT
    return min(max(soft // 2, FEWEST), MOST_BY_DEFAULT)


DESCRIPTORS: Final = OpenSet(_half_of_the_descriptors)
"""The files that the logs of this process hold open; by default half of what `ulimit -n` allows."""
INDEXES: Final = MemorySet(lambda: INDEX_PAGES_BY_DEFAULT)
"""The indexes of segments that take no appends, in memory."""


def with_room(call: Callable[..., R], *args: Any) -> R:
    """What `call(*args)`, which opens a file, returns; files that are not in use are closed when there are too many.

    OSError of the call; EMFILE or ENFILE only when nothing is left to be closed.
    """
    while True:
        try:
            return call(*args)
        except OSError as error:
            if error.errno not in TOO_MANY_FILES or not DESCRIPTORS.give_up(_GIVEN_UP_AT_ONCE):
                raise

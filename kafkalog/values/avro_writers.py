"""The programs of writers' schemas by id, as an Avro decoder meets them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalArgument
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.values.schemas.source import LOOK_AGAIN_MS, UnknownSchema

if TYPE_CHECKING:
    from kafkalog._core.values.avro_program import AvroProgram

MOST_WRITERS: Final = 10_000
"""Writers' schemas that a decoder remembers; a column with more is no column of Avro values."""
MOST_TEXTS: Final = 1000
"""Ids without a program whose texts a decoder remembers; beyond, the older half is forgotten."""


class WriterPrograms:
    """The program of each known id, or the text that answers its values; `make` makes one of them for an id.

    The text of an id that is missing is forgotten after LOOK_AGAIN_MS, so that the id is looked up again. Threads: any.
    """

    def __init__(self, make: Callable[[int], AvroProgram | str]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._known: dict[int, AvroProgram | str] = {}  # replaced whole: other threads go through it
        self._until: dict[int, float] = {}  # of texts, when they are forgotten; guarded by self._lock
        self._next_look: float = inf

    def put(self, number: int, program: AvroProgram) -> None:
        """Set the program of an id."""
        self._known = self._known | {number: program}

    def learn(self, number: int) -> None:
        """Make the program of an id, or its text; IllegalArgument for more than MOST_WRITERS programs."""
        with self._lock:
            if number in self._known:
                return
            try:
                made, until = self._make(number), inf
            except UnknownSchema as error:
                made, until = error.message, SYSTEM_CLOCK.monotonic_ms() + LOOK_AGAIN_MS
            gone: set[int] = set()
            if isinstance(made, str):
                if len(self._until) >= MOST_TEXTS:
                    gone = set(list(self._until)[: MOST_TEXTS // 2])
                self._until[number] = until
            elif len(self._known) - len(self._until) >= MOST_WRITERS:
                raise IllegalArgument(f"the values name more than {MOST_WRITERS} schemas: they are not Avro values")
            self._replace_locked(gone, {number: made})

    def _replace_locked(self, gone: set[int], made: dict[int, AvroProgram | str]) -> None:
        """Forget the texts of ids, and know what was made."""
        for number in gone:
            del self._until[number]
        self._next_look = min(self._until.values(), default=inf)
        self._known = {number: found for number, found in self._known.items() if number not in gone} | made

    def current(self) -> dict[int, AvroProgram | str]:
        """Return the programs and texts, without those that are to be looked up again."""
        now = SYSTEM_CLOCK.monotonic_ms()
        if now >= self._next_look:
            with self._lock:
                self._replace_locked({number for number, until in self._until.items() if now >= until}, {})
        return self._known

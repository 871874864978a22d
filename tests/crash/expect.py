"""Expectations after a crash: records that must exist, that may exist, and the bounds of log start and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.crash.model import Batch, Model
from tests.crash.session import Operation, apply


class Expectation(NamedTuple):
    """`least` must be there as far as it lies above the log start; all else must be among `known`.

    With `keeps_pages` no write is lost. `gaps` are the (expected, found) offsets where one batch does
    not follow the other; `starts` is the lowest and the highest log start, `ends` are log ends that no batch shows.
    """

    least: tuple[Batch, ...]
    known: frozenset[Batch]
    gaps: frozenset[tuple[int, int]]
    starts: tuple[int, int]
    ends: frozenset[int]
    keeps_pages: bool


@dataclass
class Witness:
    """Follows a session by its reports: `expectation()` is what a crash at this moment may leave.

    With `keeps_pages` the system lives on (a killed process), and what was written is there; else (a power cut) only
    what was acknowledged as flushed has to be. What was cut off may come back until the next flush.
    """

    keeps_pages: bool

    def __post_init__(self) -> None:
        self.model = self.after = Model()
        self.sync = False
        self._floor: tuple[Batch, ...] = ()
        self._known: set[Batch] = set()
        self._gaps: set[tuple[int, int]] = set()
        self._starts = 0, 0
        self._unsure = False  # where the log starts: it said so, and could not write it down
        self._ends = {0}

    def begin(self, operation: Operation) -> None:
        """The operation may have done something from here on."""
        after = self.after = apply(self.model, operation)
        self._floor = _common(self._floor, after.batches)
        self._know(after)
        low, high = self._starts
        highest = after.end if operation["do"] == "retain" else after.start
        self._starts = min(low, after.start), max(high, highest)

    def done(self, operation: Operation, answer: tuple[int, int], disk_was_full: bool = False) -> None:
        """The operation was acknowledged, with the log's start and end; a full disk keeps no delete from making room.

        Then the new log start may not be written down: what lies below it may be found again.
        """
        self.model = self.after = apply(self.model, operation, answer)
        do = operation["do"]
        if do in ("delete", "restart"):
            self._unsure = disk_was_full and do == "delete"
            self._starts = self._starts[0] if self._unsure else self.model.start, self.model.start
        if self.keeps_pages or self._is_flush(operation):
            self.flushed()
        self._ends.add(self.model.end)
        if do == "reopen":
            self.sync = operation["sync"]

    def flushed(self) -> None:
        """All that the model holds is on disk."""
        self._floor = self.model.batches
        self._known.clear()
        self._ends.clear()
        low = self.model.start if self.keeps_pages and not self._unsure else self._starts[0]
        self._starts = low, self.model.start
        self._know(self.model)

    def failed(self, operation: Operation, model: Model) -> None:
        """The operation raised, and the log then said that it holds `model`."""
        self.model = self.after = model
        self._unsure = True
        self._floor = _common(self._floor, model.batches)
        self._know(model)

    def _is_flush(self, operation: Operation) -> bool:
        by_face = ("append", "produce", "transact", "group", "follow")
        return operation["do"] in ("flush", "reopen") or self.sync and operation["do"] in by_face

    def _know(self, model: Model) -> None:
        self._known.update(model.batches)
        self._ends.add(model.end)
        expected = None
        for batch in model.batches:
            if expected is not None and expected != batch.base:
                self._gaps.add((expected, batch.base))
                self._ends.add(batch.base)
            expected = batch.last + 1
        if expected is not None and expected != model.end:
            self._gaps.add((expected, model.end))

    def expectation(self) -> Expectation:
        """Return what a crash now may leave."""
        known, gaps, ends = frozenset(self._known), frozenset(self._gaps), frozenset(self._ends)
        return Expectation(self._floor, known, gaps, self._starts, ends, self.keeps_pages)


def _common(one: tuple[Batch, ...], other: tuple[Batch, ...]) -> tuple[Batch, ...]:
    """The batches that both begin with."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return one[:at]
    return one[: min(len(one), len(other))]

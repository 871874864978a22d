"""Start and end of reading: the offset words of the command line, and their offsets in a partition."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import IllegalArgument, OffsetOutOfRange

if TYPE_CHECKING:
    from kafkalog.storage.readonly.view import LogView

_NUMBER = re.compile(r"-?[0-9]{1,19}\Z")


class Bounds(NamedTuple):
    """A requested range. `start`: "beginning", "end", "stored", an offset, or a negative count from the end.

    `since_ms` and `until_ms` bound it by time; each of these is None if it was not given.
    """

    start: str | int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def first_offset(self, log: LogView, end: int | None = None) -> int:
        """Return the offset to begin at; OffsetOutOfRange for one outside the log.

        "end", counts from it and a time after the last record refer to `end`, where reading ends: None is the log end.
        """
        first, log_end = log.log_start_offset, log.log_end_offset
        end = log_end if end is None else end
        if self.since_ms is not None:
            found = log.offset_for_time(self.since_ms)
            return end if found is None else found.offset
        if self.start is None or self.start == "beginning":
            return first
        if self.start == "end":
            return end
        if self.start == "stored":
            raise IllegalArgument("offset 'stored' is the position of a cursor", hint="name the cursor with -G")
        offset = int(self.start)
        if offset < 0:
            return max(first, end + offset)
        if not first <= offset <= log_end:
            raise OffsetOutOfRange(
                f"the log has offsets {first} to {log_end - 1}" if first < log_end else f"the log is empty at {first}",
                path=log.path,
                offset=offset,
                hint="use -o beginning, -o end, or an offset in that range",
            )
        return offset

    def stop_offset(self, log: LogView) -> int | None:
        """Return the offset to end before; None without a time bound, or without a record after it."""
        if self.until_ms is None:
            return None
        found = log.offset_for_time(self.until_ms)
        return None if found is None else found.offset


def parse_bounds(words: tuple[str, ...], to_ms: Callable[[str], int]) -> Bounds:
    """Parse `-o` arguments: one of beginning, end, stored, N, -N, or s@TIME and e@TIME together.

    to_ms turns a TIME into ms since 1970. IllegalArgument for an unknown word, and for two starts.
    """
    bounds = Bounds()
    for word in words:
        if word.startswith("e@"):
            if bounds.until_ms is not None:
                raise IllegalArgument("two ends are given with -o e@")
            bounds = bounds._replace(until_ms=_time(word[2:], to_ms))
            continue
        if bounds.start is not None or bounds.since_ms is not None:
            raise IllegalArgument(f"two starts are given with -o, the second is {word!r}")
        if word.startswith("s@"):
            bounds = bounds._replace(since_ms=_time(word[2:], to_ms))
        elif word in ("beginning", "end", "stored"):
            bounds = bounds._replace(start=word)
        elif word == "start":
            bounds = bounds._replace(start="beginning")
        elif _NUMBER.match(word):
            bounds = bounds._replace(start=int(word))
        else:
            raise IllegalArgument(
                f"{word!r} is not an offset", hint="use beginning, end, N, -N (from the end), s@TIME or e@TIME"
            )
    return bounds


def _time(text: str, to_ms: Callable[[str], int]) -> int:
    time = to_ms(text)
    if time < 0:
        raise IllegalArgument(f"the time {text!r} is before 1970")
    return time

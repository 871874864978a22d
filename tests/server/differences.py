"""The rows of docs/clients.md that say where our answers are not the broker's, and why."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from tests.server.replay import Difference
from tests.trees import SOURCES

DOCUMENT = SOURCES / "docs" / "clients.md"
HEADING = "## Answers that differ from the broker's"
CALL = re.compile(r"`(?P<name>\w+)`(?: v(?P<first>\d+)(?:-(?P<last>\d+))?)?")


@dataclass(frozen=True)
class Row:
    """An accepted difference: the call with its versions, scenarios, place in the answer, values and reason."""

    name: str
    first: int
    last: int
    scenarios: str
    where: str
    theirs: str
    ours: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}-{self.where}-{self.theirs}"

    def covers(self, scenario: str) -> bool:
        """Return True if the row covers this scenario."""
        return any(fnmatchcase(scenario, one.strip()) for one in self.scenarios.split(","))

    def explains(self, difference: Difference) -> bool:
        """Return True if the row covers this difference."""
        frame = difference.frame
        if not (difference.call == self.name and self.first <= frame.version <= self.last):
            return False
        if not (_fits(self.theirs, str(difference.theirs)) and _fits(self.ours, str(difference.ours))):
            return False
        return self.covers(frame.scenario) and _fits(self.where, difference.where)


def _fits(pattern: str, text: str) -> bool:
    """Return True if the text matches; a star stands for anything, brackets for themselves."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


@cache
def read_rows(document: Path = DOCUMENT) -> tuple[Row, ...]:
    """The table below the heading."""
    text = document.read_text(encoding="utf-8")
    table = text.partition(HEADING)[2].partition("\n## ")[0]
    found = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        match = CALL.fullmatch(cells[0]) if line.startswith("|") else None
        if match is not None:
            first, last = int(match["first"] or 0), int(match["last"] or match["first"] or 99)
            scenarios, where, theirs, ours = (cell.strip("`") for cell in cells[1:5])
            found.append(Row(match["name"], first, last, scenarios, where, theirs, ours, cells[5]))
    return tuple(found)


def unexplained_differences(differences: Iterable[Difference], known: Iterable[Row]) -> list[Difference]:
    """The differences that no row speaks of."""
    known = tuple(known)
    return [one for one in differences if not any(row.explains(one) for row in known)]

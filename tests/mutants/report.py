"""The outcomes of changes as a page, and the changes that alter no behaviour."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.mutants.python_changes import Change
from tests.mutants.trial import Outcome

EQUIVALENT = Path(__file__).with_name("equivalent.md")
UNCOUNTED = ("equivalent", "not built")


def equivalents(page: str) -> set[tuple[str, str, str]]:
    """Return (file, line, change) of each row of the page's table."""
    rows = [row.strip("| ").split(" | ") for row in page.splitlines() if row.startswith("| kafkalog/")]
    return {(file, line.strip("`"), change) for file, line, change, _ in rows}


def key(change: Change, source: bytes) -> tuple[str, str, str]:
    """Return the words by which a change is listed, whatever its line's number has become."""
    line = source.decode().splitlines()[change.line - 1].strip()
    return change.path, line, str(change).partition(": ")[2]


def summary(outcomes: list[tuple[Change, Outcome]]) -> str:
    """Return the counts in one line."""
    words = Counter(outcome.word for _, outcome in outcomes)
    counted = sum(count for word, count in words.items() if word not in UNCOUNTED)
    noticed = words["noticed"] + words["timed out"]
    shares = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
    return f"{noticed} of {counted} noticed ({100 * noticed / max(1, counted):.0f} %): {shares}"


def page(title: str, outcomes: list[tuple[Change, Outcome]]) -> str:
    """Return the report in full."""
    rows = [f"{outcome.word:10} {change}  {outcome.test}".rstrip() for change, outcome in outcomes]
    return "\n".join([title, summary(outcomes), "", *rows, ""])

"""The behaviours of the reference that have to be shown, and where they are shown.

A behaviour has an id such as IDX-3. It is shown by a test that names it, or has a row with the reason in
tests/not_applicable.md; one shown only in part has a row in tests/partly_shown.md that names the issue which
completes it. Rows are `| ID | reason |`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
NOT_APPLICABLE = TESTS / "not_applicable.md"
PARTLY_SHOWN = TESTS / "partly_shown.md"
ID = re.compile(r"\b(REC|VAL|FILE|IDX|TIDX|TXN|SEG|SEGS|LOG|DUMP|LOAD|PSM|EPOCH|CKPT|MGR|CLN|PART|FLOW)-(\d+)\b")
ROW = re.compile(r"^\|\s*([A-Z]+-\d+)\s*\|\s*(.*?)\s*\|\s*$")

# section -> the numbers to show
REQUIRED = {
    "REC": "1-48",
    "VAL": "1-23",
    "FILE": "1-16",
    "IDX": "1-17",
    "TIDX": "1-7",
    "TXN": "1-8",
    "SEGS": "1-6",
    "SEG": "1-36",
    "LOG": "1-86",
    "EPOCH": "1-12",
    "CKPT": "1-10",
    "DUMP": "1-15",
    "PSM": "1-36",
    "LOAD": "1-33",
    "MGR": "1-29",
    "CLN": "1-50",
    "PART": "1-17",
    "FLOW": "1-27",
}


@dataclass(frozen=True)
class Row:
    """One row of a table of reasons."""

    id: str
    reason: str


def required_ids() -> list[str]:
    """Every id that has to be shown, in order."""
    ids = []
    for section, ranges in REQUIRED.items():
        for span in ranges.split():
            first, _, last = span.partition("-")
            ids += [f"{section}-{n}" for n in range(int(first), int(last or first) + 1)]
    return ids


def named_ids() -> dict[str, set[str]]:
    """Id -> the test files that name it."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.name == "test_checklist.py" or "data" in path.relative_to(TESTS).parts:
            continue
        for section, number in ID.findall(path.read_text(encoding="utf-8")):
            found.setdefault(f"{section}-{number}", set()).add(str(path.relative_to(TESTS)))
    return found


def rows(path: Path) -> list[Row]:
    """The rows of a table of reasons; its heading and text are left out."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [Row(match[1], match[2]) for line in lines if (match := ROW.match(line))]

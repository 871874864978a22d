"""The counts of a release, kept in the repository: for comparisons that compile nothing, for asv, and for the page."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from asv_benchmarks.counting.base import ROOT, tree_of
from asv_benchmarks.counting.callgrind import count
from asv_benchmarks.counting.history import BENCHMARKS, RESULTS, History
from asv_benchmarks.counting.toolchain import differences, toolchain

KEPT = RESULTS / "counts.json"
ACCEPTED = BENCHMARKS / "accepted.toml"
PAGE = ROOT / "docs" / "benchmarks.md"
MACHINE = "release"
"""asv's name for the machine that releases are measured on."""
BEGIN, END = "<!-- counts: written by `make bench-page` -->", "<!-- end of the counts -->"


@dataclass(frozen=True)
class Kept:
    """The counts of a commit, and the toolchain they were made with."""

    commit: str
    profile: str
    toolchain: dict[str, str]
    instructions: dict[str, int]
    items: dict[str, int]


def read(path: Path = KEPT) -> Kept | None:
    """Return the saved counts; None if there are none."""
    if not path.exists():
        return None
    return Kept(**json.loads(path.read_text()))


def unusable(held: Kept | None, profile: str) -> str | None:
    """Return why nothing can be compared with the saved counts, as the end of a sentence; None if it can."""
    if held is None or profile != held.profile:
        return "no counts of this profile are kept"
    if other := differences(held.toolchain, toolchain()):
        return f"the counts kept of {held.commit[:12]} are of another toolchain ({', '.join(other)})"
    return None


def accepted(path: Path = ACCEPTED) -> dict[str, float]:
    """Return the accepted increases as shares; ValueError for an unknown hot path."""
    from asv_benchmarks.hot_paths.all import PATHS

    percents: dict[str, float] = tomllib.loads(path.read_text())["percent"]
    if unknown := sorted(set(percents) - set(PATHS)):
        raise ValueError(f"{path.name} names what is no hot path: {', '.join(unknown)}")
    return {name: percent / 100 for name, percent in percents.items()}


def record(names: Sequence[str], profile: str, commit: str) -> int:
    """Count a commit, and write the counts, asv's results and the page's table; return an exit status."""
    counts = count(names, tree=tree_of(commit), profile=profile)
    for name, reason in counts.missing.items():
        print(f"not counted  {name}: {reason}")
    if counts.missing:
        return 1
    held = Kept(commit, profile, toolchain(), counts.instructions, counts.items)
    KEPT.write_text(json.dumps(asdict(held), indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), table(held)))
    failed = History(results=RESULTS, machine=MACHINE).add([commit], {commit: counts.instructions})
    History().publish()
    print("\n".join(f"asv: {name} has no result" for name in failed), end="\n" if failed else "")
    return 1 if failed else 0


def table(held: Kept) -> list[str]:
    """Return a Markdown table: each hot path, its instructions per item and of one run."""
    from asv_benchmarks.hot_paths.all import PATHS

    lines = [f"Commit {held.commit[:12]}, {held.profile} profile; " + "; ".join(
        f"{name} {value}" for name, value in held.toolchain.items() if value) + ".", ""]  # fmt: skip
    noun = ""
    for path in PATHS.values():
        if path.name not in held.instructions:
            continue
        if path.noun != noun:
            noun = path.noun
            lines += ["", f"| {noun} | instructions | of one run |", "|---|---|---|"]
        whole = held.instructions[path.name]
        lines.append(f"| {path.name} | {_short(whole / held.items[path.name])} per {path.item} | {whole:,} |")
    return lines


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def with_table(text: str, lines: Sequence[str]) -> str:
    """Return the page with the text between its two marks replaced; ValueError if it has none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no place for the counts: {BEGIN} ... {END}")
    return "\n".join([before + BEGIN, *lines, END + after])

"""The counts of a release, kept in the repository: for clones without history, for asv, and for the results page."""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from asv_benchmarks.counting.base import ROOT, commit_of
from asv_benchmarks.counting.callgrind import Counts, count
from asv_benchmarks.counting.toolchain import toolchain

BENCHMARKS = Path(__file__).resolve().parents[1]
KEPT = BENCHMARKS / "results" / "counts.json"
ACCEPTED = BENCHMARKS / "accepted.toml"
PAGE = ROOT / "docs" / "benchmarks.md"
MACHINE = "counts"
"""What asv calls the machine: instructions are those of none."""
COUNTS_VARIABLE = "KAFKALOG_COUNTS"
BEGIN, END = "<!-- counts: written by `make bench-page` -->", "<!-- end of the counts -->"


@dataclass(frozen=True)
class Kept:
    """What was counted, of which commit, and with what."""

    commit: str
    profile: str
    toolchain: dict[str, str]
    instructions: dict[str, int]
    items: dict[str, int]


def read(path: Path = KEPT) -> Kept | None:
    """The counts that are kept; None where there are none."""
    if not path.exists():
        return None
    return Kept(**json.loads(path.read_text()))


def accepted(path: Path = ACCEPTED) -> dict[str, float]:
    """The shares that hot paths may take more; ValueError for a path that there is none of."""
    from asv_benchmarks.hot_paths.all import PATHS

    percents: dict[str, float] = tomllib.loads(path.read_text())["percent"]
    if unknown := sorted(set(percents) - set(PATHS)):
        raise ValueError(f"{path.name} names what is no hot path: {', '.join(unknown)}")
    return {name: percent / 100 for name, percent in percents.items()}


def record(names: Sequence[str], profile: str) -> int:
    """Counts this tree and writes the counts, asv's results and the page's table; an exit status."""
    counts = count(names, profile=profile)
    for name, reason in counts.missing.items():
        print(f"not counted  {name}: {reason}")
    if counts.missing:
        return 1
    held = Kept(commit_of("HEAD") or "", profile, toolchain(), counts.instructions, counts.items)
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(asdict(held), indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), table(held)))
    return _tell_asv(counts, held.commit)


def _tell_asv(counts: Counts, commit: str) -> int:
    """asv's own run writes the same counts in its format, without counting again."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(asdict(counts), file)
        file.flush()
        run = [
            sys.executable, "-m", "asv", "run", "--python=same", f"--set-commit-hash={commit}",
            "--bench=track_instructions", f"--machine={MACHINE}",
        ]  # fmt: skip
        machine = [*run[:3], "machine", "--yes", f"--machine={MACHINE}"]
        environ = {**os.environ, COUNTS_VARIABLE: file.name, "ASV_PYTHONPATH": str(ROOT)}
        for command in (machine, run):
            done = subprocess.run(command, cwd=BENCHMARKS, env=environ)
            if done.returncode:
                return done.returncode
    _name_no_path(commit)
    return 0


def _name_no_path(commit: str) -> None:
    """asv names a result after the path of the interpreter that ran it, which says nothing elsewhere."""
    for file in (KEPT.parent / MACHINE).glob(f"{commit[:8]}-existing-*.json"):
        result = json.loads(file.read_text())
        result["env_name"] = "existing-python"
        result["python"] = result["params"]["python"] = "python"
        file.unlink()
        file.with_name(f"{commit[:8]}-existing-python.json").write_text(json.dumps(result))


def table(held: Kept) -> list[str]:
    """A Markdown table: each hot path, the instructions of an item, and of the whole body."""
    from asv_benchmarks.hot_paths.all import PATHS

    lines = [f"Commit {held.commit[:12]}, {held.profile} profile; " + "; ".join(
        f"{name} {value}" for name, value in held.toolchain.items() if value) + ".", ""]  # fmt: skip
    noun = ""
    for path in PATHS.values():
        if path.name not in held.instructions:
            continue
        if path.noun != noun:
            noun = path.noun
            lines += ["", f"| {noun} | instructions | of the body |", "|---|---|---|"]
        whole = held.instructions[path.name]
        lines.append(f"| {path.name} | {_short(whole / held.items[path.name])} a {path.item} | {whole:,} |")
    return lines


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def with_table(text: str, lines: Sequence[str]) -> str:
    """The page with what lies between its two marks replaced; ValueError where it has none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no place for the counts: {BEGIN} ... {END}")
    return "\n".join([before + BEGIN, *lines, END + after])

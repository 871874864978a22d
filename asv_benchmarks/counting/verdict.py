"""Counts before and after in, a verdict out. Pure: nothing is measured here."""

from collections.abc import Mapping
from dataclasses import dataclass

THRESHOLD = 0.03
"""A hot path may take so much more, as a share: the largest difference of two runs of one commit is a third of it."""
NOISY = {
    "group commit of 4 threads": 0.3,
    "start and stop a log manager": 0.06,
    "put records into a writer": 0.08,
    "scan batches of 100, no checksum": 0.1,
}
"""What these may take more, as a share: threads take turns as they like in three, and in one it matters what lies
behind memory that grows.
"""


@dataclass(frozen=True)
class Change:
    """Instructions of one hot path, before and after."""

    name: str
    before: int
    after: int

    @property
    def share(self) -> float:
        """The increase as a share of before; negative for a decrease."""
        return self.after / self.before - 1 if self.before else float(self.after > 0)

    def __str__(self) -> str:
        return f"{self.name}: {self.before:,} -> {self.after:,} instructions ({100 * self.share:+.1f} %)"


@dataclass(frozen=True)
class Verdict:
    """Result of a comparison: paths that became slower or faster, new ones, and those not counted any longer."""

    slower: tuple[Change, ...]
    faster: tuple[Change, ...]
    new: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """True if no path became slower, and every path of before was counted again."""
        return not self.slower and not self.lost


def judge(
    before: Mapping[str, int], after: Mapping[str, int], *, threshold: float = THRESHOLD,
    accepted: Mapping[str, float] | None = None,
) -> Verdict:  # fmt: skip
    """Compare two counts, the largest change first; `accepted` are intended increases, as shares."""
    more = {**NOISY, **(accepted or {})}
    changes = [Change(name, before[name], after[name]) for name in before if name in after]
    changes.sort(key=lambda change: -abs(change.share))

    def beyond(change: Change, sign: int) -> bool:
        return sign * change.share > max(threshold, more.get(change.name, 0.0))

    return Verdict(
        slower=tuple(change for change in changes if beyond(change, 1)),
        faster=tuple(change for change in changes if beyond(change, -1)),
        new=tuple(name for name in after if name not in before),
        lost=tuple(name for name in before if name not in after),
    )


def report_lines(verdict: Verdict, before: str, after: str, threshold: float = THRESHOLD) -> list[str]:
    """Return the verdict in lines of text; the last one is the summary."""
    lines = [f"slower  {change}" for change in verdict.slower]
    lines += [f"lost    {name}: counted in {before}, not in {after}" for name in verdict.lost]
    lines += [f"faster  {change}" for change in verdict.faster]
    lines += [f"new     {name}: not counted in {before}" for name in verdict.new]
    if verdict.is_good:
        lines.append(f"no hot path takes more than {100 * threshold:g} % more instructions than in {before}")
    else:
        lines.append(f"{len(verdict.slower)} hot paths are slower, and {len(verdict.lost)} lost, since {before}")
    return lines

"""`python -m asv_benchmarks.counting [quick|full] [BASE]`: instructions of every hot path, against the last release.

Exit status 1 if a hot path takes more instructions than the threshold allows; 0 if none does, or if nothing can be
compared, which one line says. With the quick profile asv then keeps the counts and a few times, and makes its pages.
Counts do not change with other work beside them, and times do: `--save FILE` leaves asv out and keeps what it needs,
and `--times FILE` is asv's part alone.
`--record` writes the counts of BASE, by default HEAD, for comparisons without history, for asv and for
docs/benchmarks.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from asv_benchmarks.counting import history, kept
from asv_benchmarks.counting.base import ROOT, choose_base, commit_of, is_changed, make_base, shares_modules
from asv_benchmarks.counting.callgrind import Counts, count, unavailable
from asv_benchmarks.counting.verdict import THRESHOLD, judge, report_lines
from asv_benchmarks.hot_paths.all import PATHS
from asv_benchmarks.hot_paths.path import PROFILES


def main(arguments: list[str]) -> int:
    """Compare and keep the result, or record a release; return the exit status."""
    asked = _asked(arguments)
    if asked.times is not None:
        saved = json.loads(asked.times.read_text())
        return history.keep(saved["base"], saved["counts"])
    commit = commit_of(asked.base or "HEAD")
    if asked.base is not None and commit is None:
        print(f"bench: there is no commit {asked.base} here")
        return 2
    reason = unavailable()
    if asked.record:
        if reason := reason or history.unavailable():
            print(f"bench: nothing was recorded: {reason}")
            return 1
        return kept.record(list(PATHS), asked.profile, str(commit))
    counts: dict[str, dict[str, int]] = {}
    if reason is None:
        named = None if asked.base is None else (str(commit), asked.base)
        status, compared = _judged(asked.profile, named, asked.threshold / 100, counts)
    else:
        print(f"bench: nothing was counted: {reason}")
        status, compared = 0, None
    if asked.profile != PROFILES[0]:
        return status  # one history has one size of data
    if asked.save is not None:
        asked.save.parent.mkdir(parents=True, exist_ok=True)
        asked.save.write_text(json.dumps({"base": compared, "counts": counts}))
        return status
    return max(status, history.keep(compared, counts))


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ci/bench.sh", description=__doc__)
    parser.add_argument("profile", nargs="?", choices=PROFILES, default=PROFILES[0])
    parser.add_argument("base", nargs="?", help="the commit to compare with, the last release where none is named")
    parser.add_argument("--threshold", type=float, default=100 * THRESHOLD, help="percent (default %(default)s)")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--save", type=Path, metavar="FILE", help="count and compare only; keep the counts for --times")
    parser.add_argument("--times", type=Path, metavar="FILE", help="count nothing: asv's times and pages, with the "
                        "counts of --save")  # fmt: skip
    return parser.parse_args(arguments)


def compare(profile: str, base: tuple[str, str], threshold: float, counts: dict[str, dict[str, int]]) -> int:
    """Compare this tree with a commit and add the instructions of both to `counts`; return the exit status."""
    began = time.monotonic()
    commit, what = base
    tree = make_base(commit)
    built = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        before, after = threads.map(lambda one: counted(one, profile), (tree, ROOT))
        slower = judge(before.instructions, after.instructions, threshold=threshold, accepted=kept.accepted()).slower
        if slower:  # a clock may have had its part in it: what is slower is so twice
            names = [change.name for change in slower]
            again = threads.map(lambda one: counted(one, profile, names), (tree, ROOT))
            for first, second in zip((before, after), again, strict=True):
                first.take_lower(second)
    print(f"bench: {profile} profile, {len(after.instructions)} hot paths, this tree against {commit[:12]} ({what}); "
          f"{built - began:.0f} s to have it, {time.monotonic() - built:.0f} s to count")  # fmt: skip
    counts[commit] = before.instructions
    _add_head(counts, after)
    return tell(before.instructions, after, commit[:12], threshold)


def counted(tree: Path, profile: str, names: Sequence[str] = tuple(PATHS)) -> Counts:
    """Return the counts of all hot paths of a tree, or of some."""
    return count(names, tree=tree, profile=profile)


def tell(before: dict[str, int], after: Counts, name: str, threshold: float) -> int:
    """Print the verdict; return the exit status."""
    for path, reason in after.missing.items():
        print(f"not counted  {path}: {reason}")
    verdict = judge(before, after.instructions, threshold=threshold, accepted=kept.accepted())
    print("\n".join(report_lines(verdict, name, "this tree", threshold)), flush=True)
    return 0 if verdict.is_good else 1


def _add_head(counts: dict[str, dict[str, int]], found: Counts) -> None:
    """Add the counts of this tree under the name of HEAD, unless changes make it another tree."""
    if (head := commit_of("HEAD")) is not None and not is_changed():
        counts[head] = found.instructions


def _judged(
    profile: str, named: tuple[str, str] | None, threshold: float, counts: dict[str, dict[str, int]]
) -> tuple[int, str | None]:
    """Compare this tree with the named commit, or with the last release; return the exit status, and the commit that
    was counted for it.

    The kept counts are those of the last release, at no cost. Only what is slower than these, or where they are of
    another toolchain, a commit is compiled and counted.
    """
    held = kept.read()
    why_not = kept.unusable(held, profile)
    if named is None and held is not None and why_not is None:
        status = _against_kept(held, threshold, counts)
        if status == 0:
            return status, None
    base = named or choose_base()
    if base is not None and not shares_modules(base[0]):
        print(f"bench: {base[0][:12]} has no compiled module at a path of this tree, and cannot run its hot paths")
        base = None
    if base is not None:
        return compare(profile, base, threshold, counts), base[0]
    if why_not is None:
        return 1, None
    after = counted(ROOT, profile)
    _add_head(counts, after)
    print(f"bench: {len(after.instructions)} hot paths counted and compared with nothing: there is no commit to count, "
          f"and {why_not}")  # fmt: skip
    return 0, None


def _against_kept(held: kept.Kept, threshold: float, counts: dict[str, dict[str, int]]) -> int:
    """Compare this tree with the kept counts; return the exit status."""
    after = counted(ROOT, held.profile)
    slower = judge(held.instructions, after.instructions, threshold=threshold, accepted=kept.accepted()).slower
    if slower:
        after.take_lower(counted(ROOT, held.profile, [change.name for change in slower]))
    _add_head(counts, after)
    print(f"bench: {held.profile} profile, {len(after.instructions)} hot paths, this tree against the counts kept of "
          f"{held.commit[:12]}")  # fmt: skip
    return tell(held.instructions, after, held.commit[:12], threshold)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

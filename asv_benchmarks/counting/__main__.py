"""`python -m asv_benchmarks.counting [quick|full] [BASE]`: instructions of every hot path, against the last release.

Exit status 1 where a hot path takes more than the threshold more than before, 0 where none does or nothing can be
compared, which one line says. `--record` writes the counts of this tree where the next comparisons without history,
`asv` and docs/benchmarks.md have them.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from asv_benchmarks.counting import kept
from asv_benchmarks.counting.base import ROOT, choose_base, commit_of, make_base
from asv_benchmarks.counting.callgrind import Counts, count, unavailable
from asv_benchmarks.counting.toolchain import differences, toolchain
from asv_benchmarks.counting.verdict import THRESHOLD, judge, told
from asv_benchmarks.hot_paths.all import PATHS
from asv_benchmarks.hot_paths.path import PROFILES


def main(arguments: list[str]) -> int:
    """Compares, or records; the exit status."""
    asked = _asked(arguments)
    if (reason := unavailable()) is not None:
        print(f"bench: nothing was counted: {reason}")
        return 0
    if asked.record:
        return kept.record(list(PATHS), asked.profile)
    return compare(asked.profile, asked.base, asked.threshold / 100)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ci/bench.sh", description=__doc__)
    parser.add_argument("profile", nargs="?", choices=PROFILES, default=PROFILES[0])
    parser.add_argument("base", nargs="?", help="the commit to compare with, the last release where none is named")
    parser.add_argument("--threshold", type=float, default=100 * THRESHOLD, help="percent (default %(default)s)")
    parser.add_argument("--record", action="store_true")
    return parser.parse_args(arguments)


def compare(profile: str, named: str | None, threshold: float) -> int:
    """This tree against a commit, else against the counts that were kept of the last release."""
    began = time.monotonic()
    if named is not None:
        commit = commit_of(named)
        if commit is None:
            print(f"bench: there is no commit {named} here")
            return 2
        base: tuple[str, str] | None = (commit, named)
    else:
        base = choose_base()
    if base is None:
        return _against_kept(profile, threshold)
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
    return tell(before.instructions, after, commit[:12], threshold)


def counted(tree: Path, profile: str, names: Sequence[str] = tuple(PATHS)) -> Counts:
    """All hot paths of a tree, or some."""
    return count(names, tree=tree, profile=profile)


def tell(before: dict[str, int], after: Counts, name: str, threshold: float) -> int:
    """Prints the verdict; the exit status."""
    for path, reason in after.missing.items():
        print(f"not counted  {path}: {reason}")
    verdict = judge(before, after.instructions, threshold=threshold, accepted=kept.accepted())
    print("\n".join(told(verdict, name, "this tree", threshold)), flush=True)
    return 0 if verdict.is_good else 1


def _against_kept(profile: str, threshold: float) -> int:
    """For a clone without history."""
    held = kept.read()
    after = counted(ROOT, profile)
    if held is None or profile != held.profile:
        print(f"bench: {len(after.instructions)} hot paths counted and compared with nothing: this clone has no "
              "history, and no counts of this profile are kept")  # fmt: skip
        return 0
    if other := differences(held.toolchain, toolchain()):
        print(
            f"bench: {len(after.instructions)} hot paths counted and compared with nothing: this clone has no history, "
            f"and the counts kept of {held.commit[:12]} are of another toolchain ({', '.join(other)})"
        )
        return 0
    slower = judge(held.instructions, after.instructions, threshold=threshold, accepted=kept.accepted()).slower
    if slower:
        after.take_lower(counted(ROOT, profile, [change.name for change in slower]))
    print(f"bench: {profile} profile, {len(after.instructions)} hot paths, this tree against the counts kept of "
          f"{held.commit[:12]}, as this clone has no history")  # fmt: skip
    return tell(held.instructions, after, held.commit[:12], threshold)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

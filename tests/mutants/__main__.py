"""`python -m tests.mutants --package storage --count 40 --seed 1`: changes chosen by the seed, each tried.

`--only kafkalog/storage/new_segment.py:71` keeps to the changes of a file, or of one of its lines. The tests have to
pass as they are before anything is changed; then they run once more to see which of them run which line. A change is
tried with the tests that run its statement. The report is written after each change, to build/mutants/ or to
`--report`.
"""

from __future__ import annotations

import argparse
import random
from itertools import islice
from pathlib import Path

from tests.mutants import report
from tests.mutants.cython_changes import cython_changes
from tests.mutants.python_changes import Change, compiles, python_changes
from tests.mutants.reach import PACKAGES, Package, files_naming, files_reaching, statement
from tests.mutants.trial import Copy, Outcome, copied
from tests.trees import ROOT

UNCHANGED_S = 1800


def chosen(package: Package, only: str, count: int, seed: int) -> list[Change]:
    """Return so many changes of a package's sources."""
    found: list[Change] = []
    sources: dict[str, bytes] = {}
    for file in sorted(file for pattern in package.sources for file in ROOT.glob(pattern)):
        path = str(file.relative_to(ROOT))
        if path.startswith(only.partition(":")[0]):
            sources[path] = file.read_bytes()
            changes_of = python_changes if file.suffix == ".py" else cython_changes
            found += changes_of(path, sources[path])
    found = [one for one in found if ":" not in only or only == f"{one.path}:{one.line}"]
    random.Random(seed).shuffle(found)
    sound = (one for one in found if not one.path.endswith(".py") or compiles(one.applied(sources[one.path])))
    return list(islice(sound, count))


class Trials:
    """Changes of one package tried in a copy of the tree."""

    def __init__(self, copy: Copy, package: Package) -> None:
        self._copy, self._package = copy, package
        self._equivalent = report.equivalents(report.EQUIVALENT.read_text(encoding="utf-8"))
        files = files_reaching(package, package.sources[0], ROOT)
        if (unchanged := copy.run(files, UNCHANGED_S)).word != "survived":
            raise SystemExit(f"the tests fail as they are: {unchanged.test}")
        watch = copy.watch if package.sources[0].endswith(".py") else copy.watch_compiled
        self._seen = watch(files, UNCHANGED_S)

    def outcome(self, change: Change) -> Outcome:
        """Try one change, unless it is known to alter nothing."""
        root = self._copy.place  # the tree that was copied may be another one by now
        source = (root / change.path).read_bytes()
        if report.key(change, source) in self._equivalent:
            return Outcome("equivalent")
        tests = self._seen.tests_of(change.path, source, change.line)
        limit_s = 60 + 3 * self._seen.seconds_of(tests)
        if change.path.endswith(".py") and tests and statement(source, change.line) is None:
            tests, limit_s = [*files_naming(self._package, change.path, root), *tests], UNCHANGED_S
        if not tests:
            tests, limit_s = files_reaching(self._package, change.path, root), UNCHANGED_S
        return self._copy.try_change(change, tests, limit_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--package", choices=sorted(PACKAGES), required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", default="", metavar="FILE[:LINE]")
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    package = PACKAGES[given.package]
    title = f"--package {given.package} --count {given.count} --seed {given.seed} {given.only}".rstrip()
    print(title, flush=True)
    file = given.report or ROOT / "build" / "mutants" / f"{given.package}-{given.seed}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    outcomes: list[tuple[Change, Outcome]] = []
    changes = chosen(package, given.only, given.count, given.seed)
    with copied(ROOT) as copy:
        trials = Trials(copy, package)
        for change in changes:
            outcomes.append((change, trials.outcome(change)))
            print(f"{outcomes[-1][1].word:10} {change}  {outcomes[-1][1].test}", flush=True)
            file.write_text(report.page(title, outcomes), encoding="utf-8")
    print(report.summary(outcomes), f"-> {file}", flush=True)


if __name__ == "__main__":
    main()

"""`python -m asv_benchmarks.planted [NAME...]`: plants a slowdown in each hot path and checks that its count shows it.

Each is put into a copy of the package, which is compiled where it has to be, counted like ci/bench.sh does, and
dropped; this tree stays as it is. Several go into one copy (--together), none of them in a path that another one
slows down too. Status 1 where a slowdown was not noticed, or another path was named than those that run the line.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from asv_benchmarks.counting.base import ROOT, STORE, compile_tree
from asv_benchmarks.counting.callgrind import count, unavailable
from asv_benchmarks.counting.verdict import Change, judge
from asv_benchmarks.hot_paths.all import PATHS
from asv_benchmarks.planted.core import CORE
from asv_benchmarks.planted.package import PACKAGE
from asv_benchmarks.planted.plant import Plant

PLANTS = (*CORE, *PACKAGE)


def main(arguments: list[str]) -> int:
    """Try the named slowdowns, or all; print a table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m asv_benchmarks.planted", description=__doc__)
    parser.add_argument("name", nargs="*", help="hot paths (default: all)")
    parser.add_argument("--together", type=int, default=1, help="how many go into one copy (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="copies counted at a time (default %(default)s)")
    parser.add_argument("--only", action="store_true", help="count the paths that were named, and no others")
    asked = parser.parse_args(arguments)
    if (reason := unavailable()) is not None:
        print(f"nothing can be counted: {reason}")
        return 2
    wanted = [plant for plant in PLANTS if not asked.name or plant.path in asked.name]
    counted = [name for name in PATHS if not asked.only or name in asked.name]
    groups = grouped(wanted, asked.together)
    with ThreadPoolExecutor(asked.jobs) as threads:
        before = threads.submit(lambda: count(counted).instructions)
        done = threads.map(lambda plants: tried(plants, counted), groups)
        found = [(plants, judge(before.result(), after)) for plants, after in zip(groups, done, strict=True)]
    bad = 0
    for plants, verdict in found:
        named = {change.name: change for change in verdict.slower}
        bad += sum([report(plant, named) for plant in plants])
        expected = {name for plant in plants for name in (plant.path, *plant.also)}
        for change in (one for one in verdict.slower if one.name not in expected):
            bad += 1
            print(f"WRONG     {change}, by a slowdown of {', '.join(plant.path for plant in plants)}")
    print(f"{len(wanted)} slowdowns, {bad} not noticed or wrongly named")
    return 1 if bad else 0


def report(plant: Plant, named: dict[str, Change]) -> bool:
    """Prints a line for a slowdown; True where it went unnoticed."""
    if (change := named.get(plant.path)) is None:
        print(f"UNNOTICED {plant.path} ({plant.file})")
        return True
    also = [name for name in plant.also if name in named]
    print(f"noticed   {change} ({plant.file})" + (f", with {', '.join(also)}" if also else ""), flush=True)
    return False


def grouped(plants: Iterable[Plant], most: int) -> list[list[Plant]]:
    """Groups of at most so many, in none of which a slowdown reaches the path of another one."""
    groups: list[list[Plant]] = []
    for plant in plants:
        for group in groups:
            if len(group) < most and not any(_reaches(plant, other) or _reaches(other, plant) for other in group):
                group.append(plant)
                break
        else:
            groups.append([plant])
    return groups


def _reaches(plant: Plant, other: Plant) -> bool:
    return other.path == plant.path or other.path in plant.also


def tried(plants: Sequence[Plant], names: Sequence[str]) -> dict[str, int]:
    """Return the counts of a copy of the package with these slowdowns in it."""
    STORE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="planted-", dir=STORE) as directory:
        tree = Path(directory)
        leave = shutil.ignore_patterns("*.so", "__pycache__", "*.c")
        shutil.copytree(ROOT / "kafkalog", tree / "kafkalog", ignore=leave)
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(ROOT / name, tree / name)
        for plant in plants:
            plant.plant(tree / "kafkalog")
        compile_tree(tree)
        return count(names, tree=tree).instructions


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The files that `pytest --quick` leaves out because their tests take long.

`pytest -m "not interop and not slow" --junitxml=times.xml`, then `python -m tests.quick times.xml`, renews the list.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

LISTED = Path(__file__).with_name("long_files.txt")
AVERAGE_S = 0.05
LEAST_S = 1.0
"""A file is left out if its tests take longer than both: on average, and together."""


def long_files() -> frozenset[str]:
    """Return the paths of the files left out, from the top of the tree."""
    return frozenset(LISTED.read_text(encoding="utf-8").split())


def find_long_files(times: Path, tree: Path) -> list[str]:
    """Return the files of `tree` that take long by a report of pytest (JUnit XML)."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(times).iter("testcase"):
        names = case.attrib["classname"].split(".")
        paths = ("/".join(names[:count]) + ".py" for count in range(len(names), 0, -1))  # a class may follow the file
        path = next((one for one in paths if (tree / one).exists()), None)
        if path is not None:
            found[path].append(float(case.attrib["time"]))
    return sorted(path for path, each in found.items() if sum(each) > max(LEAST_S, AVERAGE_S * len(each)))


if __name__ == "__main__":
    LISTED.write_text("\n".join(find_long_files(Path(sys.argv[1]), LISTED.parents[1])) + "\n", encoding="utf-8")

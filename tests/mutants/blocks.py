"""The lines of compiled modules that each test runs, by the blocks of code that gcc marks."""

from __future__ import annotations

import bisect
import ctypes
import subprocess
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).with_name("blocks.c")
FLAGS = "-fsanitize-coverage=trace-pc"
SLOTS = 1 << 20
"""As in `blocks.c`."""


def build(folder: Path) -> Path:
    """Compile the library that takes note of blocks; LD_PRELOAD names it for the process that runs tests."""
    library = folder / "blocks.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return library


def is_loaded() -> bool:
    """Return True if this process was started with the library."""
    return hasattr(ctypes.CDLL(None), "take_blocks")


class Blocks:
    """Blocks of compiled modules that ran, by the test that ran them."""

    def __init__(self, root: Path) -> None:
        self._root, self._context = root, ""
        self._take = ctypes.CDLL(None).take_blocks
        self._take.restype = ctypes.c_size_t
        self._room = (ctypes.c_size_t * SLOTS)()
        self._ran: dict[int, set[str]] = defaultdict(set)

    def switch(self, context: str) -> None:
        """Give what ran up to now to the last context."""
        for address in self._room[: self._take(self._room)]:
            self._ran[address].add(self._context)
        self._context = context

    def lines(self) -> dict[str, dict[int, set[str]]]:
        """Return the contexts that ran each line, by the path of its source below the root."""
        self.switch("")
        found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for library, ran in self._by_library().items():
            for offset, lines in _lines_of(library, list(ran)).items():
                for path, line in lines:
                    if path.is_relative_to(self._root):
                        found[str(path.relative_to(self._root))][line] |= ran[offset]
        return found

    def _by_library(self) -> dict[str, dict[int, set[str]]]:
        """Return, for each library below the root, the contexts that ran the call at each offset of its file."""
        regions = []
        base: dict[str, int] = {}
        for row in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
            span, *_, file = row.split(maxsplit=5)
            if file.startswith(str(self._root)):
                start, end = (int(number, 16) for number in span.split("-"))
                regions.append((start, end, file))
                base.setdefault(file, start)
        found: dict[str, dict[int, set[str]]] = defaultdict(dict)
        for address, contexts in self._ran.items():
            at = bisect.bisect(regions, (address,)) - 1
            if at >= 0 and address < regions[at][1]:
                file = regions[at][2]
                found[file][address - base[file] - 1] = contexts
        return found


def _lines_of(library: str, places: list[int]) -> dict[int, list[tuple[Path, int]]]:
    """Return the source lines of places in a library, those of inlined callers too."""
    words = "\n".join(map(hex, places))
    command = ["addr2line", "-a", "-i", "-e", library]
    printed = subprocess.run(command, input=words, capture_output=True, text=True, check=True).stdout
    found: dict[int, list[tuple[Path, int]]] = {}
    for row in printed.splitlines():
        if row.startswith("0x"):
            lines = found[int(row, 16)] = []
        else:
            file, _, line = row.partition(" ")[0].rpartition(":")
            if line.isdigit():
                lines.append((Path(file), int(line)))
    return found

"""The folder that wheels are built in, with all that they have in common."""

import time
from dataclasses import dataclass
from pathlib import Path

from .report import sha256_of
from .source import Sdist, cythonize, make_sdist, unpack


def say(text: str) -> None:
    """Report the progress."""
    print(f"wheels: {text}", flush=True)


@dataclass(frozen=True, slots=True)
class Workshop:
    """A folder to build in: the sdist of the commit, its tree with the C sources made, and the compiler's cache."""

    work: Path
    out: Path
    compiler_cache: Path
    jobs: int
    log: Path
    sdist: Sdist
    tree: Path

    @classmethod
    def open(cls, root: Path, commit: str, work: Path, out: Path, compiler_cache: Path, jobs: int) -> "Workshop":
        """Make the sdist of a commit of the repository at `root` in `out`, and the tree in `work`."""
        log = out / "build.log"
        began_s = time.monotonic()
        sdist = make_sdist(root, commit, work, out, log)
        say(f"{sdist.path.name}: {sdist.path.stat().st_size / 1e6:.2f} MB, sha256 {sha256_of(sdist.path)}")
        tree = unpack(sdist, work / "tree")
        cythonize(tree, sdist, log)
        say(f"the sdist and the C sources took {time.monotonic() - began_s:.0f} s")
        return cls(work, out, compiler_cache, jobs, log, sdist, tree)

"""A hot path: a name, and a body that is built in a directory and then run repeatedly."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROFILE_VARIABLE = "KAFKALOG_BENCH_PROFILE"
PROFILES = ("quick", "full")


def profile() -> str:
    """Return the profile that the environment names, quick by default; ValueError for another word."""
    named = os.environ.get(PROFILE_VARIABLE, PROFILES[0])
    if named not in PROFILES:
        raise ValueError(f"{PROFILE_VARIABLE}={named}: profiles are {' and '.join(PROFILES)}")
    return named


@dataclass(frozen=True)
class Place:
    """The empty directory for building a body, and its amount of data."""

    directory: Path
    is_full: bool = False

    def size(self, quick: int, full: int) -> int:
        """Return one of two sizes, by the profile."""
        return full if self.is_full else quick


@dataclass(frozen=True)
class Work:
    """A body: `once` does it and says how many items that were; `prepare` comes before each time, unmeasured."""

    once: Callable[[], int]
    prepare: Callable[[], object] | None = None

    def __call__(self) -> int:
        """Prepare and run once."""
        if self.prepare is not None:
            self.prepare()
        return self.once()


Maker = Callable[[Place], Iterator[Work]]


@dataclass(frozen=True)
class HotPath:
    """One hot path: its noun, its work, the size of an item, and the builder of its body."""

    noun: str
    name: str
    item: str
    make: Callable[[Place], AbstractContextManager[Work]]


PATHS: dict[str, HotPath] = {}


def hot_path(noun: str, name: str, *, item: str) -> Callable[[Maker], Callable[[Place], AbstractContextManager[Work]]]:
    """Register a maker under a unique name: a generator that yields the body once and then cleans up."""

    def enter(maker: Maker) -> Callable[[Place], AbstractContextManager[Work]]:
        if name in PATHS:
            raise ValueError(f"two hot paths are called {name}")
        make = contextmanager(maker)
        PATHS[name] = HotPath(noun, name, item, make)
        return make

    return enter


@contextmanager
def made(path: HotPath, *, full: bool, directory: Path | None = None) -> Iterator[Work]:
    """Yield the body of a path in a directory (by default a new one), which is removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="kafkalog-hot-")) if directory is None else directory
    directory.mkdir(exist_ok=True)
    try:
        with path.make(Place(directory, full)) as work:
            yield work
    finally:
        shutil.rmtree(directory, ignore_errors=True)

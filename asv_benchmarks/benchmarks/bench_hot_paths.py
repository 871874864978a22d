"""Every hot path, a class for each noun: its time, its peak memory, and how many instructions it takes."""

import contextlib
import json
import os
from pathlib import Path

import kafkalog
from asv_benchmarks.counting.callgrind import count, unavailable
from asv_benchmarks.counting.history import COUNTS_VARIABLE
from asv_benchmarks.hot_paths.all import PATHS
from asv_benchmarks.hot_paths.path import made, profile


def names(noun: str) -> list[str]:
    """Return the hot paths of a noun."""
    return [path.name for path in PATHS.values() if path.noun == noun]


class _Body:
    """A new body for each sample, as asv makes it with `number` = 1: some bodies use up what was prepared."""

    param_names = ["path"]
    number = 1
    repeat = (5, 100, 2.0) if profile() == "full" else (5, 40, 0.5)
    rounds = 2 if profile() == "full" else 1  # with each round asv starts again for each commit: seven seconds
    timeout = 300

    def setup(self, name: str) -> None:
        self._held = contextlib.ExitStack()
        self._work = self._held.enter_context(made(PATHS[name], full=profile() == "full"))
        if self._work.prepare is not None:
            self._work.prepare()

    def teardown(self, name: str) -> None:
        self._held.close()

    def time_once(self, name: str) -> None:
        self._work.once()

    def peakmem_once(self, name: str) -> None:
        self._work.once()


class Appending(_Body):
    params = names("appending")


class Batches(_Body):
    params = names("batches")


class Checksums(_Body):
    params = names("checksums")


class Cleaning(_Body):
    params = names("cleaning")


class Codecs(_Body):
    params = names("codecs")


class Columns(_Body):
    params = names("columns")


class Commits(_Body):
    params = names("commits")


class Indexes(_Body):
    params = names("indexes")


class Keys(_Body):
    params = names("keys")


class Opening(_Body):
    params = names("opening")


class Producers(_Body):
    params = names("producers")


class Reading(_Body):
    params = names("reading")


class Tools(_Body):
    params = names("tools")


class Values(_Body):
    params = names("values")


class Instructions:
    """Counts of all paths, made in one process, or taken from the file that COUNTS_VARIABLE names."""

    params = list(PATHS)
    param_names = ["path"]
    timeout = 1200

    def setup_cache(self) -> dict[str, int]:
        if named := os.environ.get(COUNTS_VARIABLE):
            counts: dict[str, dict[str, int]] = json.loads(Path(named).read_text())
            return counts.get(os.environ.get("ASV_COMMIT", ""), {})
        if unavailable() is not None:
            return {}
        return count(list(PATHS), tree=Path(kafkalog.__file__).parents[1], profile=profile()).instructions

    setup_cache.timeout = 1200  # type: ignore[attr-defined]

    def track_instructions(self, counts: dict[str, int], name: str) -> float:
        return counts.get(name, float("nan"))

    track_instructions.unit = "instructions"  # type: ignore[attr-defined]

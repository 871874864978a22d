"""The crash machine at length: `make crash`, or `python -m tests.crash.machine [--seed N] [--kills N] ...`.

    kills       writers killed with SIGKILL at a random moment
    cuts        each operation, and each opening, with a power cut at each of its changes of the disk, in every mode
    faults      each operation, and each opening, with each of its file calls failing in turn, in three ways
    sessions    random sessions with power cuts at a part of their changes
    cleans      a clean, with a power cut at each of its changes of the disk, and each of its file calls failing
    clean_kills writers killed with SIGKILL while one thread appends and another cleans
    stores      a store's cleaner in the background, with power cuts at its changes of the disk, and failing calls
    store_kills writers killed with SIGKILL that append to a store while its cleaner works

It prints its seed at once and what it did at the end; the first finding ends it with what is needed to see it again.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkalog.errors import UnsafeFileSystem
from tests.crash.cleaned import cut_clean, fail_clean
from tests.crash.faulty import FAULTS, fail_opening, fail_operation
from tests.crash.killer import kill_cleans, kill_many, kill_stores
from tests.crash.power import EACH_OPERATION, cut_opening, cut_operation, cut_session
from tests.crash.stored import cut_store, fail_store

MEMORY = Path("/dev/shm")
PARTS = ("kills", "cuts", "faults", "sessions", "cleans", "clean_kills", "stores", "store_kills")


@contextmanager
def _place(parent: Path) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=parent))
    yield made
    shutil.rmtree(made)


def kills(parent: Path, seed: int, count: int) -> str:
    """Kills `count` writers."""
    with _place(parent) as place:
        killed = kill_many(place, range(seed, seed + count))
    middle = sum(one.in_the_middle != "nothing" for one in killed)
    operations = sum(one.operations for one in killed)
    return f"{count:,} kills, {middle:,} of them inside an operation, after {operations:,} operations"


def cuts(parent: Path, seed: int, count: int) -> str:
    """Cuts the power at each change of the disk of each operation, after `count` sessions."""
    changes = states = 0
    for number in range(seed, seed + count):
        for do in EACH_OPERATION:
            with _place(parent) as place:
                found = cut_operation(place, do, number)
            changes, states = changes + found[0], states + found[1]
        for clean in (True, False):
            with _place(parent) as place:
                found = cut_opening(place, number, clean)
            changes, states = changes + found[0], states + found[1]
    return f"power cuts at {changes:,} changes of the disk by {len(EACH_OPERATION) + 2} operations: {states:,} states"


def faults(parent: Path, seed: int, count: int) -> str:
    """Fails each call of each operation in each way, after `count` sessions."""
    calls = 0
    for number in range(seed, seed + count):
        for fault in FAULTS:
            for do in EACH_OPERATION:
                with _place(parent) as place:
                    calls += fail_operation(place, do, number, fault)
            for clean in (True, False):
                with _place(parent) as place:
                    calls += fail_opening(place, number, clean, fault)
    return f"{calls:,} failing calls of {len(EACH_OPERATION) + 2} operations"


def sessions(parent: Path, seed: int, count: int) -> str:
    """Runs `count` random sessions with power cuts."""
    states = 0
    for number in range(seed, seed + count):
        with _place(parent) as place:
            states += cut_session(place, number, 60, 0.1)
    return f"{count:,} sessions with power cuts: {states:,} states"


def cleans(parent: Path, seed: int, count: int) -> str:
    """Cuts the power at each change of the disk of `count` cleans, and fails each of their calls in each way."""
    changes = states = calls = 0
    for number in range(seed, seed + count):
        with _place(parent) as place:
            found = cut_clean(place, number)
        changes, states = changes + found[0], states + found[1]
        for fault in FAULTS:
            with _place(parent) as place:
                calls += fail_clean(place, number, fault)
    return f"{count:,} cleans: power cuts at {changes:,} changes, {states:,} states; {calls:,} failing calls"


def clean_kills(parent: Path, seed: int, count: int) -> str:
    """Kills `count` writers that append and clean."""
    with _place(parent) as place:
        killed = kill_cleans(place, range(seed, seed + count))
    middle = sum(one.in_the_middle for one in killed)
    over = sum(one.cleans for one in killed)
    return f"{count:,} kills of writers that clean, {middle:,} of them inside a clean, after {over:,} cleans"


def stores(parent: Path, seed: int, count: int) -> str:
    """Cuts the power at a tenth of the changes by the cleaners of `count` stores, fails each 25th of their calls."""
    changes = states = calls = 0
    for number in range(seed, seed + count):
        with _place(parent) as place:
            found = cut_store(place, number, share=0.1)
        changes, states = changes + found[0], states + found[1]
        for fault in FAULTS:
            with _place(parent) as place:
                calls += fail_store(place, number, fault, 25)
    summary = f"power cuts at a part of {changes:,} changes, {states:,} states; {calls:,} failing calls"
    return f"{count:,} cleaners of stores: {summary}"


def store_kills(parent: Path, seed: int, count: int) -> str:
    """Kills `count` writers to stores that are cleaned in the background."""
    with _place(parent) as place:
        killed = kill_stores(place, range(seed, seed + count))
    middle = sum(one.in_the_middle for one in killed)
    over = sum(one.cleans for one in killed)
    return f"{count:,} kills of stores that clean, {middle:,} of them inside a clean, after {over:,} cleans"


def main(arguments: list[str]) -> int:
    """Runs the parts that are asked for; 1 at a finding."""
    parser = argparse.ArgumentParser(description="the crash machine")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: a random one)")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--cuts", type=int, default=3, help="sessions before each operation that is cut")
    parser.add_argument("--faults", type=int, default=1, help="sessions before each operation that is failed")
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--cleans", type=int, default=6)
    parser.add_argument("--clean-kills", type=int, default=1000)
    parser.add_argument("--stores", type=int, default=2)
    parser.add_argument("--store-kills", type=int, default=300)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts alone")
    place = MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    parser.add_argument("--directory", type=Path, default=place)
    asked = parser.parse_args(arguments)
    seed = secrets.randbelow(10**6) if asked.seed is None else asked.seed
    print(f"crash: seed {seed}", flush=True)
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore", UnsafeFileSystem)
    with _place(asked.directory) as parent:
        for part in asked.only:
            began = time.monotonic()
            try:
                summary = globals()[part](parent, seed, getattr(asked, part))
            except AssertionError as finding:
                print(f"crash: {part}: {finding}", flush=True)
                return 1
            print(f"crash: {summary}, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

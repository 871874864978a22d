"""The damage matrix: reads of damaged logs of every kind, each held against an oracle that knows the original.

    python -m tests.damage.matrix --reads 200000 --seed 7
    python -m tests.damage.matrix --seed 7 --case 123      one case again, with all its reads

Every second case flips one bit of a batch's header, all bits of every format and codec in turn; the others damage a log
in every other way. Exit status 1 for a read that lost records without an error, or a skip that was not exact.
"""

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import kafkalog
from kafkalog.errors import KafkalogError
from kafkalog.spark.damage import DataLoss
from kafkalog.tools.kept import restore_kept
from tests.damage import damages
from tests.damage.exits import Damaged, pick_exits
from tests.damage.judge import Result, Verdict, is_typed, judge, judge_skip, missing_offsets, run
from tests.damage.logs import CLOSURES, FAMILIES, PARTITION, SWAPS, LogKind, log_of
from tests.damage.oracle import Oracle
from tests.damage.ways import CAN_SKIP, pick_reads, pick_skips
from tests.memory import memory


class Case(NamedTuple):
    """A damaged log and the mode that it is opened in."""

    seed: int
    number: int
    kind: LogKind
    damage: damages.Damage
    mode: str

    @property
    def text(self) -> str:
        """The case in one line."""
        return f"--seed {self.seed} --case {self.number}: {self.kind.name}; {self.damage.text}; mode {self.mode}"


class Outcome(NamedTuple):
    """A read of a case with its verdict."""

    case: Case
    read: str
    verdict: Verdict
    why: str

    @property
    def text(self) -> str:
        """The outcome in one line."""
        return f"{self.case.text}; {self.read}: {self.why}"

    @property
    def call(self) -> str:
        """The call that read, without its arguments."""
        return "log[n]" if self.read.startswith("log[") and ":" not in self.read else self.read.split("(")[0].split()[0]

    @property
    def group(self) -> str:
        """Common properties of reads that fail alike."""
        case = self.case
        place = "the last segment" if case.damage.segment == len(case.kind.segments) - 1 else "an earlier segment"
        return f"mode {case.mode}, {'closed' if case.kind.is_closed else 'not closed'}, {case.damage.label} in {place}"


def header_plan(seed: int) -> list[tuple[str, int, int]]:
    """(family, byte, bit) of every bit of a header of each family, in an order of the seed."""
    plan = [(family, *bit) for family in FAMILIES for bit in damages.header_bits(log_of(family, True, "closed"))]
    random.Random(seed).shuffle(plan)
    return plan


def case_of(seed: int, number: int, plan: list[tuple[str, int, int]]) -> Case:
    """The case of this number."""
    rng = random.Random(f"{seed}/{number}")
    family, byte, bit = plan[number // 2 % len(plan)]
    if number % 2:
        family = rng.choice(FAMILIES)
    kind = log_of(family, rng.random() < 0.7, rng.choice(("closed", *CLOSURES, *SWAPS)))
    target = damages.pick_target(kind, rng)
    damage = rng.choice(damages.OTHERS)(target, rng) if number % 2 else damages.flip(target, byte, bit)
    mode = "r" if kind.closure in SWAPS else rng.choice("rra")  # an opening for writing takes the file for the segment
    return Case(seed, number, kind, damage, mode)


class Directories:
    """A data directory of each kind that is read, and a passing one for each that is written to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._kept: dict[str, Path] = {}

    @contextmanager
    def damaged(self, case: Case) -> Iterator[Path]:
        """The data directory of a case; afterwards it is sound again, or gone."""
        kind, damage = case.kind, case.damage
        name = kind.segments[damage.segment].name
        if case.mode == "r":
            path = self._kept.get(kind.name)
            if path is None:
                path = self._kept[kind.name] = write_directory(self.root / f"d{len(self._kept)}", kind)
            (path / name).write_bytes(damage.data)
            yield path
            (path / name).write_bytes(kind.files[name])
        else:
            path = write_directory(self.root / "passing", kind)
            (path / name).write_bytes(damage.data)
            yield path
            shutil.rmtree(path)


def write_directory(path: Path, kind: LogKind) -> Path:
    """The data directory of a kind."""
    (path / PARTITION).mkdir(parents=True)
    for name, data in kind.files.items():
        (path / name).write_bytes(data)
    return path


class Warnings(logging.Handler):
    """Notes whether an opening said that it cut something."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.was_truncated = False

    def emit(self, record: logging.LogRecord) -> None:
        """Looks for the words of a cut."""
        text = record.getMessage()
        self.was_truncated = self.was_truncated or "cut" in text or "will be deleted" in text


@contextmanager
def heard() -> Iterator[Warnings]:
    """Collect the package's warnings, which nothing else hears."""
    logger, handler = logging.getLogger("kafkalog"), Warnings()
    was = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.propagate = was


def outcomes(case: Case, directories: Directories) -> Iterator[Outcome]:
    """Opens the log of a case and reads it."""
    oracle = Oracle(case.kind, case.damage)
    rng = random.Random(case.text)
    with directories.damaged(case) as path, heard() as said:
        try:
            log = kafkalog.open(path / PARTITION, case.mode)  # type: ignore[call-overload]
        except Exception as error:
            is_broken = bool(oracle.broken or oracle.tail or not oracle.is_ordered)
            verdict = Verdict.RAISED if is_broken else Verdict.RAISED_APART
            why = f"{type(error).__name__}: {error}"
            yield Outcome(case, "open", verdict if is_typed(error) else Verdict.UNTYPED, why)
            return
        try:
            yield from _read(case, log, oracle, rng, path, directories.root / "cursors", said)
        finally:
            with suppress(KafkalogError):
                log.close()


def kept_offsets(path: Path) -> set[int]:
    """The offsets of the records that the opening kept, read from a restored copy."""
    with tempfile.TemporaryDirectory() as target:
        if not restore_kept(path / PARTITION, target):
            return set()
        with kafkalog.open(Path(target) / PARTITION) as log:
            offsets = {record.offset for record in log.records(on_damage="skip")}
            return offsets | {batch.header.last_offset for batch in log.batches(on_damage="skip")}


def _read(
    case: Case, log: kafkalog.Log, oracle: Oracle, rng: random.Random, path: Path, store: Path, said: Warnings
) -> Iterator[Outcome]:
    kept = kept_offsets(path) if said.was_truncated else set()
    for read in pick_reads(case.kind, oracle, rng, store, case.mode):
        result = run(read, log)
        verdict, why = judge(read, result, oracle, said.was_truncated)
        if verdict is Verdict.LOSS and not case.kind.is_closed and missing_offsets(read, result, oracle) <= kept:
            verdict = Verdict.WARNED  # what is missing is kept
        yield Outcome(case, read.text, verdict, why)
    given = Damaged(log, oracle, path, store.parent / "room", rng)
    is_swapped = case.kind.closure in SWAPS  # which ways out other than reads take for what it is, a passing state
    for text, verdict, why in () if is_swapped else pick_exits(given, case.mode):
        is_cut = said.was_truncated and verdict.is_failure and verdict is not Verdict.UNTYPED
        yield Outcome(case, text, Verdict.WARNED if is_cut else verdict, why)
    if not CAN_SKIP:
        return
    skipped: list[Any] = []
    for read in pick_skips(case.kind, oracle, rng, skipped, case.mode):
        skipped.clear()
        result = run(read, log)
        if said.was_truncated and result == Result([], None):
            continue
        verdict, why = judge_skip(read, result, skipped, oracle, path)
        if verdict.is_failure and said.was_truncated:
            verdict = Verdict.WARNED
        yield Outcome(case, read.text, verdict, why)


@contextmanager
def workspace() -> Iterator[Directories]:
    """A place in memory for data directories."""
    with tempfile.TemporaryDirectory(dir=memory()) as root:
        with warnings.catch_warnings():
            for kind in (kafkalog.errors.UnsafeFileSystem, DataLoss):
                warnings.simplefilter("ignore", kind)
            yield Directories(Path(root))


def sample(seed: int, reads: int, first: int = 0) -> Iterator[Outcome]:
    """The outcomes of so many reads, case by case."""
    done = 0
    plan = header_plan(seed)
    with workspace() as directories:
        while done < reads:
            for outcome in outcomes(case_of(seed, first, plan), directories):
                done += 1
                yield outcome
            first += 1


def main(arguments: list[str] | None = None) -> int:
    """Runs the matrix; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--reads", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="this case alone, every read of it printed")
    given = parser.parse_args(arguments)
    logging.getLogger("kafkalog").addHandler(logging.NullHandler())  # the logs' own opening makes indexes
    if given.case is not None:
        return _one_case(given.seed, given.case)
    began, shown_at = time.monotonic(), 0.0
    counts: Counter[Verdict] = Counter()
    bad: dict[Verdict, list[Outcome]] = {}
    for outcome in sample(given.seed, given.reads):
        counts[outcome.verdict] += 1
        if outcome.verdict.is_failure or outcome.verdict in (Verdict.EARLY, Verdict.WRONG_FIRST, Verdict.OTHER):
            bad.setdefault(outcome.verdict, []).append(outcome)
        if time.monotonic() - shown_at > 60:
            shown_at = time.monotonic()
            print(f"case {outcome.case.number}, {counts.total()} reads, {_failures(counts)} failures", flush=True)
    for verdict, found in bad.items():
        _print_groups(verdict, found)
    print(f"\n{counts.total()} reads of damaged logs in {time.monotonic() - began:.0f} s, seed {given.seed}")
    for verdict in Verdict:
        print(f"{counts[verdict]:9} {verdict.value}")
    if not CAN_SKIP:
        print("no read takes on_damage=: none was asked to skip")
    return 1 if _failures(counts) else 0


def _print_groups(verdict: Verdict, found: list[Outcome]) -> None:
    """Bad reads by what they have in common, the most frequent first, with a reproduction of each group."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in found:
        groups.setdefault(outcome.group, []).append(outcome)
    print(f"\n{verdict.value}: {len(found)} reads")
    for name, some in sorted(groups.items(), key=lambda item: -len(item[1])):
        calls = Counter(outcome.call for outcome in some)
        print(f"  {len(some):6} {name}: {', '.join(f'{call} {count}' for call, count in calls.most_common())}")
        print(f"         {some[0].text}")


def _failures(counts: Counter[Verdict]) -> int:
    return sum(count for verdict, count in counts.items() if verdict.is_failure)


def _one_case(seed: int, number: int) -> int:
    failed = False
    with workspace() as directories:
        case = case_of(seed, number, header_plan(seed))
        print(case.text)
        for outcome in outcomes(case, directories):
            print(f"  {outcome.verdict.value}: {outcome.read} {outcome.why}")
            failed = failed or outcome.verdict.is_failure
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

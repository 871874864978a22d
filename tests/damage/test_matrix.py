"""A sample of the damage matrix, and what its oracle and its judge are worth."""

import random
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, OffsetOutOfRange
from tests.damage import damages
from tests.damage.exits import Damaged, pick_exits
from tests.damage.judge import Result, Verdict, judge, judge_skip, run
from tests.damage.logs import CLOSURES, FAMILIES, PARTITION, SWAPS, Row, log_of
from tests.damage.matrix import sample, write_directory
from tests.damage.oracle import NO_END, Oracle
from tests.damage.txns import as_written
from tests.damage.ways import Read, reads_from, whole_reads

READS = 12_000


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_logs_lose_no_sound_record_in_silence(seed: int) -> None:
    bad = [outcome for outcome in sample(seed, READS // 2) if outcome.verdict.is_failure]
    shown = "\n".join(f"{outcome.verdict.value}: {outcome.text}" for outcome in bad[:20])
    assert not bad, f"{len(bad)} of {READS // 2} reads\n{shown}"


@pytest.mark.parametrize(("family", "closure"), list(zip(FAMILIES, cycle((*CLOSURES, *SWAPS)), strict=False)))
def test_sound_logs_are_read_whole(tmp_path: Path, family: str, closure: str) -> None:
    kind = log_of(family, True, closure)
    oracle = Oracle(kind, None)
    path = write_directory(tmp_path / "data", kind)
    reads = whole_reads(tmp_path / "cursors", True)
    for start in random.Random(family).sample(range(kind.end), 5):
        reads += reads_from(start, min(start + 5, kind.end), tmp_path / "cursors")
    with kafkalog.open(path / PARTITION) as log:
        found = {read.text: judge(read, run(read, log), oracle) for read in reads if kind.magic or read.kind != "time"}
    assert set(found.values()) == {(Verdict.COMPLETE, "")}


@pytest.mark.parametrize(("family", "closure"), list(zip(FAMILIES, cycle(CLOSURES), strict=False)))
def test_sound_logs_are_copied_summed_up_and_shown_whole(tmp_path: Path, family: str, closure: str) -> None:
    kind = log_of(family, True, closure)
    path = write_directory(tmp_path / "data", kind)
    with kafkalog.open(path / PARTITION) as log:
        given = Damaged(log, Oracle(kind, None), path, tmp_path / "room", random.Random(1))
        found = {one[0]: one[1:] for one in pick_exits(given, "r", every=True)}
    assert set(found.values()) <= {(Verdict.COMPLETE, ""), (Verdict.EXACT, "")} and len(found) >= 8, found


def verdict_on(items: list[int], error: Exception | None, damage: damages.Damage | None) -> Verdict:
    """The verdict on a read of all of a log that gives these offsets and ends with `error`."""
    kind = log_of("v2 none", True, "closed")
    rows = {row.offset: row for segment in kind.segments for batch in segment.batches for row in batch.rows}
    read = Read("records()", "rows", 0, NO_END, lambda log: [])
    return judge(read, Result([rows[offset] for offset in items], error), Oracle(kind, damage))[0]


def test_judge_tells_losses_from_errors() -> None:
    target = damages.Target(log_of("v2 none", True, "closed"), 1, 6)
    every = list(range(108))
    flipped = damages.flip(target, 30, 0)
    sound = [offset for offset in every if not 54 <= offset < 57]
    assert verdict_on(every, None, None) is Verdict.COMPLETE
    assert verdict_on(every[:-1], None, None) is Verdict.LOSS
    assert verdict_on(sound, None, flipped) is Verdict.UNREPORTED
    assert verdict_on(sound[:-3], None, flipped) is Verdict.LOSS
    assert verdict_on(every, None, flipped) is Verdict.WRONG
    assert verdict_on(every[:54], CorruptRecord("damage"), flipped) is Verdict.RAISED
    assert verdict_on([], OffsetOutOfRange("behind the end"), flipped) is Verdict.LOSS
    assert verdict_on([], KeyError("damage"), flipped) is Verdict.UNTYPED
    assert verdict_on(sound, None, damages.remove(target, random.Random(0))) is Verdict.COMPLETE
    assert verdict_on(every, None, damages.flip(target, 12, 3)) is Verdict.COMPLETE


class Item(NamedTuple):
    """A piece that a read has left out, as it reports it."""

    path: str
    position: int
    size_bytes: int
    offset: int = 54
    next_offset: int = 57
    reason: str = "checksum"


def test_judge_of_committed_reads_tells_losses_from_aborted_records() -> None:
    kind = log_of("transactions", True, "closed")
    batches = [batch for segment in kind.segments for batch in segment.batches]
    rows = {batch.base: list(batch.rows) for batch in batches}
    decided = as_written(kind)
    aborted = next(batch for batch in batches if batch.rows and batch.base not in decided.committed)
    seen = [row for base in sorted(decided.committed) for row in rows[base]]
    read = Read("records() of committed", "committed", 0, NO_END, lambda log: [])

    def verdict(given: list[Row], damage: damages.Damage | None = None, error: Exception | None = None) -> Verdict:
        return judge(read, Result(given, error), Oracle(kind, damage))[0]

    assert verdict(seen) is Verdict.COMPLETE
    assert verdict(seen[1:]) is Verdict.LOSS
    assert verdict([*seen, *aborted.rows]) is Verdict.WRONG
    marker = damages.Target(kind, 0, next(n for n, one in enumerate(kind.segments[0].batches) if one.is_commit))
    assert verdict(seen, damages.flip(marker, 30, 0)) is Verdict.UNREPORTED
    assert verdict(seen[:-1], damages.flip(marker, 30, 0), CorruptRecord("damage")) is Verdict.RAISED


def test_judge_holds_skips_against_the_exact_set() -> None:
    kind = log_of("v2 none", True, "closed")
    oracle = Oracle(kind, damages.flip(damages.Target(kind, 1, 6), 30, 0))
    claim = oracle.broken[0].claim
    item = Item(f"/data/{kind.segments[1].name}", claim.position, len(claim.piece.data))
    read = Read("records(skip)", "rows", 0, NO_END, lambda log: [])

    def verdict(rows: list[Row], *items: Item) -> Verdict:
        return judge_skip(read, Result(rows, None), list(items), oracle, Path("/data"))[0]

    assert verdict(oracle.rows, item) is Verdict.EXACT
    assert verdict(oracle.rows) is Verdict.MISREPORTED
    assert verdict(oracle.rows, item, item._replace(position=0, size_bytes=10)) is Verdict.MISREPORTED
    assert verdict(oracle.rows, item._replace(reason="")) is Verdict.MISREPORTED
    assert verdict(oracle.rows[:-1], item) is Verdict.INEXACT
    assert verdict(sorted([*oracle.rows, *claim.batch.rows]), item) is Verdict.INEXACT


def test_oracle_guesses_only_offsets_that_nothing_contradicts() -> None:
    kind = log_of("v2 none", True, "closed")
    middle = Oracle(kind, damages.flip(damages.Target(kind, 1, 6), 6, 0))
    assert not middle.guessed and [span.first for span in middle.broken] == [54]
    last = Oracle(kind, damages.flip(damages.Target(kind, 2, 11), 6, 0))
    assert [row.offset for row in last.rows[-3:]] == [105 + 256, 106 + 256, 107 + 256] and not last.broken
    too_far = Oracle(kind, damages.flip(damages.Target(kind, 2, 11), 3, 7))
    assert not too_far.guessed and [span.first for span in too_far.broken] == [105]


def test_oracle_knows_a_torn_tail_from_damage() -> None:
    for closure, is_damage in (("closed", True), ("unclean", False)):
        kind = log_of("v2 none", True, closure)
        cut = damages.cut_inside(damages.Target(kind, 2, 11), random.Random(1))
        assert bool(Oracle(kind, cut).broken) is is_damage
        assert Oracle(kind, damages.zero(damages.Target(kind, 2, 10), random.Random(1))).broken

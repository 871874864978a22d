"""A sample of the damage matrix, and what its oracle and its judge are worth."""

import random
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, OffsetOutOfRange
from tests.damage import damages
from tests.damage.judge import Result, Verdict, judge, run
from tests.damage.logs import CLOSURES, FAMILIES, PARTITION, log_of
from tests.damage.matrix import sample, write_directory
from tests.damage.oracle import NO_END, Oracle
from tests.damage.ways import Read, reads_from, whole_reads

READS = 12_000


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_logs_lose_no_sound_record_in_silence(seed: int) -> None:
    bad = [outcome for outcome in sample(seed, READS // 2) if outcome.verdict.is_failure]
    shown = "\n".join(f"{outcome.verdict.value}: {outcome.text}" for outcome in bad[:20])
    assert not bad, f"{len(bad)} of {READS // 2} reads\n{shown}"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("closure", CLOSURES)
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

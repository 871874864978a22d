"""The plan of spans as a function of values: the broker's choice of copies, gaps, deletions, and its cost."""

import pytest

from kafkalog.storage.leader_epoch import EpochEntry
from kafkalog.tiered.plan import Span, lineage_of, plan_spans, with_implied, without_deleted_start
from kafkalog.tiered.segment_metadata import Copies, RemoteSegment
from kafkalog.tiered.topics import spans_before


def copy(name: str, start: int, end: int, **epochs: int) -> RemoteSegment:
    """A copy with epochs as `e0=0`."""
    entries = tuple(EpochEntry(int(epoch[1:]), at) for epoch, at in epochs.items()) or (EpochEntry(0, start),)
    return RemoteSegment(name, start, end, 100, 0, entries)


def names(spans: tuple[Span, ...]) -> list[tuple[str | None, int, int]]:
    return [(None if one.segment is None else one.segment.segment_id, one.start, one.stop) for one in spans]


ZERO = (EpochEntry(0, 0),)


def test_copies_without_overlap() -> None:
    segments = [copy("b", 10, 19), copy("a", 0, 9)]
    assert lineage_of(segments) == lineage_of(segments[::-1]) == ZERO
    assert names(plan_spans(segments, ZERO, 0, 20)) == [("a", 0, 10), ("b", 10, 20)]
    assert names(plan_spans(segments, ZERO, 12, 15)) == [("b", 10, 15)]
    assert plan_spans(segments, ZERO, 20, 20) == ()


def test_a_longer_copy_that_was_finished_later_replaces_shorter_ones() -> None:
    first, second, longer = copy("a", 0, 9), copy("b", 10, 19), copy("c", 0, 19)
    assert names(plan_spans([first, second, longer], ZERO, 0, 20)) == [("c", 0, 20)]
    assert names(plan_spans([longer, first, second], ZERO, 0, 20)) == [("a", 0, 10), ("b", 10, 20)]
    assert names(plan_spans([first, second, longer], ZERO, 12, 20)) == [("c", 0, 20)]
    assert names(plan_spans([copy("far", 5, 19), copy("near", 0, 9)], ZERO, 7, 20)) == [("far", 5, 20)]


def test_the_farthest_copy_is_taken_where_the_brokers_choice_lacks_an_offset() -> None:
    segments = [copy("b", 2, 19), copy("a", 0, 17), copy("short", 12, 14)]
    assert names(plan_spans(segments, ZERO, 16, 20)) == [("b", 2, 20)]
    assert names(plan_spans(segments, ZERO, 13, 20)) == [("short", 12, 15), ("b", 15, 20)]


def test_an_offset_of_another_epoch_is_not_taken() -> None:
    lost, kept = copy("lost", 0, 19, e0=0), copy("kept", 10, 19, e2=10)
    epochs = (EpochEntry(0, 0), EpochEntry(2, 10))
    assert names(plan_spans([kept, lost], epochs, 0, 20)) == [("lost", 0, 10), ("kept", 10, 20)]
    assert lineage_of([lost, kept]) == epochs
    assert lineage_of([kept, copy("replaced", 10, 19, e1=10)]) == epochs[1:], "none of epoch 1 is left"
    assert names(plan_spans([lost], epochs, 0, 20)) == [("lost", 0, 10), (None, 10, 20)]


def test_a_copy_over_several_epochs_is_one_span() -> None:
    both = copy("both", 0, 29, e0=0, e1=10, e4=20)
    epochs = (EpochEntry(0, 0), EpochEntry(1, 10), EpochEntry(4, 20))
    assert names(plan_spans([both], epochs, 5, 30)) == [("both", 0, 30)]
    part = copy("part", 10, 19, e1=10)
    assert names(plan_spans([both, part], epochs, 0, 30)) == [("both", 0, 30)], "a span goes on in its copy"
    assert names(plan_spans([both, part], epochs, 10, 30)) == [("part", 10, 20), ("both", 20, 30)]


@pytest.mark.parametrize("deleted", [[(0, 9)], [(0, 4), (5, 9)], [(3, 9), (0, 5)]])
def test_a_start_that_was_deleted_is_no_gap(deleted: list[tuple[int, int]]) -> None:
    spans = plan_spans([copy("b", 10, 19)], ZERO, 0, 20)
    assert names(spans) == [(None, 0, 10), ("b", 10, 20)]
    gone = [copy(str(n), *one) for n, one in enumerate(deleted)]
    assert names(without_deleted_start(spans, gone)) == [("b", 10, 20)]
    assert without_deleted_start(spans, gone[:1] if len(gone) > 1 else []) == spans
    assert without_deleted_start(spans, [copy("short", 0, 8)]) == spans
    assert without_deleted_start((), gone) == () and without_deleted_start(spans[1:], [copy("b", 10, 19)]) == spans[1:]
    later = plan_spans([copy("a", 0, 9)], ZERO, 0, 20)
    assert without_deleted_start(later, [copy("b", 10, 19)]) == later, "a gap in the middle stays one"


def test_a_gap_ends_with_the_next_copy() -> None:
    segments = [copy("b", 15, 19), copy("a", 10, 14), copy("c", 20, 29)]
    assert names(plan_spans(segments, ZERO, 0, 20)) == [(None, 0, 10), ("a", 10, 15), ("b", 15, 20)]
    assert names(plan_spans(segments, ZERO, 0, 10)) == [(None, 0, 10)]


def test_offsets_before_the_known_epochs_are_a_gap() -> None:
    assert names(plan_spans([copy("a", 0, 19)], (EpochEntry(0, 5),), 0, 20)) == [(None, 0, 5), ("a", 5, 20)]
    assert names(plan_spans([copy("a", 0, 19)], (), 0, 20)) == [(None, 0, 20)]


def test_copies_imply_the_epochs_before_those_known() -> None:
    def entries(*given: tuple[int, int]) -> tuple[EpochEntry, ...]:
        return tuple(EpochEntry(*one) for one in given)

    known = entries((5, 30), (7, 50))
    assert with_implied((), known) == with_implied(known, ()) == with_implied(known, known) == known
    assert with_implied(known, entries((0, 0), (3, 20), (5, 30))) == entries((0, 0), (3, 20), *known)
    assert with_implied(known, entries((0, 0), (5, 25), (7, 50))) == entries((0, 0), (5, 25), (7, 50))
    assert with_implied(known, entries((0, 0), (6, 29))) == entries((0, 0), *known), "a later epoch cannot be before"
    assert with_implied(known, entries((5, 40))) == known


def test_a_log_without_a_known_start_begins_with_the_first_copy_that_counts() -> None:
    copies = Copies(9, (copy("lost", 0, 9, e0=0), copy("kept", 10, 19, e3=10)), ())
    epochs = (EpochEntry(3, 0),)
    assert names(spans_before(copies, epochs, None, 20)) == [("kept", 10, 20)]
    assert names(spans_before(copies, epochs, None, 25)) == [("kept", 10, 20), (None, 20, 25)]
    assert names(spans_before(copies, epochs, 0, 20)) == [(None, 0, 10), ("kept", 10, 20)]
    assert names(spans_before(copies, epochs, 15, 20)) == [("kept", 10, 20)]
    assert spans_before(copies, (EpochEntry(4, 0),), None, 20) == spans_before(copies, epochs, None, 0) == ()


def test_many_copies_are_planned_in_linear_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    original = RemoteSegment.range_in

    def counted(self: RemoteSegment, epoch: int) -> tuple[int, int] | None:
        nonlocal calls
        calls += 1
        return original(self, epoch)

    monkeypatch.setattr(RemoteSegment, "range_in", counted)
    segments = [copy(str(n), n * 10, n * 10 + 9) for n in range(5000)]
    assert len(plan_spans(segments, ZERO, 0, 50_000)) == 5000
    assert calls < 10 * len(segments)



"""Restart offsets of a stream, and its losses: from a stream's offsets and the available ones."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.spark.reach import Standing, reachable, replayed
from kafkalog.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def standing_of(earliest: int, latest: int, log_end: int | None = None) -> dict[TopicPartition, Standing]:
    return {A: Standing(earliest, latest, latest if log_end is None else log_end)}


def texts(losses: tuple[object, ...]) -> str:
    return "; ".join(loss.text for loss in losses)  # type: ignore[attr-defined]


def test_what_is_there_is_read_from_where_the_stream_is() -> None:
    found = reachable({A: 5}, standing_of(0, 9))
    assert (found.begins, found.ends, found.losses) == ({A: 5}, {A: 9}, ())


def test_a_new_partition_begins_at_its_earliest_offset_and_one_that_lost_its_first_records_says_so() -> None:
    assert reachable({}, standing_of(0, 9)).begins == {A: 0} and not reachable({}, standing_of(0, 9)).losses
    late = reachable({}, standing_of(3, 9))
    assert late.begins == {A: 3} and texts(late.losses) == "the new partition t-0 begins at 3, not at 0"


def test_a_partition_that_is_gone_is_left_out_and_told() -> None:
    found = reachable({A: 5, B: 7}, standing_of(0, 9))
    assert found.ends == {A: 9} and "t-1 is missing" in texts(found.losses) and "up to 7" in texts(found.losses)


def test_what_retention_took_before_it_was_read_is_told_and_what_was_read_is_not_missed() -> None:
    found = reachable({A: 5}, standing_of(8, 9))
    assert found.begins == {A: 8} and "offsets 5 to 7 of t-0 were deleted" in texts(found.losses)
    assert not reachable({A: 9}, standing_of(9, 9)).losses


def test_a_partition_that_went_back_goes_on_at_its_end_and_one_made_anew_at_its_start() -> None:
    cut = reachable({A: 100}, standing_of(0, 20))
    assert cut.ends == {A: 20} and "read up to 100 but now ends at 20" in texts(cut.losses)
    created_again = reachable({A: 100}, standing_of(0, 20), {A})
    assert created_again.ends == {A: 0} and created_again.losses


def test_isolation_that_ends_before_what_was_read_is_no_loss() -> None:
    found = reachable({A: 50}, standing_of(0, 20, log_end=60))
    assert (found.begins, found.ends, found.losses) == ({A: 50}, {A: 50}, ())


def test_a_planned_batch_is_read_again_as_it_was() -> None:
    found = replayed({A: 5}, {A: 9}, standing_of(0, 500))
    assert (found.begins, found.ends, found.losses) == ({A: 5}, {A: 9}, ())


def test_losses_in_a_planned_batch() -> None:
    assert "offsets 5 to 6 of" in texts(replayed({A: 5}, {A: 9}, standing_of(7, 500)).losses)
    assert "offsets 5 to 8 of" in texts(replayed({A: 5}, {A: 9}, standing_of(70, 500)).losses)
    short = replayed({A: 5}, {A: 9}, standing_of(0, 7))
    assert short.ends == {A: 7} and "ends at 7, but was to be read up to 9" in texts(short.losses)
    assert "t-0 is missing" in texts(replayed({A: 5}, {A: 9}, {}).losses)
    assert "t-1 is missing" in texts(replayed({A: 5, B: 1}, {A: 9}, standing_of(0, 9)).losses)
    assert "begins at 3" in texts(replayed({}, {A: 9}, standing_of(3, 9)).losses)
    back = replayed({A: 100}, {A: 20}, standing_of(0, 30))
    assert "read up to 100" in texts(back.losses) and back.begins[A] >= back.ends[A]
    assert not replayed({A: 5}, {A: 5}, {}).losses, "nothing was to be read of it"


OFFSET = st.integers(0, 50)
KEYS = [TopicPartition("t", n) for n in range(4)]
STANDING = st.builds(lambda *n: Standing(*sorted(n)), OFFSET, OFFSET, OFFSET)


@given(st.dictionaries(st.sampled_from(KEYS), OFFSET), st.dictionaries(st.sampled_from(KEYS), STANDING))
def test_planning_a_batch_finds_what_the_trigger_found_and_nothing_twice(
    start: dict[TopicPartition, int], now: dict[TopicPartition, Standing]
) -> None:
    found = reachable(start, now)
    planned = replayed(start, found.ends, now)
    assert {loss.partition for loss in planned.losses} == {loss.partition for loss in found.losses}
    for one, standing in now.items():
        assert found.begins.keys() == found.ends.keys() == now.keys()
        read = range(planned.begins.get(one, 0), planned.ends.get(one, 0))
        assert read == range(found.begins[one], found.ends[one]) or not (read or found.begins[one] < found.ends[one])
        if read:
            assert standing.earliest <= read.start and read.stop <= standing.latest
            assert read.start >= start.get(one, 0), "nothing is read twice"
    again = reachable(found.ends, now)
    assert not again.losses and again.ends == found.ends

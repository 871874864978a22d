"""The end of a micro-batch: shares of the lag, and batches that are put off."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import IllegalArgument
from kafkalog.spark.admission import Admission, TriggerDelay, admitted, lag, rate_limited
from kafkalog.spark.options import duration_ms
from kafkalog.types import TopicPartition

OFFSET = st.integers(0, 2**53)
PARTITION = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 40))


@st.composite
def positions(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Draw start and end positions of partitions; some have nothing new, some went back."""
    keys = draw(st.lists(PARTITION, unique=True, max_size=12))
    begins = {one: draw(OFFSET) for one in keys}
    return begins, {one: max(0, begins[one] + draw(st.integers(-5, 1 << draw(st.integers(0, 40))))) for one in keys}


def test_shares_are_those_of_the_kafka_source() -> None:
    """The example of its own suite: ten offsets a trigger over a large, a middling and a small partition."""
    keys = [TopicPartition("t", n) for n in range(3)]
    begins = dict.fromkeys(keys, 0)
    ends = dict(zip(keys, (101, 11, 1), strict=True))
    assert list(rate_limited(10, begins, ends).values()) == [8, 1, 1]
    begins = rate_limited(10, begins, ends)
    assert list(rate_limited(10, begins, ends).values()) == [17, 2, 1]


@given(positions(), st.integers(1, 2**62))
def test_every_partition_goes_on_and_none_goes_too_far(
    both: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], most: int
) -> None:
    begins, ends = both
    limited = rate_limited(most, begins, ends)
    assert limited.keys() == ends.keys()
    total = lag(begins, ends)
    for one, end in limited.items():
        if ends[one] <= begins[one]:
            assert end == ends[one]
            continue
        assert begins[one] < end <= ends[one]
        exact = Fraction(most) * (ends[one] - begins[one]) / total
        taken = end - begins[one]
        nearly = 1 + float(exact) * 2**-50
        assert taken <= max(1, exact + nearly)
        assert taken == ends[one] - begins[one] or taken >= exact - nearly


@given(positions(), st.integers(1, 1000))
def test_batches_after_another_reach_the_end(
    both: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], most: int
) -> None:
    begins, ends = both
    begins = {one: max(begin, ends[one] - 2 * most) for one, begin in begins.items()}
    triggers = 0
    while lag(begins, ends):
        begins = {one: max(begin, end) for (one, begin), end in
                  zip(begins.items(), rate_limited(most, begins, ends).values(), strict=True)}  # fmt: skip
        triggers += 1
        assert triggers <= 40 * len(ends) + 40


def test_a_small_batch_waits_for_more_or_for_its_time() -> None:
    key = TopicPartition("t", 0)
    delay = TriggerDelay(least=10, most_ms=1000)

    def admitted_at(now_ms: int, last_ms: int | None, waiting: int, most: int | None = None) -> Admission:
        return admitted({key: 5}, {key: 5 + waiting}, most=most, delay=delay, now_ms=now_ms, last_ms=last_ms)

    assert admitted_at(0, None, 1) == Admission({key: 6}, True), "the first trigger waits for nothing"
    assert admitted_at(999, 0, 9) == Admission(None, False)
    assert admitted_at(999, 0, 10) == Admission({key: 15}, True)
    assert admitted_at(1000, 0, 9) == Admission({key: 14}, True)
    assert admitted_at(1000, 0, 9, most=4) == Admission({key: 9}, True), "the upper limit holds for what is let go"
    assert admitted({key: 5}, {key: 9}, most=3, delay=None, now_ms=0, last_ms=None) == Admission({key: 8}, False)


@pytest.mark.parametrize(
    ("text", "length"),
    [("15m", 900_000), ("90s", 90_000), ("250", 250), ("2H", 7_200_000), ("1d", 86_400_000),
     ("3min", 180_000), ("1500us", 1), ("7ms", 7), (" 1s ", 1000)],
)  # fmt: skip
def test_lengths_of_time(text: str, length: int) -> None:
    assert duration_ms(text, "maxTriggerDelay") == length


@pytest.mark.parametrize("text", ["", "s", "-1s", "1.5s", "1 week", "1w", "१s", "9" * 19, "9" * 18 + "d"])
def test_what_is_no_length_of_time_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(IllegalArgument, match="maxTriggerDelay is .*15m"):
        duration_ms(text, "maxTriggerDelay")

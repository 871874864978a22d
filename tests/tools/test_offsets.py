"""The words of `-o`: what they ask for, and which offset that is in a log."""

import pytest

from kafkalog.errors import IllegalArgument, OffsetOutOfRange
from kafkalog.tools.offsets import Bounds, parse_bounds
from kafkalog.types import OffsetAndTimestamp
from kafkalog.util.times import text_ms


class TenToTwenty:
    """A log of offsets 10 to 19, the record at n stamped n * 100."""

    path = "/data/t-0"
    log_start_offset = 10
    log_end_offset = 20

    def offset_for_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        offset = max(10, -(-timestamp // 100))
        return OffsetAndTimestamp(offset, offset * 100) if offset < 20 else None


@pytest.mark.parametrize(
    ("words", "first", "stop"),
    [
        ([], 10, None), (["beginning"], 10, None), (["start"], 10, None), (["end"], 20, None), (["12"], 12, None),
        (["20"], 20, None), (["-1"], 19, None), (["-10"], 10, None), (["-99"], 10, None), (["s@1250"], 13, None),
        (["s@5000"], 20, None), (["e@1250"], 10, 13), (["e@5000"], 10, None), (["e@1800", "s@1100"], 11, 18),
        (["s@1970-01-01T00:00:01.250Z"], 13, None),
    ],
)  # fmt: skip
def test_words(words: list[str], first: int, stop: int | None) -> None:
    bounds = parse_bounds(tuple(words), text_ms)
    assert (bounds.first_offset(TenToTwenty()), bounds.stop_offset(TenToTwenty())) == (first, stop)


@pytest.mark.parametrize("offset", [0, 9, 21, 2**62])
def test_an_offset_outside_the_log(offset: int) -> None:
    with pytest.raises(OffsetOutOfRange) as refused:
        Bounds(start=offset).first_offset(TenToTwenty())
    assert (refused.value.offset, refused.value.path) == (offset, "/data/t-0") and "10 to 19" in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [["x"], [""], ["1", "2"], ["beginning", "s@1"], ["e@1", "e@2"], ["s@"], ["s@x"], ["1.5"], ["9" * 30],
     ["s@1969-12-31"]],
)  # fmt: skip
def test_words_that_say_nothing(words: list[str]) -> None:
    with pytest.raises(IllegalArgument):
        parse_bounds(tuple(words), text_ms)

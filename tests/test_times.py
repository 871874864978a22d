"""Times from datetimes, ISO text and milliseconds."""

import datetime as dt
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument
from kafkalog.inspect.values import moment
from kafkalog.util.times import datetime_text, text_ms, time_text, to_ms

NOON = 1_795_176_000_000


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        (NOON, NOON), (-1, -1), (0, 0), ("2026-11-20T12:00Z", NOON), ("2026-11-20T12:00", NOON),
        (" 2026-11-20T12:00Z ", NOON),
        ("2026-11-20", NOON - 43_200_000), ("20261120T120000Z", NOON), ("2026-11-20 13:00:00.003+01:00", NOON + 3),
        (dt.datetime(2026, 11, 20, 12), NOON), (dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC), NOON),
        (dt.datetime(2026, 11, 20, 7, tzinfo=dt.timezone(dt.timedelta(hours=-5))), NOON),
        (dt.date(2026, 11, 20), NOON - 43_200_000),
        (dt.datetime(2026, 11, 20, 12, 0, 0, 1), NOON + 1), (dt.datetime(2026, 11, 20, 12, 0, 0, 1000), NOON + 1),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999_000), -1),
    ],
)  # fmt: skip
def test_to_ms(time: dt.datetime | dt.date | str | int, ms: int) -> None:
    assert to_ms(time) == ms


@pytest.mark.parametrize("time", ["", "noon", "2026-13-01", "12:00"])
def test_text_that_is_no_time(time: str) -> None:
    with pytest.raises(IllegalArgument, match="ISO-8601"):
        to_ms(time)


@pytest.mark.parametrize("time", [1.5, True, None, b"2026-11-20", dt.time(12)])
def test_other_types(time: object) -> None:
    with pytest.raises(TypeError, match="milliseconds"):
        to_ms(time)  # type: ignore[arg-type]


def test_times_have_one_form_in_all_outputs() -> None:
    """Commands print a time by these alone."""
    assert [time_text(ms) for ms in (0, 1_700_000_000_003, -1)] == [
        "1970-01-01T00:00:00Z", "2023-11-14T22:13:20.003Z", "1969-12-31T23:59:59.999Z",
    ]  # fmt: skip
    assert moment(1_700_000_000_003) == datetime_text(dt.datetime(2023, 11, 14, 22, 13, 20, 3000, tzinfo=dt.UTC))
    assert datetime_text(dt.datetime(2023, 11, 14, 22, 13, 20, 3)) == "2023-11-14T22:13:20.000003"
    assert to_ms(time_text(1_700_000_000_003)) == 1_700_000_000_003


@pytest.mark.parametrize("time", ["1969-12-31T23:59:59.999Z", dt.datetime(1969, 12, 31, 23, 59, 59, 998_000)])
def test_a_moment_before_1970_is_not_the_code_of_an_end_of_the_log(time: dt.datetime | str, tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(None, b"one", NOON)])
        for look in (log.offset_for_time, lambda at: log.records(since=at), lambda at: log.scan(until=at)):
            with pytest.raises(IllegalArgument, match="before 1970"):
                look(time)
        assert [log.offset_for_time(code).offset for code in (-1, -2, -3)] == [1, 0, 0]
    with pytest.raises(IllegalArgument, match="before 1970"):
        text_ms(str(time))

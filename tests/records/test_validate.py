"""What a leader refuses before it gives offsets."""

import pytest

from kafkalog._core.scan import scan
from kafkalog.config import LogConfig
from kafkalog.errors import InvalidRecord, InvalidTimestamp, UnsupportedCompression, UnsupportedForFormat
from kafkalog.records.validate import check_batches
from tests.builder import R, batch, message_v1

T = 1_700_000_000_000
BOUNDED = LogConfig.from_mapping({"message.timestamp.before.max.ms": 1000, "message.timestamp.after.max.ms": 1000})
COMPACT = LogConfig.from_mapping({"cleanup.policy": "compact"})
PRODUCER = {"producer_id": 1, "producer_epoch": 0}


def check(data: bytes, config: LogConfig | None = None, **kinds: bool) -> None:
    check_batches(data, scan(data), config or LogConfig(), T, **kinds)


def test_sound_batches_pass() -> None:
    check(batch([R(timestamp=T), R(None, b"k", timestamp=T - 5)]))
    check(batch([R(timestamp=T)], **PRODUCER, base_sequence=0, attributes=0x10))


@pytest.mark.parametrize(
    "fields",
    [
        {"last_delta": 1},
        {"last_delta": -1},
        {"count": 0},
        {"count": -1, "last_delta": -2},
        {"attributes": 0x20},
        {**PRODUCER},
        {"attributes": 0x10},
    ],
)
def test_headers_that_a_client_may_not_send(fields: dict[str, int]) -> None:
    data = batch([R(timestamp=T)], **fields)
    with pytest.raises(InvalidRecord) as raised:
        check(data)
    assert raised.value.offset == 0


def test_control_batches_of_the_log_itself_pass() -> None:
    check(batch([R(timestamp=T)], attributes=0x30, **PRODUCER), from_client=False)


def test_times_outside_the_bounds_name_the_records() -> None:
    with pytest.raises(InvalidTimestamp) as raised:
        check(batch([R(timestamp=T), R(timestamp=T - 1001), R(timestamp=T + 1001)]), BOUNDED)
    assert [index for index, _ in raised.value.record_errors] == [1, 2]
    check(batch([R(timestamp=T - 1000), R(timestamp=T + 1000), R(timestamp=-1)]), BOUNDED)


def test_extreme_bounds_do_not_wrap() -> None:
    check(batch([R(timestamp=0)]), LogConfig.from_mapping({"message.timestamp.before.max.ms": 2**63 - 1}))
    wide = LogConfig.from_mapping({"message.timestamp.after.max.ms": 2**63 - 1})
    check(batch([R(timestamp=2**62)]), wide)


def test_unkeyed_record_on_a_compacted_topic() -> None:
    """LOG-12: InvalidRecord with the list of records; keyed ones pass."""
    with pytest.raises(InvalidRecord) as raised:
        check(batch([R(b"v", b"k", T), R(b"v", None, T)]), COMPACT)
    assert [index for index, _ in raised.value.record_errors] == [1]
    check(batch([R(None, b"k", T)]), COMPACT)


def test_kinds_that_cannot_be_checked_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedCompression, match="snappy"):
        check(batch([R(timestamp=T)], attributes=2))
    with pytest.raises(UnsupportedForFormat, match="v1"):
        check(message_v1(0, b"v"))


def test_at_most_three_faults_are_told_and_all_are_listed() -> None:
    with pytest.raises(InvalidTimestamp, match="and 2 more") as raised:
        check(batch([R(timestamp=5)] * 5), BOUNDED)
    assert len(raised.value.record_errors) == 5

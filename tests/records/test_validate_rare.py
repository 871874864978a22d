"""A leader's changes to rare batches: of the first moment of 1970, of producer 0, with a damaged record."""

import pytest

from fuzz.leader import validate_and_assign_offsets
from kafkalog._core.batch.scan import scan
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.validate import ValidationRules
from tests.builder import R, batch, seal
from tests.records.test_validate import CODECS, GZIP, LZ4, NONE, ROWS, T, read_rows, validate


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize(("source", "target"), [(NONE, NONE), (NONE, GZIP), (GZIP, NONE), (GZIP, LZ4)])
@pytest.mark.parametrize("offsets", [[0, 1], [0, 7]], ids=["fresh", "with a gap"])
def test_a_log_may_stamp_the_first_moment_of_1970(
    magic: int, source: CompressionType, target: CompressionType, offsets: list[int]
) -> None:
    """VAL-11, VAL-17: its time 0 is one, however the records are written."""
    builder = RecordsBuilder(compression=source) if magic == 2 else LegacyBuilder(magic=magic, compression=source)
    for offset in offsets:
        builder.append(T, b"k", b"v", offset=offset)
    data, rules = bytes(builder.build()), ValidationRules(target, append_time=True)
    result = validate_and_assign_offsets(data, 100, rules, 0, magic=magic, from_client=False)
    assert [row[1] for row in read_rows(result)] == [0, 0] and result.next_offset == 102
    assert {(h.timestamp_type, h.max_timestamp) for h in scan(result.records)} == {(1, 0)}
    is_plain_set = magic == 1 and target == NONE
    assert (result.max_timestamp_ms, result.offset_of_max_timestamp) == (0, 100 if is_plain_set else 101)


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_record_has_its_place(codec: CompressionType) -> None:
    """Inside of what is compressed there is none but its batch's."""
    plain = bytearray(batch(ROWS, base_offset=0))
    second = len(batch(ROWS[:1]))
    plain[second] = 126
    data = seal(bytes(plain))
    if codec:
        body = bytes(compress(codec, data[61:]))
        size = (61 + len(body) - 12).to_bytes(4, "big")
        data = seal(data[:8] + size + data[12:21] + codec.to_bytes(2, "big") + data[23:61] + body)
    with pytest.raises(InvalidRecord, match="^record 1 of the batch") as raised:
        validate(data)
    assert (raised.value.offset, raised.value.position) == (0, 0 if codec else second)


def test_producer_0_is_one() -> None:
    """VAL-8, REC-26: of a transaction, too; without an epoch it is in disorder."""
    fields = {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}
    header = scan(validate(batch([R(timestamp=T)], **fields), ValidationRules(GZIP)).records)[0]
    assert (header.producer_id, header.is_transactional) == (0, True)
    with pytest.raises(IllegalArgument, match="^producer id 0 needs a epoch, not -1"):
        validate(batch([R(timestamp=T)], producer_id=0, base_sequence=0), ValidationRules(GZIP), from_client=False)


@pytest.mark.parametrize(("append_time", "expected"), [(True, 0x18), (False, 0x190)])
def test_a_header_that_is_written_again_has_known_attributes_only(append_time: bool, expected: int) -> None:
    """REC-19: one that is kept has what the client set."""
    data = batch([R()], attributes=0x190, producer_id=1, producer_epoch=0, base_sequence=0)
    rules = ValidationRules(append_time=append_time)
    result = validate_and_assign_offsets(data, 5, rules, scan(data).max_timestamp + 1)
    assert scan(result.records)[0].attributes == expected

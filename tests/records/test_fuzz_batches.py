"""Every prefix and every changed byte of small batches, each format and codec: an answer or a typed error, no crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.leader import validate_and_assign_offsets
from kafkalog._core.batch.decode import DamagedField
from kafkalog._core.batch.scan import scan
from kafkalog.errors import KafkalogError
from kafkalog.records.format import CompressionType
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.tables import record_tables
from kafkalog.records.validate import ValidationRules
from tests.builder import crc32c
from tests.fuzz_cases import EXPECTED, IDS, KINDS, LIMIT_BYTES, T, changed, prefixes, sealed, small

kinds = pytest.mark.parametrize(("magic", "codec"), KINDS, ids=IDS)


def check(data: bytes) -> int:
    """Reads all that can be read by both ways in; the number of records."""
    seen = 0
    for file_mode in (False, True):
        table = scan(data, file_mode=file_mode)
        try:
            for records in record_tables(data, table, path="f.log", limit_bytes=LIMIT_BYTES):
                for record in records:
                    assert len(record.key or b"") + len(record.value or b"") <= LIMIT_BYTES
                    assert isinstance(record.headers, tuple)
                    seen += 1
        except EXPECTED as error:
            assert error.path == "f.log"
            assert error.position is not None and 0 <= error.position <= len(data)
    try:
        for batch in MemoryRecords(data).batches():
            try:
                for record in batch:
                    _ = record.key, record.value, record.timestamp_type
            except (*EXPECTED, DamagedField):
                continue
    except KafkalogError:
        pass
    return seen


@kinds
def test_every_prefix(magic: int, codec: CompressionType) -> None:
    whole = small(magic, codec)
    assert check(whole) == 6
    for size in range(len(whole)):
        assert check(whole[:size]) < 6
    for data in prefixes(whole):
        check(data)


@kinds
def test_every_changed_byte(magic: int, codec: CompressionType) -> None:
    """With the checksum wrong, and with it made right again."""
    for data in changed(small(magic, codec)):
        check(data)


RULES = (
    ValidationRules(),
    ValidationRules(CompressionType.LZ4, append_time=True, need_keys=True),
    ValidationRules(CompressionType.NONE, before_ms=5, after_ms=5),
)


def validate(data: bytes) -> None:
    """Check that accepted batches are sound and refused ones raise a typed error; batch checksums are not checked."""
    intact = scan(data).first_invalid == -1
    for rules in RULES:
        for magic in (0, 1, 2):
            try:
                result = validate_and_assign_offsets(data, 100, rules, T, magic=magic)
            except (KafkalogError, ValueError) as error:
                assert isinstance(error, KafkalogError) or "cannot have offsets" in str(error)
                continue
            written = bytes(result.records)
            table = scan(written)
            assert table.first_invalid == -1 or not intact
            assert len(table)
            if result.message_size_maybe_changed:  # else records keep their places in the batch, as in the reference
                offsets = [r.offset for records in record_tables(written, table) for r in records]
                assert offsets == sorted(set(offsets))
                assert all(100 <= offset < result.next_offset for offset in offsets)


@kinds
def test_the_validator_takes_sound_batches_only(magic: int, codec: CompressionType) -> None:
    whole = small(magic, codec)
    validate(whole)
    for data in (*prefixes(whole), *changed(whole, few=True)):
        validate(data)


@kinds
@given(data=st.data())
def test_several_changes_cuts_and_repeats(magic: int, codec: CompressionType, data: st.DataObject) -> None:
    whole = bytearray(small(magic, codec) * data.draw(st.integers(1, 3)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        change = data.draw(st.binary(min_size=0, max_size=5))
        whole[at : at + data.draw(st.integers(0, 5))] = change
        if not whole:
            return
    check(sealed(bytes(whole)))


@kinds
@given(data=st.data())
def test_any_inner_bytes(magic: int, codec: CompressionType, data: st.DataObject) -> None:
    """Decompressed bytes are as hostile as plain ones."""
    from kafkalog._core.batch.legacy import wrapper
    from kafkalog._core.batch.repack import with_payload
    from kafkalog.records.compression import compress

    inner = bytearray(small(magic, CompressionType.NONE)[61 if magic == 2 else 0 :])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(inner) - 1))
        inner[at] = data.draw(st.integers(0, 255))
    del inner[data.draw(st.integers(0, len(inner))) :]
    payload = compress(codec, inner, magic=magic)
    if magic == 2:
        whole = bytes(with_payload(small(2, CompressionType.NONE), payload, codec))
    elif codec:
        offset = data.draw(st.integers(-5, 20))
        whole = bytes(wrapper(payload, magic=magic, codec=codec, offset=offset, timestamp=T))
    else:
        whole = bytes(inner)
    check(whole)


def test_the_plain_checksum_agrees() -> None:
    for kind in KINDS:
        data = small(*kind)
        assert sealed(data) == data
    assert crc32c(b"123456789") == 0xE3069283

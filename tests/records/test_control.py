"""Control records and batches: what they say, how they are built, and that unknown ones survive."""

import struct
from typing import Any

import pytest

import kafkalog
from kafkalog import control
from kafkalog._core.batch.scan import scan
from kafkalog.control import ControlRecord, ControlType
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.records.batch import RecordBatch
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.memory import MemoryRecords
from tests.builder import R, batch, message_v1

T = 1_700_000_000_000
VOTER = {
    "voterId": 1,
    "voterDirectoryId": "AAECAwQFBgcICQoLDA0ODw",
    "endpoints": [{"name": "CONTROLLER", "host": "h", "port": 65535}, {"name": "é", "host": "", "port": 0}],
    "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
}
KRAFT: list[tuple[ControlType, dict[str, Any]]] = [
    (ControlType.LEADER_CHANGE, {"leaderId": 3, "voters": [{"voterId": 3}, {"voterId": 4}], "grantingVoters": []}),
    (ControlType.SNAPSHOT_HEADER, {"lastContainedLogTimestamp": T}),
    (ControlType.SNAPSHOT_FOOTER, {}),
    (ControlType.KRAFT_VERSION, {"kRaftVersion": 1}),
    (ControlType.KRAFT_VOTERS, {"voters": [VOTER, {**VOTER, "endpoints": []}]}),
]


def get_batch(data: bytes | bytearray) -> RecordBatch:
    return RecordBatch(data, scan(data), 0)


def encode_key(number: int, version: int = 0, tail: bytes = b"") -> bytes:
    return struct.pack(">hh", version, number) + tail


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_marker_batch(kind: ControlType) -> None:
    """REC-31: size 78, control and transactional, base sequence -1, one record, value decodes to the epoch."""
    b = get_batch(control.marker_batch(kind, 9, 2, 7, timestamp=T, base_offset=40, leader_epoch=5))
    h = b.header
    assert (b.size, b.is_valid, h.is_control, h.is_transactional) == (78, True, True, True)
    assert (h.base_sequence, h.last_sequence, h.count, h.compression, h.timestamp_type) == (-1, -1, 1, 0, 0)
    assert (h.producer_id, h.producer_epoch, h.base_offset, h.last_offset, h.leader_epoch) == (9, 2, 40, 40, 5)
    assert (h.base_timestamp, h.max_timestamp) == (T, T)
    assert b.control == ControlRecord(kind, int(kind), coordinator_epoch=7)
    (record,) = b.records()
    assert (record.is_control, record.key, record.value) == (True, encode_key(int(kind)), struct.pack(">hi", 0, 7))


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, 0), (9, -1), (-1, -1)])
def test_marker_without_a_producer(producer_id: int, producer_epoch: int) -> None:
    with pytest.raises(IllegalArgument, match="needs a producer"):
        control.marker_batch(ControlType.COMMIT, producer_id, producer_epoch, 0, timestamp=T)


@pytest.mark.parametrize("kind", [kind for kind in ControlType if not kind.is_marker])
def test_other_types_end_no_transaction(kind: ControlType) -> None:
    with pytest.raises(IllegalArgument, match=f"{kind.name} does not end a transaction"):
        control.marker_batch(kind, 9, 0, 0, timestamp=T)


def test_a_coordinator_epoch_has_32_bits() -> None:
    assert control.marker_parts(ControlType.ABORT, -1)[1] == struct.pack(">hi", 0, -1)
    with pytest.raises(IllegalArgument, match="32 bits"):
        control.marker_parts(ControlType.ABORT, 2**31)


@pytest.mark.parametrize(("kind", "data"), KRAFT, ids=lambda x: getattr(x, "name", ""))
def test_kraft_batches_round_trip(kind: ControlType, data: dict[str, Any]) -> None:
    """REC-33: the type is detected from the first record; what was read builds the same batch again."""
    made = control.kraft_batch(kind, data, timestamp=T, base_offset=12, leader_epoch=3)
    b = get_batch(made)
    h = b.header
    assert (b.is_valid, h.is_control, h.is_transactional, h.producer_id, h.count) == (True, True, False, -1, 1)
    assert b.control == ControlRecord(kind, int(kind), data={"version": 0, **data})
    found = b.control
    assert found is not None and found.data is not None
    assert control.kraft_batch(found.type, found.data, timestamp=T, base_offset=12, leader_epoch=3) == made


def test_more_than_one_record() -> None:
    """REC-33: a batch of KRaft with a version and voters, each read by its own key and value."""
    builder = RecordsBuilder(is_control=True)
    for kind, data in KRAFT[3:]:
        builder.append_control(T, *control.control_parts(kind, data))
    b = get_batch(builder.build())
    assert b.control is not None and b.control.type == ControlType.KRAFT_VERSION
    kinds = [control.control_record(record.key, record.value).type for record in b]
    assert kinds == [ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (ControlType.COMMIT, {}, "marker_parts"),
        (ControlType.UNKNOWN, {}, "not a control record of KRaft"),
        (ControlType.KRAFT_VERSION, {}, "needs the field 'kRaftVersion'"),
        (ControlType.KRAFT_VERSION, {"kraftVersion": 1, "kRaftVersion": 1}, "no field 'kraftVersion'"),
        (ControlType.KRAFT_VERSION, {"kRaftVersion": 1 << 15}, "does not fit"),
        (ControlType.KRAFT_VERSION, {"kRaftVersion": "1"}, "is a str"),
        (ControlType.SNAPSHOT_HEADER, {"lastContainedLogTimestamp": None}, "cannot be null"),
        (ControlType.LEADER_CHANGE, {"leaderId": 1, "voters": [1], "grantingVoters": []}, "give a dict"),
        (ControlType.LEADER_CHANGE, {"leaderId": 1, "voters": 1, "grantingVoters": []}, "give a list"),
        (ControlType.KRAFT_VOTERS, {"voters": [{**VOTER, "voterDirectoryId": "short"}]}, "uuid"),
    ],
)
def test_fields_that_do_not_fit(kind: ControlType, data: dict[str, Any], words: str) -> None:
    with pytest.raises(IllegalArgument, match=words):
        control.kraft_batch(kind, data, timestamp=T)


def test_types() -> None:
    """REC-32: 0 to 6 are known; others UNKNOWN; later versions and longer keys are read alike."""
    assert [control.control_type(encode_key(n)) for n in range(7)] == [ControlType(n) for n in range(7)]
    for number in (7, 99, -1, 2**15 - 1, -(2**15)):
        assert control.control_record(encode_key(number), b"any") == ControlRecord(ControlType.UNKNOWN, number)
    assert control.control_type(encode_key(1, version=1)) == ControlType.COMMIT
    assert control.control_type(encode_key(1, version=2**15 - 1, tail=b"more")) == ControlType.COMMIT


@pytest.mark.parametrize("bad", [None, b"", b"\0\0\0", encode_key(0, version=-1)])
def test_malformed_keys(bad: bytes | None) -> None:
    """REC-32."""
    with pytest.raises(InvalidRecord):
        control.control_type(bad)


@pytest.mark.parametrize("value", [struct.pack(">hi", 0, 7), struct.pack(">hi", 5, 7) + b"trailing"])
def test_marker_values(value: bytes) -> None:
    """REC-48: version 5 with trailing bytes is read as version 0."""
    assert control.control_record(encode_key(0), value).coordinator_epoch == 7


@pytest.mark.parametrize("value", [None, b"", b"\0\0", b"\0\0\0\0", b"\0\0\0\0\0", struct.pack(">hi", -1, 7)])
def test_malformed_marker_values(value: bytes | None) -> None:
    """REC-48: version -1, and 2 or 4 bytes."""
    with pytest.raises(InvalidRecord):
        control.control_record(encode_key(1), value)


def test_kraft_values_are_laid_out_as_version_0() -> None:
    """Whatever version they say (format.md section 13, A3)."""
    fields = struct.pack(">i", 1) + b"\x02" + struct.pack(">i", 4) + b"\0" + b"\x01" + b"\0"
    plain = {"leaderId": 1, "voters": [{"voterId": 4}], "grantingVoters": []}
    for version in (0, 9):
        found = control.control_record(encode_key(2), struct.pack(">h", version) + fields)
        assert found.data == {"version": version, **plain}
        assert control.control_parts(found.type, found.data) == (encode_key(2), struct.pack(">h", version) + fields)
    for value in (None, b"", b"\0", struct.pack(">h", 0) + fields[:6]):
        with pytest.raises(InvalidRecord):
            control.control_record(encode_key(2), value)


def test_raw_marker_by_a_plain_append() -> None:
    """REC-30: an illegal argument in a data batch, and in a control batch; only the marker's own call makes one."""
    parts = control.marker_parts(ControlType.COMMIT, 7)
    flags: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0}
    for builder in (
        RecordsBuilder(**flags, is_transactional=True, is_control=True),
        RecordsBuilder(is_control=True),
    ):
        with pytest.raises(IllegalArgument, match="control record"):
            builder.append(T, *parts)
    for builder in (RecordsBuilder(is_control=True), RecordsBuilder(**flags, is_control=True)):
        with pytest.raises(IllegalArgument, match="transactional"):
            builder.append_control(T, *parts)
    with pytest.raises(IllegalArgument, match="control batch only"):
        RecordsBuilder(**flags, base_sequence=0, is_transactional=True).append_control(T, *parts)
    with pytest.raises(InvalidRecord):
        RecordsBuilder(is_control=True).append_control(T, b"", None)


def test_unknown_types_survive() -> None:
    """They are built, read, copied and shown; nothing in them is looked at."""
    builder = RecordsBuilder(7, is_control=True)
    builder.append_control(T, encode_key(99, 3, b"tail"), b"\xff\x00 what a later version says")
    b = get_batch(builder.build())
    assert b.control == ControlRecord(ControlType.UNKNOWN, 99)
    (record,) = b.records()
    again = RecordsBuilder(7, is_control=True)
    assert record.key is not None
    again.append_control(record.timestamp, record.key, record.value)
    assert again.build() == bytes(b.buffer)


def test_data_batches_are_no_control_batches() -> None:
    b = get_batch(batch([R(b"v", encode_key(1))]))
    assert (b.control, b.header.is_control, b.records()[0].is_control) == (None, False, False)
    assert not kafkalog.Record(b"v", encode_key(1)).is_control


def test_an_emptied_control_batch() -> None:
    """Compaction may leave the header alone."""
    b = get_batch(batch([], attributes=0x20, last_delta=0))
    assert (b.header.is_control, b.control) == (True, None)


def test_bits_that_mean_nothing_in_old_formats() -> None:
    """A v1 message with bits 4 to 7 set is data all the same, as for the reference."""
    import zlib

    data = bytearray(message_v1(0, b"v", b"k", T))
    data[17] |= 0xF0
    data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    b = get_batch(data)
    assert (b.is_valid, b.header.is_control, b.control, b.records()[0].is_control) == (True, False, None, False)


def test_each_record_of_a_buffer_knows_its_batch() -> None:
    data = batch([R(), R()]) + control.marker_batch(ControlType.ABORT, 9, 0, 1, timestamp=T) + batch([R()])
    flags = [[record.is_control for record in b] for b in MemoryRecords(data).batches()]
    assert flags == [[False, False], [True], [False]]


def test_a_marker_is_made_for_offset_0_unless_another_is_given() -> None:
    for given, offset in (({}, 0), ({"base_offset": 9}, 9)):
        data = control.marker_batch(ControlType.COMMIT, 1, 0, 0, timestamp=5, **given)
        assert scan(data).base_offset(0) == offset

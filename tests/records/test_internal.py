"""Records of Kafka's own topics as values."""

import struct

import pytest

from kafkalog.records.internal import (
    UnknownRecordType,
    UnknownRecordVersion,
    coordinator_record,
    enum_name,
    metadata_record,
    with_consumer_protocol,
)
from kafkalog.records.message import MessageError
from kafkalog.records.schemas import groups, metadata
from tests.builder import uvarint


def encode_text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


KEY = struct.pack(">h", 1) + encode_text("g") + encode_text("t") + struct.pack(">i", 3)
VALUE = struct.pack(">hqi", 3, 40, 2) + encode_text("m") + struct.pack(">q", 77)


def test_a_committed_offset() -> None:
    record = coordinator_record(KEY, VALUE + b"behind", groups.KEYS, groups.VALUES)
    assert (record.type, record.version) == (1, 3)
    assert record.key == {"group": "g", "topic": "t", "partition": 3}
    assert record.value == {"offset": 40, "leaderEpoch": 2, "metadata": "m", "commitTimestamp": 77}
    assert coordinator_record(KEY, None, groups.KEYS, groups.VALUES)[2:] == (None, None)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"\0", VALUE, "Could not read version from key's buffer."),
        (KEY[:3], VALUE, "Could not read record with version 1 from key's buffer due to: null."),
        (KEY, b"\0", "Could not read version from value's buffer."),
        (KEY, b"\0\x09", "Found an unknown record version 9 for 1 type"),
        (KEY, VALUE[:-1], "Could not read record with version 3 from value's buffer due to: null."),
    ],
)
def test_what_a_coordinator_record_does_not_say(key: bytes, value: bytes, message: str) -> None:
    with pytest.raises(MessageError) as caught:
        coordinator_record(key, value, groups.KEYS, groups.VALUES)
    assert caught.value.message == message


def test_a_streams_group_of_4_4_says_which_descriptions_of_its_topology_were_stored() -> None:
    """Kafka 4.4 has two more tagged fields (KIP-1331)."""
    key = struct.pack(">h", 17) + encode_text("g")
    value = struct.pack(">hiq", 0, 3, 9) + b"".join((
        uvarint(3), uvarint(0), uvarint(4), struct.pack(">i", 1), uvarint(2), uvarint(4), struct.pack(">i", -2),
        uvarint(3), uvarint(4), struct.pack(">i", 1),
    ))  # fmt: skip
    assert coordinator_record(key, value, groups.KEYS, groups.VALUES).value == {
        "epoch": 3, "metadataHash": 9, "validatedTopologyEpoch": 1, "storedDescriptionTopologyEpoch": -2,
        "failedDescriptionTopologyEpoch": 1,
    }  # fmt: skip


def test_an_unknown_type_has_its_number() -> None:
    with pytest.raises(UnknownRecordType) as caught:
        coordinator_record(struct.pack(">h", 99), VALUE, groups.KEYS, groups.VALUES)
    assert caught.value.number == 99


def test_members_of_the_consumer_protocol_are_read() -> None:
    subscription = struct.pack(">hi", 0, 1) + encode_text("t") + struct.pack(">i", -1)
    member = {"memberId": "m", "subscription": subscription, "assignment": b"\0"}
    group = {"protocolType": "consumer", "members": [member]}
    read = with_consumer_protocol(group)["members"][0]
    assert read == member | {"subscription": {"topics": ["t"], "userData": None}}
    assert with_consumer_protocol(group | {"protocolType": "connect"})["members"] == [member]
    broken = group | {"members": [member | {"subscription": subscription[:-1]}]}
    assert with_consumer_protocol(broken) == broken


def test_a_metadata_record() -> None:
    record = metadata_record(b"\x01\x0c\0\x02n\0\x03\0", metadata.RECORDS)
    assert record == (12, "FeatureLevelRecord", 0, {"name": "n", "featureLevel": 3})
    assert enum_name(record.name) == "FEATURE_LEVEL_RECORD"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "Error while reading frame version"),
        (b"\0\x0c\0", "frame version 0. Note that upgrades from the preview release"),
        (uvarint(0x8000), "Value for frame version was too large."),
        (uvarint(2**32 - 1), "unknown frame version -1(only frame version 1 is supported)"),
        (b"\x02\x0c\0", "unknown frame version 2(only frame version 1 is supported)"),
        (b"\x01", "Error while reading type"),
        (b"\x01\x0c", "Error while reading version"),
        (b"\x01" + uvarint(1 << 15) + b"\0", "Value for type was too large."),
        (b"\x01\x63\0", "Unknown metadata id 99"),
        (b"\x01" + uvarint(2**32 - 1) + b"\0", "Unknown metadata id -1"),
        (b"\x01\x0c\0\x02n\0\x03", "Failed to deserialize record with type 12"),
        (b"\x01\x0c\0\x02n\0\x03\0xx", "Found 2 byte(s) of garbage after 12"),
    ],
)
def test_what_is_no_metadata_record(value: bytes, words: str) -> None:
    with pytest.raises(MessageError) as caught:
        metadata_record(value, metadata.RECORDS)
    assert words in caught.value.message


def test_a_record_of_a_version_above_the_highest_may_be_sound() -> None:
    """One of the highest version that does not read well is damaged."""
    damaged = b"\x02n\0\x03"
    with pytest.raises(MessageError) as caught:
        metadata_record(b"\x01\x0c\0" + damaged, metadata.RECORDS)
    assert type(caught.value) is MessageError
    assert metadata_record(b"\x01\x0c\1" + damaged + b"\0", metadata.RECORDS).version == 1
    for behind in (damaged, damaged + b"\0xx"):
        with pytest.raises(UnknownRecordVersion) as unknown:
            metadata_record(b"\x01\x0c\1" + behind, metadata.RECORDS)
        assert unknown.value.number == 12

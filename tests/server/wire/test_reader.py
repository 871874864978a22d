"""Untrusted bytes are read within bounds: an error that names the place, never much memory, never an abort."""

import functools
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalog._core.messages.reader import MAX_TAGS
from kafkalog.errors import MalformedRequest
from kafkalog.server.wire.header import read_header
from kafkalog.server.wire.reader import MAX_ELEMENTS
from kafkalog.server.wire.versions import API_VERSIONS, APIS, METADATA, Api, unsigned_varint
from kafkalog.server.wire.writer import write_request
from tests.wire_cases import FILES, as_tree, frames, read_request

SERVED = [
    (api.key, version) for api in APIS.values() for version in range(api.oldest, api.newest + 1) if api.serves(version)
]
BILLIONS = (2**31 - 1, 2**31 - 2, 10**9, 2**20)
PRODUCE, FETCH = 0, 1


# of calls that no capture has: the data directory's path stands in one, and the listeners that were recorded are open
MADE = {
    35: {"topics": [{"topic": "orders", "partitions": [0, 1]}]},
    36: {"auth_bytes": b"\0anna\0secret"},
    50: {"users": [{"name": "anna"}]},
    51: {
        "deletions": [{"name": "bob", "mechanism": 1}],
        "upsertions": [
            {"name": "anna", "mechanism": 2, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}
        ],
    },
}
each_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


@functools.cache
def captured_requests() -> dict[tuple[int, int], tuple[bytes, int]]:
    """Of each call and version the longest recorded request that is short: its frame, and where its body begins."""
    found: dict[tuple[int, int], tuple[bytes, int]] = {}
    for path in FILES:
        for frame in frames(path):
            if frame.request_decoded is None or not frame.is_served or len(frame.request) > 300:
                continue
            key = (frame.key, frame.version)
            if key not in found or len(found[key][0]) < len(frame.request):
                found[key] = bytes(frame.request), read_header(frame.request).body
    for api_key, tree in MADE.items():
        for version in range(APIS[api_key].oldest, APIS[api_key].newest + 1):
            found.setdefault((api_key, version), (write_request(api_key, version, tree), 0))
    return found


def requests_of(api: Api) -> list[tuple[tuple[int, int], tuple[bytes, int]]]:
    found = [(key, request) for key, request in captured_requests().items() if key[0] == api.key]
    if not found:
        pytest.skip(f"no short request of {api.name} is in this capture")
    return found


@each_api
def test_cut_at_every_byte(api: Api) -> None:
    for key, (frame, body) in requests_of(api):
        cut_at_every_byte(key, frame, body)


def cut_at_every_byte(key: tuple[int, int], frame: bytes, body: int) -> None:
    whole = read_request(*key, frame, body)
    assert read_request(*key, frame + b"\0more", body) == whole  # as a broker does
    for end in range(body, len(frame)):
        with pytest.raises(MalformedRequest):
            read_request(*key, frame[:end], body)
    for end in range(body):
        try:
            read_header(frame[:end])
        except MalformedRequest:
            continue
        assert end >= body - 1  # the tags of a header may be absent from a cut one only where nothing is left to read


@each_api
def test_lengths_that_lie(api: Api) -> None:
    """Each byte, each 2 and each 4 replaced by what could be a length or a count of billions."""
    for key, (frame, body) in requests_of(api):
        replace_by_lies(key, frame, body)


def replace_by_lies(key: tuple[int, int], frame: bytes, body: int) -> None:
    longest = (struct.pack(">i", 2**31 - 1), unsigned_varint(2**32 - 1))
    for lie in (b"\xff", b"\x7f", b"\x80", b"\x7f\xff", b"\x80\x00", *longest):
        for position in range(body, len(frame) - len(lie) + 1):
            damaged = frame[:position] + lie + frame[position + len(lie) :]
            try:
                message = read_request(*key, damaged, body)
            except MalformedRequest as error:
                assert error.position is not None and 0 <= error.position <= len(damaged) + 5
            else:
                as_tree(message)


@pytest.mark.parametrize("count", BILLIONS)
@pytest.mark.parametrize("version", [4, 9, 13])
def test_a_count_of_billions_takes_no_memory(version: int, count: int) -> None:
    raw = struct.pack(">i", count) if version < 9 else unsigned_varint(count + 1)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest, match="elements in"):
            read_request(METADATA, version, raw + b"abc", 0)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_more_elements_than_anybody_sends() -> None:
    frame = struct.pack(">i", MAX_ELEMENTS + 1) + struct.pack(">h", 0) * (MAX_ELEMENTS + 1) + b"\0"
    with pytest.raises(MalformedRequest, match="more elements than a message may have"):
        read_request(METADATA, 4, frame, 0)
    # an array in each of many elements counts, too
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", 9) + struct.pack(">i", 0) * 9
    count = MAX_ELEMENTS // 10 + 1
    with pytest.raises(MalformedRequest, match="more elements than a message may have"):
        read_request(24, 0, struct.pack(">hqhi", 0, 1, 1, count) + topic * count, 0)


def test_more_tagged_fields_than_anybody_sends() -> None:
    """4.4 takes 10,000 in one structure."""

    def tagged(count: int) -> bytes:
        return b"\x00\x01\x00" + unsigned_varint(count) + b"".join(unsigned_varint(9 + n) + b"\0" for n in range(count))

    read_request(METADATA, 13, tagged(MAX_TAGS), 0)
    with pytest.raises(MalformedRequest, match="more elements than a message may have"):
        read_request(METADATA, 13, tagged(MAX_TAGS + 1), 0)


def test_unknown_tags_are_passed_over_and_known_ones_read() -> None:
    plain = b"\x00" + b"\x01\x00" + b"\x00"
    tagged = b"\x00" + b"\x01\x00" + b"\x02" + b"\x07\x03abc" + b"\xff\xff\xff\xff\x0f\x00"
    assert read_request(METADATA, 13, tagged, 0) == read_request(METADATA, 13, plain, 0)
    fetch = {
        "max_wait": 1, "min_bytes": 1, "topics": [], "forgotten_topics_data": [], "cluster_id": "one",
        "replica_state": {"replica_id": 3, "replica_epoch": 4},
    }  # fmt: skip
    message = read_request(FETCH, 17, write_request(FETCH, 17, fetch), 0)
    assert (message.cluster_id, tuple(message.replica_state)) == ("one", (3, 4))


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (b"\x01\x07\x09abc", "goes beyond the message"),
        (b"\xff\xff\xff\xff\x0f", "elements in"),
        (b"\x80\x80\x80\x80\x80\x01", "more than 5 bytes"),
    ],
)
def test_tags_that_lie(tags: bytes, words: str) -> None:
    with pytest.raises(MalformedRequest, match=words):
        read_request(METADATA, 13, b"\x00\x01\x00" + tags, 0)


def test_a_known_tag_of_another_length() -> None:
    sound = write_request(FETCH, 17, {
        "max_wait": 1, "min_bytes": 1, "topics": [], "forgotten_topics_data": [],
        "replica_state": {"replica_id": 3, "replica_epoch": 4},
    })  # fmt: skip
    assert sound.endswith(b"\x01\x01\x0d" + struct.pack(">iq", 3, 4) + b"\0")
    with pytest.raises(MalformedRequest, match="tagged field 1 has 14 bytes and ends after 13"):
        read_request(FETCH, 17, sound[:-14] + b"\x0e" + sound[-13:] + b"\0", 0)


def test_null_where_it_may_not_be() -> None:
    with pytest.raises(MalformedRequest, match="topic_data is null"):
        read_request(PRODUCE, 7, struct.pack(">hhii", -1, 1, 1000, -1), 0)
    with pytest.raises(MalformedRequest, match="name is null"):
        read_request(PRODUCE, 7, struct.pack(">hhiih", -1, 1, 1000, 1, -1) + bytes(4), 0)


def test_text_that_is_no_text_is_read_all_the_same() -> None:
    body = struct.pack(">i", 1) + struct.pack(">h", 3) + b"a\xffb" + b"\0"
    assert read_request(METADATA, 4, body, 0).topics[0].name == "a�b"


def test_records_are_a_view_of_the_frame_that_may_be_written() -> None:
    body = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">iii", 1, 0, 4) + b"abcd"
    frame = bytearray(body)
    records = read_request(PRODUCE, 7, frame, 0).topic_data[0].partition_data[0].records
    records[0] = ord("x")
    assert frame.endswith(b"xbcd")


@given(st.sampled_from(SERVED), st.binary(max_size=300))
@example((METADATA, 13), b"\xff\xff\xff\xff\x0f")
def test_any_bytes_are_a_message_or_an_error(key: tuple[int, int], data: bytes) -> None:
    try:
        message = read_request(*key, data, 0)
    except MalformedRequest:
        return
    as_tree(message)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_an_error(data: bytes) -> None:
    try:
        header = read_header(data)
    except MalformedRequest:
        return
    assert 0 <= header.body <= len(data)


@given(st.data())
def test_what_kio_reads_is_read_the_same(data: Any) -> None:
    """A request with bytes changed at random: where kio takes it, so do we, and with the same values."""
    key = data.draw(st.sampled_from(sorted(captured_requests())))
    frame, body = captured_requests()[key]
    message = read_request(*key, frame, body)
    changed = bytearray(write_request(*key, as_tree(message)))
    assert bytes(changed) == frame[body:]
    if changed:
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        other = read_request(*key, changed, 0)
        again = write_request(*key, as_tree(other))
    except (MalformedRequest, OverflowError, ValueError):  # kio's times and strings do not take all that may be sent
        return
    if getattr(other, "retention_time", 0) > 1 << 53:  # kio's time is a double by then
        return
    assert read_request(*key, again, 0) == other


def test_a_header_of_an_unknown_version_of_api_versions_is_read() -> None:
    """KIP-511: it is answered with the versions that there are, so its own tags cannot be asked for."""
    header = read_header(struct.pack(">hhih", API_VERSIONS, 99, 7, 2) + b"me")
    assert (header.api_version, header.correlation_id, header.client_id) == (99, 7, "me")


def test_the_limit_of_elements_is_less_memory_than_the_frame_may_have() -> None:
    share = 64  # of the limit: tracing is slow
    count = MAX_ELEMENTS // share
    body = unsigned_varint(count + 1) + (b"\0" * 16 + b"\0" + b"\0") * count + b"\x01\x00\x00"
    tracemalloc.start()
    try:
        message = read_request(METADATA, 13, body, 0)
        assert len(message.topics) == count
        assert tracemalloc.get_traced_memory()[1] < (100 << 20) // share
    finally:
        tracemalloc.stop()


def test_all_topics_as_librdkafka_asks_for_them() -> None:
    """Its null array has four bytes, so three of the message are behind what a broker reads."""
    frame = bytes.fromhex("0003000d00000003000772646b61666b6100" + "00000000010000")
    request = read_request(METADATA, 13, frame, read_header(frame)[4])
    assert request.topics is None and not request.allow_auto_topic_creation

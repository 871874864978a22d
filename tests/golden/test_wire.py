"""Every recorded frame reads as Kafka's own classes read it, and is written byte for byte as it was.

FLOW-25: the versions that a broker offers.
"""

from pathlib import Path

import pytest

from kafkalog.server.wire.definitions import request_plan, response_plan
from kafkalog.server.wire.header import read_header, response_header
from kafkalog.server.wire.reader import read_response
from kafkalog.server.wire.versions import API_VERSIONS, APIS, FETCH, api_versions_body
from kafkalog.server.wire.writer import response_writer, write_request
from tests.wire_cases import SINCE_4_4, Frame, as_tree, differences, each_file, frames, read_request, write_response

pytestmark = pytest.mark.golden


class Range:
    """Stands for a range of a file."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)


@each_file
def test_requests(path: Path) -> None:
    for frame in frames(path):
        if frame.request_decoded is None or not frame.is_served:
            continue
        header = read_header(frame.request)
        assert (header.api_key, header.api_version, header.correlation_id) == (
            frame.key, frame.version, frame.correlation_id,
        ), frame  # fmt: skip
        assert header.client_id == frame.client_id, frame
        message = read_request(frame.key, frame.version, frame.request, header.body)
        assert not list(differences(request_plan(frame.key, frame.version), message, frame.request_decoded)), frame
        assert write_request(frame.key, frame.version, as_tree(message)) == frame.request[header.body :], frame


@each_file
def test_responses(path: Path) -> None:
    for frame in frames(path):
        if frame.response is None or frame.response_decoded is None or not frame.is_served:
            continue
        message = read_response(frame.key, frame.version, frame.response, frame.response_start)
        assert not list(differences(response_plan(frame.key, frame.version), message, frame.response_decoded)), frame
        assert write_response(frame.key, frame.version, frame.correlation_id, as_tree(message)) == frame.response, frame
        if frame.key == FETCH:
            assert in_pieces(frame, message) == frame.response, frame


@each_file
def test_versions_on_offer(path: Path) -> None:
    """What we offer lies within what the broker offered, and our answer has the broker's form."""
    for frame in frames(path):
        if frame.key != API_VERSIONS or frame.response is None:
            continue
        body = frame.response[4:]
        if not frame.is_served:
            assert api_versions_body(99, APIS)[:-1] == body[:-1], frame  # but for the newest version
            continue
        ours = api_versions_body(frame.version, APIS)
        theirs = read_response(API_VERSIONS, frame.version, frame.response, 4)
        if theirs.error_code:
            assert api_versions_body(frame.version, APIS, theirs.error_code) == body, frame
            continue
        offered = {one.api_key: (one.min_version, one.max_version) for one in theirs.api_keys}
        for one in read_response(API_VERSIONS, frame.version, ours, 0).api_keys:
            if one.api_key in offered:  # SASL calls are not in what a plaintext listener was asked for
                least, most = offered[one.api_key]
                most = SINCE_4_4.get(one.api_key, most)
                assert least <= one.min_version <= one.max_version <= most, (frame, one)


def in_pieces(frame: Frame, message: object) -> bytes:
    """The fetch response as the server writes it, its ranges filled in."""
    tree = as_tree(message)
    for topic in tree["responses"]:
        for one in topic["partitions"]:
            one["records"] = None if one["records"] is None else Range(bytes(one["records"]))
    head = response_header(FETCH, frame.version, frame.correlation_id)
    pieces = response_writer(FETCH, frame.version).write_pieces(tree, head)
    return b"".join(piece if isinstance(piece, bytes) else piece.data for piece in pieces)

"""FLOW-25: messages newer than kio, as a broker of 4.4.0 took and wrote them."""

from __future__ import annotations

from uuid import UUID

from kafkalog.server.wire.reader import read_response
from kafkalog.server.wire.writer import write_request
from tests.wire_cases import read_request, write_response

TOPIC, OTHER = UUID("9985631b-04b1-49e7-98fd-b8115c19c9a5"), UUID("11111111-0000-0000-0000-000000000000")
COMMIT = bytes.fromhex(
    "037478026700000000000000000004ffffffff0100039985631b04b149e798fdb8115c19c9a502000000000000000000000005ffffffff026d"
    "00001111111100000000000000000000000002000000010000000000000005ffffffff00000000"
)
COMMITTED = bytes.fromhex(
    "0000000003111111110000000000000000000000000200000001006400009985631b04b149e798fdb8115c19c9a502000000000000000000"
)
DELETED = bytes.fromhex("0000000003026700000000056e6f6e650045000000")


def test_txn_offset_commit_6_has_ids_of_topics() -> None:
    request = read_request(28, 6, COMMIT, 0)
    assert [(one.topic_id, one.partitions[0].committed_metadata) for one in request.topics] == [
        (TOPIC, "m"), (OTHER, None),
    ]  # fmt: skip
    assert not hasattr(request.topics[0], "name")
    tree = {
        "transactional_id": "tx", "group_id": "g", "producer_id": 0, "producer_epoch": 4,
        "topics": [
            {"topic_id": TOPIC, "partitions": [
                {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": "m"}
            ]},
            {"topic_id": OTHER, "partitions": [
                {"partition_index": 1, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": None}
            ]},
        ],
    }  # fmt: skip
    assert write_request(28, 6, tree) == COMMIT
    rows = [
        {"topic_id": OTHER, "partitions": [{"partition_index": 1, "error_code": 100}]},
        {"topic_id": TOPIC, "partitions": [{"partition_index": 0, "error_code": 0}]},
    ]
    assert write_response(28, 6, 7, {"throttle_time": 0, "topics": rows})[5:] == COMMITTED
    assert read_response(28, 6, COMMITTED, 0).topics[0].partitions == ((1, 100),)


def test_delete_groups_3_has_a_message_for_each_group() -> None:
    rows = [{"group_id": "g", "error_code": 0}, {"group_id": "none", "error_code": 69}]
    assert write_response(42, 3, 7, {"throttle_time": 0, "results": rows})[5:] == DELETED
    assert read_response(42, 3, DELETED, 0).results == (("g", 0, None), ("none", 69, None))
    assert read_request(42, 3, bytes.fromhex("03056e6f6e65026700"), 0).groups_names == ("none", "g")


def test_api_versions_5_names_the_cluster_and_the_node() -> None:
    raw = bytes.fromhex("02780231176132466d6132467362326374615735305a584a7663410000000200")
    assert read_request(18, 5, raw, 0) == ("x", "1", "a2Fma2Fsb2ctaW50ZXJvcA", 2)
    named = {"client_software_name": "x", "client_software_version": "1"}
    assert write_request(18, 5, {**named, "cluster_id": "a2Fma2Fsb2ctaW50ZXJvcA", "node_id": 2}) == raw

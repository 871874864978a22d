"""The records of Kafka's own topics as columns: the same as the decoders of single records give."""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog import decoders, values
from kafkalog.errors import IllegalArgument, InvalidRecord

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

TEXT = st.text("abc", max_size=5)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def compact(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def with_nulls(found: Any, kind: "pa.DataType") -> Any:
    """A message as a column has it: fields of other versions are null."""
    if pa.types.is_struct(kind) and found is not None:
        return {one.name: with_nulls(found.get(one.name), one.type) for one in kind}
    return found


@given(st.lists(st.tuples(TEXT, TEXT, st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.booleans()), max_size=6))
def test_committed_offsets(rows: list[tuple[str, str, int, int, bool]]) -> None:
    keys, offsets = [], []
    for group, topic, partition, offset, gone in rows:
        keys.append(b"\0\1" + text(group) + text(topic) + struct.pack(">i", partition))
        offsets.append(None if gone else struct.pack(">hqi", 3, offset, -1) + text("m") + bytes(8))
    found = values.decoder("group", part="key").decode(pa.array(keys, pa.binary()))
    found.values.validate(full=True)
    wanted = [{"group": group, "topic": topic, "partition": partition} for group, topic, partition, _, _ in rows]
    assert [row["OffsetCommitKey"] for row in found.values.to_pylist()] == wanted
    decoder = values.decoder("group")
    got = decoder.decode(pa.array(offsets, pa.binary()), pa.array(keys, pa.binary()))
    kind = decoder.arrow_type.field("OffsetCommitValue").type
    for key, value, row in zip(keys, offsets, got.values.to_pylist(), strict=True):
        single = decoders.group_record(key, value).value
        assert (row and row["OffsetCommitValue"]) == with_nulls(single, kind)


def test_transactions_and_metadata() -> None:
    topic = bytes([1, 2, 0]) + compact("orders") + bytes(17)
    found = values.decoder("cluster").decode(pa.array([topic, b"\1", None, topic + b"\0"]))
    single = decoders.cluster_record(topic)
    first = found.values[0].as_py()
    assert first["TopicRecord"] == single.data
    assert all(value is None for name, value in first.items() if name != "TopicRecord")
    assert found.values.null_count == 3 and found.failed == 2
    assert found.errors is not None and found.errors.to_pylist()[2] is None
    key = b"\0\0" + text("app")
    got = values.decoder("transaction", part="key").decode(pa.array([key, b"\0"]))
    assert got.values[0].as_py() == {"TransactionLogKey": {"transactionalId": "app"}}
    assert got.failed == 1
    for name in ("share-state", "remote-log", "cluster", "group", "transaction"):
        assert pa.types.is_struct(values.decoder(name).arrow_type)


def test_values_of_transactions() -> None:
    """Of both versions, with partitions of several topics, none and null, as the decoder of single records has them."""
    key = b"\0\0" + text("app")
    fixed = struct.pack(">qhib", 7, 3, 60_000, 1)
    times = struct.pack(">qq", 1_700_000_000_000, -1)
    topics = struct.pack(">i", 2) + text("a") + struct.pack(">iii", 2, 0, 5) + text("b") + struct.pack(">i", 0)
    compact_topics = bytes([3]) + compact("a") + bytes([3]) + struct.pack(">ii", 0, 5) + b"\0" + compact("b") + b"\1\0"
    later = struct.pack(">h", 1) + struct.pack(">qhib", 7, 3, 60_000, 1)
    tags = b"\2" + b"\0\x08" + struct.pack(">q", 6) + b"\2\2" + struct.pack(">h", 2)
    rows = [
        b"\0\0" + fixed + topics + times, b"\0\0" + fixed + struct.pack(">i", -1) + times,
        later + compact_topics + times + tags, later + b"\1" + times + b"\0", None, b"\0\0" + fixed,
    ]  # fmt: skip
    decoder = values.decoder("transaction")
    found = decoder.decode(pa.array(rows, pa.binary()), pa.array([key] * len(rows)))
    assert found.failed == 1 and found.errors is not None and found.errors[5].is_valid
    kind = decoder.arrow_type.field("TransactionLogValue").type
    shown = [row and row["TransactionLogValue"] for row in found.values.to_pylist()]
    assert shown[:5] == [with_nulls(decoders.transaction_record(key, row).value, kind) for row in rows[:5]]
    assert [one["topic"] for one in shown[0]["transactionPartitions"]] == ["a", "b"]
    assert shown[2]["transactionPartitions"] == [
        {"topic": "a", "partitionIds": [0, 5]}, {"topic": "b", "partitionIds": []},
    ]  # fmt: skip
    assert (shown[2]["previousProducerId"], shown[2]["clientTransactionVersion"]) == (6, 2)
    assert shown[1]["transactionPartitions"] is None and shown[3]["transactionPartitions"] == []


def test_share_state() -> None:
    """Snapshots and updates are fields of their own; a batch of states is a struct."""
    key = text("app") + bytes(16) + struct.pack(">i", 2)
    batches = bytes([3]) + struct.pack(">qqbhb", 0, 9, 2, 1, 0) + struct.pack(">qqbhb", 10, 11, 0, 0, 0)
    counted = b"\1\0\4" + struct.pack(">i", 8)
    snapshot = b"\0\0" + struct.pack(">iiiqqq", 1, 2, 3, 10, 1000, 2000) + batches + counted
    update = b"\0\0" + struct.pack(">iiq", 1, 3, 12) + b"\1\0"
    keys = [b"\0\0" + key, b"\0\1" + key, b"\0\0" + key]
    decoder = values.decoder("share-state")
    found = decoder.decode(pa.array([snapshot, update, None], pa.binary()), pa.array(keys))
    assert not found.failed
    first, second, gone = found.values.to_pylist()
    for row, key_, value, name in (
        (first, keys[0], snapshot, "ShareSnapshotValue"), (second, keys[1], update, "ShareUpdateValue"),
    ):  # fmt: skip
        kind = decoder.arrow_type.field(name).type
        assert row == {**dict.fromkeys(row), name: with_nulls(decoders.share_state_record(key_, value).value, kind)}
    assert gone is None
    assert first["ShareSnapshotValue"]["stateBatches"][1] == {
        "firstOffset": 10, "lastOffset": 11, "deliveryState": 0, "deliveryCount": 0,
    }  # fmt: skip
    assert (first["ShareSnapshotValue"]["deliveryCompleteCount"], second["ShareUpdateValue"]["startOffset"]) == (8, 12)
    got = values.decoder("share-state", part="key").decode(pa.array(keys))
    assert [[name for name, one in row.items() if one] for row in got.values.to_pylist()] == [
        ["ShareSnapshotKey"], ["ShareUpdateKey"], ["ShareSnapshotKey"],
    ]  # fmt: skip


def test_keys_that_are_missing() -> None:
    decoder = values.decoder("group")
    assert decoder.needs_keys and not values.decoder("cluster").needs_keys
    with pytest.raises(IllegalArgument, match="needs the keys"):
        decoder.decode(pa.array([b"a"]))
    with pytest.raises(IllegalArgument, match="2 keys for 1 values"):
        decoder.decode(pa.array([b"a"]), pa.array([b"a", b"b"]))
    with pytest.raises(IllegalArgument, match="no part"):
        values.decoder("cluster", part="key")
    found = decoder.decode(pa.array([b"a", None]), pa.array([None, None], pa.binary()))
    assert found.failed == 1 and found.errors is not None and "its key is null" in found.errors[0].as_py()


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_a_typed_scan_gives_values_their_keys(tmp_path: Path, codec: str | None) -> None:
    """Also where a condition has decoded the keys before the values, or reads no column but the value."""
    rows = [("a", 1), ("b", 2), ("a", 3)]
    with kafkalog.open(tmp_path / "__consumer_offsets-0", "a") as log:
        keys = [b"\0\1" + text(group) + text("t") + struct.pack(">i", 0) for group, _ in rows]
        offsets = [struct.pack(">hqi", 3, offset, -1) + text("m") + bytes(8) for _, offset in rows]
        log.append([*zip(keys, offsets, strict=True), (keys[0], None)], compression=codec)

        def committed(column: Any) -> list[Any]:
            return [row and row["OffsetCommitValue"]["offset"] for row in column.to_pylist()]

        assert committed(pa.table(log.scan(["value"], value="group"))["value"]) == [1, 2, 3, None]
        path = "value.OffsetCommitValue.offset"
        both: dict[str, Any] = {"key": "group", "value": "group"}
        table = pa.table(log.scan(["key", "value"], **both, where="key.OffsetCommitKey.group == 'a'"))
        assert committed(table["value"]) == [1, 3, None]
        assert [row["OffsetCommitKey"]["group"] for row in table["key"].to_pylist()] == ["a"] * 3
        assert pa.table(log.scan(project=[path], value="group", where=f"{path} > 1"))[path].to_pylist() == [2, 3]
        assert [one.offset for one in log.records(where=f"{path} > 1", value="group")] == [1, 2]
        found = [one.offset for one in log.records(where=f"key.OffsetCommitKey.group == 'b' and {path} > 1", **both)]
        assert found == [1]
        log.append([(None, b"?")])
        with pytest.raises(InvalidRecord, match="its key is null"):
            list(log.scan(["value"], value="group"))
        table = pa.table(log.scan(["value"], value="group", on_undecodable="null"))
        assert "its key is null" in table["value_error"][4].as_py()

"""`dump -J`: the findings of the dump tool as JSON lines."""

import base64
import gc
import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import CorruptRecord, InvalidRecord, KafkalogError
from kafkalog.tools.dump.files import DumpOptions, dump_files
from kafkalog.tools.dump.record_readers import decoder_reader, transaction_log_reader
from tests.builder import R, batch, message_v1
from tests.storage.test_producer_snapshot import ENTRY, snapshot

DEEP = DumpOptions(print_data_log=True)


def dump_objects(*paths: Path, options: DumpOptions | None = None) -> list[dict[str, Any]]:
    out, err = io.BytesIO(), io.BytesIO()
    dump_files(map(str, paths), out, options, err=err, as_json=True)
    assert err.getvalue() == b""
    return [json.loads(line) for line in out.getvalue().splitlines()]


def log_file(directory: Path, data: bytes, base: int = 0) -> Path:
    path = directory / f"{base:020d}.log"
    path.write_bytes(data)
    return path


def test_batches_and_records(tmp_path: Path) -> None:
    rows = [R(b"one", b"k", 1000, (("h", b"x"), ("n", None))), R(b"\xff", None, 1001, (("h", b"\xfe"),)), R(None, b"")]
    made = batch(rows, base_offset=4, producer_id=9, producer_epoch=1, base_sequence=2**31 - 1, leader_epoch=3)
    path = log_file(tmp_path, made, 4)
    whole, *records, jump = dump_objects(path, options=DEEP)
    assert whole == {
        "type": "batch", "file": str(path), "position": 0, "size": len(made), "magic": 2, "baseOffset": 4,
        "lastOffset": 6, "count": 3, "baseSequence": 2**31 - 1, "lastSequence": 1, "producerId": 9,
        "producerEpoch": 1, "partitionLeaderEpoch": 3, "isTransactional": False, "isControl": False,
        "deleteHorizonMs": None, "timestampType": "CreateTime", "maxTimestamp": R().timestamp, "compression": "none",
        "crc": struct.unpack_from(">I", made, 17)[0], "isValid": True,
    }  # fmt: skip
    assert records[0] == {
        "type": "record", "file": str(path), "offset": 4, "timestampType": "CreateTime", "timestamp": 1000,
        "keySize": 1, "valueSize": 3, "sequence": 2**31 - 1, "headers": ["h", "x", "n", None],
        "key": "k", "payload": "one",
    }  # fmt: skip
    assert (records[1]["sequence"], records[1]["headers"]) == (0, ["h", base64.b64encode(b"\xfe").decode()])
    assert (records[1]["headers_encoding"], records[1]["payload"]) == ("base64", "/w==")
    assert (records[1]["payload_encoding"], records[1]["key"], records[1]["keySize"]) == ("base64", None, -1)
    assert (records[2]["key"], records[2]["payload"], "key_encoding" in records[2]) == ("", None, False)
    assert jump == {"type": "nonConsecutiveOffsets", "file": str(path), "offset": -1, "nextOffset": 4}


def test_what_the_options_leave_out(tmp_path: Path) -> None:
    path = log_file(tmp_path, batch([R(b"v", b"k")]) + b"torn")
    assert [line["type"] for line in dump_objects(path)] == ["batch", "invalidBytes"]
    assert "key" not in dump_objects(path, options=DumpOptions(deep_iteration=True))[1]
    bare = dump_objects(path, options=DumpOptions(print_data_log=True, skip_record_metadata=True))[1]
    assert bare == {"type": "record", "file": str(path), "key": "k", "payload": "v"}
    size = path.stat().st_size
    assert dump_objects(path)[-1] == {"type": "invalidBytes", "file": str(path), "position": size - 4, "count": 4}
    assert dump_objects(path, options=DumpOptions(max_bytes=size))[-1]["type"] == "batch"
    path = log_file(tmp_path, batch([R()]) + struct.pack(">qiib", 3, -5, 0, 2))
    assert dump_objects(path)[-1]["count"] == 17


def test_old_formats(tmp_path: Path) -> None:
    path = log_file(tmp_path, message_v1(0, b"value", b"key", timestamp=99))
    whole, record = dump_objects(path, options=DEEP)
    assert whole.keys() & {"baseOffset", "count", "producerId"} == set()
    assert (whole["offset"], whole["magic"], whole["timestampType"]) == (0, 1, "CreateTime")
    assert (record["timestamp"], record["key"], record["payload"]) == (99, "key", "value")
    assert "sequence" not in record and "headers" not in record


def test_batches_that_fill_many_windows(tmp_path: Path) -> None:
    values = [b"%d" % i * 40_000 for i in range(60)]
    path = log_file(tmp_path, b"".join(batch([R(v)], base_offset=i) for i, v in enumerate(values)))
    assert [line["payload"].encode() for line in dump_objects(path, options=DEEP) if line["type"] == "record"] == values


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (0, struct.pack(">hi", 0, 7), {"type": "ABORT", "coordinatorEpoch": 7}),
        (1, struct.pack(">hi", 0, -1), {"type": "COMMIT", "coordinatorEpoch": -1}),
        (4, b"\0\0\0", {"type": "SNAPSHOT_FOOTER", "data": {"version": 0}}),
        (99, None, {"type": "UNKNOWN", "number": 99}),
    ],
)
def test_control_records(tmp_path: Path, kind: int, value: bytes | None, expected: dict[str, Any]) -> None:
    path = log_file(tmp_path, batch([R(value, struct.pack(">hh", 0, kind))], attributes=32))
    record = dump_objects(path, options=DEEP)[1]
    assert (record["control"], "key" in record) == (expected, False)


def test_decoded_keys_and_values(tmp_path: Path) -> None:
    path = log_file(tmp_path, batch([R(b'{"a": [1.5, null]}', b"\0\0\0\7")]))
    record = dump_objects(path, options=DumpOptions(reader=lambda: decoder_reader("integer", "json")))[1]
    assert (record["key"], record["payload"]) == (7, {"a": [1.5, None]})
    path = log_file(tmp_path, batch([R(None, b"\0\0\0\2tx")]))
    record = dump_objects(path, options=DumpOptions(reader=transaction_log_reader))[1]
    assert record["key"] == {"type": "0", "data": {"transactionalId": "tx"}}
    assert record["payload"] == "<DELETE>"


def test_indexes_and_their_complaints(tmp_path: Path) -> None:
    log_file(tmp_path, batch([R(b"v", None, 1000)]))
    index, times = tmp_path / f"{0:020d}.index", tmp_path / f"{0:020d}.timeindex"
    index.write_bytes(b"")
    times.write_bytes(struct.pack(">qi", 1001, 0))
    assert dump_objects(index, times) == [
        {"type": "emptyIndex", "file": str(index)},
        {"type": "timeIndexEntry", "file": str(times), "timestamp": 1001, "offset": 0},
        {"type": "timestampMismatch", "file": str(times), "indexTimestamp": 1001, "logTimestamp": 1000},
    ]
    index.write_bytes(struct.pack(">ii", 5, 0))
    assert dump_objects(index) == [
        {"type": "indexEntry", "file": str(index), "offset": 5, "position": 0},
        {"type": "indexMismatch", "file": str(index), "indexOffset": 5, "logOffset": 0},
    ]
    passed = {"type": "sanityCheck", "file": str(index), "passed": True}
    assert dump_objects(index, options=DumpOptions(index_sanity_check=True)) == [passed]


def test_transactions_and_producers(tmp_path: Path) -> None:
    aborted, producers = tmp_path / f"{0:020d}.txnindex", tmp_path / f"{6:020d}.snapshot"
    aborted.write_bytes(struct.pack(">hqqqq", 0, 9, 2, 3, 4))
    producers.write_bytes(snapshot(ENTRY, ENTRY._replace(last_offset=-1, current_txn_first_offset=-1)))
    first, second, third = dump_objects(aborted, producers)
    assert first == {
        "type": "abortedTransaction", "file": str(aborted), "version": 0, "producerId": 9, "firstOffset": 2,
        "lastOffset": 3, "lastStableOffset": 4,
    }  # fmt: skip
    assert second == {
        "type": "producer", "file": str(producers), "producerId": 9, "producerEpoch": 1, "coordinatorEpoch": -1,
        "currentTxnFirstOffset": 0, "lastTimestamp": 1002, "firstSequence": 1, "lastSequence": 2, "lastOffset": 3,
        "offsetDelta": 1,
    }  # fmt: skip
    assert (third["currentTxnFirstOffset"], "lastOffset" in third) == (None, False)


@pytest.mark.parametrize(
    ("tail", "kind", "offset"),
    [
        (bytes(200), CorruptRecord, None),
        (batch([R(b"\0", struct.pack(">hh", 0, 4))], attributes=32, base_offset=1), InvalidRecord, 1),
    ],
)
def test_damage_is_told_after_the_lines_before_it(
    tmp_path: Path, tail: bytes, kind: type[KafkalogError], offset: int | None
) -> None:
    made = batch([R()])
    path = log_file(tmp_path, made + tail)
    out = io.BytesIO()
    with pytest.raises(kind) as caught:
        dump_files([str(path)], out, DEEP, err=io.BytesIO(), as_json=True)
    assert (caught.value.path, caught.value.offset, caught.value.position) == (str(path), offset, len(made))
    assert [json.loads(line)["type"] for line in out.getvalue().splitlines()][:2] == ["batch", "record"]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("depth", [100, 600, 900, 950, 3_000])
def test_json_of_any_depth_is_printed_or_refused_with_its_place(tmp_path: Path, depth: int, as_json: bool) -> None:
    """Python's parser gets further down than anything that walks over what it made."""
    value = b"[" * depth + b"]" * depth
    path = log_file(tmp_path, batch([R(b"1"), R(value)], base_offset=7), 7)
    out, err = io.BytesIO(), io.BytesIO()
    options = DumpOptions(reader=lambda: decoder_reader(None, "json"))
    gc.collect()  # what earlier tests left could not be finalised where the stack ends
    try:
        dump_files([str(path)], out, options, err=err, as_json=as_json)
    except InvalidRecord as error:
        assert depth > 100 and (error.path, error.offset) == (str(path), 8)
    else:
        assert value in out.getvalue()

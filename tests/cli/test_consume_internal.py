"""`kafkalog consume` and the browser on Kafka's own topics: readable records, as the reference's dump has them."""

import gzip
import json
import re
from pathlib import Path

import pytest

import kafkalog
from kafkalog.browse.decoding import DecodedRecords, serdes_for
from kafkalog.browse.levels import record_columns
from kafkalog.browse.tree import FieldLevel
from kafkalog.storage.readonly.view import LogView
from tests.commands import ok
from tests.golden_cases import GOLDEN, unpack

EXTRA = GOLDEN / "dump-extra"
LINE = re.compile(r"offset: (\d+) .*? key: ({.*?}) payload: ({.*}|<DELETE>)$")
DECODERS = {"--offsets-decoder", "--transaction-log-decoder", "--share-group-state-decoder"}


def reference_lines() -> dict[tuple[str, int], tuple[object, object]]:
    """Return key and payload that the reference's dump printed, by partition directory and offset."""
    found: dict[tuple[str, int], tuple[object, object]] = {}
    for one in json.loads(gzip.decompress((EXTRA / "runs.json.gz").read_bytes()))["runs"]:
        if DECODERS & {*one["args"]} and "--skip-record-metadata" not in one["args"]:
            directory = Path(one["args"][-1]).parent.name
            for line in one["stdout"].splitlines():
                if directory.startswith("__") and (match := LINE.search(line)):
                    payload = None if match[3] == "<DELETE>" else json.loads(match[3])
                    found[directory, int(match[1])] = (json.loads(match[2]), payload)
    return found


@pytest.mark.golden
@pytest.mark.skipif(not EXTRA.is_dir(), reason=f"no dump-extra in the golden capture {GOLDEN.name!r}")
def test_records_are_those_of_the_references_dump(tmp_path: Path) -> None:
    unpack(EXTRA / "data.tar.gz", tmp_path)
    expected = reference_lines()
    found: dict[tuple[str, int], tuple[object, object]] = {}
    for directory in sorted({name for name, _ in expected}):
        topic, _, partition = directory.rpartition("-")
        text = ok("consume", "-d", tmp_path / "data", "-t", topic, "-p", partition, "-J").decode()
        for row in map(json.loads, text.splitlines()):
            found[directory, row["offset"]] = (row["key"], row["payload"])
    assert expected and found.items() >= expected.items()


def test_as_text_and_as_bytes(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("__transaction_state", 1, {"cleanup.policy": "compact"})
        dirs["__transaction_state", 0].append([(b"\0\0\0\2tx", None), (b"\0\x09", b"new"), (b"", b"short")])
    said = ok("consume", "-d", tmp_path, "-t", "__transaction_state", "-K", "=", "-Z").decode().splitlines()
    assert said[0] == '{"type":"0","data":{"transactionalId":"tx"}}=NULL'
    assert said[1] == "Unknown record type 9 at offset 1, skipping.=null"
    assert said[2].startswith("Error at offset 2, skipping.") and len(said) == 3
    raw = ok("consume", "-d", tmp_path, "-t", "__transaction_state", "-s", "bytes", "-f", "%k|%s\n")
    assert raw.startswith(b"000000027478|") and raw.splitlines()[1] == b"0009|6e6577"
    hexed = ok("consume", "-d", tmp_path, "-t", "__transaction_state", "--key-encoding", "hex", "-f", "%k\n")
    assert hexed.splitlines()[0] == b"000000027478"


def test_the_browser_decodes_them_too(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        for topic in ("__transaction_state", "orders"):
            dirs.create_topic(topic, 1)
            dirs[topic, 0].append([(b"\0\0\0\2tx", b"\0\1short")])
        record = next(dirs["orders", 0].records())
    for topic, key in (("__transaction_state", None), ("orders", b"\0\0\0\2tx")):
        with LogView(tmp_path / f"{topic}-0") as view:
            shown = [column.get(record) for column in record_columns(DecodedRecords(serdes_for(view, None)))]
            rows = dict(FieldLevel(view, record).things)
        assert len(shown) == 6 and shown[0] == 0
        if key is None:
            assert "Error at offset 0" in str(shown[1]) and "Error at offset 0" in str(rows["key"])
        else:
            assert (shown[1], rows["key"]) == (key, key)

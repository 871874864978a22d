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
from tests import commands
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


def test_by_the_name_of_a_decoder_in_a_topic_of_any_name(tmp_path: Path) -> None:
    key, value = b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\3" + bytes(7) + b"\x07" + b"\xff" * 4 + b"\0\0" + bytes(8)
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("saved", 1)
        dirs["saved", 0].append([(key, value), (b"plain", None)])

    def printed(*flags: str) -> list[str]:
        return ok("consume", "-d", tmp_path, "-t", "saved", "-f", "%k|%s\n", *flags).decode().splitlines()

    first, second = printed("-s", "group")
    assert json.loads(first.partition("|")[0])["data"] == {"group": "g", "topic": "t", "partition": 0}
    assert json.loads(first.partition("|")[2])["data"]["offset"] == 7
    assert second == "Unknown record type 28780 at offset 1, skipping.|"
    mixed = printed("-s", "key=bytes", "-s", "value=group")
    assert mixed[0].startswith(f"{key.hex()}|") and '"offset":7' in mixed[0]
    matching = printed("-s", "group", "--where", "value.OffsetCommitValue.offset == 7")
    assert matching == [first]
    wrong = commands.kafkalog("consume", "-d", tmp_path, "-t", "saved", "-s", "key=group", "-s", "value=transaction")
    assert wrong.returncode == 2 and b"one internal topic" in wrong.stderr


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

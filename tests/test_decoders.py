"""kafkalog.decoders: the face of the decoders, on records of a real broker."""

import doctest
import gzip
import json
import re
from pathlib import Path

import pytest

import kafkalog
from kafkalog import decoders
from kafkalog.errors import InvalidRecord
from tests.golden_cases import GOLDEN, unpack

EXTRA = GOLDEN / "dump-extra"


def test_the_examples() -> None:
    assert doctest.testmod(decoders) == doctest.TestResults(0, 11)


@pytest.mark.golden
@pytest.mark.skipif(not EXTRA.is_dir(), reason=f"no dump-extra in the golden capture {GOLDEN.name!r}")
def test_committed_offsets_of_a_restored_topic(tmp_path: Path) -> None:
    """Every offset that the reference's dump of `__consumer_offsets` shows, read from the log."""
    unpack(EXTRA / "data.tar.gz", tmp_path)
    found = {}
    for directory in sorted((tmp_path / "data").glob("__consumer_offsets-*")):
        with kafkalog.open(directory) as log:
            for record in log.records():
                message = decoders.group_record(record.key, record.value)
                if message.type == 1 and message.value is not None:
                    found[directory.name, record.offset] = (message.key["group"], message.value["offset"])
    text = {}
    pattern = re.compile(r'offset: (\d+) .* key: {"type":"1","data":({.*?})} payload: {"version":"\d","data":(.*)}$')
    for one in json.loads(gzip.decompress((EXTRA / "runs.json.gz").read_bytes()))["runs"]:
        if "--offsets-decoder" in one["args"] and "--skip-record-metadata" not in one["args"]:
            topic = Path(one["args"][-1]).parent.name
            for line in one["stdout"].splitlines():
                if match := pattern.search(line):
                    key, value = json.loads(match[2]), json.loads(match[3])
                    text[topic, int(match[1])] = (key["group"], value["offset"])
    assert found == text
    assert found or not text


def test_records_of_kafkas_own_topics() -> None:
    """`records.internal` and the tables have tests of their own: here is only what belongs to which topic."""
    assert decoders.transaction_record(b"\0\0\0\2tx", None).key == {"transactionalId": "tx"}
    share = decoders.share_state_record(b"\0\0\0\1g" + bytes(16) + bytes(4), None)
    assert share.key == {"groupId": "g", "topicId": "A" * 22, "partition": 0}
    assert decoders.cluster_record(b"\x01\x18\0\0") == (24, "EndTransactionRecord", 0, {})
    with pytest.raises(InvalidRecord):
        decoders.remote_log_record(b"\x01\0\0")
    with pytest.raises(decoders.MessageError):
        decoders.group_record(b"", None)

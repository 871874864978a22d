"""A deep check finds records that decode, and that readers refuse all the same."""

import struct
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import InvalidRecord
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.tools.verify.directories import verify
from tests import builder
from tests.builder import R
from tests.tools.test_verify_damage import CONTROL, TRANSACTIONAL, txn_batch, write_log


def test_a_control_record_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    """Its transaction stays open, so that committed reads end before it."""
    marker = builder.batch([R(b"v", b"k")], attributes=TRANSACTIONAL | CONTROL, producer_id=9, base_offset=1)
    write_log(tmp_path / "t-0", [txn_batch(0, 9), marker])
    found = list(verify(tmp_path / "t-0", deep=True))
    assert [(one.kind, one.offset, one.position) for one in found] == [("record", 1, len(txn_batch(0, 9)))]
    assert "too short" in found[0].what


def test_records_above_the_offset_of_their_wrapper_are_found(tmp_path: Path) -> None:
    """A v0 wrapper's offset is that of its last record, which has its own one: readers raise there, too."""
    legacy = LegacyBuilder(0, magic=0, compression=CompressionType.GZIP)
    for value in (b"a", b"b", b"c"):
        legacy.append(-1, None, value)
    wrapper = bytearray(legacy.build())
    struct.pack_into(">q", wrapper, 0, 1)
    path = write_log(tmp_path / "t-0", [])
    path.write_bytes(wrapper)
    found = list(verify(tmp_path / "t-0", deep=True))
    assert [(one.kind, one.offset, one.position) for one in found] == [("record", 2, 0)]
    assert "ends at 1" in found[0].what
    with kafkalog.open(tmp_path / "t-0") as log:
        with pytest.raises(InvalidRecord):
            list(log.records())
        assert log.stats(sizes=True).problems

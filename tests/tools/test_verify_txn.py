"""`verify` of a transaction index that was written after the log start had moved."""

from pathlib import Path

import pytest

from kafkalog.storage.index.aborted_txns import parse_aborted_txns
from kafkalog.tools.verify.directories import verify
from tests import transactional
from tests.raw_batches import batches, write_segment
from tests.storage.logs import log


def test_a_transaction_that_began_below_the_log_start(tmp_path: Path) -> None:
    """Its entry says where it begins for those who read from the log start on, as the reference's does."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    transactional.made([("data", 7, 2), ("data", 7, 2), ("plain", -1, 1)]).write(directory)
    transactional.snapshot_path(directory, 5).unlink()
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ntopic 0 2\n")
    a_log = log(tmp_path, log_start_offset=2)
    a_log.append_as_leader(bytearray(transactional.marker(0, 7, transactional.ABORT)), origin="coordinator")
    a_log.close()
    index = transactional.index_path(directory, 0)
    entries = parse_aborted_txns(index.read_bytes(), str(index))
    assert [(one.first_offset, one.last_offset) for one in entries] == [(2, 5)]
    assert verify(directory, deep=True).ok
    index.write_bytes(transactional.txn_index([(7, 3, 5, 6)]))
    assert [one.kind for one in verify(directory, deep=True).findings] == ["txn-entry"], "not all of what is read"
    index.write_bytes(transactional.txn_index([(7, 2, 5, 6)]))
    (tmp_path / "log-start-offset-checkpoint").unlink()
    assert [one.kind for one in verify(directory, deep=True).findings] == ["txn-entry"]


@pytest.mark.parametrize(("last_offset", "found"), [(2, []), (9, []), (10, ["txn-entry"]), (11, ["txn-entry"])])
def test_a_marker_may_be_missing_up_to_the_next_segment(tmp_path: Path, last_offset: int, found: list[str]) -> None:
    """A repair left it out with the damaged bytes around it."""
    directory = tmp_path / "t-0"
    write_segment(directory, 0, batches(0, 1, 2))
    write_segment(directory, 10, batches(10, 1, 5))
    transactional.index_path(directory, 0).write_bytes(transactional.txn_index([(7, 0, last_offset, 0)]))
    assert [one.kind for one in verify(directory)] == found

"""Lines in the log about bytes that a reader skipped."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.util.checkpoint import RECOVERY_POINT_FILE


def test_a_torn_end_that_held_no_offsets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The piece has no offset: [1, 1) is no range from 1 to 0."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"0"])
        log.append([b"1"])
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-7])
    (tmp_path / RECOVERY_POINT_FILE).unlink()
    with kafkalog.open(tmp_path / "t-0") as log:
        assert [one.value for one in log.records(on_damage="skip")] == [b"0"]
    assert f"skipped 62 damaged bytes of {path} from position 69, no offsets: " in caplog.text

"""Log.append_bytes: what ready batches may say of themselves."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch


@pytest.mark.parametrize("compression_type", ["producer", "lz4"])
@pytest.mark.parametrize("base_offset", [-(2**63), -1, 2**63 - 2, 2**63 - 1])
def test_ready_batches_may_carry_offsets_that_no_record_can_have(
    tmp_path: Path, base_offset: int, compression_type: str
) -> None:
    """LOG-2: the log gives its own. Also with a torn batch behind, or another batch."""
    ready = encode_batch([b"a", b"b"], timestamp=1_700_000_000_000)
    ready[:8] = base_offset.to_bytes(8, "big", signed=True)
    with kafkalog.open(tmp_path / "t-0", "a", compression_type=compression_type) as log:
        for data in (ready, ready + ready[:-1], ready + ready):
            log.append_bytes(bytes(data))
        assert [record.offset for record in log] == list(range(8))

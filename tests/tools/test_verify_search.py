"""The search for the next sound batch: it finds what a wrong size hides, and what it may cost has an end."""

import os
from pathlib import Path

from kafkalog.tools.verify.directories import Severity, verify
from kafkalog.util.fileio import FileSystem
from tests import raw_batches
from tests.tools.test_verify_damage import write_log


def test_a_size_that_claims_many_chunks_hides_no_batch(tmp_path: Path) -> None:
    """The search leads back to before the chunk at which the claim was found to be wrong."""
    parts = [raw_batches.batch(n, [b"x" * 5000], timestamp=1000 + n) for n in range(300)]
    path = write_log(tmp_path / "t-0", parts)
    at = sum(map(len, parts[:3]))
    content = bytearray(path.read_bytes())
    content[at + 8 : at + 12] = (1_000_000).to_bytes(4, "big")
    path.write_bytes(content)
    report = verify(path)
    assert [(one.kind, one.position) for one in report if one.severity == Severity.DAMAGE] == [("crc", at)], str(report)
    assert f"follows at position {at + len(parts[3])}" in str(report)
    assert report.sums.batches == len(parts) - 1


class CountsReads(FileSystem):
    """Number of bytes read in all."""

    def __init__(self) -> None:
        self.bytes = 0

    def preadv(self, fd: int, buffers: tuple[memoryview], position: int) -> int:  # type: ignore[override]
        read = os.preadv(fd, buffers, position)
        self.bytes += read
        return read

    def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
        data = os.pread(fd, size, position)
        self.bytes += len(data)
        return data


def test_bytes_made_to_deceive_do_not_cost_the_square_of_the_file(tmp_path: Path) -> None:
    """Before each sound batch stand two headers that claim all that follows, each a checksum over the rest."""
    sound = [raw_batches.batch(n, [b"x" * 5000], timestamp=1000) for n in range(300)]
    left = sum(map(len, sound)) + 2 * 61 * len(sound)
    content = b""
    for part in sound:
        for _ in range(2):
            content += part[:8] + (left - 12).to_bytes(4, "big") + part[12:61]
            left -= 61
        content += part
        left -= len(part)
    path = write_log(tmp_path / "t-0", [])
    path.write_bytes(content)
    fs = CountsReads()
    report = verify(path, fs=fs)
    assert "the search was abandoned" in str(report)
    assert fs.bytes < (100 << 20) + 10 * len(content)

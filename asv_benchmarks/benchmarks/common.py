"""What the benchmark classes share: data of the usual shapes, and a scratch directory for each class."""

import shutil
import tempfile
from pathlib import Path

from kafkalog._core.encode import encode_batch

RECORD_BYTES = 100
NOW = 1_700_000_000_000
VALUE = bytes(range(65, 90)) * 4


def values(count: int) -> list[bytes]:
    """`count` different values of 100 bytes."""
    return [b"%012d" % i + VALUE[:88] for i in range(count)]


def batch(count: int) -> bytes:
    """A ready v2 batch of `count` records of 100 bytes."""
    return bytes(encode_batch(values(count), timestamp=NOW))


def batches(count: int, total_bytes: int) -> bytes:
    """Batches of `count` records back to back, consecutive offsets, about `total_bytes` in all."""
    from kafkalog._core.assign import assign
    from kafkalog._core.scan import scan

    one = batch(count)
    data = bytearray(one * max(1, total_bytes // len(one)))
    assign(data, scan(data, check_crc=False), 0, 0)
    return bytes(data)


class Scratch:
    """Base of classes that need a directory; it goes with them."""

    directory: Path

    def make_directory(self) -> Path:
        """A new empty directory."""
        self.directory = Path(tempfile.mkdtemp(prefix="kafkalog-asv-"))
        return self.directory

    def teardown(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

"""Bytes that lines take on disk."""

import kafkalog

from .common import Scratch


class OnDisk(Scratch):
    def setup(self) -> None:
        self.path = self.make_directory() / "bench-0"

    def track_bytes_of_10000_lines(self) -> int:
        with kafkalog.open(self.path, "a") as log, log.writer() as writer:
            for i in range(10_000):
                writer.append(b"hello lagou %d" % i)
        return sum(f.stat().st_size for f in self.path.iterdir())

    track_bytes_of_10000_lines.unit = "bytes"  # type: ignore[attr-defined]

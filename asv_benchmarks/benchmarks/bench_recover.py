"""Opening a log that was not closed well: one segment in the page cache, and many small ones."""

from kafkalog.config import LogConfig
from kafkalog.storage.log import UnifiedLog

from .common import Scratch, batches, fill_log


class Recover(Scratch):
    params = [1, 100]
    param_names = ["records_per_batch"]

    def setup(self, count: int) -> None:
        self.path = self.make_directory() / "bench-0"
        fill_log(self.path, count, 64 << 20)

    def time_one_segment(self, count: int) -> None:
        UnifiedLog.open(self.path, LogConfig(), had_clean_shutdown=False, recovery_threads=1).close()

    def peakmem_one_segment(self, count: int) -> None:
        UnifiedLog.open(self.path, LogConfig(), had_clean_shutdown=False, recovery_threads=1).close()


class RecoverMany(Scratch):
    def setup(self) -> None:
        import kafkalog

        self.path = self.make_directory() / "bench-0"
        ready = batches(100, 1 << 20)
        with kafkalog.open(self.path, "a", segment_bytes=1 << 20) as log:
            for _ in range(64):
                log.append_bytes(bytearray(ready))

    def time_64_segments(self) -> None:
        UnifiedLog.open(self.path, LogConfig(), had_clean_shutdown=False).close()

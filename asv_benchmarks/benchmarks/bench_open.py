"""A store of many partitions: opening and closing it, and its memory."""

from asv_benchmarks.opening import make
from kafkalog.manager.log_manager import LogManager

from .common import Scratch


class Open(Scratch):
    """Partitions of ten segments each, closed well."""

    params = [10, 1000]
    param_names = ["partitions"]

    def setup(self, partitions: int) -> None:
        self.path = self.make_directory()
        make(self.path, partitions, 10)

    def time_open_and_close(self, partitions: int) -> None:
        LogManager.open([self.path]).close()

    def peakmem_open_and_close(self, partitions: int) -> None:
        LogManager.open([self.path]).close()

"""`verify` and the plan of `repair` over one segment in the page cache."""

from kafkalog.tools.repair import repair
from kafkalog.tools.verify import verify

from .common import Scratch, fill_log


class Verify(Scratch):
    params = [1, 100]
    param_names = ["records_per_batch"]

    def setup(self, count: int) -> None:
        self.path = self.make_directory() / "bench-0"
        fill_log(self.path, count, 64 << 20)

    def time_checksums(self, count: int) -> None:
        verify(self.path, threads=1)

    def time_deep(self, count: int) -> None:
        verify(self.path, threads=1, deep=True)

    def time_indexes_only(self, count: int) -> None:
        verify(self.path, threads=1, indexes_only=True)

    def time_plan_of_repair(self, count: int) -> None:
        repair(self.path, all_indexes=True)

    def peakmem_checksums(self, count: int) -> None:
        verify(self.path, threads=1)

"""A commit of one record in each durability mode: the median and the 99th percentile, and eight threads at once."""

import threading
from contextlib import ExitStack

from asv_benchmarks.durability import BARS, commit_in
from asv_benchmarks.measure import quantile, wall_seconds

from .common import Scratch


class _Opened(Scratch):
    def setup(self, mode: str) -> None:
        self.open_ones = ExitStack()
        self.commit = commit_in(mode, self.make_directory(), self.open_ones)

    def teardown(self, *_: object) -> None:
        self.open_ones.close()
        super().teardown()


class Commit(_Opened):
    params = list(BARS)
    param_names = ["mode"]

    def _times(self) -> list[float]:
        return [1e6 * wall_seconds(self.commit) for _ in range(500)]

    def track_p50(self, mode: str) -> float:
        return quantile(self._times(), 50)

    def track_p99(self, mode: str) -> float:
        return quantile(self._times(), 99)

    track_p50.unit = track_p99.unit = "us"  # type: ignore[attr-defined]


class GroupCommit(_Opened):
    params = [1, 8]
    param_names = ["threads"]

    def setup(self, threads: int) -> None:  # type: ignore[override]
        super().setup("writer(sync=True)")

    def time_400_commits(self, threads: int) -> None:
        def run() -> None:
            for _ in range(400 // threads):
                self.commit()

        running = [threading.Thread(target=run) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

"""A commit of one record in each durability mode: the median and the 99th percentile, and eight threads at once."""

import threading
import time

import kafkalog

from .common import Scratch

MODES: dict[str, dict[str, object]] = {
    "False": {"sync": False},
    "10 ms": {"sync": 10},
    "True": {"sync": True},
    "flush.messages=1": {"flush_messages": 1},
}
VALUE = b"x" * 100


class Commit(Scratch):
    params = list(MODES)
    param_names = ["mode"]

    def setup(self, mode: str) -> None:
        self.log = kafkalog.open(self.make_directory() / "bench-0", "a", **MODES[mode])  # type: ignore[arg-type]

    def teardown(self, *_: object) -> None:
        self.log.close()
        super().teardown()

    def _times(self) -> list[float]:
        times = []
        for _ in range(500):
            began = time.perf_counter()
            self.log.append(VALUE)
            times.append((time.perf_counter() - began) * 1e6)
        return sorted(times)

    def track_p50(self, mode: str) -> float:
        return self._times()[250]

    def track_p99(self, mode: str) -> float:
        return self._times()[495]

    track_p50.unit = track_p99.unit = "us"  # type: ignore[attr-defined]


class GroupCommit(Scratch):
    params = [1, 8]
    param_names = ["threads"]

    def setup(self, threads: int) -> None:
        self.log = kafkalog.open(self.make_directory() / "bench-0", "a")
        self.writer = self.log.writer(sync=True)

    def teardown(self, *_: object) -> None:
        self.writer.close()
        self.log.close()
        super().teardown()

    def time_400_commits(self, threads: int) -> None:
        def run() -> None:
            for _ in range(400 // threads):
                self.writer.append(VALUE).result()

        running = [threading.Thread(target=run) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

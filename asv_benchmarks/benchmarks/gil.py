"""Pairs of the same work in one thread and in two: without the GIL the second takes little longer."""

from concurrent.futures import ThreadPoolExecutor

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan

from .common import batches


class TwoThreads:
    params = ["scan", "decode"]
    param_names = ["work"]

    def setup(self, work: str) -> None:
        self.data = batches(1000, 8 << 20)
        table = scan(self.data)
        self.work = (lambda: scan(self.data)) if work == "scan" else (lambda: decode(self.data, table))
        self.pool = ThreadPoolExecutor(2)

    def teardown(self, work: str) -> None:
        self.pool.shutdown()

    def time_twice_in_one_thread(self, work: str) -> None:
        self.work()
        self.work()

    def time_once_in_each_of_two(self, work: str) -> None:
        list(self.pool.map(lambda _: self.work(), range(2)))

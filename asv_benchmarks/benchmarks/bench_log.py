"""One log: append in every shape, iterate, random reads by offset and by time, memory of a scan."""

import random

import kafkalog

from .common import Scratch, batch, values

T0 = 1_700_000_000_000


class Append(Scratch):
    params = [1, 100, 1000]
    param_names = ["records_per_batch"]

    def setup(self, count: int) -> None:
        self.log = kafkalog.open(self.make_directory() / "bench-0", "a")
        self.ready = bytearray(batch(count))
        self.values = values(count)

    def teardown(self, *_: object) -> None:
        self.log.close()
        super().teardown()

    def time_ready_batch(self, count: int) -> None:
        self.log.append_bytes(self.ready)

    def time_list(self, count: int) -> None:
        self.log.append(self.values)


class Read(Scratch):
    params = [1, 100, 1000]
    param_names = ["records_per_batch"]
    total = 200_000

    def setup(self, count: int) -> None:
        path = self.make_directory() / "bench-0"
        with kafkalog.open(path, "a") as log:
            some = values(count)
            for i in range(self.total // count):
                log.append([(None, value, T0 + i) for value in some])
        self.log = kafkalog.open(path)
        rng = random.Random(7)
        self.offsets = [rng.randrange(self.total) for _ in range(1000)]
        self.times = [T0 + rng.randrange(self.total // count) for _ in range(1000)]

    def teardown(self, *_: object) -> None:
        self.log.close()
        super().teardown()

    def time_iterate_value_touched(self, count: int) -> None:
        for record in self.log.records():
            record.value  # noqa: B018

    def time_1000_random_offsets(self, count: int) -> None:
        for offset in self.offsets:
            self.log[offset]

    def time_1000_random_times(self, count: int) -> None:
        for moment in self.times:
            self.log.offset_for_time(moment)

    def peakmem_iterate(self, count: int) -> None:
        for record in self.log.records():
            record.value  # noqa: B018


class OnDisk(Scratch):
    def setup(self) -> None:
        self.path = self.make_directory() / "bench-0"

    def track_bytes_of_10000_lines(self) -> int:
        with kafkalog.open(self.path, "a") as log, log.writer() as writer:
            for i in range(10_000):
                writer.append(b"hello lagou %d" % i)
        return sum(f.stat().st_size for f in self.path.iterdir())

    track_bytes_of_10000_lines.unit = "bytes"  # type: ignore[attr-defined]

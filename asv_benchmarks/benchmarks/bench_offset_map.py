"""The cleaner's offset map: keys put, keys got, and the keys of a chunk of batches put from where they lie."""

import os

from kafkalog._core.map_filler import MapFiller
from kafkalog._core.offset_map import SkimpyOffsetMap
from kafkalog._core.scan import scan
from kafkalog._core.txns import AbortedRanges
from kafkalog.records.builder import RecordsBuilder

from .common import NOW, values

LOAD = 0.75
RECORDS = 10_000


class Fill:
    """A map filled to load 0.75 with keys of 16 bytes: the time of it by the number of keys is that of one."""

    params = ([1 << 20, 32 << 20, 128 << 20], ["siphash", "md5"])
    param_names = ["map_bytes", "hash"]

    def setup(self, map_bytes: int, hash: str) -> None:
        self.map = SkimpyOffsetMap(map_bytes, hash)
        self.count = int(self.map.slots * LOAD)
        self.keys = os.urandom(16 * self.count)
        self.map.put_run(self.keys, 16, 0)

    def time_fill(self, map_bytes: int, hash: str) -> None:
        self.map.clear()
        self.map.put_run(self.keys, 16, 0)

    def time_put_again(self, map_bytes: int, hash: str) -> None:
        self.map.put_run(self.keys, 16, 0)

    def time_clear(self, map_bytes: int, hash: str) -> None:
        self.map.clear()


def keyed_batches(count: int, total: int) -> bytes:
    """Batches of `count` records of 100 bytes back to back, `total` records in all, each with its own key."""
    made = []
    for base in range(0, total, count):
        builder = RecordsBuilder(base)
        for offset, value in enumerate(values(count), base):
            builder.append(NOW, b"key-%012d" % offset, value[:84], offset=offset)
        made.append(builder.build())
    return b"".join(made)


class KeysOfBatches:
    params = [1, 100]
    param_names = ["records_per_batch"]

    def setup(self, count: int) -> None:
        self.data = keyed_batches(count, RECORDS)
        self.table = scan(self.data)
        self.map = SkimpyOffsetMap(32 << 20)

    def time_take(self, count: int) -> None:
        self.map.clear(expected=RECORDS)
        filler = MapFiller(self.map, AbortedRanges(), start_offset=0, end_offset=2**62, most=self.map.slots)
        assert filler.take(self.data, self.table, 0, len(self.table))

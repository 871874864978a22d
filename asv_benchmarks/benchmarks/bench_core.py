"""_core: checksums, scan, decode, encode, text to batches."""

import numpy as np

from kafkalog._core.crc import crc32c
from kafkalog._core.decode import decode
from kafkalog._core.encode import encode_batch
from kafkalog._core.index import OffsetEntries
from kafkalog._core.ingest import LineEncoder
from kafkalog._core.record import RecordIterator
from kafkalog._core.scan import scan
from kafkalog.records.packing import pack, parse_compression

from .common import NOW, batches, codecs, values


class Crc32c:
    params = [100, 4096, 65536, 1 << 20]
    param_names = ["bytes"]

    def setup(self, size: int) -> None:
        self.data = bytes(size)

    def time_crc32c(self, size: int) -> None:
        crc32c(self.data)


class ScanAndDecode:
    params = [1, 100, 1000]
    param_names = ["records_per_batch"]

    def setup(self, count: int) -> None:
        self.data = batches(count, 256 << 10)
        self.table = scan(self.data)

    def time_scan(self, count: int) -> None:
        scan(self.data)

    def time_scan_without_crc(self, count: int) -> None:
        scan(self.data, check_crc=False)

    def time_decode(self, count: int) -> None:
        decode(self.data, self.table)

    def time_records_value_touched(self, count: int) -> None:
        for record in RecordIterator([decode(self.data, self.table)]):
            record.value  # noqa: B018


class Encode:
    params = [1, 100, 1000]
    param_names = ["records_per_batch"]

    def setup(self, count: int) -> None:
        self.values = values(count)

    def time_list_of_bytes(self, count: int) -> None:
        encode_batch(self.values, timestamp=NOW)


class Lines:
    def setup(self) -> None:
        self.text = b"".join(b"hello lagou %d\n" % i for i in range(20000))

    def time_lines_to_batches(self) -> None:
        encoder = LineEncoder()
        encoder.feed(self.text, len(self.text), NOW, final=True)
        encoder.seal()
        encoder.take()


class Pack:
    """A chunk of a file's batches as `produce -z` compresses it, and the codec's own share of that."""

    params = ["gzip", "snappy", "lz4", "zstd"]
    param_names = ["codec"]

    def setup(self, codec: str) -> None:
        text = b"".join(b"hello lagou %d\n" % i for i in range(8000))
        encoder = LineEncoder()
        encoder.feed(text, len(text), NOW, final=True)
        encoder.seal()
        self.batches = encoder.take()
        self.compression = parse_compression(codec)
        self.blocks = [memoryview(self.batches)[b.position + 61 : b.position + b.size] for b in scan(self.batches)]
        self.squeeze = codecs()[codec]

    def time_pack(self, codec: str) -> None:
        pack(self.batches, self.compression, limit_bytes=1 << 20)

    def time_codec_alone(self, codec: str) -> None:
        for block in self.blocks:
            self.squeeze(block)


class OffsetLookup:
    def setup(self) -> None:
        count = (10 << 20) // 8
        entries = np.empty((count, 2), ">i4")
        entries[:, 0] = np.arange(count) * 3
        entries[:, 1] = np.arange(count) * 100
        self.entries = OffsetEntries(entries.tobytes(), 0, count)
        self.last = (count - 100) * 3
        self.random = np.random.default_rng(1).integers(0, count * 3, 100_000)
        self.some = [int(n) for n in self.random[:1000]]

    def time_warm(self) -> None:
        self.entries.lookup(self.last)

    def time_1000_random(self) -> None:
        lookup = self.entries.lookup
        for target in self.some:
            lookup(target)

    def time_100000_in_one_call(self) -> None:
        self.entries.lookup_many(self.random)

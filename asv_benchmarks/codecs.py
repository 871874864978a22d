"""Compressed batches: made plain beside the codec alone, dumped beside the reference, v1 wrappers beside it too."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cramjam

from asv_benchmarks.benchmarks.common import NOW
from asv_benchmarks.commands import SEGMENT_BYTES, TOPIC, make_lines
from asv_benchmarks.hot_paths.codecs import HEADER_BYTES, made_plain, text_values
from asv_benchmarks.measure import KAFKALOG, Peers, Row, median_run, per_item
from kafkalog._core.batch.encode import encode_batch
from kafkalog._core.batch.repack import with_payload
from kafkalog._core.batch.scan import scan
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.tables import record_tables

CODECS = [codec for codec in CompressionType if codec]
WRAPPERS, IN_EACH = 40, 1000


def rows(directory: Path, count: int, reference: bool) -> list[Row]:
    """Return the rows of all codecs; the dump's files are the demo's first segment, each batch compressed."""
    return [*_plain_rows(), *_dump_rows(directory, count, reference), *_wrapper_rows(directory, reference)]


def _alone(codec: CompressionType, payload: memoryview) -> Callable[[], int]:
    """Return the codec's own decompression of the blocks of one payload, into existing memory."""
    import zstandard

    room = bytearray(1 << 20)
    if codec == CompressionType.ZSTD:
        reader = zstandard.ZstdDecompressor()
        return lambda: len(reader.decompress(payload))
    if codec == CompressionType.GZIP:
        from isal import isal_zlib

        return lambda: len(isal_zlib.decompressobj(31).decompress(payload))
    blocks, at = [], 7 if codec == CompressionType.LZ4 else 16
    order = "little" if codec == CompressionType.LZ4 else "big"
    while size := int.from_bytes(payload[at : at + 4], order):  # type: ignore[arg-type]
        blocks.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    bare = partial(cramjam.lz4.decompress_block_into, output_len=0)
    expand = bare if codec == CompressionType.LZ4 else cramjam.snappy.decompress_raw_into
    return lambda: sum(expand(block, room) for block in blocks)


def _plain_rows() -> list[Row]:
    """Return the speed of decompressing batches of 1000 x 100 B, as a share of the codec's own on the same blocks."""
    found = []
    plain = bytes(encode_batch(text_values(1000), timestamp=NOW))
    for codec in CODECS:
        squeezed = memoryview(bytes(compress(codec, plain[HEADER_BYTES:])))
        data = bytes(with_payload(plain[:HEADER_BYTES], squeezed, codec)) * 40
        table = scan(data)
        alone = _alone(codec, squeezed)
        shares, speeds = [], []
        for _ in range(3):
            own = per_item(lambda data=data, table=table: made_plain(data, table), rounds=3)
            bare = per_item(alone, rounds=3)
            shares.append(bare / own)
            speeds.append(1e-6 / bare)
        peers: Peers = {"codec alone, MB/s": f"{sorted(speeds)[1]:.0f}"}
        found.append(
            Row(f"{codec.name.lower()} batches made plain, of the codec", sorted(shares)[1], 0.8, "", False, peers)
        )
    return found


def _dump_rows(directory: Path, count: int, reference: bool) -> list[Row]:
    """Return how many times faster deep dumps with data are than the reference's, as whole processes."""
    if not reference:
        return []
    from asv_benchmarks.peers import kafka_embedded

    lines, data, out = directory / "lines.txt", directory / "data", directory / "out.txt"
    make_lines(lines, count)
    settings = ["-d", str(data), "-t", TOPIC, "-q", "-l", "-X", f"segment.bytes={SEGMENT_BYTES}"]
    median_run([*KAFKALOG, "produce", *settings, str(lines)], rounds=1)
    source = min((data / f"{TOPIC}-0").glob("*.log"))
    plain = source.read_bytes()
    table = scan(plain)
    found = []
    for codec in CODECS:
        folder = directory / codec.name
        folder.mkdir()
        file = folder / source.name
        file.write_bytes(b"".join(_recompressed(plain, one.position, one.size, codec) for one in table))
        used = median_run(
            [*KAFKALOG, "dump", "--deep-iteration", "--print-data-log", "--files", str(file)], stdout=str(out)
        )
        theirs = float(kafka_embedded.dump_deep(file)["cpu"])
        peers: Peers = {"seconds": f"{used.cpu:.3f}", "Kafka's": f"{theirs:.2f}"}
        found.append(
            Row(f"dump, deep, {codec.name.lower()}, of Kafka's speed", theirs / used.cpu, 15, "x", False, peers)
        )
        shutil.rmtree(folder)
    os.unlink(lines)
    shutil.rmtree(data)
    return found


def _recompressed(data: bytes, at: int, size: int, codec: CompressionType) -> bytes:
    body = memoryview(data)[at + HEADER_BYTES : at + size]
    return bytes(with_payload(data[at : at + HEADER_BYTES], compress(codec, body), codec))


def _wrapper_rows(directory: Path, reference: bool) -> list[Row]:
    """Return the speed of reading gzip wrappers of format v1."""
    values, data = text_values(IN_EACH), b""
    for n in range(WRAPPERS):
        builder = LegacyBuilder(n * IN_EACH, compression=CompressionType.GZIP)
        for value in values:
            builder.append(NOW, None, value)
        data += builder.build()
    file = directory / "wrappers.log"
    file.write_bytes(data)

    def iterate() -> int:
        seen = 0
        for table in record_tables(data, scan(data, check_crc=False)):
            seen += sum(1 for record in table if record.offset >= 0 and record.value is not None)
        return seen

    def columns() -> int:
        return sum(len(table.offsets) for table in record_tables(data, scan(data, check_crc=False)))

    kafka = _kafka_wrappers(file) if reference else 0.0
    found = []
    for work, job in (("columns", columns), ("Record objects, value touched", iterate)):
        speed = 1e-6 / per_item(job, rounds=3)
        peers: Peers = {"Kafka": kafka} if kafka else {}
        found.append(
            Row(f"v1 gzip wrappers, {work}", speed, 3 * kafka if work == "columns" else kafka, "M/s", False, peers)
        )
    return found


def _kafka_wrappers(file: Path) -> float:
    """Return the reference's million records per CPU second."""
    from asv_benchmarks.peers import kafka_embedded

    return float(next(iter(kafka_embedded.measure([f"wrappers={file}"])))["cpu"]) * 1e-6

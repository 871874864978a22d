"""Ratios between rows of `make bench` and their peers, both measured in the same call."""

import shutil
import tempfile
from pathlib import Path

from asv_benchmarks import columns, engine, filtering, recovering, typed, verifying
from asv_benchmarks.hot_paths.path import profile
from asv_benchmarks.measure import Row

QUICK = {
    "append of ready batches of 1": "C",
    "append of ready batches of 100": "C",
    "append of ready batches of 1000": "C",
    "append of a list of 1000 bytes": "aiokafka",
    "index lookup, warm": "C",
    "index lookup, random": "C",
    "index lookup, arrays": "C",
    "CRC-32C over 64 KiB": "C",
}
FULL = {
    "scan a file to columns with CRC": "C",
    "iterate as Record, value touched": "aiokafka",
    "decode to Arrow, all columns": "aiokafka, pyarrow",
    "Avro to Arrow, 10 fields": "fastavro",
    "JSON to Arrow, 10 fields": "pyarrow.json",
    "JSON to Arrow, one path": "DuckDB",
    "Protobuf to Arrow, 10 fields": "protobuf, parsed alone",
    "where on a key": "DuckDB",
    "where with a regular expression": "DuckDB",
    "verify, batches of 100 records": "pread alone",
    "verify, batches of 1 record": "pread alone",
    "recovery, batches of 100 records": "pread alone",
    "recovery, batches of 1 record": "pread alone",
}
MEGABYTES = 200


def _rows(directory: Path) -> list[Row]:
    found = [*engine.append_rows(directory), *engine.lookup_rows(directory), *engine.crc_rows()]
    if profile() == "full":
        found += [*engine.scan_rows(directory), *columns.rows(directory), *typed.rows(directory)]
        found += filtering.rows(directory)
        found += [*verifying.rows(directory, MEGABYTES), *recovering.rows(directory, MEGABYTES)]
    return found


class Ratios:
    """Above 1 kafkalog is faster; the limit that plain C sets is below 1 in most rows."""

    params = [f"{work} / {peer}" for work, peer in (QUICK | FULL if profile() == "full" else QUICK).items()]
    param_names = ["row"]
    timeout = 1200

    def setup_cache(self) -> dict[str, float]:
        directory = Path(tempfile.mkdtemp(prefix="kafkalog-ratios-"))
        try:
            return {
                f"{row.work.partition(' (')[0]} / {name}": row.ratio(other)
                for row in _rows(directory)
                for name, other in row.peers.items()
                if isinstance(other, float)
            }
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    setup_cache.timeout = 1200  # type: ignore[attr-defined]

    def track_ratio(self, ratios: dict[str, float], row: str) -> float:
        return ratios.get(row, float("nan"))

    track_ratio.unit = "times"  # type: ignore[attr-defined]

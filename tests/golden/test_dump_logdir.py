"""Dump text equals the reference's, byte for byte, for every partition that holds plain records only.

Taken are the partitions of a broker's directory whose topic is not internal and whose batches all have codec 0 and
attribute bits 4 (transactional) and 5 (control) clear, as their own bytes say: producer ids, delete horizons and
empty batches occur among them. DUMP-1, DUMP-2, DUMP-5, DUMP-7.
"""

import io
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.tools.dump import DumpOptions, dump_files
from tests.golden_cases import Case, each_partition

pytestmark = pytest.mark.golden

CODEC_AND_TRANSACTION_BITS = 0x37
RUNS = {
    ".log.deep.txt": DumpOptions(deep_iteration=True, print_data_log=True),
    ".log.shallow.txt": DumpOptions(),
    ".index.txt": DumpOptions(),
    ".timeindex.txt": DumpOptions(),
}


def frames_of(data: bytes) -> Iterator[tuple[int, int]]:
    """(magic, attributes) of every whole batch."""
    at = 0
    while len(data) - at >= 23:
        size = struct.unpack_from(">i", data, at + 8)[0] + 12
        if size < 26 or len(data) - at < size:
            return
        magic = struct.unpack_from(">b", data, at + 16)[0]
        yield magic, data[at + 22] if magic >= 2 else data[at + 17]
        at += size


def is_plain(case: Case) -> bool:
    """True for a partition of plain records: read from its `.log` files alone."""
    if case.topic.startswith("__"):
        return False
    logs = [case.path(name).read_bytes() for name in case.files_with(".log")]
    return all(
        magic == 2 and not attributes & CODEC_AND_TRANSACTION_BITS
        for data in logs
        for magic, attributes in frames_of(data)
    )


def dumped_file(expected: str, suffix: str) -> str:
    """The file whose dump `expected` holds: `dump/TP/FILE.log.deep.txt` is that of `TP/FILE.log`."""
    parts = Path(expected).parts
    return str(Path(*parts[parts.index("dump") + 1 :]))[: -len(suffix)] + "." + suffix.split(".")[1]


def runs_of(case: Case) -> list[tuple[str, str, DumpOptions]]:
    """(expected file, dumped file, options) of every run this test takes."""
    return [
        (name, dumped_file(name, suffix), options)
        for suffix, options in RUNS.items()
        for name in case.expected_with(suffix)
        if "dump" in Path(name).parts
    ]


@each_partition("logdir", where=is_plain)
def test_dump_text(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of(case)
    assert len(runs) >= 4
    monkeypatch.chdir(case.directory.parent)
    for expected, file, options in runs:
        out, err = io.BytesIO(), io.BytesIO()
        before = os.stat(file)
        dump_files([file], out, options, err=err)
        assert out.getvalue() == case.expected_path(expected).read_bytes(), expected
        after = os.stat(file)
        assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns), "DUMP-12"

"""Dump text equals the reference's, byte for byte, for every file of every partition in every run of the capture.

Standard output and standard error are compared; where the reference died, ours raises a typed error after the same
output. DUMP-1 to DUMP-8, DUMP-10 to DUMP-12, DUMP-14.
"""

import io
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkalog.errors import KafkalogError
from kafkalog.tools.dump.files import DumpOptions, dump_files
from kafkalog.tools.dump.record_readers import cluster_metadata_reader, offsets_reader, transaction_log_reader
from tests.golden_cases import Case, each_partition, version

pytestmark = pytest.mark.golden

READERS = {
    "__consumer_offsets": offsets_reader,
    "__transaction_state": transaction_log_reader,
    "__cluster_metadata": cluster_metadata_reader,
}
LIST, VERIFY, CHECK = DumpOptions(), DumpOptions(verify_index_only=True), DumpOptions(index_sanity_check=True)
RUNS = {
    ".log.shallow.txt": LIST,
    ".index.txt": LIST,
    ".timeindex.txt": LIST,
    ".txnindex.txt": LIST,
    ".snapshot.txt": LIST,
    ".index.verify.txt": VERIFY,
    ".timeindex.verify.txt": VERIFY,
    ".index.sanity.txt": CHECK,
    ".timeindex.sanity.txt": CHECK,
}
DEEP = ".log.deep.txt"
FOLDERS = ("dump", "dump-before")
STATES = (
    b"Empty", b"Ongoing", b"PrepareCommit", b"PrepareAbort", b"CompleteCommit", b"CompleteAbort", b"Dead",
    b"PrepareEpochFence",
)  # fmt: skip
NOTES = (".stderr", ".exception")


class Run(NamedTuple):
    """One run of the tool: the file with its output, the file it was run on, how it was run."""

    expected: str
    file: str
    options: DumpOptions


def runs_of(case: Case, folders: tuple[str, ...] = FOLDERS) -> list[Run]:
    """Every run of a partition that was made on its files as the archive has them, or as other `folders` say."""
    deep = DumpOptions(deep_iteration=True, print_data_log=True, reader=READERS.get(case.topic))
    runs = []
    for name in case.expected:
        folder, *rest = Path(name).parts
        if folder not in folders or name.endswith(NOTES):
            continue
        kind = next(suffix for suffix in (DEEP, *RUNS) if name.endswith(suffix))
        file = os.path.join(*rest).removesuffix(kind) + "." + kind.split(".")[1]
        runs.append(Run(name, file, deep if kind == DEEP else RUNS[kind]))
    return runs


def as_printed(out: bytes) -> bytes:
    """Our dump as the capture's release prints it: since 4.4 states of transactions have names, in 4.3 numbers."""
    if version() < (4, 4):
        return out
    return re.sub(rb'(?<="transactionStatus":)\d+', lambda found: b'"%s"' % STATES[int(found[0])], out)


@each_partition("logdir", "crash", "legacy")
def test_dump_text(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of(case)
    assert len(runs) >= 4
    monkeypatch.chdir(case.directory.parent)
    here = os.fsencode(os.getcwd())
    for run in runs:
        out, err = io.BytesIO(), io.BytesIO()
        before = os.stat(run.file)
        died = False
        try:
            dump_files([run.file], out, run.options, err=err)
        except KafkalogError:
            died = True
        assert died == (run.expected + ".exception" in case.expected), run.expected
        assert as_printed(out.getvalue()) == case.expected_path(run.expected).read_bytes(), run.expected
        told = run.expected + ".stderr"
        complaints = case.expected_path(told).read_bytes() if told in case.expected else b""
        if not died:
            assert err.getvalue().replace(here, b"<DATADIR>") == complaints, run.expected
        after = os.stat(run.file)
        assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns), "DUMP-12"


@each_partition("logdir", "crash", "legacy")
def test_every_file_that_the_tool_reads_was_dumped(case: Case) -> None:
    dumped = {Path(run.file).name for run in runs_of(case)}
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    assert dumped == {Path(name).name for name in case.files if name.endswith(suffixes)}

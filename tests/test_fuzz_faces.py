"""Damaged batches of every format and codec by every way in: an answer, or a typed error with file and position."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import KafkalogError, UnsupportedCompression
from kafkalog.records.format import CompressionType
from kafkalog.tools.dump.files import DumpOptions, dump_files
from kafkalog.tools.verify.directories import verify
from tests.fuzz_cases import EXPECTED, IDS, KINDS, changed, prefixes, small

pytestmark = pytest.mark.in_memory

kinds = pytest.mark.parametrize(("magic", "codec"), KINDS, ids=IDS)
MOST_TEXT = 100_000
BASE = 5


def segment(folder: Path) -> Path:
    path = folder / "orders-0"
    path.mkdir()
    return path / f"{BASE:020d}.log"


def check_each(path: Path, magic: int, codec: CompressionType, face: Callable[[Path], object]) -> None:
    """Every prefix and changed byte, given to the face as a file; what is refused is refused with its place."""
    whole = small(magic, codec)
    refused = 0
    for data in (*prefixes(whole), *changed(whole, few=True)):
        path.write_bytes(data)
        try:
            face(path)
        except KafkalogError as error:
            refused += 1
            assert error.path == str(path), error
            assert isinstance(error, (*EXPECTED, UnsupportedCompression)), error
            assert error.position is not None and 0 <= error.position <= len(data), error
            assert error.hint or error.message
    assert refused > 0


def dump(path: Path, as_json: bool) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    try:
        dump_files([str(path)], out, DumpOptions(print_data_log=True), err=err, as_json=as_json)
    finally:
        assert len(out.getvalue()) + len(err.getvalue()) < MOST_TEXT


@kinds
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_dump(tmp_path: Path, magic: int, codec: CompressionType, as_json: bool) -> None:
    check_each(segment(tmp_path), magic, codec, lambda path: dump(path, as_json))


def read(path: Path) -> None:
    with kafkalog.open(path.parent) as log:
        for record in log.records():
            assert record.offset >= BASE
            assert len(record.key or b"") + len(record.value or b"") < MOST_TEXT
        for batch in log.batches():
            assert batch.size > 0


@kinds
def test_the_records_of_a_log(tmp_path: Path, magic: int, codec: CompressionType) -> None:
    check_each(segment(tmp_path), magic, codec, read)


def look_up(path: Path) -> None:
    with kafkalog.open(path.parent) as log:
        for offset in (BASE, BASE + 1, BASE + 2):
            try:
                assert log[offset].offset == offset
            except LookupError:
                continue
        log.offset_for_time(1_700_000_000_001)


@kinds
def test_look_ups_by_offset_and_time(tmp_path: Path, magic: int, codec: CompressionType) -> None:
    check_each(segment(tmp_path), magic, codec, look_up)


@kinds
def test_verify_reports_and_never_raises(tmp_path: Path, magic: int, codec: CompressionType) -> None:
    path = segment(tmp_path)
    whole = small(magic, codec)
    path.write_bytes(whole)
    assert verify(path, deep=True, threads=1).ok
    for data in (*prefixes(whole), *changed(whole, few=True)):
        path.write_bytes(data)
        for deep in (False, True):
            report = verify(path, deep=deep, threads=1)
            for finding in report.findings:
                assert finding.path == str(path) and finding.what and finding.kind
                assert finding.position is None or 0 <= finding.position <= len(data)

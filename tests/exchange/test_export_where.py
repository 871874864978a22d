"""An export with a condition has the records that match, in every format; it goes on with the same condition only."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument
from kafkalog.exchange.export import export_records
from tests import commands
from tests.transactional import made

T = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    with kafkalog.open(folder / "orders-0", "a") as log:
        for base in range(0, 1000, 100):
            rows = [(b"k%d" % (n % 7), b"v%d" % n, T + n) for n in range(base, base + 100)]
            log.append(rows, compression="zstd" if base % 200 else "none")
    return folder


def offsets_in(folder: Path) -> list[int]:
    found: list[int] = []
    for path in sorted(folder.rglob("topic=orders/*")):
        if path.suffix == ".jsonl":
            found += [json.loads(line)["offset"] for line in path.read_bytes().splitlines()]
        elif path.suffix == ".arrow":
            found += pa.ipc.open_file(path).read_all()["offset"].to_pylist()
        else:
            found += pq.read_table(path, partitioning=None)["offset"].to_pylist()
    return found


@pytest.mark.parametrize("format", ["parquet", "arrow", "jsonl"])
def test_the_records_that_match_and_later_those_that_are_new(data: Path, tmp_path: Path, format: str) -> None:
    def export(where: str | None, resume: bool = True) -> int:
        return export_records(data, tmp_path / "out", format, where=where, resume=resume, file_bytes=2048).records

    wanted = [n for n in range(1000) if n % 7 == 3 and n >= 200]
    assert export("key == 'k3' and offset >= 200", resume=False) == len(wanted)
    assert offsets_in(tmp_path / "out") == wanted
    with kafkalog.open(data / "orders-0", "a") as log:
        log.append([(b"k3", b"new", T), (b"k4", b"new", T)])
    assert export("key=='k3'  and offset>=200") == 1  # the same in other words
    assert offsets_in(tmp_path / "out") == [*wanted, 1000]
    for other in ("key == 'k4'", None):
        with pytest.raises(IllegalArgument, match="the directory has an export with where"):
            export(other)


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
@pytest.mark.parametrize("where", [None, "value like 'v%'"])
def test_committed_records_alone(tmp_path: Path, format: str, where: str | None) -> None:
    events = [("plain", 0, 2), ("data", 7, 3), ("data", 8, 2), ("abort", 7, 0), ("commit", 8, 0), ("data", 9, 1)]
    written = made(events)
    written.write(tmp_path / "data" / "orders-0")
    export_records(tmp_path / "data", tmp_path / "out", format, isolation="read_committed", where=where)
    assert offsets_in(tmp_path / "out") == written.committed() == [0, 1, 5, 6]


def test_the_command(data: Path, tmp_path: Path) -> None:
    out = commands.ok("export", "-d", data, "-t", "orders", tmp_path / "out", "--where", "offset < 5 or value == 'v77'")
    assert out.startswith(b"exported 6 records into 1 file")
    assert offsets_in(tmp_path / "out") == [0, 1, 2, 3, 4, 77]
    done = commands.kafkalog("export", "-d", data, "-t", "orders", tmp_path / "other", "--where", "ofset < 5")
    assert done.returncode == 2 and b"did you mean offset" in done.stderr
    done = commands.kafkalog("export", "-d", data, tmp_path / "x", "--format", "kafka-dir", "--where", "offset < 5")
    assert done.returncode == 2


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_damage_ends_it_after_the_matching_records_before(data: Path, tmp_path: Path, format: str) -> None:
    path = next((data / "orders-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptRecord):
        export_records(data, tmp_path / "out", format, where="key == 'k0'")
    found = offsets_in(tmp_path / "out")
    assert found and found == [n for n in range(found[-1] + 1) if n % 7 == 0]

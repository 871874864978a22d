"""`consume --where` prints the lines of a plain consume that match, in any format; `--project` prints fields."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog as library
from tests.commands import kafkalog, ok

T = 1_700_000_000_000
Row = dict[str, Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic of two partitions: 1,000 records, some compressed, then a tombstone with a header."""
    folder = tmp_path / "data"
    folder.mkdir()
    for partition in (0, 1):
        with library.open(folder / f"orders-{partition}", "a") as log:
            for base in range(0, 1000, 100):
                rows = [(b"k%d" % (n % 7), b'{"n": %d}' % n, T + n) for n in range(base, base + 100)]
                log.append(rows, compression="zstd" if base % 200 else "none")
            log.append([library.Record(None, b"gone", T + 1000, {"trace": b"t\xff"})])
    return folder


CASES: list[tuple[str, Callable[[Row], bool]]] = [
    ("key == 'k3' and offset < 100", lambda row: row["key"] == "k3" and row["offset"] < 100),
    ("offset in (5, 6, 7, 500, 999)", lambda row: row["offset"] in (5, 6, 7, 500, 999)),
    ("value is null or header.trace is not null", lambda row: row["key"] == "gone"),
    ("partition == 1 and time >= '2023-11-14T22:13:20.99Z'", lambda row: row["partition"] == 1 and row["ts"] > T + 989),
    ("value matches '[05]}$'", lambda row: re.search("[05]}$", str(row["payload"])) is not None),
    ("offset > 5000", lambda row: False),
]


@pytest.mark.parametrize(("where", "holds"), CASES, ids=[where for where, _ in CASES])
def test_the_lines_that_match(data: Path, where: str, holds: Callable[[Row], bool]) -> None:
    every = ok("consume", "-d", data, "-t", "orders", "-J").splitlines()
    matching = [line for line in every if holds(json.loads(line))]
    assert ok("consume", "-d", data, "-t", "orders", "-J", "--where", where).splitlines() == matching
    few = ok("consume", "-d", data, "-t", "orders", "-J", "--where", where, "-c", "3").splitlines()
    assert few == matching[:3]
    text = ok("consume", "-d", data, "-t", "orders", "-f", r"%p %o\n", "--where", where).decode().split()
    assert text == [word for line in matching for word in (str(json.loads(line)[n]) for n in ("partition", "offset"))]


def test_with_a_decoder_a_start_and_a_stored_position(data: Path) -> None:
    options = ["-d", data, "-t", "orders", "-p", "0"]
    lines = ok("consume", *options, "-s", "value=json", "-J", "-o", "990", "--where", "key == 'k3'").splitlines()
    assert [json.loads(line)["payload"] for line in lines] == [{"n": 990}, {"n": 997}]
    group = [*options, "-G", "g", "--cursors", data.parent / "cursors", "-f", "%o ", "-c", "2"]
    group += ["--where", "key == 'k0'"]
    assert [ok("consume", *group) for _ in range(2)] == [b"0 7 ", b"14 21 "]


def test_projected_fields(data: Path) -> None:
    fields = "offset,key, header.trace,size,time"
    out = ok("consume", "-d", data, "-t", "orders", "-p", "1", "--project", fields, "-o", "999")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"offset": 999, "key": "k5", "header.trace": None, "size": 10, "time": "2023-11-14T22:13:20.999Z"},
        {"offset": 1000, "key": "gone", "header.trace": "dP8=", "size": None, "time": "2023-11-14T22:13:21Z"},
    ]
    out = ok("consume", "-d", data, "-t", "orders", "--project", "offset", "--where", "key == 'k1'", "-c", "2")
    assert out == b'{"offset":1}\n{"offset":8}\n'


def test_a_map_is_an_object_in_every_output(tmp_path: Path) -> None:
    (tmp_path / "m.avsc").write_text('{"type": "map", "values": "long"}')
    with library.open(tmp_path / "t-0", "a") as log:
        log.append([bytes([2, 2]) + b"a" + bytes([4, 0])])
    given = ("consume", "-d", tmp_path, "-t", "t", "-s", "value=avro", "--schema", tmp_path / "m.avsc")
    assert ok(*given) == b'{"a":2}\n'
    assert ok(*given, "--project", "value") == b'{"value":{"a":2}}\n'


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--where", "ofset > 5"], "--where: there is no field 'ofset', at character 1"),
        (["--where", "value.n > 5"], "value is bytes, at character 1"),
        (["--project", "offset,nothing"], "--project: there is no field 'nothing'"),
        (["--project", "offset", "-J"], "omit -f, -J and -K"),
    ],
)
def test_wrong_usage(data: Path, flags: list[str], message: str) -> None:
    done = kafkalog("consume", "-d", data, "-t", "orders", *flags)
    assert done.returncode == 2 and message in done.stderr.decode() and not done.stdout


def test_damage_comes_after_the_lines_before_it(data: Path) -> None:
    path = data / "orders-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    arguments = ["consume", "-d", data, "-t", "orders", "-p", "0", "-f", "%o ", "--where", "key == 'k0'"]
    done = kafkalog(*arguments)
    found = [int(word) for word in done.stdout.split()]
    assert done.returncode == 1 and found == [n for n in range(max(found) + 1) if n % 7 == 0] and len(found) > 20
    rest = kafkalog(*arguments, "--on-damage", "skip")
    assert rest.returncode == 1 and rest.stdout.startswith(done.stdout) and rest.stdout.endswith(b"994 ")

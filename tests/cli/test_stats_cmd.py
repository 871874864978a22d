"""`kafkalog stats`: which partitions, which tables, JSON, samples that are told, damage, narrow terminals."""

import json
from pathlib import Path

import pytest

import kafkalog
from kafkalog.inspect.width import columns_of
from tests.commands import kafkalog as run
from tests.commands import ok
from tests.raw_batches import batches, write_segment

TIME = 1_795_176_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of `orders` and one of `b`."""
    for name, count in (("orders-0", 50), ("orders-1", 20), ("b-0", 5)):
        write_segment(tmp_path / "data" / name, 0, batches(0, count, 10, timestamp=TIME))
    return tmp_path / "data"


def lines(*arguments: str | Path, **env: str) -> list[str]:
    return ok("stats", *arguments, **env).decode().split("\n")[:-1]


def test_a_row_for_each_partition(data: Path) -> None:
    head, *rows = lines(data)
    assert head.split() == ["PARTITION", "RECORDS", "BYTES", "SEGMENTS", "BATCHES", "RECORDS/S", "RATIO", "LAST"]
    assert [row.split()[:2] for row in rows] == [["b-0", "50"], ["orders-0", "500"], ["orders-1", "200"]]
    assert rows[1].split()[-1] == "2026-11-20T12:00:00Z"
    assert lines("-d", data, "-t", "orders", "-p", "1") == lines(data / "orders-1")
    assert len(lines(data, "-t", "orders")) == 3 and len(lines(data, "-p", "1")) == 2


def test_tables_that_are_asked_for(data: Path) -> None:
    text = "\n".join(lines(data / "orders-0", "--by-key", "--sizes", "--batches", "--segments"))
    titles = ("orders-0: segments", "orders-0: compression", "orders-0: batches by size", "orders-0: keys by size",
              "orders-0: values by size", "orders-0: keys\n")  # fmt: skip
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert "500 records decoded; 500 different" in text and "█" in text
    assert "\x1b" not in text


def test_json_has_one_object_for_each_partition(data: Path) -> None:
    found = [json.loads(line) for line in lines(data, "-J", "--by-key", "--sizes")]
    assert [(one["topic"], one["partition"], one["records"]) for one in found] == [
        ("b", 0, 50), ("orders", 0, 500), ("orders", 1, 200)
    ]  # fmt: skip
    one = found[1]
    assert (one["exact"], one["batches"], one["start_offset"], one["end_offset"]) == (True, 50, 0, 500)
    assert one["bytes"] == (data / "orders-0" / f"{0:020d}.log").stat().st_size
    assert one["codecs"] == {"none": {"batches": 50, "records": 500, "bytes": one["bytes"], "ratio": 1.0}}
    assert one["keys"]["distinct"] == 500 and len(one["keys"]["top"]) == 20
    assert (one["key_bytes"]["count"], one["value_bytes"]["count"], one["problems"]) == (500, 500, [])
    assert "keys" not in json.loads(lines(data / "b-0", "-J")[0])


def test_60_columns_without_colour(data: Path) -> None:
    for line in lines(data, "--by-key", "--batches", "--segments", COLUMNS="60", TERM="dumb"):
        assert columns_of(line) <= 60
    ascii_only = ok("stats", data, "--batches", PYTHONIOENCODING="ascii").decode("ascii")
    assert "####" in ascii_only


def test_in_a_pipe_no_cell_is_cut(tmp_path: Path) -> None:
    name = "a-topic-with-" + "a-long-name-" * 15
    with kafkalog.open(tmp_path / "data" / f"{name}-0", "a") as log:
        log.append(b"v")
    assert f"{name}-0" in ok("stats", tmp_path / "data", COLUMNS="").decode()
    assert f"{name}-0" not in ok("stats", tmp_path / "data", COLUMNS="100").decode()


def test_keys_that_would_drive_a_terminal_are_escaped(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        log.append([(b"\x1b]0;owned\x07", b""), ("\u202eabc".encode(), b""), ("日本".encode(), b"")])
    text = ok("stats", tmp_path / "data", "--by-key").decode()
    assert "\\x1b]0;owned\\x07" in text and "\\u202eabc" in text and "日本" in text
    assert "\x1b" not in text and "\u202e" not in text


def test_a_sample_is_told(tmp_path: Path) -> None:
    path = tmp_path / "data" / "large-0"
    parts = batches(0, 2000, 10, size=8000, timestamp=TIME)
    write_segment(path, 0, parts)
    done = run("stats", path)
    assert done.returncode == 0 and b"sampled: 12" in done.stderr and b"~20,000" in done.stdout
    assert run("stats", "-q", path).stderr == b""
    exact = run("stats", path, "--exact")
    assert b"~" not in exact.stdout and b" 20,000 " in exact.stdout
    assert exact.stderr.startswith(b"checksums: 2,000 batches checked, ") and b"sampled" not in exact.stderr


def test_damage_is_told_and_the_rest_is_shown(data: Path) -> None:
    file = data / "orders-1" / f"{0:020d}.log"
    whole = file.read_bytes()
    write_segment(data / "orders-1", 200, batches(200, 10, 10, timestamp=TIME))
    at = int.from_bytes(whole[8:12], "big") + 12  # the second batch's header
    file.write_bytes(whole[:at] + b"\0" * 61 + whole[at + 61 :])
    done = run("stats", data)
    assert done.returncode == 1 and b"orders-1: problem: " in done.stderr and b"size field" in done.stderr
    assert b"orders-0 " in done.stdout and b"orders-1 " in done.stdout
    done = run("stats", data, "-J")
    assert done.returncode == 1 and [bool(json.loads(line)["problems"]) for line in done.stdout.splitlines()] == [
        False, False, True
    ]  # fmt: skip


def test_counts_by_a_path(tmp_path: Path) -> None:
    """A table for each topic, over its partitions; as JSON an object for each topic behind those of the partitions."""
    data = tmp_path / "data"
    for part in (0, 1):
        with kafkalog.open(data / f"orders-{part}", "a") as log:
            log.append([b'{"country": "%s", "n": %d}' % ((b"DE", b"FR", b"IT")[n % 3], n) for n in range(30)])
    with kafkalog.open(data / "b-0", "a") as log:
        log.append([b"{bad", b'{"n": 1}'])
    by = ("--by", "value.country", "-s", "value=json")
    text = lines(data, *by)
    at = text.index("orders: value.country")
    assert text[at + 1].split() == ["VALUE", "RECORDS", "SHARE", "PART", "BYTES"]
    assert [line.split()[:2] for line in text[at + 2 : at + 5]] == [["DE", "20"], ["FR", "20"], ["IT", "20"]]
    assert text[at + 5] == "60 records; 3 different values"
    assert "b: value.country" in text and "1 record not decoded, the first one: this is no JSON, at byte 1" in text
    found = [json.loads(line) for line in lines("-d", data, "-t", "orders", "-p", "1", "-J", *by, "--top", "1")]
    assert [one["topic"] for one in found] == ["orders", "orders"] and found[0]["partition"] == 1
    assert found[1]["values"][0] == {"value": "DE", "records": 10, "bytes": found[1]["values"][0]["bytes"]}
    assert (found[1]["by"], found[1]["rest"]["values"], found[1]["rest"]["records"]) == ("value.country", 2, 20)
    where = lines(data, "-t", "orders", *by, "--where", "value.n < 3")
    assert "6 records where value.n < 3; 3 different values" in where
    assert any(line.split()[:2] == ["1", "30"] for line in lines(data, "-t", "orders", "--by", "partition"))


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (["--by", "vlue"], 2, "did you mean value"), (["--by", "value.a"], 2, "decode it"),
        (["--where", "key is null"], 2, "give --by PATH"), (["-s", "value=json"], 2, "give --by PATH"),
        (["--by", "key", "--where", "key >"], 2, "--where"), (["--by", "key", "-s", "vlue=json"], 2, "neither key nor"),
        (["--by", "key", "--schemas", "x"], 2, "give -s"), (["--by", "value", "-s", "value=jsn"], 2, "unknown decoder"),
    ],
)  # fmt: skip
def test_counts_that_cannot_be_made(data: Path, flags: list[str], status: int, said: str) -> None:
    done = run("stats", data, "-t", "b", *flags)
    assert done.returncode == status and said in done.stderr.decode() and b"Traceback" not in done.stderr


def test_damage_between_counted_records_is_a_status(data: Path) -> None:
    file = data / "b-0" / f"{0:020d}.log"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    done = run("stats", data, "-t", "b", "--by", "partition", "-J")
    counts = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1 and counts["records"] == 40 and len(counts["damage"]) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["DATA", "-t", "nobody"], 1, "no topic nobody"), (["DATA/none-0"], 1, "no such directory"),
        ([], 2, "give -d DIR"), (["-d", "DATA", "-p", "0"], 2, "give -t TOPIC"),
    ],
)  # fmt: skip
def test_what_is_not_there(data: Path, arguments: list[str], status: int, said: str) -> None:
    done = run("stats", *[one.replace("DATA", str(data)) for one in arguments])
    assert done.returncode == status and said in done.stderr.decode()
    assert done.stdout == b""

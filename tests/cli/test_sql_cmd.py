"""`kafkalog sql`: one query over topics; what it prints, what it reads, and how it ends."""

import csv
import json
import signal
import time
from pathlib import Path

import pytest

import kafkalog as library
from tests.commands import kafkalog, ok, started

T = 1_700_000_000_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    with library.open_dirs(directory, "a") as dirs:
        dirs.create_topic("orders", 2)
        dirs["orders", 0].append([(b"k1", b'{"cents": 5}', T), (None, b"\xff", T + 1)])
        dirs["orders", 1].append((b"k2", b'{"cents": 7}', T + 2000))
        dirs.create_topic("web-clicks.v2", 1)
        dirs["web-clicks.v2", 0].append(b"click")
    return directory


def test_a_table(data: Path) -> None:
    printed = ok("sql", "-d", data, 'SELECT partition, key, "offset", timestamp AS time FROM orders ORDER BY 1, 3')
    assert printed.decode().splitlines() == [
        "PARTITION  KEY   OFFSET  TIME",
        "        0  k1         0  2023-11-14T22:13:20Z",
        "        0  null       1  2023-11-14T22:13:20.001Z",
        "        1  k2         0  2023-11-14T22:13:22Z",
    ]
    assert ok("sql", "-d", data, "SELECT key FROM orders WHERE false") == b"(none)\n"


def test_json_lines_and_comma_separated_values(data: Path) -> None:
    query = 'SELECT key, value, timestamp, headers FROM orders WHERE partition = 0 ORDER BY "offset"'
    rows = [json.loads(line) for line in ok("sql", "-J", "-d", data, query).splitlines()]
    assert rows == [
        {"key": "k1", "value": '{"cents": 5}', "timestamp": "2023-11-14T22:13:20Z", "headers": []},
        {"key": None, "value": "\\xff", "timestamp": "2023-11-14T22:13:20.001Z", "headers": []},
    ]
    text = ok("sql", "--csv", "-d", data, 'SELECT key, value, "offset" FROM orders WHERE partition = 0')
    assert text == b'key,value,offset\nk1,"{""cents"": 5}",0\n,\\xff,1\n'
    total = "SELECT sum((decode(value)::JSON->>'cents')::INT) AS cents FROM orders WHERE key IS NOT NULL"
    assert ok("sql", "--csv", "-d", data, total) == b"cents\n12\n"


def test_typed_values(data: Path) -> None:
    typed = ("sql", "--csv", "-d", data, "-t", "orders", "-s", "value=json")
    assert ok(*typed, "SELECT sum(value.cents)::INT AS cents, count(value_error) AS failed FROM orders") == (
        b"cents,failed\n12,1\n"
    )
    assert ok(*typed, "SELECT key FROM orders WHERE value_error IS NOT NULL") == b'key\n""\n'


def test_a_note_says_that_a_query_met_values_that_do_not_decode(data: Path) -> None:
    typed = ("sql", "--csv", "-d", data, "-t", "orders", "-s", "value=json")
    met = kafkalog(*typed, "SELECT count(value.cents) AS n FROM orders")
    assert (met.returncode, met.stdout) == (0, b"n\n2\n") and b"what does not decode is null" in met.stderr
    assert kafkalog(*typed, "SELECT count(*) AS n FROM orders").stderr == b"", "none is decoded"
    assert kafkalog(*typed, "SELECT value FROM orders WHERE key IS NOT NULL").stderr == b"", "others are not met"
    assert kafkalog(*typed, "-q", "SELECT value FROM orders").stderr == b""


def test_the_schema_of_values_without_an_id(tmp_path: Path) -> None:
    """A file; or an id, where the first value's schema would give other columns."""
    field = {"name": "id", "type": "long"}
    old = {"type": "record", "name": "Bill", "fields": [field]}
    new = {**old, "fields": [field, {"name": "paid", "type": "boolean", "default": False}]}
    (tmp_path / "schemas").mkdir()
    for number, schema in ((1, old), (2, new)):
        (tmp_path / "schemas" / f"{number}.avsc").write_text(json.dumps(schema))
    with library.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("raw", 1)
        dirs["raw", 0].append([b"\x0e\x01", b"\x10\x00"])
        dirs.create_topic("bills", 1)
        dirs["bills", 0].append([b"\0\0\0\0\x01\x0e", b"\0\0\0\0\x02\x10\x01"])
    given = ("-d", tmp_path / "data", "-s", "value=avro")
    query = "SELECT value.id, value.paid FROM {} ORDER BY 1"
    file = ("--schema", tmp_path / "schemas" / "2.avsc")
    assert ok("sql", "--csv", *given, *file, "-t", "raw", query.format("raw")) == b"id,paid\n7,True\n8,False\n"
    stored = ("--schemas", tmp_path / "schemas", "--schema", "2")
    assert ok("sql", "--csv", *given, *stored, "-t", "bills", query.format("bills")) == b"id,paid\n7,False\n8,True\n"
    assert b"true         1  50.0%" in ok("stats", "-q", *given, *stored, "-t", "bills", "--by", "value.paid")
    ok("export", "-q", *given, *stored, "-t", "bills", "--format", "jsonl", tmp_path / "out")
    lines = [json.loads(line) for path in tmp_path.glob("out/topic=bills/*") for line in path.read_text().splitlines()]
    assert [line["payload"] for line in lines] == [{"id": 7, "paid": False}, {"id": 8, "paid": True}]


def test_a_query_that_is_no_utf_8_is_wrong_usage(data: Path) -> None:
    for query in ("SELECT '\udcff'", "-"):
        found = kafkalog("sql", "-d", data, query, stdin=b"SELECT '\xff'", PYTHONIOENCODING="utf-8:strict")
        assert found.returncode == 2 and b"the query is not UTF-8" in found.stderr


def test_a_query_from_stdin_over_a_topic_with_quotes(data: Path) -> None:
    assert ok("sql", "--csv", "-", "-d", data, stdin=b'SELECT decode(value) v FROM "web-clicks.v2"') == b"v\nclick\n"


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["SELECT offset FROM orders"], 2, '"offset"'),
        (["SELECT 1", "-s", "json"], 2, "give -t TOPIC"),
        (["SELECT 1", "--schemas", "x"], 2, "give -s"), (["SELECT 1", "--schema", "x"], 2, "give -s"),
        (["SELECT 1", "-t", "orders", "-s", "value=avro"], 2, "(--schema)"),
        (["SELECT * FROM web-clicks.v2"], 2, 'in double quotes, such as "web-clicks.v2"'),
        (["SELECT 1", "-t", "orders", "-s", "value=jsn"], 2, "unknown decoder 'jsn'"),
        (["FROM order_"], 2, 'Did you mean "orders"'),
        (["SELEC"], 2, "syntax error"),
        (["SELECT 1; SELECT 2"], 2, "one SELECT"),
        (["COPY orders TO 'x.csv'"], 2, "one SELECT"),
        (["SELECT 'x'::INT"], 1, "Conversion Error"),
        (["SELECT 1", "-t", "order"], 2, "did you mean orders"),
        (["SELECT 1", "-J", "--csv"], 2, "only one"),
        (["SELECT 1", "--commit"], 2, "-G NAME"),
    ],
)
def test_what_is_refused(data: Path, tmp_path: Path, arguments: list[str], status: int, text: str) -> None:
    done = kafkalog("sql", "-d", data, *arguments, cwd=tmp_path)
    assert done.returncode == status and text in done.stderr.decode() and b"Traceback" not in done.stderr
    assert done.stdout == b"" and not [*tmp_path.iterdir()]


def test_positions_are_stored_only_when_asked(data: Path, tmp_path: Path) -> None:
    words = ("sql", "--csv", "-d", data, "-G", "reports", "--cursors", tmp_path / "cursors")
    count = "SELECT count(*) AS n FROM orders"
    assert ok(*words, count) == ok(*words, count) == b"n\n3\n"
    failed = kafkalog(*words, "--commit", "SELECT decode(value) FROM orders")
    assert failed.returncode == 1 and b"Conversion Error" in failed.stderr
    assert ok(*words, "--commit", count) == b"n\n3\n"
    assert ok(*words, count) == b"n\n0\n"
    assert ok(*words, 'SELECT count(*) AS n FROM "web-clicks.v2"') == b"n\n1\n"  # not queried before


def test_damage_is_an_error_with_its_place_or_skipped(tmp_path: Path) -> None:
    for value in (b"good\n", b"bad\n", b"rest\n"):
        ok("produce", "-q", "-d", tmp_path, "-t", "t", stdin=value)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes().replace(b"bad", b"mad"))
    count = ("sql", "--csv", "-d", tmp_path, "SELECT count(value) AS n FROM t")
    done = kafkalog(*count)
    assert done.returncode == 1 and done.stdout in (b"", b"n\n")
    assert f"(file {path}, offset 1".encode() in done.stderr and b"Traceback" not in done.stderr
    done = kafkalog(*count, "--on-damage", "skip")
    assert (done.returncode, done.stdout) == (1, b"n\n2\n") and b"kafkalog: skipped: " in done.stderr


def wait_until_busy(pid: int) -> None:
    """Wait until a process has the threads of DuckDB, and they have computed for a while."""
    while True:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if int(fields[17]) > 1 and int(fields[11]) > 250:  # threads, and hundredths of a second in user mode
            return
        time.sleep(0.05)


def test_a_ctrl_c_ends_it(data: Path) -> None:
    with started("sql", "-d", data, "-") as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range > b.range")
        process.stdin.close()
        try:
            wait_until_busy(process.pid)
            process.send_signal(signal.SIGINT)
            assert b"Traceback" not in process.stderr.read()
            assert process.wait(60) == 130
        finally:
            process.kill()


def test_nested_values_are_json_and_null_is_not_empty_text(data: Path) -> None:
    query = """SELECT {'day': DATE '2024-05-01', 'names': ['it''s', NULL]} AS r, NULL AS n, '' AS e, 'a"b,c' AS q,
               DATE '2024-05-01' AS d"""
    (line,) = list(csv.reader([ok("sql", "--csv", "-d", data, query).decode().splitlines()[1]]))
    assert line == ['{"day":"2024-05-01","names":["it\'s",null]}', "", "", 'a"b,c', "2024-05-01"]
    assert ok("sql", "--csv", "-d", data, "SELECT NULL AS n, '' AS e").splitlines()[1] == b',""'
    assert b'{"day":"2024-05-01","names":["it\'s",null]}' in ok("sql", "-d", data, query)
    assert b"datetime" not in ok("sql", "-J", "-d", data, query)


def test_keys_of_maps_are_text_as_values_are(data: Path) -> None:
    query = "SELECT MAP {'a'::BLOB: 1} AS m, MAP {TIMESTAMP '2024-05-01 10:00:00': 2} AS t"
    (row,) = map(json.loads, ok("sql", "-J", "-d", data, query).splitlines())
    assert row == {"m": {"a": 1}, "t": {"2024-05-01T10:00:00": 2}}

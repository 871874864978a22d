"""`kafkalog topics`, `offsets get` and `ls`."""

import json
import os
from pathlib import Path

import pytest

import kafkalog as library
from tests.commands import kafkalog, ok

NOW = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    with library.open(data / "t-0", "a", internal_segment_bytes=2000, index_interval_bytes=300) as log:
        for number in range(100):
            log.append((None, b"%d" % number, NOW + number * 10))
    library.open(data / "t-1", "a").close()
    return data


# topics


def test_create_makes_entry_directories_and_marker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    done = kafkalog("topics", "create", "-d", data, "-t", "t", "--partitions", "3", "--config", "retention.ms=1")
    assert done.returncode == 0 and done.stdout == b"" and b"created topic t with 3 partitions" in done.stderr
    assert sorted(path.name for path in data.iterdir() if path.is_dir()) == ["t-0", "t-1", "t-2"]
    entry = json.loads((data / "kafkalog.topics.json").read_text())["topics"]["t"]
    assert entry["partitions"] == 3 and entry["configs"] == {"retention.ms": "1"}
    assert (data / ".kafka_cleanshutdown").exists()
    with library.open(data / "t-2", "a") as log:
        assert log.append(b"v").first_offset == 0


def test_a_topic_exists_once(tmp_path: Path) -> None:
    ok("topics", "create", "-d", tmp_path, "-t", "a.b")
    for name in ("a.b", "a_b"):
        done = kafkalog("topics", "create", "-d", tmp_path, "-t", name)
        assert done.returncode == 1 and b"a.b" in done.stderr
    ok("topics", "create", "-d", tmp_path, "-t", "a.b", "--if-not-exists")
    assert ok("topics", "list", "-d", tmp_path) == b"a.b\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-t", "t", "--replication-factor", "2"], b"replication factor 2"),
        (["-t", "t", "--replication-factor", "0"], b"replication factor 0"),
        (["-t", "a b"], b"not allowed"),
        (["-t", "t", "--partitions", "0"], b"--partitions"),
        (["-t", "t", "--config", "segment.byte=1"], b"segment.bytes"),
        (["-t", "t", "--config", "cleanup.policy=none"], b"cleanup.policy"),
        (["-t", "t", "--config", "x"], b"NAME=VALUE"),
        ([], b"--topic"),
    ],
)
def test_what_cannot_be_created_is_refused(tmp_path: Path, arguments: list[str], says: bytes) -> None:
    done = kafkalog("topics", "create", "-d", tmp_path, *arguments)
    assert done.returncode == 2 and says in done.stderr and b"Traceback" not in done.stderr
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_too_many_partitions_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """As Kafka's controller: at most 10,000 in a call. The command ran until it was killed."""
    done = kafkalog("topics", "create", "-d", tmp_path / "data", "-t", "t", "--partitions", "2147483647")
    assert done.returncode == 1 and b"at most 10000" in done.stderr
    assert not (tmp_path / "data").exists()


def test_replication_factor_1_is_accepted(tmp_path: Path) -> None:
    ok("topics", "create", "-d", tmp_path, "-t", "t", "--replication-factor", "1")
    assert (tmp_path / "t-0").is_dir()


def test_list(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    ok("topics", "create", "-d", other, "-t", "a-b")
    (data / "t-0.00000000000000000000000000000000-delete").mkdir()
    (data / "notes").mkdir()
    assert ok("topics", "list", "-d", data, "-d", other).split() == [b"a-b", b"t"]
    assert ok("topics", "list", "-d", data, "-v").split()[:2] == [b"t", b"2"]
    rows = [json.loads(line) for line in ok("topics", "list", "-d", data, "-J").splitlines()]
    with library.open(data / "t-0") as log:
        assert rows == [{"topic": "t", "partitions": 2, "bytes": log.size}]
    done = kafkalog("topics", "list", "-d", tmp_path / "no")
    assert done.returncode == 1 and b"does not exist" in done.stderr


def test_describe(data: Path) -> None:
    text = ok("topics", "describe", "-d", data, "-t", "t").decode()
    assert "PartitionCount: 2" in text and "internal.segment.bytes=2000" in text
    assert "Partition: 0\tStart: 0\tEnd: 100" in text
    found = json.loads(ok("topics", "describe", "-d", data, "-t", "t", "-J"))
    assert len(found["topic_id"]) == 22
    assert [part["end_offset"] for part in found["partitions"]] == [100, 0]
    assert found["partitions"][0]["segments"] > 1
    assert kafkalog("topics", "describe", "-d", data, "-t", "no").returncode == 1


def test_describe_without_a_topic_is_of_all(data: Path) -> None:
    ok("topics", "create", "-d", data, "-t", "a-b")
    text = ok("topics", "describe", "-d", data).decode()
    one = [ok("topics", "describe", "-d", data, "-t", name).decode() for name in ("a-b", "t")]
    assert text == "".join(one) == ok("topics", "describe", "-d", data, "-t", "a-b", "-t", "t").decode()
    found = [json.loads(line) for line in ok("topics", "describe", "-d", data, "-J").splitlines()]
    assert [(topic["name"], len(topic["partitions"])) for topic in found] == [("a-b", 1), ("t", 2)]
    assert kafkalog("topics", "describe").returncode == 2


# offsets


@pytest.mark.parametrize(
    ("time", "offsets"),
    [
        ("-1", ["100", "0"]), ("latest", ["100", "0"]), ("-2", ["0", "0"]), ("earliest", ["0", "0"]),
        ("-3", ["99", ""]), (str(NOW + 505), ["51", ""]), (str(NOW + 99_999), ["", ""]),
        ("2023-11-14T22:13:20.505Z", ["51", ""]), ("2023-11-14T22:13:20.505", ["51", ""]),
    ],
)  # fmt: skip
def test_offsets_get(data: Path, time: str, offsets: list[str]) -> None:
    """LOG-57: -1 is the end, -2 the start, -3 the largest timestamp; else the first record at or after."""
    expected = [f"t:{number}:{offset}" for number, offset in enumerate(offsets)]
    assert ok("offsets", "get", "-d", data, "-t", "t", "--time", time).decode().splitlines() == expected


def test_offsets_get_defaults_and_errors(data: Path) -> None:
    assert ok("offsets", "get", "-d", data, "-t", "t", "-p", "0") == b"t:0:100\n"
    for arguments, status in ((["-t", "no"], 1), (["-t", "t", "-p", "9"], 1), (["-t", "t", "--time", "soon"], 2),
                              (["-t", "t", "--time", "-9"], 2)):  # fmt: skip
        done = kafkalog("offsets", "get", "-d", data, *arguments)
        assert done.returncode == status and done.stderr and b"Traceback" not in done.stderr


# ls


def files(*arguments: str | Path) -> dict[str, dict[str, int]]:
    rows = (json.loads(line) for line in ok("ls", "-J", *arguments).splitlines())
    return {f"{row['topic']}-{row['partition']}/{row['name']}": row for row in rows}


def test_ls_tells_length_used_disk_and_entries(data: Path) -> None:
    found = files("-d", data, "-t", "t", "-p", "0")
    assert sorted(found) == sorted(f"t-0/{name}" for name in os.listdir(data / "t-0"))
    for name, row in found.items():
        assert row["length"] == os.path.getsize(data / name)
        assert row["disk"] == os.stat(data / name).st_blocks * 512
        width = {"index": 8, "timeindex": 12}.get(name.rsplit(".", 1)[-1])
        if width:
            assert row["used"] == row["length"] == row["entries"] * width
    text = ok("ls", "-d", data, "-t", "t").decode()
    assert "LENGTH" in text and "00000000000000000000.timeindex" in text and f"{data}/t-1:" in text
    assert ok("ls", data, "-t", "t").decode() == text, "-d may be left out"
    assert f"{data}/t-1:" not in ok("ls", data / "t-0").decode(), "of one partition"


def test_ls_explains_the_preallocated_index_of_an_open_log(data: Path) -> None:
    with library.open(data / "t-0", "a") as log:
        base = log.segments[-1].base_offset
        row = files("-d", data, "-t", "t")[f"t-0/{base:020d}.index"]
        assert row["length"] == 10_485_760 and row["used"] == row["entries"] * 8 < 1000
        assert row["disk"] < row["length"]
        times = files("-d", data, "-t", "t")[f"t-0/{base:020d}.timeindex"]
        assert times["length"] == 10_485_756 and times["used"] == times["entries"] * 12


def test_ls_finds_the_end_of_a_preallocated_log(tmp_path: Path) -> None:
    """FILE-11: its length is the segment's, the rest is zeros until it is closed."""
    with library.open(tmp_path / "t-0", "a", preallocate=True, internal_segment_bytes=1 << 20) as log:
        for _ in range(20):
            log.append([b"x" * 100] * 10)
        row = files("-d", tmp_path)["t-0/00000000000000000000.log"]
        assert row["length"] == 1 << 20 and row["used"] == log.size
    row = files("-d", tmp_path)["t-0/00000000000000000000.log"]
    assert row["length"] == row["used"] == 20 * (row["used"] // 20) < 1 << 20


def test_ls_of_what_is_not_there(data: Path) -> None:
    assert kafkalog("ls", "-d", data, "-t", "no").returncode == 1
    assert kafkalog("ls", "-d", data, "-p", "0").returncode == 2
    assert kafkalog("ls").returncode == 2

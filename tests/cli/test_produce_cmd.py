"""`kafkalog produce`: what becomes a record, where it goes, how it is laid out, and what stops it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog as library
from kafkalog._core.bytes.murmur import partition_for_key
from tests.commands import LINE, environment, kafkalog, ok, started
from tests.gates import wait_until


def values(path: Path) -> list[bytes | None]:
    with library.open(path) as log:
        return [record.value for record in log]


def pairs(path: Path) -> list[tuple[bytes | None, bytes | None]]:
    with library.open(path) as log:
        return [(record.key, record.value) for record in log]


def batch_counts(path: Path) -> list[int]:
    with library.open(path) as log:
        return [batch.header.count for batch in log.batches()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_each_partition_is_written_where_it_lies(tmp_path: Path) -> None:
    """A partition that a second directory has is not created again in the first, and keeps its records."""
    one, two = tmp_path / "one", tmp_path / "two"
    with library.open_dirs([one, two], "a") as dirs:
        dirs.create_topic("t", 4)
        homes = {number: Path(dirs["t", number].path).parent for number in range(4)}
    assert set(homes.values()) == {one, two}
    lines = "".join(f'{{"partition": {number}, "payload": "a"}}\n' for number in homes)
    ok("produce", "-d", one, "-d", two, "-t", "t", "-J", stdin=lines.encode())
    ok("produce", "-d", one, "-d", two, "-t", "t", "-p", 3, stdin=b"b\n")
    assert [values(homes[number] / f"t-{number}") for number in homes] == [[b"a"], [b"a"], [b"a"], [b"a", b"b"]]
    with library.open_dirs([one, two], "a") as dirs:
        assert dirs.topics["t"].partitions == (0, 1, 2, 3)


# what becomes a record


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a\r", b"b\r"]),
        (b"\n\na\n\n", [b"", b"", b"a", b""]),
        (b"", []),
        (b"\n", [b""]),
        (b"\xff\x00\n\xc3", [b"\xff\x00", b"\xc3"]),
    ],
)
def test_lines_end_at_newlines_and_nothing_else(tmp_path: Path, data: Path, text: bytes, lines: list[bytes]) -> None:
    ok("produce", "-d", data, "-t", "file", "-l", write(tmp_path / "in", text))
    ok("produce", "-d", data, "-t", "stdin", stdin=text)
    ok("produce", "-d", data, "-t", "stdin-l", "-l", stdin=text)
    for topic in ("file", "stdin", "stdin-l"):
        assert values(data / f"{topic}-0") == lines


def test_a_file_without_l_is_one_record(tmp_path: Path, data: Path) -> None:
    one, two = write(tmp_path / "1", b"a\nb\n"), write(tmp_path / "2", b"")
    ok("produce", "-d", data, "-t", "t", "-k", "key", one, two)
    assert pairs(data / "t-0") == [(b"key", b"a\nb\n"), (b"key", b"")]


def test_several_files_follow_each_other(tmp_path: Path, data: Path) -> None:
    files = [write(tmp_path / name, name.encode()) for name in "ab"]
    ok("produce", "-d", data, "-t", "t", "-l", files[0], "-", files[1], stdin=b"in\n")
    assert values(data / "t-0") == [b"a", b"in", b"b"]


def test_other_delimiters(data: Path) -> None:
    ok("produce", "-d", data, "-t", "t", "-D", ";", stdin=b"a\n;b")
    ok("produce", "-d", data, "-t", "t", "-D", r"\x00\t", stdin=b"c\0d\0\te")
    assert values(data / "t-0") == [b"a\n", b"b", b"c\0d", b"e"]


def test_keys_nulls_and_headers(data: Path) -> None:
    ok("produce", "-d", data, "-t", "t", "-K", ":", stdin=b"k:v:w\nplain\n:v\nk:\n")
    assert pairs(data / "t-0") == [(b"k", b"v:w"), (None, b"plain"), (b"", b"v"), (b"k", b"")]
    ok("produce", "-d", data, "-t", "z", "-K", ":", "-Z", stdin=b"k:v\n:v\nk:\n\n")
    assert pairs(data / "z-0") == [(b"k", b"v"), (None, b"v"), (b"k", None), (None, None)]
    ok("produce", "-d", data, "-t", "h", "-H", "a=1=2", "-H", "b", "-H", "a=", "-k", "é", stdin=b"v\n")
    with library.open(data / "h-0") as log:
        assert tuple(log[0].headers) == (("a", b"1=2"), ("b", None), ("a", b""))
        assert log[0].key == "é".encode()


# where it goes


def test_keyed_records_go_by_murmur2(data: Path) -> None:
    ok("topics", "create", "-d", data, "-t", "t", "--partitions", "5")
    lines = b"".join(b"key-%d:%d\n" % (number % 40, number) for number in range(400))
    ok("produce", "-d", data, "-t", "t", "-K", ":", stdin=lines)
    for partition in range(5):
        mine = [number for number in range(400) if partition_for_key(b"key-%d" % (number % 40), 5) == partition]
        assert values(data / f"t-{partition}") == [b"%d" % number for number in mine]


def test_keyless_records_stay_on_a_partition_until_its_batch_is_full(data: Path, tmp_path: Path) -> None:
    ok("topics", "create", "-d", data, "-t", "t", "--partitions", "3")
    lines = write(tmp_path / "in", b"".join(b"hello lagou %d\n" % number for number in range(3000)))
    done = kafkalog("produce", "-d", data, "-t", "t", "-l", lines)
    assert done.returncode == 0
    counts = [batch_counts(data / f"t-{partition}") for partition in range(3)]
    batches = [counts[at % 3][at // 3] for at in range(sum(map(len, counts)))]
    assert sum(batches) == 3000 and len(batches) > 3
    at = 0
    for number, count in enumerate(batches):
        stored = values(data / f"t-{number % 3}")
        begin = sum(counts[number % 3][: number // 3])
        assert stored[begin : begin + count] == [b"hello lagou %d" % line for line in range(at, at + count)]
        at += count
    for partition in range(3):
        assert f"t-{partition}: {sum(counts[partition]):,} records".encode() in done.stderr


def test_a_fixed_partition_takes_all(data: Path) -> None:
    ok("topics", "create", "-d", data, "-t", "t", "--partitions", "3")
    ok("produce", "-d", data, "-t", "t", "-p", "2", "-K", ":", stdin=b"a:1\nb:2\nc:3\n")
    assert values(data / "t-2") == [b"1", b"2", b"3"] and values(data / "t-0") == []
    done = kafkalog("produce", "-d", data, "-t", "t", "-p", "3", stdin=b"x\n")
    assert done.returncode == 1 and b"has no partition 3" in done.stderr


def test_a_topic_is_found_in_the_directory_that_has_it(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    ok("produce", "-d", second, "-t", "t", stdin=b"a\n")
    ok("topics", "create", "-d", first, "-t", "other")
    ok("produce", "-d", first, "-d", second, "-t", "t", stdin=b"b\n")
    assert values(second / "t-0") == [b"a", b"b"] and not (first / "t-0").exists()
    ok("produce", "-t", "t", stdin=b"c\n", KAFKALOG_DIR=f"{first}{os.pathsep}{second}")
    assert values(second / "t-0") == [b"a", b"b", b"c"]


# layout


def test_the_layout_of_a_file_depends_on_the_input_alone(tmp_path: Path, data: Path) -> None:
    """The known start of the main job's log: batches of 717, 694 and 682 records."""
    lines = write(tmp_path / "in", b"".join(b"hello lagou %d\n" % number for number in range(1, 2300)))
    ok("produce", "-d", data, "-t", "t", "-l", lines)
    with library.open(data / "t-0") as log:
        headers = [batch.header for batch in log.batches()]
    spans = [(header.base_offset, header.last_offset, header.size) for header in headers[:3]]
    assert spans == [(0, 716, 16_380), (717, 1410, 16_371), (1411, 2092, 16_365)]
    assert all(header.base_timestamp == header.max_timestamp for header in headers)


def test_a_slow_pipe_closes_batches_by_time_and_a_file_does_not(tmp_path: Path, data: Path) -> None:
    running = started("produce", "-d", data, "-t", "t", "-X", "linger.ms=1")
    assert running.stdin is not None
    running.stdin.write(b"first\n")
    running.stdin.flush()
    wait_until(lambda: any(data.glob("t-0/*.log")) and values(data / "t-0") == [b"first"])  # the pipe is still open
    running.communicate(b"second\n", timeout=60)
    assert running.returncode == 0 and values(data / "t-0") == [b"first", b"second"]


def test_batch_size_can_be_set(data: Path) -> None:
    ok("produce", "-d", data, "-t", "t", "-X", "batch.size=100", "-X", "linger.ms=60000", stdin=b"x" * 30 + b"\n")
    ok("produce", "-d", data, "-t", "t", "-X", "batch.size=0", stdin=b"a\nb\n")
    assert batch_counts(data / "t-0") == [1, 1, 1]


def test_topic_settings_are_kept_when_the_topic_is_made(data: Path) -> None:
    ok("produce", "-d", data, "-t", "t", "-X", "segment.bytes=1048576", stdin=b"a\n")
    ok("produce", "-d", data, "-t", "t", "-X", "retention.ms=1", stdin=b"b\n")
    entry = json.loads((data / "kafkalog.topics.json").read_text())["topics"]["t"]
    assert entry["configs"] == {"segment.bytes": "1048576"}


# JSON


def test_json_lines_come_back_as_they_were(data: Path, tmp_path: Path) -> None:
    path = data / "t-0"
    data.mkdir()
    headers = [("a", b"1"), ("b", None), ("c", b"\xff")]
    with library.open(path, "a") as log:
        log.append([(b"k", b"text \" \\ \n \xe2\x82\xac", 1_700_000_000_000, headers), (None, None, 1_700_000_000_001)])
        log.append([(b"\xff\xfe", b"\x00\x80", 1_700_000_000_002), (b"", b"", 1_700_000_000_003)])
    lines = ok("consume", "-d", data, "-t", "t", "-J")
    copy = tmp_path / "copy"
    ok("produce", "-d", copy, "-t", "t", "-J", stdin=lines)
    assert ok("consume", "-d", copy, "-t", "t", "-J") == lines
    with library.open(path) as one, library.open(copy / "t-0") as two:
        assert [(r.key, r.value, r.timestamp, r.headers) for r in one] == [
            (r.key, r.value, r.timestamp, r.headers) for r in two
        ]
    forced = ok("consume", "-d", data, "-t", "t", "-J", "--key-encoding", "hex", "--value-encoding", "base64")
    ok("produce", "-d", tmp_path / "third", "-t", "t", "-J", write(tmp_path / "in", forced))
    assert pairs(tmp_path / "third" / "t-0") == pairs(path)


def test_json_records_keep_their_partition(data: Path) -> None:
    ok("topics", "create", "-d", data, "-t", "t", "--partitions", "2")
    ok("produce", "-d", data, "-t", "t", "-J", stdin=b'{"partition":1,"payload":"a"}\n\n{"payload":"b","key":"k"}\n')
    assert values(data / "t-1")[:1] == [b"a"]
    assert values(data / f"t-{partition_for_key(b'k', 2)}")[-1:] == [b"b"]
    done = kafkalog("produce", "-d", data, "-t", "t", "-J", stdin=b'{"partition":2,"payload":"a"}\n')
    assert done.returncode == 1 and b"line 1" in done.stderr
    ok("produce", "-d", data, "-t", "t", "-J", "-p", "0", stdin=b'{"partition":7,"payload":"c"}\n')
    assert values(data / "t-0")[-1] == b"c"


@pytest.mark.parametrize(
    "line",
    [b"text", b"[]", b'{"payload":5}', b'{"key":"%%","key_encoding":"base64"}', b'{"ts":"now"}', b'{"headers":["a"]}',
     b'{"payload":"x","payload_encoding":"rot13"}', b"\xff", b"{"],
)  # fmt: skip
def test_a_line_that_is_no_record_is_named(data: Path, line: bytes) -> None:
    done = kafkalog("produce", "-d", data, "-t", "t", "-J", stdin=b'{"payload":"good"}\n' + line + b"\n")
    assert done.returncode == 1 and b"line 2" in done.stderr and b"Traceback" not in done.stderr
    assert b"t-0: 1 record, offset 0" in done.stderr, "what came before the line is kept, and that is said"
    kafkalog("produce", "-d", data, "-t", "t", stdin=b"goes on\n")
    assert values(data / "t-0") == [b"good", b"goes on"]


# what stops it


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-t", "../x"], b"topic name"),
        (["-t", ".."], b"topic name"),
        (["-t", "a/b"], b"topic name"),
        (["-t", "a" * 250], b"249"),
        ([], b"--topic"),
        (["-t", "t", "-X", "segment.byte=1"], b"segment.bytes"),
        (["-t", "t", "-X", "segment.ms=0"], b"segment.ms"),
        (["-t", "t", "-X", "novalue"], b"NAME=VALUE"),
        (["-t", "t", "-X", "batch.size=big"], b"batch.size"),
        (["-t", "t", "-p", "-1"], b"-p"),
        (["-t", "t", "-K", ""], b"empty"),
        (["-t", "t", "-D", r"\q"], b"escape"),
        (["-t", "t", "-J", "-K", ":"], b"-J"),
        (["-t", "t", "-z", "zst"], b"did you mean zstd"),
        (["-t", "t", "-z", "snappy:3"], b"no levels"),
        (["-t", "t", "-z", "gzip:10"], b"1 to 9"),
        (["-t", "t", "-z", "lz4:fast"], b"whole number"),
        (["-t", "t", "--no-such-flag"], b"--no-such-flag"),
    ],
)
def test_wrong_usage_is_status_2_and_makes_nothing(data: Path, arguments: list[str], says: bytes) -> None:
    data.mkdir()
    done = kafkalog("produce", "-d", data, *arguments, stdin=b"x\n")
    assert done.returncode == 2 and says in done.stderr and b"Traceback" not in done.stderr
    assert done.stdout == b"" and not any(path.is_dir() for path in data.iterdir())


def test_a_compacted_topic_wants_keys(data: Path) -> None:
    """Here as from `Log.append`: nothing without a key gets in, the records before stay."""
    config = ("-X", "cleanup.policy=compact")
    done = kafkalog("produce", "-d", data, "-t", "t", *config, stdin=b"no key\n")
    assert done.returncode == 1 and b"key" in done.stderr and values(data / "t-0") == []
    ok("produce", "-d", data, "-t", "t", "-K", ":", stdin=b"k:v\n")
    for kind, text in (("-l", b"no key\n"), ("-J", b'{"payload": "no key"}\n')):
        done = kafkalog("produce", "-d", data, "-t", "t", kind, stdin=text)
        assert done.returncode == 1 and b"key" in done.stderr
    assert pairs(data / "t-0") == [(b"k", b"v")]


def test_a_topic_that_collides_with_another_is_not_made(data: Path) -> None:
    """As `topics create`: a.b and a_b are one name in metrics."""
    ok("produce", "-d", data, "-t", "a.b", stdin=b"1\n")
    done = kafkalog("produce", "-d", data, "-t", "a_b", stdin=b"2\n")
    assert done.returncode == 1 and b"collides with a.b" in done.stderr
    assert not (data / "a_b-0").exists()
    ok("produce", "-d", data, "-t", "a.b", stdin=b"2\n")


def test_no_directory_is_wrong_usage() -> None:
    done = kafkalog("produce", "-t", "t", stdin=b"x\n")
    assert done.returncode == 2 and b"KAFKALOG_DIR" in done.stderr


def test_an_input_that_is_missing_is_named_before_anything_is_made(data: Path, tmp_path: Path) -> None:
    done = kafkalog("produce", "-d", data, "-t", "t", "-l", tmp_path / "nope")
    assert done.returncode == 1 and b"nope" in done.stderr and not data.exists()
    done = kafkalog("produce", "-d", data, "-t", "t", "-l", tmp_path)
    assert done.returncode == 1 and not data.exists()


def test_a_line_longer_than_max_message_bytes_is_refused(data: Path, tmp_path: Path) -> None:
    long = write(tmp_path / "in", b"short\n" + b"x" * 3_000_000)
    done = kafkalog("produce", "-d", data, "-t", "t", "-l", long)
    assert done.returncode == 1 and b"max.message.bytes" in done.stderr
    assert values(data / "t-0") == [b"short"]
    assert kafkalog("produce", "-d", data, "-t", "t", long).returncode == 1
    ok("produce", "-d", data, "-t", "big", "-X", "max.message.bytes=4000000", "-l", long)
    assert list(map(len, values(data / "big-0"))) == [5, 3_000_000]


def test_a_locked_directory_is_named(data: Path) -> None:
    data.mkdir()
    with library.open(data / "t-0", "a") as log:
        done = kafkalog("produce", "-d", data, "-t", "t", stdin=b"x\n")
        assert done.returncode == 1 and str(data / ".lock").encode() in done.stderr
        assert log.end_offset == 0


def test_an_unclean_partition_is_recovered(data: Path) -> None:
    ok("produce", "-d", data, "-t", "t", stdin=b"x\n")
    (data / ".kafka_cleanshutdown").unlink()
    ok("produce", "-d", data, "-t", "t", stdin=b"y\n")
    assert values(data / "t-0") == [b"x", b"y"]


def interrupt_produce(data: Path, sign: int) -> int:
    """The status of a produce that is stopped while its pipe is open and two records are in."""
    running = started("produce", "-d", data, "-t", "t", "-X", "linger.ms=1")
    assert running.stdin is not None
    running.stdin.write(b"first\nsecond\nbegun")
    running.stdin.flush()
    wait_until(lambda: any(data.glob("t-0/*.log")) and values(data / "t-0") == [b"first", b"second"])
    running.send_signal(sign)
    _, errors = running.communicate(timeout=60)
    assert b"Traceback" not in errors
    return running.returncode


@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_by_signal_leaves_a_good_log(data: Path, sign: int, status: int) -> None:
    assert interrupt_produce(data, sign) == status
    assert values(data / "t-0") == [b"first", b"second"]
    ok("produce", "-d", data, "-t", "t", stdin=b"goes on\n")
    assert values(data / "t-0") == [b"first", b"second", b"goes on"]


def test_quiet_says_nothing(data: Path) -> None:
    done = kafkalog("produce", "-q", "-d", data, "-t", "t", stdin=b"x\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_sync_writes_the_same(data: Path) -> None:
    ok("produce", "--sync", "-d", data, "-t", "t", stdin=b"x\ny\n")
    assert values(data / "t-0") == [b"x", b"y"]


def test_it_needs_no_file_it_does_not_read(data: Path) -> None:
    """Started with stdin closed, it says so instead of reading some other file."""
    line = [*LINE, "produce", "-d", str(data), "-t", "t"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *line], capture_output=True, env=environment(), timeout=60
    )
    assert done.returncode == 1 and b"Traceback" not in done.stderr, done.stderr
    assert sys.executable in line[0]

"""`kafkalog produce -z`: the layout, the order, the topic's own codec, and what stops it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import kafkalog as library
from kafkalog._core.batch.scan import BatchHeader
from kafkalog.log.open_writable import open_for_append
from kafkalog.records.format import CompressionType
from kafkalog.records.packing import parse_compression
from kafkalog.tools.produce import queue as produce_queue
from kafkalog.tools.produce.text import Encoding, Producer
from tests.commands import kafkalog, ok, started
from tests.gates import wait_until

CODECS = ["gzip", "snappy", "lz4", "zstd"]
LAGOU = b"".join(b"hello lagou %d\n" % number for number in range(1, 60_001))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def headers(path: Path) -> list[BatchHeader]:
    with library.open(path) as log:
        return [batch.header for batch in log.batches()]


def values(path: Path) -> list[bytes | None]:
    with library.open(path) as log:
        return [record.value for record in log]


def layout(path: Path) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for header in headers(path)]


def codecs(path: Path) -> set[str]:
    return {CompressionType(header.compression).name.lower() for header in headers(path)}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("codec", CODECS)
def test_the_layout_of_a_file_depends_on_the_input_alone(tmp_path: Path, data: Path, codec: str) -> None:
    """The main job's log: the batches are those of the plain one, 717, 694 and 682 records first."""
    lines = write(tmp_path / "in", LAGOU)
    ok("produce", "-d", data, "-t", "plain", "-l", lines)
    ok("produce", "-d", data, "-t", "t", "-l", "-z", codec, lines)
    assert layout(data / "t-0")[:3] == [(0, 716), (717, 1410), (1411, 2092)]
    assert layout(data / "t-0") == layout(data / "plain-0")
    assert codecs(data / "t-0") == {codec}
    assert values(data / "t-0") == LAGOU.splitlines()
    assert sum(header.size for header in headers(data / "t-0")) < len(LAGOU) / 1.5


@pytest.mark.parametrize("codec", ["lz4", "zstd:1"])
@pytest.mark.parametrize("cores", [2, 7])
def test_threads_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, cores: int) -> None:
    lines = write(tmp_path / "in", LAGOU * 3)
    logs = []
    for count in (1, cores):
        monkeypatch.setattr(produce_queue, "usable_cores", lambda count=count: count)
        opened = open_for_append(str(tmp_path / str(count) / "t-0"))
        with lines.open("rb") as source:
            producer = Producer(
                [opened], Encoding(), milliseconds=lambda: 1_700_000_000_000, compression=parse_compression(codec)
            )
            producer.read_lines(source.fileno(), "in")
            producer.flush()
            producer.close()
        opened.close()
        logs.append((tmp_path / str(count) / "t-0" / f"{0:020}.log").read_bytes())
    assert logs[0] == logs[1] and len(logs[0]) > 100_000


@pytest.mark.parametrize("codec", CODECS)
def test_keys_headers_and_partitions(data: Path, codec: str) -> None:
    lines = b"".join(b"key-%d:%d\n" % (number % 40, number) for number in range(20_000))
    for topic, more in (("plain", ()), ("t", ("-z", codec))):
        ok("topics", "create", "-d", data, "-t", topic, "--partitions", "3")
        ok("produce", "-d", data, "-t", topic, "-K", ":", "-H", "h=1", "-X", "linger.ms=60000", *more, stdin=lines)
    for number in range(3):
        assert codecs(data / f"t-{number}") == {codec}
        with library.open(data / f"plain-{number}") as one, library.open(data / f"t-{number}") as two:
            assert [(r.key, r.value, r.headers) for r in one] == [(r.key, r.value, r.headers) for r in two]


@pytest.mark.parametrize("codec", CODECS)
def test_json_lines_come_back_as_they_were(data: Path, tmp_path: Path, codec: str) -> None:
    with library.open(data / "t-0", "a") as log:
        for start in range(0, 3000, 500):
            log.append([(b"k", b"text %d" % at, 1_700_000_000_000 + at) for at in range(start, start + 500)])
    lines = ok("consume", "-d", data, "-t", "t", "-J")
    copy = tmp_path / "copy"
    ok("produce", "-d", copy, "-t", "t", "-J", "-z", codec, stdin=lines)
    assert codecs(copy / "t-0") == {codec} and len(headers(copy / "t-0")) > 3
    with library.open(data / "t-0") as one, library.open(copy / "t-0") as two:
        assert [(r.key, r.value, r.timestamp) for r in one] == [(r.key, r.value, r.timestamp) for r in two]


def test_a_whole_file_is_one_compressed_record(data: Path, tmp_path: Path) -> None:
    ok("produce", "-d", data, "-t", "t", "-z", "gzip:9", write(tmp_path / "in", b"a\nb\n" * 1000))
    assert values(data / "t-0") == [b"a\nb\n" * 1000] and codecs(data / "t-0") == {"gzip"}


def test_levels(data: Path, tmp_path: Path) -> None:
    lines = write(tmp_path / "in", LAGOU)
    sizes = {}
    for level in ("zstd:1", "zstd", "zstd:19", "lz4", "lz4:12"):
        ok("produce", "-d", data, "-t", "t" + level.replace(":", "-"), "-l", "-z", level, lines)
        sizes[level] = sum(header.size for header in headers(data / f"t{level.replace(':', '-')}-0"))
    assert sizes["zstd:19"] < sizes["zstd"] < sizes["lz4"] and sizes["lz4:12"] < sizes["lz4"]


# the topic's own codec


@pytest.mark.parametrize("flag", ["--config", "-X", "-c"])
def test_a_topic_made_with_a_codec_gets_it(data: Path, flag: str) -> None:
    ok("topics", "create", "-d", data, "-t", "t", flag, "compression.type=zstd", flag, "compression.zstd.level=19")
    assert b"compression.type=zstd" in ok("topics", "describe", "-d", data, "-t", "t")
    ok("produce", "-d", data, "-t", "t", stdin=LAGOU)
    ok("produce", "-d", data, "-t", "t", "-z", "gzip", stdin=b"more\n")
    assert codecs(data / "t-0") == {"zstd"} and values(data / "t-0")[-1] == b"more"
    ok("produce", "-d", data, "-t", "low", "-X", "compression.type=zstd", stdin=LAGOU)
    size = sum(header.size for header in headers(data / "t-0"))
    assert size < sum(header.size for header in headers(data / "low-0"))
    with library.open(data / "t-0", "a") as log:
        log.append(b"from Python")
    assert codecs(data / "t-0") == {"zstd"}


def test_an_uncompressed_topic_stays_so(data: Path) -> None:
    ok("topics", "create", "-d", data, "-t", "t", "-c", "compression.type=uncompressed")
    ok("produce", "-d", data, "-t", "t", "-z", "zstd", stdin=LAGOU)
    assert codecs(data / "t-0") == {"none"}


def test_none_is_no_codec(data: Path) -> None:
    ok("produce", "-d", data, "-t", "t", "-z", "none", stdin=b"x\n")
    assert codecs(data / "t-0") == {"none"}


def test_a_topic_with_a_wrong_codec_or_level_is_not_made(data: Path) -> None:
    for setting in ("compression.type=none", "compression.type=ZSTD", "compression.gzip.level=0"):
        done = kafkalog("topics", "create", "-d", data, "-t", "t", "-c", setting, stdin=b"")
        assert done.returncode == 2 and setting.partition("=")[0].encode() in done.stderr
        assert b"Traceback" not in done.stderr and not (data / "t-0").exists()


# what stops it


def test_a_compacted_topic_wants_keys(data: Path) -> None:
    """LOG-12: what came before is kept."""
    lines = b"".join(b"k%d:v\n" % number for number in range(30_000)) + b"no key\n"
    config = ("-X", "cleanup.policy=compact")
    done = kafkalog("produce", "-d", data, "-t", "t", "-K", ":", "-z", "lz4", *config, stdin=lines)
    assert done.returncode == 1 and b"without key" in done.stderr and str(data / "t-0").encode() in done.stderr
    kept = values(data / "t-0")
    assert 0 < len(kept) < 30_000 and f"t-0: {len(kept):,} records".encode() in done.stderr


def test_json_times_outside_the_topics_bounds_are_refused(data: Path) -> None:
    config = ("-X", "message.timestamp.before.max.ms=1000")
    for more in ((), ("-z", "zstd")):
        done = kafkalog("produce", "-d", data, "-t", "t", "-J", *config, *more, stdin=b'{"ts": 5, "payload": "x"}\n')
        assert done.returncode == 1 and b"timestamp" in done.stderr and values(data / "t-0") == []


def test_a_line_longer_than_max_message_bytes_is_refused(data: Path, tmp_path: Path) -> None:
    """Uncompressed, as Kafka's clients count it: so what is held of a line stays bounded."""
    long = write(tmp_path / "in", b"short\n" + b"x" * 3_000_000)
    done = kafkalog("produce", "-d", data, "-t", "t", "-l", "-z", "zstd", long)
    assert done.returncode == 1 and b"max.message.bytes" in done.stderr
    assert values(data / "t-0") == [b"short"]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_as_large_as_the_topic_takes(data: Path, tmp_path: Path, codec: str) -> None:
    """What cannot be compressed and comes near max.message.bytes is written all the same."""
    # nine of these, plain, are a batch of the largest size exactly
    lines = [os.urandom(999).replace(b"\n", b".") for _ in range(60)] + [os.urandom(9060).replace(b"\n", b".")]
    given = write(tmp_path / "in", b"\n".join(lines))
    config = ("-X", "max.message.bytes=9133", "-X", "batch.size=1000000")
    ok("produce", "-d", data, "-t", "t", "-l", "-z", codec, *config, given)
    assert values(data / "t-0") == lines and max(header.size for header in headers(data / "t-0")) <= 9133
    wanted = ("-X", f"compression.type={codec}")
    ok("produce", "-d", data, "-t", "u", "-l", *config, *wanted, write(given, b"\n".join(lines[:60])))
    assert values(data / "u-0") == lines[:60] and codecs(data / "u-0") == {codec}
    long = os.urandom(9060).replace(b"\n", b".")
    done = kafkalog("produce", "-d", data, "-t", "v", "-l", *config, *wanted, write(given, b"short\n" + long))
    assert done.returncode == 1 and b"max.message.bytes" in done.stderr
    assert values(data / "v-0") in ([], [b"short"])


@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_by_signal_leaves_a_good_log(data: Path, sign: int, status: int) -> None:
    running = started("produce", "-d", data, "-t", "t", "-z", "gzip:9")
    assert running.stdin is not None
    running.stdin.write(LAGOU)
    running.stdin.flush()
    wait_until(lambda: any(data.glob("t-0/*.log")) and bool(values(data / "t-0")))
    running.send_signal(sign)
    _, errors = running.communicate(timeout=60)
    assert b"Traceback" not in errors and running.returncode == status
    kept = values(data / "t-0")
    assert kept == LAGOU.splitlines()[: len(kept)] and f"t-0: {len(kept):,} record".encode() in errors
    ok("produce", "-d", data, "-t", "t", "-z", "snappy", stdin=b"goes on\n")
    assert values(data / "t-0") == [*kept, b"goes on"]


def test_a_pipe_that_pauses_is_written_while_it_is_open(data: Path) -> None:
    """Full batches wait for nobody, however long the linger time is."""
    running = started("produce", "-d", data, "-t", "t", "-z", "zstd", "-X", "linger.ms=600000")
    assert running.stdin is not None
    running.stdin.write(LAGOU)
    running.stdin.flush()
    wait_until(lambda: any(data.glob("t-0/*.log")) and len(values(data / "t-0")) > 59_000)
    running.communicate(b"second\n", timeout=60)
    assert running.returncode == 0 and values(data / "t-0") == [*LAGOU.splitlines(), b"second"]

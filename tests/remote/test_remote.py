"""Logs that lie in stores that fsspec knows: read as local ones, with typed errors where a store fails."""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import create_backup
from kafkalog.errors import (
    IllegalArgument,
    KafkalogError,
    MissingPackage,
    NotAPartition,
    PartitionNotFound,
    ReadOnlyLog,
    StorageError,
)
from kafkalog.exchange.export import export_records
from kafkalog.exchange.import_ import import_records
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.remote import locate, view_of
from kafkalog.util.remote_files import BLOCK_BYTES, RemoteFileSystem
from tests import commands
from tests.raw_batches import batches, write_segment
from tests.remote.gcs import gcs_server
from tests.remote.s3 import s3_server
from tests.tiered_store import PluginStore

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
ID = "oAtiIQ95REujbuzNd_lkLQ"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic with several segments, transactions left out; one larger than a block."""
    where = tmp_path_factory.mktemp("remote") / "data"
    with kafkalog.open_dirs(where, "a") as dirs:
        dirs.create_topic("orders", 2, {"segment.bytes": 2 * BLOCK_BYTES})
        for number in range(2):
            for n in range(0, 600, 20):
                rows = [(b"key %d" % m, b"value %d " % m + bytes(5000), 1000 + m) for m in range(n, n + 20)]
                dirs["orders", number].append(rows)
    return where


@pytest.fixture
def memory(data: Path) -> Iterator[Any]:
    """The directory in fsspec's own store, `memory://bucket/data`."""
    store = fsspec.filesystem("memory")
    store.put(str(data), "/bucket/data", recursive=True)
    yield store
    store.rm("/", recursive=True)


def content(log: kafkalog.Log) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(record.offset, record.timestamp, record.key, record.value) for record in log.records()]


def check_same(url: str, local: Path) -> None:
    with kafkalog.open(url) as there, kafkalog.open(local) as here:
        assert content(there) == content(here)
        assert (there.start_offset, there.end_offset) == (here.start_offset, here.end_offset)
        assert there[333] == here[333] and there[-1].offset == 599
        assert there.offset_for_time(1400) == here.offset_for_time(1400)
        assert len(there.segments) == len(here.segments) > 1
        assert there.slice(100, 110).table().offsets.tolist() == list(range(100, 110))


def test_a_log_in_memory_and_in_files(data: Path, memory: Any) -> None:
    for number in range(2):
        check_same(f"memory://bucket/data/orders-{number}", data / f"orders-{number}")
        check_same(f"file://{data}/orders-{number}", data / f"orders-{number}")


def test_data_directories(data: Path, memory: Any) -> None:
    with kafkalog.open_dirs("memory://bucket/data") as dirs:
        assert [str(key) for key in dirs] == ["orders-0", "orders-1"]
        assert dirs.topics["orders"].partitions == (0, 1)
        assert dirs.topics["orders"].settings["segment.bytes"] == str(2 * BLOCK_BYTES)
        assert dirs["orders", 1][17].key == b"key 17"


def test_what_is_appended_there_is_seen(data: Path, memory: Any, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    with kafkalog.open("memory://bucket/data/orders-0") as log:
        assert log.end_offset == 600
        with kafkalog.open(tmp_path / "data" / "orders-0", "a") as local:
            local.append([b"more"])
        memory.put(str(tmp_path / "data"), "/bucket/", recursive=True)
        deadline = time.monotonic() + 120  # a store is looked at again once a second
        while log.end_offset < 601 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert log[600].value == b"more" and log[599].key == b"key 599"


def test_nothing_is_written(memory: Any) -> None:
    fs, path = locate("memory://bucket/data")
    for call in (fs.unlink, fs.mkdir, fs.rmdir, fs.utime):
        with pytest.raises(OSError) as caught:
            call(path)
        assert caught.value.errno == errno.EROFS
    with pytest.raises(OSError):
        fs.open_file(path + "/x", "create")
    with pytest.raises(ReadOnlyLog, match="can be opened only for reading"):
        kafkalog.open("memory://bucket/data/orders-0", "a")
    with pytest.raises(ReadOnlyLog, match="can be opened only for reading"):
        kafkalog.open_dirs("memory://bucket/data", "a")


def test_what_is_not_there_is_told(memory: Any) -> None:
    with pytest.raises(PartitionNotFound):
        kafkalog.open("memory://bucket/data/other-0")
    with pytest.raises(NotAPartition, match="a data directory"):
        kafkalog.open("memory://bucket/data")
    with pytest.raises(NotAPartition, match="a file"):
        kafkalog.open("memory://bucket/data/kafkalog.topics.json")
    with pytest.raises((IllegalArgument, MissingPackage)):
        kafkalog.open("nosuch://bucket/orders-0")
    with pytest.raises(PartitionNotFound):
        kafkalog.open_dirs("memory://bucket/none")


class Flaky:
    """fsspec's store, which fails at the nth call about a path that ends with `of`."""

    def __init__(self, store: Any, nth: int, error: Exception, of: str = "") -> None:
        self._of = of
        self._store, self.left, self._error = store, nth, error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("info", "ls", "cat_file"):
            return found

        def call(*args: Any, **named: Any) -> Any:
            self.left -= str(args[0]).endswith(self._of)
            if self.left == 0:
                self.left = -1
                raise self._error
            return found(*args, **named)

        return call


@pytest.mark.parametrize("error", [RuntimeError("reset by peer"), TimeoutError("too slow"), PermissionError("no key")])
def test_a_store_that_fails_in_the_middle_is_a_typed_error_and_loses_nothing(memory: Any, error: Exception) -> None:
    with kafkalog.open("memory://bucket/data/orders-0") as log:
        whole = content(log)
    nth, seen, store = 1, 0, Flaky(memory, 0, error)
    while nth == 1 or store.left <= 0:
        found: list[Any] = []
        store = Flaky(memory, nth, error)
        fs, path = RemoteFileSystem(store, "memory"), "/memory:/bucket/data/orders-0"
        try:
            with kafkalog.Log(LogView(path, fs=fs), None) as log:
                for record in log.records():
                    found.append((record.offset, record.timestamp, record.key, record.value))
        except KafkalogError as caught:
            seen += 1
            assert isinstance(caught, StorageError) and str(error) in str(caught), caught
            assert found == whole[: len(found)], "what came before is right"
            with kafkalog.Log(LogView(path, fs=fs), None) as log:  # the store answers again
                rest = log.records(len(found))
                found += [(record.offset, record.timestamp, record.key, record.value) for record in rest]
        assert found == whole, "and nothing is missing behind it"
        nth += 1
    assert seen > 5, "of a checkpoint that cannot be read no more than a problem comes"


@pytest.fixture
def tiered(data: Path, tmp_path: Path) -> Path:
    """The segments of orders-1 in the layout of Kafka's own file store, and in that of the plugin for object stores."""
    own, plugin = tmp_path / f"orders-1-{ID}", PluginStore(tmp_path, chunk_bytes=1 << 20)
    own.mkdir()
    for path in sorted((data / "orders-1").glob("*.log")):
        parts = {}
        for suffix, name in ((".log", ""), (".index", "offset"), (".timeindex", "timestamp")):
            parts[name] = path.with_suffix(suffix).read_bytes()
            (own / f"{path.stem}-{ID}{suffix}").write_bytes(parts[name])
        stem = f"{tmp_path}/orders-{ID}/1/{path.stem}-{ID}"
        plugin.put_objects(stem, parts.pop(""), parts, None)
    return tmp_path


@pytest.mark.parametrize("place", [f"orders-1-{ID}", f"orders-{ID}/1"])
def test_segments_that_a_broker_has_tiered(data: Path, tiered: Path, place: str) -> None:
    with kafkalog.open(f"file://{tiered}/{place}") as log:
        assert log.topic_partition == ("orders", 1)
    check_same(f"file://{tiered}/{place}", data / "orders-1")


def test_a_segment_that_was_copied_twice_counts_once(data: Path, tiered: Path) -> None:
    place = tiered / f"orders-{ID}" / "1"
    first = min(place.glob("*.log"))
    again = place / first.name.replace(ID, OTHER_ID)
    again.write_bytes(first.read_bytes()[:1000])  # an upload that was given up: it has no manifest
    check_same(f"file://{place}", data / "orders-1")
    own = tiered / f"orders-1-{ID}"
    stale = own / first.name.replace(ID, OTHER_ID)
    stale.write_bytes(first.read_bytes()[:1000])
    os.utime(stale, (1, 1))
    check_same(f"file://{own}", data / "orders-1")


def test_segments_of_two_leaders_that_overlap_are_read_once(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batches(0, 10, 10))
    write_segment(tmp_path / "t-0", 50, batches(50, 10, 10))
    place = tmp_path / f"t-0-{ID}"
    place.mkdir()
    for path in (tmp_path / "t-0").iterdir():
        shutil.copy(path, place / f"{path.stem}-{ID}{path.suffix}")
    with kafkalog.open(f"file://{place}") as log:
        assert [record.offset for record in log.records()] == list(range(150))
        assert [log[n].value.rstrip(b".") for n in (49, 75, 99, 149)] == [b"v49", b"v75", b"v99", b"v149"]


def test_the_command_reads_urls(data: Path) -> None:
    fmt = ("-t", "orders", "-f", "%p %o %k\\n")
    assert commands.ok("consume", "-d", f"file://{data}", *fmt) == commands.ok("consume", "-d", data, *fmt)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_an_export_from_a_store_that_fails_goes_on(
    data: Path, memory: Any, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flaky = Flaky(memory, 0, RuntimeError("reset by peer"), of=".log")
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url, **_: (flaky, url.partition("://")[2]))
    nth, failures, target = 1, 0, tmp_path / "out"
    while True:
        flaky.left = nth
        try:
            export_records("memory://bucket/data", target, format, file_bytes=100_000, resume=failures > 0)
            break
        except StorageError as error:
            assert "reset by peer" in str(error)
            failures += 1
        nth += 2
    assert failures > 3
    import_records(target, tmp_path / "back")
    for number in range(2):
        name = f"orders-{number}"
        with kafkalog.open(tmp_path / "back" / name) as log, kafkalog.open(data / name) as here:
            assert content(log) == content(here)


def test_a_log_in_s3(data: Path) -> None:
    with s3_server() as (server, options):
        store = fsspec.filesystem("s3", **options)
        store.mkdir("bucket")
        store.put(str(data), "bucket/data", recursive=True)
        with kafkalog.Log(view_of("s3://bucket/data/orders-0", options), None) as log:
            with kafkalog.open(data / "orders-0") as here:
                assert content(log) == content(here)
        server.kill()
        server.wait()
        with pytest.raises(StorageError, match="the store failed"):
            view_of("s3://bucket/data/orders-0", options)


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # of gcsfs, which uploads the data
def test_a_log_in_google_cloud_storage(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gcs_server(monkeypatch) as options:
        fsspec.filesystem("gs", **options).put(str(data), "bucket/data", recursive=True)
        with kafkalog.Log(view_of("gs://bucket/data/orders-0", options), None) as log:
            with kafkalog.open(data / "orders-0") as here:
                assert content(log) == content(here)


def test_a_log_there_is_verified(data: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report = kafkalog.verify("memory://bucket/data", deep=True)
    assert report.ok and report.sums == kafkalog.verify(data, deep=True).sums
    assert kafkalog.verify("memory://bucket/data/orders-1").sums.partitions == 1
    (name,) = (one for one in memory.ls("/bucket/data/orders-0", detail=False) if one.endswith("/" + "0" * 20 + ".log"))
    sound = memory.cat(name)
    memory.pipe(name, sound[:200] + b"!" + sound[201:])
    (found,) = kafkalog.verify("memory://bucket/data")
    assert (found.severity, found.offset) == ("damage", 0) and found.path.endswith(name)
    memory.pipe(name, sound)

    def broken(path: str, *more: Any, **named: Any) -> bytes:
        raise ConnectionError("the line is dead")

    monkeypatch.setattr(memory, "cat_file", broken)
    assert {found.severity for found in kafkalog.verify("memory://bucket/data")} == {"unreadable"}
    with pytest.raises(PartitionNotFound):
        kafkalog.verify("memory://bucket/none")


def test_the_command_verifies_a_url(data: Path) -> None:
    assert commands.ok("verify", "--deep", f"file://{data}").decode().rstrip().endswith("sound")


@pytest.mark.parametrize(
    "line",
    [
        "backup -d memory://x backups", "backup -d memory://x file:///backups", "restore file:///backups -d memory://x",
        "restore backups -d memory://x", "export -d data memory://x", "export --format kafka-dir -d data memory://x",
        "export --format kafka-dir -d memory://x out", "import --format kafka-dir memory://x -d new",
        "import --format kafka-dir data -d memory://x", "import memory://x.jsonl -d new",
    ],
)  # fmt: skip
def test_what_takes_no_url_says_so_and_makes_nothing(data: Path, tmp_path: Path, line: str) -> None:
    shutil.copytree(data, tmp_path / "data")
    create_backup(tmp_path / "data", tmp_path / "backups")
    done = commands.kafkalog(*line.split(), cwd=tmp_path)
    assert done.returncode == 2 and b"a URL was given" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "new") == ["backups", "data"]


def test_no_error_has_the_password_of_a_url() -> None:
    with pytest.raises(IllegalArgument) as caught:
        locate("nowhere://me:secret@host/data")
    assert "nowhere://me@host/data" in str(caught.value) and "secret" not in str(caught.value)


def test_a_path_that_begins_with_a_slash_keeps_it(data: Path) -> None:
    """As those of SFTP do, whose file systems have no marker of a root."""
    from fsspec.implementations.local import LocalFileSystem

    class Rooted(LocalFileSystem):  # type: ignore[misc]
        protocol = "rooted"

        @classmethod
        def _strip_protocol(cls, path: Any) -> str:
            return "/" + path.partition("://")[2].partition("/")[2] if "://" in str(path) else str(path)

    Rooted.root_marker = ""
    fsspec.register_implementation("rooted", Rooted, clobber=True)
    with kafkalog.open(data / "orders-0") as log, kafkalog.open(f"rooted://host{data}/orders-0") as there:
        assert [one.value for one in there] == [one.value for one in log]

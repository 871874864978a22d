"""Every way to read a log reads a tiered one whole, at every seam between the store and the local segments."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import (
    IllegalArgument,
    KafkalogError,
    NotAPartition,
    PartitionNotFound,
    StorageError,
    UnknownTopicOrPartition,
)
from kafkalog.exchange.export import export_records
from kafkalog.manager.known_topics import KnownTopics
from kafkalog.reading.chunks import records
from kafkalog.spark.file_systems import file_system
from kafkalog.spark.options import SourceOptions
from kafkalog.storage.readonly.view import LogView
from kafkalog.tiered.open import located
from kafkalog.tiered.segment_bytes import ChunkCache
from kafkalog.tiered.topics import is_tiered, partition_in
from kafkalog.util.remote_files import RemoteFileSystem
from tests import commands
from tests.documents import ROOT, run_document
from tests.manager.metadata_files import topic_values, write_metadata
from tests.tiered_store import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    TOPIC_ID,
    Batch,
    Copy,
    KeyPair,
    PluginStore,
    epochs_of,
    make_batch,
    make_id,
    values_of,
    write_events,
    write_log_start,
    write_partition,
)

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
KEYS = KeyPair()


def make_log() -> list[Batch]:
    return [make_batch(n * 4, 4, n // 5, pad=40) for n in range(20)]


def make_data(where: Path, local: int = 12, *, tiered: int = 20) -> Path:
    """Write batches up to `tiered` to the store in segments of 4 batches, and those from `local` on to the data."""
    log = make_log()
    store = PluginStore(where / "store", chunk_bytes=400, compressed=True, keys=KEYS)
    events = []
    for n in range(0, tiered, 4):
        copy = Copy(make_id(n), log[n : min(n + 4, tiered)])
        store.put(copy)
        events += [copy.started(), copy.update(FINISHED)]
    shutil.rmtree(where / "data", ignore_errors=True)
    segments = [one for one in (log[local : local + 3], log[local + 3 :]) if one]
    write_partition(where / "data" / "orders-0", segments, epochs_of(log))
    write_log_start(where / "data", {"orders 0": 0})
    write_events(where / "data", events)
    KEYS.write(where / "key1.pem")
    description = {"store": f"file://{where}/store", "keys": {"key1": "key1.pem"}}
    (where / "tiered.json").write_text(json.dumps(description))
    return where / "data"


@pytest.mark.parametrize("local", range(1, 20))
def test_each_seam_is_read_without_gap_and_double(tmp_path: Path, local: int) -> None:
    data, expected = make_data(tmp_path, local), values_of(make_log())
    with kafkalog.open(data / "orders-0", tiered=tmp_path / "tiered.json") as log:
        assert (log.start_offset, log.end_offset) == (0, 80)
        for first in range(80):
            assert [(r.offset, r.value) for r in log.records(first, min(first + 6, 80))] == expected[first : first + 6]
        assert log.table().offsets.tolist() == list(range(80))


def test_without_the_option_only_the_local_part_is_read(tmp_path: Path) -> None:
    with kafkalog.open(make_data(tmp_path) / "orders-0") as log:
        assert log.start_offset == 48


def test_directories_and_commands_read_whole_topics(tmp_path: Path) -> None:
    data, expected = make_data(tmp_path), values_of(make_log())
    tiered = tmp_path / "tiered.json"
    with kafkalog.open_dirs(data, tiered=tiered) as dirs:
        assert dirs["orders", 0].start_offset == 0
        assert [(r.offset, r.value) for r in dirs["orders", 0].records()] == expected
    printed = commands.ok("consume", "-d", data, "-t", "orders", "--tiered", tiered, "-f", "%o %s\\n")
    assert printed == b"".join(b"%d %s\n" % one for one in expected)
    assert b"sound" in commands.ok("verify", data, "--tiered", tiered, "--deep")
    commands.ok("export", "-d", data, "-t", "orders", "--tiered", tiered, "--format", "jsonl", tmp_path / "out")
    files = sorted((tmp_path / "out").glob("topic=orders/*.jsonl"))
    lines = [json.loads(one) for path in files for one in path.read_text().splitlines()]
    assert [(one["offset"], one["payload"].encode()) for one in lines] == expected


def test_commands_that_show_a_log_show_the_tiered_part(tmp_path: Path) -> None:
    data, tiered = make_data(tmp_path), tmp_path / "tiered.json"
    given = ("-d", data, "-t", "orders", "--tiered", tiered)
    (stats,) = map(json.loads, commands.ok("stats", *given, "-J").splitlines())
    assert stats["records"] == 80 and stats["start_offset"] == 0
    counted = commands.ok("stats", data / "orders-0", "--tiered", tiered, "-J", "--by", "partition").splitlines()
    assert json.loads(counted[-1])["records"] == 80
    listed = [json.loads(line) for line in commands.ok("ls", *given, "-J").splitlines()]
    logs = {one["name"]: one for one in listed if one["name"].endswith(".log")}
    assert sorted(logs) == [f"{n:020d}.log" for n in (0, 16, 32, 48, 60)]
    assert all(one["used"] == one["length"] > 0 for one in logs.values())
    dumped = commands.ok("dump", "--tiered", tiered, data / "orders-0", "--deep-iteration")
    assert [n for n in range(80) if b"offset: %d " % n in dumped] == list(range(80))
    assert commands.kafkalog("dump", "--tiered", tiered, data / "orders-0" / f"{48:020d}.log").returncode == 2
    (local,) = map(json.loads, commands.ok("stats", "-d", data, "-t", "orders", "-J").splitlines())
    assert local["records"] == 32


def test_sql_and_the_browser_read_whole_topics(tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'kafkalog[sql]'")
    data, tiered = make_data(tmp_path), tmp_path / "tiered.json"
    query = 'SELECT count(*) AS n, min("offset") AS first FROM orders'
    found = commands.ok("sql", "-d", data, "--tiered", tiered, "-J", query)
    assert json.loads(found) == {"n": 80, "first": 0}
    done = commands.kafkalog("browse", "-d", data, "-t", "orders", "--tiered", tiered)
    assert b"the browser needs" in done.stderr and b"Traceback" not in done.stderr


def test_an_export_to_parquet_is_cut_into_parts_and_continued(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install 'kafkalog[arrow]'")
    data, expected = make_data(tmp_path), values_of(make_log())
    export: Any = {"topics": ["orders"], "file_bytes": 1024, "tiered": tmp_path / "tiered.json"}
    first = export_records(data, tmp_path / "out", "parquet", **export)
    assert first.records == 80 and first.files > 1
    assert export_records(data, tmp_path / "out", "parquet", resume=True, **export).records == 0
    found = [row for path in (tmp_path / "out").rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted((one["offset"], one["value"]) for one in found) == expected


def test_metadata_and_partitions_in_other_directories(tmp_path: Path) -> None:
    data, expected = make_data(tmp_path), values_of(make_log())
    other = tmp_path / "broker2"
    other.mkdir()
    (data / "__remote_log_metadata-0").rename(other / "__remote_log_metadata-0")
    with pytest.raises(UnknownTopicOrPartition, match="__remote_log_metadata") as caught:
        kafkalog.open(data / "orders-0", tiered=tmp_path / "tiered.json")
    assert "metadata" in str(caught.value.hint)
    description = json.loads((tmp_path / "tiered.json").read_text())
    (tmp_path / "tiered.json").write_text(json.dumps(description | {"metadata": ["broker2"]}))
    with kafkalog.open(data / "orders-0", tiered=tmp_path / "tiered.json") as log:
        assert [(r.offset, r.value) for r in log.records()] == expected
    older = tmp_path / "broker3"
    write_events(older, [Copy(make_id(0), make_log()[:4]).started()])
    (tmp_path / "tiered.json").write_text(json.dumps(description | {"metadata": ["broker3", "broker2"]}))
    with kafkalog.open_dirs([data, other], tiered=tmp_path / "tiered.json") as dirs:  # the longer replica counts
        assert [(r.offset, r.value) for r in dirs["orders", 0].records()] == expected


def test_a_store_in_memory_and_data_at_a_url(tmp_path: Path) -> None:
    import fsspec

    data, expected = make_data(tmp_path), values_of(make_log())
    memory = fsspec.filesystem("memory")
    try:
        memory.put(str(data), "/kafka/data", recursive=True)
        memory.put(str(tmp_path / "store"), "/kafka/store", recursive=True)
        description = {"store": "memory://kafka/store", "keys": {"key1": "key1.pem"}}
        (tmp_path / "tiered.json").write_text(json.dumps(description))
        for where in (data, "memory://kafka/data"):
            with kafkalog.open_dirs(where, tiered=tmp_path / "tiered.json") as dirs:
                assert [(r.offset, r.value) for r in dirs["orders", 0].records()] == expected
    finally:
        memory.rm("/kafka", recursive=True)


def test_an_open_log_follows_copies_and_deletions(tmp_path: Path) -> None:
    data, expected = make_data(tmp_path, 4, tiered=4), values_of(make_log())
    log_batches = make_log()
    store = PluginStore(tmp_path / "store", chunk_bytes=400, compressed=True, keys=KEYS)
    copies = [Copy(make_id(0), log_batches[:4]), Copy(make_id(50), log_batches[4:7])]
    events = [copies[0].started(), copies[0].update(FINISHED)]
    with kafkalog.open(data / "orders-0", tiered=tmp_path / "tiered.json") as log:
        assert [(r.offset, r.value) for r in log.records()] == expected
        store.put(copies[1])
        events += [copies[1].started(), copies[1].update(FINISHED)]
        write_events(data, events)
        for path in (data / "orders-0").glob(f"{16:020d}.*"):
            path.unlink()  # as the broker does when local retention has passed
        assert [(r.offset, r.value) for r in log.records()] == expected
        events += [copies[0].update(DELETE_STARTED), copies[0].update(DELETE_FINISHED)]
        write_events(data, events)
        (data / "orders-0" / "note").touch()  # the directory changes
        assert log.start_offset == 16
        assert [(r.offset, r.value) for r in log.records()] == expected[16:]


def test_the_page_shows_what_its_commands_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_data(tmp_path)
    (tmp_path / "tiered.json").unlink()
    monkeypatch.chdir(tmp_path)
    run_document(ROOT / "docs" / "tiered.md", tmp_path, {"__name__": "__example__"})


def test_a_topic_that_was_created_again_has_none_of_the_old_copies(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    metadata = data / "orders-0" / "partition.metadata"
    metadata.write_text(metadata.read_text().replace(TOPIC_ID, "BBBBBBBBQBCBBBBBBBBBBB"))
    write_log_start(data, {"orders 0": 48})
    with kafkalog.open(data / "orders-0", tiered=tmp_path / "tiered.json") as log:
        assert log.start_offset == 48


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "not a JSON object"), ("{", "no description"), ("{}", "store is not a URL"),
        ('{"store": "/a/path"}', "store is not a URL"), ('{"store": "file:///x", "prefx": ""}', "did you mean prefix"),
        ('{"store": "file:///x", "prefix": 1}', "prefix is not text"),
        ('{"store": "file:///x", "keys": []}', "keys is not"),
        ('{"store": "file:///x", "keys": {"a": 1}}', "keys is not"),
        ('{"store": "file:///x", "metadata": "x"}', "metadata is not"),
        ('{"store": "file:///x", "options": 1}', "options"),
    ],
)  # fmt: skip
def test_a_description_that_is_wrong_is_named(tmp_path: Path, content: str, words: str) -> None:
    data = make_data(tmp_path)
    (tmp_path / "tiered.json").write_text(content)
    with pytest.raises(IllegalArgument, match=words) as caught:
        kafkalog.open(data / "orders-0", tiered=tmp_path / "tiered.json")
    assert caught.value.path == str(tmp_path / "tiered.json")


def test_wrong_uses_of_the_option(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    with pytest.raises(StorageError, match="description of a tiered store"):
        kafkalog.open(data / "orders-0", tiered=tmp_path / "nothing.json")
    with pytest.raises(IllegalArgument, match="only for reading"):
        kafkalog.open(data / "orders-0", "a", tiered=tmp_path / "tiered.json")
    with pytest.raises(IllegalArgument, match="only for reading"):
        kafkalog.open_dirs(data, "a", tiered=tmp_path / "tiered.json")
    copied = ("export", "--format", "kafka-dir", "-d", data, tmp_path / "out")
    for line in (copied, ("verify", data, "--spark", "local")):
        done = commands.kafkalog(*line, "--tiered", tmp_path / "tiered.json")
        assert done.returncode == 2, done.stderr
    with pytest.raises(KafkalogError):
        kafkalog.open(data / "orders-0", tiered="nosuch://store")


def test_a_read_in_the_middle_fetches_only_the_chunks_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data(tmp_path)
    asked: list[tuple[str, int]] = []
    original = RemoteFileSystem.read_range

    def counted(self: RemoteFileSystem, path: str, start: int, stop: int) -> bytes:
        asked.append((Path(path).name, stop - start))
        return original(self, path, start, stop)

    monkeypatch.setattr(RemoteFileSystem, "read_range", counted)
    with kafkalog.open(data / "orders-0", tiered=tmp_path / "tiered.json") as log:
        assert asked == [], "to open a log costs no request"
        assert log[22].offset == 22
    chunks = [size for name, size in asked if name.endswith(".log")]
    assert {name[:20] for name, _ in asked} == {"00000000000000000016"}, "the segment of that offset alone"
    assert 1 <= len(chunks) <= 3 and max(chunks) <= 428 + 100
    before = len(asked)
    with kafkalog.open(data / "orders-0", tiered=tmp_path / "tiered.json") as log:
        assert len(list(log.records())) == 80
    fetched = [one for one in asked[before:] if one[0].endswith(".log")]
    objects = sum(path.stat().st_size for path in (tmp_path / "store").rglob("*.log") if int(path.name[:20]) < 48)
    assert sum(size for _, size in fetched) == objects, "each chunk once"


def test_the_local_snapshot_at_the_seam_is_read_not_that_of_the_store(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    fs, (place,) = located([str(data)], tmp_path / "tiered.json")
    snapshot = f"{place}/orders-0/{48:020d}.snapshot"
    assert fs.read_file(snapshot, 1000), "that of the store"
    (data / "orders-0" / f"{48:020d}.snapshot").write_bytes(b"local")
    assert fs.read_file(snapshot, 1000) == b"local"


def test_spark_reads_a_description_again_that_was_changed(tmp_path: Path) -> None:
    data, tiered = make_data(tmp_path), tmp_path / "tiered.json"
    right = tiered.read_text()
    tiered.write_text(json.dumps(json.loads(right) | {"keys": {}}))
    os.utime(tiered, (1, 1))
    given = {"path": str(data), "subscribe": "orders", "tiered": str(tiered)}
    options = SourceOptions.parse(given, streaming=False)
    with pytest.raises(IllegalArgument, match="private key was not given"):
        list(records(LogView(str(data / "orders-0"), fs=file_system(options)), 0, 80))
    tiered.write_text(right)
    again = file_system(options)
    assert len(list(records(LogView(str(data / "orders-0"), fs=again), 0, 80))) == 80
    assert file_system(options) is again


def test_decoded_chunks_are_kept_up_to_a_limit() -> None:
    cache, reads = ChunkCache(limit_bytes=200), []

    def read(number: int, size: int = 100) -> bytes:
        def decode() -> memoryview:
            reads.append(number)
            return memoryview(bytes([number]) * size)

        return bytes(cache.get("object", number, decode))

    for number in (1, 2, 1, 3, 1, 2):
        assert read(number) == bytes([number]) * 100
    assert reads == [1, 2, 3, 2], "two fit, and the one used last stays"
    del reads[:]
    for number, size in ((7, 1000), (7, 1000), (1, 100), (7, 1000), (1, 100)):
        assert read(number, size) == bytes([number]) * size
    assert reads == [7, 1, 7, 1], "one that is larger stays until the next comes"


@pytest.mark.parametrize("log_start", [0, None, 20])
def test_a_topic_without_any_event_is_an_error_not_a_shorter_log(tmp_path: Path, log_start: int | None) -> None:
    data, tiered = make_data(tmp_path), tmp_path / "tiered.json"
    write_log_start(data, {} if log_start is None else {"orders 0": log_start})
    write_events(data, [])
    first = log_start or 0

    def check_gap() -> None:
        with kafkalog.open(data / "orders-0", tiered=tiered) as log:
            assert log.start_offset == first and log[48].offset == 48
            with pytest.raises(StorageError, match=f"offsets {first} to 47") as caught:
                list(log.records())
        assert "__remote_log_metadata" in str(caught.value.hint)

    check_gap()  # nothing says whether the topic is tiered: its events may be in a partition that was not given
    write_metadata(data, topic_values("orders", {"remote.storage.enable": "true"}, topic_id=TOPIC_ID))
    check_gap()
    write_metadata(data, topic_values("orders", {"remote.storage.enable": "false"}, topic_id=TOPIC_ID))
    with kafkalog.open(data / "orders-0", tiered=tiered) as log:
        assert log.start_offset == 48


def test_without_events_a_log_that_misses_nothing_is_read(tmp_path: Path) -> None:
    data, tiered = make_data(tmp_path), tmp_path / "tiered.json"
    write_events(data, [])
    shutil.copytree(data / "orders-0", data / "__consumer_offsets-3")  # never tiered
    write_log_start(data, {"orders 0": 48})
    with kafkalog.open_dirs(data, tiered=tiered) as dirs:
        assert dirs["orders", 0].start_offset == 48 and len(list(dirs["orders", 0])) == 32
        assert len(list(dirs["__consumer_offsets", 3])) == 32


@pytest.mark.parametrize("log_start", [0, None])
def test_without_a_topic_id_offsets_before_the_local_log_are_an_error(tmp_path: Path, log_start: int | None) -> None:
    data = make_data(tmp_path)
    write_log_start(data, {} if log_start is None else {"orders 0": log_start})
    (data / "orders-0" / "partition.metadata").unlink()
    with kafkalog.open(data / "orders-0", tiered=tmp_path / "tiered.json") as log:
        with pytest.raises(StorageError, match="offsets 0 to 47"):
            list(log.records())


def test_the_metadata_of_the_cluster_is_found_in_another_of_the_directories(tmp_path: Path) -> None:
    data, other = make_data(tmp_path), tmp_path / "other"
    write_events(data, [])
    other.mkdir()
    write_metadata(other, topic_values("orders", {}, topic_id=TOPIC_ID))
    with kafkalog.open_dirs([data, other], tiered=tmp_path / "tiered.json") as dirs:
        assert len(list(dirs["orders", 0])) == 32


def test_the_topics_file_says_whether_a_topic_is_tiered() -> None:
    known = KnownTopics({"yes": {"remote.storage.enable": "true"}, "no": {}}, None)
    assert [is_tiered(known, topic) for topic in ("yes", "no", "other")] == [True, False, None]


def test_what_is_no_partition_has_no_tiered_files(tmp_path: Path) -> None:
    data, tiered = make_data(tmp_path), tmp_path / "tiered.json"
    with pytest.raises(PartitionNotFound):
        kafkalog.open(data / "orders-1", tiered=tiered)
    (data / "orders-1").mkdir()
    with pytest.raises(NotAPartition, match="no segment files"):
        kafkalog.open(data / "orders-1", tiered=tiered)
    names = ["orders-0", "orders", "orders-", "orders-x", f"orders-0.{'0' * 32}-delete", "-0"]
    assert [partition_in(f"/data/{one}/") is not None for one in names] == [True, False, False, False, False, False]


def test_a_store_that_fails_for_a_moment_is_an_error_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, expected = make_data(tmp_path), values_of(make_log())
    original = RemoteFileSystem._info
    left = 1

    def failing(self: RemoteFileSystem, path: str) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError("the store failed (TimeoutError: too slow)")
        return original(self, path)

    monkeypatch.setattr(RemoteFileSystem, "_info", failing)
    for nth in range(1, 12):
        left = nth
        with kafkalog.open_dirs(data, tiered=tmp_path / "tiered.json") as dirs:
            try:
                found = [(r.offset, r.value) for r in dirs["orders", 0].records()]
            except StorageError as error:
                assert "too slow" in str(error)
                found = [(r.offset, r.value) for r in dirs["orders", 0].records()]
            assert found == expected


def test_many_threads_read_the_same_whole_topic(tmp_path: Path) -> None:
    data, expected = make_data(tmp_path), values_of(make_log())
    with kafkalog.open_dirs(data, tiered=tmp_path / "tiered.json") as dirs, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [(r.offset, r.value) for r in dirs["orders", 0].records()], range(24)))
    assert all(one == expected for one in found)

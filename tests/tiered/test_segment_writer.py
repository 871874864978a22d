"""Segments that the plugin itself wrote, written again: the same objects, as far as keys and compression allow."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import StorageError
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.storage.leader_epoch import EpochEntry
from kafkalog.tiered.description import read_description
from kafkalog.tiered.keys import KeyRing
from kafkalog.tiered.manifest import INDEXES, chunk_sizes, parse_custom
from kafkalog.tiered.metadata_topic import MetadataTopic
from kafkalog.tiered.segment_bytes import ObjectStore, PluginSegment, TieredPartition
from kafkalog.tiered.segment_metadata import RemoteSegment
from kafkalog.tiered.segment_writer import Layout, SegmentWriter, packed_sizes
from kafkalog.util.fileio import OS
from tests.faults import FaultFS
from tests.tiered.test_plugin_objects import DATA, PREFIX, STORES, describe, unpack, write_data
from tests.tiered_store import TOPIC_ID

PARTITION = TieredPartition("orders", 0, TOPIC_ID)
EVENT_MS = 1_700_000_000_000


def objects_below(root: Path) -> dict[str, bytes]:
    return {str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()}


def without_secrets(manifest: bytes) -> Mapping[str, Any]:
    """A manifest without the data key, and the sizes of chunks that were compressed."""
    document: dict[str, Any] = json.loads(manifest)
    if "encryption" in document:
        document["encryption"] = {**document["encryption"], "dataKey": "", "aad": ""}
    if document["chunkIndex"]["type"] == "variable":
        document["chunkIndex"]["transformedChunks"] = ""
    return document


@pytest.mark.parametrize("store", STORES)
def test_a_segment_written_again_is_as_the_plugin_writes_it(tmp_path: Path, store: str) -> None:
    objects = unpack(tmp_path / "objects")
    write_data(objects, store, tmp_path / "data")
    source = ObjectStore(read_description(describe(objects, store)))
    (objects / "again").mkdir()
    description = read_description(describe(objects, store))._replace(store=f"file://{objects}/again")
    target = ObjectStore(description)
    writer = SegmentWriter(target, KeyRing({"key1": str(DATA / "tiered_key.pem")}))
    segments = MetadataTopic(OS, [str(tmp_path / "data")]).copies(PARTITION).finished
    assert len(segments) == 4
    for number, segment in enumerate(segments):
        content = source.content(PARTITION, segment)
        assert isinstance(content, PluginSegment)
        manifest = content.manifest
        key = None if manifest.encryption is None else manifest.encryption.key_id
        layout = Layout(manifest.chunks.chunk_bytes, manifest.is_compressed, key)
        plain = tmp_path / f"plain-{number}"
        plain.write_bytes(content.read_log(0, content.log_bytes))
        with OS.open_file(plain, "r") as data:
            indexes = {suffix: content.index(suffix) for suffix in INDEXES}
            segment = segment._replace(max_timestamp=EVENT_MS + segment.end)
            custom = writer.put(PARTITION, segment, layout, data, indexes, EVENT_MS)
        again = target.content(PARTITION, segment)
        assert again.read_log(0, again.log_bytes) == plain.read_bytes()
        assert {suffix: again.index(suffix) for suffix in INDEXES} == indexes
        assert parse_custom(custom)[:2] == parse_custom(segment.custom)[:2]
        if "zstd" not in store:
            assert custom == segment.custom
    old, new = objects_below(objects / store), objects_below(objects / "again")
    assert old.keys() == new.keys() and all(one.startswith(PREFIX) for one in new) == (store == "zstd-encrypted")
    for name, content_before in old.items():
        if name.endswith("manifest"):
            assert without_secrets(new[name]) == without_secrets(content_before)
        elif "zstd" not in store and "encrypted" not in store:
            assert new[name] == content_before
        elif "zstd" not in store:
            assert len(new[name]) == len(content_before)


@pytest.mark.parametrize("layout", [None, Layout(100, True, "key1"), Layout(100, False, None)])
def test_indexes_of_one_size_are_not_taken_for_each_other(tmp_path: Path, layout: Layout | None) -> None:
    (tmp_path / "store" / (f"orders-0-{TOPIC_ID}" if layout is None else "")).mkdir(parents=True)
    keys = {"key1": str(DATA / "tiered_key.pem")}
    store = ObjectStore(read_description(f"file://{tmp_path}/store")._replace(keys=keys))
    segment = RemoteSegment("A" * 22, 0, 9, 1000, 0, (EpochEntry(0, 0),), None, False, 0)
    indexes = {suffix: suffix.ljust(40).encode() for suffix in INDEXES}
    (tmp_path / "segment.log").write_bytes(bytes(1000))
    with OS.open_file(tmp_path / "segment.log", "r") as data:
        SegmentWriter(store, KeyRing(keys)).put(PARTITION, segment, layout, data, indexes, EVENT_MS)
    content = store.content(PARTITION, segment)
    assert [{suffix: content.index(suffix) for suffix in INDEXES} for _ in range(2)] == [indexes, indexes]


@pytest.mark.parametrize("layout", [None, Layout(100, False, None)])
def test_a_segment_that_is_cut_off_meanwhile_is_an_error(tmp_path: Path, layout: Layout | None) -> None:
    """Its object is never visible: it would be read as one with fewer records."""
    (tmp_path / "store").mkdir()
    store = ObjectStore(read_description(f"file://{tmp_path}/store"))
    segment = RemoteSegment("A" * 22, 0, 9, 1000, 0, (EpochEntry(0, 0),), None, True, 0)
    (tmp_path / "segment.log").write_bytes(bytes(700))
    with OS.open_file(tmp_path / "segment.log", "r") as data, pytest.raises(StorageError) as caught:
        SegmentWriter(store, KeyRing({})).put(PARTITION, segment, layout, data, {}, EVENT_MS)
    assert "700 bytes in place of 1000" in caught.value.message and caught.value.position == 700
    assert not [name for name in objects_below(tmp_path / "store") if not name.endswith(".partial")]


@pytest.mark.parametrize(
    ("most", "width"), [(0, 1), (1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3), (2**24 - 1, 3), (2**24, 4)]
)
def test_sizes_of_chunks_take_as_few_bytes_as_they_need(most: int, width: int) -> None:
    sizes = [7, 7 + most, 7 + most // 2, 3]
    packed = packed_sizes(sizes)
    assert (packed[8], len(packed)) == (width, 9 + 3 * width + 4)
    assert chunk_sizes(bytes(compress(CompressionType.ZSTD, packed))) == sizes
    assert packed_sizes([5]) == b"\0\0\0\1\0\0\0\5"


@pytest.mark.parametrize("url", ["file://{}/store", "local://{}/store", "memory://{}"])
def test_all_objects_of_a_segment_are_deleted(tmp_path: Path, url: str) -> None:
    """Also those that were being written when a run was killed, and no others."""
    store = ObjectStore(read_description(url.format(tmp_path)))
    remote, stem = store.fs.remote, f"{store.fs.root}{tmp_path}/store/{0:020}-{'A' * 22}"
    names = [".log", ".indexes", ".rsm-manifest", ".index", ".timeindex", ".snapshot", ".txnindex"]
    names.append(".leader_epoch_checkpoint")
    if not url.startswith("memory"):
        names += [f"{one}.partial" for one in names]
    for suffix in [*names, ".other"]:
        remote.makedirs(f"{tmp_path}/store", exist_ok=True)
        remote.pipe_file(store.fs.remote_path(stem + suffix), b"x")
    writer = SegmentWriter(store, KeyRing({}))
    writer.delete(stem)
    assert [Path(one).name for one in remote.find(f"{tmp_path}/store")] == [f"{Path(stem).name}.other"]
    writer.delete(stem)


@pytest.mark.parametrize("layout", [None, Layout(400, False, None)])
def test_a_store_that_cannot_be_written_is_named(tmp_path: Path, layout: Layout | None) -> None:
    (tmp_path / "store").mkdir()
    if layout is None:
        (tmp_path / "store" / f"orders-0-{TOPIC_ID}").mkdir()
    store = ObjectStore(read_description(f"file://{tmp_path}/store"))
    segment = RemoteSegment("A" * 22, 0, 9, 1000, 0, (EpochEntry(0, 0),), None, True, 0)
    writer, path = SegmentWriter(store, KeyRing({})), store.stem_of(PARTITION, segment).removeprefix("/file:") + ".log"
    (tmp_path / "segment.log").write_bytes(bytes(1000))
    Path(path, "of a directory").mkdir(parents=True)
    with OS.open_file(tmp_path / "segment.log", "r") as data, pytest.raises(StorageError) as caught:
        writer.put(PARTITION, segment, layout, data, {}, EVENT_MS)
    assert caught.value.path == f"file://{path}" and "write an object of a tiered segment" in caught.value.message
    with pytest.raises(StorageError) as caught:
        writer.delete(store.stem_of(PARTITION, segment))
    assert caught.value.path == f"file://{path}" and "delete an object of a tiered segment" in caught.value.message


def test_a_segment_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    store = ObjectStore(read_description(f"file://{tmp_path}/store"))
    segment = RemoteSegment("A" * 22, 0, 9, 1000, 0, (EpochEntry(0, 0),), None, True, 0)
    (tmp_path / "segment.log").write_bytes(bytes(1000))
    fs = FaultFS()
    fs.fail("pread", path="segment.log", nth=3, code=errno.EIO)
    with fs.open_file(tmp_path / "segment.log", "r") as data, pytest.raises(StorageError) as caught:
        SegmentWriter(store, KeyRing({})).put(PARTITION, segment, Layout(400, False, None), data, {}, EVENT_MS)
    error = caught.value
    assert (error.errno, error.path, error.position) == (errno.EIO, str(tmp_path / "segment.log"), 800)
    assert "read a segment" in error.message

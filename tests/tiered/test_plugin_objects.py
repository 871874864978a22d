"""Objects that the plugin itself wrote (tests/data/tiered_plugin): the store alone, and the topic with its events."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument, StorageError
from tests.tiered_store import FINISHED, TOPIC_ID, Batch, Copy, write_events, write_log_start

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'kafkalog[tiered]'")
DATA = Path(__file__).parents[1] / "data"
PREFIX = "some/prefix/"
STORES = ("plain", "zstd", "encrypted", "zstd-encrypted")
COPIED = 138
"""Offset of the first record that is only in the partition's directory."""


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    return unpack(tmp_path / "objects")


def unpack(objects: Path) -> Path:
    with tarfile.open(DATA / "tiered_plugin" / "objects.tar.gz") as archive:
        archive.extractall(objects, filter="data")
    return objects


def describe(objects: Path, store: str, **fields: Any) -> Path:
    path = objects / f"{store}.json"
    given = {"store": f"file://{objects / store}", "keys": {"key1": str(DATA / "tiered_key.pem")}}
    path.write_text(json.dumps(given | fields | ({"prefix": PREFIX} if store == "zstd-encrypted" else {})))
    return path


def write_data(objects: Path, store: str, data: Path) -> None:
    """Write a data directory with the topic's last segment, and the events of the copies of all others."""
    source = objects / "source" / "orders-0"
    shutil.copytree(source, data / "orders-0")
    (data / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    lines = (objects / "custom-metadata.txt").read_text().splitlines()
    bases = sorted(int(path.stem) for path in source.glob("*.log"))
    events = []
    for line, first, stop in zip(lines, bases, bases[1:], strict=False):
        segment_id, custom = line.split(" ")
        path = data / "orders-0" / f"{first:020}.log"
        copy = Copy(segment_id, [Batch(first, stop, 0, path.read_bytes())])
        value = bytes.fromhex(custom) if store == "zstd-encrypted" else None
        events += [copy.started(), copy.update(FINISHED, value)]
        for local in (data / "orders-0").glob(f"{first:020}.*"):
            local.unlink()
    write_events(data, events)
    write_log_start(data, {"orders 0": 0})


def place_of(objects: Path, store: str) -> Path:
    """The directory of the partition's objects."""
    return objects / store / (PREFIX if store == "zstd-encrypted" else "") / f"orders-{TOPIC_ID}" / "0"


def read_all(place: Path | str, isolation: str = "read_uncommitted", **given: Any) -> list[tuple[Any, ...]]:
    with kafkalog.open(place, **given) as log:
        return [
            (one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
            for one in log.records(isolation=isolation)
        ]


def copied(records: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [one for one in records if one[0] < COPIED]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("store", STORES)
def test_the_store_alone_has_the_records_of_the_source(objects: Path, store: str, isolation: str) -> None:
    expected = copied(read_all(objects / "source" / "orders-0", isolation))
    assert len(expected) == (126 if isolation == "read_uncommitted" else 55)
    url = f"file://{place_of(objects, store)}"
    assert read_all(url, isolation, tiered=describe(objects, store)) == expected


@pytest.mark.parametrize("store", STORES)
def test_the_indexes_find_the_same_records(objects: Path, store: str) -> None:
    times = sorted({one[1] for one in copied(read_all(objects / "source" / "orders-0"))})
    with (
        kafkalog.open(f"file://{place_of(objects, store)}", tiered=describe(objects, store)) as log,
        kafkalog.open(objects / "source" / "orders-0") as source,
    ):
        assert [log.offset_for_time(one) for one in times] == [source.offset_for_time(one) for one in times]
        assert [log[offset].value for offset in (0, 70, 130)] == [source[offset].value for offset in (0, 70, 130)]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("store", STORES)
def test_a_topic_of_which_only_the_last_segment_is_local(
    objects: Path, store: str, isolation: str, tmp_path: Path
) -> None:
    expected = read_all(objects / "source" / "orders-0", isolation)
    is_committed = isolation == "read_committed"  # the open transaction begins in the store
    assert copied(expected) and (copied(expected) == expected) == is_committed
    write_data(objects, store, tmp_path / "data")
    found = describe(objects, store)
    assert [path.name for path in (tmp_path / "data" / "orders-0").glob("*.log")] == [f"{COPIED:020}.log"]
    assert read_all(tmp_path / "data" / "orders-0", isolation, tiered=found) == expected
    with kafkalog.open_dirs(tmp_path / "data", tiered=found) as dirs:
        assert dirs["orders", 0].table(isolation=isolation)["offset"].to_pylist() == [one[0] for one in expected]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
@pytest.mark.parametrize("store", ["zstd", "encrypted", "zstd-encrypted"])
def test_a_damaged_object_is_an_error_that_names_the_segment(
    objects: Path, store: str, damage: Callable[[Path], object]
) -> None:
    (path,) = place_of(objects, store).glob("*64-*.log")
    damage(path)
    with pytest.raises((StorageError, CorruptRecord), match="0{18}64|offsets 64 to 79"):  # zstd has no checksum here
        read_all(f"file://{place_of(objects, store)}", tiered=describe(objects, store))


def test_encrypted_segments_need_the_key(objects: Path) -> None:
    with pytest.raises(IllegalArgument, match="key1"):
        read_all(f"file://{place_of(objects, 'encrypted')}", tiered=describe(objects, "encrypted", keys={}))

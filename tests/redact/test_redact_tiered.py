"""Tiered segments with wanted records are replaced, by objects of the same form and events; readers see one of them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import DirectoryLocked, IllegalArgument, IllegalState, StorageError
from kafkalog.manager.log_dir import LogDir
from kafkalog.records.internal import metadata_record
from kafkalog.records.schemas.remote_log import RECORDS
from kafkalog.redact.directories import redact
from kafkalog.tiered.manifest import parse_custom
from tests.manager.metadata_files import topic_values, write_metadata
from tests.redact.test_redact import tree
from tests.tiered_store import (
    DELETE_STARTED,
    FINISHED,
    TOPIC_ID,
    Copy,
    KeyPair,
    OwnStore,
    PluginStore,
    custom_metadata,
    epochs_of,
    make_batch,
    make_id,
    write_events,
    write_log_start,
    write_partition,
)

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
KEYS = KeyPair()
BATCHES = [make_batch(n * 5, 5, 1) for n in range(8)]  # offsets 0 to 39, with keys k0 to k39
HOW: dict[str, Any] = {
    "own": {}, "plugin": {}, "zstd": {"compressed": True}, "encrypted": {"keys": KEYS},
    "packed": {"compressed": True, "keys": KEYS, "prefix": "some/"},
}  # fmt: skip


class Tiered:
    """A partition with offsets 0 to 19 in the store in two segments, 20 to 39 local, and a description."""

    def __init__(self, root: Path, how: str) -> None:
        self.data = root / "data"
        self.store = OwnStore(root / "store") if how == "own" else PluginStore(root / "store", **HOW[how])
        self.copies = [Copy(make_id(n), BATCHES[2 * n : 2 * n + 2]) for n in range(2)]
        self.events = []
        for copy in self.copies:
            self.add(copy, FINISHED)
        write_partition(self.data / "orders-0", [BATCHES[4:6], BATCHES[6:]], epochs_of(BATCHES))
        write_log_start(self.data, {"orders 0": 0})
        self.write_metadata(1)
        KEYS.write(root / "key1.pem")
        self.description = root / "tiered.json"
        self.description.write_text(
            json.dumps(
                {"store": f"file://{root}/store", "keys": {"key1": "key1.pem"}, "prefix": HOW[how].get("prefix", "")}
            )
        )

    def write_metadata(self, replicas: int) -> None:
        """The cluster's metadata: the topic, and that of the events."""
        topic = topic_values("orders", {"remote.storage.enable": "true"}, topic_id=TOPIC_ID)
        write_metadata(self.data, [*topic, *topic_values("__remote_log_metadata", {}, replicas=replicas)])

    def names(self) -> set[str]:
        """The names of the objects in the store."""
        return {one.name for one in (self.data.parent / "store").rglob("*") if one.is_file()}

    def values(self) -> list[tuple[int, bytes | None]]:
        with kafkalog.open(self.data / "orders-0", tiered=self.description) as log:
            return [(one.offset, one.value) for one in log.records()]

    def add(self, copy: Copy, *states: int) -> None:
        self.store.put(copy)
        self.events += [copy.started(), *(copy.update(state) for state in states)]
        self.rewrite_events()

    def rewrite_events(self) -> None:
        place = self.data / "__remote_log_metadata-0"
        for path in place.glob("*") if place.exists() else ():
            path.unlink()
        write_events(self.data, self.events)

    def redact(self, **given: Any) -> Any:
        return redact(self.data, "orders", change="empty", tiered=self.description, **given)


@pytest.mark.parametrize("how", HOW)
def test_tiered_segments_are_replaced(tmp_path: Path, how: str) -> None:
    tiered = Tiered(tmp_path, how)
    before, names = tiered.values(), tiered.names()
    planned = tiered.redact(keys=[b"k3", b"k25"], offsets={0: [4]})
    assert planned.ok and [(one.base_offset, one.records) for one in planned.segments] == [(0, 2), (20, 1)]
    assert tiered.names() == names and tiered.values() == before
    report = tiered.redact(keys=[b"k3", b"k25"], offsets={0: [4]}, apply=True)
    assert report.ok and report.left == 0 and not report.missing and "none of the records is left" in str(report)
    assert [(one.base_offset, one.records) for one in report.segments] == [(0, 2), (20, 1)]
    assert report.segments[0].path == f"file://{tiered.store.path(tiered.copies[0], '.log')}"
    assert tiered.values() == [(offset, b"" if offset in (3, 4, 25) else value) for offset, value in before]
    old, kept = (one.segment_id for one in tiered.copies)
    assert not [name for name in tiered.names() if old in name] and len(tiered.names()) == len(names)
    assert {name for name in names if kept in name} <= tiered.names()
    assert kafkalog.verify(tiered.data / "orders-0", deep=True, tiered=tiered.description).ok
    again = tiered.redact(keys=[b"k3", b"k25"], offsets={0: [4]}, apply=True)
    assert again.ok and not again.segments and again.summary() == "nothing to redact of 1 partition"


@pytest.mark.parametrize("how", ["plugin", "zstd", "encrypted", "packed"])
def test_the_new_objects_have_the_form_of_the_old_ones(tmp_path: Path, how: str) -> None:
    tiered = Tiered(tmp_path, how)
    old = json.loads(tiered.store.path(tiered.copies[0], ".rsm-manifest").read_text())
    tiered.redact(keys=[b"k3"], apply=True)
    (path,) = (
        one for one in (tmp_path / "store").rglob("00000000000000000000-*.rsm-manifest")
    )  # fmt: skip
    new = json.loads(path.read_text())
    assert new.keys() == old.keys() and new["compression"] == old["compression"]
    assert new["chunkIndex"].keys() == old["chunkIndex"].keys()
    assert new["chunkIndex"]["originalChunkSize"] == old["chunkIndex"]["originalChunkSize"] == 500
    assert new["chunkIndex"]["originalFileSize"] < old["chunkIndex"]["originalFileSize"]
    if "encryption" in old:
        assert new["encryption"]["dataKey"].startswith("key1:")
        assert new["encryption"]["dataKey"] != old["encryption"]["dataKey"]
    described = new["remoteLogSegmentMetadata"]
    assert described.pop("remoteLogSegmentId")["id"] in path.name
    del described["eventTimestampMs"], old["remoteLogSegmentMetadata"]["eventTimestampMs"]
    del old["remoteLogSegmentMetadata"]["remoteLogSegmentId"]
    assert described == old["remoteLogSegmentMetadata"]
    with kafkalog.open(f"file://{path.parent}", tiered=tiered.description) as log:  # by the manifests alone
        assert [one.offset for one in log.records()] == list(range(20)) and log[3].value == b""


def test_by_condition_and_what_is_missing(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "own")
    report = tiered.redact(where="key == 'k7' or key == 'k30'", offsets={0: [99]}, apply=True)
    assert [one.base_offset for one in report.segments] == [0, 30] and report.left == 0
    assert report.missing == ("offset 99 of partition 0",)
    assert [json.loads(line)["type"] for line in report.json_lines()] == ["segment", "segment", "missing", "redact"]
    assert [offset for offset, value in tiered.values() if not value] == [7, 30]


@pytest.mark.parametrize("how", ["own", "plugin"])
def test_copies_that_do_not_count_are_deleted(tmp_path: Path, how: str) -> None:
    """Abandoned copies, those being deleted, and those that no event describes still hold the records."""
    tiered = Tiered(tmp_path, how)
    tiered.add(Copy(make_id(10), BATCHES[:1]))
    tiered.add(Copy(make_id(11), BATCHES[:3]), FINISHED, DELETE_STARTED)
    tiered.add(Copy(make_id(12), BATCHES[:2]), FINISHED)
    tiered.store.put(Copy(make_id(13), [make_batch(0, 5, 0, "lost ")]))
    clean = Copy(make_id(14), BATCHES[2:3])
    tiered.add(clean)
    before = tiered.values()
    assert str(tiered.redact(keys=[b"k3"])).count("--apply deletes it") == 3
    report = tiered.redact(keys=[b"k3"], apply=True)
    assert report.ok and report.left == 0 and len(report.segments) == 1
    assert sum(one.removed for one in report.copies) == 4
    assert not [name for name in tiered.names() for n in (0, 10, 11, 12, 13) if make_id(n) in name]
    assert [name for name in tiered.names() if make_id(14) in name]
    assert tiered.values() == [(offset, b"" if offset == 3 else value) for offset, value in before]


@pytest.mark.parametrize("how", ["own", "packed"])
def test_longer_copies_stay_those_that_are_read(tmp_path: Path, how: str) -> None:
    """Two leaders have copied parts of the same offsets: both are replaced, in the order of the copies before."""
    tiered = Tiered(tmp_path, how)
    tiered.add(Copy(make_id(20), BATCHES[:3]), FINISHED)
    tiered.add(Copy(make_id(21), BATCHES[1:4]), FINISHED)
    before = tiered.values()
    report = tiered.redact(keys=[b"k3", b"k6", b"k12"], apply=True)
    assert report.ok and report.left == 0 and len(report.segments) == 4
    assert tiered.values() == [(offset, b"" if offset in (3, 6, 12) else value) for offset, value in before]


def test_a_copy_that_cannot_be_read_replaces_none(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "plugin")
    other = Copy(make_id(22), BATCHES[:2])
    tiered.add(other, FINISHED)
    tiered.store.path(other, ".rsm-manifest").unlink()
    report = tiered.redact(keys=[b"k3"], apply=True)
    assert len(report.segments) == 1 and not any(one.removed for one in report.copies)
    manifests = [name for name in tiered.names() if name.startswith("0" * 20) and name.endswith("manifest")]
    assert len(manifests) == 1 and tiered.copies[0].segment_id not in manifests[0]


def test_a_copy_under_a_name_of_the_plugins_own_is_replaced(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "plugin")
    copy = Copy(make_id(20), BATCHES[:3])
    tiered.store.put(copy)
    for suffix in (".log", ".indexes", ".rsm-manifest"):
        tiered.store.path(copy, suffix).rename(tmp_path / "store" / f"elsewhere{suffix}")
    tiered.events += [copy.started(), copy.update(FINISHED, custom_metadata(key="elsewhere"))]
    tiered.rewrite_events()
    report = tiered.redact(keys=[b"k3"], apply=True)
    assert report.left == 0 and any(one.path.endswith("/elsewhere.log") for one in report.segments)
    assert not [name for name in tiered.names() if name.startswith("elsewhere")]
    assert [offset for offset, value in tiered.values() if not value] == [3]
    events = list(decoded_events(tiered.data))
    size = sum(one.stat().st_size for one in (tmp_path / "store").rglob(f"*{events[-4]['remoteLogSegmentId']['id']}*"))
    custom = parse_custom(events[-3]["customMetadata"])
    assert custom.size == size and custom.key and custom.key.endswith(events[-4]["remoteLogSegmentId"]["id"])


def decoded_events(data: Path) -> Iterator[dict[str, Any]]:
    with kafkalog.open(data / "__remote_log_metadata-0") as log:
        for record in log.records():
            yield dict(metadata_record(record.value or b"", RECORDS).data)


def test_the_events_of_a_replaced_segment(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "plugin")
    count = len(tiered.events)
    tiered.redact(keys=[b"k3"], apply=True)
    events = list(decoded_events(tiered.data))
    assert len(events) == count + 4
    started, finished, deleting, deleted = events[count:]
    assert [one["remoteLogSegmentState"] for one in events[count:]] == [0, 1, 2, 3]
    new, old = started["remoteLogSegmentId"]["id"], tiered.copies[0].segment_id
    assert finished["remoteLogSegmentId"]["id"] == new != old
    assert deleting["remoteLogSegmentId"]["id"] == deleted["remoteLogSegmentId"]["id"] == old
    unchanged = ("startOffset", "endOffset", "maxTimestampMs", "segmentLeaderEpochs", "brokerId")
    assert [started[name] for name in unchanged] == [events[0][name] for name in unchanged]
    assert started["segmentSizeInBytes"] < events[0]["segmentSizeInBytes"]


def test_an_object_that_cannot_be_searched_is_named(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "packed")
    copy = Copy(make_id(30), BATCHES[:1])
    tiered.store.put(copy)
    tiered.store.path(copy, ".rsm-manifest").unlink()
    report = tiered.redact(keys=[b"k25"], apply=True)
    assert "without a manifest" in str(report) and "what was not redacted may hold them" in str(report)
    tiered.add(copy)
    tiered.store.path(copy, ".rsm-manifest").unlink()
    assert "removed" in str(tiered.redact(keys=[b"k25"], apply=True))  # its copy was not finished
    assert not [name for name in tiered.names() if copy.segment_id in name]
    tiered.store.path(tiered.copies[0], ".log").unlink()
    with pytest.raises(StorageError, match="missing"):
        tiered.redact(keys=[b"k25"], apply=True)


def test_objects_without_any_event_are_left(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "plugin")
    tiered.events = [Copy(make_id(40), BATCHES[:1], topic="other").started()]
    tiered.rewrite_events()
    names = tiered.names()
    report = tiered.redact(keys=[b"k3"], apply=True)
    assert not report.ok and report.left == 1 and [one.base_offset for one in report.held] == [0]
    assert "no event of it" in str(report) and tiered.names() == names


def test_objects_whose_events_were_deleted_are_left(tmp_path: Path) -> None:
    """They may belong to a copy that counts."""
    tiered = Tiered(tmp_path, "plugin")
    write_log_start(tiered.data, {"orders 0": 10, "__remote_log_metadata 0": 2})
    names = tiered.names()
    for apply in (False, True):
        report = tiered.redact(keys=[b"k3"], apply=apply)
        assert [one.base_offset for one in report.held] == [0] and tiered.names() == names
        assert not report.copies and not report.segments
    assert not report.ok and report.left == 1


def test_a_store_without_the_partition_has_none_of_its_records(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "plugin")
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "store").mkdir()
    tiered.events = [Copy(make_id(40), BATCHES[:1], topic="other").started()]
    tiered.rewrite_events()
    write_log_start(tiered.data, {"orders 0": 20})
    report = tiered.redact(keys=[b"k3", b"k25"], apply=True)
    assert report.left == 0 and [one.base_offset for one in report.segments] == [20]


@pytest.mark.parametrize("replicas", [None, 2])
def test_nothing_changes_unless_each_replica_is_there(tmp_path: Path, replicas: int | None) -> None:
    tiered = Tiered(tmp_path, "plugin")
    if replicas is None:
        write_metadata(tiered.data, topic_values("orders", {"remote.storage.enable": "true"}, topic_id=TOPIC_ID))
    else:
        tiered.write_metadata(replicas)
    before = tree(tmp_path / "store")
    with pytest.raises(IllegalArgument, match="replicas") as caught:
        tiered.redact(keys=[b"k3"], apply=True)
    assert "metadata" in caught.value.hint and tree(tmp_path / "store") == before
    assert tiered.redact(keys=[b"k25"], apply=True).left == 0  # no tiered segment has it


def test_each_replica_gets_the_events(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "plugin")
    tiered.write_metadata(2)
    other = tmp_path / "broker-2"
    shutil.copytree(tiered.data / "__remote_log_metadata-0", other / "__remote_log_metadata-0")
    description = json.loads(tiered.description.read_text()) | {"metadata": ["data", "broker-2"]}
    tiered.description.write_text(json.dumps(description))
    assert tiered.redact(keys=[b"k3"], apply=True).left == 0
    logs = [(one / "__remote_log_metadata-0").glob("*.log") for one in (tiered.data, other)]
    first, second = (b"".join(path.read_bytes() for path in sorted(found)) for found in logs)
    assert first == second and len(list(decoded_events(other))) == len(tiered.events) + 4
    shutil.rmtree(other / "__remote_log_metadata-0")
    write_events(other, tiered.events)
    with pytest.raises(IllegalState, match="end at different offsets"):
        tiered.redact(keys=[b"k13"], apply=True)


def test_metadata_in_use_or_at_a_url_is_refused(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "plugin")
    with LogDir.acquire(tiered.data, exclusive=True), pytest.raises(DirectoryLocked):
        tiered.redact(keys=[b"k3"], apply=True)
    description = json.loads(tiered.description.read_text()) | {"metadata": [f"file://{tiered.data}"]}
    tiered.description.write_text(json.dumps(description))
    assert tiered.redact(keys=[b"k3"]).records == 1
    with pytest.raises(IllegalArgument, match="at a URL"):
        tiered.redact(keys=[b"k3"], apply=True)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_tiered_topic_without_its_store_is_not_proven(tmp_path: Path, is_known: bool) -> None:
    tiered = Tiered(tmp_path, "own")
    if is_known:
        write_metadata(tiered.data, topic_values("orders", {"remote.storage.enable": "true"}, topic_id=TOPIC_ID))
    report = redact(tiered.data, "orders", keys=[b"k25"], apply=True, change=None if is_known else "empty")
    assert report.records == 1 and report.left is None and not report.ok
    assert "not searched: segments in remote storage" in str(report) and "--tiered" in str(report)
    assert "none of the records" not in str(report)
    report = redact(tiered.data, "orders", keys=[b"k25"], tiered=tiered.description, change="empty", apply=True)
    assert report.left == 0 and report.ok

"""A partition in a tiered store alone, without a broker's directory."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.tiered import segment_bytes
from kafkalog.tiered.manifest import Manifest, parse_manifest
from kafkalog.tiered.place import tiered_place
from tests import transactional
from tests.tiered.test_transactions import batches_of
from tests.tiered.test_whole_topics import cut_segments, make_history
from tests.tiered_store import (
    FINISHED,
    TOPIC_ID,
    Copy,
    KeyPair,
    OwnStore,
    PluginStore,
    make_batch,
    make_id,
    values_of,
    write_events,
)

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
KEYS = KeyPair()


def describe(where: Path, **fields: Any) -> Path:
    KEYS.write(where / "key1.pem")
    path = where / "tiered.json"
    path.write_text(json.dumps({"store": f"file://{where}/store", "keys": {"key1": "key1.pem"}} | fields))
    return path


@pytest.mark.parametrize("how", [{}, {"compressed": True}, {"keys": KEYS}, {"compressed": True, "keys": KEYS}])
@pytest.mark.parametrize("with_events", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_last_leaders_log_is_read_from_the_store(
    tmp_path: Path, seed: int, with_events: bool, how: dict[str, Any]
) -> None:
    rng = random.Random(seed)
    history = make_history(rng)
    store = PluginStore(tmp_path / "store", chunk_bytes=300, **how)
    copies = [Copy(make_id(n), one) for n, one in enumerate(cut_segments(rng, history.log))]
    copies += [Copy(make_id(100 + n), one) for n, one in enumerate(cut_segments(rng, history.log)[:2])]
    for log in history.lost:
        copies += [Copy(make_id(200 + len(copies) + n), one) for n, one in enumerate(cut_segments(rng, log))]
    end = history.log[-1].stop
    events = []
    rng.shuffle(copies)
    for copy in copies:
        store.put(copy)
        events += [copy.started(), copy.update(FINISHED)]
    fields = {}
    if with_events:
        write_events(tmp_path / "data", events)
        fields = {"metadata": ["data"]}
        unfinished = Copy(make_id(999), [make_batch(0, 3, 90, "not ")])
        store.put(unfinished)
        write_events(tmp_path / "data", [*events, unfinished.started()])
    where = f"file://{tmp_path}/store/orders-{TOPIC_ID}/0"
    with kafkalog.open(where, tiered=describe(tmp_path, **fields)) as log:
        assert [(record.offset, record.value) for record in log.records()] == values_of(history.log)
        assert log.offset_for_time(-1).offset == end  # type: ignore[union-attr]


def test_places_by_their_names() -> None:
    own, plugin = f"/s/or-ders-7-{TOPIC_ID}", f"/s/or-ders-{TOPIC_ID}"
    assert tiered_place(f"{own}/") == (f"{own}/", ("or-ders", 7, TOPIC_ID), False)
    for number in (0, 1234567890):
        path = f"{plugin}/{number}"
        assert tiered_place(path) == (path, ("or-ders", number, TOPIC_ID), True)
    others = plugin, f"{plugin}/12345678901", f"{plugin}/x", f"{own}x", f"/s/-7-{TOPIC_ID}", f"/s/{TOPIC_ID}/0", "/s/t"
    assert [tiered_place(one) for one in others] == [None] * 7


def test_an_encrypted_place_needs_its_key(tmp_path: Path) -> None:
    copy = Copy(make_id(1), [make_batch(0, 5, 0)])
    PluginStore(tmp_path / "store", keys=KEYS).put(copy)
    where = f"file://{tmp_path}/store/orders-{TOPIC_ID}/0"
    with pytest.raises(IllegalArgument, match="private key was not given") as caught:
        kafkalog.open(where)
    assert "keys" in str(caught.value.hint)
    with kafkalog.open(where, tiered=describe(tmp_path)) as log:
        assert len(list(log)) == 5


def test_a_missing_segment_is_an_error_not_a_gap(tmp_path: Path) -> None:
    log_batches = [make_batch(n * 5, 5, 0) for n in range(3)]
    store = PluginStore(tmp_path / "store", compressed=True)
    for number in (0, 2):
        store.put(Copy(make_id(number), [log_batches[number]]))
    found = []
    with kafkalog.open(f"file://{tmp_path}/store/orders-{TOPIC_ID}/0") as log:
        with pytest.raises(StorageError, match="offsets 5 to 9"):
            found.extend(record.offset for record in log.records())
        assert log[12].offset == 12


@pytest.mark.parametrize("index", ["sound", "missing"])
def test_a_missing_segment_of_kafkas_own_file_store_is_an_error_too(tmp_path: Path, index: str) -> None:
    log_batches = [make_batch(n * 5, 5, 0) for n in range(4)]
    store = OwnStore(tmp_path / "store")
    for number, part in ((0, log_batches[:1]), (1, log_batches[2:3]), (2, log_batches[2:])):
        store.put(Copy(make_id(number), part))
        if index == "missing":
            store.path(Copy(make_id(number), part), ".index").unlink()
    found = []
    with kafkalog.open(f"file://{tmp_path}/store/orders-0-{TOPIC_ID}") as log:
        with pytest.raises(StorageError, match="offsets 5 to 9"):
            found.extend(record.offset for record in log.records())
        assert found == [*range(5)]
        assert [record.offset for record in log.records(10)] == [*range(10, 20)]


def test_what_follows_a_copy_within_another_one_is_an_error(tmp_path: Path) -> None:
    """It may be of a leader that truncated what the other one has behind it: only the events say that."""
    batches, store = [make_batch(n * 5, 5, 0) for n in range(6)], OwnStore(tmp_path / "store")
    for number, part in enumerate((batches[:4], batches[1:2], batches[4:])):
        store.put(Copy(make_id(number), part))
    with kafkalog.open(f"file://{tmp_path}/store/orders-0-{TOPIC_ID}") as log:
        found = []
        with pytest.raises(StorageError, match="offsets 10 to 19"):
            found.extend((record.offset, record.value) for record in log.records())
        assert found == values_of(batches[:2])
        assert [(record.offset, record.value) for record in log.records(20)] == values_of(batches[4:])


def test_a_segment_that_is_still_copied_is_read_whole_later(tmp_path: Path) -> None:
    log_batches = [make_batch(n * 5, 5, 0) for n in range(4)]
    store, copy = OwnStore(tmp_path / "store"), Copy(make_id(1), log_batches[2:])
    store.put(Copy(make_id(0), log_batches[:2]))
    store.put(copy)
    path, content = store.path(copy, ".log"), store.path(copy, ".log").read_bytes()
    path.write_bytes(content[: len(log_batches[2].data)])
    with kafkalog.open(f"file://{tmp_path}/store/orders-0-{TOPIC_ID}") as log:
        assert [record.offset for record in log.records()] == [*range(15)]
        path.write_bytes(content)
        path.rename(path.with_suffix(".new")).rename(path)  # the directory changes
        assert log.end_offset == 20
        assert [record.offset for record in log.records()] == [*range(20)]


def test_each_manifest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, log_batches = PluginStore(tmp_path / "store"), [make_batch(n * 5, 5, 0) for n in range(5)]
    for number in range(4):
        store.put(Copy(make_id(number), log_batches[number : number + 1]))
    parsed = []

    def counted(content: bytes) -> Manifest:
        parsed.append(content)
        return parse_manifest(content)

    monkeypatch.setattr(segment_bytes, "parse_manifest", counted)
    with kafkalog.open(f"file://{tmp_path}/store/orders-{TOPIC_ID}/0") as log:
        assert len(list(log)) == 20
        store.put(Copy(make_id(4), log_batches[4:]))
        assert log.end_offset == 25 and len(list(log)) == 25
    assert len(parsed) == 5


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    store, copy = PluginStore(tmp_path / "store"), Copy(make_id(1), [make_batch(0, 5, 0)])
    store.put(copy)
    store.path(copy, ".rsm-manifest").write_text("[]")
    with pytest.raises(StorageError, match="manifest is damaged") as caught:
        kafkalog.open(f"file://{tmp_path}/store/orders-{TOPIC_ID}/0")
    assert caught.value.path == f"file://{store.path(copy, '.rsm-manifest')}"


def test_a_manifest_whose_segment_cannot_be_right_is_named(tmp_path: Path) -> None:
    """Without it, the copies written last would count, which may be those of a lost leader."""
    store, copy = PluginStore(tmp_path / "store"), Copy(make_id(1), [make_batch(0, 5, 0)])
    store.put(copy)
    path = store.path(copy, ".rsm-manifest")
    manifest = json.loads(path.read_text())
    manifest["remoteLogSegmentMetadata"]["segmentLeaderEpochs"] = {"x": 0}
    path.write_text(json.dumps(manifest))
    with pytest.raises(StorageError, match="manifest is damaged") as caught:
        kafkalog.open(f"file://{tmp_path}/store/orders-{TOPIC_ID}/0")
    assert caught.value.path == f"file://{path}"


def test_events_decide_in_kafkas_own_file_store(tmp_path: Path) -> None:
    batches = [make_batch(n * 5, 5, 0) for n in range(3)]
    store, events = OwnStore(tmp_path / "store"), []
    for copy in (Copy(make_id(0), batches[:2]), Copy(make_id(1), batches[2:])):
        store.put(copy)
        events += [copy.started(), copy.update(FINISHED)]
    unfinished = Copy(make_id(2), [make_batch(0, 2, 5, "not ")])
    store.put(unfinished)
    write_events(tmp_path / "data", [*events, unfinished.started()])
    where = f"file://{tmp_path}/store/orders-0-{TOPIC_ID}"
    with kafkalog.open(where, tiered=describe(tmp_path, metadata=["data"])) as log:
        assert [(record.offset, record.value) for record in log.records()] == values_of(batches)


@pytest.mark.parametrize("with_events", [False, True])
@pytest.mark.parametrize("prefix", ["x-", "kafka/x-", "kafka/", ""])
def test_a_prefix_is_no_part_of_the_topic(tmp_path: Path, prefix: str, with_events: bool) -> None:
    store, copy = PluginStore(tmp_path / "store", prefix=prefix), Copy(make_id(0), [make_batch(0, 5, 0)])
    store.put(copy)
    write_events(tmp_path / "data", [copy.started(), copy.update(FINISHED)])
    fields = {"metadata": ["data"]} if with_events else {}
    url = f"file://{tmp_path}/store/{prefix}orders-{TOPIC_ID}/0"
    with kafkalog.open(url, tiered=describe(tmp_path, prefix=prefix, **fields)) as log:
        assert log.name == "orders-0" and len(list(log)) == 5
    with kafkalog.open(url, tiered=describe(tmp_path, prefix=f"{prefix}y-")) as log:
        assert log.name == f"{prefix.removeprefix('kafka/')}orders-0", "the objects have another prefix"


@pytest.mark.parametrize("how", [{}, {"compressed": True}])
def test_of_manifests_that_do_not_describe_a_segment_the_last_one_counts(tmp_path: Path, how: dict[str, Any]) -> None:
    """Those of early versions of the plugin have no description."""
    store, kept = PluginStore(tmp_path / "store", **how), [make_batch(n * 5, 5, 0) for n in (0, 1, 3)]
    batches = [make_batch(5, 5, 0, "lost "), *kept]
    copies = [Copy(make_id(n), [one]) for n, one in enumerate(batches)]
    for number, copy in enumerate(copies):
        store.put(copy)
        path = store.path(copy, ".rsm-manifest")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"remoteLogSegmentMetadata": None}))
        os.utime(store.path(copy, ".log"), (number, number))
    found = []
    with kafkalog.open(f"file://{tmp_path}/store/orders-{TOPIC_ID}/0") as log:
        with pytest.raises(StorageError, match="offsets 10 to 14"):
            found.extend((record.offset, record.value) for record in log.records())
        assert found == values_of(kept[:2]) and log[17].offset == 17
    if how:
        path = store.path(copies[1], ".log")
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
        with kafkalog.open(f"file://{tmp_path}/store/orders-{TOPIC_ID}/0") as log:
            with pytest.raises(StorageError, match="is damaged"):
                list(log.records())
            assert log[7].offset == 7 and log[17].offset == 17


@pytest.mark.parametrize("with_indexes", [True, False])
def test_committed_records_of_kafkas_own_file_store(tmp_path: Path, with_indexes: bool) -> None:
    """Its segments without an aborted transaction have no transaction index; one that is lost costs a scan."""
    first: list[transactional.Event] = [("data", 1, 3), ("data", 2, 2), ("plain", 0, 2), ("roll", 0, 0)]
    second: list[transactional.Event] = [("data", 1, 2), ("abort", 1, 0), ("plain", 0, 1), ("commit", 2, 0)]
    log, store = transactional.made([*first, *second, ("roll", 0, 0), ("plain", 0, 1)]), OwnStore(tmp_path / "store")
    for number, (base, parts) in enumerate(log.segments.items()):
        index = transactional.txn_index(log.indexes[base]) if with_indexes and log.indexes[base] else None
        store.put(Copy(make_id(number), batches_of(parts)), index)
    with kafkalog.open(f"file://{tmp_path}/store/orders-0-{TOPIC_ID}") as whole:
        found = [record.offset for record in whole.records(isolation="read_committed")]
        assert found == log.committed() and len(found) == 6
        assert [one.last_offset for one in whole.aborted_txns] == ([9] if with_indexes else [])

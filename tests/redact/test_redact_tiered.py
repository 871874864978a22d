"""Tiered segments that hold wanted records are named and count as left: the proof never says none while one does."""

import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import StorageError
from kafkalog.redact.directories import redact
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
    "own": {}, "plugin": {}, "packed": {"compressed": True, "keys": KEYS, "prefix": "some/"},
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
        KEYS.write(root / "key1.pem")
        self.description = root / "tiered.json"
        self.description.write_text(
            json.dumps(
                {"store": f"file://{root}/store", "keys": {"key1": "key1.pem"}, "prefix": HOW[how].get("prefix", "")}
            )
        )

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
def test_records_in_tiered_segments_are_left_and_named(tmp_path: Path, how: str) -> None:
    tiered = Tiered(tmp_path, how)
    before = tree(tmp_path / "store")
    for apply in (False, True):
        report = tiered.redact(keys=[b"k3", b"k25"], offsets={0: [13]}, apply=apply)
        assert not report.ok and not report.missing
        assert [(one.base_offset, one.records) for one in report.held] == [(0, 1), (10, 1)]
        assert [one.path for one in report.held] == [
            f"file://{tiered.store.path(one, '.log')}" for one in tiered.copies
        ]
        assert report.left == (2 if apply else None) and "none of the records" not in str(report)
        assert "cannot be rewritten" in str(report)
    assert tree(tmp_path / "store") == before
    with kafkalog.open(tiered.data / "orders-0") as log:
        assert log[25].value == b"" and log[24].value
    report = tiered.redact(keys=[b"k25"], apply=True)
    assert report.ok and report.left == 0 and not report.held and "none of the records is left" in str(report)


def test_by_condition_and_what_is_missing(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "own")
    report = tiered.redact(where="key == 'k7' or key == 'k30'", offsets={0: [99]}, apply=True)
    assert [one.records for one in report.held] == [1] and report.records == 1 and report.left == 1
    assert report.missing == ("offset 99 of partition 0",)
    assert [json.loads(line)["type"] for line in report.json_lines()] == ["segment", "held", "missing", "redact"]


@pytest.mark.parametrize("how", ["own", "plugin"])
def test_copies_that_do_not_count_are_searched_too(tmp_path: Path, how: str) -> None:
    """Abandoned copies, those being deleted, and those that another one replaced still hold the records."""
    tiered = Tiered(tmp_path, how)
    tiered.add(Copy(make_id(10), BATCHES[:1]))
    tiered.add(Copy(make_id(11), BATCHES[:3]), FINISHED, DELETE_STARTED)
    tiered.add(Copy(make_id(12), BATCHES[:2]), FINISHED)
    lost = [make_batch(0, 5, 0, "lost ")]
    tiered.store.put(Copy(make_id(13), lost))
    report = tiered.redact(keys=[b"k3"], apply=True)
    assert len(report.held) == report.left == 5


def test_a_copy_under_a_name_of_the_plugins_own_is_searched(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "plugin")
    copy = Copy(make_id(20), BATCHES[:2])
    tiered.store.put(copy)
    for suffix in (".log", ".indexes", ".rsm-manifest"):
        place = tmp_path / "store" / f"elsewhere{suffix}"
        tiered.store.path(copy, suffix).rename(place)
    tiered.events += [copy.started(), copy.update(FINISHED, custom_metadata(key="elsewhere"))]
    tiered.rewrite_events()
    report = tiered.redact(keys=[b"k3"], apply=True)
    assert any(one.path.endswith("/elsewhere.log") for one in report.held)


def test_an_object_that_cannot_be_searched_is_named(tmp_path: Path) -> None:
    tiered = Tiered(tmp_path, "packed")
    copy = Copy(make_id(30), BATCHES[:1])
    tiered.store.put(copy)
    tiered.store.path(copy, ".rsm-manifest").unlink()
    report = tiered.redact(keys=[b"k25"], apply=True)
    assert "without a manifest" in str(report) and "what was not redacted may hold them" in str(report)
    tiered.store.path(tiered.copies[0], ".log").unlink()
    with pytest.raises(StorageError, match="missing"):
        tiered.redact(keys=[b"k25"], apply=True)


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

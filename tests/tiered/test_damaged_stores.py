"""Damage in a tiered store: each read raises a typed error that names the object, and never returns less."""

import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord, KafkalogError, StorageError
from tests.tiered_store import (
    FINISHED,
    Batch,
    Copy,
    KeyPair,
    PluginStore,
    custom_metadata,
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


class Place(NamedTuple):
    """A partition of three tiered segments and a local one, with its store."""

    directory: Path
    description: Path
    store: PluginStore
    copies: list[Copy]
    batches: list[Batch]

    def open(self) -> kafkalog.Log:
        return kafkalog.open(self.directory, tiered=self.description)

    def object(self, suffix: str) -> Path:
        """Object of the middle segment."""
        return self.store.path(self.copies[1], suffix)


def make_place(where: Path, *, custom: bytes | None = None, prefix: str | None = None, **how: Any) -> Place:
    batches = [make_batch(n * 3, 3, 0, pad=60) for n in range(24)]
    copies = [Copy(make_id(n), batches[n * 6 : n * 6 + 6]) for n in range(3)]
    store = PluginStore(where / "store", chunk_bytes=300, **how)
    events = []
    for copy in copies:
        store.put(copy)
        events += [copy.started(), copy.update(FINISHED, custom)]
    write_partition(where / "data" / "orders-0", [batches[18:]], epochs_of(batches))
    write_log_start(where / "data", {"orders 0": 0})
    write_events(where / "data", events)
    KEYS.write(where / "key1.pem")
    description: dict[str, Any] = {"store": f"file://{where}/store", "keys": {"key1": "key1.pem"}}
    if prefix is not None:
        description["prefix"] = prefix
    (where / "tiered.json").write_text(json.dumps(description))
    return Place(where / "data" / "orders-0", where / "tiered.json", store, copies, batches)


WAYS: dict[str, dict[str, Any]] = {
    "plain": {}, "zstd": {"compressed": True}, "encrypted": {"keys": KEYS}, "both": {"compressed": True, "keys": KEYS},
}  # fmt: skip


@pytest.fixture(params=WAYS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield make_place(tmp_path, **WAYS[request.param])


def read_until_error(place: Place) -> KafkalogError | None:
    """Read the log; what was read is a beginning of it, and all of it without an error."""
    expected, found = values_of(place.batches), []
    try:
        with place.open() as log:
            assert log.end_offset == expected[-1][0] + 1
            for record in log.records():
                found.append((record.offset, record.value))
    except KafkalogError as error:
        assert found == expected[: len(found)]
        return error
    assert found == expected
    return None


def test_a_sound_store_is_read(place: Place) -> None:
    assert read_until_error(place) is None
    assert kafkalog.verify(place.directory, tiered=place.description).ok


@pytest.mark.parametrize("suffix", [".log", ".rsm-manifest"])
@pytest.mark.parametrize("how", ["missing", "empty", "short", "long"])
def test_an_object_that_is_missing_or_of_another_size_is_named(place: Place, suffix: str, how: str) -> None:
    path = place.object(suffix)
    content = path.read_bytes()
    changed = {"empty": b"", "short": content[:-1], "long": content + b"x"}
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(changed[how])
    error = read_until_error(place)
    if how == "long" and suffix == ".log" and (place.store.compressed or place.store.keys):
        assert error is None  # no chunk reaches into it
        return
    assert isinstance(error, StorageError) and error.offset == place.copies[1].first
    assert error.path == f"file://{path}" and error.hint
    report = kafkalog.verify(place.directory, tiered=place.description)
    assert not report.ok and path.name in "\n".join(report.lines())


@pytest.mark.parametrize("suffix", [".log", ".rsm-manifest"])
def test_an_object_that_cannot_be_read_is_named(tmp_path: Path, suffix: str) -> None:
    place = make_place(tmp_path, compressed=True)
    place.object(suffix).unlink()
    place.object(suffix).mkdir()
    error = read_until_error(place)
    assert isinstance(error, StorageError) and (error.path, error.offset) == (f"file://{place.object(suffix)}", 18)
    assert error.message == "cannot read an object of a tiered segment: Is a directory" and error.hint == "try again"


def test_no_byte_of_the_data_can_change_unnoticed(place: Place) -> None:
    path = place.object(".log")
    content = path.read_bytes()
    rng = random.Random(7)
    unnoticed = 0
    for at in rng.sample(range(len(content)), 25 if place.store.keys else 60):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
        try:
            error = read_until_error(place)
        except AssertionError:  # a byte that no checksum covers, as in a local segment: a base offset or an epoch
            assert not place.store.keys
            continue
        unnoticed += error is None
        assert error is None or isinstance(error, CorruptRecord | StorageError)
    assert unnoticed <= (0 if place.store.keys else 12)


def test_a_changed_manifest_never_changes_what_is_read(place: Place) -> None:
    path = place.object(".rsm-manifest")
    content = path.read_bytes()
    rng = random.Random(8)
    for at in rng.sample(range(len(content)), 30 if place.store.keys else 120):
        path.write_bytes(content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :])
        error = read_until_error(place)
        assert error is None or isinstance(error, StorageError | IllegalArgument | CorruptRecord), error


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "version": lambda m: m.update(version="2"),
    "size": lambda m: m["chunkIndex"].update(originalFileSize=100),
    "large": lambda m: m["chunkIndex"].update(originalFileSize=2**31 - 1),
    "chunk": lambda m: m["chunkIndex"].update(originalChunkSize=0),
    "negative": lambda m: m["chunkIndex"].update(originalChunkSize=-5),
    "other chunk": lambda m: m["chunkIndex"].update(originalChunkSize=299),
    "type": lambda m: m["chunkIndex"].update(type="else"),
    "no index": lambda m: m.pop("chunkIndex"),
    "compression": lambda m: m.update(compression=not m["compression"]),
    "not a flag": lambda m: m.update(compression=1),
    "key": lambda m: m.update(encryption={"dataKey": "key1:AAAA", "aad": "AAAA"}),
    "key text": lambda m: m.update(encryption={"dataKey": "nothing", "aad": "AAAA"}),
    "unknown key": lambda m: m.update(encryption={"dataKey": "key9:AAAA", "aad": "AAAA"}),
    "list": lambda m: m.update(segmentIndexes=[]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_lies_is_an_error(place: Place, lie: str) -> None:
    path = place.object(".rsm-manifest")
    manifest = json.loads(path.read_text())
    LIES[lie](manifest)
    path.write_text(json.dumps(manifest))
    error = read_until_error(place)
    if lie == "unknown key":
        assert isinstance(error, IllegalArgument) and "key9" in str(error) and "key1" in str(error.hint)
    elif lie == "other chunk" and not (place.store.compressed or place.store.keys):
        assert error is None  # the object is the segment itself
    else:
        assert isinstance(error, StorageError) and error.offset == place.copies[1].first
        assert place.copies[1].segment_id in str(error.path)


def test_chunks_of_another_order_are_an_error(tmp_path: Path) -> None:
    place = make_place(tmp_path, keys=KEYS)
    other = place.store.path(place.copies[2], ".log").read_bytes()
    place.object(".log").write_bytes(other[: len(place.object(".log").read_bytes())])
    error = read_until_error(place)
    assert isinstance(error, StorageError) and "authentication tag" in str(error)


@pytest.mark.parametrize("how", ["another", "not given", "not a key", "no file", "of another kind"])
def test_a_wrong_key_is_an_error(tmp_path: Path, how: str) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    place = make_place(tmp_path, keys=KEYS)
    key, expected = tmp_path / "key1.pem", "does not open the data key"
    if how == "another":
        KeyPair().write(key)
    elif how == "not given":
        place.description.write_text(json.dumps({"store": f"file://{tmp_path}/store"}))
        expected = "private key was not given"
    elif how == "not a key":
        key.write_text("nothing")
        expected = "no private key in PEM"
    elif how == "no file":
        key.unlink()
        expected = "cannot read the private key"
    else:
        ed = Ed25519PrivateKey.generate()
        key.write_bytes(ed.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        expected = "no RSA key"
    error = read_until_error(place)
    assert isinstance(error, StorageError | IllegalArgument) and expected in str(error) and error.hint
    is_of_segment = how in ("another", "not given")
    manifest = place.store.path(place.copies[0], ".rsm-manifest")
    assert (error.path, error.offset) == ((f"file://{manifest}", 0) if is_of_segment else (str(key), None))


def test_damaged_indexes_cost_no_record(place: Place) -> None:
    path = place.object(".indexes")
    path.write_bytes(bytes(byte ^ 0x55 for byte in path.read_bytes()))
    assert read_until_error(place) is None
    path.unlink()
    assert read_until_error(place) is None


@pytest.mark.parametrize("how", ["later", "middle", "beyond", "negative", "missing"])
def test_an_index_that_lies_cuts_no_record_off(tmp_path: Path, how: str) -> None:
    log = [make_batch(n * 4, 4, n // 5, pad=40) for n in range(20)]
    store = PluginStore(tmp_path / "store", chunk_bytes=400)
    copies = [Copy(make_id(0), log[:4]), Copy(make_id(1), log[2:14])]
    events = []
    for copy in copies:
        store.put(copy)
        events += [copy.started(), copy.update(FINISHED)]
    write_partition(tmp_path / "data" / "orders-0", [log[12:]], epochs_of(log))
    write_log_start(tmp_path / "data", {"orders 0": 0})
    write_events(tmp_path / "data", events)
    manifest = json.loads(store.path(copies[1], ".rsm-manifest").read_text())
    path, place = store.path(copies[1], ".indexes"), manifest["segmentIndexes"]["offset"]
    content = bytearray(path.read_bytes())
    at, stop = place["position"], place["position"] + place["size"]
    entries = list(struct.iter_unpack(">ii", content[at:stop]))
    size = len(copies[1].data)
    if how in ("later", "missing"):
        last = entries[-1][1]
        entries = [(r, last) for r, _ in entries]
    else:
        entries = [(r, {"middle": p + 7, "beyond": size + 5, "negative": -3}[how]) for r, p in entries]
    content[at:stop] = b"".join(struct.pack(">ii", *one) for one in entries)
    path.write_bytes(content)
    if how == "missing":
        path.unlink()
    with kafkalog.open(tmp_path / "data" / "orders-0", tiered=f"file://{tmp_path}/store") as found:
        assert [(r.offset, r.value) for r in found.records()] == values_of(log)


def test_events_that_cannot_be_right_are_named(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    good = place.copies[0].started()
    for bad in (b"", b"\x01\x09\x00", good[:-3], good + b"x", good[:30], place.copies[0].started(state=7)):
        events = write_events(tmp_path / "data", [good, bad])
        with pytest.raises(InvalidRecord, match="__remote_log_metadata") as caught, place.open():
            pass
        assert caught.value.path == str(events) and caught.value.offset == 1


def test_a_size_that_the_metadata_lies_about_is_an_error(place: Place) -> None:
    copy = place.copies[1]
    events = [event for one in place.copies for event in (one.started(), one.update(FINISHED))]
    events[2] = copy.started(size=len(copy.data) - 1)
    write_events(place.directory.parent, events)
    error = read_until_error(place)
    assert isinstance(error, StorageError) and error.offset == copy.first


@pytest.mark.parametrize("key", ["../../secret", "a//b", "/etc/passwd", "x/../y"])
def test_a_key_that_leaves_the_store_is_refused(tmp_path: Path, key: str) -> None:
    place = make_place(tmp_path, custom=custom_metadata(key=key))
    error = read_until_error(place)
    assert isinstance(error, StorageError) and "is not the name of an object" in str(error)


def test_custom_metadata_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    place = make_place(tmp_path, custom=custom_metadata(key="some/where")[:-2])
    error = read_until_error(place)
    assert isinstance(error, StorageError) and place.copies[0].segment_id in str(error)


def test_the_prefix_and_the_key_of_each_segment_are_used(tmp_path: Path) -> None:
    place = make_place(tmp_path, prefix="now-", custom=custom_metadata(prefix="then/", key="some/where"))
    for copy in place.copies:
        for suffix in (".log", ".indexes", ".rsm-manifest"):
            target = tmp_path / "store" / "then" / f"some/where{suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            if copy is place.copies[0]:
                place.store.path(copy, suffix).rename(target)
    events = []
    for copy in place.copies:
        for suffix in (".log", ".indexes", ".rsm-manifest"):
            if copy is not place.copies[0]:
                target = tmp_path / "store" / f"now-{place.store.path(copy, suffix).relative_to(tmp_path / 'store')}"
                target.parent.mkdir(parents=True, exist_ok=True)
                place.store.path(copy, suffix).rename(target)
        custom = custom_metadata(prefix="then/", key="some/where") if copy is place.copies[0] else None
        events += [copy.started(), copy.update(FINISHED, custom)]
    write_events(tmp_path / "data", events)
    assert read_until_error(place) is None

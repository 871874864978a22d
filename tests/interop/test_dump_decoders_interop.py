"""Every decoder prints what the reference's prints, for random records of all types and versions, sound and damaged.

DUMP-4; format.md section 13, A3, A10, A11 and what they leave open.
"""

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from kafkalog.errors import KafkalogError
from kafkalog.records.schema import Field, Schema
from kafkalog.records.schemas import consumer_protocol, control, groups, metadata, remote_log, share_state, transactions
from kafkalog.tools.dump import record_readers
from kafkalog.tools.dump.files import DumpOptions, dump_files
from tests import builder
from tests.builder import R
from tests.interop.reference import Reference
from tests.messages import Writer, coordinator_parts, cut_and_changed, framed, message

EACH = 8
SEEDS = range(3)
COORDINATORS = {
    "--offsets-decoder": (groups, record_readers.offsets_reader),
    "--transaction-log-decoder": (transactions, record_readers.transaction_log_reader),
    "--share-group-state-decoder": (share_state, record_readers.share_state_reader),
}
OF_4_4 = {"storedDescriptionTopologyEpoch", "failedDescriptionTopologyEpoch", "UnregisterControllerRecord"}
"""Tagged fields and a record that the reference's tool, which is of 4.3.1, does not know."""
FRAMED = {
    "--cluster-metadata-decoder": (metadata, record_readers.cluster_metadata_reader),
    "--remote-log-metadata-decoder": (remote_log, record_readers.remote_log_metadata_reader),
}


@pytest.fixture(autouse=True)
def _quick_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builder's own checksum is too slow for these batches."""
    from kafkalog._core.bytes.crc import crc32c

    monkeypatch.setattr(builder, "crc32c", crc32c)


def assert_same(
    reference: Reference, path: Path, rows: Sequence[R], flag: str, options: DumpOptions, attributes: int = 0
) -> None:
    """Both print the same of a batch with these records; both die of it, or neither."""
    path.write_bytes(builder.batch(rows, attributes=attributes))
    out, err = io.BytesIO(), io.BytesIO()
    died = False
    try:
        dump_files([str(path)], out, options, err=err)
    except KafkalogError:
        died = True
    expected, complaints, killed = reference.dump_outcome(flag, "--files", str(path))
    ours, theirs = out.getvalue().decode().splitlines(), expected.decode().splitlines()
    assert ours == theirs
    assert died == (killed is not None)
    if not died:
        assert err.getvalue() == complaints


def as_in_4_3(schema: Schema) -> Schema:
    fields = tuple(field for field in schema.fields if field.name not in OF_4_4)
    return Schema(schema.name, schema.number, (schema.lowest, schema.highest), schema.flexible_from, fields)


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flag", COORDINATORS)
def test_coordinator_records(reference: Reference, tmp_path: Path, flag: str, seed: int, damaged: bool) -> None:
    random = Random(f"{flag} {seed} {damaged}")
    family, reader = COORDINATORS[flag]
    values = {number: as_in_4_3(schema) for number, schema in family.VALUES.items()}
    rows = coordinator_parts(family.KEYS, values, random, EACH)
    if damaged:
        rows = [
            (cut_and_changed(key, random) if random.random() < 0.3 else key, value and cut_and_changed(value, random))
            for key, value in rows
        ]
    path = tmp_path / f"{0:020d}.log"
    assert_same(reference, path, [R(v, k) for k, v in rows], flag, DumpOptions(reader=reader))


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flag", FRAMED)
def test_records_with_a_frame_version(
    reference: Reference, tmp_path: Path, flag: str, seed: int, damaged: bool
) -> None:
    random = Random(f"{flag} {seed} {damaged}")
    family, reader = FRAMED[flag]
    known = {number: schema for number, schema in family.RECORDS.items() if schema.name not in OF_4_4}
    values = framed(known, random, EACH)
    if damaged:
        values = [cut_and_changed(value, random) for value in values]
    path = tmp_path / f"{0:020d}.log"
    assert_same(reference, path, [R(value) for value in values], flag, DumpOptions(reader=reader))


class GroupWriter(Writer):
    """Writes classic groups whose members speak the consumer protocol, now and then in a version not known."""

    def field(self, field: Field) -> bytes:
        if field.name != "protocolType":
            return super().field(field)
        return (b"\x09" if self.flexible else b"\0\x08") + b"consumer"

    def item(self, field: Field, null: bool) -> bytes:
        if field.name not in ("subscription", "assignment"):
            return super().item(field, null)
        schema = consumer_protocol.SUBSCRIPTION if field.name == "subscription" else consumer_protocol.ASSIGNMENT
        version = self.random.choice([0, 1, 2, 3, 3, 4])
        data = struct.pack(">h", version) + message(schema, min(version, 3), self.random)
        if self.random.random() < 0.2:
            data = cut_and_changed(data, self.random)
        return self.size(len(data)) + data


def test_members_of_the_consumer_protocol(reference: Reference, tmp_path: Path) -> None:
    random, schema, rows = Random(5), groups.VALUES[2], []
    for version in range(schema.lowest, schema.highest + 1):
        for _ in range(EACH):
            value = struct.pack(">h", version) + GroupWriter(schema, version, random).message()
            rows.append(R(value, b"\0\x02\0\x01g"))
    options = DumpOptions(reader=record_readers.offsets_reader)
    assert_same(reference, tmp_path / f"{0:020d}.log", rows, "--offsets-decoder", options)


@pytest.mark.parametrize("seed", SEEDS)
def test_control_records(reference: Reference, tmp_path: Path, seed: int) -> None:
    """Each in its own batch: a malformed one ends the dump."""
    random = Random(seed)
    rows = [R(struct.pack(">hi", version, 7), struct.pack(">hh", 0, kind)) for kind in (0, 1) for version in (0, 3, -1)]
    rows += [R(b"any", struct.pack(">hh", version, kind)) for kind in (-1, 7, 99) for version in (0, 1, -1)]
    rows += [R(None, struct.pack(">hh", 0, 5)), R(b"v", None), R(b"v", b"\0\0\0"), R(b"v", b"\0\0\0\0")]
    for kind, schema in control.VALUES.items():
        for version in (*range(schema.lowest, schema.highest + 1), schema.highest + 1):
            for _ in range(EACH):
                fields = message(schema, min(version, schema.highest), random)
                value = struct.pack(">h", version) + fields[2:]
                rows.append(R(value, struct.pack(">hh", 0, kind)))
                rows.append(R(cut_and_changed(value, random), struct.pack(">hh", 0, kind)))
    path = tmp_path / f"{0:020d}.log"
    for row in rows:
        assert_same(reference, path, [row], "--deep-iteration", DumpOptions(deep_iteration=True), attributes=32)

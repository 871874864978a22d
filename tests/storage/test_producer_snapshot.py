"""Producer snapshots: their bytes, and what is wrong with damaged ones (DUMP-8)."""

import struct
from pathlib import Path

import pytest

from kafkalog.errors import CorruptSnapshot, StorageError
from kafkalog.storage.producer_snapshot import ProducerEntry, parse_snapshot, read_snapshot
from tests.builder import crc32c

ENTRY = ProducerEntry(9, 1, 2, 3, 1, 1002, -1, 0)


def snapshot(
    *entries: ProducerEntry, version: int = 1, count: int | None = None, tail: bytes = b"", crc: int | None = None
) -> bytes:
    body = struct.pack(">i", len(entries) if count is None else count)
    body += b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries) + tail
    return struct.pack(">hI", version, crc32c(body) if crc is None else crc) + body


def test_the_entry_of_the_format_notes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000003.snapshot"
    hexed = "00016803b5c70000000100000000000000090001000000000000000000000002000000000000000000000"
    path.write_bytes(bytes.fromhex(hexed + "3eaffffffff0000000000000002"))
    assert read_snapshot(path) == [ProducerEntry(9, 1, 0, 2, 0, 1002, -1, 2)]
    path.write_bytes(bytes.fromhex("000148674bc700000000"))
    assert read_snapshot(path) == []


def test_entries_in_the_order_of_the_file() -> None:
    second = ENTRY._replace(producer_id=2, last_offset=-1)
    assert parse_snapshot(snapshot(ENTRY, second)) == [ENTRY, second]
    assert parse_snapshot(snapshot(ENTRY, tail=b"behind")) == [ENTRY]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        *[(snapshot(ENTRY)[:n], "failed schema validation: null") for n in (0, 1, 2, 9, 55)],
        (snapshot(version=2), "failed schema validation: Snapshot contained an unknown file version 2"),
        (snapshot(version=0, crc=1), "failed schema validation: Snapshot contained an unknown file version 0"),
        (b"\xff\xff", "failed schema validation: Snapshot contained an unknown file version -1"),
        (snapshot(ENTRY, count=2), "failed schema validation: null"),
        (snapshot(count=-1), "non-nullable field producerEntries was serialized as null"),
        (snapshot(ENTRY, count=2**31 - 1), "a collection of size 2147483647, but there are only 46 bytes remaining."),
        (snapshot(ENTRY, crc=5), f"no longer valid). Stored crc: 5. Computed crc: {crc32c(snapshot(ENTRY)[6:])}"),
        (snapshot(ENTRY) + b"x", "is corrupt (CRC is no longer valid)."),
    ],
)
def test_damage(data: bytes, words: str) -> None:
    with pytest.raises(CorruptSnapshot) as caught:
        parse_snapshot(data, "f.snapshot")
    assert words in caught.value.message and caught.value.message.startswith("Snapshot ")
    assert caught.value.path == "f.snapshot"


def test_every_changed_byte_is_noticed() -> None:
    data = snapshot(ENTRY)
    for at in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            parse_snapshot(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="producer snapshot"):
        read_snapshot(tmp_path / "0.snapshot")

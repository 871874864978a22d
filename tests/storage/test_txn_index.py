"""Transaction indexes read: whole entries, a partial tail left alone, other versions refused (DUMP-8)."""

import struct
from pathlib import Path

import pytest

from kafkalog.errors import FormatError, StorageError
from kafkalog.storage.txn_index import AbortedTxn, parse_aborted_txns, read_aborted_txns


def entry(version: int = 0, *numbers: int) -> bytes:
    return struct.pack(">hqqqq", version, *(numbers or (9, 2, 3, 4)))


def test_entries_in_order_without_the_partial_one(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(entry() + entry(0, -1, -2, -3, -4) + entry()[:33])
    assert read_aborted_txns(path) == [AbortedTxn(0, 9, 2, 3, 4), AbortedTxn(0, -1, -2, -3, -4)]
    assert parse_aborted_txns(b"") == parse_aborted_txns(bytes(33)) == []


def test_only_the_first_byte_of_the_version_counts() -> None:
    assert [parse_aborted_txns(entry(version))[0].version for version in (0, 1, 255, -1)] == [0, 0, 0, -1]
    with pytest.raises(FormatError) as caught:
        parse_aborted_txns(entry() + entry(256), "f")
    assert (caught.value.path, caught.value.position) == ("f", 34)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="transaction index"):
        read_aborted_txns(tmp_path / "0.txnindex")

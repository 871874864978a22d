"""Transaction indexes read: whole entries, a partial tail left alone, other versions refused (DUMP-8)."""

import struct
from pathlib import Path

import pytest

from kafkalog.errors import CorruptIndex, FormatError, StorageError
from kafkalog.storage.index.aborted_txns import (
    AbortedTxn,
    check_sanity,
    collect_aborted_txns,
    parse_aborted_txns,
    read_aborted_txns,
)

D = [AbortedTxn(0, *fields) for fields in ((0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40))]


def entry(version: int = 0, *numbers: int) -> bytes:
    return struct.pack(">hqqqq", version, *(numbers or (9, 2, 3, 4)))


def test_entries_in_order_without_the_partial_one(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(entry() + entry(0, -1, -2, -3, -4) + entry()[:33])
    assert read_aborted_txns(path) == [AbortedTxn(0, 9, 2, 3, 4), AbortedTxn(0, -1, -2, -3, -4)]
    assert parse_aborted_txns(b"") == parse_aborted_txns(bytes(33)) == []


@pytest.mark.parametrize(
    ("fetch", "upper", "found", "complete"),
    [
        (0, 100, D, False), (0, 32, D[:3], True), (0, 35, D, True), (10, 35, D, True), (11, 35, D[1:], True),
        (20, 41, D[2:], False),
    ],
)  # fmt: skip
def test_looking_up_a_range(fetch: int, upper: int, found: list[AbortedTxn], complete: bool) -> None:
    """TXN-2, TXN-3: those that end at or after the one offset and begin before the other."""
    assert collect_aborted_txns(D, fetch, upper) == (found, complete)


def test_a_transaction_that_ended_before_the_segment_is_damage() -> None:
    """TXN-5: 0 to 10 in the index of a segment that begins at 100."""
    check_sanity(D, 10)
    check_sanity([], 100)
    with pytest.raises(CorruptIndex, match="ends at 10") as caught:
        check_sanity(D, 100, "f")
    assert (caught.value.path, caught.value.position) == ("f", 0)


def test_entries_behind_a_partial_one_are_misaligned() -> None:
    """TXN-6: what was appended behind a cut tail is read from the wrong byte on."""
    data = entry(0, 9, 2, 3, 4) + entry(0, 8, 4, 6, 7)[:30]
    assert len(parse_aborted_txns(data)) == 1
    assert parse_aborted_txns(data + entry(0, 7, 8, 9, 10))[1] != AbortedTxn(0, 7, 8, 9, 10)


def test_only_the_first_byte_of_the_version_counts() -> None:
    assert [parse_aborted_txns(entry(version))[0].version for version in (0, 1, 255, -1)] == [0, 0, 0, -1]
    with pytest.raises(FormatError) as caught:
        parse_aborted_txns(entry() + entry(256), "f")
    assert (caught.value.path, caught.value.position) == ("f", 34)


def test_a_strict_reader_knows_both_bytes_of_the_version() -> None:
    """As Kafka 4.4: an entry of an unknown version may have another layout."""
    assert parse_aborted_txns(entry(), strict=True) == parse_aborted_txns(entry())
    for version in (1, 255, 256, -1):
        with pytest.raises(FormatError, match="the highest known is 0") as caught:
            parse_aborted_txns(entry() + entry(version), "f", strict=True)
        assert (caught.value.path, caught.value.position) == ("f", 34)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="transaction index"):
        read_aborted_txns(tmp_path / "0.txnindex")

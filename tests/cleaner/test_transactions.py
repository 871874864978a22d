"""Transactions under a clean: aborted data goes, markers stay as long as they are needed."""

import pytest

from kafkalog.cleaner.transactions import CleanedTransactions
from kafkalog.records.memory import MemoryRecords
from kafkalog.storage.index.aborted_txns import AbortedTxn
from tests.cleaner.filtering import (
    NOW,
    RETENTION_MS,
    Cleaned,
    Cleaner,
    build_batch,
    build_marker,
    build_producer_batch,
    list_batches,
    list_last_offsets,
    list_offsets,
)

HORIZON = NOW + RETENTION_MS
ABORTED = AbortedTxn(0, 1, 0, 3, 4)


def txn_batch(base_offset: int, producer: int, sequence: int, *keys: int) -> bytes:
    return build_producer_batch(base_offset, producer, sequence, *keys, txn=True)


def read_horizons(data: bytes) -> dict[int, int | None]:
    """Base offset of each control batch -> its delete horizon."""
    return {b.base_offset: b.header.delete_horizon_ms for b in list_batches(data) if b.header.is_control}


def list_keys(data: bytes) -> list[int]:
    return [int(r.key or b"") for b in list_batches(data) if not b.header.is_control for r in b.records()]


def test_an_abort_marker_outlives_its_data_by_a_round_and_the_horizon() -> None:
    """CLN-14: aborted data goes whatever the map says; CLN-16, CLN-49: not so the marker's batch in that round."""
    data = txn_batch(0, 1, 0, 1) + txn_batch(1, 1, 1, 2, 3) + build_marker(3, 1, commits=False) + txn_batch(4, 1, 3, 3)
    data += build_marker(5, 1, commits=True)
    cleaner = Cleaner(last={1: (4, 0)})
    first = cleaner.clean(data, aborted=[ABORTED])
    assert list_offsets(first.data) == [3, 4, 5] and read_horizons(first.data) == {3: None, 5: None}
    assert bytes(list_batches(first.data)[0]) == build_marker(3, 1, commits=False)
    assert first.retained == [ABORTED], "there was data before the marker"
    second = cleaner.clean(first.data, aborted=first.retained)
    assert list_offsets(second.data) == [3, 4, 5] and read_horizons(second.data) == {3: HORIZON, 5: None}
    assert second.retained == []
    assert cleaner.clean(second.data, now=HORIZON - 1).data == second.data
    third = cleaner.clean(second.data, now=HORIZON)
    assert list_offsets(third.data) == [4, 5]


def test_a_commit_marker_alike() -> None:
    """CLN-17, CLN-49."""
    data = txn_batch(0, 1, 0, 1) + txn_batch(1, 1, 1, 2, 3) + build_marker(3, 1, commits=True) + txn_batch(4, 1, 3, 2)
    data += build_marker(5, 1, commits=True)
    cleaner = Cleaner(last={1: (4, 0)})
    first = cleaner.clean(data)
    assert list_offsets(first.data) == [0, 2, 3, 4, 5]
    cleaner = Cleaner(last={1: (7, 0)})
    more = first.data + txn_batch(6, 1, 4, 1, 3) + build_marker(8, 1, commits=True)
    second = cleaner.clean(more, dirty=6)
    assert list_offsets(second.data) == [3, 4, 5, 6, 7, 8] and set(read_horizons(second.data).values()) == {None}
    third = cleaner.clean(second.data)
    assert read_horizons(third.data) == {3: HORIZON, 5: None, 8: None}
    assert list_offsets(cleaner.clean(third.data, now=HORIZON).data) == [4, 5, 6, 7, 8]


def test_a_key_with_the_bytes_of_a_markers_key_takes_no_marker_away() -> None:
    """CLN-18: markers are no user's records, in the map or against it."""
    data = txn_batch(0, 1, 0, 1) + build_marker(1, 1, commits=True)
    (record,) = list_batches(data)[1].records()
    data += build_batch(2, (record.key, b"x")) + build_batch(3, (b"1", b"y"))
    cleaned = Cleaner(last={1: (0, 0)}).clean(data)
    assert list_offsets(cleaned.data) == [1, 2, 3]
    data = build_batch(0, (record.key, b"x")) + txn_batch(1, 1, 0, 1) + build_marker(2, 1, commits=True)
    assert list_offsets(Cleaner(last={1: (1, 0)}).clean(data).data) == [0, 1, 2]


@pytest.mark.parametrize("commits", [False, True])
def test_the_marker_of_an_empty_transaction(commits: bool) -> None:
    """CLN-19: its horizon is set at once; past it the record goes, not the batch that all is known by of a producer."""
    data = build_marker(0, 1, commits=commits) + build_batch(1, (b"a", b"1"))
    cleaner = Cleaner(last={1: (-1, 0)})
    first = cleaner.clean(data)
    assert read_horizons(first.data) == {0: HORIZON} and list_offsets(first.data) == [0, 1]
    assert [r.timestamp for r in list_batches(first.data)[0].records()] == [NOW], "its time stays"
    second = cleaner.clean(first.data, now=HORIZON)
    empty = list_batches(second.data)[0]
    assert (empty.base_offset, empty.size, empty.header.is_control, empty.header.producer_id) == (0, 61, True, 1)
    assert list_offsets(second.data) == [1] and read_horizons(second.data) == {0: None}
    assert cleaner.clean(second.data, now=HORIZON).data == second.data
    assert list_last_offsets(Cleaner(last={1: (-1, 1)}).clean(second.data, now=HORIZON).data) == [1], "another epoch"
    assert list_last_offsets(Cleaner().clean(second.data, now=HORIZON).data) == [1], "no longer active"


def test_two_producers_side_by_side() -> None:
    """CLN-20: each marker is that of its own producer."""
    data = b"".join((
        txn_batch(0, 1, 0, 1, 2),
        txn_batch(2, 2, 0, 2, 3),
        txn_batch(4, 1, 2, 3, 4),
        build_marker(6, 1, commits=False),
        build_marker(7, 2, commits=True),
        txn_batch(8, 1, 4, 2),
        build_marker(9, 1, commits=True),
    ))  # fmt: skip
    aborted = [AbortedTxn(0, 1, 0, 6, 2)]
    cleaned = Cleaner(last={1: (8, 0), 2: (3, 0)}).clean(data, aborted=aborted)
    assert list_keys(cleaned.data) == [3, 2]
    assert list_offsets(cleaned.data) == [3, 6, 7, 8, 9]
    assert cleaned.retained == aborted


def test_the_new_index_has_what_still_has_data_in_the_order_of_the_markers() -> None:
    """CLN-21: a transaction whose data went in an earlier round is not in it, be it in the old one."""
    data = b"".join((
        txn_batch(0, 1, 0, 1),
        txn_batch(1, 2, 0, 2),
        build_marker(2, 2, commits=False),
        build_marker(3, 1, commits=False),
        build_marker(4, 3, commits=False),
        build_batch(5, (b"9", b"x")),
    ))  # fmt: skip
    first, second, third = AbortedTxn(0, 1, 0, 3, 4), AbortedTxn(0, 2, 1, 2, 0), AbortedTxn(0, 3, 4, 4, 5)
    cleaned = Cleaner().clean(data, aborted=[first, second, third])
    assert cleaned.retained == [second, first]
    assert list_offsets(cleaned.data) == [2, 3, 4, 5]
    assert Cleaner().clean(cleaned.data, aborted=cleaned.retained).retained == []


def test_a_transaction_over_two_segments_is_known_in_the_second() -> None:
    """CLN-22: its index entry appears twice, its marker is judged by the data of both."""
    markers = build_marker(2, 1, commits=False) + build_marker(3, 1, commits=False)
    parts = [txn_batch(0, 1, 0, 1), txn_batch(1, 1, 1, 2) + markers]
    known = AbortedTxn(0, 1, 0, 2, 3)
    transactions = CleanedTransactions()
    steps: list[bool] = []
    for part in parts:
        transactions.add_aborted([known])
        table = MemoryRecords(part).table
        steps += [transactions.core.feed(part, table, row) for row in range(len(table))]
    assert steps == [True, True, False, True]
    assert transactions.take_retained() == [known]


def test_a_partial_clean_neither_loses_markers_nor_brings_aborted_data_back() -> None:
    """CLN-22, CLN-48: a map of three keys ends inside transactions, again and again; what is aborted stays so."""
    data = b"".join((
        txn_batch(0, 1, 0, 1, 2),
        txn_batch(2, 2, 0, 2, 3),
        txn_batch(4, 1, 2, 3, 4),
        build_marker(6, 1, commits=True),
        build_marker(7, 2, commits=True),
        txn_batch(8, 1, 4, 2, 3),
        build_marker(10, 1, commits=False),
        txn_batch(11, 2, 2, 4, 5),
        txn_batch(13, 1, 6, 5, 6),
        build_marker(15, 1, commits=True),
        build_marker(16, 2, commits=False),
        txn_batch(17, 2, 4, 6, 7),
        build_marker(19, 2, commits=True),
    ))  # fmt: skip
    aborted = [AbortedTxn(0, 1, 8, 10, 11), AbortedTxn(0, 2, 11, 16, 17)]
    cleaner = Cleaner(last={1: (14, 0), 2: (18, 0)}, most_keys=3)

    def a_round(data: bytes, dirty: int, now: int, aborted: list[AbortedTxn]) -> tuple[int, Cleaned]:
        reached = cleaner.mapped(data, dirty, 20, aborted).latest_offset + 1
        return reached, cleaner.clean(data, dirty=dirty, end=1 << 60, now=now, aborted=aborted)

    dirty, first = a_round(data, 0, NOW, aborted)
    assert dirty == 4
    bases = [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert [b.base_offset for b in list_batches(first.data)] == bases
    assert list_offsets(first.data) == [0, 2, 3, 4, 5, 6, 7, 10, 13, 14, 15, 16, 17, 18, 19]
    assert first.retained == aborted
    dirty, second = a_round(first.data, dirty, NOW, first.retained)
    assert dirty == 14
    assert [b.base_offset for b in list_batches(second.data)] == bases
    assert list_offsets(second.data) == [0, 2, 4, 5, 6, 7, 10, 13, 14, 15, 16, 17, 18, 19]
    assert second.retained == []
    dirty, third = a_round(second.data, dirty, HORIZON, second.retained)
    assert dirty == 20
    assert [b.base_offset for b in list_batches(third.data)] == [0, 2, 4, 6, 7, 13, 15, 17, 19]
    assert list_offsets(third.data) == [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19]


def test_data_behind_the_end_of_an_aborted_transaction_is_none_of_it() -> None:
    """CLN-14: an index may name a transaction whose marker is gone; the producer's next one has its own."""
    data = build_batch(0, (b"9", b"x")) + txn_batch(5, 1, 3, 1) + build_marker(6, 1, commits=True)
    cleaned = Cleaner(last={1: (5, 0)}).clean(data, aborted=[ABORTED])
    assert list_offsets(cleaned.data) == [0, 5, 6] and cleaned.retained == []


def test_an_abort_marker_stays_where_no_index_tells_of_its_data() -> None:
    """CLN-22: a lost index must not revive aborted data for a rebuild from the log."""
    data = txn_batch(0, 1, 0, 1) + build_marker(1, 1, commits=False) + build_batch(2, (b"1", b"x"))
    cleaned = Cleaner().clean(data)
    assert list_offsets(cleaned.data) == [1, 2] and read_horizons(cleaned.data) == {1: None}

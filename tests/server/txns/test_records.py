"""Records of `__transaction_state`: those of a broker, those that we write, and damaged ones."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptRecord
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.message import MessageError
from kafkalog.server.txns.records import (
    TOPIC,
    read_transactions,
    transaction_key,
    transaction_of,
    transaction_value,
    transactions_batch,
)
from kafkalog.server.txns.states import TransactionState
from kafkalog.server.txns.transaction import Transaction
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.readonly.view import LogView
from kafkalog.types import TopicPartition
from tests.golden_cases import GOLDEN, extracted

S = TransactionState
KEPT = [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
NUMBERS = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["a", "__consumer_offsets", "é"]), st.integers(0, 2**31 - 1)), max_size=5
)
TRANSACTIONS = st.builds(
    Transaction, st.text(max_size=20), NUMBERS, EPOCHS, st.integers(0, 2**31 - 1), st.sampled_from(KEPT), PARTITIONS,
    NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.just(-1), st.integers(0, 2),
)  # fmt: skip


@contextmanager
def open_log(directory: Path) -> Iterator[UnifiedLog]:
    path = directory / f"{TOPIC}-0"
    path.mkdir()
    log = UnifiedLog.open(path, LogConfig())
    try:
        yield log
    finally:
        log.close()


@given(TRANSACTIONS)
def test_what_is_written_is_read(transaction: Transaction) -> None:
    key, value = transaction_key(transaction.transactional_id), transaction_value(transaction)
    assert transaction_of(key, value) == (transaction.transactional_id, transaction)


def test_an_empty_transaction_has_no_partitions_at_all() -> None:
    value = transaction_value(Transaction("x", 7, 0, 1000, update_ms=5, previous_producer_id=7))
    body = struct.pack(">hqhib", 1, 7, 0, 1000, 0) + b"\0" + struct.pack(">qq", 5, -1)
    assert value == body + b"\1\0\x08" + struct.pack(">q", 7)


def test_version_0_is_read_and_written() -> None:
    value = struct.pack(">hqhib", 0, 7, 2, 1000, 1) + struct.pack(">ih", 1, 1) + b"t"
    value += struct.pack(">iii", 2, 0, 5) + struct.pack(">qq", 20, 10)
    found = transaction_of(transaction_key("x"), value)[1]
    parts = frozenset([TopicPartition("t", 0), TopicPartition("t", 5)])
    assert found == Transaction("x", 7, 2, 1000, S.ONGOING, parts, 10, 20)
    assert transaction_value(found._replace(previous_producer_id=3, client_version=2), 0) == value


@pytest.mark.skipif(not (GOLDEN / "logdir.tar.gz").exists(), reason="no recorded directory")
def test_values_of_a_broker_are_written_back_byte_for_byte() -> None:
    with LogView(extracted("logdir.tar.gz") / "data" / f"{TOPIC}-0") as view:
        data = view.read(0, 1 << 30).records.read()
        count = 0
        for batch in MemoryRecords(data).batches():
            for record in batch.records():
                assert record.key is not None and record.value is not None
                transactional_id, transaction = transaction_of(record.key, record.value)
                assert transaction is not None
                assert transaction_key(transactional_id) == record.key
                again = transaction_value(transaction)
                assert sorted(again) == sorted(record.value)  # a broker's sets have their own order
                assert again == record.value or len(transaction.partitions) > 1
                count += 1
        assert count == view.log_end_offset > 100
        loaded = read_transactions(view)
    assert not loaded.problems and loaded.transactions.keys() >= {"pub-txn-tx1"}


def test_the_last_record_of_an_id_counts_and_a_tombstone_takes_it_away(tmp_path: Path) -> None:
    one, two = Transaction("a", 1, 0, 9), Transaction("b", 2, 0, 9)
    with open_log(tmp_path) as log:
        log.append_as_leader(transactions_batch([("a", one), ("b", two), ("c", one)], 5), origin="coordinator")
        log.append_as_leader(transactions_batch([("a", two._replace(transactional_id="a"))], 6), origin="coordinator")
        log.append_as_leader(transactions_batch([("b", None)], 7), origin="coordinator")
        loaded = read_transactions(log)
    assert {name: found.producer_id for name, found in loaded.transactions.items()} == {"a": 2, "c": 1}


def test_records_of_a_later_format_are_told_and_passed_over(tmp_path: Path) -> None:
    builder = RecordsBuilder()
    builder.append(1, transaction_key("a"), struct.pack(">h", 2) + b"later")
    builder.append(1, struct.pack(">h", 9) + b"later", b"")
    builder.append(1, transaction_key("b"), transaction_value(Transaction("b", 2, 0, 9))[:-4])
    builder.append(1, transaction_key("c"), transaction_value(Transaction("c", 2, 0, 9))[:12] + b"\x63" + b"\0" * 18)
    builder.append(1, transaction_key("d"), transaction_value(Transaction("d", 4, 0, 9)))
    with open_log(tmp_path) as log:
        log.append_as_leader(builder.build(), origin="coordinator")
        loaded = read_transactions(log)
    assert list(loaded.transactions) == ["d"] and len(loaded.problems) == 4


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / f"{TOPIC}-0"
    with open_log(tmp_path) as log:
        for name in "ab":
            log.append_as_leader(transactions_batch([(name, Transaction(name, 1, 0, 9))], 5), origin="coordinator")
        file = next(path.glob("*.log"))
        with file.open("r+b") as raw:
            raw.seek(-1, 2)
            raw.write(b"\xff")
        with pytest.raises(CorruptRecord):
            read_transactions(log)


def test_a_key_that_is_none_is_no_transaction() -> None:
    with pytest.raises(MessageError):
        transaction_of(b"", b"")


@pytest.mark.parametrize("number", [-1, 8, 127])
def test_a_state_that_is_not_known_is_told_by_its_number(number: int) -> None:
    value = bytearray(transaction_value(Transaction("x", 7, 0, 1000, update_ms=5)))
    assert value[16] == S.EMPTY
    value[16] = number & 0xFF
    with pytest.raises(MessageError, match=f"unknown transaction state {number}"):
        transaction_of(transaction_key("x"), bytes(value))

"""Open transactions of data directories, and the producers that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.inspect.rows import Column, Rows
from kafkalog.reading.chunks import records
from kafkalog.records.internal import coordinator_record
from kafkalog.records.message import MessageError
from kafkalog.records.schemas import transactions
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.directories import PartitionPath
from kafkalog.tools.seen_producers import seen_producers
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem

STATE_TOPIC: Final = "__transaction_state"
_STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip


class OpenTransaction(NamedTuple):
    """A transaction without a marker in one partition; times are ms.

    `transactional_id`, `state` and `timeout_ms` come from `__transaction_state` in the same directories; None without
    it. A state other than Ongoing says that the coordinator has ended the transaction and the marker is missing here.
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int
    transactional_id: str | None
    state: str | None
    timeout_ms: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the fields by name, the partition as topic and number."""
        return {**self.topic_partition._asdict(), **dict(list(self._asdict().items())[1:])}


class _Owner(NamedTuple):
    transactional_id: str
    state: str
    timeout_ms: int


def open_transactions(
    found: Sequence[PartitionPath], states: Iterable[PartitionPath], fs: FileSystem
) -> tuple[list[OpenTransaction], list[KafkalogError]]:
    """Return the open transactions of the partitions `found`, and the errors of what cannot be read.

    `states` are the partitions of `__transaction_state`. Nothing is locked or changed.
    """
    problems: list[KafkalogError] = []
    found_open: list[OpenTransaction] = []
    for one in found:
        try:
            with LogView(one.path, fs=fs) as view:
                producers = seen_producers(view, 0, fs)  # at time 0 no producer has expired
                if (damage := view.tail_damage) is not None:
                    problems.append(damage)
        except KafkalogError as error:
            problems.append(error)
            continue
        found_open += [
            OpenTransaction(
                one.topic_partition, producer.producer_id, producer.producer_epoch, producer.current_txn_first_offset,
                producer.last_timestamp, None, None, None,
            )
            for producer in producers
            if producer.current_txn_first_offset >= 0
        ]  # fmt: skip
    if not found_open:
        return [], problems
    owners = _read_owners(states, fs, problems)
    with_owners = [
        one._replace(**owners[one.producer_id]._asdict()) if one.producer_id in owners else one for one in found_open
    ]
    return sorted(with_owners, key=lambda one: (one.topic_partition, one.first_offset)), problems


def _read_owners(states: Iterable[PartitionPath], fs: FileSystem, problems: list[KafkalogError]) -> dict[int, _Owner]:
    """Return the newest state of each producer id in `__transaction_state`; add errors to `problems`.

    A record of a later version is passed over: its transaction is listed without a holder.
    """
    owners: dict[int, _Owner] = {}
    for one in states:
        try:
            with LogView(one.path, fs=fs) as view:
                for record in records(view, view.log_start_offset, view.log_end_offset):
                    _add_owner(record.key, record.value, owners)
                if (damage := view.tail_damage) is not None:
                    problems.append(damage)
        except KafkalogError as error:
            problems.append(error)
    return owners


def _add_owner(key: bytes | None, value: bytes | None, owners: dict[int, _Owner]) -> None:
    try:
        found = coordinator_record(key or b"", value, transactions.KEYS, transactions.VALUES)
    except MessageError:
        return
    if found.value is not None:
        number = found.value["transactionStatus"]
        state = _STATES[number] if 0 <= number < len(_STATES) else str(number)
        owner = _Owner(found.key["transactionalId"], state, found.value["transactionTimeoutMs"])
        owners[found.value["producerId"]] = owner


def transactions_table(found: Iterable[OpenTransaction]) -> Rows[OpenTransaction]:
    """Return open transactions as a table."""
    columns = (
        Column("partition", lambda one: str(one.topic_partition), "name"),
        Column("producer id", lambda one: one.producer_id, "number"),
        Column("epoch", lambda one: one.producer_epoch, "number"),
        Column("first offset", lambda one: one.first_offset, "number"),
        Column("last write", lambda one: one.last_timestamp, "time"),
        Column("transactional id", lambda one: one.transactional_id or "-", "name"),
        Column("state", lambda one: one.state or "-"),
    )
    return Rows(found, columns)

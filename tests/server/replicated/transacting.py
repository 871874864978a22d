"""Clients of a replica set that use its coordinators: transactions, and a group with its positions."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any, Final

from tests.server.replicated.checker import FAILED, OK, UNKNOWN, Append, Key, Position
from tests.server.replicated.clients import FLUSH_S, LIBRDKAFKA, NEVER, Client

CALL_S: Final = 10
GROUP: Final = "workers"
MEMBER_S: Final = 5
SHARE_COMMITTED: Final = 0.75


class TransactionalWriter(Client):
    """A few records to all partitions at a time, committed or aborted: those of an aborted transaction have failed."""

    is_writer = True

    def work(self, process: str) -> None:
        import confluent_kafka as ck

        chance = random.Random(process)
        producer = ck.Producer({
            **LIBRDKAFKA, "bootstrap.servers": self.bootstrap, "transactional.id": self.name, "linger.ms": 0,
            "transaction.timeout.ms": 600_000, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200,
            "request.timeout.ms": 5000, "message.timeout.ms": 120_000, "error_cb": self._erred,
        })  # fmt: skip
        self._is_broken = False
        number, offsets = 0, dict[str, int]()

        def delivered(error: Any, record: Any) -> None:
            if error is None and record.offset() is not None:
                offsets[record.value().decode()] = record.offset()

        if not self._called(lambda: producer.init_transactions(CALL_S)):
            return
        while not self.is_over.is_set():
            if not self._called(producer.begin_transaction):
                return
            sent, wants_commit = [], chance.random() < SHARE_COMMITTED
            for _ in range(chance.randrange(1, 10)):
                key, value = self.keys[number % len(self.keys)], f"{process}:{number}"
                sent.append(Append(process, key, number, value, time.monotonic(), NEVER, UNKNOWN, -1, -1, True))
                self.history.append(sent[-1])
                number += 1
                try:
                    producer.produce(key[0], value.encode(), partition=key[1], on_delivery=delivered)
                except ck.KafkaException as error:
                    self.outcomes[error.args[0].name()] += 1
                    wants_commit = False
            is_committed = wants_commit and self._called(lambda: producer.commit_transaction(CALL_S))
            if not is_committed and not self._called(lambda: producer.abort_transaction(CALL_S)):
                return
            end = time.monotonic()
            for one in sent:
                self.take(one, OK if is_committed else FAILED, offsets.pop(one.value, -1) if is_committed else -1, end)

    def _erred(self, error: Any) -> None:
        if error.fatal():
            self._is_broken = True
            self.outcomes[f"fatal: {error}"] += 1

    def _called(self, call: Any) -> bool:
        """Return True if the call was answered; retry while it may be. Return False if the transaction must be
        aborted or the producer is fatally failed."""
        import confluent_kafka as ck

        patience = NEVER
        while time.monotonic() < patience and not self._is_broken:
            try:
                call()
                return True
            except ck.KafkaException as outcomes:
                error = outcomes.args[0]
                self.outcomes[error.name()] += 1
                self._is_broken = self._is_broken or error.fatal()
                if error.fatal() or error.txn_requires_abort() or not error.retriable():
                    return False
            if self.is_over.is_set():
                patience = min(patience, time.monotonic() + FLUSH_S)
        return False


class GroupReader(Client):
    """The only member of a group, for a few seconds: it asks where the group is, reads on from there, and commits."""

    def work(self, process: str) -> None:
        import confluent_kafka as ck

        consumer = ck.Consumer({
            **LIBRDKAFKA, "bootstrap.servers": self.bootstrap, "group.id": GROUP, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50, "session.timeout.ms": 6000,
            "isolation.level": "read_committed",
        })  # fmt: skip
        try:
            if not self._asked(consumer, process):
                return
            consumer.subscribe(sorted({topic for topic, _ in self.keys}))
            end = time.monotonic() + MEMBER_S
            while not self.is_over.is_set() and time.monotonic() < end:
                after: dict[Key, int] = {}
                for record in consumer.consume(500, 0.2):
                    if record.error() is None:
                        after[record.topic(), record.partition()] = record.offset() + 1
                self._committed(consumer, process, after)
        finally:
            with suppress(ck.KafkaException):
                consumer.close()

    def _asked(self, consumer: Any, process: str) -> bool:
        import confluent_kafka as ck

        begin = time.monotonic()
        try:
            answer = consumer.committed([ck.TopicPartition(*key) for key in self.keys], CALL_S)
        except ck.KafkaException as error:
            self.outcomes[error.args[0].name()] += 1
            time.sleep(0.1)
            return False
        for one in answer:
            if one.error is None:
                offset = max(0, one.offset)
                key = (one.topic, one.partition)
                self.history.append(Position(process, key, begin, time.monotonic(), offset, OK, False))
        return True

    def _committed(self, consumer: Any, process: str, after: dict[Key, int]) -> None:
        import confluent_kafka as ck

        if not after:
            return
        asked = {key: Position(process, key, time.monotonic(), NEVER, offset, UNKNOWN, True)
                 for key, offset in after.items()}  # fmt: skip
        for one in asked.values():
            self.history.append(one)
        try:
            answer = consumer.commit(
                offsets=[ck.TopicPartition(*key, offset) for key, offset in after.items()], asynchronous=False
            )
        except ck.KafkaException as error:
            self.outcomes[error.args[0].name()] += 1
            return
        for one in answer:
            if one.error is None:
                known = asked[one.topic, one.partition]._replace(end=time.monotonic(), outcome=OK)
                self.history.append(known)
                self.outcomes["committed"] += 1

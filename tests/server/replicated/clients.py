"""Clients of a replica set, in threads, that keep what they sent, what became of it, and what they read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from tests.server.replicated.checker import OK, UNKNOWN, Append, Key, Operation, Poll

FLUSH_S: Final = 60
TIMEOUT_MS: Final = 120_000
MOST_WAITING: Final = 200
NEVER: Final = 1e18
PAUSE_S: Final = 0.005
LIBRDKAFKA: Final = {
    "metadata.recovery.strategy": "none", "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0,
    "topic.metadata.refresh.interval.ms": 1000, "socket.timeout.ms": 5000,
}  # fmt: skip
OUT_OF_RANGE: Final = {1, -140, -139}
"""Codes that say that a reader's position is none: out of range, and librdkafka's own."""


class Client(threading.Thread):
    """Runs until `is_over`; all clients share `history`. `outcomes` counts the outcomes for the final report."""

    is_writer = False
    reports_outcome = True  # what became of what it writes

    def __init__(self, name: str, bootstrap: str, topics: Mapping[str, int], history: list[Operation]) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.keys: list[Key] = [(topic, index) for topic, count in topics.items() for index in range(count)]
        self.history = history
        self.is_over = threading.Event()
        self.acknowledged: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        round_ = 0
        while not self.is_over.is_set() and self.failure is None:
            try:
                self.work(f"{self.name}.{round_}")
            except BaseException as error:
                self.failure = error
            round_ += 1

    def work(self, process: str) -> None:
        """Run until it ends, or has to restart under another name."""
        raise NotImplementedError

    def take(self, one: Append, outcome: str, offset: int, end: float) -> None:
        self.history.append(one._replace(outcome=outcome, offset=offset, end=end))
        self.outcomes[outcome] += 1
        if outcome == OK:
            self.acknowledged[one.key[0]] += 1


class LibrdkafkaWriter(Client):
    is_writer = True

    def __init__(self, *arguments: Any, acks: int, is_idempotent: bool) -> None:
        super().__init__(*arguments)
        self.acks = acks
        self.reports_outcome = acks != 0
        self.is_idempotent = is_idempotent

    def work(self, process: str) -> None:
        import confluent_kafka as ck

        fatal: list[str] = []

        def failed(error: Any) -> None:
            if error.fatal():
                fatal.append(str(error))

        producer = ck.Producer({
            **LIBRDKAFKA, "bootstrap.servers": self.bootstrap, "acks": self.acks, "linger.ms": 2,
            "retry.backoff.ms": 20, "retry.backoff.max.ms": 200, "enable.idempotence": self.is_idempotent,
            "message.timeout.ms": TIMEOUT_MS, "request.timeout.ms": 5000, "error_cb": failed,
        })  # fmt: skip

        def serve(call: Callable[[float], object], seconds: float) -> None:
            try:
                call(seconds)
            except ck.KafkaException as error:  # a fatal error comes this way too
                fatal.append(str(error))

        number = 0
        while not self.is_over.is_set() and not fatal:
            key = self.keys[number % len(self.keys)]
            value = f"{process}:{number}"
            one = Append(process, key, number, value, time.monotonic(), NEVER, UNKNOWN, -1, self.acks,
                         self.is_idempotent)  # fmt: skip
            self.history.append(one)

            def delivered(error: Any, record: Any, one: Append = one) -> None:
                if error is None and self.reports_outcome:
                    offset = record.offset()  # None where a record that was sent again was there already
                    self.take(one, OK, -1 if offset is None else offset, time.monotonic())
                elif error is not None:
                    self.outcomes[error.name()] += 1

            number += 1
            try:
                producer.produce(key[0], value.encode() + b" " + b"x" * (number % 300), partition=key[1],
                                 on_delivery=delivered)  # fmt: skip
            except ck.KafkaException as error:  # what it knows of the topic, or what went wrong for good
                self.outcomes[error.args[0].name()] += 1
                serve(producer.poll, 0.1)
            serve(producer.poll, PAUSE_S)
            while len(producer) >= MOST_WAITING and not self.is_over.is_set() and not fatal:
                serve(producer.poll, 0.05)
        serve(producer.flush, 1 if fatal else FLUSH_S)
        for text in fatal[:1]:
            self.outcomes[f"fatal: {text}"] += 1


class AioKafkaWriter(Client):
    """Idempotent, with acks=all."""

    is_writer = True

    def work(self, process: str) -> None:
        asyncio.run(self._work(process))

    async def _work(self, process: str) -> None:
        import aiokafka
        import aiokafka.errors

        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True, linger_ms=2, retry_backoff_ms=50,
            request_timeout_ms=TIMEOUT_MS, metadata_max_age_ms=2000,
        )  # fmt: skip
        try:
            await producer.start()
        except aiokafka.errors.KafkaError as error:
            self.outcomes[f"{type(error).__name__} at the start"] += 1
            await producer.stop()
            return
        waiting: set[asyncio.Task[None]] = set()
        self._is_broken = False
        number = 0
        while not self.is_over.is_set() and not self._is_broken:
            key = self.keys[number % len(self.keys)]
            value = f"{process}:{number}"
            one = Append(process, key, number, value, time.monotonic(), NEVER, UNKNOWN, -1, -1, True)
            self.history.append(one)
            try:
                async with asyncio.timeout(10):
                    sent = await producer.send(key[0], value.encode() + b" " + b"y" * (number % 300), partition=key[1])
            except (aiokafka.errors.KafkaError, TimeoutError) as error:  # it may be in a batch that is sent
                self.outcomes[type(error).__name__] += 1
                break
            task = asyncio.ensure_future(self._acknowledged(sent, one))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            number += 1
            await asyncio.sleep(PAUSE_S)
            while len(waiting) >= MOST_WAITING and not self.is_over.is_set():
                await asyncio.wait(waiting, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        if waiting:
            await asyncio.wait(waiting, timeout=FLUSH_S)
        for task in tuple(waiting):
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        try:
            async with asyncio.timeout(20):
                await producer.stop()
        except Exception as error:
            self.outcomes[f"{type(error).__name__} at the end"] += 1

    async def _acknowledged(self, sent: Any, one: Append) -> None:
        import aiokafka.errors

        try:
            outcomes = await asyncio.shield(sent)
            self.take(one, OK, outcomes.offset, time.monotonic())
        except (aiokafka.errors.KafkaError, asyncio.CancelledError) as error:
            self._is_broken = True
            self.outcomes[type(error).__name__] += 1


class LibrdkafkaReader(Client):
    """Reads all partitions from their beginning, and restarts where its position is refused."""

    def work(self, process: str) -> None:
        import confluent_kafka as ck

        consumer = ck.Consumer({
            **LIBRDKAFKA, "bootstrap.servers": self.bootstrap, "group.id": self.name, "enable.auto.commit": False,
            "auto.offset.reset": "error", "fetch.wait.max.ms": 50, "isolation.level": "read_committed",
        })  # fmt: skip
        consumer.assign([ck.TopicPartition(topic, index, 0) for topic, index in self.keys])
        begun: set[Key] = set()
        try:
            while not self.is_over.is_set():
                begin = time.monotonic()
                found: dict[Key, list[tuple[int, str]]] = {}
                for record in consumer.consume(500, 0.1):
                    if record.error() is None:
                        value = record.value().split(b" ", 1)[0].decode()
                        found.setdefault((record.topic(), record.partition()), []).append((record.offset(), value))
                    elif record.error().code() in OUT_OF_RANGE:
                        self.outcomes[f"position refused: {record.topic()}"] += 1
                        return
                end = time.monotonic()
                for key, records in found.items():
                    self.history.append(Poll(process, key, begin, end, tuple(records), key not in begun))
                    begun.add(key)
                    self.outcomes["read"] += len(records)
        finally:
            consumer.close()


class AioKafkaReader(Client):
    """Likewise."""

    def work(self, process: str) -> None:
        asyncio.run(self._work(process))

    async def _work(self, process: str) -> None:
        import aiokafka
        import aiokafka.errors

        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, auto_offset_reset="none", retry_backoff_ms=50,
            metadata_max_age_ms=1000, request_timeout_ms=5000,
        )  # fmt: skip
        begun: set[Key] = set()
        try:
            await consumer.start()
            places = [aiokafka.TopicPartition(*key) for key in self.keys]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
            while not self.is_over.is_set():
                begin = time.monotonic()
                found = await consumer.getmany(timeout_ms=100, max_records=500)
                end = time.monotonic()
                for place, records in found.items():
                    key = (place.topic, place.partition)
                    rows = tuple((one.offset, one.value.split(b" ", 1)[0].decode()) for one in records)
                    self.history.append(Poll(process, key, begin, end, rows, key not in begun))
                    begun.add(key)
                    self.outcomes["read"] += len(rows)
        except aiokafka.errors.OffsetOutOfRangeError as error:
            for place in error.args[0]:
                self.outcomes[f"position refused: {place.topic}"] += 1
        except aiokafka.errors.KafkaError as error:
            self.outcomes[type(error).__name__] += 1
            await asyncio.sleep(0.2)
        finally:
            with suppress(asyncio.CancelledError):  # of a task of its own that had not begun
                await consumer.stop()

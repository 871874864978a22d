"""The partitions of all workers as one store, for the topics of the main process.

The main process lists every topic in its first data directory, with its settings, and the workers list those of which
they have partitions. A topic's deletion is recorded by the main process first and ends there last, so that its next
start continues a deletion that a crash interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError, StorageError
from kafkalog.manager.new_partitions import NewPartitions
from kafkalog.server.workers.layout import MAIN, spread
from kafkalog.server.workers.link import LinkLost
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.server.workers.link import Message
    from kafkalog.server.workers.workers import Workers

CALL_SECONDS: Final = 60.0
"""Time limit of a change in a worker: a slow disk is waited for, a stopped process is not."""


class _AllKeys(Collection[TopicPartition]):
    """The keys of several mappings, none of which is copied."""

    def __init__(self, *mappings: Mapping[TopicPartition, object]) -> None:
        self._mappings = mappings

    def __contains__(self, key: object) -> bool:
        return any(key in one for one in self._mappings)

    def __iter__(self) -> Iterator[TopicPartition]:
        return chain.from_iterable(self._mappings)

    def __len__(self) -> int:
        return sum(len(one) for one in self._mappings)


class SpreadStore:
    """The part of a `LogManager` that `Topics` uses, over all workers. Its changes run in threads of the pool."""

    def __init__(self, store: LogManager, workers: Workers, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._workers = workers
        self._loop = loop
        self.config_of = store.config_of
        self.fs = store.fs

    @property
    def config(self) -> Any:
        """The main process's settings of logs."""
        return self._store.config

    @property
    def topics(self) -> Any:
        """All topics."""
        return self._store.topics

    @property
    def offline(self) -> Iterable[object]:
        """Directories of the main process that are offline, and the numbers of workers with such directories."""
        return chain(self._store.offline, self._workers.offline)

    @property
    def logs(self) -> Collection[TopicPartition]:
        """The partitions of all workers."""
        return _AllKeys(self._store.logs, self._workers.owners)

    @property
    def problems(self) -> Collection[TopicPartition]:
        """The partitions that cannot be opened in the main process; those of workers are among `logs`."""
        return self._store.problems

    def path_of(self, topic: str) -> str:
        """Return the path of one of a topic's partitions."""
        return self._workers.paths.get(topic) or self._store.path_of(topic)

    def _ask(self, worker: int, call: str, values: Mapping[str, Any]) -> Message:
        asking = asyncio.run_coroutine_threadsafe(self._workers.call(worker, call, values), self._loop)
        try:
            return asking.result(CALL_SECONDS)
        except TimeoutError:
            asking.cancel()
            self._in_loop(self._workers.kill, worker)
            raise StorageError(f"worker {worker} did not answer within {CALL_SECONDS:.0f} s") from None

    def _in_loop(self, function: Callable[..., object], *args: object) -> None:
        """Call a function in the loop's thread, where the workers' state changes."""

        async def call() -> None:
            function(*args)

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def create_partitions(
        self, partitions: Sequence[NewPartitions], *, epoch: int = 0, between_batches: Callable[[], object]
    ) -> dict[str, KafkalogError]:
        """Create partitions in their workers. Arguments, result and errors as for `LogManager.create_partitions`."""
        counts = self._workers.counts(len(self._store.logs))
        shares: dict[int, list[NewPartitions]] = {MAIN: []}
        for one in partitions:
            placed = self._placed(one, counts)
            for worker, numbers in {MAIN: [], **placed}.items():
                if worker in counts:
                    counts[worker] += len(numbers)
                shares.setdefault(worker, []).append(one._replace(numbers=numbers, total=one.end))
        new = {one.topic: one.topic_id for one in partitions if self._store.topics.get(one.topic) is None}
        failures = self._store.create_partitions(shares.pop(MAIN), epoch=epoch, between_batches=between_batches)
        for worker, share in shares.items():
            wanted = [one for one in share if one.topic not in failures]
            try:
                rows = [_with_settings(self, one) for one in wanted]
                answer = self._ask(worker, "create", {"epoch": epoch, "topics": rows})
                texts = answer.values["failures"]
                failed: dict[str, KafkalogError] = {name: StorageError(text) for name, text in texts.items()}
            except KafkalogError as error:
                failed = {one.topic: error for one in wanted}
            failures |= failed
            self._in_loop(self._workers.leave, worker, {name: new[name] for name in failed if name in new})
            # a worker that failed to add partitions to a topic may have some: no other one gets them
            made = [TopicPartition(one.topic, number) for one in wanted
                    if one.topic not in failed or one.topic not in new for number in one.numbers]  # fmt: skip
            self._in_loop(self._workers.add, worker, made, epoch)
        return failures

    def _placed(self, new: NewPartitions, counts: Mapping[int, int]) -> dict[int, list[int]]:
        """Return the workers of new partitions; one that an earlier call did not finish stays where it may lie."""
        placed: dict[int, list[int]] = {}
        left = []
        for number in new.numbers:
            key = TopicPartition(new.topic, number)
            if key in self.logs:
                placed.setdefault(self._workers.worker_of(key), []).append(number)
            else:
                left.append(number)
        for worker, numbers in spread(new.topic, left, counts).items():
            placed[worker] = sorted([*placed.get(worker, ()), *numbers])
        return placed

    def get_or_create(self, key: TopicPartition, *, topic_id: str) -> None:
        """Create a missing partition where there are the fewest. Raises its error."""
        total = max(key.partition + 1, getattr(self._store.topics.get(key.topic), "partitions", 0))
        new = NewPartitions(key.topic, topic_id, (key.partition,), None, total)
        for error in self.create_partitions((new,), between_batches=lambda: None).values():
            raise error

    def delete_topics(
        self, names: Collection[str], between_batches: Callable[[], object] = lambda: None
    ) -> dict[str, KafkalogError]:
        """Delete topics in all workers. Arguments, result and errors as for `LogManager.delete_topics`."""
        having = self._workers.having(names)
        down = [worker for worker in having if not self._workers.takes_changes(worker)]
        if down:  # not a part of it, either
            return dict.fromkeys(names, LinkLost(f"worker {down[0]} does not run", hint="try again once it runs"))
        failures: dict[str, KafkalogError] = {}
        try:
            self._store.mark_deleted(names)
        except StorageError as error:
            self._store.mark_deleted(names, False)
            return dict.fromkeys(names, error)
        for worker in having:
            try:
                answer = self._ask(worker, "delete", {"topics": sorted(names)})
            except KafkalogError as error:
                failures |= dict.fromkeys(names, error)
                continue
            failures |= {name: StorageError(text) for name, text in answer.values["failures"].items()}
            self._in_loop(self._workers.forget, worker, [name for name in names if name not in failures])
        for worker, remains in self._workers.remains.items():
            if worker not in having and (left := sorted(remains.keys() & names)):
                with suppress(KafkalogError):  # it deletes them at its next start
                    self._ask(worker, "delete", {"topics": left})
        if failures:
            self._store.mark_deleted(failures.keys(), False)
        left = [name for name in names if name not in failures]
        return {**failures, **self._store.delete_topics(left, between_batches)} if left else failures

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises its error."""
        for error in self.delete_topics((name,)).values():
            raise error

    def alter_topic(self, name: str, changes: Mapping[str, object]) -> None:
        """Change a topic's settings in all workers. Errors as for `LogManager.alter_topic`."""
        self._store.alter_topic(name, changes)
        settings = dict(self._store.topics.settings_of(name))
        for worker in self._workers.having((name,)):
            with suppress(LinkLost):  # it gets them at its next start
                self._ask(worker, "alter", {"topic": name, "settings": settings})

    def list_topics(self) -> None:
        """List the topics of workers in the main process's first data directory, if it does not list them."""
        missing = [one for name, one in self._workers.topics.items() if self._store.topics.get(name) is None]
        if missing:
            self._store.create_partitions(missing)


def _with_settings(store: SpreadStore, one: NewPartitions) -> dict[str, Any]:
    settings = dict(store.topics.settings_of(one.topic))
    return {"topic": one.topic, "id": one.topic_id, "numbers": list(one.numbers), "total": one.total,
            "settings": settings}  # fmt: skip

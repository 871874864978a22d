"""Objects that many threads use at once, with the GIL and without: no crash, no torn value, no lost record.

Nothing here is timed: each thread makes a fixed number of rounds, or goes on until another one is done.
"""

import importlib
import json
import pkgutil
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog._core.arrow.columns import Columns, gathered
from kafkalog._core.batch.decode import RecordTable, decode
from kafkalog._core.batch.encode import encode_batch
from kafkalog._core.batch.record import RecordIterator
from kafkalog._core.batch.scan import scan
from kafkalog.errors import TopicExists
from kafkalog.keys import parts
from kafkalog.keys.latest import LatestRecords
from kafkalog.types import TopicPartition
from kafkalog.values import decoder as decoder_of
from kafkalog.values.schemas.topic import SchemaTopic
from tests.arrow_readers import ALL, as_tuples, pieces_of
from tests.cleaner.pools import Pool

THREADS = 6
KEYS = 200
# what calls import at their first use: pytest parses a module, and CPython 3.11 cannot in two threads (its gh-106905)
for package in ("cleaner", "dirs", "keys", "log", "manager", "reading", "sidecars", "storage"):
    for module in pkgutil.walk_packages([f"{kafkalog.__path__[0]}/{package}"], f"kafkalog.{package}."):
        importlib.import_module(module.name)


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


def together(*calls: Callable[[], object]) -> None:
    """Make each call in a thread of its own, all from the same moment on; raise the first error."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(calls))

    def work(call: Callable[[], object]) -> None:
        start.wait()
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def chunk(batches: int, records: int = 20) -> bytes:
    """Return batches of keyed records with headers, offsets from 0 on."""
    return b"".join(
        bytes(
            encode_batch(
                [(b"k%d" % i, b"v%d" % n * (i + 1), 1000 + n, [("h", b"%d" % i)]) for i in range(records)],
                timestamp=1,
                base_offset=n * records,
            )
        )
        for n in range(batches)
    )


def test_threads_decode_with_one_batch_table() -> None:
    data = chunk(40)
    table = scan(data)
    wanted = as_tuples(decode(data, table))

    def work() -> None:
        for _ in range(10):
            assert as_tuples(decode(data, table)) == wanted
            assert [header.base_offset for header in table] == list(range(0, 800, 20))
            assert sum(memoryview(table.counts)) == 800

    together(*[work] * THREADS)


def test_threads_read_the_same_records() -> None:
    """Keys, values and headers become Python objects at the first look, which all threads take at once."""
    data = chunk(5)
    for _ in range(20):
        records = list(decode(data, scan(data)))
        seen: list[list[Any]] = []

        def read(found: list[kafkalog.Record] = records, into: list[list[Any]] = seen) -> None:
            into.append([(record.key, record.value, record.headers) for record in found])

        together(*[read] * THREADS)
        assert all(one == seen[0] for one in seen) and seen[0][7][0] == b"k7"


def test_each_record_of_a_shared_iterator_is_given_once() -> None:
    data = chunk(100)

    class Tables:
        """One table for each batch, asked for by any thread."""

        def __init__(self) -> None:
            self.rows = iter(range(100))

        def __iter__(self) -> "Tables":
            return self

        def __next__(self) -> RecordTable:
            row = next(self.rows)
            return decode(data, table, row, row + 1)

    table = scan(data)
    records = RecordIterator(Tables())
    seen: list[int] = []
    together(*[lambda: seen.extend([record.offset for record in records])] * THREADS)
    assert len(set(seen)) == len(seen) and set(seen) <= set(range(2000))


def test_columns_become_contiguous_while_others_read_them() -> None:
    data, wanted = chunk(30), list(range(600))
    for _ in range(20):
        columns = gathered(pieces_of(data, topic=b"t", most_rows=7), ALL)

        def numbers(shared: Columns = columns) -> None:
            assert list(memoryview(shared.fixed(4))) == wanted

        def values(shared: Columns = columns) -> None:
            assert shared.values(4, 0, 600) == wanted
            assert sum(len(shared.piece(i)) for i in range(shared.count)) == 600

        together(*[numbers] * 3, *[values] * 3)


def test_threads_share_a_decoder() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from kafkalog.values.json_columns import JsonDecoder

    rows = [b'{"id": %d, "name": "n%d", "list": [%d, 2.5]}' % (i, i, i) for i in range(300)]
    column = pyarrow.array(rows, pyarrow.binary())
    wanted = JsonDecoder().decode(column).values.to_pylist()
    decoder = JsonDecoder()

    def work() -> None:
        for _ in range(5):
            assert decoder.decode(column).values.to_pylist() == wanted

    together(*[work] * THREADS)


@pytest.mark.parametrize("name", ["avro", "json", "protobuf"])
def test_a_decoder_that_decodes_has_its_type(name: str) -> None:
    """A thread that sees the columns decodes without a lock, and may ask for the type and the schema then."""
    pytest.importorskip("pyarrow")
    schemas: dict[str, Any] = {"avro": "long", "json": {"type": "integer"}}
    if name == "protobuf":
        schemas[name] = pytest.importorskip("google.protobuf.type_pb2").Option
    decoder = type(decoder_of(name, schema=schemas[name]))
    seen = []

    class Watched(decoder):  # type: ignore[misc, valid-type]
        def __setattr__(self, attribute: str, value: object) -> None:
            super().__setattr__(attribute, value)
            if attribute in ("_column", "_rows") and value is not None:
                seen.append((self.arrow_type, self.settled))

    whole = Watched(schemas[name])
    assert seen == [(whole.arrow_type, whole.settled)]


def test_a_subject_of_a_topic_grows_while_its_latest_version_is_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "data" / "_schemas-0"
    with kafkalog.open(path, "a") as log:

        def add(number: int) -> None:
            named = {"subject": "s", "version": number}
            value = json.dumps({**named, "id": number, "schema": '"long"'}).encode()
            log.append([(json.dumps({"keytype": "SCHEMA", **named}).encode(), value)])

        class Meanwhile(set[tuple[str, int]]):
            """Deleted versions; at a look another thread reads one more version."""

            def __contains__(self, version: object) -> bool:
                add(log.end_offset + 1)
                together(source.refresh)
                return super().__contains__(version)

        add(1)
        add(2)
        source = SchemaTopic(path.parent)
        source._deleted = Meanwhile()
        assert source.by_version("s").id == 2
        assert [one.id for one in source.schemas_of("s")] == [4, 3, 2, 1]


def value_of(record: kafkalog.Record | None) -> int:
    assert record is not None and record.value is not None, "a key that is in the log was not found"
    return int(record.value)


def keyed_log(path: Path, **options: Any) -> kafkalog.Log:
    log = kafkalog.open(path / "data" / "t-0", "a", internal_segment_bytes=20_000, **options)
    log.append([(b"k%d" % i, b"0" * 20) for i in range(KEYS)])
    return log


class Named(NamedTuple):
    """The part of a log that a cleaner's list of partitions needs."""

    path: str
    topic_partition: TopicPartition


class Rounds:
    """A writer that gives each key rising numbers, and readers that never see a number fall."""

    def __init__(self, log: kafkalog.Log, rounds: int = 40) -> None:
        self.log = log
        self.rounds = rounds
        self.acknowledged = [0] * KEYS
        self.is_done = threading.Event()

    def write(self) -> None:
        try:
            for number in range(1, self.rounds):
                self.log.append([(b"k%d" % i, b"%020d" % number) for i in range(KEYS)])
                self.acknowledged = [number] * KEYS
        finally:
            self.is_done.set()

    def read(self, look_up: Callable[[bytes], kafkalog.Record | None]) -> Callable[[], None]:
        def work() -> None:
            last, choose = [0] * KEYS, random.Random(1)
            while not self.is_done.is_set():
                key = choose.randrange(KEYS)
                at_least = max(last[key], self.acknowledged[key])
                last[key] = value_of(look_up(b"k%d" % key))
                assert last[key] >= at_least, f"the value {last[key]} of key {key} was {at_least} before"

        return work

    def until_done(self, step: Callable[[], object]) -> Callable[[], None]:
        def work() -> None:
            while not self.is_done.is_set():
                step()

        return work


def test_look_ups_by_key_while_the_log_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The map of the log's end grows under look-ups, indexes are built, and their pages released between them."""
    monkeypatch.setattr(parts, "PAGES_BYTES", 4096)
    with keyed_log(tmp_path) as log:
        rounds = Rounds(log)
        many = [b"k%d" % i for i in range(KEYS)]
        together(
            rounds.write,
            *[rounds.read(log.get)] * 3,
            rounds.until_done(lambda: [value_of(one) for one in log.get_many(many)]),
            rounds.until_done(lambda: [int(row["value"]) for row in log.get_table(many, ["value"])]),
            rounds.until_done(log.build_key_index),
        )
        assert [value_of(log.get(key)) for key in many] == [rounds.rounds - 1] * KEYS


@pytest.mark.parametrize("in_memory", [False, True])
def test_one_mapping_of_the_latest_records(tmp_path: Path, in_memory: bool) -> None:
    with keyed_log(tmp_path) as log:
        latest = log.latest(in_memory=in_memory)
        rounds = Rounds(log, 25)

        def count() -> None:
            assert len(latest) == KEYS

        together(rounds.write, *[rounds.read(latest.__getitem__)] * 3, rounds.until_done(count))
        assert {value_of(record) for record in latest.values()} == {24}


def test_the_count_of_a_mapping_is_that_of_its_own_state(tmp_path: Path) -> None:
    """Another thread that counts an older state, and keeps that last, changes no one else's count."""
    kept: list[object] = []

    class Watched(LatestRecords):
        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "_counted":
                kept.append(value)
                super().__setattr__(name, (("older",), 3))

    with keyed_log(tmp_path) as log:
        latest = log.latest()
        latest.__class__ = Watched
        assert len(latest) == KEYS and len(kept) == 1


def test_the_cleaner_beside_readers_and_the_writer(tmp_path: Path) -> None:
    with keyed_log(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0) as log:
        rounds = Rounds(log)

        def scan_all() -> None:
            newest = {record.key: int(record.value or b"") for record in log}
            assert len(newest) == KEYS

        together(
            rounds.write, rounds.read(log.get), rounds.until_done(lambda: log.compact(roll=True)),
            rounds.until_done(scan_all),
        )  # fmt: skip
        log.compact(roll=True)
        assert [int(record.value or b"") for record in log] == [rounds.rounds - 1] * KEYS


def test_the_cleaner_forgets_partitions_while_others_put_some_off(tmp_path: Path) -> None:
    """Without the GIL a tuple of a dict, unlike a list of it, raises if another thread changes the dict meanwhile."""
    pool = Pool(tmp_path)
    logs: list[Any] = [Named(str(tmp_path / f"t-{n}"), TopicPartition("t", n)) for n in range(4000)]
    pool.current_logs = {log.topic_partition: log for log in logs}
    for log in logs:
        pool.manager.postpone(log, 1000)
    is_done = threading.Event()

    def put_off(number: int) -> None:
        while not is_done.is_set():
            for log in logs[number : number + 20]:
                pool.manager.reinstate(log)
            for log in logs[number : number + 20]:
                pool.manager.postpone(log, 1000)

    def forget() -> None:
        try:
            for _ in range(400):
                pool.manager.forget_removed()
        finally:
            is_done.set()

    together(*[lambda n=n: put_off(20 * n) for n in range(3)], forget)


def test_one_iterator_of_a_log(tmp_path: Path) -> None:
    """Each record is given once; a thread that asks while another one reads from the disk gets an error, or waits."""
    with keyed_log(tmp_path) as log:
        for _ in range(40):
            log.append([(b"k%d" % i, b"1" * 20) for i in range(KEYS)])
        for _ in range(5):
            records, seen = iter(log), list[int]()

            def read(given: Iterator[kafkalog.Record] = records, into: list[int] = seen) -> None:
                while True:
                    try:
                        into.extend([record.offset for record in given])
                        return
                    except ValueError as error:
                        assert "already executing" in str(error)

            together(*[read] * THREADS)
            assert len(set(seen)) == len(seen) and set(seen) <= set(range(log.end_offset))


def test_one_scan_that_many_threads_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with keyed_log(tmp_path) as log:
        for _ in range(20):
            log.append([(b"k%d" % i, b"1" * 20) for i in range(KEYS)])
        columns = log.scan(["offset", "key"])
        typed = log.scan(where="key == 'k7' and value == '11111111111111111111'", value="string", project=["offset"])
        wanted = list(range(KEYS + 7, 21 * KEYS, KEYS))

        def work() -> None:
            for _ in range(3):
                assert sum(len(piece) for piece in columns) == 21 * KEYS
                assert typed.table()["offset"].to_pylist() == wanted and typed.schema.names == ["offset"]

        together(*[work] * THREADS)


def test_logs_of_one_store(tmp_path: Path) -> None:
    """Threads make, fill, look up and delete topics of a store at the same time."""
    with kafkalog.open_dirs(tmp_path / "data", "a") as store:
        store.create_topic("shared", 4)

        def work(number: int) -> None:
            for turn in range(5):
                try:
                    store.create_topic(f"t{turn}", 2)
                except TopicExists:
                    pass
                own = f"own-{number}-{turn}"
                store.create_topic(own)
                store[own, 0].append([b"one", b"two"])
                for partition in range(4):
                    store["shared", partition].append([b"%d" % number])
                assert store[own, 0].end_offset == 2
                store.delete_topic(own)

        together(*[lambda n=n: work(n) for n in range(THREADS)])
        assert [store["shared", partition].end_offset for partition in range(4)] == [5 * THREADS] * 4
        assert all((f"t{turn}", 1) in store for turn in range(5))

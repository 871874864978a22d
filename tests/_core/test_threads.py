"""Threads that share what belongs to one: an error or a right answer, never a crash; the GIL comes and goes inside."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.encode import BatchBuilder, encode_batch
from kafkalog._core.batch.scan import scan
from kafkalog._core.keys.given_keys import GivenKeys
from kafkalog._core.keys.key_builder import KeyBuilder
from kafkalog._core.keys.key_columns import KeyColumns
from kafkalog._core.keys.key_finder import KeyFinder
from kafkalog._core.keys.key_map import KeyMap
from kafkalog._core.log.admit import first_to_change
from kafkalog._core.log.index import OffsetEntries
from kafkalog._core.log.segment_check import BatchCheck
from kafkalog._core.text.ingest import LineEncoder
from kafkalog._core.text.template import VALUE, TemplateText
from tests.arrow_readers import ALL
from tests.renderers import dump_text

ROUNDS = 300


def together(*calls: Callable[[], Any], expected: tuple[type[Exception], ...] = ()) -> None:
    """Makes each call in a separate thread, again and again until all were tried ROUNDS times.

    Errors other than the expected ones are raised here.
    """
    errors: list[BaseException] = []
    tries = [0] * len(calls)
    start = threading.Barrier(len(calls))

    def work(number: int) -> None:
        start.wait()
        while min(tries) < ROUNDS and not errors:
            tries[number] += 1
            try:
                calls[number]()
            except expected:
                pass
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    if errors:
        raise errors[0]


def test_line_encoder() -> None:
    """The second thread is refused; the first goes on, and nothing it encoded is damaged."""
    text = b"".join(b"k%d:%s\n" % (i % 7, b"v" * (i % 90)) for i in range(3_000))
    encoder = LineEncoder(3, key_delimiter=b":")
    taken: list[bytes] = []
    together(
        lambda: encoder.feed(text, len(text), 1),
        lambda: encoder.feed(text, len(text), 2),
        lambda: taken.extend(bytes(encoder.take(n)) for n in range(3)),
        lambda: encoder.add(b"x" * 1000, None, 3),
        lambda: (encoder.seal(), encoder.ready_bytes(1), encoder.records(2)),
        expected=(RuntimeError,),
    )
    encoder.seal()
    taken += [bytes(encoder.take(n)) for n in range(3)]
    total = 0
    for data in taken:
        table = scan(data)
        assert (table.first_invalid, table.valid_bytes) == (-1, len(data))
        total += len(decode(data, table))
    assert total == sum(encoder.records(n) for n in range(3))


def test_batch_builder() -> None:
    """Headers are Python code, in the middle of which another thread may run: every record is whole all the same."""
    builder = BatchBuilder(1 << 20)
    built: list[bytearray] = []

    def append(letter: int) -> Callable[[], Any]:
        value = bytes([letter]) * 300
        return lambda: builder.append(bytearray(value), value, 1, ((str(letter), value) for _ in range(3)))

    together(append(65), append(66), append(67), lambda: built.append(builder.build()), expected=(RuntimeError,))
    built.append(builder.build())
    for data in built:
        records = decode(data, scan(data))
        assert records.status == 0
        assert list(records.offsets) == list(range(len(records)))
        for record in records:
            assert record.value == record.key and record.value is not None
            assert record.headers == ((str(record.value[0]), record.value),) * 3


def test_renderers() -> None:
    data = bytes(encode_batch([b"x" * 100] * 3000, timestamp=1))
    for text, rest in ((dump_text(data=True), (0,)), (TemplateText([(VALUE, b"")]), ())):
        together(
            lambda: text.render(data, 0, len(data), *rest),  # noqa: B023
            lambda: text.render(data, 0, len(data), *rest),  # noqa: B023
            lambda: text.text.take(),  # noqa: B023
            lambda: bytes(memoryview(text.text)[:1]),  # noqa: B023
            lambda: text.text.clear(),  # noqa: B023
            expected=(BufferError,),
        )


def test_a_buffer_that_others_write_to_and_try_to_resize() -> None:
    """Readers see old bytes, new bytes or a mixture: whatever it is, they stay inside, and the size is held."""
    sound = bytes(encode_batch([(b"k" * 20, b"v" * 50, 5, [("h", b"1" * 9)])] * 2000, timestamp=1))
    data = bytearray(sound)
    table = scan(sound)

    def scribble() -> None:
        for at in range(61, len(data), 211):
            data[at : at + 5] = b"\xff\xff\xff\xff\x0f"
        data[:] = sound

    def resize() -> None:
        data.append(0)
        del data[-1]

    def read() -> None:
        records = decode(data, table)
        for row in range(0, len(records), 50):
            try:
                records.headers(row)
            except ValueError as error:
                assert "overwritten" in str(error)
            assert len(records.value(row) or b"") < len(sound)

    together(
        read,
        scribble,
        resize,
        lambda: scan(data),
        lambda: first_to_change(data, table),
        lambda: dump_text(data=True).render(data, 0, len(sound), 0),
        expected=(BufferError, ValueError),
    )


def test_index_entries() -> None:
    """IDX-16: a search without the GIL keeps its buffer while others swap and close."""
    small = bytes(8) + b"".join(n.to_bytes(4, "big") * 2 for n in range(1, 2000))
    large = bytes(8) + b"".join(n.to_bytes(4, "big") * 2 for n in range(1, 4000))
    entries = OffsetEntries(bytearray(small), 0, 1000)
    targets = list(range(0, 1000, 2)) * 4

    def search() -> None:
        offsets, positions = entries.lookup_many(targets)
        assert list(offsets) == list(positions) == targets

    together(
        search,
        search,
        lambda: entries.attach(bytearray(large), 3000),
        lambda: entries.attach(bytearray(small), 1500),
        lambda: (entries.close(), entries.attach(bytearray(small), 1200)),
        lambda: entries.lookup(17),
        expected=(ValueError,),
    )
    entries.close()
    assert entries.closed


def test_batch_check() -> None:
    """The second thread is refused; its tables are not moved under the first."""
    data = bytes(encode_batch([b"v" * 10] * 400, timestamp=5)) * 60
    entries = bytes(range(80))

    def use() -> None:
        state.check(data, 0, len(data))
        state.expect_entries(entries, entries[:72])
        assert all(len(run) == 4 for run in state.epoch_runs)
        state.skip_to(0)

    state = BatchCheck(0, 2 * len(data))
    together(use, use, use, expected=(RuntimeError,))
    assert state.records > 0


def until_refused(*calls: Callable[[], object], beside: Callable[[], object]) -> list[str]:
    """Return the text of the error of each call, made again and again while another thread does something else."""
    done = threading.Event()
    errors: list[str] = []

    def work() -> None:
        while not done.is_set():
            try:
                beside()
            except RuntimeError:  # this one is the second then
                pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for call in calls:
            for _ in range(20_000):
                time.sleep(1e-4)  # the other thread goes on meanwhile, on a busy machine too
                try:
                    call()
                except RuntimeError as error:
                    errors.append(str(error))
                    break
    finally:
        done.set()
        thread.join()
    return errors


def test_a_batch_check_is_not_moved_under_another_thread() -> None:
    data = bytes(encode_batch([b"v" * 10] * 400, timestamp=5)) * 60
    state = BatchCheck(0, 2 * len(data))

    def walk() -> None:
        state.skip_to(0)
        state.check(data, 0, len(data))

    errors = until_refused(lambda: state.skip_to(0), lambda: state.set_end(2 * len(data)), beside=walk)
    assert errors == ["another thread uses this walk"] * 2


def test_copies_of_records_are_not_moved_under_another_thread() -> None:
    keys = [b"k%d" % n for n in range(2000)]
    data = bytes(encode_batch([(key, key * 400) for key in keys], timestamp=1))
    table = scan(data)
    small = next(iter(decode(data, table)))
    picker = KeyColumns(GivenKeys(keys), b"".join(n.to_bytes(8, "little") for n in range(2000)), 0)
    assert picker.take(data, table, 0, 1)
    calls: tuple[Callable[[], object], ...] = (
        lambda: picker.give(5, small), lambda: picker.take(data, table, 0, 1), lambda: picker.take_one(None),
        lambda: picker.pass_over(9), lambda: picker.finish(ALL),
    )  # fmt: skip
    errors = until_refused(*calls, beside=lambda: picker.finish(ALL))
    assert errors == ["another thread uses this picker"] * 5


def test_a_walk_over_keys_is_not_read_while_another_thread_fills_it() -> None:
    data = bytes(encode_batch([(b"k%d" % n, b"v") for n in range(20_000)], timestamp=1))
    table = scan(data)
    secret = bytes(16)
    builder, finder = KeyBuilder(secret, 0, 1 << 30), KeyFinder(secret, bytes(8), 0, 1 << 30, True)
    key_map = KeyMap(secret, 0)
    for walk, calls in (
        (builder, (lambda: builder.mark(table, 0, 1), builder.finish)),
        (finder, (finder.take_found,)),
        (key_map, (lambda: key_map.find_last(7, 9), lambda: key_map.find_all(7, 0, 9),
                   lambda: key_map.find_last_many(bytes(8), 9, bytearray(8)))),
    ):  # fmt: skip
        errors = until_refused(*calls, beside=lambda: walk.take(data, table, 0, 1))  # noqa: B023
        assert errors == ["another thread uses this walk"] * len(calls)

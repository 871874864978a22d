"""The short way of an append and the long one: the same files, states, results and refusals (LOG-2, LOG-60)."""

import errno
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import hooks
from kafkalog.errors import KafkalogError, StorageError
from kafkalog.storage.log import UnifiedLog
from tests import builder
from tests.faults import FaultFS
from tests.storage.logs import NOW, append_batches, bases, log, sized_batch
from tests.transactional import TRANSACTIONAL

SETTINGS: dict[str, Any] = {
    "internal_segment_bytes": 1500, "index_interval_bytes": 300, "max_message_bytes": 600,
    "message_timestamp_after_max_ms": 1000,
}  # fmt: skip
PLAIN = -1


class Op(NamedTuple):
    """An append: the batch, and what is done to its bytes."""

    values: list[int]
    ago_ms: int = 0
    producer: int = PLAIN
    sequence_step: int = 0
    base_offset: int = 0
    flipped: int | None = None
    attributes: int = 0


OPS = st.builds(
    Op,
    values=st.lists(st.integers(0, 250), min_size=1, max_size=4),
    ago_ms=st.sampled_from([0, 0, 0, 5, -5, 100_000, -100_000]),
    producer=st.sampled_from([PLAIN, PLAIN, 7, 8]),
    sequence_step=st.sampled_from([0, 0, 0, 0, -1, 1]),
    base_offset=st.sampled_from([0, 0, 0, 3]),
    flipped=st.none() | st.none() | st.integers(0, 90),
    attributes=st.sampled_from([0, 0, 0, 0, TRANSACTIONAL, 8, 32]),
)


def batches_of(ops: list[Op]) -> list[bytes]:
    """The batches; those of a producer continue it, where `sequence_step` is 0."""
    sequences: dict[int, int] = {}
    made = []
    for op in ops:
        sequence = sequences.get(op.producer, 0) + op.sequence_step if op.producer >= 0 else -1
        records = [builder.R(b"." * size, timestamp=NOW - op.ago_ms) for size in op.values]
        data = builder.batch(
            records, base_offset=op.base_offset, producer_id=op.producer, producer_epoch=0 if op.producer >= 0 else -1,
            base_sequence=sequence, attributes=op.attributes,
        )  # fmt: skip
        if op.producer >= 0 and not op.sequence_step:
            sequences[op.producer] = sequence + len(op.values)
        changed = bytearray(data)
        if op.flipped is not None:
            changed[min(op.flipped, len(data) - 1)] ^= 4
        made.append(bytes(changed))
    return made


Append = Callable[[UnifiedLog], object]


def run_appends(path: Path, appends: list[Append], way: AbstractContextManager[Any]) -> tuple[Any, ...]:
    """Return each append's result, the final state, and the files after the close."""
    given = []
    path.mkdir()
    with way:
        a_log = log(path, **SETTINGS)
        for append in appends:
            try:
                given.append(repr(append(a_log)))
            except KafkalogError as error:
                given.append(str(error).replace(str(path), ""))
        producers = sorted(map(repr, a_log._core.producers.producers))
        state = a_log.high_watermark, a_log.log_end_offset, a_log.leader_epochs, bases(a_log), producers
        a_log.close()
    names = sorted(file for file in path.rglob("*") if file.is_file())
    return given, state, {str(file.relative_to(path)): file.read_bytes() for file in names}


@given(st.lists(OPS, min_size=1, max_size=25))
@settings(deadline=None)
def test_both_ways_do_the_same(new_path: Callable[[str], Path], ops: list[Op]) -> None:
    check_both_ways(new_path, [
        lambda a_log, data=data: a_log.append_as_leader(bytearray(data)) for data in batches_of(ops)
    ])  # fmt: skip


@given(st.lists(st.lists(OPS, min_size=1, max_size=6), min_size=1, max_size=8))
@settings(deadline=None)
def test_both_ways_append_the_same_batches_at_once(
    new_path: Callable[[str], Path], groups: list[list[Op]]
) -> None:
    check_both_ways(new_path, [
        lambda a_log, data=data: a_log.append_batches(bytearray(data))
        for data in join_groups(batches_of([op for group in groups for op in group]), groups)
    ])  # fmt: skip


class Copied(NamedTuple):
    """A batch of a follower's append: how it follows the one before, and in which epoch."""

    op: Op
    gap: int = 0
    epoch: int = 0
    magic: int = 2


COPIED = st.builds(
    Copied, OPS, gap=st.sampled_from([0, 0, 0, 0, 2, -1]), epoch=st.sampled_from([0, 0, 0, 0, 0, 1, 2, -1]),
    magic=st.sampled_from([2, 2, 2, 2, 2, 2, 2, 1]),
)  # fmt: skip


@given(st.lists(st.lists(COPIED, min_size=1, max_size=5), min_size=1, max_size=10))
@settings(deadline=None)
def test_both_ways_append_the_same_copies(
    new_path: Callable[[str], Path], groups: list[list[Copied]]
) -> None:
    """LOG-3, LOG-4, LOG-81: a follower's batches keep their offsets and epochs."""
    copies = [copied for group in groups for copied in group]
    offset, made = 0, []
    for copied, data in zip(copies, batches_of([copied.op for copied in copies]), strict=True):
        offset = max(0, offset + copied.gap)
        if copied.magic == 1:
            changed = bytearray(builder.message_v1(offset, b"old"))
            offset += 1
        else:
            changed = bytearray(data)
            changed[:8], changed[12:16] = offset.to_bytes(8, "big"), copied.epoch.to_bytes(4, "big", signed=True)
            offset += len(copied.op.values)
        made.append(bytes(changed))
    check_both_ways(new_path, [
        lambda a_log, data=data: a_log.append_as_follower(bytes(data), 1) for data in join_groups(made, groups)
    ])  # fmt: skip


def join_groups(batches: list[bytes], groups: list[list[Any]]) -> list[bytes]:
    """The batches, back to back in groups of those sizes."""
    left = iter(batches)
    return [b"".join(next(left) for _ in group) for group in groups]


def check_both_ways(new_path: Callable[[str], Path], appends: list[Append]) -> None:
    """An append with a listener takes the long path."""
    root = new_path("ways")
    short = run_appends(root / "short", appends, nullcontext())
    assert short == run_appends(root / "long", appends, hooks.on("append", lambda event: None))


LONG_WAYS = {"append_checked", "_append_group", "_append_kept"}


def path_taken(a_log: UnifiedLog, data: bytes, append: Append | None = None) -> str:
    """Return the path that an append took: the long ones plan it in Python."""
    called: set[str] = set()
    sys.setprofile(lambda frame, event, _: called.add(frame.f_code.co_name))
    try:
        info = a_log.append_ready(data) if append is None else append(a_log)
    finally:
        sys.setprofile(None)
    return "no ready batch" if info is None else "long" if called & LONG_WAYS else "short"


def test_the_short_way_takes_what_is_usual(tmp_path: Path) -> None:
    """Else `test_both_ways_do_the_same` would show nothing."""
    a_log = log(tmp_path, **SETTINGS)
    append_batches(a_log)  # makes the file
    plain = sized_batch(100)
    assert [path_taken(a_log, plain) for _ in range(8)] == ["short"] * 8  # with index entries
    of_producer = builder.batch([b"v"], producer_id=7, producer_epoch=0, base_sequence=0)
    assert path_taken(a_log, of_producer) == "long"
    a_log.append_as_leader(bytearray(of_producer))
    assert path_taken(a_log, builder.batch([b"v"], producer_id=7, producer_epoch=0, base_sequence=1)) == "short"
    for unusual in (plain + plain, plain[:-1], b"", builder.batch([b"v"], attributes=TRANSACTIONAL)):
        before = a_log.log_end_offset
        assert path_taken(a_log, unusual) == "no ready batch" and a_log.log_end_offset == before


def test_the_short_way_takes_usual_runs(tmp_path: Path) -> None:
    a_log = log(tmp_path, internal_segment_bytes=20_000)
    leads: Append = lambda a_log: a_log.append_batches(bytearray(sized_batch(100) * 3))  # noqa: E731
    assert [path_taken(a_log, b"", leads) for _ in range(3)] == ["long", "short", "short"]

    def follows(**fields: int) -> Append:
        end = a_log.log_end_offset
        run = b"".join(builder.batch([b"v"], base_offset=end + at, **fields) for at in range(2))
        return lambda a_log: a_log.append_as_follower(run, 5)

    assert path_taken(a_log, b"", follows(leader_epoch=1)) == "long"  # an epoch begins
    assert path_taken(a_log, b"", follows(leader_epoch=1)) == "short"
    assert path_taken(a_log, b"", follows(leader_epoch=1, producer_id=7, producer_epoch=0, base_sequence=0)) == "short"
    assert a_log._core.producers.map_end_offset == a_log.log_end_offset
    begins = follows(leader_epoch=1, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0)
    assert path_taken(a_log, b"", begins) == "long"


@pytest.mark.parametrize("is_copy", [False, True])
@pytest.mark.parametrize("partial", [0, 30, 700])
def test_a_run_that_is_not_written_leaves_the_log_as_it_was(tmp_path: Path, is_copy: bool, partial: int) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, index_interval_bytes=300)
    append_batches(a_log)
    file = tmp_path / "topic-0" / f"{0:020d}.log"
    before = file.read_bytes()

    def append() -> object:
        if is_copy:
            return a_log.append_as_follower(b"".join(sized_batch(400, base=1 + at, epoch=0) for at in range(3)), 0)
        return a_log.append_batches(bytearray(sized_batch(400) * 3))

    fs.fail("pwrite", path=".log", code=errno.ENOSPC, partial=partial)
    with pytest.raises(StorageError) as error:
        append()
    assert (error.value.errno, error.value.offset) == (errno.ENOSPC, 1)
    assert file.read_bytes() == before and a_log.log_end_offset == 1
    fs.heal()
    append()
    assert a_log.log_end_offset == 4 and a_log.active_segment.offset_index.entries > 0


@pytest.mark.parametrize("size", [80, 400], ids=["without an entry", "with an entry"])
@pytest.mark.parametrize("partial", [0, 30])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_leaves_the_log_as_it_was(tmp_path: Path, size: int, partial: int, code: int) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    append_batches(a_log, size)
    file = tmp_path / "topic-0" / f"{0:020d}.log"
    before = file.read_bytes()
    fs.fail("pwrite", path=".log", code=code, partial=partial)
    with pytest.raises(StorageError) as error:
        a_log.append_ready(sized_batch(size))
    assert (error.value.errno, error.value.offset) == (code, 1)
    assert file.read_bytes() == before and a_log.log_end_offset == 1
    fs.heal()
    assert path_taken(a_log, sized_batch(size)) == "short" and a_log.log_end_offset == 2


@pytest.fixture
def limit() -> Iterator[Callable[[int], None]]:
    """Sets how long a file of this process may be, which ends a write in its middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 40], ids=["nothing is written", "a part is written"])
def test_a_file_that_may_not_grow(tmp_path: Path, limit: Callable[[int], None], room: int) -> None:
    """The system's own refusal, in the middle of the one call that writes."""
    a_log = log(tmp_path, internal_segment_bytes=100_000)
    append_batches(a_log, times=30)
    file = tmp_path / "topic-0" / f"{0:020d}.log"
    before = file.read_bytes()
    limit(len(before) + room)
    try:
        with pytest.raises(StorageError) as error:
            a_log.append_ready(sized_batch(100))
    finally:
        limit(resource.RLIM_INFINITY)
    assert error.value.errno == errno.EFBIG and file.read_bytes() == before
    assert path_taken(a_log, sized_batch(100)) == "short" and a_log.log_end_offset == 31

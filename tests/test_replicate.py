"""`Log.replicate`: batches of another log, with their offsets, gaps and epochs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import OffsetsOutOfOrder, UnexpectedAppendOffset

NOW = 1_700_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kafkalog.Log]:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        yield log


def make_batch(*values: bytes, base_offset: int = 0, leader_epoch: int = -1) -> bytearray:
    return encode_batch(list(values), timestamp=NOW, base_offset=base_offset, leader_epoch=leader_epoch)


def test_replicated_batches_keep_their_offsets_and_gaps(log: kafkalog.Log) -> None:
    """LOG-3, LOG-81: a follower's append keeps offset and epoch; with an epoch, later leaders are left out."""
    raw = make_batch(b"a", b"b", base_offset=5, leader_epoch=3) + make_batch(b"c", base_offset=20, leader_epoch=4)
    info = log.replicate(bytes(raw))
    assert (info.first_offset, info.last_offset) == (5, 20) and log.end_offset == 21
    assert [(one.base_offset, one.leader_epoch) for one in (b.header for b in log.batches())] == [(5, 3), (20, 4)]
    newer = make_batch(b"d", base_offset=21, leader_epoch=4) + make_batch(b"e", base_offset=22, leader_epoch=9)
    log.replicate(newer, leader_epoch=4)
    assert log.end_offset == 22
    with pytest.raises(UnexpectedAppendOffset):
        log.replicate(make_batch(b"x", base_offset=3, leader_epoch=4))
    with pytest.raises(OffsetsOutOfOrder):
        log.replicate(
            make_batch(b"x", base_offset=40, leader_epoch=4) + make_batch(b"y", base_offset=30, leader_epoch=4)
        )
    assert [record.value for record in log] == [b"a", b"b", b"c", b"d"]


def test_a_replicated_batch_leaves_the_log_end_a_number(log: kafkalog.Log) -> None:
    log.replicate(make_batch(b"a", leader_epoch=1))
    for base_offset, values in ((2**63 - 1, [b"x"]), (2**63 - 2, [b"x", b"y"])):
        with pytest.raises(UnexpectedAppendOffset, match="leaves none for the log end") as caught:
            log.replicate(make_batch(*values, base_offset=base_offset, leader_epoch=1))
        assert caught.value.last_offset == caught.value.offset == 2**63 - 1 and caught.value.path
    assert log.append(b"b").first_offset == 1
    assert log.replicate(make_batch(b"x", base_offset=2**63 - 2, leader_epoch=1)).last_offset == 2**63 - 2


def test_an_append_has_the_latest_epoch_of_the_log(tmp_path: Path) -> None:
    """A log that a broker wrote goes on in its last epoch: an older one would contradict the batches before it."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.replicate(make_batch(b"a", leader_epoch=3))
        log.append(b"b")
    for _ in range(2):
        with kafkalog.open(tmp_path / "t-0", "a") as log:
            log.append(b"c")
            log.append_bytes(make_batch(b"d"))
    with kafkalog.open(tmp_path / "t-0") as log:
        assert {batch.header.leader_epoch for batch in log.batches()} == {3}
    assert kafkalog.verify(tmp_path).ok


def test_a_copied_log_is_byte_for_byte_the_same(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as source, kafkalog.open(tmp_path / "u-0", "a") as copy:
        for number in range(50):
            source.append([b"%d" % number] * (number % 3 + 1))
        for segment in source.segments:
            copy.replicate(Path(segment.path).read_bytes())
        assert copy.end_offset == source.end_offset
        assert Path(copy.segments[0].path).read_bytes() == Path(source.segments[0].path).read_bytes()


def test_replicate_takes_any_leader_epoch_as_a_bound(log: kafkalog.Log) -> None:
    source = encode_batch([b"v"], timestamp=NOW, leader_epoch=3)
    assert log.replicate(source, leader_epoch=-(2**70)).first_offset == -1
    assert log.replicate(source, leader_epoch=2**70).first_offset == 0
    with pytest.raises(TypeError):
        log.replicate(source, leader_epoch=3.5)  # type: ignore[arg-type]

"""Copies after a redaction of the last batch, in the source or in the copy: they go on."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.copy import copy_topics
from kafkalog.errors import IllegalState
from kafkalog.redact.directories import redact
from tests.builder import R, batch, message_v1


def append(data: Path, *batches: bytes) -> None:
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        if "t" not in dirs.topics:
            dirs.create_topic("t", 1, {"retention.ms": -1})
        for one in batches:
            dirs["t", 0].replicate(one)


def made(magic: int, base: int, value: bytes = b"v", timestamp: int = 5_000) -> bytes:
    offsets = range(base, base + 3)
    if magic == 1:
        return b"".join(message_v1(n, value, b"k%d" % n, timestamp + n) for n in offsets)
    return batch([R(value, b"k%d" % n, timestamp=timestamp + n) for n in offsets], base_offset=base, leader_epoch=0)


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("place", ["data", "copied"])
@pytest.mark.parametrize("erases_key", [False, True])
def test_a_copy_goes_on_after_a_redaction(tmp_path: Path, magic: int, place: str, erases_key: bool) -> None:
    data, target = tmp_path / "data", tmp_path / "copied"
    append(data, made(magic, 0), made(magic, 3))
    copy_topics(str(data), str(target), apply=True)
    report = redact(tmp_path / place, "t", offsets={0: [4, 5]}, change="empty", erase_key=erases_key, apply=True)
    assert report.left == 0
    append(data, made(magic, 6))
    assert copy_topics(str(data), str(target), apply=True).records == 3
    with kafkalog.open(target / "t-0") as log:
        assert [record.offset for record in log] == list(range(9))


def test_another_log_is_no_redacted_one(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "copied"
    append(data, made(2, 0), made(2, 3))
    copy_topics(str(data), str(target), apply=True)
    for other in (made(2, 3, b"w"), made(2, 3, b"", timestamp=6_000)):
        with kafkalog.open_dirs(data, "a") as dirs:
            dirs["t", 0].truncate_to(3)
        append(data, other)
        with pytest.raises(IllegalState, match="another batch at offset 3"):
            copy_topics(str(data), str(target), apply=True)

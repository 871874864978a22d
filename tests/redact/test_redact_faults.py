"""A redaction that ends badly: each record is as before or redacted, none is lost, and another call completes it."""

import errno
import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import KafkalogError
from kafkalog.redact.directories import redact
from tests.crash.disk import MODES, DiskFS, write_image
from tests.faults import WRITING_CALLS, FaultFS
from tests.redact.test_redact import make

KEY = b"k3"


def records(path: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    with kafkalog.open(path) as log:
        return [(one.offset, one.key, one.value) for one in log]


def check(data: Path, before: list[tuple[int, bytes | None, bytes | None]]) -> int:
    """Check a directory as a crash left it, complete the redaction, and return the number redacted before."""
    kafkalog.open(data / "t-0", "a").close()  # what a broker does first
    found = records(data / "t-0")
    assert [one[:2] for one in found] == [one[:2] for one in before]
    changed = [old for old, new in zip(before, found, strict=True) if old != new]
    assert all(key == KEY for _, key, _ in changed)
    assert all(new[2] == b"" for old, new in zip(before, found, strict=True) if old != new)
    assert redact(data, "t", keys=[KEY], change="empty", apply=True).ok
    assert records(data / "t-0") == [(offset, key, b"" if key == KEY else value) for offset, key, value in before]
    assert kafkalog.verify(data, deep=True).ok
    names = [one.name for one in (data / "t-0").iterdir()]
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    content = b"".join(one.read_bytes() for one in data.rglob("*") if one.is_file())
    assert b"secret 3." not in content and b"secret 11." not in content
    return len(changed)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failing_call_leaves_every_record_old_or_redacted(tmp_path: Path, code: int) -> None:
    make(tmp_path / "first" / "t-0", 24, 12)
    with kafkalog.open(tmp_path / "first" / "t-0", "a") as log:
        log.build_key_index()
    before, seen = records(tmp_path / "first" / "t-0"), set()
    for nth in range(1, 400):
        data = tmp_path / f"{nth}"
        shutil.copytree(tmp_path / "first", data)
        fs = FaultFS()
        rule = fs.fail(*WRITING_CALLS, path=str(data), nth=nth, times=1, code=code)
        try:
            redact(data, "t", keys=[KEY], change="empty", apply=True, fs=fs)
        except (KafkalogError, OSError):
            assert rule.fired
        if not rule.fired:
            break
        seen.add(check(data, before))
        shutil.rmtree(data)
    assert nth > 20 and seen >= {0, 3}


def test_a_power_cut_at_every_change_of_the_disk(tmp_path: Path) -> None:
    root = tmp_path / "data"
    make(root / "t-0", 24, 12)
    before = records(root / "t-0")
    fs = DiskFS(root)
    from random import Random

    rng, changes, seen = Random("redact"), 0, set()

    def on_change() -> None:
        nonlocal changes
        changes += 1
        for mode in MODES[:2]:
            write_image(fs.disk.image(mode, rng), tmp_path / "images" / f"{changes} {mode.name}")

    fs.on_change = on_change
    redact(root, "t", keys=[KEY], change="empty", apply=True, fs=fs)
    on_change()
    fs.on_change = lambda: None
    for image in sorted((tmp_path / "images").iterdir()):
        seen.add(check(image, before))
        shutil.rmtree(image)
    assert changes > 10 and len(seen) >= 2

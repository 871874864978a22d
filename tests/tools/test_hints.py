"""Each command that a hint of damage names does, when it is run, what the hint says."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import kafkalog
from kafkalog.cli.main import run
from kafkalog.errors import KafkalogError
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from tests import raw_batches
from tests.tools.hint_sources import named_commands, texts
from tests.tools.test_verify_damage import write_log
from tests.tools.test_verify_offsets import SECOND, spoil

FIRST = "00000000000000000000.log"
ALL = frozenset(range(72))


class Case(NamedTuple):
    """A fault in a directory of two segments with 12 batches of 3 records, and the offsets it loses."""

    spoil: Callable[[Path], None]
    lost: frozenset[int] = frozenset()


def _spoiled(name: str, batch: int, byte: int, mask: int) -> Callable[[Path], None]:
    return lambda data: spoil(data / "t-0" / name, batch, byte, mask)


def _torn(data: Path) -> None:
    path = data / "t-0" / SECOND
    path.write_bytes(path.read_bytes()[:-7])


def _torn_unclean(data: Path) -> None:
    _torn(data)
    (data / ".kafka_cleanshutdown").unlink()


def _spoiled_end_unclean(data: Path) -> None:
    spoil(data / "t-0" / SECOND, 11, 70, 1)
    (data / ".kafka_cleanshutdown").unlink()


def _without_middle(data: Path) -> None:
    path = data / "t-0" / FIRST
    content = path.read_bytes()
    at = sum(map(len, raw_batches.batches(0, 3, 3)))
    path.write_bytes(content[: at + 50] + content[at + 90 :])


def _wrong_index(data: Path) -> None:
    path = (data / "t-0" / FIRST).with_suffix(".index")
    path.write_bytes(path.read_bytes()[8:16] * 2)


CASES = {
    "crc": Case(_spoiled(FIRST, 3, 70, 1), frozenset({9, 10, 11})),
    "size": Case(_spoiled(FIRST, 3, 8, 128), frozenset({9, 10, 11})),
    "longer": Case(_spoiled(FIRST, 3, 10, 1), frozenset({9, 10, 11})),
    "base offset": Case(_spoiled(FIRST, 3, 6, 1), frozenset({9, 10, 11})),
    "magic": Case(_spoiled(FIRST, 3, 16, 1), frozenset({9, 10, 11})),
    "missing bytes": Case(_without_middle, frozenset({9, 10, 11})),
    "crc in the last segment": Case(_spoiled(SECOND, 5, 70, 1), frozenset({51, 52, 53})),
    "end of a segment": Case(_spoiled(FIRST, 11, 70, 1), frozenset({33, 34, 35})),
    "crc of the last batch": Case(_spoiled(SECOND, 11, 70, 1), frozenset({69, 70, 71})),
    "crc of the last batch, not closed": Case(_spoiled_end_unclean, frozenset({69, 70, 71})),
    "size of the last batch": Case(_spoiled(SECOND, 11, 8, 64), frozenset({69, 70, 71})),
    "torn and closed": Case(_torn, frozenset({69, 70, 71})),
    "torn and not closed": Case(_torn_unclean, frozenset({69, 70, 71})),
    "index": Case(_wrong_index),
    "snapshot": Case(lambda data: _write(data / "t-0" / "00000000000000000036.snapshot", b"\0\1")),
    "checkpoint": Case(lambda data: _write(data / "replication-offset-checkpoint", b"0\n2\nt 0 1\n")),
    "epochs": Case(lambda data: _write(data / "t-0" / "leader-epoch-checkpoint", b"0\n9\n")),
    "checkpoint above the end": Case(lambda data: _write(data / "recovery-point-offset-checkpoint", b"0\n1\nt 0 99\n")),
}


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


class Ran(NamedTuple):
    """Result of a command from a hint: its data directory, its status and output, and the case."""

    data: Path
    status: int
    out: str
    case: Case


def write_two_segments(data: Path) -> None:
    """A closed log with the offsets of ALL, in two segments."""
    write_log(data / "t-0", raw_batches.batches(0, 12, 3))
    write_log(data / "t-0", raw_batches.batches(36, 12, 3), SECOND)
    (data / ".kafka_cleanshutdown").write_bytes(b"")


def _read(data: Path) -> frozenset[int]:
    with kafkalog.open(data / "t-0") as log:
        return frozenset(record.offset for record in log.records())


def _is_repaired(ran: Ran) -> None:
    assert verify(ran.data).ok, str(verify(ran.data))
    assert _read(ran.data) == ALL - ran.case.lost
    with kafkalog.open(ran.data / "t-0", "a") as log:
        assert log.end_offset == 1 + max(ALL - ran.case.lost)


def _has_right_indexes(ran: Ran) -> None:
    assert not [one for one in verify(ran.data) if one.path.endswith("index")]


def _prints_all_that_is_sound(ran: Ran) -> None:
    assert ran.status == 1
    assert frozenset(map(int, ran.out.split())) == ALL - ran.case.lost


def _shows_the_damage(ran: Ran) -> None:
    assert ran.status == 1 and re.search(r"damage +position [\d,]+ \([\d,]+ bytes\), offset", ran.out)


COMMANDS: dict[str, tuple[list[str], Callable[[Ran], None]]] = {
    "consume --on-damage skip": (
        ["consume", "-q", "--on-damage", "skip", "-t", "t", "-o", "beginning", "-f", "%o\n", "-d"],
        _prints_all_that_is_sound,
    ),
    "verify": (["verify"], _shows_the_damage),
    "repair --excise --apply": (["repair", "--excise", "--apply"], _is_repaired),
    "repair --truncate-tail --apply": (["repair", "--truncate-tail", "--apply"], _is_repaired),
    "repair --rebuild-indexes --apply": (["repair", "--rebuild-indexes", "--apply"], _has_right_indexes),
    "repair --checkpoints --apply": (["repair", "--checkpoints", "--apply"], _is_repaired),
}
"""The commands that hints name, with what they are given besides, the data directory last, and what then holds."""


def _hints(data: Path) -> set[str]:
    """The hints of verify, of repair, and of the errors that readers and an opening for writing raise."""
    found = [one.hint or "" for one in (*verify(data), *repair(data).left)]
    for mode in ("r", "a"):
        copy = Path(shutil.copytree(data, data.parent / f"opened-{mode}")) / "t-0"
        try:
            with kafkalog.open(copy, mode) as log:
                found += [problem.hint or "" for problem in getattr(log, "problems", ())]
                list(log.records())
        except KafkalogError as error:
            found.append(error.hint or "")
    return {hint for hint in found if hint}


@pytest.mark.parametrize("name", CASES)
def test_commands_that_hints_name_do_what_they_say(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    data = tmp_path / "data"
    write_two_segments(data)
    case.spoil(data)
    hints = _hints(data)
    named = sorted({command for hint in hints for command in named_commands(hint)})
    assert named, hints
    for number, command in enumerate(named):
        assert command in COMMANDS, f"no check of what `kafkalog {command}` promises"
        line, check = COMMANDS[command]
        copy = Path(shutil.copytree(data, tmp_path / str(number) / "data"))
        capsys.readouterr()
        status = run([*line, os.fspath(copy)])
        check(Ran(copy, status, capsys.readouterr().out, case))


def test_no_hint_names_a_repair_that_changes_nothing() -> None:
    """A repair without --apply only shows what it would do."""
    named = {one for text in texts() for one in named_commands(text) if one.startswith("repair")}
    assert named and not [one for one in named if "--apply" not in one]

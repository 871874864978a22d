"""Kills writers at random moments, and looks at what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

from kafkalog.errors import KafkalogError
from kafkalog.types import TopicPartition
from tests.crash.check import check_recovered
from tests.crash.cleaned import check_cleaned, located
from tests.crash.expect import Expectation, Witness
from tests.crash.killed import EVENTS, history_of
from tests.crash.power import TOPIC
from tests.crash.session import settings_of
from tests.crash.stored import acknowledged, check_store, histories_of
from tests.gates import wait_until

LONGEST_S = 0.2
LONGEST_OF_STORE_S = 1.0
LEAST = 12
"""Operations that every other writer does before it is killed, however slow the machine is."""
ROOT = Path(__file__).resolve().parents[2]


class Killed(NamedTuple):
    """Remains of a killed writer: its data directory, the required content, and its progress."""

    root: Path
    seed: int
    expected: Expectation
    operations: int
    in_the_middle: str


class KilledClean(NamedTuple):
    """Remains of a killed writer that cleaned: events acknowledged, cleans finished, and one in progress."""

    root: Path
    seed: int
    appended: int
    cleans: int
    in_the_middle: bool


class KilledStore(NamedTuple):
    """Remains of a store that was cleaned in the background; of one topic records below `deleted` may be gone."""

    root: Path
    seed: int
    appended: dict[TopicPartition, int]
    deleted: int
    cleans: int
    in_the_middle: bool


class Killer:
    """Starts writers and kills them, one after another."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.killed"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment, bufsize=0
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._server:
            pass

    def kill_one(self, directory: Path, seed: int) -> Killed:
        """A writer is started, killed after a random while, and has ended."""
        root, report = self._kill("session", directory, seed)
        return _followed(root, seed, report)

    def kill_clean(self, directory: Path, seed: int) -> KilledClean:
        """Kill a writer that appends and cleans."""
        root, report = self._kill("clean", directory, seed)
        lines = [line.split() for line in _lines(report)]
        appended = [int(words[1]) for words in lines if words[0] == b"appended"]
        cleans = [words[0] for words in lines if words[0] != b"appended"]
        return KilledClean(root, seed, max(appended, default=0), cleans.count(b"cleaned"), cleans[-1:] == [b"clean"])

    def kill_store(self, directory: Path, seed: int) -> KilledStore:
        """Kill a writer that appends to a store whose cleaner works in the background."""
        root, report = self._kill("store", directory, seed, LONGEST_OF_STORE_S)
        lines = _lines(report)
        deleted = max((int(line.split()[1]) for line in lines if line.startswith(b"delete ")), default=0)
        begun, over = lines.count(b"clean"), lines.count(b"cleaned")
        return KilledStore(root, seed, acknowledged(lines), deleted, over, begun > over)

    def _kill(self, kind: str, directory: Path, seed: int, longest_s: float = LONGEST_S) -> tuple[Path, Path]:
        """The data directory and the report of a writer that was killed."""
        root = directory / "data"
        root.mkdir(parents=True)
        report = directory / "report"
        assert self._server.stdin is not None
        self._server.stdin.write(f"{kind} {root / TOPIC} {report} {seed}\n".encode())
        writer = self._said("ready")
        if seed % 2:
            wait_until(lambda: sum(b"appended" in line or b'"done"' in line for line in _lines(report)) >= LEAST)
        time.sleep(Random(f"kill {seed}").random() * longest_s)
        with contextlib.suppress(ProcessLookupError):  # it died by itself, which its status says
            os.kill(writer, signal.SIGKILL)
        status = self._said("ended")
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"the writer of seed {seed} died by itself"
        return root, report

    def _said(self, word: str) -> int:
        assert self._server.stdout is not None
        line = self._server.stdout.readline().split()
        assert line[:1] == [word.encode()], f"the writers' process said {line}"
        return int(line[1])


def _lines(report: Path) -> list[bytes]:
    """Return the lines that a writer completed before the kill."""
    return report.read_bytes().split(b"\n")[:-1] if report.exists() else []


def _followed(root: Path, seed: int, report: Path) -> Killed:
    witness, operations, last = Witness(keeps_pages=True), 0, "nothing"
    for line in report.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):  # killed in the middle of telling
            break
        what, operation, answer = json.loads(line)
        if what == "begin":
            witness.begin(operation)
            last = operation["do"]
        else:
            witness.done(operation, tuple(answer))
            operations += 1
            last = "nothing"
    return Killed(root, seed, witness.expectation(), operations, last)


def check_killed(killed: Killed) -> None:
    """All that was acknowledged is there, and what was going on is done, or not, or in part."""
    try:
        check_recovered(killed.root / TOPIC, settings_of(killed.seed), killed.expected)
    except (AssertionError, KafkalogError, OSError) as error:
        where = f"killed with seed {killed.seed}, after {killed.operations} operations, in {killed.in_the_middle}"
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error


def kill_many(directory: Path, seeds: range, keep: Path | None = None) -> list[Killed]:
    """Each seed's writer killed and checked. `keep`: the directories are copied there first, as they were left."""
    done = []
    with Killer() as killer:
        for seed in seeds:
            place = directory / f"kill-{seed}"
            killed = killer.kill_one(place, seed)
            if keep is not None:
                shutil.copytree(killed.root, keep / str(seed))
            check_killed(killed)
            done.append(killed)
            shutil.rmtree(place)
    return done


def kill_cleans(directory: Path, seeds: range) -> list[KilledClean]:
    """Each seed's writer killed while it appends and cleans; no record that was acknowledged and is kept is lost."""
    done = []
    with Killer() as killer:
        for seed in seeds:
            place = directory / f"kill-{seed}"
            killed = killer.kill_clean(place, seed)
            try:
                check_cleaned(killed.root / TOPIC, history_of(seed), True, appended=killed.appended)
            except (AssertionError, KafkalogError, OSError) as error:
                raise AssertionError(f"{killed}: {type(error).__name__}: {error}") from error
            done.append(killed)
            shutil.rmtree(place)
    return done


def kill_stores(directory: Path, seeds: range) -> list[KilledStore]:
    """Each seed's writer killed while the cleaner of its store works; nothing that must outlive that is lost."""
    done = []
    with Killer() as killer:
        for seed in seeds:
            place = directory / f"kill-{seed}"
            killed = killer.kill_store(place, seed)
            histories = histories_of(seed, EVENTS)
            with located(str(killed)):
                check_store(
                    killed.root, histories, time.time_ns() // 10**6, appended=killed.appended, deleted=killed.deleted
                )
            done.append(killed)
            shutil.rmtree(place)
    return done

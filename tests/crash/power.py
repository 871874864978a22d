"""Power cuts at every call: a session runs once, and each state that its disk might have been left in is opened."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from kafkalog.errors import KafkalogError
from tests.crash.check import check_recovered, open_again
from tests.crash.disk import MODES, DiskFS, Image, Mode, write_image
from tests.crash.expect import Expectation, Witness
from tests.crash.session import Operation, Session

EACH_OPERATION = (
    "append", "produce", "transact", "end", "again", "group", "follow", "lead", "roll", "flush", "truncate", "delete",
    "retain", "reopen", "restart",
)  # fmt: skip
TOPIC = "t-0"


class Cut(NamedTuple):
    """One state that a power cut may leave, and where it came."""

    image: Image
    expected: Expectation
    where: str


class PowerRun:
    """A session on a disk that forgets. `cuts()` hands out what was collected since, each different state once."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.seed = seed
        self.root = directory / "data"
        self.root.mkdir()
        self.fs = DiskFS(self.root)
        self.witness = Witness(keeps_pages=False)
        self.points = 0
        self._rng = Random(f"power {seed}")
        self._cuts: dict[int, Cut] = {}
        self._operation: Operation = {"do": "open", "n": 0}
        self.session = Session(self.root / TOPIC, seed, fs=self.fs, report=self._report)

    def _report(self, what: str, operation: Operation, answer: tuple[int, int] | None) -> None:
        self._operation = operation
        if answer is None:
            self.witness.begin(operation)
        else:
            self.witness.done(operation, answer)

    def collect(self, modes: Sequence[Mode], share: float = 1.0, most: int = 1 << 30) -> None:
        """From now on take states at each change of the disk, or at a `share` of them, in at most `most` of `modes`."""

        def on_change() -> None:
            self.points += 1
            if self._rng.random() < share:
                for mode in self._rng.sample(modes, min(most, len(modes))):
                    self.take(mode)

        self.fs.on_change = on_change

    def take(self, mode: Mode) -> None:
        """Take the state of this moment."""
        image = self.fs.disk.image(mode, self._rng)
        expected = self.witness.expectation()
        key = hash((tuple(image.items()), expected.least, expected.starts))
        where = f"seed {self.seed}, change {self.points}, {self._operation}, {mode.name}"
        self._cuts.setdefault(key, Cut(image, expected, where))

    def cuts(self) -> list[Cut]:
        """Return the collected cuts."""
        found, self._cuts = list(self._cuts.values()), {}
        return found


def check_cut(cut: Cut, settings: dict[str, Any], directory: Path) -> bool:
    """True when a log was there, and is as it has to be; False where its directory was never on disk."""
    target = write_image(cut.image, directory / "cut")
    try:
        if not any((target / TOPIC).glob("*.log")):
            lost = [batch for batch in cut.expected.least if batch.last >= cut.expected.starts[1]]
            assert not lost, f"{cut.where}: the log is lost"
            return False
        check_recovered(target / TOPIC, settings, cut.expected)
        return True
    except (AssertionError, KafkalogError, OSError) as error:
        raise AssertionError(f"{cut.where}: {type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(target)


def cut_session(directory: Path, seed: int, steps: int, share: float, modes: Sequence[Mode] = MODES) -> int:
    """The number of states checked: a random session, cut at a `share` of its changes in one random mode each."""
    run = PowerRun(directory, seed)
    run.collect(modes, share, 1)
    for _ in range(steps):
        run.session.step()
    run.session.close()
    return sum(check_cut(cut, run.session.settings, directory) for cut in run.cuts())


def cut_operation(directory: Path, do: str, seed: int, modes: Sequence[Mode] = MODES) -> tuple[int, int]:
    """(changes of the disk, states checked): one operation after a random session, cut at each of its changes."""
    run = prepared(PowerRun(directory, seed), do)
    run.collect(modes)
    run.session.step(do)
    run.fs.on_change = lambda: None
    run.session.close()
    return run.points, sum(check_cut(cut, run.session.settings, directory) for cut in run.cuts())


def cut_opening(directory: Path, seed: int, clean: bool, modes: Sequence[Mode] = MODES) -> tuple[int, int]:
    """Cut the power during an opening, after a clean end or an unclean one: recovery itself may crash."""
    run = crashed(directory, seed, clean)
    run.collect(modes)
    settings = run.session.settings
    open_again(run.session.path, settings, run.fs).close()
    return run.points, sum(check_cut(cut, settings, directory) for cut in run.cuts())


def crashed(directory: Path, seed: int, clean: bool) -> PowerRun:
    """A finished session: closed well, or its process dead and half of the unsynced changes lost."""
    run = prepared(PowerRun(directory, seed), None)
    if not clean:
        run.take(MODES[-1])
    run.session.close()
    if not clean:
        (cut,) = run.cuts()
        shutil.rmtree(run.root)
        write_image(cut.image, run.root)
    run.fs = DiskFS(run.root)
    return run


def prepared(run: PowerRun, do: str | None) -> PowerRun:
    """The run after a random session, in which an operation `do` makes sense."""
    session = run.session
    for _ in range(12 + run.seed % 25):
        session.step()
    if do == "end":
        session.step("transact")
    elif do == "again":
        session.step("produce")
    elif do in ("truncate", "delete"):
        session.step("group")
    elif do == "retain":
        for _ in range(3):
            session.step("group")
            session.step("roll")
    return run

"""Every call of an operation fails in turn: with EIO, on a full disk in the middle of a write, once or from then on.

What the operation says then is looked at, what the log does next, what a process that dies leaves, and what a power
cut leaves.
"""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any, NamedTuple

from kafkalog.errors import KafkalogError
from tests.crash.check import check_recovered, open_again
from tests.crash.disk import MODES, DiskFS, read_image, write_image
from tests.crash.expect import Witness
from tests.crash.model import Model
from tests.crash.power import TOPIC, Cut, PowerRun, check_cut, crashed, prepared
from tests.crash.session import Operation, apply, batches_of
from tests.faults import FD_CALLS, PATH_CALLS, FaultFS, Rule

ALL_CALLS = (*FD_CALLS, *PATH_CALLS)
MOST_CALLS = 2000


class Fault(NamedTuple):
    """A failing call: with `code`, after `partial` bytes of a write, `times` times."""

    name: str
    code: int
    partial: int
    times: int

    def at(self, fs: FaultFS, nth: int) -> Rule:
        """The `nth` call from now on fails so."""
        return fs.fail(*ALL_CALLS, nth=nth, code=self.code, partial=self.partial, times=self.times)


FAULTS = (
    Fault("EIO once", errno.EIO, 0, 1),
    Fault("a full disk once, in the middle of a write", errno.ENOSPC, 37, 1),
    Fault("EIO from then on", errno.EIO, 5, 1 << 30),
)


def fail_operation(directory: Path, do: str, seed: int, fault: Fault, step: int = 1) -> int:
    """The number of calls of an operation that were failed in turn: all, or each `step`-th."""
    for nth in range(1, MOST_CALLS, step):
        place = directory / f"{nth}"
        place.mkdir()
        if not _one_failure(place, do, seed, fault, nth):
            return (nth - 1) // step
    raise AssertionError(f"{do} still fails at call {MOST_CALLS}")


def _one_failure(directory: Path, do: str, seed: int, fault: Fault, nth: int) -> bool:
    """True when there was an `nth` call to fail; AssertionError for what must not be then."""
    run = prepared(PowerRun(directory, seed), do)
    session = run.session
    operation = session.draw(do)
    alive = Witness(keeps_pages=True)
    alive.model = alive.after = session.model
    alive.flushed()
    where = f"seed {seed}, {operation}, call {nth}: {fault.name}"
    rule = fault.at(run.fs, nth)
    try:
        _report(run.witness, alive, operation)
        try:
            getattr(session, f"_{operation['do']}", session._append)(operation)
            done = True
        except KafkalogError as error:
            assert rule.fired, f"{where}: it failed without a fault"
            assert getattr(error, "errno", fault.code) in (fault.code, None), f"{where}: {error!r}"
            done = False
        if fault.times > 1:
            run.take(MODES[6])
        run.fs.heal()
        _go_on(run, alive, operation, done, rule.fired and fault.code == errno.ENOSPC)
        run.take(MODES[0])
        run.take(MODES[6])
        cuts = run.cuts()
        cuts.append(Cut(read_image(run.root), alive.expectation(), "when the process dies"))
        _give_up(run)
        cuts.append(Cut(read_image(run.root), alive.expectation(), "when the log was closed"))
        for cut in cuts:
            check_cut(cut, session.settings, directory)
    except (AssertionError, OSError, KafkalogError) as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    finally:
        run.fs.heal()
        _give_up(run)
    return bool(rule.fired)


def _report(witness: Witness, alive: Witness, operation: Operation) -> None:
    witness.begin(operation)
    alive.begin(operation)


def _go_on(run: PowerRun, alive: Witness, operation: Operation, done: bool, disk_was_full: bool) -> None:
    """Follow what the log says it holds after a failure, and append to it where it lets us."""
    session, log = run.session, run.session.opened.log
    if session.log.closed or run.session.opened.closed:
        return
    answer = (log.log_start_offset, log.log_end_offset)
    model = _after(session.model, operation, answer)
    session.model = model
    for witness in (run.witness, alive):
        if done:
            witness.done(operation, answer, disk_was_full)
        else:
            witness.failed(operation, model)
    try:
        following = session.draw("append")
        _report(run.witness, alive, following)
        session._append(following)
    except KafkalogError as error:
        assert not done, f"a log that is well refuses: {error}"
        return
    session.model = apply(session.model, following)
    answer = (log.log_start_offset, log.log_end_offset)
    assert answer[1] == session.model.end, f"{log!r}, {session.model}"
    run.witness.done(following, answer)
    alive.done(following, answer)


def _after(model: Model, operation: Operation, answer: tuple[int, int]) -> Model:
    """The model that a log with this start and end stands for, after an operation was done, or in part, or not."""
    start, end = answer
    after = apply(model, operation) if operation["do"] not in ("retain", "reopen") else model
    if operation["do"] == "restart":
        return after if (start, end) == (after.start, after.end) else model
    batches = [*model.batches, *(batch for batch in after.batches if batch not in model.batches)]
    kept = tuple(batch for batch in batches if batch.last < end)
    epoch = after.leader_epoch
    assert end in (model.end, after.end, *(batch.last + 1 for batch in batches_of(model, operation))), (answer, model)
    return Model(start, end, kept, epoch)


def _give_up(run: PowerRun) -> None:
    try:
        run.session.log.close()
    except KafkalogError:
        pass


def fail_opening(directory: Path, seed: int, clean: bool, fault: Fault, step: int = 1) -> int:
    """The number of calls of an opening that were failed in turn: the next opening finds all there is."""
    run = crashed(directory, seed, clean)
    before, expected = read_image(run.root), run.witness.expectation()
    for nth in range(1, MOST_CALLS, step):
        root = write_image(before, directory / f"{nth}" / "data")
        fs = DiskFS(root)
        rule = fault.at(fs, nth)
        where = f"seed {seed}, opened {'clean' if clean else 'unclean'}, call {nth}: {fault.name}"
        try:
            _open_and_fail(root, run.session.settings, fs, rule)
            fs.heal()
            check_recovered(root / TOPIC, run.session.settings, expected)
        except (AssertionError, OSError, KafkalogError) as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        if not rule.fired:
            return (nth - 1) // step
    raise AssertionError(f"an opening still fails at call {MOST_CALLS}")


def _open_and_fail(root: Path, settings: dict[str, Any], fs: DiskFS, rule: Rule) -> None:
    try:
        log = open_again(root / TOPIC, settings, fs)
    except KafkalogError as error:
        logging.getLogger(__name__).info("%s", error)
        assert rule.fired
        return
    fs.heal()
    log.close()

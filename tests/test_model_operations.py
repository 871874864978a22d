"""Random sessions of every operation beside a model: transactions, markers, followers, retention, syncs, crashes.

The operations and the model are those of the crash machine (tests/crash); here hypothesis chooses them, and finds the
shortest session that goes wrong.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import kafkalog
from tests.crash.check import check_epochs, check_producers, check_reading, check_recovered
from tests.crash.disk import read_image, write_image
from tests.crash.expect import Witness
from tests.crash.session import Session
from tests.memory import memory

APPENDS = ("append", "produce", "transact", "group", "follow")
CHANGES = ("roll", "flush", "lead", "truncate", "delete", "retain", "restart")


class EveryOperation(RuleBasedStateMachine):
    """A session; after each step the log, and a reader beside it, agree with the model in every way of reading."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kafkalog-model-", dir=memory()))
        (self.directory / "data").mkdir()

    @initialize(seed=st.integers(0, 500))
    def create(self, seed: int) -> None:
        self.witness = Witness(keeps_pages=True)
        self.session = Session(self.directory / "data" / "t-0", seed, report=self.report)

    def report(self, what: str, operation: dict[str, object], answer: tuple[int, int] | None) -> None:
        if answer is None:
            self.witness.begin(operation)
        else:
            self.witness.done(operation, answer)

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.session.close()
        shutil.rmtree(self.directory)

    @rule(do=st.sampled_from(APPENDS))
    def append(self, do: str) -> None:
        self.session.step(do)

    @rule(do=st.sampled_from(CHANGES))
    def change(self, do: str) -> None:
        self.session.step(do)

    @rule(do=st.sampled_from(("end", "again")))
    def end_or_repeat(self, do: str) -> None:
        if self.session.can(do):
            self.session.step(do)

    @rule(sync=st.booleans())
    def reopen(self, sync: bool) -> None:
        self.session.step("reopen", sync=sync)

    @rule()
    def crash(self) -> None:
        """The files as they lie, without a marker: what a killed process leaves."""
        copy = write_image(read_image(self.directory / "data"), self.directory / "copy")
        check_recovered(copy / "t-0", self.session.settings, self.witness.expectation())
        shutil.rmtree(copy)

    @precondition(lambda self: self.session.model.visible())
    @rule(where=st.floats(0, 1))
    def high_watermark(self, where: float) -> None:
        """LOG-27: it may be set within the log, and bounds what its readers see; the next append raises it again."""
        model, log = self.session.model, self.session.opened.log
        mark = model.start + int(where * (model.end - model.start))
        assert log.update_high_watermark(mark) == mark
        below = [record.offset for record in self.session.log.records(isolation="high_watermark")]
        assert below == [record.offset for record in self.session.log if record.offset < mark]
        assert self.session.log.last_stable_offset <= mark
        log.update_high_watermark(model.end)

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "session"):
            log, found = self.session.log, list(self.session.model.visible())
            assert (log.start_offset, log.end_offset) == (self.session.model.start, self.session.model.end)
            check_producers(log, found)
            check_epochs(log, found)
            check_reading(log, found)
            with kafkalog.open(self.session.path) as view:
                assert [batch.header.base_offset for batch in view.batches()] == [batch.base for batch in found]


EveryOperation.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


@pytest.mark.filterwarnings("ignore::kafkalog.errors.UnsafeFileSystem")
class TestEveryOperation(EveryOperation.TestCase):
    """Run by hypothesis."""

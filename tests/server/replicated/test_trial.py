"""Short trials of a replica set; `make soak` runs them for hours (KAFKALOG_SOAK_S)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("aiokafka")
from tests.commands import ROOT, environment
from tests.server.replicated.apart import Apart
from tests.server.replicated.checker import OK, UNKNOWN, Append, Fault, Operation
from tests.server.replicated.clients import NEVER, Client
from tests.server.replicated.trial import SAFE, is_allowed

SECONDS = os.environ.get("KAFKALOG_TRIAL_S", "8")


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_finding(tmp_path: Path, seed: int) -> None:
    """The third seed lets nodes lead by force."""
    words = ["--seconds", "1", "--round", SECONDS, "--seed", str(seed), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.server.replicated.soak", *words],
        cwd=ROOT, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nkept in {tmp_path}"
    assert "findings: none" in done.stdout


@pytest.mark.crash
@pytest.mark.slow
def test_a_soak_that_is_ended_tells_what_was_done_and_leaves_nothing(tmp_path: Path) -> None:
    words = ["--seconds", "600", "--round", "1", "--seed", "4", "--keep", str(tmp_path)]
    soak = subprocess.Popen(
        [sys.executable, "-m", "tests.server.replicated.soak", *words],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with soak:
        assert soak.stdout is not None
        assert "seed 4: " in soak.stdout.readline()
        soak.terminate()
        said = soak.stdout.read()
    assert soak.returncode == 0
    assert re.search(r"ended early: soak of \d+ s, seeds 4 to 4: 1 rounds, 0 .* rounds with findings: 0\n", said)
    assert not list(tmp_path.iterdir())


class Dies(Client):
    """Reports one record and crashes after it; the second time it continues."""

    is_writer = True

    def work(self, process: str) -> None:
        key, number = self.keys[0], int(process.rpartition(".")[2])
        self.take(Append(process, key, number, f"{process}:0", 0, NEVER, UNKNOWN), OK, number, 1)
        if not number:
            os.kill(os.getpid(), signal.SIGSEGV)
        self.outcomes["goes on"] += 1
        self.is_over.wait()


def test_a_client_that_crashes_is_told_of_and_what_it_knew_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history: list[Operation] = []
    client = Apart(Dies, "dies", "nowhere:1", {SAFE: 1}, history, tmp_path)
    client.start()
    end = time.monotonic() + 60
    while len(history) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    client.is_over.set()
    client.join(60)
    assert not client.is_alive() and client.failure is None
    assert client.outcomes == {"crashed by SIGSEGV": 1, "goes on": 1, "ok": 1}
    assert client.acknowledged == {SAFE: 2}
    assert [one.process for one in history] == ["dies.0", "dies.1"]
    assert "Segmentation fault" in (tmp_path / "client-dies.log").read_text(encoding="utf-8")


def test_what_a_promise_allows() -> None:
    """Only what one replica acknowledged may be lost, unless somebody was forced to lead."""
    key = (SAFE, 0)
    assert is_allowed(Fault("lost", key, 1, ""), is_forced=False)
    assert not is_allowed(Fault("lost", key, -1, ""), is_forced=False)
    assert not is_allowed(Fault("vanished", key, 0, ""), is_forced=False)
    assert is_allowed(Fault("lost", key, -1, ""), is_forced=True)
    assert not is_allowed(Fault("divergent", key, 0, ""), is_forced=True)
